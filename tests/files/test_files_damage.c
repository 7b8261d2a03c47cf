/* test_files_damage.c - damaged safetensors files: every kind of damage and its message, every
 * truncation, every flipped bit. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tapegrad/tapegrad.h>
#include <unistd.h>

#include "support/files.h"
#include "support/folder.h"

TestSuite(files, .init = make_folder, .fini = remove_folder);

/* ---- damage ---- */

#define AGAIN "; the file is damaged: copy, download or write it again"
#define OTHER                                                                                      \
    "; this is neither a safetensors file nor one of torch.save, or its beginning is damaged: "    \
    "give another file, or copy or download it again"

static const struct {
    const char *name;
    uint64_t length;
    const char *json;
    size_t data;
    const char *why;
} broken[] = {
    { "length beyond file", 1000, "{}", 0,
      "the header length (bytes 0 to 7) is 1000, but only 2 bytes follow" OTHER },
    { "length with its top bit", UINT64_MAX - 7, "{}", 0,
      "the header length (bytes 0 to 7) is 18446744073709551608, but only 2 bytes follow" OTHER },
    { "no brace", 0, "[1,2]", 0,
      "the header does not begin with '{' but with byte 0x5b, at offset 8" OTHER },
    { "cut JSON", 0, "{\"a\":", 0,
      "the header is not valid JSON at offset 13: unexpected token near end of file" AGAIN },
    { "text behind the JSON", 0, "{} x", 0,
      "the header is not valid JSON at offset 12: end of file expected near 'x'" AGAIN },
    { "not UTF-8", 0, "{\"\xff\":1}", 0,
      "the header is not valid JSON at offset 10: unable to decode byte 0xff near '\"'" AGAIN },
    { "name twice", 0,
      "{" TENSOR("a", "U8", "[1]", "[0,1]") "," TENSOR("a", "U8", "[1]", "[1,2]") "}", 2,
      "the header is not valid JSON at offset 64: duplicate object key near '\"a\"'" AGAIN },
    { "metadata spelt otherwise", 0, "{\"__metadat4__\":{\"step\":\"3\"}}", 0,
      "'__metadat4__' in the header describes no tensor" AGAIN },
    { "tensor no object", 0, "{\"a\":3}", 0, "'a' in the header describes no tensor" AGAIN },
    { "huge axis", 0, "{" TENSOR("a", "U8", "[99999999999999999999]", "[0,1]") "}", 1,
      "the header is not valid JSON at offset 56: too big integer near "
      "'99999999999999999999'" AGAIN },
    { "cut off", 0, "{" TENSOR("a", "F32", "[2]", "[0,8]") "}", 7,
      "tensor 'a' is at offsets 0 to 8 of 7 bytes of data; the file is cut off: copy, download "
      "or "
      "write it again" },
    { "overlap", 0,
      "{" TENSOR("a", "F32", "[2]", "[0,8]") "," TENSOR("b", "F32", "[2]", "[4,12]") "}", 12,
      "tensors 'a' and 'b' overlap at offset 4 of the data" AGAIN },
    { "empty tensor inside another", 0,
      "{" TENSOR("a", "F32", "[2]", "[0,8]") "," TENSOR("b", "F32", "[0]", "[4,4]") "}", 8,
      "tensors 'a' and 'b' overlap at offset 4 of the data" AGAIN },
    { "gap", 0, "{" TENSOR("b", "U8", "[4]", "[8,12]") "," TENSOR("a", "U8", "[4]", "[0,4]") "}",
      12, "offsets 4 to 8 of the data, before tensor 'b', belong to no tensor" AGAIN },
    { "rest", 0, "{" TENSOR("a", "U8", "[4]", "[0,4]") "}", 6,
      "offsets 4 to 6, the end of the data, belong to no tensor" AGAIN },
    { "only data", 0, "{}", 3, "offsets 0 to 3, the end of the data, belong to no tensor" AGAIN },
};

static void expect_why(const char *name, const char *path, const char *why)
{
    char expected[2048];
    tp_file *F = tp_file_open(path);
    snprintf(expected, sizeof expected, "%s: %s", path, why);
    cr_expect(!tp_file_ok(F), "%s: opened", name);
    cr_expect_str_eq(tp_file_why(F), expected, "%s: says\n  %s\nnot\n  %s", name, tp_file_why(F),
                     expected);
    cr_expect_eq(tp_file_count(F), 0, "%s: shows tensors", name);
    cr_expect_null(tp_file_at(F, 0));
    cr_expect_null(tp_file_find(F, "a"));
    cr_expect_null(tp_file_meta(F, "step"));
    tp_file_close(F);
}

Test(files, broken_headers)
{
    const char *path = in_folder("broken");
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        write_raw(path, broken[i].length, broken[i].json, NULL, broken[i].data);
        expect_why(broken[i].name, path, broken[i].why);
    }
}

Test(files, broken_beginnings)
{
    const char *path = in_folder("none");
    expect_why("missing", path,
               "cannot be opened (No such file or directory); check the path and its permissions");
    expect_why("folder", folder, "is a folder; give the path of a file with weights");
    expect_why("device", "/dev/zero", "is a device; give the path of a file with weights");
    path = in_folder("pipe");
    cr_assert_eq(mkfifo(path, 0600), 0);
    expect_why("pipe", path, "is a pipe; give the path of a file with weights");
    path = in_folder("short");
    write_bytes(path, "", 0);
    expect_why("empty", path, "has 0 bytes, too few for the 8 of the header length" AGAIN);
    write_bytes(path, "{\"a\"", 4);
    expect_why("short", path, "has 4 bytes, too few for the 8 of the header length" AGAIN);
    write_bytes(path, "\0\0\0\0\0\0\0\0", 8);
    expect_why("zero", path, "the header length (bytes 0 to 7) is 0" OTHER);
    write_bytes(path, "\1\xe1\xf5\5\0\0\0\0", 8); /* 100000001 */
    cr_assert_eq(truncate(path, 8 + 100000001), 0);
    expect_why(
        "absurd", path,
        "the header length (bytes 0 to 7) is 100000001, more than the 100000000 allowed" OTHER);
}

/* An error in tensor a withholds neither b, c nor the metadata. */
static const struct {
    const char *entry;
    tp_code code;
    const char *why; /* after "tensor 'a' " */
} spoiled[] = {
    { TENSOR("a", "F4", "[8]", "[8,12]"), TP_E_DTYPE,
      "has the unknown dtype 'F4'; convert it to F32 or BF16" },
    { TENSOR("a", "Q\\n\\u001b[1m", "[8]", "[8,12]"), TP_E_DTYPE,
      "has the unknown dtype 'Q\\n\\x1b[1m'; convert it to F32 or BF16" },
    { TENSOR("a", "U8", "[1,1,1,1,1,1,1,1,4]", "[8,12]"), TP_E_DTYPE,
      "has 9 axes; at most 8 are supported: reshape it" },
    { "\"a\":{\"shape\":[],\"data_offsets\":[8,12]}", TP_E_IO, "has no dtype" AGAIN },
    { "\"a\":{\"dtype\":\"F32\",\"data_offsets\":[8,12]}", TP_E_IO, "has no shape" AGAIN },
    { TENSOR("a", "U8", "[2,-1]", "[8,12]"), TP_E_IO,
      "has an axis 1 that is not a whole number from 0 on" AGAIN },
    { TENSOR("a", "U8", "[4.0]", "[8,12]"), TP_E_IO,
      "has an axis 0 that is not a whole number from 0 on" AGAIN },
    { TENSOR("a", "U8", "[4294967296,4294967296]", "[8,12]"), TP_E_IO,
      "has more elements than can be counted" AGAIN },
    { "\"a\":{\"dtype\":\"F32\",\"shape\":[1]}", TP_E_IO, "has no pair of data_offsets" AGAIN },
    { TENSOR("a", "F32", "[1]", "[8,10,12]"), TP_E_IO, "has no pair of data_offsets" AGAIN },
    { TENSOR("a", "F32", "[1]", "[-4,0]"), TP_E_IO, "has no pair of data_offsets" AGAIN },
    { TENSOR("a", "F32", "[1]", "[12,8]"), TP_E_IO, "is at offsets 12 to 8 of the data" AGAIN },
    { TENSOR("a", "F32", "[2]", "[8,12]"), TP_E_IO,
      "is F32[2] but its offsets 8 to 12 hold 4 bytes" AGAIN },
    { TENSOR("a", "F32", "[[1]]", "[8,12]"), TP_E_IO,
      "has an axis 0 that is not a whole number from 0 on" AGAIN },
};

static void expect_spoiled(const char *path, tp_code code, const char *why)
{
    char expected[2048];
    float b[2] = { 0 }, c[1] = { 0 };
    tp_file *F = tp_file_open(path);
    cr_assert(tp_file_ok(F), "%s: %s", why, tp_file_why(F));
    const tp_file_tensor *a = tp_file_find(F, "a");
    cr_assert_eq(tp_file_count(F), 3);
    cr_assert_eq(a->code, code, "%s", why);
    cr_expect_str_eq(a->why, why);
    cr_expect_eq(a->numel, 0);
    cr_expect_str_eq(tp_file_meta(F, "step"), "3");
    cr_expect(tp_file_read(F, tp_file_find(F, "b"), TP_F32, b) && b[1] == 2.0F);
    cr_expect(tp_file_read(F, tp_file_find(F, "c"), TP_F32, c) && c[0] == 4.0F);
    cr_expect_null(tp_file_find(F, "b")->why);
    cr_expect_not(tp_file_read(F, a, TP_F32, b));
    snprintf(expected, sizeof expected, "%s: tensor 'a' %s", path, why);
    cr_expect_str_eq(tp_file_why(F), expected, "%s", tp_file_why(F));
    tp_file_close(F);
    F = tp_file_open(path);
    cr_expect_null(tp_file_data(F, tp_file_find(F, "a")));
    cr_expect_str_eq(tp_file_why(F), expected);
    tp_file_close(F);
}

Test(files, one_tensor_spoils_only_itself)
{
    char json[1000];
    const char *path = in_folder("spoiled");
    for (size_t i = 0; i < sizeof spoiled / sizeof *spoiled; i++) {
        snprintf(json, sizeof json,
                 "{\"__metadata__\":{\"step\":\"3\"}," TENSOR(
                     "b", "F32", "[2]", "[0,8]") ",%s," TENSOR("c", "F32", "[]", "[12,16]") "}",
                 spoiled[i].entry);
        write_raw(path, 0, json, (const float[4]){ 1, 2, 3, 4 }, 16);
        expect_spoiled(path, spoiled[i].code, spoiled[i].why);
    }
}

/* The index of several files passes on the reason. */
Test(files, one_tensor_of_a_shard_spoils_only_itself)
{
    static const char index[] = "\xef\xbb\xbf{\"weight_map\":{\"b\":\"s\",\"a\":\"s\"}}";
    float b[2];
    write_raw(
        in_folder("s"), 0,
        "{" TENSOR("b", "F32", "[2]", "[0,8]") "," TENSOR("a", "F6_E2M3", "[4]", "[8,11]") "}",
        (const float[4]){ 1, 2, 3, 4 }, 11);
    write_bytes(in_folder("x.index.json"), index, sizeof index - 1);
    tp_file *F = tp_file_open(in_folder("x.index.json"));
    cr_assert(tp_file_ok(F), "%s", tp_file_why(F));
    cr_expect_str_eq(tp_file_find(F, "a")->stored, "F6_E2M3");
    cr_expect(tp_file_read(F, tp_file_find(F, "b"), TP_F32, b) && b[1] == 2.0F);
    cr_expect_not(tp_file_read(F, tp_file_find(F, "a"), TP_F32, b));
    cr_expect(strstr(tp_file_why(F), "tensor 'a' has the unknown dtype 'F6_E2M3'"), "%s",
              tp_file_why(F));
    tp_file_close(F);
    write_bytes(in_folder("y.index.json"), "\xff\xfe{\0}\0\n\0\n\0", 10);
    F = tp_file_open(in_folder("y.index.json"));
    cr_expect(strstr(tp_file_why(F), "is UTF-16"), "%s", tp_file_why(F));
    tp_file_close(F);
}

/* Non-text metadata are ignored; texts beside them are read. */
Test(files, metadata_of_other_programs)
{
    static const char *const metadata[] = {
        "null",
        "[]",
        "7",
        "\"x\"",
        "{}",
        "{\"step\":3}",
        "{\"step\":null,\"n\":[[1]],\"o\":{\"p\":{}}}",
        "{\"format\":\"pt\",\"step\":3}",
    };
    char json[400];
    float a[1];
    const char *path = in_folder("other");
    for (size_t i = 0; i < sizeof metadata / sizeof *metadata; i++) {
        snprintf(json, sizeof json, "{\"__metadata__\":%s," TENSOR("a", "F32", "[1]", "[0,4]") "}",
                 metadata[i]);
        write_raw(path, 0, json, (const float[1]){ 5 }, 4);
        tp_file *F = tp_file_open(path);
        cr_assert(tp_file_ok(F), "%s: %s", metadata[i], tp_file_why(F));
        cr_expect_eq(tp_file_count(F), 1);
        cr_expect(tp_file_read(F, tp_file_at(F, 0), TP_F32, a) && a[0] == 5.0F);
        cr_expect_null(tp_file_meta(F, "step"), "%s", metadata[i]);
        const bool format = strstr(metadata[i], "format") != NULL;
        cr_expect_eq(tp_file_meta(F, "format") != NULL, format);
        tp_file_close(F);
    }
}

/* A parameter whose tensor cannot be read is missing with its reason; others load. */
Test(files, loading_names_what_cannot_be_read)
{
    const char *path = in_folder("load");
    write_raw(path, 0,
              "{" TENSOR("a", "F4", "[2]", "[0,1]") "," TENSOR("b", "F32", "[1]", "[1,5]") "}",
              "\0\0\0\0@", 5);
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .threads = 1 });
    tp_params *P = tp_params_new(D, NULL);
    tp_param(P, "a", TP_SHAPE(2), (tp_init){ 0 }, 0);
    tp_tensor x = tp_param(P, "b", TP_SHAPE(1), (tp_init){ 0 }, 0);
    cr_expect_not(tp_load(P, path, NULL));
    cr_expect(strstr(tp_params_why(P), "1 unreadable\n  unreadable: a has the unknown dtype 'F4'"),
              "%s", tp_params_why(P));
    tp_params_free(P);
    P = tp_params_new(D, NULL);
    tp_param(P, "b", TP_SHAPE(1), (tp_init){ 0 }, 0);
    cr_expect_not(tp_load(P, path, NULL));
    cr_expect(strstr(tp_params_why(P), "1 unknown\n  unknown: a F4[2]"), "%s", tp_params_why(P));
    tp_params_free(P);
    P = tp_params_new(D, NULL);
    float now = 0;
    x = tp_param(P, "b", TP_SHAPE(1), (tp_init){ 0 }, 0);
    cr_expect(tp_load(P, path, &(tp_load_opts){ .partial = true }), "%s", tp_params_why(P));
    cr_expect(tp_param_get(P, x, TP_F32, &now, sizeof now) && now == 2.0F);
    tp_params_free(P);
    tp_device_close(D);
}

/* Names of tensors, keys and files are escaped in messages, which stay one line without control
 * codes. */
Test(files, names_in_messages_are_escaped)
{
    const char *path = in_folder("na\033[31m\nme");
    write_raw(path, 0, "{" TENSOR("a\\n\\u001b[2J", "F32", "[1]", "[0,4]") "}", NULL, 2);
    tp_file *F = tp_file_open(path);
    cr_expect(strstr(tp_file_why(F), "na\\x1b[31m\\nme: tensor 'a\\n\\x1b[2J' is at"), "%s",
              tp_file_why(F));
    cr_expect_null(strpbrk(tp_file_why(F), "\n\033"));
    tp_file_close(F);
    tp_writer *W = tp_writer_new(path);
    tp_writer_meta(W, "k\ney", "\xff");
    cr_expect(strstr(tp_writer_why(W), "nme cannot be written: metadata 'k\\ney'"), "%s",
              tp_writer_why(W));
    cr_expect_null(strpbrk(tp_writer_why(W), "\n\033"));
    tp_writer_free(W);
}

/* Headers for which a JSON library would build a tree of 80 times the size. */
Test(files, headers_that_would_take_memory)
{
    enum { MANY = 2100000 };
    static const char *const cases[][2] = {
        { "{\"a\":[{}", ",{}" },
        { "{\"a\":[[]", ",[]" },
        { "{\"a\":{\"b\":{}", ",\"c\":{}" },
        { "{\"a\":{\"\\\"[\":[1", ",1" },
        { "{\"[{\":1", ",\"a\":1" },
    };
    const char *path = in_folder("vast");
    char *raw = malloc(MANY * 8);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t n = strlen(cases[i][0]);
        const size_t step = strlen(cases[i][1]);
        memcpy(raw + 8, cases[i][0], n);
        for (int k = 0; k < MANY; k++, n += step) memcpy(raw + 8 + n, cases[i][1], step);
        memcpy(raw, &n, 8);
        write_bytes(path, raw, 8 + n);
        tp_file *F = tp_file_open(path);
        cr_expect(strstr(tp_file_why(F), "its JSON has more than 2000000 values"), "case %zu: %s",
                  i, tp_file_why(F));
        tp_file_close(F);
    }
    free(raw);
}

/* Every prefix of a good file is an error, never a crash. */
Test(files, every_truncation)
{
    static unsigned char whole[4096];
    const char *path = in_folder("whole");
    tp_writer *W = tp_writer_new(path);
    tp_writer_meta(W, "step", "3");
    tp_writer_add(W, "a", TP_F32, TP_SHAPE(2, 3), (const float[6]){ 1, 2, 3, 4, 5, 6 }, false);
    tp_writer_add(W, "b", TP_U8, TP_SHAPE(5), "12345", false);
    cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
    tp_writer_free(W);
    FILE *f = fopen(path, "rb");
    const size_t n = fread(whole, 1, sizeof whole, f);
    fclose(f);
    path = in_folder("cut");
    for (size_t cut = 0; cut < n; cut++) {
        write_bytes(path, whole, cut);
        tp_file *F = tp_file_open(path);
        cr_expect(!tp_file_ok(F), "the first %zu of %zu bytes open", cut, n);
        tp_file_close(F);
    }
}

/* ---- checksums ---- */

/* Reads a full file in one of several ways. */
static bool reads(const char *path, int way, char *why, size_t size)
{
    tp_file *F = tp_file_open(path);
    double x[8];
    for (int i = 0; i < tp_file_count(F) && tp_file_ok(F); i++) {
        const tp_file_tensor *t = tp_file_at(F, i);
        const tp_dtype dt = t->stored[0] == 'F' ? TP_F32 : TP_U8;
        switch (way) {
        case 0: tp_file_read(F, t, dt, x); break;
        case 1: tp_file_data(F, t); break;
        case 2: tp_file_read(F, t, dt == TP_F32 ? TP_F64 : TP_I64, x); break;
        case 3: /* only the last element */
            if (t->numel) tp_file_read_part(F, t, t->numel - 1, 1, dt, x);
            break;
        default: tp_file_verify(F);
        }
    }
    const bool ok = tp_file_ok(F);
    snprintf(why, size, "%s", tp_file_why(F));
    tp_file_close(F);
    return ok;
}

/* A file with any one bit flipped is refused, however it is read. */
Test(files, every_flipped_bit)
{
    static unsigned char whole[4096];
    char why[2048];
    const char *path = in_folder("bits");
    const size_t n = whole_file(path, whole, sizeof whole);
    for (int way = 0; way < 5; way++) cr_expect(reads(path, way, why, sizeof why), "%s", why);
    for (size_t bit = 0; bit < 8 * n; bit++) {
        whole[bit / 8] ^= (unsigned char)(1 << bit % 8);
        write_bytes(path, whole, n);
        whole[bit / 8] ^= (unsigned char)(1 << bit % 8);
        for (int way = 0; way < 5; way++)
            cr_expect(!reads(path, way, why, sizeof why), "bit %zu of byte %zu, way %d", bit % 8,
                      bit / 8, way);
    }
}

/* Only what is read is verified: an unrequested tensor may be damaged. tp_file_verify sees it. */
Test(files, bits_of_what_is_not_read)
{
    static unsigned char whole[4096];
    const char *path = in_folder("unread");
    float a[16];
    const size_t n = whole_file(path, whole, sizeof whole);
    whole[n - 1] ^= 1; /* in b, the last */
    write_bytes(path, whole, n);
    tp_file *F = tp_file_open(path);
    cr_expect(tp_file_read(F, tp_file_find(F, "a"), TP_F32, a), "%s", tp_file_why(F));
    cr_expect_not(tp_file_verify(F));
    cr_expect(strstr(tp_file_why(F), "tensor 'b' is damaged"), "%s", tp_file_why(F));
    tp_file_close(F);
}

static void expect_damage(const char *path, const char *why)
{
    char said[2048], expected[2048];
    snprintf(expected, sizeof expected, "%s: %s", path, why);
    cr_expect(!reads(path, 0, said, sizeof said), "read: %s", why);
    cr_expect_str_eq(said, expected, "says\n  %s\nnot\n  %s", said, expected);
}

#define KEPT                                                                                       \
    "; the file is damaged, or a program has changed it and kept the checksums: take the last "    \
    "good checkpoint, or leave out the metadata 'xxh3.header' and 'xxh3.tensors'"

Test(files, damage_is_named)
{
    static unsigned char whole[4096];
    const char *path = in_folder("named");
    const size_t n = whole_file(path, whole, sizeof whole);
    whole[n - 1] ^= 1;
    write_bytes(path, whole, n);
    expect_damage(path, "tensor 'b' is damaged: its checksum is e5569a7d66f90f73, the file says "
                        "f34099ede96b5581; copy or download the file again, or take the last good "
                        "checkpoint");
    whole[n - 1] ^= 1;
    char *step = strstr((char *)whole + 8, "\"3\"");
    cr_assert(step);
    step[1] = '4';
    write_bytes(path, whole, n);
    expect_damage(path, "the checksum of the header is 73dae909a00bdfa8, the file says "
                        "6850f3735a142f9c" KEPT);
}

/* Rewritten files are accepted without checksums and refused with stale ones. */
Test(files, checksums_of_rewritten_files)
{
    static const struct {
        const char *json, *why; /* NULL: reads */
    } cases[] = {
        { "{\"__metadata__\":{\"step\":\"4\"}," TENSOR("a", "U8", "[2]", "[0,2]") "}", NULL },
        { "{\"__metadata__\":{}," TENSOR("a", "U8", "[2]", "[0,2]") "}", NULL },
        { "{\"__metadata__\":{\"xxh3.header\":\"0123456789abcdef\",\"xxh3.tensors\":"
          "\"0123456789abcdef\"}," TENSOR("a", "U8", "[2]", "[0,2]") "}",
          "the checksum of the header is b2be5fbae3b8763e, the file says 0123456789abcdef" KEPT },
        { "{\"__metadata__\":{\"xxh3.tensors\":\"0123456789abcdef\",\"xxh3.header\":"
          "\"0123456789abcdef\"}," TENSOR("a", "U8", "[2]", "[0,2]") "}",
          "the checksum of the header is not in its place" KEPT },
        { "{\"__metadata__\":{\"xxh3.header\":\"0123456789abcdef\"}," TENSOR("a", "U8", "[2]",
                                                                             "[0,2]") "}",
          "the checksum of the header is not in its place" KEPT },
        { "{\"__metadata__\":{\"xxh3.header\":\"0123456789ABCDEF\",\"xxh3.tensors\":\"\"}," TENSOR(
              "a", "U8", "[2]", "[0,2]") "}",
          "the checksum of the header is not in its place" KEPT },
    };
    const char *path = in_folder("rewritten");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char why[2048];
        write_raw(path, 0, cases[i].json, "xy", 2);
        if (cases[i].why)
            expect_damage(path, cases[i].why);
        else
            cr_expect(reads(path, 0, why, sizeof why), "%s", why);
    }
}

/* Truncating an open file gives a message, not a SIGBUS. */
Test(files, shorter_than_when_opened)
{
    enum { N = 1 << 16 };
    static const char why[] = ": became shorter since it was opened: it ends at offset 5000 of ";
    static float x[N];
    const char *path = in_folder("shrinks");
    for (int way = 0; way < 4; way++) {
        tp_writer *W = tp_writer_new(path);
        tp_writer_add(W, "x", TP_F32, TP_SHAPE(N), x, false);
        cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
        tp_writer_free(W);
        tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .threads = 1 });
        tp_params *P = tp_params_new(D, NULL);
        tp_param(P, "x", TP_SHAPE(N), (tp_init){ TP_INIT_CONST, 1, 0 }, 0);
        tp_file *F = tp_file_open(path);
        const tp_file_tensor *t = tp_file_find(F, "x");
        cr_assert(t && tp_file_read_part(F, t, 0, N, TP_F32, x), "%s", tp_file_why(F));
        cr_assert_eq(truncate(path, 5000), 0);
        switch (way) {
        case 0: cr_expect(!tp_file_read(F, t, TP_F32, x), "read"); break;
        case 1: cr_expect(!tp_file_read_part(F, t, N / 2, N / 2, TP_BF16, x), "converted"); break;
        case 2: cr_expect_null(tp_file_data(F, t)); break;
        default: cr_expect(!tp_params_read(P, F, "", NULL), "loaded");
        }
        if (way != 1) cr_expect(strstr(tp_file_why(F), why), "way %d: %s", way, tp_file_why(F));
        cr_expect_not(tp_file_ok(F), "way %d", way);
        if (way == 3) cr_expect_str_eq(tp_params_why(P), tp_file_why(F));
        tp_file_close(F);
        tp_params_free(P);
        tp_device_close(D);
    }
}
