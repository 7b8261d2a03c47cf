/* bench_texts.c - the data of encoders of text: tokenises a corpus, prepares masked batches, reads
 * labelled texts and prepares their batches. Prints JSON lines; seconds are processor time of one
 * thread. bench/peers/mlm_transformers.py prints the same of the package transformers for masked
 * batches. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/labelled_texts.h>
#include <tapegrad/mlm.h>
#include <tapegrad/options.h>
#include <time.h>

typedef struct request {
    tp_words paths;
    char *vocab, *cache;
    int64_t length, batch, runs;
    bool labelled, exact;
} request;

#define S request
static const tp_option table[] = {
    TP_HEADING("OPTIONS"),
    TP_ARGUMENTS(S, paths, "PATH", "A text, a folder, an archive; or labelled texts."),
    TP_STRING("vocab", S, vocab, "DIR", 0, "The vocabulary."),
    TP_STRING("cache", S, cache, "FILE", 0, "Keeps the tokens of a corpus in this file."),
    TP_INT("length", S, length, 3, 1 << 20, 0, "Ids of a sequence."),
    TP_INT("batch", S, batch, 1, 1 << 20, 0, "Sequences of a batch."),
    TP_INT("runs", S, runs, 1, 1000, 0, "Runs; the fastest counts."),
    TP_FLAG("labelled", S, labelled, 0, "The texts have labels."),
    TP_FLAG("exact", S, exact, 0, "Draws exact numbers of targets."),
    { 0 },
};

static bool check(const void *settings, char *why, size_t size)
{
    const request *r = settings;
    if (r->paths.n == 1 && r->vocab) return true;
    snprintf(why, size, "one PATH and --vocab are wanted");
    return false;
}

static const tp_command manual = { .name = "bench_texts",
                                   .summary = "measures the data of encoders of text",
                                   .about = "Prints JSON lines.",
                                   .table = table,
                                   .check = check };

static double seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

static void report(const char *what, double took, int64_t ids)
{
    printf("{\"texts\": \"%s\", \"seconds\": %.4f, \"ids\": %lld, \"m_ids_per_s\": %.2f}\n", what,
           took, (long long)ids, (double)ids / 1e6 / took);
    fflush(stdout);
}

/* One pass over masked batches, at most 2^23 ids of them. */
static double mask(const request *r, const tp_corpus *C, int64_t *ids, char *why, size_t size)
{
    tp_loader *L = tp_mlm_loader_new(
        C, &(tp_mlm_loader_opts){
               .batch = r->batch, .length = r->length, .train = true, .exact = r->exact });
    tp_mlm_batch b;
    const double begin = seconds();
    for (*ids = 0; *ids < 1 << 23 && tp_mlm_loader_next(L, &b);) *ids += b.n * b.length;
    const double took = seconds() - begin;
    snprintf(why, size, "%s", tp_loader_why(L));
    tp_loader_free(L);
    return took;
}

static void corpus(const request *r, const tp_bpe *X, char *why, size_t size)
{
    double open = 1e9, masks = 1e9;
    int64_t tokens = 0, ids = 0;
    for (int64_t i = 0; i < r->runs && !why[0]; i++) {
        const char *path = r->paths.at[0];
        double begin = seconds();
        tp_corpus *C = tp_corpus_open(&path, 1, X, &(tp_corpus_opts){ .cache = r->cache });
        open = seconds() - begin < open ? seconds() - begin : open;
        tokens = tp_corpus_tokens(C, TP_TRAIN) + tp_corpus_tokens(C, TP_VALID);
        const double took = mask(r, C, &ids, why, size);
        masks = took < masks ? took : masks;
        tp_corpus_close(C);
    }
    if (why[0]) return;
    report("corpus", open, tokens);
    report("masked batches", masks, ids);
}

static void labelled(const request *r, const tp_bpe *X, char *why, size_t size)
{
    double open = 1e9, batches = 1e9;
    int64_t tokens = 0, ids = 0;
    for (int64_t i = 0; i < r->runs && !why[0]; i++) {
        const tp_labelled_opts o = { .longest = r->length, .hold_back_every = -1 };
        double begin = seconds();
        tp_documents *D = tp_documents_labelled_texts(r->paths.at[0], TP_TRAIN, X, &o);
        open = seconds() - begin < open ? seconds() - begin : open;
        tp_loader *L = tp_document_loader_new(
            D, &(tp_document_loader_opts){
                   .batch = r->batch, .train = true, .bucket = 32, .multiple = 16, .pad = 1 });
        tp_document_batch b;
        tokens = ids = 0;
        for (int64_t k = 0, n; k < tp_documents_count(D); k++, tokens += n)
            tp_documents_ids(D, k, 0, &n);
        begin = seconds();
        for (int64_t s = 0; s < tp_loader_steps(L) && tp_document_loader_next(L, &b); s++)
            ids += b.n * b.length[0];
        batches = seconds() - begin < batches ? seconds() - begin : batches;
        snprintf(why, size, "%s", tp_loader_why(L));
        tp_loader_free(L);
        tp_documents_close(D);
    }
    if (why[0]) return;
    report("labelled", open, tokens);
    report("padded batches", batches, ids);
}

static bool run(void *settings, char *why, size_t size)
{
    const request *r = settings;
    tp_bpe *X = tp_bpe_open(r->vocab);
    if (r->labelled)
        labelled(r, X, why, size);
    else
        corpus(r, X, why, size);
    tp_bpe_close(X);
    return !why[0];
}

int main(int argc, char **argv)
{
    request r = { .runs = 3, .length = 512, .batch = 32 };
    return tp_command_main(&manual, argc - 1, argv + 1, &r, run);
}
