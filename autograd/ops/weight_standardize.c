/* weight_standardize.c - standardises the weights of each output channel (Qiao et al. 2019).
 *
 *     y = (w - m) / (std + eps)           unbiased deviation of the weights of a channel
 *     y = (w - m) / sqrt(var + eps)       `biased`: biased variance
 *
 * The hidden output holds m, the factor s = dy/dw at fixed statistics, and k. Since s depends on w,
 * the gradient gains the term -k (w - m) sum(dy (w - m)). */
#include <math.h>

#include "autograd/ops/op_inner.h"
#include "tensor/geometry/norms.h"

static tp_code standardize_shape(tp_infer *q)
{
    const tp__standardize_attr *at = q->attr;
    const tp_view *w = &q->x[0];

    if (w->ndim < 2) return tp_fail(q, TP_E_SHAPE, "w must be [Co,...]");
    if (!(at->eps >= 0.0 && at->eps < INFINITY))
        return tp_fail(q, TP_E_VALUE, "eps must be 0 or more");
    if (!at->biased && w->numel == w->dim[0] && w->numel > 0)
        return tp_fail(q, TP_E_SHAPE, "an unbiased deviation needs two weights a channel or more");

    q->y[0] = *w;
    q->y[1] = (tp_view){ .dtype = tp__sum_dtype(w->dtype), .ndim = 2, .dim = { w->dim[0], 3 } };
    return TP_OK;
}

#define OPTS(e, b) .attr = TP_ATTR(tp__standardize_attr, e, b)

static const tp_gradcase standardize_cases[] = {
    { "plain", .in = { TP_DIMS(3, 2, 3, 3) }, OPTS(1e-5, false) },
    { "biased", .in = { TP_DIMS(3, 2, 3, 3) }, OPTS(1e-3, true) },
    { "depthwise", .in = { TP_DIMS(9, 1, 3, 3) }, OPTS(0.1, false) },
    { "depthwise, biased", .in = { TP_DIMS(9, 1, 3, 3) }, OPTS(0.1, true) },
    { "two weights", .in = { TP_DIMS(3, 2) }, OPTS(0.5, false) },
    { "one weight, biased", .in = { TP_DIMS(3, 1) }, OPTS(0.5, true) },
    { "a warp and one more", .in = { TP_DIMS(2, 33) }, OPTS(1e-5, false) },
    { "no channels", .in = { TP_DIMS(0, 2, 3) }, OPTS(1e-5, false) },
    { "no weights", .in = { TP_DIMS(2, 0, 3) }, OPTS(1e-5, false) },
    { 0 },
};

TP_KERNEL(standardize_fwd);
TP_KERNEL(standardize_bwd);

const tp_op tp_op_weight_standardize = {
    .name = "weight_standardize",
    .doc = "(w - m) / (std + eps) of the weights of each channel of w [Co,...]",
    .nx = 1,
    .inputs = "w",
    .ny = 2, /* y; m, s and k of each channel */
    .attr_size = sizeof(tp__standardize_attr),
    .saves = TP_SAVE_X(0) | TP_SAVE_Y(1),
    .shape = standardize_shape,
    .forward = TP_KERNELS(standardize_fwd),
    .backward = TP_KERNELS(standardize_bwd),
    .cases = standardize_cases,
};

tp_tensor tp_weight_standardize(tp_tape *T, tp_tensor w, double eps, bool biased)
{
    const tp__standardize_attr at = { eps, biased };
    return tp_apply(T, &tp_op_weight_standardize, &at, w);
}
