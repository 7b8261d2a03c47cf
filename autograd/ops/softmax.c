/* softmax.c - softmax over the last axis and its logarithm.
 *
 *     softmax(x)_i = e^(x_i - max) / sum_j e^(x_j - max)
 *
 * Both save their result, not their input. */
#include "autograd/ops/op_inner.h"

static tp_code softmax_shape(tp_infer *q)
{
    if (q->x[0].ndim < 1) return tp_fail(q, TP_E_SHAPE, "x needs one axis or more");
    return tp__like_x(q);
}

static const tp_gradcase softmax_cases[] = {
    { "one row", .in = { TP_DIMS(7) } },
    { "rows", .in = { TP_DIMS(4, 5) } },
    { "many axes", .in = { TP_DIMS(2, 1, 3, 3) } },
    { "one class", .in = { TP_DIMS(3, 1) } },
    { "wide", .in = { TP_DIMS(2, 70) } },
    { "no rows", .in = { TP_DIMS(0, 3) } },
    { "no classes", .in = { TP_DIMS(3, 0) } },
    { 0 },
};

TP_KERNEL(softmax_fwd);
TP_KERNEL(softmax_bwd);
TP_KERNEL(log_softmax_fwd);
TP_KERNEL(log_softmax_bwd);

const tp_op tp_op_softmax = {
    .name = "softmax",
    .doc = "e^x / sum e^x over the last axis",
    .nx = 1,
    .ny = 1,
    .saves = TP_SAVE_Y(0),
    .shape = softmax_shape,
    .forward = TP_KERNELS(softmax_fwd),
    .backward = TP_KERNELS(softmax_bwd),
    .cases = softmax_cases,
};

const tp_op tp_op_log_softmax = {
    .name = "log_softmax",
    .doc = "x - log sum e^x over the last axis",
    .nx = 1,
    .ny = 1,
    .saves = TP_SAVE_Y(0),
    .shape = softmax_shape,
    .forward = TP_KERNELS(log_softmax_fwd),
    .backward = TP_KERNELS(log_softmax_bwd),
    .cases = softmax_cases,
};

tp_tensor tp_softmax(tp_tape *T, tp_tensor x)
{
    return tp_apply(T, &tp_op_softmax, NULL, x);
}

tp_tensor tp_log_softmax(tp_tape *T, tp_tensor x)
{
    return tp_apply(T, &tp_op_log_softmax, NULL, x);
}
