/* slice.c - a range of one axis: a view if its elements are contiguous, else a copy. */
#include "autograd/ops/op_inner.h"
#include "tensor/geometry/shape_ops.h"

TP_KERNEL(slice_fwd);
TP_KERNEL(slice_bwd);

static tp_code slice_shape(tp_infer *q)
{
    const tp_slice_attr *a = q->attr;
    const tp_view *x = &q->x[0];
    const int axis = tp__check_axis(q, x->ndim, a->axis);
    if (axis < 0) return TP_E_SHAPE;
    if (a->start < 0 || a->count < 0 || a->start > x->dim[axis] ||
        a->count > x->dim[axis] - a->start)
        return tp_fail(q, TP_E_VALUE, "%lld indices from %lld on do not fit an axis of size %lld",
                       (long long)a->count, (long long)a->start, (long long)x->dim[axis]);
    int64_t outer, dim, inner;
    tp__axis_split(x, axis, &outer, &dim, &inner);
    if (outer == 1 || a->count == dim) q->view_at = a->start * inner;
    q->y[0] = *x;
    q->y[0].dim[axis] = a->count;
    return TP_OK;
}

static const tp_gradcase slice_cases[] = {
    { "leading axis, a view", .in = { TP_DIMS(5, 2, 3) }, .attr = &(tp_slice_attr){ 0, 1, 3 } },
    { "after an axis of 1", .in = { TP_DIMS(1, 4, 3) }, .attr = &(tp_slice_attr){ 1, 2, 2 } },
    { "middle axis", .in = { TP_DIMS(2, 5, 3) }, .attr = &(tp_slice_attr){ 1, 1, 3 } },
    { "last axis", .in = { TP_DIMS(3, 7) }, .attr = &(tp_slice_attr){ -1, 4, 3 } },
    { "first indices", .in = { TP_DIMS(3, 7) }, .attr = &(tp_slice_attr){ 1, 0, 2 } },
    { "all of an axis", .in = { TP_DIMS(3, 7) }, .attr = &(tp_slice_attr){ 1, 0, 7 } },
    { "nothing", .in = { TP_DIMS(3, 7) }, .attr = &(tp_slice_attr){ 1, 7, 0 } },
    { "whole packs", .in = { TP_DIMS(3, 32) }, .attr = &(tp_slice_attr){ 1, 8, 16 } },
    { "half packs", .in = { TP_DIMS(3, 22) }, .attr = &(tp_slice_attr){ 1, 2, 18 } },
    { "pieces of packs", .in = { TP_DIMS(3, 37) }, .attr = &(tp_slice_attr){ 1, 5, 19 } },
    { 0 },
};

const tp_op tp_op_slice = {
    .name = "slice",
    .doc = "a range of an axis; a view if it is the whole axis or all axes before it have size 1",
    .nx = 1,
    .ny = 1,
    .takes = { TP_ANY },
    .attr_size = sizeof(tp_slice_attr),
    .flags = TP_ACCUMULATES | TP_TAKES_BF16,
    .shape = slice_shape,
    .forward = TP_KERNELS(slice_fwd),
    .backward = TP_KERNELS(slice_bwd),
    .cases = slice_cases,
};

tp_tensor tp_slice(tp_tape *T, tp_tensor x, int axis, int64_t start, int64_t count)
{
    const tp_slice_attr a = { axis, start, count };
    return tp_apply(T, &tp_op_slice, &a, x);
}
