/* drop_path.c - stochastic depth (Huang et al. 2016): drops whole samples of axis 0.
 *
 *     y[s] = x[s] / (1-p) if word s of the op's random numbers is at least p 2^32, else 0 */
#include "autograd/ops/op_inner.h"

TP_KERNEL(drop_path_fwd);
TP_KERNEL(drop_path_bwd);

static tp_code drop_path_shape(tp_infer *q)
{
    const double p = *(const double *)q->attr;
    if (!(p >= 0.0 && p < 1.0))
        return tp_fail(q, TP_E_VALUE, "p must be at least 0 and less than 1, not %g", p);
    if (q->x[0].ndim < 1) return tp_fail(q, TP_E_SHAPE, "x must have an axis of samples");
    if (!q->train || p == 0.0) q->view_at = 0;
    return tp__like_x(q);
}

static const tp_gradcase drop_path_cases[] = {
    { "scalars", .in = { TP_DIMS(9) }, .attr = &(double){ 0.3 } },
    { "maps", .in = { TP_DIMS(5, 2, 3, 3) }, .attr = &(double){ 0.6 } },
    { "packs", .in = { TP_DIMS(6, 3, 8) }, .attr = &(double){ 0.5 } },
    { "several blocks", .in = { TP_DIMS(5, 1001) }, .attr = &(double){ 0.5 } },
    { "p 0", .in = { TP_DIMS(3, 4) }, .attr = &(double){ 0.0 } },
    { 0 },
};

const tp_op tp_op_drop_path = {
    .name = "drop_path",
    .doc = "x / (1-p) for samples of axis 0 with probability 1-p, else 0; identity unless training",
    .nx = 1,
    .ny = 1,
    .attr_size = sizeof(double),
    .flags = TP_RANDOM,
    .shape = drop_path_shape,
    .forward = TP_KERNELS(drop_path_fwd),
    .backward = TP_KERNELS(drop_path_bwd),
    .cases = drop_path_cases,
};

tp_tensor tp_drop_path(tp_tape *T, tp_tensor x, double p)
{
    return tp_apply(T, &tp_op_drop_path, &p, x);
}
