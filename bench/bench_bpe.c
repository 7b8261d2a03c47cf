/* bench_bpe.c - byte-pair encoding: encodes and decodes a text, and learns a vocabulary from it.
 * Prints JSON lines; seconds are processor time of one thread. bench/peers/bpe_tokenizers.py prints
 * the same of the package tokenizers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/bpe.h>
#include <tapegrad/options.h>
#include <time.h>

typedef struct request {
    tp_words files;
    char *vocab;
    int64_t runs, size, limit;
} request;

#define S request
static const tp_option table[] = {
    TP_HEADING("OPTIONS"),
    TP_ARGUMENTS(S, files, "FILE", "A text."),
    TP_STRING("vocab", S, vocab, "DIR", 0,
              "A vocabulary to encode with. If not given: the learnt one."),
    TP_INT("runs", S, runs, 1, 1000, 0, "Runs of encoding; the fastest counts."),
    TP_INT("size", S, size, 0, 1 << 22, 0, "Ids of the vocabulary to learn; 0: none."),
    TP_INT("limit", S, limit, 1, TP_BIG, 0, "Bytes of the text."),
    { 0 },
};

static bool check(const void *settings, char *why, size_t size)
{
    const request *r = settings;
    if (r->files.n == 1 && (r->vocab || r->size)) return true;
    snprintf(why, size, "one FILE, and --vocab or --size, are wanted");
    return false;
}

static const tp_command manual = { .name = "bench_bpe",
                                   .summary = "measures byte-pair encoding",
                                   .about = "Prints JSON lines.",
                                   .table = table,
                                   .check = check };

static double seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

static void report(const char *what, size_t bytes, double took, int64_t ids)
{
    printf(
        "{\"bpe\": \"%s\", \"mb\": %.3f, \"seconds\": %.4f, \"mb_per_s\": %.2f, \"ids\": %lld}\n",
        what, (double)bytes / 1e6, took, (double)bytes / 1e6 / took, (long long)ids);
    fflush(stdout);
}

static tp_bpe *learn(const request *r, const char *text, size_t n)
{
    const double begin = seconds();
    tp_bpe_trainer *R = tp_bpe_trainer_new(&(tp_bpe_trainer_opts){ .size = r->size });
    tp_bpe_trainer_add(R, text, n);
    tp_bpe *X = tp_bpe_trainer_finish(R);
    tp_bpe_trainer_free(R);
    report("learn", n, seconds() - begin, tp_bpe_size(X));
    return X;
}

static void code(const request *r, const tp_bpe *X, const char *text, size_t n)
{
    double encode = 1e9, decode = 1e9;
    int64_t count = 0;
    size_t bytes = 0;
    for (int64_t i = 0; i < r->runs; i++) {
        tp_bpe_coder *C = tp_bpe_coder_new(X);
        double begin = seconds();
        const int32_t *ids = tp_bpe_encode(C, text, n, &count);
        encode = seconds() - begin < encode ? seconds() - begin : encode;
        begin = seconds();
        tp_bpe_decode(C, ids, count, 0, &bytes);
        decode = seconds() - begin < decode ? seconds() - begin : decode;
        tp_bpe_coder_free(C);
    }
    report("encode", n, encode, count);
    report("decode", bytes, decode, count);
}

static bool run(void *settings, char *why, size_t size)
{
    const request *r = settings;
    FILE *f = fopen(r->files.at[0], "rb");
    char *text = malloc((size_t)r->limit);
    const size_t n = f && text ? fread(text, 1, (size_t)r->limit, f) : 0;
    if (f) fclose(f);
    if (n == 0) snprintf(why, size, "%s cannot be read", r->files.at[0]);
    tp_bpe *X = n && r->size ? learn(r, text, n) : NULL;
    if (n && r->vocab) {
        tp_bpe_close(X);
        X = tp_bpe_open(r->vocab);
    }
    if (X && !tp_bpe_ok(X)) snprintf(why, size, "%s", tp_bpe_why(X));
    const bool ok = X && tp_bpe_ok(X);
    if (ok) code(r, X, text, n);
    tp_bpe_close(X);
    free(text);
    return ok;
}

int main(int argc, char **argv)
{
    request r = { .runs = 3, .limit = 100000000 };
    return tp_command_main(&manual, argc - 1, argv + 1, &r, run);
}
