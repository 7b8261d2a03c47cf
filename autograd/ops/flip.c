/* flip.c - reverses the order of elements along some axes, as backward does. */
#include "autograd/ops/op_inner.h"
#include "tensor/geometry/reduced.h"

TP_KERNEL(flip_fwd);
TP_KERNEL(flip_bwd);

static tp_code flip_shape(tp_infer *q)
{
    unsigned set;
    bool keep;
    char why[200];
    if (!tp__axes(*(const int *)q->attr, q->x[0].ndim, &set, &keep, why, sizeof why))
        return tp_fail(q, TP_E_SHAPE, "%s", why);
    q->y[0] = q->x[0];
    return TP_OK;
}

static const tp_gradcase flip_cases[] = {
    { "vector", .in = { TP_DIMS(7) }, .attr = &(int){ 0 } },
    { "leading axis", .in = { TP_DIMS(4, 2, 3) }, .attr = &(int){ 0 } },
    { "middle axis", .in = { TP_DIMS(2, 5, 3) }, .attr = &(int){ -2 } },
    { "last axis, several packs", .in = { TP_DIMS(3, 37) }, .attr = &(int){ -1 } },
    { "rows of whole packs", .in = { TP_DIMS(2, 3, 16) }, .attr = &(int){ 1 } },
    { "neighbours", .in = { TP_DIMS(2, 3, 4) }, .attr = &(int){ TP_AXES(1, 2) } },
    { "axes apart", .in = { TP_DIMS(3, 2, 3, 2) }, .attr = &(int){ TP_AXES(0, 2) } },
    { "all", .in = { TP_DIMS(2, 3, 4) }, .attr = &(int){ TP_ALL } },
    { "an axis of 1", .in = { TP_DIMS(2, 1, 4) }, .attr = &(int){ 1 } },
    { "empty", .in = { TP_DIMS(3, 0) }, .attr = &(int){ 0 } },
    { 0 },
};

const tp_op tp_op_flip = {
    .name = "flip",
    .doc = "elements in reverse order along some axes",
    .nx = 1,
    .takes = { TP_ANY },
    .ny = 1,
    .attr_size = sizeof(int),
    .shape = flip_shape,
    .forward = TP_KERNELS(flip_fwd),
    .backward = TP_KERNELS(flip_bwd),
    .cases = flip_cases,
};

tp_tensor tp_flip(tp_tape *T, tp_tensor x, int axes)
{
    return tp_apply(T, &tp_op_flip, &axes, x);
}
