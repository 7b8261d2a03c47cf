/* tokenizers.c - the vocabulary of a model's file: in its metadata, or beside it. */
#include "tokenizers.h"

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

tp_bpe *tokenizer_find(const char *path, const tp_file *F, char *why, size_t size)
{
    char folder[4200];
    why[0] = '\0';
    if (path) return tp_bpe_open(path);
    const char *file = tp_file_path(F), *vocab = tp_file_meta(F, VOCAB);
    const char *merges = tp_file_meta(F, MERGES);
    if (vocab && merges) return tp_bpe_from(file, vocab, merges, NULL);
    folder_of(file, folder, sizeof folder);
    if (has_vocabulary(folder)) return tp_bpe_open(folder);
    snprintf(why, size, "%s holds no vocabulary, nor is one beside it: name one with --tokenizer",
             file);
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
