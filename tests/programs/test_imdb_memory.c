/* test_imdb_memory.c - memory runs out at the n-th allocation, for all n, while a text classifier
 * is opened, explains a text, and is written: each time the error says so, nothing leaks, no file
 * is harmed, and the next try gives the usual result. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tapegrad/random.h>

#include "imdb.h"
#include "support/bpe.h"
#include "support/folder.h"
#include "support/malloc.h"
#include "support/oom.h"

static tp_bpe *vocabulary;
static class_list classes;
static tp_roberta_cfg cfg;
static char model[600];

/* ---- writing ---- */

static bool write_file(const char *path, char *why, size_t size)
{
    text_model m = { 0 };
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .threads = 1 });
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 1 });
    model_init(P, &m, &cfg);
    tp_writer *W = tp_writer_new(path);
    model_write(&cfg, W);
    tokenizer_write(vocabulary, W);
    class_list_write(&classes, W);
    const bool done = tp_params_write(P, W, "") && tp_writer_commit(W);
    snprintf(why, size, "%s", tp_params_ok(P) ? tp_writer_why(W) : tp_params_why(P));
    tp_writer_free(W);
    model_free(&m);
    tp_params_free(P);
    tp_device_close(D);
    return done;
}

static uint64_t bytes_of(const char *path)
{
    uint64_t h = TP_HASH;
    FILE *f = fopen(path, "rb");
    for (int c; f && (c = fgetc(f)) != EOF;) h = tp_hash(h, (uint64_t)c);
    if (f) fclose(f);
    return h;
}

/* No file is left if it cannot be written. */
static void write_model(void *env, attempt *t)
{
    static char path[600], why[4096];
    snprintf(path, sizeof path, "%s", in_folder("other"));
    malloc_fail(t->n, t->count);
    const bool done = write_file(path, why, sizeof why);
    end_attempt(t, done, why);
    cr_expect_eq(access(path, F_OK) == 0, done, "allocation %zu", t->n);
    if (done) cr_expect_eq(bytes_of(path), *(uint64_t *)env, "allocation %zu", t->n);
    remove(path);
}

/* ---- reading ---- */

/* The sum of an explanation's weights. */
static bool explain(text_file *f, double *sum, char *why, size_t size)
{
    static const int32_t ids[] = { 0, 68, 69, 70, 71, 2 };
    explanation e = { 0 };
    tp_bpe_coder *coder = tp_bpe_coder_new(f->vocab);
    const explain_opts o = { coder, tp_bpe_special_id(f->vocab, TP_BPE_MASK), 2 };
    snprintf(why, size, "out of memory");
    const bool done = coder && explain_text(&e, f->t.T, f->t.P, &f->m, &o, ids, 6, 1, why, size);
    *sum = 0;
    for (int i = 0; i < e.n; i++) *sum += e.at[i].weight;
    explanation_free(&e);
    tp_bpe_coder_free(coder);
    return done;
}

static void read_model(void *env, attempt *t)
{
    static char why[5000];
    static char device[] = "cpu";
    const tp_trained_settings s = { .machine = { .device = device, .threads = 1 },
                                    .checkpoint = model };
    text_file f = { 0 };
    double sum = 0;
    malloc_fail(t->n, t->count);
    const bool opened = text_file_open(&f, &s, NULL, 0) && text_file_load(&f, &s.machine);
    const bool done = opened && explain(&f, &sum, why, sizeof why);
    end_attempt(t, done, opened ? why : f.t.why);
    if (done) cr_expect_eq(sum, *(double *)env, "allocation %zu: %g", t->n, sum);
    text_file_close(&f);
}

/* ---- tests ---- */

static void begin(void)
{
    static char names[2][4] = { "neg", "pos" }, vocab[16384], why[4096];
    static char *name[] = { names[0], names[1] };
    make_folder();
    bpe_small(vocab, "ab");
    vocabulary = tp_bpe_from("small", vocab, "a b\n", NULL);
    classes = (class_list){ 2, name };
    cfg = (tp_roberta_cfg){ .head = TP_ROBERTA_CLS,
                            .layers = 1,
                            .dim = 8,
                            .heads = 2,
                            .hidden = 8,
                            .length = 8,
                            .classes = 2,
                            .vocab = tp_bpe_size(vocabulary) };
    snprintf(model, sizeof model, "%s", in_folder("model"));
    cr_assert(write_file(model, why, sizeof why), "%s", why);
}

static void end(void)
{
    tp_bpe_close(vocabulary);
    remove_folder();
}

TestSuite(imdb_memory, .init = begin, .fini = end, .timeout = 900);

Test(imdb_memory, writing)
{
    uint64_t hash = bytes_of(model);
    for_every_n("writing", write_model, &hash, 50);
}

Test(imdb_memory, reading_and_explaining)
{
    static char device[] = "cpu", why[4096];
    const tp_trained_settings s = { .machine = { .device = device, .threads = 1 },
                                    .checkpoint = model };
    text_file f = { 0 };
    double sum;
    cr_assert(text_file_open(&f, &s, NULL, 0) && text_file_load(&f, &s.machine) &&
                  explain(&f, &sum, why, sizeof why),
              "%s%s", f.t.why, why);
    text_file_close(&f);
    for_every_n("reading", read_model, &sum, 100);
}
