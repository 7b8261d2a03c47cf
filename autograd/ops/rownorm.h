/* rownorm.h - shape rule and kernels shared by layer norm and RMS norm. */
#ifndef TP_ROWNORM_H
#define TP_ROWNORM_H

#include <math.h>

#include "autograd/ops/op_inner.h"
#include "tensor/geometry/norms.h"

TP_KERNEL(rownorm_fwd);
TP_KERNEL(rownorm_bwd);
TP_WORK(rownorm_work);

/* x [...,C], w [C], b [C]; the hidden output holds two numbers per row. */
static inline tp_code tp__rownorm_shape(tp_infer *q)
{
    static const char *const names[] = { "x", "w", "b" };
    const double eps = ((const tp__rownorm_attr *)q->attr)->eps;
    const tp_view *x = &q->x[0];
    const int64_t n = x->ndim > 0 ? x->dim[x->ndim - 1] : 0;

    if (x->ndim < 1) return tp_fail(q, TP_E_SHAPE, "x needs one axis or more");
    if (tp__expect_vectors(q, names, n) != TP_OK) return TP_E_SHAPE;
    if (!(eps >= 0.0 && eps < INFINITY)) return tp_fail(q, TP_E_VALUE, "eps must be 0 or more");
    q->y[0] = *x;
    q->y[1] = (tp_view){ .dtype = tp__sum_dtype(x->dtype), .ndim = 2 };
    q->y[1].dim[0] = n > 0 ? x->numel / n : 0;
    q->y[1].dim[1] = 2;
    return TP_OK;
}

#endif
