/* map_numbers.h - computes the papers' numbers from tokens and attention inputs. */
#ifndef MAP_NUMBERS_H
#define MAP_NUMBERS_H

#include <tapegrad/ops.h>
#include <tapegrad/tapegrad.h>

#include "inside/host_array.h"

/* The mean cosine of rows i and j over all ordered pairs i != j of x [n,d]. A zero row counts as
 * orthogonal to all; a single row gives 0. work [d]. */
double mean_cosine(const double *x, int64_t n, int64_t d, double *work);

/* Replaces logits x [n] by their softmax; -INFINITY gives 0. */
void softmax_of(double *x, int64_t n);

/* ---- the attention of a map's token, per head ---- */
typedef struct span {
    int64_t heads, rows, cols;
    double *direct;  /* [heads,rows cols]: weight on a token itself */
    double *through; /* [heads,rows cols]: weight on projections times its weight in them */
    double *front;   /* [heads]: weight on class and global tokens; a head's numbers sum to 1 */
} span;
void span_free(span *s);

/* Inputs of tp_window_attention_2d; only the first image is used. scores: of the dynamic projection
 * behind the low-rank keys, or empty. Low-rank keys beyond its rank count as front. */
typedef struct window_seen {
    host_array q, k, low_k, table, global_bias, scores;
    tp_window_attn_cfg cfg;
} window_seen;

/* The span of the query at this row and column. False if out of memory, or for cyclic windows and
 * random neighbours, which have no map. Free in either case. */
bool window_span(span *s, const window_seen *in, int64_t row, int64_t col);

/* The span of row `query` of q in tp_attention. q and k begin with `front` tokens; the rest of k is
 * a square map. bias [H,N,S] or [B,H,N,S], or empty. */
bool full_span(span *s, const host_array *q, const host_array *k, const host_array *bias,
               const tp_attn_cfg *cfg, int64_t front, int64_t query);

#endif
