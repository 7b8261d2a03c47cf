/* roll.c - cyclic shift along one axis: y[(i + shift) mod n] = x[i]. */
#include "autograd/ops/op_inner.h"
#include "tensor/geometry/shape_ops.h"

TP_KERNEL(roll_fwd);
TP_KERNEL(roll_bwd);

static tp_code roll_shape(tp_infer *q)
{
    const tp_roll_attr *a = q->attr;
    if (tp__check_axis(q, q->x[0].ndim, a->axis) < 0) return TP_E_SHAPE;
    q->y[0] = q->x[0];
    return TP_OK;
}

static const tp_gradcase roll_cases[] = {
    { "forward", .in = { TP_DIMS(3, 5) }, .attr = &(tp_roll_attr){ 1, 2 } },
    { "backward", .in = { TP_DIMS(2, 5, 3) }, .attr = &(tp_roll_attr){ -2, -1 } },
    { "more than once around", .in = { TP_DIMS(4, 3) }, .attr = &(tp_roll_attr){ 0, 11 } },
    { "by nothing", .in = { TP_DIMS(4, 3) }, .attr = &(tp_roll_attr){ 0, -4 } },
    { "empty", .in = { TP_DIMS(4, 0) }, .attr = &(tp_roll_attr){ 1, 1 } },
    { "by whole packs", .in = { TP_DIMS(3, 24) }, .attr = &(tp_roll_attr){ 1, 8 } },
    { "by pieces of packs", .in = { TP_DIMS(3, 31) }, .attr = &(tp_roll_attr){ 1, -12 } },
    { 0 },
};

const tp_op tp_op_roll = {
    .name = "roll",
    .doc = "cyclic shift along an axis: y[(i + shift) mod n] = x[i]",
    .nx = 1,
    .takes = { TP_ANY },
    .ny = 1,
    .attr_size = sizeof(tp_roll_attr),
    .flags = TP_TAKES_BF16,
    .shape = roll_shape,
    .forward = TP_KERNELS(roll_fwd),
    .backward = TP_KERNELS(roll_bwd),
    .cases = roll_cases,
};

tp_tensor tp_roll(tp_tape *T, tp_tensor x, int axis, int64_t shift)
{
    const tp_roll_attr a = { axis, shift };
    return tp_apply(T, &tp_op_roll, &a, x);
}
