/* op_inner.h - what the library's own op files share: kernel tables and common shape checks. */
#ifndef TP_OP_INNER_H
#define TP_OP_INNER_H

#include <tapegrad/op.h>
#include <tapegrad/ops.h>

#include "tensor/shape.h"

/* TP_KERNEL(softmax_fwd); declares the kernels, TP_KERNELS(softmax_fwd) is their table. A missing
 * kernel is a link error. */
#define TP_KERNEL(name) tp_code tp_cpu_##name(const tp_call *c)
#define TP_KERNELS(name)                                                                           \
    {                                                                                              \
        [TP_CPU] = tp_cpu_##name                                                                   \
    }

/* y[0] has the shape and dtype of x[0], which must be floating. */
static inline tp_code tp__like_x(tp_infer *q)
{
    if (!tp_is_float(q->x[0].dtype)) return tp_fail(q, TP_E_DTYPE, "input must be floating point");
    q->y[0] = q->x[0];
    return TP_OK;
}

/* The dtype of sums over data of dtype dt: f32 for bf16. */
static inline tp_dtype tp__sum_dtype(tp_dtype dt)
{
    return dt == TP_BF16 ? TP_F32 : dt;
}

static inline bool tp__is_index(tp_dtype dt)
{
    return dt == TP_I32 || dt == TP_I64;
}

#endif
