/* segment_loop.h - the parallel loop over blocks of segments, for CPU kernels. */
#ifndef TP_SEGMENT_LOOP_H
#define TP_SEGMENT_LOOP_H

#include "cpu/kit/real.h"
#include "tensor/geometry/segments.h"
#include "tensor/kernel.h"

/* Loops over all blocks of a call. body gets the segment, the block's number, its first element and
 * its length. The attr of these kernels begins with its tp_segments. */
typedef void (*tp_block_body)(const tp_call *c, const tp_segment *s, int64_t block, int64_t at,
                              int64_t n);
typedef struct tp_block_loop {
    const tp_call *c;
    tp_block_body body;
} tp_block_loop;

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

/* Returns the gradient of the blocks' elements from `at` on, which lies in s. */
static inline real *tp__gradient(const tp_segment *s, int64_t at)
{
    return (real *)s->grad + (at - s->at);
}

/* Returns state k of the same elements. */
static inline real *tp__state(const tp_call *c, const tp_segment *s, int k, int64_t at)
{
    return (real *)c->y[1 + k].data + s->own[k] + (at - s->at);
}

/* The sums over segment i of the two numbers a kernel left for each block, in order. */
typedef struct tp_block_sums {
    double a, b;
} tp_block_sums;

static inline tp_block_sums tp__block_sums(const tp_segments *s, const double *part, int64_t i)
{
    const int64_t end = i + 1 < s->n ? s->at[i + 1].block : s->blocks;
    tp_block_sums sum = { 0.0, 0.0 };
    for (int64_t b = s->at[i].block; b < end; b++) {
        sum.a += part[2 * b];
        sum.b += part[2 * b + 1];
    }
    return sum;
}

#endif
