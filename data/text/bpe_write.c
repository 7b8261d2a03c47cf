/* bpe_write.c - a vocabulary as the two texts that transformers and fairseq read: tokens with their ids in
 * JSON, and a merge on each line. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bpe.h"
#include <tapegrad/file.h>

/* Writes a name as a JSON string; returns the end. Names are valid UTF-8, because JSON was, or bytes were
 * written as characters. */
static char *put_quoted(char *to, const char *name)
{
    *to++ = '"';
    for (; *name; name++) {
        const unsigned char c = (unsigned char)*name;
        if (c < 32) {
            to += sprintf(to, "\\u%04x", c);
            continue;
        }
        if (c == '"' || c == '\\') *to++ = '\\';
        *to++ = (char)c;
    }
    *to++ = '"';
    return to;
}

char *tp_bpe_vocab_text(const tp_bpe *X)
{
    if (!X) return NULL;
    size_t bytes = 8;
    for (int64_t i = 0; i < tp_bpe_size(X); i++) bytes += 6 * strlen(X->token[i]) + 24;
    char *text = tp_bpe_ok(X) ? malloc(bytes) : NULL, *to = text;
    if (!text) return NULL;
    *to++ = '{';
    for (int64_t i = 0; i < X->size; i++) {
        to = put_quoted(to, X->token[i]);
        to += sprintf(to, ": %lld%s", (long long)i, i < X->size - 1 ? ", " : "");
    }
    memcpy(to, "}\n", 3);
    return text;
}

char *tp_bpe_merges_text(const tp_bpe *X)
{
    if (!X) return NULL;
    static const char head[] = "#version: 0.2\n";
    size_t bytes = sizeof head;
    for (int64_t i = 0; i < tp_bpe_merges(X); i++)
        bytes += strlen(X->token[X->merge[i].left]) + strlen(X->token[X->merge[i].right]) + 2;
    char *text = tp_bpe_ok(X) ? malloc(bytes) : NULL, *to = text;
    if (!text) return NULL;
    to += sprintf(to, "%s", head);
    for (int64_t i = 0; i < X->merges; i++)
        to += sprintf(to, "%s %s\n", X->token[X->merge[i].left], X->token[X->merge[i].right]);
    return text;
}

/* Both files or none, and no folder that was made for them alone. */
static bool write_both(const char *folder, const char *vocab, const char *merges, char *why,
                       size_t size)
{
    char first[4200], second[4200];
    const bool made = mkdir(folder, 0777) == 0;
    if (!made && errno != EEXIST) {
        snprintf(why, size, "folder %.600s: cannot be made: %s", folder, strerror(errno));
        return false;
    }
    snprintf(first, sizeof first, "%s/merges.txt", folder);
    snprintf(second, sizeof second, "%s/vocab.json", folder);
    const tp_new_file both[] = { { first, merges, strlen(merges) },
                                 { second, vocab, strlen(vocab) } };
    const bool done = tp_files_replace(both, 2, why, size);
    if (!done && made) rmdir(folder);
    return done;
}

bool tp_bpe_save(const tp_bpe *X, const char *folder, char *why, size_t size)
{
    if (!X) {
        if (why) snprintf(why, size, "bpe_save: NULL was given in place of a vocabulary");
        return false;
    }
    char *vocab = tp_bpe_vocab_text(X), *merges = tp_bpe_merges_text(X);
    bool done = false;
    if (!tp_bpe_ok(X))
        snprintf(why, size, "%s", X->why);
    else if (!vocab || !merges)
        snprintf(why, size, "vocabulary %.600s: out of memory", folder);
    else if (strlen(folder) > 4000)
        snprintf(why, size, "vocabulary: the path is longer than 4000 bytes");
    else
        done = write_both(folder, vocab, merges, why, size);
    free(vocab);
    free(merges);
    return done;
}
