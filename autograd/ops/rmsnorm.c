/* rmsnorm.c - root-mean-square normalisation over the last axis (Zhang, Sennrich 2019).
 *
 *     y = x / sqrt(mean x^2 + eps) * w               w optional
 *
 * Shares the kernels of layer norm, without the mean. */
#include "autograd/ops/rownorm.h"

#define EPS(e) .attr = TP_ATTR(tp__rownorm_attr, .eps = e)

static const tp_gradcase rmsnorm_cases[] = {
    { "w", .in = { TP_DIMS(4, 5), TP_DIMS(5) }, EPS(1e-5) },
    { "plain", .in = { TP_DIMS(2, 2, 3) }, EPS(1e-5) },
    { "large eps", .in = { TP_DIMS(7), TP_DIMS(7) }, EPS(0.5) },
    { "one channel", .in = { TP_DIMS(3, 1), TP_DIMS(1) }, EPS(0.1) },
    { "several blocks", .in = { TP_DIMS(70, 3), TP_DIMS(3) }, EPS(0.1) },
    { "a warp", .in = { TP_DIMS(17, 96), TP_DIMS(96) }, EPS(0.1) },
    { "a long row", .in = { TP_DIMS(2, 8200), TP_DIMS(8200) }, EPS(0.1) },
    { "no rows", .in = { TP_DIMS(0, 3), TP_DIMS(3) }, EPS(1e-5) },
    { 0 },
};

const tp_op tp_op_rmsnorm = {
    .name = "rmsnorm",
    .doc = "x / sqrt(mean(x^2) + eps) * w over the last axis",
    .nx = 2,
    .inputs = "x, w",
    .ny = 2, /* y, 0 and 1/sqrt(mean(x^2) + eps) of each row */
    .attr_size = sizeof(tp__rownorm_attr),
    .saves = TP_SAVE_X(0) | TP_SAVE_X(1) | TP_SAVE_Y(1),
    .optional = 1u << 1,
    .flags = TP_ACCUMULATES | TP_MIXES | TP_TAKES_BF16,
    .shape = tp__rownorm_shape,
    .forward = TP_KERNELS(rownorm_fwd),
    .backward = TP_KERNELS(rownorm_bwd),
    .work = TP_WORKS(rownorm_work),
    .cases = rmsnorm_cases,
};

tp_tensor tp_rmsnorm(tp_tape *T, tp_tensor x, tp_tensor w, double eps)
{
    const tp__rownorm_attr at = { .eps = eps };
    return tp_apply(T, &tp_op_rmsnorm, &at, x, w);
}
