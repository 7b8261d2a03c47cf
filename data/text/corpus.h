/* corpus.h - a stream of tokens, as its files share it. */
#ifndef TP_CORPUS_H
#define TP_CORPUS_H

#include <tapegrad/mlm.h>

#include "kit.h"

enum { TP_CORPUS_IDS = 1 << 16, TP_CORPUS_SPANS = 16 };

struct tp_corpus {
    tp_corpus_opts o;
    const tp_bpe *vocabulary; /* while it is opened */
    int64_t size;             /* of the vocabulary  */
    int32_t special[TP_BPE_SPECIALS];
    uint16_t *ids; /* [tokens], or NULL: they are in the cache */
    size_t room;
    char *cache_path; /* a copy, which o.cache is */
    int cache;        /* its descriptor, or -1 */
    int64_t ids_at;   /* where the ids begin in it */
    int64_t tokens, documents, bytes, unknown;
    uint64_t hash;
    bool was_cached;
    char why[TP_WHY];
};

/* corpus.c: appends ids to a new cache. False: C has failed. */
typedef struct tp_corpus_writer tp_corpus_writer;
bool tp__corpus_write(tp_corpus_writer *W, const uint16_t *ids, int64_t n);

/* corpus_texts.c: tokenises all texts. Ids go to W, or to memory if there is none. */
bool tp__corpus_tokenise(tp_corpus *C, const char *const path[], int paths, tp_corpus_writer *W);

/* Visits the files of texts in their order. f gets a path to be read, or, for files in archives, its bytes too. */
typedef struct tp_text_file {
    const char *path, *name; /* name: below a folder or in an archive, or the path */
    const uint8_t *bytes;    /* [n], or NULL */
    size_t n;
} tp_text_file;
bool tp__corpus_files(tp_corpus *C, const char *const path[], int paths, bool names_only,
                      bool (*f)(void *env, const tp_text_file *file), void *env);

#endif
