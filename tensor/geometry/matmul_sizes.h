/* matmul_sizes.h - the batch of products that a matmul computes, for all backends. */
#ifndef TP_MATMUL_SIZES_H
#define TP_MATMUL_SIZES_H

#include <tapegrad/op.h>

#include "tensor/geometry/linalg.h"

typedef struct tp_matmul_operand { /* one operand of all products of the batch */
    const void *data;
    bool transposed;
    int64_t ld, step; /* elements between rows and between matrices; step 0: one matrix for all */
} tp_matmul_operand;

typedef struct tp_matmul_sizes { /* A is m x k, B is k x n */
    int64_t batch, m, n, k;
    tp_matmul_operand a, b;
} tp_matmul_sizes;

static inline tp_matmul_sizes tp__matmul_sizes(const tp_call *c)
{
    const tp__matmul_attr *at = c->attr;
    const tp_view *b = &c->x[1], *y = &c->y[0];
    const bool one_b = b->ndim == 2;
    tp_matmul_sizes s = { .batch = 1,
                          .m = y->dim[y->ndim - 2],
                          .n = y->dim[y->ndim - 1],
                          .k = b->dim[b->ndim - (at->tb ? 1 : 2)] };
    for (int i = 0; i < y->ndim - 2; i++) s.batch *= y->dim[i];
    if (one_b && !at->ta) {
        s.m *= s.batch;
        s.batch = 1;
    }
    s.a = (tp_matmul_operand){ c->x[0].data, at->ta, at->ta ? s.m : s.k, s.m * s.k };
    s.b = (tp_matmul_operand){ c->x[1].data, at->tb, at->tb ? s.k : s.n, one_b ? 0 : s.k * s.n };
    return s;
}

static inline tp_matmul_operand tp__transposed(tp_matmul_operand x)
{
    x.transposed = !x.transposed;
    return x;
}

#endif
