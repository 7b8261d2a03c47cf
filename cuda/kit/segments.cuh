/* segments.cuh - segments of a parameter set on the GPU: a block of threads takes a block of
 * TP_BLOCK elements and finds its segment in a table, which the optimiser has uploaded or the call
 * uploads. */
#ifndef TP_SEGMENTS_CUH
#define TP_SEGMENTS_CUH

#include "cuda/kit/kernel.cuh"
#include "tensor/geometry/segments.h"

static inline const tp_optim_attr *tp_options(const tp_call *c)
{
    return static_cast<const tp_optim_attr *>(c->attr);
}

/* The segments of an optimiser's call, with their table on the device. */
static inline tp_segments tp_table_of(const tp_optim_attr *a)
{
    tp_segments s = a->s;
    s.at = reinterpret_cast<tp_segment *>(const_cast<tp_optim_attr *>(a->there) + 1);
    return s;
}

/* Replaces the table by its copy on the device. False: out of memory. */
static inline bool tp_upload(const tp_call *c, tp_segments *s)
{
    if (s->n == 0) return true;
    s->at = static_cast<tp_segment *>(tp__cuda_table(c, s->at, (size_t)s->n * sizeof *s->at));
    return s->at != NULL;
}

/* Elements [at, at + n) of block b, its segment, the first of them in state 0, and their gradients;
 * g: NULL if there are none. */
struct tp_stretch {
    const tp_segment *s;
    int64_t at, n, own;
    float *g;
};

static __device__ inline tp_stretch tp_stretch_of(const tp_segments &s, int64_t block)
{
    const tp_segment *g = tp__segment(&s, block);
    const int64_t done = (block - g->block) * TP_BLOCK;
    float *grad = static_cast<float *>(g->grad);
    return { g, g->at + done, min((int64_t)TP_BLOCK, g->numel - done), g->own[0] + done,
             grad ? grad + done : NULL };
}

/* Sums segment i over two numbers that a kernel stored per block; all threads must call it. */
struct tp_block_sums {
    double a, b;
};

static __device__ inline tp_block_sums tp_sums_of_blocks(const tp_segments &s, const double *part,
                                                         int64_t i)
{
    const int64_t end = i + 1 < s.n ? s.at[i + 1].block : s.blocks;
    double x = 0.0, y = 0.0;
    for (int64_t b = s.at[i].block + threadIdx.x; b < end; b += blockDim.x) {
        x += part[2 * b];
        y += part[2 * b + 1];
    }
    x = tp_block<tp_sum_of>(x);
    y = tp_block<tp_sum_of>(y);
    return { x, y };
}

#endif
