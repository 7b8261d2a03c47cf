/* segments.h - kernels over the flat blocks of a parameter set: which stretches they touch, with
 * which numbers.
 *
 * The blocks of values, gradients, moments and averages have one layout; a segment is the stretch
 * of one parameter in all of them. The work is cut into blocks of TP_BLOCK elements that never
 * cross a segment, so the cut depends on the shapes only, and any thread may take any block. */
#ifndef TP_SEGMENTS_H
#define TP_SEGMENTS_H

#include <stdint.h>

#include "tensor/kernel.h"

typedef struct tp_segment {
    int64_t at, numel; /* first element in the blocks; elements, at least one */
    int64_t block;     /* number of its first block of TP_BLOCK elements      */
    double l2;         /* g += l2 p, before all else                          */
    double rate;       /* SGD: of u; Adam: of m / (root sqrt(v) + eps)        */
    double root;
    double before, after; /* p -= before p and p -= after p, around the update */
} tp_segment;

typedef struct tp_segments {
    tp_segment *at;
    int64_t n, blocks;
} tp_segments;

/* sgd_step: x = { g }, y = { p, u }; u has no data if momentum is 0.
 *     g' = scale g + l2 p;  u = momentum u + g';  p -= rate (nesterov ? g' + momentum u : u) */
typedef struct tp_sgd_attr {
    tp_segments s;
    double scale, momentum;
    bool nesterov;
} tp_sgd_attr;

/* adam_step: x = { g }, y = { p, m, v }.
 *     g' = scale g + l2 p;  m = beta1 m + (1-beta1) g';  v = beta2 v + (1-beta2) g'^2
 *     p -= before p;  p -= rate m / (root sqrt(v) + eps);  p -= after p */
typedef struct tp_adam_attr {
    tp_segments s;
    double scale, beta1, beta2, eps;
} tp_adam_attr;

/* grad_norm: x = { g }, y = { one element }; work: one double a block.
 * grad_clip: x = { norm }, y = { g }: g *= min(1, number / (norm + 1e-6)).
 * ema_step:  x = { p }, y = { e }: e += number (p - e). */
typedef struct tp_segments_attr {
    tp_segments s;
    double number;
} tp_segments_attr;

/* The loop over all blocks of a call: body gets the segment, the block's number, its first element
 * and its length. Every attr of these kernels begins with its tp_segments. */
typedef void (*tp_block_body)(const tp_call *c, const tp_segment *s, int64_t block, int64_t at,
                              int64_t n);
typedef struct tp_block_loop {
    const tp_call *c;
    tp_block_body body;
} tp_block_loop;

/* The last segment that begins at or before a block. */
static inline const tp_segment *tp__segment(const tp_segments *s, int64_t block)
{
    int64_t lo = 0, hi = s->n - 1;
    while (lo < hi) {
        const int64_t mid = (lo + hi + 1) / 2;
        if (s->at[mid].block <= block)
            lo = mid;
        else
            hi = mid - 1;
    }
    return &s->at[lo];
}

static inline void tp__block_loop(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const tp_block_loop *l = ctx;
    (void)thread;
    for (int64_t b = begin; b < end; b++) {
        const tp_segment *s = tp__segment(l->c->attr, b);
        const int64_t done = (b - s->block) * TP_BLOCK, left = s->numel - done;
        l->body(l->c, s, b, s->at + done, left < TP_BLOCK ? left : TP_BLOCK);
    }
}

static inline void tp__for_blocks(const tp_call *c, tp_block_body body)
{
    const tp_block_loop l = { c, body };
    tp__parallel(c->dev, ((const tp_segments *)c->attr)->blocks, 16, tp__block_loop, &l);
}

#endif
