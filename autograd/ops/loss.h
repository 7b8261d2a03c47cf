/* loss.h - checks, result shape and workspace shared by the losses' ops. */
#ifndef TP_LOSS_INNER_H
#define TP_LOSS_INNER_H

#include "autograd/ops/op_inner.h"
#include "tensor/geometry/loss.h"
#include "tensor/kernel.h"

TP_KERNEL(point_loss_fwd);
TP_KERNEL(point_loss_bwd);

static inline tp_code tp__check_reduction(tp_infer *q, tp_reduction r)
{
    if (r >= TP_MEAN && r <= TP_EACH) return TP_OK;
    return tp_fail(q, TP_E_VALUE, "unknown reduction %d", (int)r);
}

/* Weights of classes are [V] or absent. */
static inline tp_code tp__check_class_weights(tp_infer *q, int64_t V)
{
    const tp_view *w = &q->x[2];
    if (tp_absent(w) || (w->ndim == 1 && w->dim[0] == V)) return TP_OK;
    return tp_fail(q, TP_E_SHAPE, "weights must be [%lld], one for each class", (long long)V);
}

/* Elementwise losses: x and target share a shape; the result is a scalar or a loss per element. */
static inline tp_code tp__point_loss_shape(tp_infer *q)
{
    const tp__point_loss_attr *a = q->attr;
    const tp_view *x = &q->x[0], *target = &q->x[1];

    if (!tp__same_shape(x, target)) return tp_fail(q, TP_E_SHAPE, "x and target differ in shape");
    if (a->reduction == TP_EACH) q->y[0] = *x;
    q->y[0].dtype = tp__sum_dtype(x->dtype);
    return tp__check_reduction(q, a->reduction);
}

/* One partial sum per block. */
static inline size_t tp__point_loss_work(const tp_call *c)
{
    return tp_is_backward(c) ? 0 : (size_t)(c->x[0].numel / TP_BLOCK + 1) * sizeof(double);
}

/* The fields common to their tp_op constants. */
#define TP_POINT_LOSS                                                                              \
    .nx = 2, .ny = 1, .inputs = "x, target", .attr_size = sizeof(tp__point_loss_attr),             \
    .saves = TP_SAVE_X(0) | TP_SAVE_X(1), .constant = 1u << 1, .exact = 1u << 1,                   \
    .work = TP_SAME_WORK(tp__point_loss_work), .forward = TP_KERNELS(point_loss_fwd),              \
    .backward = TP_KERNELS(point_loss_bwd)

#endif
