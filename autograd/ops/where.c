/* where.c - selects elements from two tensors by a mask. */
#include "autograd/ops/op_inner.h"

TP_KERNEL(where_fwd);
TP_KERNEL(where_bwd);

static tp_code where_shape(tp_infer *q)
{
    const tp_view *mask = &q->x[0], *a = &q->x[1], *b = &q->x[2];
    if (mask->dtype != TP_U8)
        return tp_fail(q, TP_E_DTYPE, "the mask must be u8, not %s", tp_dtype_name(mask->dtype));
    if (!tp_is_float(a->dtype) || a->dtype != b->dtype)
        return tp_fail(q, TP_E_DTYPE, "a and b must be of one floating dtype");
    if (!tp__same_shape(mask, a) || !tp__same_shape(a, b))
        return tp_fail(q, TP_E_SHAPE, "mask, a and b must have one shape");
    q->y[0] = *a;
    return TP_OK;
}

static const tp_gradcase where_cases[] = {
    { "vector", .in = { { 1, { 7 } }, { 1, { 7 } }, { 1, { 7 } } }, .masks = 1 },
    { "odd sizes", .in = { { 2, { 5, 9 } }, { 2, { 5, 9 } }, { 2, { 5, 9 } } }, .masks = 1 },
    { "empty", .in = { { 2, { 5, 0 } }, { 2, { 5, 0 } }, { 2, { 5, 0 } } }, .masks = 1 },
    { "whole packs", .in = { { 1, { 16 } }, { 1, { 16 } }, { 1, { 16 } } }, .masks = 1 },
    { "packs and a tail", .in = { { 1, { 43 } }, { 1, { 43 } }, { 1, { 43 } } }, .masks = 1 },
    { 0 },
};

const tp_op tp_op_where = {
    .name = "where",
    .doc = "mask ? a : b",
    .nx = 3,
    .ny = 1,
    .saves = TP_SAVE_X(0),
    .shape = where_shape,
    .forward = TP_KERNELS(where_fwd),
    .backward = TP_KERNELS(where_bwd),
    .cases = where_cases,
};

tp_tensor tp_where(tp_tape *T, tp_tensor mask, tp_tensor a, tp_tensor b)
{
    return tp_apply(T, &tp_op_where, NULL, mask, a, b);
}
