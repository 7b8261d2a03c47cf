/* test_text_files.c - reading texts from files: every archive format, and messages for damaged and
 * non-regular files. */
#include <archive.h>
#include <archive_entry.h>
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tapegrad/data.h>

#include "support/folder.h"

TestSuite(text_files, .init = make_folder, .fini = remove_folder);

static size_t get(const char *name, char *bytes, size_t size)
{
    FILE *f = fopen(in_folder(name), "rb");
    cr_assert(f);
    const size_t n = fread(bytes, 1, size, f);
    fclose(f);
    return n;
}

static void fill_text(char *text, size_t n)
{
    uint32_t z = 1;
    for (size_t i = 0; i < n; i++) {
        z = z * 1664525u + 1013904223u;
        text[i] = "etaoin shrdlu\nABC.,"[(z >> 24) % 19];
    }
}

typedef int (*filter_fn)(struct archive *);
static const struct {
    const char *name;
    filter_fn filter; /* NULL: zip */
} formats[] = {
    { "text.gz", archive_write_add_filter_gzip },
    { "text.xz", archive_write_add_filter_xz },
    { "text.zst", archive_write_add_filter_zstd },
    { "text.bz2", archive_write_add_filter_bzip2 },
    { "text.zip", NULL },
};
enum { FORMATS = sizeof formats / sizeof formats[0] };

static void pack(int i, const char *name, const char *text, size_t n, int files)
{
    struct archive *a = archive_write_new();
    if (formats[i].filter) {
        cr_assert(formats[i].filter(a) == ARCHIVE_OK);
        cr_assert(archive_write_set_format_raw(a) == ARCHIVE_OK);
    } else {
        cr_assert(archive_write_set_format_zip(a) == ARCHIVE_OK);
    }
    cr_assert(archive_write_open_filename(a, in_folder(name)) == ARCHIVE_OK);
    for (int k = 0; k < files; k++) {
        struct archive_entry *e = archive_entry_new();
        char entry[16];
        snprintf(entry, sizeof entry, "text%d", k);
        archive_entry_set_pathname(e, entry);
        archive_entry_set_filetype(e, AE_IFREG);
        archive_entry_set_perm(e, 0644);
        archive_entry_set_size(e, (la_int64_t)n);
        cr_assert(archive_write_header(a, e) == ARCHIVE_OK);
        cr_assert(archive_write_data(a, text, n) == (la_ssize_t)n);
        archive_entry_free(e);
    }
    cr_assert(archive_write_close(a) == ARCHIVE_OK);
    archive_write_free(a);
}

/* Every format gives the ids of the plain file, under its usual or another name. */
Test(text_files, archives)
{
    enum { N = 200000 };
    static char text[N];
    fill_text(text, N);
    write_in_folder("plain", text, N);
    tp_text *plain = tp_text_open(in_folder("plain"), NULL);
    cr_assert(tp_text_ok(plain), "%s", tp_text_why(plain));
    for (int i = 0; i < 2 * FORMATS; i++) {
        const char *name = i < FORMATS ? formats[i].name : "renamed.txt";
        pack(i % FORMATS, name, text, N, 1);
        tp_text *X = tp_text_open(in_folder(name), NULL);
        cr_expect(tp_text_ok(X), "%s: %s", formats[i % FORMATS].name, tp_text_why(X));
        for (int s = TP_TRAIN; s <= TP_TEST; s++) {
            int64_t n, m;
            const int16_t *a = tp_text_ids(X, (tp_part)s, &n);
            const int16_t *b = tp_text_ids(plain, (tp_part)s, &m);
            cr_expect(n == m && memcmp(a, b, (size_t)n * sizeof *a) == 0, "%s: part %d",
                      formats[i % FORMATS].name, s);
        }
        tp_text_close(X);
    }
    tp_text_close(plain);
}

/* A zip packed on a Mac has companion files. */
Test(text_files, companions_in_archives)
{
    static const char *const names[] = { "__MACOSX/._text", "text", ".DS_Store",
                                         "__MACOSX/._other" };
    struct archive *a = archive_write_new();
    cr_assert(archive_write_set_format_zip(a) == ARCHIVE_OK);
    cr_assert(archive_write_open_filename(a, in_folder("mac.zip")) == ARCHIVE_OK);
    for (int k = 0; k < 4; k++) {
        struct archive_entry *e = archive_entry_new();
        archive_entry_set_pathname(e, names[k]);
        archive_entry_set_filetype(e, AE_IFREG);
        archive_entry_set_perm(e, 0644);
        archive_entry_set_size(e, 20);
        cr_assert(archive_write_header(a, e) == ARCHIVE_OK);
        cr_assert(archive_write_data(a, "aaaabbbbaaaabbbbaabb", 20) == 20);
        archive_entry_free(e);
    }
    cr_assert(archive_write_close(a) == ARCHIVE_OK);
    archive_write_free(a);
    tp_text *X = tp_text_open(in_folder("mac.zip"), NULL);
    cr_assert(tp_text_ok(X), "%s", tp_text_why(X));
    cr_expect_eq(
        tp_text_bytes(X, TP_TRAIN) + tp_text_bytes(X, TP_VALID) + tp_text_bytes(X, TP_TEST), 20);
    tp_text_close(X);
}

/* Extra text belongs only to the training split and the dictionary. */
Test(text_files, extra_text)
{
    static const char text[] = "aaaabbbbaaaabbbbaabb";
    int64_t n;
    write_in_folder("more", "cccccccccc#", 11);
    tp_text *X =
        tp_text_from((const uint8_t *)text, 20,
                     &(tp_text_opts){ .valid = 0.2, .test = 0.2, .extra = in_folder("more") });
    cr_assert(tp_text_ok(X), "%s", tp_text_why(X));
    cr_expect_eq(tp_text_bytes(X, TP_TRAIN), 12 + 11);
    cr_expect_eq(tp_text_bytes(X, TP_VALID), 4);
    const tp_vocab *v = tp_text_vocab(X);
    cr_expect(v->id['c'] == 4 && v->id['a'] == 5 && v->id['b'] == 6 && v->id['#'] == 7);
    const int16_t *ids = tp_text_ids(X, TP_TRAIN, &n);
    cr_expect(n == 24 && ids[11] == 5 && ids[12] == 4 && ids[22] == 7 && ids[23] == 2);
    ids = tp_text_ids(X, TP_VALID, &n);
    cr_expect(n == 5 && ids[0] == 6 && ids[4] == 2);
    tp_text_close(X);

    X = tp_text_from((const uint8_t *)text, 20, &(tp_text_opts){ .extra = in_folder("none") });
    cr_expect(!tp_text_ok(X) && strstr(tp_text_why(X), "none: "), "%s", tp_text_why(X));
    tp_text_close(X);
}

Test(text_files, limit_of_an_archive)
{
    pack(0, "a.gz", "aaaaaaaabb", 10, 1);
    tp_text *X = tp_text_open(in_folder("a.gz"), &(tp_text_opts){ .limit = 8 });
    cr_expect_eq(
        tp_text_bytes(X, TP_TRAIN) + tp_text_bytes(X, TP_VALID) + tp_text_bytes(X, TP_TEST), 8);
    tp_text_close(X);
}

static void expect_why(const char *name, const char *want)
{
    const char *path = in_folder(name);
    tp_text *X = tp_text_open(path, NULL);
    const char *why = tp_text_why(X);
    const size_t skip = strlen("text ") + strlen(path) + strlen(": ");
    cr_expect_not(tp_text_ok(X), "%s", name);
    cr_expect(strlen(why) > skip && strncmp(why + skip, want, strlen(want)) == 0, "%s: %s", name,
              why);
    int64_t n = 1;
    tp_text_ids(X, TP_TRAIN, &n);
    cr_expect_eq(n, 0, "%s: a failed text has no ids", name);
    tp_text_close(X);
}

/* Replaces the compression method in both headers of a zip with one file. */
static void relabel_zip(const char *name, char method)
{
    static char packed[4096];
    const size_t n = get(name, packed, sizeof packed);
    for (size_t i = 0; i + 10 < n; i++) {
        if (memcmp(packed + i, "PK\3\4", 4) == 0) packed[i + 8] = method;
        if (memcmp(packed + i, "PK\1\2", 4) == 0) packed[i + 10] = method;
    }
    write_in_folder(name, packed, n);
}

/* Both headers of an .xz file whose block needs a 4 GiB dictionary. */
static const char xz_4g[] = "\xfd\x37zXZ\0\0\0\xff\x12\xd9\x41"
                            "\x02\0\x21\x01\x28\0\0\0\0\0\0\0";

Test(text_files, file_errors)
{
    enum { N = 300000 };
    static char text[N], packed[N];
    fill_text(text, N);
    write_in_folder("empty", "", 0);
    write_in_folder("empty.gz", "", 0);
    write_in_folder("words.gz", "just text", 9);
    write_in_folder("head.gz", "\x1f\x8b\x08", 3);
    expect_why("missing", "cannot be opened: No such file or directory; check the path");
    expect_why(".", "is a folder; a regular file is wanted");
    expect_why("empty", "is empty");
    expect_why("empty.gz", "is empty");
    expect_why("words.gz", "is named .gz but is not a gzip file");
    expect_why("head.gz", "is damaged or cut off after 0 unpacked bytes (");
    pack(0, "nothing.gz", "", 0, 1);
    expect_why("nothing.gz", "is empty");
    pack(4, "none.zip", "", 0, 0);
    expect_why("none.zip", "is named .zip but is not a zip file");
    pack(4, "two.zip", "ab", 2, 2);
    expect_why("two.zip", "contains several files; unpack the one to read");
    pack(4, "lzma.zip", text, 100, 1);
    relabel_zip("lzma.zip", 14);
    expect_why("lzma.zip", "is compressed as ZIP 2.0 (lzma); use deflate, gzip, xz, zstd or bzip2");
    write_in_folder("large.xz", xz_4g, sizeof xz_4g - 1);
    expect_why("large.xz", "needs a dictionary of more than 256 MiB; compress it again with xz -9");
    pack(1, "second.xz", text, N, 1);
    const size_t first = get("second.xz", packed, N);
    memset(packed + first, 0, 8); /* between streams */
    memcpy(packed + first + 8, xz_4g, sizeof xz_4g - 1);
    write_in_folder("second.xz", packed, first + 8 + sizeof xz_4g - 1);
    expect_why("second.xz",
               "needs a dictionary of more than 256 MiB; compress it again with xz -9");
    for (int i = 0; i < FORMATS; i++) {
        pack(i, formats[i].name, text, N, 1);
        const size_t n = get(formats[i].name, packed, N);
        write_in_folder(formats[i].name, packed, n / 2);
        expect_why(formats[i].name, "is damaged or cut off after ");
    }
}

/* Reading other kinds of files could block or never end. */
Test(text_files, only_regular_files)
{
    const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    snprintf(at.sun_path, sizeof at.sun_path, "%.100s", in_folder("socket"));
    cr_assert(listener >= 0 && bind(listener, (const struct sockaddr *)&at, sizeof at) == 0);
    cr_assert(mkfifo(in_folder("pipe"), 0600) == 0);
    cr_assert(symlink("/dev/zero", in_folder("zero")) == 0);
    expect_why("pipe", "is a pipe; a regular file is wanted");
    expect_why("zero", "is a device; a regular file is wanted");
    expect_why("socket", "is a socket; a regular file is wanted");
    close(listener);
}

/* Truncating and refilling a text during opening gives a message, not a SIGBUS. */
Test(text_files, file_that_shrinks)
{
    enum { LONG = 1 << 24, TIMES = 25 };
    write_in_folder("text", "", 0);
    const pid_t child = fork();
    while (child == 0)
        if (truncate(in_folder("text"), LONG) != 0 || truncate(in_folder("text"), 5000) != 0)
            _exit(1);
    for (int i = 0; i < TIMES; i++) {
        tp_text *X = tp_text_open(in_folder("text"), &(tp_text_opts){ .style = TP_TEXT_BYTES });
        const char *why = tp_text_why(X);
        cr_expect(tp_text_ok(X) || strstr(why, "shorter") || strstr(why, "empty"), "%s", why);
        tp_text_close(X);
    }
    kill(child, SIGKILL);
    cr_assert_eq(waitpid(child, NULL, 0), child);
}

Test(text_files, unreadable_file)
{
    if (geteuid() == 0) cr_skip_test("root reads every file");
    write_in_folder("locked", "text", 4);
    cr_assert(chmod(in_folder("locked"), 0) == 0);
    expect_why("locked", "cannot be opened: Permission denied; check the permissions of");
}

/* ---- encodings, bytes missing in a dictionary ---- */

static tp_text *open_bytes(const void *bytes, size_t n, tp_text_opts o)
{
    write_in_folder("t", bytes, n);
    return tp_text_open(in_folder("t"), &o);
}

Test(text_files, encodings)
{
    tp_text *X = open_bytes("\xef\xbb\xbf"
                            "abab",
                            7, (tp_text_opts){ .valid = 0.25 });
    cr_assert(tp_text_ok(X), "%s", tp_text_why(X));
    cr_expect_eq(tp_text_bytes(X, TP_TRAIN) + tp_text_bytes(X, TP_VALID), 4);
    tp_text_close(X);
    X = open_bytes("\xff\xfe"
                   "a\0b\0",
                   6, (tp_text_opts){ 0 });
    cr_expect(strstr(tp_text_why(X), "t is UTF-16; convert it"), "%s", tp_text_why(X));
    tp_text_close(X);
    X = open_bytes("abc\0def", 7, (tp_text_opts){ 0 });
    cr_expect(strstr(tp_text_why(X), "zero byte at offset 3") &&
                  strstr(tp_text_why(X), "style 'bytes'"),
              "%s", tp_text_why(X));
    tp_text_close(X);
    X = open_bytes("\xff\xfe"
                   "a\0b\0",
                   6, (tp_text_opts){ .style = TP_TEXT_BYTES });
    cr_expect(tp_text_ok(X) && tp_text_bytes(X, TP_TRAIN) == 6, "any file is one of bytes");
    tp_text_close(X);
}

Test(text_files, a_dictionary_with_a_byte_order_mark)
{
    char why[500];
    tp_vocab v;
    write_in_folder("dict.txt",
                    "\xef\xbb\xbf"
                    "97 3\n98 2\n",
                    13);
    cr_expect(tp_vocab_load(&v, in_folder("dict.txt"), TP_TEXT_AUTO, why, sizeof why), "%s", why);
    cr_expect(v.style == TP_TEXT_ENWIK8 && v.id['a'] == 4);
    write_in_folder("dict.txt",
                    "\xff\xfe"
                    "9\0\n\0",
                    6);
    cr_expect_not(tp_vocab_load(&v, in_folder("dict.txt"), TP_TEXT_AUTO, why, sizeof why));
    cr_expect(strstr(why, "is UTF-16;"), "%s", why);
}

/* The extra text must not bring the validation text into the training part. */
Test(text_files, extra_text_is_not_the_text)
{
    write_in_folder("a", "aaaabbbbaaaabbbbaabb", 20);
    write_in_folder("b", "aaaabbbbaaaabbbbaabbcc", 22);
    for (int k = 0; k < 2; k++) {
        char extra[600];
        snprintf(extra, sizeof extra, "%s", in_folder(k ? "b" : "a"));
        tp_text *X = tp_text_open(in_folder("a"), &(tp_text_opts){ .extra = extra });
        cr_expect(strstr(tp_text_why(X), "begins with the whole text"), "%s", tp_text_why(X));
        tp_text_close(X);
    }
}

Test(text_files, bytes_that_the_dictionary_lacks_are_counted)
{
    static const struct {
        tp_text_style style;
        int64_t train, unknown, ids;
    } cases[] = { { TP_TEXT_ENWIK8, 0, 3, 6 },
                  { TP_TEXT_TXL, 0, 0, 5 },
                  { TP_TEXT_BYTES, 0, 0, 5 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t n;
        tp_text *X = tp_text_from((const uint8_t *)"aaaab"
                                                   "axyzb",
                                  10, &(tp_text_opts){ .style = cases[i].style, .valid = 0.5 });
        cr_assert(tp_text_ok(X), "%s", tp_text_why(X));
        cr_expect_eq(tp_text_unknown(X, TP_TRAIN), cases[i].train);
        cr_expect_eq(tp_text_unknown(X, TP_VALID), cases[i].unknown, "%zu", i);
        tp_text_ids(X, TP_VALID, &n);
        cr_expect_eq(n, cases[i].ids, "%zu: %lld", i, (long long)n);
        tp_text_close(X);
    }
    tp_vocab v;
    cr_assert(tp_vocab_parse(&v, "txl:97"));
    tp_text *X =
        tp_text_from((const uint8_t *)"aa\nb", 4, &(tp_text_opts){ .vocab = &v, .valid = 0.25 });
    cr_expect(tp_text_unknown(X, TP_TRAIN) == 0 && tp_text_unknown(X, TP_VALID) == 1);
    tp_text_close(X);
}
