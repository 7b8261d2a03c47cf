/* corpus.c - writes texts and opens corpora of them. */
#include "support/corpus.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <tapegrad/random.h>

#include "support/bpe.h"
#include "support/folder.h"

tp_bpe *corpus_vocabulary;
static char vocab[16384];

void corpus_begin(void)
{
    make_folder();
    bpe_small(vocab, "th the \xc4\xa0t \xc4\xa0th \xc4\xa0the");
    corpus_vocabulary =
        tp_bpe_from("small", vocab, "t h\nth e\n\xc4\xa0 t\n\xc4\xa0t h\n\xc4\xa0th e\n", NULL);
    cr_assert(tp_bpe_ok(corpus_vocabulary), "%s", tp_bpe_why(corpus_vocabulary));
}

void corpus_end(void)
{
    tp_bpe_close(corpus_vocabulary);
    remove_folder();
}

void corpus_drop_merges(void)
{
    tp_bpe_close(corpus_vocabulary);
    corpus_vocabulary = tp_bpe_from("small", vocab, "t h\nth e\n", NULL);
}

void corpus_shell(const char *command)
{
    char full[2048];
    snprintf(full, sizeof full, "cd '%s' && %s", folder, command);
    cr_assert_eq(system(full), 0, "%s", command);
}

tp_corpus *corpus_try(const char *name, tp_corpus_opts o)
{
    const char *path = name[0] ? in_folder(name) : folder;
    return tp_corpus_open(&path, 1, corpus_vocabulary, &o);
}

tp_corpus *corpus_of(const char *name, tp_corpus_opts o)
{
    tp_corpus *C = corpus_try(name, o);
    cr_assert(tp_corpus_ok(C), "%s", tp_corpus_why(C));
    return C;
}

void corpus_tokens(const tp_corpus *C, tp_part part, int64_t first, int64_t n, int32_t *to)
{
    char why[1100];
    cr_assert(tp_corpus_read(C, part, first, n, to, why, sizeof why), "%s", why);
}

const char *corpus_text(const tp_corpus *C)
{
    static int32_t ids[1024];
    static char text[4096];
    const int64_t n = tp_corpus_tokens(C, TP_TRAIN);
    size_t used = 0;
    cr_assert_lt(n, 1024);
    corpus_tokens(C, TP_TRAIN, 0, n, ids);
    tp_bpe_coder *coder = tp_bpe_coder_new(corpus_vocabulary);
    for (int64_t i = 0, from = 0; i < n; i++) {
        if (ids[i] != 2) continue;
        const char *part = tp_bpe_decode(coder, ids + from, i - from, TP_BPE_RAW, NULL);
        used += (size_t)sprintf(text + used, "%s|", part);
        from = i + 1;
    }
    tp_bpe_coder_free(coder);
    text[used] = '\0';
    return text;
}

void corpus_sentences(const char *name, int words, uint64_t seed, const char *between)
{
    static const char *const word[] = { "the", "other", "Theo",
                                        "x",   "don't", "caf\xc3\xa9",
                                        "12",  "(a)",   "\xe4\xb8\xad\xe6\x96\x87" };
    tp_random r = tp_random_stream(seed, "test", 0, 0);
    FILE *f = fopen(in_folder(name), "wb");
    cr_assert(f);
    for (int i = 0; i < words; i++) {
        const int64_t k = tp_random_below(&r, 9 + 5);
        fprintf(f, "%s%s", k < 9 ? word[k] : "the", tp_random_below(&r, 9) ? " " : between);
    }
    fclose(f);
}

tp_loader *corpus_batches(const tp_corpus *C, tp_mlm_loader_opts o)
{
    if (!o.batch) o.batch = CORPUS_BATCH;
    if (!o.length) o.length = CORPUS_LENGTH;
    tp_loader *L = tp_mlm_loader_new(C, &o);
    cr_assert(tp_loader_ok(L), "%s", tp_loader_why(L));
    return L;
}

void corpus_next(tp_loader *L, tp_mlm_batch *b)
{
    cr_assert(tp_mlm_loader_next(L, b), "%s", tp_loader_why(L));
}

uint64_t corpus_batch_hash(const tp_mlm_batch *b)
{
    uint64_t h = TP_HASH;
    for (int64_t i = 0; i < b->n * b->length; i++) h = tp_hash(h, (uint64_t)b->ids[i]);
    for (int64_t i = 0; i < b->rows; i++)
        h = tp_hash(tp_hash(h, (uint64_t)b->row[i]), (uint64_t)b->target[i]);
    return h;
}
