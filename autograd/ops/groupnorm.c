/* groupnorm.c - group normalisation (Wu, He 2018) and instance normalisation (Ulyanov, Vedaldi,
 * Lempitsky 2016), channels last.
 *
 *     y = (x - m) / sqrt(v + eps) * w + b   m, v per image and group of channels of x [B,...,C]
 *
 * The variance is biased and taken over all positions of a group's channels; there are no running
 * statistics. Instance norm uses one group per channel. */
#include <math.h>

#include "autograd/ops/op_inner.h"
#include "tensor/geometry/norms.h"

static tp_code groupnorm_shape(tp_infer *q)
{
    static const char *const names[TP_MAX_INPUTS] = { "x", "w", "b" };
    const tp__groupnorm_attr *at = q->attr;
    const tp_view *x = &q->x[0];

    if (x->ndim < 2) return tp_fail(q, TP_E_SHAPE, "x must be [B,...,C]");
    const int64_t C = x->dim[x->ndim - 1];
    if (!at->each && at->groups < 1)
        return tp_fail(q, TP_E_VALUE, "groups cannot be %lld", (long long)at->groups);
    if (!at->each && C % at->groups != 0)
        return tp_fail(q, TP_E_SHAPE, "%lld channels cannot be divided into %lld groups",
                       (long long)C, (long long)at->groups);
    if (tp__expect_norm_layout(q) != TP_OK) return TP_E_SHAPE;
    if (tp__expect_vectors(q, names, C) != TP_OK) return TP_E_SHAPE;
    if (!(at->eps >= 0.0 && at->eps < INFINITY))
        return tp_fail(q, TP_E_VALUE, "eps must be 0 or more");

    q->y[0] = *x;
    q->y[1] = (tp_view){ .dtype = tp__sum_dtype(x->dtype), .ndim = 3, .dim = { x->dim[0], 2, C } };
    return TP_OK;
}

#define ATTR(g, e) .attr = TP_ATTR(tp__groupnorm_attr, .groups = g, .eps = e)
#define EPS(e)     .attr = TP_ATTR(tp__groupnorm_attr, .each = true, .eps = e)

static const tp_gradcase instancenorm_cases[] = {
    { "w and b", .in = { TP_DIMS(2, 3, 2, 3), TP_DIMS(3), TP_DIMS(3) }, EPS(1e-5) },
    { "w only", .in = { TP_DIMS(3, 5, 2), TP_DIMS(2) }, EPS(1e-3) },
    { "b only", .in = { TP_DIMS(2, 4, 3), { 0 }, TP_DIMS(3) }, EPS(1e-3) },
    { "plain", .in = { TP_DIMS(1, 6, 1) }, EPS(0.1) },
    { "one position", .in = { TP_DIMS(3, 2), TP_DIMS(2), TP_DIMS(2) }, EPS(0.5) },
    { "packs", .in = { TP_DIMS(2, 9, 8), TP_DIMS(8), TP_DIMS(8) }, EPS(0.1) },
    { "two tiles of packs", .in = { TP_DIMS(2, 5, 72), TP_DIMS(72), TP_DIMS(72) }, EPS(0.1) },
    { "a tile and one more", .in = { TP_DIMS(2, 4, 33), TP_DIMS(33), TP_DIMS(33) }, EPS(0.1) },
    { "all rows of a tile", .in = { TP_DIMS(2, 259, 3), TP_DIMS(3), TP_DIMS(3) }, EPS(0.1) },
    { "several blocks", .in = { TP_DIMS(1, 523, 2), TP_DIMS(2), TP_DIMS(2) }, EPS(0.1) },
    { "no images", .in = { TP_DIMS(0, 4, 3), TP_DIMS(3), TP_DIMS(3) }, EPS(1e-5) },
    { "no positions", .in = { TP_DIMS(2, 0, 3), TP_DIMS(3), TP_DIMS(3) }, EPS(1e-5) },
    { "no channels", .in = { TP_DIMS(2, 4, 0), TP_DIMS(0), TP_DIMS(0) }, EPS(1e-5) },
    { 0 },
};

static const tp_gradcase groupnorm_cases[] = {
    { "w and b", .in = { TP_DIMS(2, 3, 2, 6), TP_DIMS(6), TP_DIMS(6) }, ATTR(2, 1e-5) },
    { "w only", .in = { TP_DIMS(3, 5, 4), TP_DIMS(4) }, ATTR(2, 1e-3) },
    { "b only", .in = { TP_DIMS(2, 4, 3), { 0 }, TP_DIMS(3) }, ATTR(1, 1e-3) },
    { "plain", .in = { TP_DIMS(1, 6, 2) }, ATTR(1, 0.1) },
    { "a group for each channel", .in = { TP_DIMS(2, 5, 3), TP_DIMS(3), TP_DIMS(3) },
      ATTR(3, 0.1) },
    { "one position", .in = { TP_DIMS(3, 4), TP_DIMS(4), TP_DIMS(4) }, ATTR(2, 0.5) },
    { "one value a group", .in = { TP_DIMS(3, 2), TP_DIMS(2) }, ATTR(2, 0.5) },
    { "packs", .in = { TP_DIMS(2, 9, 16), TP_DIMS(16), TP_DIMS(16) }, ATTR(4, 0.1) },
    { "groups across tiles", .in = { TP_DIMS(2, 5, 72), TP_DIMS(72), TP_DIMS(72) }, ATTR(3, 0.1) },
    { "more channels than a warp", .in = { TP_DIMS(2, 3, 66), TP_DIMS(66), TP_DIMS(66) },
      ATTR(2, 0.1) },
    { "several blocks", .in = { TP_DIMS(2, 523, 4), TP_DIMS(4), TP_DIMS(4) }, ATTR(2, 0.1) },
    { "no images", .in = { TP_DIMS(0, 4, 4), TP_DIMS(4), TP_DIMS(4) }, ATTR(2, 1e-5) },
    { "no positions", .in = { TP_DIMS(2, 0, 4), TP_DIMS(4), TP_DIMS(4) }, ATTR(2, 1e-5) },
    { "no channels", .in = { TP_DIMS(2, 4, 0), TP_DIMS(0), TP_DIMS(0) }, ATTR(2, 1e-5) },
    { 0 },
};

TP_KERNEL(groupnorm_fwd);
TP_KERNEL(groupnorm_bwd);
TP_WORK(groupnorm_work);

const tp_op tp_op_instancenorm = {
    .name = "instancenorm",
    .doc = "(x - m) / sqrt(v + eps) * w + b, m and v of each image and channel of x [B,...,C]",
    .nx = 3,
    .inputs = "x, w, b",
    .ny = 2, /* y, m and 1/sqrt(v + eps) of each image and channel */
    .attr_size = sizeof(tp__groupnorm_attr),
    .saves = TP_SAVE_X(0) | TP_SAVE_X(1) | TP_SAVE_Y(1),
    .optional = 1u << 1 | 1u << 2,
    .flags = TP_MIXES,
    .shape = groupnorm_shape,
    .forward = TP_KERNELS(groupnorm_fwd),
    .backward = TP_KERNELS(groupnorm_bwd),
    .work = TP_WORKS(groupnorm_work),
    .cases = instancenorm_cases,
};

const tp_op tp_op_groupnorm = {
    .name = "groupnorm",
    .doc = "(x - m) / sqrt(v + eps) * w + b, m and v of each image and group of channels",
    .nx = 3,
    .inputs = "x, w, b",
    .ny = 2, /* y, m and 1/sqrt(v + eps) per image and channel, equal in a group */
    .attr_size = sizeof(tp__groupnorm_attr),
    .saves = TP_SAVE_X(0) | TP_SAVE_X(1) | TP_SAVE_Y(1),
    .optional = 1u << 1 | 1u << 2,
    .flags = TP_MIXES,
    .shape = groupnorm_shape,
    .forward = TP_KERNELS(groupnorm_fwd),
    .backward = TP_KERNELS(groupnorm_bwd),
    .work = TP_WORKS(groupnorm_work),
    .cases = groupnorm_cases,
};

tp_tensor tp_instancenorm(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b, double eps)
{
    const tp__groupnorm_attr at = { .each = true, .eps = eps };
    return tp_apply(T, &tp_op_instancenorm, &at, x, w, b);
}

tp_tensor tp_groupnorm(tp_tape *T, tp_tensor x, int64_t groups, tp_tensor w, tp_tensor b,
                       double eps)
{
    const tp__groupnorm_attr at = { .groups = groups, .eps = eps };
    return tp_apply(T, &tp_op_groupnorm, &at, x, w, b);
}
