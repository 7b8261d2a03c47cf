/* binary.c - add, sub, mul, div: two operands, the second broadcasts into the first. */
#include "autograd/ops/op_inner.h"
#include "tensor/geometry/broadcast.h"

TP_KERNEL(add_fwd);
TP_KERNEL(sub_fwd);
TP_KERNEL(mul_fwd);
TP_KERNEL(div_fwd);
TP_KERNEL(add_bwd);
TP_KERNEL(sub_bwd);
TP_KERNEL(mul_bwd);
TP_KERNEL(div_bwd);

static tp_code binary_shape(tp_infer *q)
{
    const tp_view *a = &q->x[0], *b = &q->x[1];
    if (!tp_is_float(a->dtype) || !tp_is_float(b->dtype))
        return tp_fail(q, TP_E_DTYPE, "both operands must be floating point");
    if (b->ndim > a->ndim)
        return tp_fail(q, TP_E_SHAPE, "b has more axes than a, %d and %d", b->ndim, a->ndim);
    for (int i = 1; i <= b->ndim; i++) {
        const int64_t na = a->dim[a->ndim - i], nb = b->dim[b->ndim - i];
        if (nb != na && nb != 1)
            return tp_fail(q, TP_E_SHAPE,
                           "sizes of axis %d are %lld and %lld: b does not broadcast into a", -i,
                           (long long)na, (long long)nb);
    }
    q->y[0] = *a;
    return TP_OK;
}

static tp_code add_shape(tp_infer *q)
{
    const tp_code code = binary_shape(q);
    if (code != TP_OK) return code;
    tp__pass_gradient(q, 0);
    tp__pass_gradient(q, 1);
    return TP_OK;
}

static tp_code sub_shape(tp_infer *q)
{
    const tp_code code = binary_shape(q);
    if (code == TP_OK) tp__pass_gradient(q, 0);
    return code;
}

/* Backward sums dy into db. */
static size_t binary_work(const tp_call *c)
{
    return tp_is_backward(c) ? tp__fold_work(&c->x[0], &c->x[1], c->x[0].dtype) : 0;
}

static const tp_gradcase binary_cases[] = {
    { "same shape", .in = { { 3, { 2, 3, 5 } }, { 3, { 2, 3, 5 } } } },
    { "trailing vector", .in = { { 3, { 2, 3, 5 } }, { 1, { 5 } } } },
    { "trailing matrix", .in = { { 3, { 4, 3, 2 } }, { 2, { 3, 2 } } } },
    { "one element", .in = { { 2, { 3, 7 } }, { 1, { 1 } } } },
    { "one a row", .in = { { 2, { 3, 7 } }, { 2, { 3, 1 } } } },
    { "one a matrix", .in = { { 3, { 2, 3, 4 } }, { 3, { 2, 1, 1 } } } },
    { "inner axis repeated", .in = { { 4, { 2, 3, 1, 5 } }, { 4, { 2, 1, 1, 5 } } } },
    { "axes in turn", .in = { { 5, { 2, 3, 2, 2, 3 } }, { 5, { 1, 3, 1, 2, 1 } } } },
    { "axes in turn, last kept", .in = { { 4, { 2, 3, 2, 3 } }, { 4, { 2, 1, 2, 1 } } } },
    { "empty", .in = { { 2, { 0, 4 } }, { 1, { 4 } } } },
    { 0 },
};

#define BOTH TP_SAVE_X(0) | TP_SAVE_X(1)
#define BINARY(op, text, reads, rule)                                                              \
    .name = #op, .doc = text, .nx = 2, .ny = 1, .saves = reads, .shape = rule,                     \
    .work = TP_SAME_WORK(binary_work), .forward = TP_KERNELS(op##_fwd),                            \
    .backward = TP_KERNELS(op##_bwd), .cases = binary_cases

const tp_op tp_op_add = { BINARY(add, "a + b; b broadcasts into a", 0, add_shape) };
const tp_op tp_op_sub = { BINARY(sub, "a - b; b broadcasts into a", 0, sub_shape) };
const tp_op tp_op_mul = { BINARY(mul, "a b; b broadcasts into a", BOTH, binary_shape) };
const tp_op tp_op_div = { BINARY(div, "a / b; b broadcasts into a", BOTH, binary_shape) };
#undef BOTH
#undef BINARY

tp_tensor tp_add(tp_tape *T, tp_tensor a, tp_tensor b)
{
    return tp_apply(T, &tp_op_add, NULL, a, b);
}

tp_tensor tp_sub(tp_tape *T, tp_tensor a, tp_tensor b)
{
    return tp_apply(T, &tp_op_sub, NULL, a, b);
}

tp_tensor tp_mul(tp_tape *T, tp_tensor a, tp_tensor b)
{
    return tp_apply(T, &tp_op_mul, NULL, a, b);
}

tp_tensor tp_div(tp_tape *T, tp_tensor a, tp_tensor b)
{
    return tp_apply(T, &tp_op_div, NULL, a, b);
}
