/* clm.h - texts for causal language modelling: windows of a stream of tokens, in which each token
 * is predicted from those before it. Part of the data library.
 *
 *     stream     document <|endoftext|> document ...     (tp_corpus, mlm.h, with a separator)
 *     window i   ids = tokens i n .. i n + n - 1, targets = tokens i n + 1 .. i n + n
 *
 * A window begins where the last one ended, so each token but the first is predicted once in an
 * epoch, from at most n - 1 tokens and never from those of the window before. */
#ifndef TAPEGRAD_CLM_H
#define TAPEGRAD_CLM_H

#include <tapegrad/mlm.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tp_clm_loader_opts {
    int64_t batch, length; /* windows; their tokens n, at least 1 */
    tp_part part;
    /* Endless: windows are shuffled anew for each epoch; whole windows and batches only. Otherwise
     * one pass in order, in which the last batch may have fewer windows and the last window is
     * padded: with id 0, target -1. */
    bool train;
    uint64_t seed;  /* of the order */
    tp_share share; /* the part of each batch that this process reads; zero: all of it */
} tp_clm_loader_opts;

/* A batch in host memory, valid until the next call. */
typedef struct tp_clm_batch {
    int64_t n, length;     /* windows, ids of each */
    int64_t epoch, step;   /* step: within the epoch */
    const int64_t *index;  /* [n]: the numbers of the windows */
    const int32_t *ids;    /* [n,length] */
    const int32_t *target; /* [n,length]; -1: does not count */
    int64_t targets;       /* that count */
} tp_clm_batch;

/* Batches of C (loader.h), made by the caller's thread. It fails if C has too few tokens for a
 * batch. They are fed into two slots, both TP_I32: ids [n,length], targets [n,length]. */
enum { TP_CLM_SLOTS = 2 };
TP_API tp_loader *tp_clm_loader_new(const tp_corpus *C, const tp_clm_loader_opts *o);
TP_API int64_t tp_clm_loader_windows(const tp_loader *L); /* per epoch */

/* The next batch. False at the end (unless train) or on an error. */
TP_API bool tp_clm_loader_next(tp_loader *L, tp_clm_batch *b);

#ifdef __cplusplus
}
#endif
#endif
