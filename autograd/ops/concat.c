/* concat.c - concat and stack join tensors along an axis; split, split_sizes and chunk cut one into
 * parts.
 *
 * Stacking concatenates along a new axis of size 1, so both ops share kernels. Splitting uses them
 * in the opposite direction. */
#include "autograd/nodes.h"
#include "autograd/ops/op_inner.h"
#include "autograd/tape.h"
#include "tensor/geometry/shape_ops.h"

TP_KERNEL(concat_fwd);
TP_KERNEL(concat_bwd);
TP_KERNEL(split_fwd);
TP_KERNEL(split_bwd);

static tp_code concat_shape(tp_infer *q)
{
    const tp_axis_attr *a = q->attr;
    const tp_view *x = q->x;
    if (q->nx < 1) return tp_fail(q, TP_E_VALUE, "at least one tensor is needed");
    const int axis = tp__check_axis(q, x[0].ndim, a->axis);
    if (axis < 0) return TP_E_SHAPE;
    q->y[0] = x[0];
    for (int i = 1; i < q->nx; i++) {
        if (x[i].ndim != x[0].ndim)
            return tp_fail(q, TP_E_SHAPE, "inputs 0 and %d have %d and %d axes", i, x[0].ndim,
                           x[i].ndim);
        for (int k = 0; k < x[0].ndim; k++)
            if (k != axis && x[i].dim[k] != x[0].dim[k])
                return tp_fail(q, TP_E_SHAPE,
                               "sizes of axis %d of inputs 0 "
                               "and %d are %lld and %lld",
                               k, i, (long long)x[0].dim[k], (long long)x[i].dim[k]);
        if (__builtin_add_overflow(q->y[0].dim[axis], x[i].dim[axis], &q->y[0].dim[axis]))
            return tp_fail(q, TP_E_SHAPE, "the joined axis is too long");
    }
    return TP_OK;
}

static tp_code stack_shape(tp_infer *q)
{
    const tp_axis_attr *a = q->attr;
    const tp_view *x = q->x;
    if (q->nx < 1) return tp_fail(q, TP_E_VALUE, "at least one tensor is needed");
    if (x[0].ndim == TP_MAX_DIMS)
        return tp_fail(q, TP_E_SHAPE, "the result would have %d axes", TP_MAX_DIMS + 1);
    const int axis = tp__check_axis(q, x[0].ndim + 1, a->axis);
    if (axis < 0) return TP_E_SHAPE;
    for (int i = 1; i < q->nx; i++)
        if (!tp__same_shape(&x[i], &x[0]))
            return tp_fail(q, TP_E_SHAPE, "inputs 0 and %d have different shapes", i);
    q->y[0] = (tp_view){ .dtype = x[0].dtype, .ndim = x[0].ndim + 1 };
    for (int k = 0; k < q->y[0].ndim; k++)
        q->y[0].dim[k] = k < axis ? x[0].dim[k] : k == axis ? q->nx : x[0].dim[k - 1];
    return TP_OK;
}

static tp_code split_shape(tp_infer *q)
{
    const tp_axis_attr *a = q->attr;
    const tp_view *x = &q->x[0];
    const int axis = tp__check_axis(q, x->ndim, a->axis);
    if (axis < 0) return TP_E_SHAPE;
    if (x->dim[axis] % q->ny != 0)
        return tp_fail(q, TP_E_SHAPE, "an axis of size %lld does not divide into %d equal parts",
                       (long long)x->dim[axis], q->ny);
    for (int i = 0; i < q->ny; i++) {
        q->y[i] = *x;
        q->y[i].dim[axis] = x->dim[axis] / q->ny;
    }
    return TP_OK;
}

static tp_code split_sizes_shape(tp_infer *q)
{
    const tp_sizes_attr *a = q->attr;
    const tp_view *x = &q->x[0];
    const int axis = tp__check_axis(q, x->ndim, a->along.axis);
    if (axis < 0) return TP_E_SHAPE;
    if (!a->sizes) return tp_fail(q, TP_E_VALUE, "NULL was given in place of sizes");
    int64_t left = x->dim[axis];
    for (int i = 0; i < q->ny; i++) {
        if (a->sizes[i] < 0)
            return tp_fail(q, TP_E_VALUE, "size %d is %lld", i, (long long)a->sizes[i]);
        if (a->sizes[i] > left)
            return tp_fail(q, TP_E_SHAPE, "the first %d sizes exceed the axis of size %lld", i + 1,
                           (long long)x->dim[axis]);
        left -= a->sizes[i];
        q->y[i] = *x;
        q->y[i].dim[axis] = a->sizes[i];
    }
    if (left > 0)
        return tp_fail(q, TP_E_SHAPE, "the sizes leave %lld of an axis of size %lld",
                       (long long)left, (long long)x->dim[axis]);
    return TP_OK;
}

static int64_t ceil_div(int64_t a, int64_t b)
{
    return a / b + (a % b > 0);
}

/* The part count is tp_chunk's. */
static tp_code chunk_shape(tp_infer *q)
{
    const tp_axis_attr *a = q->attr;
    const tp_view *x = &q->x[0];
    const int axis = tp__check_axis(q, x->ndim, a->axis);
    if (axis < 0) return TP_E_SHAPE;
    const int64_t dim = x->dim[axis], size = ceil_div(dim, q->ny);
    for (int i = 0; i < q->ny; i++) {
        q->y[i] = *x;
        q->y[i].dim[axis] = i < q->ny - 1 ? size : dim - size * i;
    }
    return TP_OK;
}

static const tp_gradcase concat_cases[] = {
    { "leading axis", .in = { TP_DIMS(2, 3), TP_DIMS(1, 3), TP_DIMS(4, 3) },
      .attr = &(tp_axis_attr){ 0 } },
    { "middle axis", .in = { TP_DIMS(2, 1, 3), TP_DIMS(2, 4, 3) }, .attr = &(tp_axis_attr){ 1 } },
    { "last axis, one part empty", .in = { TP_DIMS(3, 2), TP_DIMS(3, 0), TP_DIMS(3, 5) },
      .attr = &(tp_axis_attr){ -1 } },
    { "one tensor", .in = { TP_DIMS(3, 2) }, .attr = &(tp_axis_attr){ 1 } },
    { "whole packs", .in = { TP_DIMS(3, 8), TP_DIMS(3, 24) }, .attr = &(tp_axis_attr){ 1 } },
    { "pieces of packs", .in = { TP_DIMS(3, 11), TP_DIMS(3, 1), TP_DIMS(3, 21) },
      .attr = &(tp_axis_attr){ 1 } },
    { "forty tensors", .in = { TP_DIMS(2, 3), TP_DIMS(2, 0), TP_DIMS(2, 1) }, .nx = 40,
      .attr = &(tp_axis_attr){ 1 } },
    { "forty rows", .in = { TP_DIMS(1, 2) }, .nx = 40, .attr = &(tp_axis_attr){ 0 } },
    { 0 },
};

static const tp_gradcase stack_cases[] = {
    { "new leading axis", .in = { TP_DIMS(2, 3), TP_DIMS(2, 3), TP_DIMS(2, 3) },
      .attr = &(tp_axis_attr){ 0 } },
    { "new last axis", .in = { TP_DIMS(2, 3), TP_DIMS(2, 3) }, .attr = &(tp_axis_attr){ -1 } },
    { "between", .in = { TP_DIMS(4, 3), TP_DIMS(4, 3) }, .attr = &(tp_axis_attr){ 1 } },
    { "pieces of packs", .in = { TP_DIMS(2, 13), TP_DIMS(2, 13) }, .attr = &(tp_axis_attr){ 1 } },
    { "seventeen tensors", .in = { TP_DIMS(2, 2) }, .nx = 17, .attr = &(tp_axis_attr){ -1 } },
    { 0 },
};

static const tp_gradcase split_cases[] = {
    { "leading axis", .in = { TP_DIMS(6, 2) }, .attr = &(tp_axis_attr){ 0 }, .ny = 3 },
    { "last axis", .in = { TP_DIMS(2, 3, 4) }, .attr = &(tp_axis_attr){ -1 }, .ny = 2 },
    { "one part", .in = { TP_DIMS(3, 2) }, .attr = &(tp_axis_attr){ 1 }, .ny = 1 },
    { "whole packs", .in = { TP_DIMS(3, 16) }, .attr = &(tp_axis_attr){ 1 }, .ny = 2 },
    { "pieces of packs", .in = { TP_DIMS(3, 33) }, .attr = &(tp_axis_attr){ 1 }, .ny = 3 },
    { "seventeen parts", .in = { TP_DIMS(2, 34) }, .attr = &(tp_axis_attr){ 1 }, .ny = 17 },
    { 0 },
};

#define SIZES(axis, ...)                                                                           \
    .attr = TP_ATTR(tp_sizes_attr, { axis }, (const int64_t[])TP_LIST(__VA_ARGS__))
static const tp_gradcase split_sizes_cases[] = {
    { "leading axis", .in = { TP_DIMS(6, 2) }, SIZES(0, 1, 3, 2), .ny = 3 },
    { "last axis, one part empty", .in = { TP_DIMS(2, 3, 5) }, SIZES(-1, 4, 0, 1), .ny = 3 },
    { "one part", .in = { TP_DIMS(3, 2) }, SIZES(1, 2), .ny = 1 },
    { "pieces of packs", .in = { TP_DIMS(3, 33) }, SIZES(1, 7, 25, 1), .ny = 3 },
    { "nothing", .in = { TP_DIMS(3, 0) }, SIZES(1, 0, 0), .ny = 2 },
    { 0 },
};

static const tp_gradcase chunk_cases[] = {
    { "the last one smaller", .in = { TP_DIMS(7, 2) }, .attr = &(tp_axis_attr){ 0 }, .ny = 3 },
    { "equal parts", .in = { TP_DIMS(2, 3, 4) }, .attr = &(tp_axis_attr){ -1 }, .ny = 2 },
    { "pieces of packs", .in = { TP_DIMS(3, 35) }, .attr = &(tp_axis_attr){ 1 }, .ny = 3 },
    { 0 },
};

const tp_op tp_op_concat = {
    .name = "concat",
    .doc = "tensors joined along an axis",
    .nx = -1,
    .ny = 1,
    .takes = { TP_ANY },
    .attr_size = sizeof(tp_axis_attr),
    .flags = TP_TAKES_BF16,
    .shape = concat_shape,
    .forward = TP_KERNELS(concat_fwd),
    .backward = TP_KERNELS(concat_bwd),
    .cases = concat_cases,
};

const tp_op tp_op_stack = {
    .name = "stack",
    .doc = "tensors of one shape joined along a new axis",
    .nx = -1,
    .ny = 1,
    .takes = { TP_ANY },
    .attr_size = sizeof(tp_axis_attr),
    .flags = TP_TAKES_BF16,
    .shape = stack_shape,
    .forward = TP_KERNELS(concat_fwd),
    .backward = TP_KERNELS(concat_bwd),
    .cases = stack_cases,
};

const tp_op tp_op_split = {
    .name = "split",
    .doc = "equal parts along an axis",
    .nx = 1,
    .ny = -1,
    .takes = { TP_ANY },
    .attr_size = sizeof(tp_axis_attr),
    .flags = TP_TAKES_BF16,
    .shape = split_shape,
    .forward = TP_KERNELS(split_fwd),
    .backward = TP_KERNELS(split_bwd),
    .cases = split_cases,
};

const tp_op tp_op_split_sizes = {
    .name = "split_sizes",
    .doc = "parts of given sizes along an axis",
    .nx = 1,
    .ny = -1,
    .takes = { TP_ANY },
    .attr_size = sizeof(tp_sizes_attr),
    .flags = TP_TAKES_BF16,
    .shape = split_sizes_shape,
    .forward = TP_KERNELS(split_fwd),
    .backward = TP_KERNELS(split_bwd),
    .cases = split_sizes_cases,
};

const tp_op tp_op_chunk = {
    .name = "chunk",
    .doc = "parts of one size along an axis; the last may be smaller",
    .nx = 1,
    .ny = -1,
    .takes = { TP_ANY },
    .attr_size = sizeof(tp_axis_attr),
    .flags = TP_TAKES_BF16,
    .shape = chunk_shape,
    .forward = TP_KERNELS(split_fwd),
    .backward = TP_KERNELS(split_bwd),
    .cases = chunk_cases,
};

tp_tensor tp_concat_n(tp_tape *T, int axis, int n, const tp_tensor *x)
{
    return tp_apply_n(T, &tp_op_concat, &(tp_axis_attr){ axis }, n, x, 1, NULL);
}

tp_tensor tp_stack_n(tp_tape *T, int axis, int n, const tp_tensor *x)
{
    return tp_apply_n(T, &tp_op_stack, &(tp_axis_attr){ axis }, n, x, 1, NULL);
}

/* Fails T unless y has room for the parts. */
static bool wants_parts(tp_tape *T, const char *op, int n, const tp_tensor *y)
{
    if (n > 0 && !y && tp_ok(T))
        tp__fail(T, TP_E_VALUE, "%s: NULL was given in place of room for %d results", op, n);
    return tp_ok(T) || y;
}

void tp_split(tp_tape *T, tp_tensor x, int axis, int n, tp_tensor *y)
{
    if (!wants_parts(T, "split", n, y)) return;
    tp_apply_n(T, &tp_op_split, &(tp_axis_attr){ axis }, 1, &x, n, y);
}

void tp_split_sizes(tp_tape *T, tp_tensor x, int axis, int n, const int64_t *sizes, tp_tensor *y)
{
    if (!wants_parts(T, "split_sizes", n, y)) return;
    tp_apply_n(T, &tp_op_split_sizes, &(tp_sizes_attr){ { axis }, sizes }, 1, &x, n, y);
}

int tp_chunk(tp_tape *T, tp_tensor x, int axis, int n, tp_tensor *y)
{
    const int64_t dim = tp_dim(x, axis);
    const int parts = n > 1 && dim > 0 ? (int)ceil_div(dim, ceil_div(dim, n)) : n;
    if (!wants_parts(T, "chunk", parts, y)) return 0;
    tp_apply_n(T, &tp_op_chunk, &(tp_axis_attr){ axis }, 1, &x, parts, y);
    for (int i = parts; i < n; i++) y[i] = tp_ok(T) ? TP_NONE : TP_FAILED;
    return tp_ok(T) ? parts : 0;
}
