/* reduce.c - sum, mean, max, argmax, logsumexp over one axis, which is removed, or over all. */
#include "autograd/ops/op_inner.h"
#include "tensor/geometry/broadcast.h"
#include "tensor/geometry/shape_ops.h"

TP_KERNEL(sum_fwd);
TP_KERNEL(sum_bwd);
TP_KERNEL(mean_fwd);
TP_KERNEL(mean_bwd);
TP_KERNEL(max_fwd);
TP_KERNEL(max_bwd);
TP_KERNEL(argmax_fwd);
TP_KERNEL(logsumexp_fwd);
TP_KERNEL(logsumexp_bwd);

/* y[0] has the shape of x without the axis. *terms: the number of elements reduced to one. */
static tp_code reduce_shape(tp_infer *q, tp_dtype dtype, int64_t *terms)
{
    const tp_axis_attr *a = q->attr;
    const tp_view *x = &q->x[0];
    if (!tp_is_float(x->dtype)) return tp_fail(q, TP_E_DTYPE, "input must be floating point");
    q->y[0] = (tp_view){ .dtype = dtype };
    *terms = x->numel;
    if (a->axis == TP_ALL) return TP_OK;
    const int axis = tp__check_axis(q, x->ndim, a->axis);
    if (axis < 0) return TP_E_SHAPE;
    *terms = x->dim[axis];
    for (int i = 0; i < x->ndim; i++)
        if (i != axis) q->y[0].dim[q->y[0].ndim++] = x->dim[i];
    return TP_OK;
}

static tp_code sum_shape(tp_infer *q)
{
    int64_t terms;
    return reduce_shape(q, tp__sum_dtype(q->x[0].dtype), &terms);
}

static tp_code extreme_shape(tp_infer *q, tp_dtype dtype)
{
    int64_t terms = 0;
    const tp_code code = reduce_shape(q, dtype, &terms);
    if (code == TP_OK && terms == 0)
        return tp_fail(q, TP_E_SHAPE, "the axis has size 0, so there is no maximum");
    return code;
}

static tp_code argmax_shape(tp_infer *q)
{
    return extreme_shape(q, TP_I64);
}

static tp_code max_shape(tp_infer *q)
{
    const tp_code code = extreme_shape(q, q->x[0].dtype);
    q->y[1] = q->y[0];
    q->y[1].dtype = TP_I64;
    return code;
}

/* Forward sums x into y. */
static size_t sum_work(const tp_call *c)
{
    const tp_view b = tp__reduced(&c->x[0], ((const tp_axis_attr *)c->attr)->axis);
    return tp_is_backward(c) ? 0 : tp__fold_work(&c->x[0], &b, c->x[0].dtype);
}

static const tp_gradcase reduce_cases[] = {
    { "leading axis", .in = { { 3, { 5, 2, 3 } } }, .attr = &(tp_axis_attr){ 0 } },
    { "middle axis", .in = { { 3, { 2, 5, 3 } } }, .attr = &(tp_axis_attr){ 1 } },
    { "last axis", .in = { { 2, { 3, 7 } } }, .attr = &(tp_axis_attr){ -1 } },
    { "many columns", .in = { { 2, { 3, 259 } } }, .attr = &(tp_axis_attr){ 0 } },
    { "axis of one", .in = { { 2, { 3, 1 } } }, .attr = &(tp_axis_attr){ 1 } },
    { "all", .in = { { 3, { 2, 3, 5 } } }, .attr = &(tp_axis_attr){ TP_ALL } },
    { "no rows", .in = { { 2, { 0, 5 } } }, .attr = &(tp_axis_attr){ 1 } },
    { 0 },
};

/* clang-format off */
#define REDUCE(f, text)                                                                            \
    .name = #f, .doc = text, .nx = 1, .ny = 1, .attr_size = sizeof(tp_axis_attr),                  \
    .shape = sum_shape, .forward = TP_KERNELS(f##_fwd), .backward = TP_KERNELS(f##_bwd),           \
    .cases = reduce_cases
/* clang-format on */

const tp_op tp_op_sum = { REDUCE(sum, "sum over an axis, or over all"),
                          .work = TP_SAME_WORK(sum_work) };
const tp_op tp_op_mean = { REDUCE(mean, "mean over an axis, or over all"),
                           .work = TP_SAME_WORK(sum_work) };
const tp_op tp_op_logsumexp = {
    REDUCE(logsumexp, "log of the sum of e^x over an axis, or over all"),
    .saves = TP_SAVE_X(0) | TP_SAVE_Y(0),
};

const tp_op tp_op_max = {
    .name = "max",
    .doc = "maximum over an axis, or over all; the first maximum gets the gradient",
    .nx = 1,
    .ny = 2, /* values, and their indices for backward */
    .attr_size = sizeof(tp_axis_attr),
    .saves = TP_SAVE_Y(1),
    .shape = max_shape,
    .forward = TP_KERNELS(max_fwd),
    .backward = TP_KERNELS(max_bwd),
    .cases = reduce_cases,
};

const tp_op tp_op_argmax = {
    .name = "argmax",
    .doc = "index of the first maximum over an axis, or over all",
    .nx = 1,
    .ny = 1,
    .attr_size = sizeof(tp_axis_attr),
    .flags = TP_NOT_DIFFERENTIABLE,
    .shape = argmax_shape,
    .forward = TP_KERNELS(argmax_fwd),
    .cases = reduce_cases,
};

tp_tensor tp_sum(tp_tape *T, tp_tensor x, int axis)
{
    return tp_apply(T, &tp_op_sum, &(tp_axis_attr){ axis }, x);
}

tp_tensor tp_mean(tp_tape *T, tp_tensor x, int axis)
{
    return tp_apply(T, &tp_op_mean, &(tp_axis_attr){ axis }, x);
}

tp_tensor tp_max(tp_tape *T, tp_tensor x, int axis)
{
    return tp_apply(T, &tp_op_max, &(tp_axis_attr){ axis }, x);
}

tp_tensor tp_argmax(tp_tape *T, tp_tensor x, int axis)
{
    return tp_apply(T, &tp_op_argmax, &(tp_axis_attr){ axis }, x);
}

tp_tensor tp_logsumexp(tp_tape *T, tp_tensor x, int axis)
{
    return tp_apply(T, &tp_op_logsumexp, &(tp_axis_attr){ axis }, x);
}
