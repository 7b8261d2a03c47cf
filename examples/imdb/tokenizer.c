/* tokenizer.c - see the header. */
#include "tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VOCAB  "tokenizer.vocab"
#define MERGES "tokenizer.merges"

/* The folder of a file, without its name. */
static void folder_of(const char *path, char *buf, size_t size)
{
    const char *slash = strrchr(path, '/');
    const int n = slash ? (int)(slash - path) + (slash == path) : 1;
    snprintf(buf, size, "%.*s", n, slash ? path : ".");
}

static bool has_vocabulary(const char *folder)
{
    static const char *const names[] = { "tokenizer.json", "encoder.json", "vocab.json" };
    char path[4400];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        if (access(path, F_OK) == 0) return true;
    }
    return false;
}

static tp_bpe *open_beside(const tp_file *F, char *why, size_t size)
{
    char folder[4200];
    const char *path = tp_file_path(F), *vocab = tp_file_meta(F, VOCAB);
    const char *merges = tp_file_meta(F, MERGES);
    if (vocab && merges) return tp_bpe_from(path, vocab, merges, NULL);
    folder_of(path, folder, sizeof folder);
    if (has_vocabulary(folder)) return tp_bpe_open(folder);
    snprintf(why, size, "%s holds no vocabulary, nor is one beside it: name one with --tokenizer",
             path);
    return NULL;
}

static void check(const tp_bpe *X, const char *name, char *why, size_t size)
{
    if (!tp_bpe_ok(X)) {
        snprintf(why, size, "%s", tp_bpe_why(X));
        return;
    }
    for (int k = TP_BPE_BEGIN; k <= TP_BPE_END; k++)
        if (tp_bpe_special_id(X, (tp_bpe_special)k) != k) {
            snprintf(why, size,
                     "%s: %s is not id %d, as RoBERTa's models need it; tp-bpe train "
                     "makes such a vocabulary",
                     name, tp_bpe_special_name((tp_bpe_special)k), k);
            return;
        }
    if (tp_bpe_special_id(X, TP_BPE_MASK) < 0) snprintf(why, size, "%s has no <mask>", name);
}

tp_bpe *tokenizer_open(const char *path, const tp_file *F, char *why, size_t size)
{
    tp_bpe *X = NULL;
    why[0] = '\0';
    if (path)
        X = tp_bpe_open(path);
    else if (F)
        X = open_beside(F, why, size);
    else
        snprintf(why, size,
                 "--tokenizer PATH is required: the vocabulary of the model; "
                 "'tp-bpe train' makes one");
    if (!why[0]) check(X, path ? path : tp_file_path(F), why, size);
    if (!why[0]) return X;
    tp_bpe_close(X);
    return NULL;
}

void tokenizer_write(const tp_bpe *X, tp_writer *W)
{
    char *vocab = tp_bpe_vocab_text(X), *merges = tp_bpe_merges_text(X);
    tp_writer_meta(W, VOCAB, vocab);
    tp_writer_meta(W, MERGES, merges);
    free(vocab);
    free(merges);
}
