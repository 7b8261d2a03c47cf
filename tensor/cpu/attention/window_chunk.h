/* window_chunk.h - attention over maps: a chunk of one head, and rows of its tensors. */
#ifndef TP_WINDOW_CHUNK_H
#define TP_WINDOW_CHUNK_H

#include "tensor/cpu/attention/keep.h"
#include "tensor/cpu/attention/ls_products.h"
#include "tensor/cpu/attention/pairs.h"
#include "tensor/cpu/attention/window_scratch.h"
#include "tensor/cpu/kit/real.h"
#include "tensor/kernel.h"

typedef struct win {
    const tp_call *c;
    tp_window g;
    tp_window_scratch at;
    bool pairs; /* products in bf16: pairs.h */
    /* Of queries and their gradients. With pairs, of logits and theirs, so that bf16 operands stay exact. */
    real scale;
    tp_keeper drop;
    int64_t phase;
    /* Of one of several documents: its number, how many there are, the tokens of the longest, where its partial
     * sums begin. Otherwise maps is the batch. */
    int64_t document, maps, longest, first_task;
} win;

/* The biases of a rectangle of keys begin at tables + row of queries * step + (horizontal
 * difference - least) * rows. y is the first row of keys. */
typedef struct win_run {
    int64_t y, rows, least, count, tables, step;
} win_run;

/* A chunk of one head, with the scratch of the thread. It sees n keys: the extra ones and the packed
 * ones from `key` on. With pairs these begin at an even row, of which the first `lead` are not the chunk's. */
typedef struct win_chunk {
    const win *a;
    int64_t b, h;
    int64_t y, x, rows, cols; /* its queries */
    int nrect;
    tp_rect rect[TP_WINDOW_RECTS];
    win_run run[TP_WINDOW_RECTS];
    int64_t key, lead, n, padded; /* padded: columns of scores that products read  */
    int64_t first;                /* map column of the first packed cell of a band */
    real *scratch;
    real *partial; /* backward: sums of the task */
} win_chunk;

/* The head's slice of a token of x [B,g+N,C], of y [B,N,C] (tokens = N) or of low [B,r,C]. */
static inline real *slice(const win_chunk *t, const tp_view *x, int64_t tokens, int64_t token)
{
    const tp_window *g = &t->a->g;
    return (real *)x->data + (t->b * tokens + token) * g->width + t->h * g->dim;
}

/* The token of cell (i,j) of a rectangle, or -1 if it is outside the map. */
static inline int64_t source(const tp_window *g, const tp_rect *r, int64_t i, int64_t j)
{
    const int64_t y = r->y + i + r->dy, x = r->x + j + r->dx;
    return y < g->size[0] && x < g->size[1] ? g->global + y * g->size[1] + x : -1;
}

/* The map index of the cell of query i of the chunk. */
static inline int64_t cell_of(const win_chunk *t, int64_t i)
{
    return (t->y + i / t->cols) * t->a->g.size[1] + t->x + i % t->cols;
}

/* to[d] = k from[d] in whole vectors; d is too small for a library call to pay off. */
TP_INLINE void scaled_row(real *restrict to, const real *restrict from, int64_t d, real k)
{
    const int64_t lanes = TP_VECTOR / (int64_t)sizeof(real);
    int64_t i = 0;
    for (; i + lanes <= d; i += lanes) ls_store(to + i, k * ls_load(from + i));
    for (; i < d; i++) to[i] = k * from[i];
}

TP_INLINE void copy_row(real *restrict to, const real *restrict from, int64_t d)
{
    const int64_t lanes = TP_VECTOR / (int64_t)sizeof(real);
    int64_t i = 0;
    for (; i + lanes <= d; i += lanes) ls_store(to + i, ls_load(from + i));
    for (; i < d; i++) to[i] = from[i];
}

static inline void clear_row(real *to, int64_t d)
{
    memset(to, 0, (size_t)d * sizeof(real));
}

TP_INLINE void add_row(real *restrict to, const real *restrict from, int64_t d)
{
    const int64_t lanes = TP_VECTOR / (int64_t)sizeof(real);
    int64_t i = 0;
    for (; i + lanes <= d; i += lanes) ls_store(to + i, ls_load(to + i) + ls_load(from + i));
    for (; i < d; i++) to[i] += from[i];
}

#endif
