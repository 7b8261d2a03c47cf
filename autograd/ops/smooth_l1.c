/* smooth_l1.c - a loss quadratic near zero and linear beyond (Girshick 2015); d = x - target:
 *
 *     d^2 / (2 beta) if |d| < beta, else |d| - beta/2     beta 0: |d| */
#include "autograd/ops/loss.h"

static tp_code smooth_l1_shape(tp_infer *q)
{
    const tp__point_loss_attr *a = q->attr;
    if (!(a->beta >= 0.0 && a->beta < (double)INFINITY))
        return tp_fail(q, TP_E_VALUE, "beta must not be negative or infinite: %g", a->beta);
    return tp__point_loss_shape(q);
}

static const tp_gradcase smooth_l1_cases[] = {
    { "both parts", .in = { TP_DIMS(3, 7), TP_DIMS(3, 7) },
      .attr =
          &(tp__point_loss_attr){ .loss = TP_LOSS_SMOOTH_L1, .reduction = TP_MEAN, .beta = 0.7 } },
    { "beta 0", .in = { TP_DIMS(3, 7), TP_DIMS(3, 7) },
      .attr =
          &(tp__point_loss_attr){ .loss = TP_LOSS_SMOOTH_L1, .reduction = TP_EACH, .beta = 0.0 } },
    { "sum", .in = { TP_DIMS(100), TP_DIMS(100) },
      .attr =
          &(tp__point_loss_attr){ .loss = TP_LOSS_SMOOTH_L1, .reduction = TP_SUM, .beta = 1.0 } },
    { 0 },
};

const tp_op tp_op_smooth_l1 = {
    .name = "smooth_l1",
    .doc = "d^2/(2 beta) if |d| < beta else |d| - beta/2, d = x - target, reduced",
    .shape = smooth_l1_shape,
    .cases = smooth_l1_cases,
    TP_POINT_LOSS,
};

tp_tensor tp_smooth_l1(tp_tape *T, tp_tensor x, tp_tensor target, double beta, tp_reduction r)
{
    const tp__point_loss_attr a = { .loss = TP_LOSS_SMOOTH_L1, .reduction = r, .beta = beta };
    return tp_apply(T, &tp_op_smooth_l1, &a, x, target);
}
