/* pad.c - pads one axis with a constant value, or several axes in one of four modes. */
#include "autograd/ops/op_inner.h"
#include "tensor/geometry/shape_ops.h"

TP_KERNEL(pad_fwd);
TP_KERNEL(pad_bwd);
TP_KERNEL(pad_nd_fwd);
TP_KERNEL(pad_nd_bwd);

/* Sets y's axis size. */
static tp_code lengthen(tp_infer *q, int axis, int64_t before, int64_t after)
{
    int64_t size;
    if (__builtin_add_overflow(before, after, &size) ||
        __builtin_add_overflow(size, q->x[0].dim[axis], &size))
        return tp_fail(q, TP_E_SHAPE, "the padded axis is too long");
    q->y[0].dim[axis] = size;
    return TP_OK;
}

static tp_code pad_shape(tp_infer *q)
{
    const tp_pad_attr *a = q->attr;
    const tp_view *x = &q->x[0];
    const int axis = tp__check_axis(q, x->ndim, a->axis);
    if (axis < 0) return TP_E_SHAPE;
    if (a->before < 0 || a->after < 0)
        return tp_fail(q, TP_E_VALUE, "cannot pad by %lld and %lld", (long long)a->before,
                       (long long)a->after);
    if (tp__expect_held(q, x->dtype, a->value) != TP_OK) return TP_E_VALUE;
    q->y[0] = *x;
    return lengthen(q, axis, a->before, a->after);
}

static const tp_gradcase pad_cases[] = {
    { "leading axis", .in = { TP_DIMS(2, 3) }, .attr = &(tp_pad_attr){ 0, 2, 1, 0.0 } },
    { "middle axis", .in = { TP_DIMS(2, 3, 2) }, .attr = &(tp_pad_attr){ 1, 0, 2, 1.5 } },
    { "last axis", .in = { TP_DIMS(3, 5) }, .attr = &(tp_pad_attr){ -1, 3, 0, -1.0 } },
    { "by nothing", .in = { TP_DIMS(3, 5) }, .attr = &(tp_pad_attr){ 1, 0, 0, 7.0 } },
    { "nothing", .in = { TP_DIMS(3, 0) }, .attr = &(tp_pad_attr){ 1, 1, 1, 7.0 } },
    { "by whole packs", .in = { TP_DIMS(3, 16) }, .attr = &(tp_pad_attr){ 1, 8, 16, 1.5 } },
    { "by pieces of packs", .in = { TP_DIMS(3, 19) }, .attr = &(tp_pad_attr){ 1, 5, 9, 1.5 } },
    { 0 },
};

const tp_op tp_op_pad = {
    .name = "pad",
    .doc = "an axis padded with a constant, `before` and `after` elements",
    .nx = 1,
    .ny = 1,
    .takes = { TP_ANY },
    .attr_size = sizeof(tp_pad_attr),
    .flags = TP_TAKES_BF16,
    .shape = pad_shape,
    .forward = TP_KERNELS(pad_fwd),
    .backward = TP_KERNELS(pad_bwd),
    .cases = pad_cases,
};

tp_tensor tp_pad(tp_tape *T, tp_tensor x, int axis, int64_t before, int64_t after, double value)
{
    const tp_pad_attr a = { axis, before, after, value };
    return tp_apply(T, &tp_op_pad, &a, x);
}

/* ---- several axes ---- */

static tp_code pad_axis(tp_infer *q, int axis)
{
    const tp_pad_cfg *cfg = q->attr;
    const int64_t before = cfg->before[axis], after = cfg->after[axis];
    const int64_t longest = before > after ? before : after, n = q->x[0].dim[axis];
    if (before < 0 || after < 0)
        return tp_fail(q, TP_E_VALUE, "cannot pad axis %d by %lld and %lld; cut with tp_slice",
                       axis, (long long)before, (long long)after);
    if (cfg->mode == TP_PAD_REFLECT && longest > 0 && longest >= n)
        return tp_fail(q, TP_E_VALUE,
                       "cannot reflect %lld elements along axis %d of size %lld: pad by less than "
                       "the size",
                       (long long)longest, axis, (long long)n);
    if (cfg->mode == TP_PAD_CIRCULAR && longest > n)
        return tp_fail(q, TP_E_VALUE,
                       "cannot continue axis %d of size %lld by %lld elements: pad by at most the "
                       "size",
                       axis, (long long)n, (long long)longest);
    if (cfg->mode == TP_PAD_REPLICATE && longest > 0 && n == 0)
        return tp_fail(q, TP_E_VALUE, "axis %d is empty: there is nothing to replicate", axis);
    return lengthen(q, axis, before, after);
}

static tp_code pad_nd_shape(tp_infer *q)
{
    const tp_pad_cfg *cfg = q->attr;
    const tp_view *x = &q->x[0];
    if (cfg->mode < TP_PAD_CONSTANT || cfg->mode > TP_PAD_CIRCULAR)
        return tp_fail(q, TP_E_VALUE, "unknown mode %d", (int)cfg->mode);
    if (cfg->mode == TP_PAD_CONSTANT && tp__expect_held(q, x->dtype, cfg->value) != TP_OK)
        return TP_E_VALUE;
    for (int i = x->ndim; i < TP_MAX_DIMS; i++)
        if (cfg->before[i] || cfg->after[i])
            return tp_fail(q, TP_E_SHAPE, "axis %d cannot be padded: x has %d axes", i, x->ndim);
    q->y[0] = *x;
    for (int i = 0; i < x->ndim; i++) {
        const tp_code code = pad_axis(q, i);
        if (code != TP_OK) return code;
    }
    return TP_OK;
}

#define CFG(...) .attr = TP_ATTR(tp_pad_cfg, __VA_ARGS__)
static const tp_gradcase pad_nd_cases[] = {
    { "constant, two axes", .in = { TP_DIMS(2, 3, 4) },
      CFG({ 1, 0, 2 }, { 0, 0, 1 }, TP_PAD_CONSTANT, 1.5) },
    { "constant, an image", .in = { TP_DIMS(1, 3, 4, 8) },
      CFG({ 0, 1, 2 }, { 0, 2, 1 }, TP_PAD_CONSTANT, -1.0) },
    { "reflect, vector", .in = { TP_DIMS(5) }, CFG({ 4 }, { 2 }, TP_PAD_REFLECT, 0) },
    { "reflect, an image", .in = { TP_DIMS(2, 3, 4, 3) },
      CFG({ 0, 1, 2 }, { 0, 2, 3 }, TP_PAD_REFLECT, 0) },
    { "reflect, packs", .in = { TP_DIMS(2, 4, 16) }, CFG({ 0, 3 }, { 0, 1 }, TP_PAD_REFLECT, 0) },
    { "reflect, several packs", .in = { TP_DIMS(3, 37) },
      CFG({ 0, 13 }, { 0, 22 }, TP_PAD_REFLECT, 0) },
    { "replicate, vector", .in = { TP_DIMS(1) }, CFG({ 4 }, { 9 }, TP_PAD_REPLICATE, 0) },
    { "replicate, an image", .in = { TP_DIMS(2, 3, 2, 3) },
      CFG({ 0, 1, 2 }, { 0, 3, 0 }, TP_PAD_REPLICATE, 0) },
    { "replicate, three axes", .in = { TP_DIMS(2, 3, 5) },
      CFG({ 1, 2, 3 }, { 3, 2, 1 }, TP_PAD_REPLICATE, 0) },
    { "circular, an image", .in = { TP_DIMS(1, 3, 4, 4) },
      CFG({ 0, 3, 1 }, { 0, 2, 4 }, TP_PAD_CIRCULAR, 0) },
    { "circular, axes apart", .in = { TP_DIMS(3, 2, 19) },
      CFG({ 2, 0, 17 }, { 1, 0, 5 }, TP_PAD_CIRCULAR, 0) },
    { "by nothing", .in = { TP_DIMS(3, 5) }, CFG({ 0 }, { 0 }, TP_PAD_REFLECT, 0) },
    { "constant around nothing", .in = { TP_DIMS(3, 0) },
      CFG({ 1, 2 }, { 0, 1 }, TP_PAD_CONSTANT, 7) },
    { "empty", .in = { TP_DIMS(0, 3) }, CFG({ 0, 2 }, { 0, 1 }, TP_PAD_REFLECT, 0) },
    { 0 },
};

const tp_op tp_op_pad_nd = {
    .name = "pad_nd",
    .doc = "several axes padded: constant, reflected, replicated or circular",
    .nx = 1,
    .ny = 1,
    .takes = { TP_ANY },
    .attr_size = sizeof(tp_pad_cfg),
    .shape = pad_nd_shape,
    .forward = TP_KERNELS(pad_nd_fwd),
    .backward = TP_KERNELS(pad_nd_bwd),
    .cases = pad_nd_cases,
};

tp_tensor tp_pad_nd(tp_tape *T, tp_tensor x, tp_pad_cfg cfg)
{
    return tp_apply(T, &tp_op_pad_nd, &cfg, x);
}
