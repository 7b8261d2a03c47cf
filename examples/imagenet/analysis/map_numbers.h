/* map_numbers.h - the numbers of the papers' figures, from tokens and attention inputs on the host.
 */
#ifndef MAP_NUMBERS_H
#define MAP_NUMBERS_H

#include <tapegrad/ops.h>

#include "host_array.h"

/* The mean cosine of rows i and j over all ordered pairs i != j of x [n,d]; a row of zeros is
 * orthogonal to all. One row: 0. work [d]. */
double mean_cosine(const double *x, int64_t n, int64_t d, double *work);

/* The mean length of the rows of x [n,d]. */
double mean_norm(const double *x, int64_t n, int64_t d);

/* Turns logits x [n] into probabilities; -INFINITY: none. */
void softmax_of(double *x, int64_t n);

/* The dynamic projection of one image (tp_chunk_project over the whole map): row j of head h of
 * out [rank,width] is the mean of x [n,width] in the weights softmax of scores[., h rank + j],
 * scores [n,heads rank]. work [n]. */
void project_rows(const double *x, const double *scores, int64_t n, int64_t width, int64_t heads,
                  int64_t rank, double *out, double *work);

/* ---- what a token of a map attends to, in each head ---- */
typedef struct span {
    int64_t heads, rows, cols;
    double *direct;  /* [heads,rows cols]: to a token itself                                    */
    double *through; /* [heads,rows cols]: to projections, times a token's weight in them       */
    double *front;   /* [heads]: to class and global tokens; all of a head's numbers sum to 1   */
} span;
void span_free(span *s);

/* Inputs of tp_window_attention_2d, of which the first image counts; scores: of the dynamic
 * projection that made the low keys, or empty. What low keys are more than its rank counts as
 * front. */
typedef struct window_seen {
    host_array q, k, low_k, table, global_bias, scores;
    tp_window_attn_cfg cfg;
} window_seen;

/* Of the query in that row and column. False: no memory, or a cyclic window or a random neighbour,
 * of which there is no map. Free in either case. */
bool window_span(span *s, const window_seen *in, int64_t row, int64_t col);

/* Of tp_attention, whose rows of q and k begin with `front` tokens; the rest of k is a square map.
 * query: row of q. bias [H,N,S] or [B,H,N,S], or empty. */
bool full_span(span *s, const host_array *q, const host_array *k, const host_array *bias,
               const tp_attn_cfg *cfg, int64_t front, int64_t query);

#endif
