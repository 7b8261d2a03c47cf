/* rownorm.h - shape rule and kernels shared by layer norm and RMS norm. */
#ifndef TP_ROWNORM_H
#define TP_ROWNORM_H

#include <math.h>

#include "autograd/ops/op_inner.h"
#include "tensor/geometry/norms.h"

TP_KERNEL(rownorm_fwd);
TP_KERNEL(rownorm_bwd);
TP_WORK(rownorm_work);

/* x [...,C], w [C], b [C], v [...,C]; the hidden output, the last, holds two numbers per row. */
static inline tp_code tp__rownorm_shape(tp_infer *q)
{
    static const char *const names[] = { "w", "b" };
    const double eps = ((const tp__rownorm_attr *)q->attr)->eps;
    const tp_view *x = &q->x[ROWNORM_X], *v = q->nx > ROWNORM_V ? &q->x[ROWNORM_V] : NULL;
    const int64_t n = x->ndim > 0 ? x->dim[x->ndim - 1] : 0;

    if (x->ndim < 1) return tp_fail(q, TP_E_SHAPE, "%s needs one axis or more", v ? "k" : "x");
    for (int i = ROWNORM_W; i <= ROWNORM_B && i < q->nx; i++)
        if (!tp_absent(&q->x[i]) && (q->x[i].ndim != 1 || q->x[i].dim[0] != n))
            return tp_fail(q, TP_E_SHAPE, "%s must be [%lld]", names[i - ROWNORM_W], (long long)n);
    if (v && (v->ndim < 1 || v->dim[v->ndim - 1] != n))
        return tp_fail(q, TP_E_SHAPE, "the last axis of v must have size %lld", (long long)n);
    if (v && v->dtype != x->dtype)
        return tp_fail(q, TP_E_DTYPE, "k and v are %s and %s", tp_dtype_name(x->dtype),
                       tp_dtype_name(v->dtype));
    if (!(eps >= 0.0 && eps < INFINITY)) return tp_fail(q, TP_E_VALUE, "eps must be 0 or more");
    q->y[0] = *x;
    if (v) q->y[1] = *v;
    tp_view *const stats = &q->y[q->ny - 1];
    *stats = (tp_view){ .dtype = tp__sum_dtype(x->dtype), .ndim = 2 };
    stats->dim[0] = n > 0 ? (x->numel + (v ? v->numel : 0)) / n : 0;
    stats->dim[1] = 2;
    return TP_OK;
}

#endif
