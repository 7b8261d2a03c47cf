/* instancenorm.c - instance normalisation, channels last (Ulyanov, Vedaldi, Lempitsky 2016).
 *
 *     y = (x - m) / sqrt(v + eps) * w + b     m, v of each image and channel of x [B,...,C]
 *
 * The variance is biased and taken over all positions; there are no running statistics. */
#include <math.h>

#include "autograd/ops/op_inner.h"
#include "tensor/geometry/norms.h"

static tp_code instancenorm_shape(tp_infer *q)
{
    static const char *const names[TP_MAX_INPUTS] = { "x", "w", "b" };
    const double eps = ((const tp__instancenorm_attr *)q->attr)->eps;
    const tp_view *x = &q->x[0];

    if (tp__expect_float(q) != TP_OK) return TP_E_DTYPE;
    if (x->ndim < 2) return tp_fail(q, TP_E_SHAPE, "x must be [B,...,C]");
    const int64_t C = x->dim[x->ndim - 1];
    if (tp__expect_vectors(q, names, C) != TP_OK) return TP_E_SHAPE;
    if (!(eps >= 0.0 && eps < INFINITY)) return tp_fail(q, TP_E_VALUE, "eps must be 0 or more");

    q->y[0] = *x;
    q->y[1] = (tp_view){ .dtype = tp__sum_dtype(x->dtype), .ndim = 3, .dim = { x->dim[0], 2, C } };
    return TP_OK;
}

/* Backward: the sums of dy h and of dy for each image. */
static size_t instancenorm_work(const tp_call *c)
{
    const tp_view *stats = &c->y[1];
    return tp_is_backward(c)
               ? (size_t)(stats->dim[0] * 2 * stats->dim[2]) * tp_dtype_size(stats->dtype)
               : 0;
}

#define EPS(e)                                                                                     \
    .attr = &(tp__instancenorm_attr)                                                               \
    {                                                                                              \
        e                                                                                          \
    }

static const tp_gradcase instancenorm_cases[] = {
    { "w and b", .in = { { 4, { 2, 3, 2, 3 } }, { 1, { 3 } }, { 1, { 3 } } }, EPS(1e-5) },
    { "w only", .in = { { 3, { 3, 5, 2 } }, { 1, { 2 } } }, EPS(1e-3) },
    { "b only", .in = { { 3, { 2, 4, 3 } }, { 0 }, { 1, { 3 } } }, EPS(1e-3) },
    { "plain", .in = { { 3, { 1, 6, 1 } } }, EPS(0.1) },
    { "one position", .in = { { 2, { 3, 2 } }, { 1, { 2 } }, { 1, { 2 } } }, EPS(0.5) },
    { "packs", .in = { { 3, { 2, 9, 8 } }, { 1, { 8 } }, { 1, { 8 } } }, EPS(0.1) },
    { "two tiles of packs", .in = { { 3, { 2, 5, 72 } }, { 1, { 72 } }, { 1, { 72 } } }, EPS(0.1) },
    { "a tile and one more", .in = { { 3, { 2, 4, 33 } }, { 1, { 33 } }, { 1, { 33 } } },
      EPS(0.1) },
    { "all rows of a tile", .in = { { 3, { 2, 259, 3 } }, { 1, { 3 } }, { 1, { 3 } } }, EPS(0.1) },
    { "no images", .in = { { 3, { 0, 4, 3 } }, { 1, { 3 } }, { 1, { 3 } } }, EPS(1e-5) },
    { "no positions", .in = { { 3, { 2, 0, 3 } }, { 1, { 3 } }, { 1, { 3 } } }, EPS(1e-5) },
    { "no channels", .in = { { 3, { 2, 4, 0 } }, { 1, { 0 } }, { 1, { 0 } } }, EPS(1e-5) },
    { 0 },
};

TP_KERNEL(instancenorm_fwd);
TP_KERNEL(instancenorm_bwd);

const tp_op tp_op_instancenorm = {
    .name = "instancenorm",
    .doc = "(x - m) / sqrt(v + eps) * w + b, m and v of each image and channel of x [B,...,C]",
    .nx = 3, /* x, w, b */
    .ny = 2, /* y, m and 1/sqrt(v + eps) of each image */
    .attr_size = sizeof(tp__instancenorm_attr),
    .saves = TP_SAVE_X(0) | TP_SAVE_X(1) | TP_SAVE_Y(1),
    .optional = 1u << 1 | 1u << 2,
    .shape = instancenorm_shape,
    .forward = TP_KERNELS(instancenorm_fwd),
    .backward = TP_KERNELS(instancenorm_bwd),
    .work = TP_SAME_WORK(instancenorm_work),
    .cases = instancenorm_cases,
};

tp_tensor tp_instancenorm(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b, double eps)
{
    const tp__instancenorm_attr at = { eps };
    return tp_apply(T, &tp_op_instancenorm, &at, x, w, b);
}
