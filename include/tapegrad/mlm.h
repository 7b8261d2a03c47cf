/* mlm.h - texts for masked language modelling: tokenised once, packed into sequences, masked anew
 * in each epoch. Part of the data library.
 *
 *     stream     document </s> document </s> ...                each document is tokenised alone
 *     sequence   <s> | length - 2 tokens of the stream | </s>   each starts where the last ended
 *     target     15 % of the tokens: 80 % of them become <mask>, 10 % a random token, 10 % remain
 *
 * Source: Liu et al., RoBERTa (2019); Beltagy et al., Longformer (2020), section 5. */
#ifndef TAPEGRAD_MLM_H
#define TAPEGRAD_MLM_H

#include <tapegrad/bpe.h>
#include <tapegrad/loader.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- a corpus ---- */

/* The stream of tokens of any number of texts. Two bytes for each token, four if the vocabulary has
 * more than 65536 ids, are kept in memory or in a cache file. It is immutable once open, so threads
 * may share it. Never NULL: tp_corpus_why says what is wrong. */
typedef struct tp_corpus tp_corpus;

/* Where a document ends. Every file ends one, too. */
typedef enum tp_document_end {
    TP_DOCUMENT_FILE,  /* nowhere else */
    TP_DOCUMENT_BLANK, /* at a line that is empty or has only white space */
    TP_DOCUMENT_LINE   /* at the end of each line */
} tp_document_end;

typedef struct tp_corpus_opts {
    tp_document_end end;
    double held_out; /* share of the tokens in TP_VALID, below 0.5. 0: 0.05; below 0: none */
    int64_t limit;   /* reads at most that many bytes of text; 0: all */
    int threads;     /* that tokenise; 0: 1. The result does not depend on it */
    /* The token that follows each document, as "<|endoftext|>"; "": none. NULL: </s>; the
     * vocabulary then needs <s>, <pad> and <mask>, too, which tp_mlm_loader_new uses */
    const char *separator;
    /* A file that keeps the tokens; NULL: they are kept in memory. The file is written if it does
     * not exist, and replaced if the texts (their names, sizes and times), the vocabulary, `end`,
     * `limit` or `separator` have changed. A file that is no such cache is never replaced: the
     * corpus fails. With a cache the memory that a corpus needs does not grow with the texts. */
    const char *cache;
} tp_corpus_opts;

/* Opens texts. A path is a file, plain or compressed (.gz .xz .zip .zst .bz2), which may have any
 * name; a tar file (.tar, .tgz, .tar.gz ...), whose .txt files are read; or a folder, whose .txt
 * files, also compressed ones (.txt.gz ...), are read at any depth in the order of their names.
 * Texts are read piece by piece, except that .xz files, still compressed, and each file of a tar
 * file, at most 1 GiB, are held in memory. White space around a document is left out, and so are
 * empty documents. A document of more than 1 MiB is tokenised in pieces that are cut between words;
 * only where such a piece has no space or line end between two words of ASCII may tokens differ
 * from those of the whole document. Texts are UTF-8, with or without a byte order mark, though
 * other bytes have tokens, too; UTF-16, UTF-32 and files with zero bytes are refused. A file that
 * is named twice is refused.
 *
 * X is not needed after the call. o may be NULL. */
TP_API tp_corpus *tp_corpus_open(const char *const path[], int paths, const tp_bpe *X,
                                 const tp_corpus_opts *o);
TP_API void tp_corpus_close(tp_corpus *C);
TP_API bool tp_corpus_ok(const tp_corpus *C);
TP_API const char *tp_corpus_why(const tp_corpus *C);

TP_API int64_t tp_corpus_documents(const tp_corpus *C);
TP_API int64_t tp_corpus_bytes(const tp_corpus *C); /* of text, unpacked */
/* Tokens of a part, those that end documents included. TP_VALID is the last held_out of every
 * sixteenth of the stream, whatever the length of sequences, TP_TRAIN the rest; TP_TEST is the same
 * as TP_VALID. */
TP_API int64_t tp_corpus_tokens(const tp_corpus *C, tp_part part);
/* A hash of all tokens, from which a resumed run detects that they have changed. */
TP_API uint64_t tp_corpus_hash(const tp_corpus *C);
/* The number of <unk> tokens: bytes that the vocabulary lacks. They are never targets, so no loss
 * counts them. */
TP_API int64_t tp_corpus_unknown(const tp_corpus *C);
/* Whether the tokens came from the cache file, so no text was read. */
TP_API bool tp_corpus_was_cached(const tp_corpus *C);

/* Copies n tokens of a part, from token `first` on, to ids. False, with the reason in why: they are
 * not all in the part, or the cache cannot be read. Threads may call it at the same time. */
TP_API bool tp_corpus_read(const tp_corpus *C, tp_part part, int64_t first, int64_t n, int32_t *ids,
                           char *why, size_t size);

/* ---- masked batches ---- */

typedef struct tp_mlm_loader_opts {
    int64_t batch, length; /* sequences; ids of each, <s> and </s> included, at least 3 */
    tp_part part;
    /* Endless: sequences are shuffled and masked anew for each epoch, whole batches only. Otherwise
     * one pass in order with masks that never change; the last batch may have fewer sequences, and
     * the last sequence is padded. */
    bool train;
    uint64_t seed;
    double rate; /* of targets; 0: 0.15 */
    /* floor(rate x tokens + u) targets in each sequence, u uniform in [0,1), as fairseq draws them.
     * Otherwise each token is one independently, as the package transformers draws them. */
    bool exact;
    /* With `exact`: all batches have batch x ceil(rate x (length - 2)) rows, since CUDA graphs need
     * equal shapes. Further rows are 0 with the target -1, which losses do not count. */
    bool padded;
    tp_share share; /* the part of each batch that this process reads; zero: all of it */
} tp_mlm_loader_opts;

/* A batch in host memory, valid until the next call. */
typedef struct tp_mlm_batch {
    int64_t n, length;     /* sequences, ids of each */
    int64_t epoch, step;   /* step: within the epoch */
    const int64_t *index;  /* [n]: the numbers of the sequences */
    const int32_t *ids;    /* [n,length], masked */
    int64_t rows;          /* R, at least 1 */
    int64_t targets;       /* rows that count: all of them unless `padded` */
    const int32_t *row;    /* [R]: b * length + position, increasing */
    const int32_t *target; /* [R]: the ids that were there, or -1 */
} tp_mlm_batch;

/* Batches of C (loader.h), made by the caller's thread. Special tokens are never targets, and a
 * random token is never a special one, since a <pad> would move the positions of all tokens after
 * it. A batch in which no target is drawn gets one, and so does the part of a process, so that each
 * has a loss; the numbers of targets of processes that share a batch differ. It fails if C has too
 * few tokens for a batch or was opened with a `separator`. The mask of a sequence depends on (seed,
 * epoch, number of the sequence).
 *
 * They are fed into three slots, all TP_I32: ids [n,length], rows [R], targets [R]. */
enum { TP_MLM_SLOTS = 3 };
TP_API tp_loader *tp_mlm_loader_new(const tp_corpus *C, const tp_mlm_loader_opts *o);
TP_API int64_t tp_mlm_loader_sequences(const tp_loader *L); /* per epoch */
/* The targets that count, of the batch that was fed last. */
TP_API int64_t tp_mlm_loader_targets(const tp_loader *L);

/* The next batch. False at the end (unless train) or on an error. */
TP_API bool tp_mlm_loader_next(tp_loader *L, tp_mlm_batch *b);

#ifdef __cplusplus
}
#endif
#endif
