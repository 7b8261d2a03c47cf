/* corpus.h - the members of a stream of tokens, shared by its files. */
#ifndef TP_CORPUS_H
#define TP_CORPUS_H

#include <tapegrad/mlm.h>

#include "kit.h"

enum { TP_CORPUS_NARROW = 1 << 16, TP_CORPUS_SPANS = 16 };

struct tp_corpus {
    tp_corpus_opts o;
    const tp_bpe *vocabulary;              /* while opening     */
    int64_t size;                          /* of the vocabulary */
    int32_t special[TP_BPE_SPECIALS], end; /* end: follows each document; -1: none */
    int width;          /* bytes of an id: 2, or 4 if `size` exceeds TP_CORPUS_NARROW */
    unsigned char *ids; /* [tokens] of that width; NULL: in the cache */
    size_t room;
    char *cache_path; /* a copy; o.cache points to it */
    int cache;        /* its descriptor, or -1 */
    int64_t ids_at;   /* offset of its ids */
    int64_t tokens, documents, bytes, unknown;
    uint64_t hash;
    bool was_cached;
    char why[TP_WHY];
};

/* corpus.c: names a special token of masked texts that the vocabulary lacks; NULL: none. */
const char *tp__corpus_lacks(const tp_corpus *C);

/* corpus.c: appends ids of the corpus's width to a new cache. False: C has failed. */
typedef struct tp_corpus_writer tp_corpus_writer;
bool tp__corpus_write(tp_corpus_writer *W, const void *ids, size_t bytes);

/* corpus_texts.c: tokenises all texts. Ids go to W or, if it is NULL, to memory. */
bool tp__corpus_tokenise(tp_corpus *C, const char *const path[], int paths, tp_corpus_writer *W);

/* Visits the files of texts in order. f gets a path to read and, in archives, the bytes. */
typedef struct tp_text_file {
    const char *path, *name; /* name: path below a folder or in an archive, or the whole path */
    const uint8_t *bytes;    /* [n], or NULL */
    size_t n;
} tp_text_file;
bool tp__corpus_files(tp_corpus *C, const char *const path[], int paths, bool names_only,
                      bool (*f)(void *env, const tp_text_file *file), void *env);

#endif
