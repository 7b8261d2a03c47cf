/* pad.c - pads one axis with a constant value. */
#include "autograd/ops/op_inner.h"
#include "tensor/geometry/shape_ops.h"

TP_KERNEL(pad_fwd);
TP_KERNEL(pad_bwd);

/* Can an integer dtype hold the value? */
static bool holds(tp_dtype dt, double value)
{
    if (tp_is_float(dt)) return true;
    const double least = dt == TP_U8 ? 0.0 : dt == TP_I32 ? INT32_MIN : -0x1p53;
    const double most = dt == TP_U8 ? 255.0 : dt == TP_I32 ? INT32_MAX : 0x1p53;
    return value >= least && value <= most && value == (double)(int64_t)value;
}

static tp_code pad_shape(tp_infer *q)
{
    const tp_pad_attr *a = q->attr;
    const tp_view *x = &q->x[0];
    const int axis = tp__check_axis(q, x->ndim, a->axis);
    int64_t size;
    if (axis < 0) return TP_E_SHAPE;
    if (a->before < 0 || a->after < 0)
        return tp_fail(q, TP_E_VALUE, "cannot pad by %lld and %lld", (long long)a->before,
                       (long long)a->after);
    if (!holds(x->dtype, a->value))
        return tp_fail(q, TP_E_VALUE, "%s cannot hold the value %g", tp_dtype_name(x->dtype),
                       a->value);
    if (__builtin_add_overflow(a->before, a->after, &size) ||
        __builtin_add_overflow(size, x->dim[axis], &size))
        return tp_fail(q, TP_E_SHAPE, "the padded axis is too long");
    q->y[0] = *x;
    q->y[0].dim[axis] = size;
    return TP_OK;
}

static const tp_gradcase pad_cases[] = {
    { "leading axis", .in = { { 2, { 2, 3 } } }, .attr = &(tp_pad_attr){ 0, 2, 1, 0.0 } },
    { "middle axis", .in = { { 3, { 2, 3, 2 } } }, .attr = &(tp_pad_attr){ 1, 0, 2, 1.5 } },
    { "last axis", .in = { { 2, { 3, 5 } } }, .attr = &(tp_pad_attr){ -1, 3, 0, -1.0 } },
    { "by nothing", .in = { { 2, { 3, 5 } } }, .attr = &(tp_pad_attr){ 1, 0, 0, 7.0 } },
    { "nothing", .in = { { 2, { 3, 0 } } }, .attr = &(tp_pad_attr){ 1, 1, 1, 7.0 } },
    { "by whole packs", .in = { { 2, { 3, 16 } } }, .attr = &(tp_pad_attr){ 1, 8, 16, 1.5 } },
    { "by pieces of packs", .in = { { 2, { 3, 19 } } }, .attr = &(tp_pad_attr){ 1, 5, 9, 1.5 } },
    { 0 },
};

const tp_op tp_op_pad = {
    .name = "pad",
    .doc = "an axis padded with a constant, `before` and `after` elements",
    .nx = 1,
    .ny = 1,
    .attr_size = sizeof(tp_pad_attr),
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
