/* fuzz_texts.c - the input is two bytes that name a kind of file and options, and the file: CSV,
 * the same with tabs, JSON lines, an archive of labelled texts, a text to be divided into
 * documents, damage to a cache of tokens.
 *
 * Besides memory safety the following must hold: the labels of a set that opens are classes, its
 * texts begin with <s> and end with </s>; rows of any cells, written as CSV, are read back; the
 * tokens of a text decode to it; they depend neither on threads nor on a cache; whatever a cache
 * contains, its tokens are in the vocabulary. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/clm.h>
#include <tapegrad/labelled_texts.h>
#include <unistd.h>

enum { MOST = 4096, LONGEST = 64 };

static char folder[64] = "";
static tp_bpe *X;
static tp_bpe_coder *coder;

static const char *in_folder(const char *name)
{
    return fuzz_in(folder, name);
}

/* ---- labelled texts ---- */

static void check(const tp_documents *S, bool unlabelled)
{
    fuzz_demand_reason(tp_documents_ok(S), tp_documents_why(S));
    fuzz_demand(tp_documents_ok(S) == (tp_documents_count(S) > 0), "a good set has examples");
    for (int64_t i = 0; i < tp_documents_count(S); i++) {
        int64_t n;
        const int32_t label = tp_documents_label(S, i);
        const uint16_t *ids = tp_documents_ids(S, i, 0, &n);
        fuzz_demand(unlabelled ? label == -1 : label >= 0 && label < tp_documents_classes(S),
                    "labels are classes");
        fuzz_demand(unlabelled || tp_documents_class(S, label), "classes have names");
        fuzz_demand(tp_documents_name(S, i), "texts have names");
        fuzz_demand(n >= 2 && ids[0] == 0 && ids[n - 1] == 2, "texts are between <s> and </s>");
        for (int64_t k = 1; k < n - 1; k++)
            fuzz_demand(ids[k] >= 4 && ids[k] < tp_bpe_size(X), "ids are ordinary ones");
    }
}

static void open_file(const char *name, const uint8_t *input, size_t n, int flags)
{
    const tp_labelled_opts o = { .longest = flags & 1 ? 0 : LONGEST,
                                 .tail = flags & 2 ? LONGEST - 2 : 0,
                                 .hold_back_every = flags & 4   ? -1
                                                    : flags & 8 ? 2
                                                                : 0,
                                 .limit = flags & 16 ? 3 : 0,
                                 .unlabelled = flags & 32 };
    fuzz_write(in_folder(name), input, n);
    tp_documents *S =
        tp_documents_labelled_texts(in_folder(name), (tp_part)(flags / 64 % 3), X, &o);
    check(S, o.unlabelled);
    tp_documents_close(S);
    unlink(in_folder(name));
}

static void csv(const uint8_t *input, size_t n, int flags)
{
    open_file("a.csv", input, n, flags);
}

static void tabs(const uint8_t *input, size_t n, int flags)
{
    open_file("a.tsv", input, n, flags);
}

static void json_lines(const uint8_t *input, size_t n, int flags)
{
    open_file("a.jsonl", input, n, flags);
}

static void archive(const uint8_t *input, size_t n, int flags)
{
    open_file("archive", input, n, flags);
}

static bool is_white(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Checks that a text's ids decode to it, without outer white space. */
static void expect_text(const int32_t *ids, int64_t count, const uint8_t *text, size_t n)
{
    size_t bytes;
    const char *back = tp_bpe_decode(coder, ids, count, TP_BPE_RAW, &bytes);
    for (; n > 0 && is_white(*text); n--) text++;
    while (n > 0 && is_white(text[n - 1])) n--;
    fuzz_demand(back && bytes == n && memcmp(back, text, n) == 0, "a text reads back");
}

/* Cells of the input, split at zeros, written as CSV or with tabs. */
static void rows(const uint8_t *input, size_t n, int flags)
{
    const char separator = flags & 2 ? '\t' : ',', *name = flags & 2 ? "a.tsv" : "a.csv";
    static char file[4 * MOST + 64];
    static int32_t wide[MOST];
    const uint8_t *at = input, *end = input + n;
    char *to =
        file + (flags & 1 ? sprintf(file, "text\r\n") : sprintf(file, "other%ctext\n", separator));
    int64_t count = 0;
    while (at < end) {
        const uint8_t *stop = memchr(at, 0, (size_t)(end - at));
        if (!stop) stop = end;
        if (!(flags & 1)) *to++ = separator;
        for (*to++ = '"'; at < stop; at++) {
            if (*at == '"') *to++ = '"';
            *to++ = (char)*at;
        }
        *to++ = '"';
        *to++ = '\n';
        at++;
        count++;
    }
    fuzz_write(in_folder(name), file, (size_t)(to - file));
    tp_documents *S =
        tp_documents_labelled_texts(in_folder(name), TP_TRAIN, X,
                                    &(tp_labelled_opts){ .longest = MOST + 2, .unlabelled = true });
    fuzz_demand(tp_documents_count(S) == count, "every row is read");
    at = input;
    for (int64_t i = 0; i < count; i++) {
        int64_t m;
        const uint16_t *ids = tp_documents_ids(S, i, 0, &m);
        const uint8_t *stop = memchr(at, 0, (size_t)(end - at));
        if (!stop) stop = end;
        for (int64_t k = 1; k < m - 1; k++) wide[k - 1] = ids[k];
        expect_text(wide, m - 2, at, (size_t)(stop - at));
        at = stop + 1;
    }
    tp_documents_close(S);
    unlink(in_folder(name));
}

/* ---- corpora ---- */

static int64_t tokens_of(const tp_corpus *C)
{
    return tp_corpus_tokens(C, TP_TRAIN) + tp_corpus_tokens(C, TP_VALID);
}

/* Reads all training tokens and a batch. False: a token cannot be read. */
static bool read_all(const tp_corpus *C, int32_t *ids)
{
    char why[1100] = "";
    const int64_t n = tp_corpus_tokens(C, TP_TRAIN);
    const bool read = tp_corpus_read(C, TP_TRAIN, 0, n, ids, why, sizeof why);
    fuzz_demand_reason(read, why);
    for (int64_t i = 0; read && i < n; i++)
        fuzz_demand(ids[i] >= 0 && ids[i] < tp_bpe_size(X), "ids are in the vocabulary");
    tp_loader *L = tp_mlm_loader_new(C, &(tp_mlm_loader_opts){ .batch = 2, .length = 16 });
    tp_mlm_batch b;
    while (tp_mlm_loader_next(L, &b))
        for (int64_t k = 0; k < b.rows; k++)
            fuzz_demand(b.target[k] >= 4 && b.row[k] < b.n * b.length, "targets are ordinary");
    tp_loader_free(L);
    L = tp_clm_loader_new(C, &(tp_clm_loader_opts){ .batch = 2, .length = 16 });
    int64_t targets = 0;
    tp_clm_batch c;
    while (tp_clm_loader_next(L, &c)) targets += c.targets;
    fuzz_demand(!read || n < 2 || !tp_loader_ok(L) || targets == n - 1, "windows have all tokens");
    tp_loader_free(L);
    return read;
}

static tp_corpus *corpus(const char *name, int flags, const char *cache, int threads)
{
    char path[160];
    const char *const one = path;
    snprintf(path, sizeof path, "%s", in_folder(name));
    const tp_corpus_opts o = { .end = (tp_document_end)(flags % 3),
                               .held_out = flags & 4 ? 0 : -1,
                               .threads = threads,
                               .cache = cache };
    tp_corpus *C = tp_corpus_open(&one, 1, X, &o);
    fuzz_demand_reason(tp_corpus_ok(C), tp_corpus_why(C));
    return C;
}

/* Whether the input looks like a packed file. */
static bool is_packed(const uint8_t *input, size_t n)
{
    static const char *const magic[] = { "\x1f\x8b", "\xfd\x37z", "PK", "\x28\xb5", "BZh" };
    for (int k = 0; k < 5; k++)
        if (n >= strlen(magic[k]) && memcmp(input, magic[k], strlen(magic[k])) == 0) return true;
    return false;
}

static void text(const uint8_t *input, size_t n, int flags)
{
    static int32_t ids[2 * MOST];
    fuzz_write(in_folder("a"), input, n);
    tp_corpus *C = corpus("a", flags, NULL, 1), *D = corpus("a", flags, NULL, 2);
    fuzz_demand(tp_corpus_ok(C) == tp_corpus_ok(D) && tp_corpus_hash(C) == tp_corpus_hash(D),
                "threads make no difference");
    if (tp_corpus_ok(C)) {
        fuzz_demand(tokens_of(C) <= tp_corpus_bytes(C) + tp_corpus_documents(C) &&
                        tp_corpus_documents(C) > 0,
                    "tokens come from bytes");
        if (tokens_of(C) <= 2 * MOST && read_all(C, ids)) {
            const bool marked = n >= 3 && memcmp(input, "\xef\xbb\xbf", 3) == 0;
            const int64_t last = tokens_of(C) - 1;
            if (flags % 3 == TP_DOCUMENT_FILE && !(flags & 4) && !is_packed(input, n))
                expect_text(ids, last, input + 3 * marked, n - 3 * (size_t)marked);
        }
    }
    tp_corpus_close(C);
    tp_corpus_close(D);
    unlink(in_folder("a"));
}

/* Edits a cache at three bytes each, a place (2) and the new byte; the first byte may truncate it
 * instead. */
static void cache(const uint8_t *input, size_t n, int flags)
{
    static const char sentence[] = "a short text, of two\n\ndocuments";
    static int32_t ids[2 * MOST];
    static uint8_t bytes[512];
    char path[160];
    unlink(in_folder("tokens"));
    snprintf(path, sizeof path, "%s", in_folder("tokens"));
    fuzz_write(in_folder("b"), sentence, sizeof sentence - 1);
    tp_corpus *C = corpus("b", flags, path, 1);
    const uint64_t hash = tp_corpus_hash(C);
    fuzz_demand(tp_corpus_ok(C), tp_corpus_why(C));
    tp_corpus_close(C);
    FILE *f = fopen(path, "rb");
    fuzz_demand(f, "the cache exists");
    size_t size = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    if (n % 3 == 1) size = size * input[0] / 256;
    for (size_t i = n % 3; i + 3 <= n; i += 3) {
        const size_t at = (size_t)input[i] | (size_t)input[i + 1] << 8;
        if (at < size) bytes[at] = input[i + 2];
    }
    fuzz_write(path, bytes, size);
    C = corpus("b", flags, path, 1);
    if (tp_corpus_ok(C)) {
        fuzz_demand(tp_corpus_hash(C) == hash || tp_corpus_was_cached(C), "a new cache is right");
        if (tokens_of(C) <= 2 * MOST) read_all(C, ids);
    }
    tp_corpus_close(C);
    unlink(in_folder("tokens"));
    unlink(in_folder("b"));
}

/* ---- all kinds ---- */

static void (*const kinds[])(const uint8_t *, size_t, int) = { csv,  json_lines, archive, rows,
                                                               text, cache,      tabs };
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static void begin(void)
{
    fuzz_make_folder(folder);
    tp_bpe_trainer *R = tp_bpe_trainer_new(&(tp_bpe_trainer_opts){ .size = 280, .least = 1 });
    fuzz_demand(R && tp_bpe_trainer_add(R, "the cat sat on the mat", 22), "a vocabulary is learnt");
    X = tp_bpe_trainer_finish(R);
    tp_bpe_trainer_free(R);
    fuzz_demand(tp_bpe_ok(X), tp_bpe_why(X));
    coder = tp_bpe_coder_new(X);
    fuzz_demand(coder, "there is memory");
}

static void end(void)
{
    tp_bpe_coder_free(coder);
    tp_bpe_close(X);
    rmdir(folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    if (size < 2 || size > MOST) return 0;
    if (!folder[0]) {
        begin();
        atexit(end);
    }
    kinds[input[0] % KINDS](input + 2, size - 2, input[1]);
    return 0;
}
