/* linalg.h - what matmul and linear share with their kernels. */
#ifndef TP_LINALG_H
#define TP_LINALG_H

#include <tapegrad/op.h>
#include <tapegrad/ops.h>

#include "tensor/cpu/kit/gemm.h"
#include "tensor/host_device.h"

typedef struct tp__matmul_attr {
    bool ta, tb; /* the last two axes of that operand are transposed */
} tp__matmul_attr;

typedef struct tp__linear_attr {
    tp_act act;
} tp__linear_attr;

/* Does backward need more of the pre-activation than its sign: itself, or the slope there? */
TP_HD static inline bool tp__keeps_z(tp_act act)
{
    return act == TP_ACT_GELU || act == TP_ACT_QUICK_GELU;
}

/* Bytes of dZ, n elements of `size` bytes, where floats follow it. */
static inline size_t tp__dz_bytes(int64_t n, size_t size)
{
    return ((size_t)n * size + 15) / 16 * 16;
}

/* Bytes of workspace for the products of op(a) and op(b), rows of a as one matrix, and of their
 * gradients. dtype: what the kernels compute in. */
static inline size_t tp__product_work(tp_dtype dtype, const tp_view *a, const tp_view *b,
                                      int threads)
{
    const int64_t width = a->dim[a->ndim - 1];
    int64_t size = width > 0 ? a->numel / width : 0;
    for (int i = b->ndim - 2; i < b->ndim; i++) size = b->dim[i] > size ? b->dim[i] : size;
    return (size_t)threads * tp__gemm_scratch(dtype, width > size ? width : size);
}

#endif
