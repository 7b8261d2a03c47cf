/* linear.c - a dense layer with activation and dropout.
 *
 *     Y[...,N] = m act(X[...,K] W[N,K]^T + b[N])     m: as in dropout.c
 *
 * Fused, so that on the CPU bias, activation and dropout need no extra pass over memory. Backward
 * needs no mask: the hidden output contains it. */
#include "autograd/ops/op_inner.h"
#include "tensor/geometry/linalg.h"

static tp_code linear_shape(tp_infer *q)
{
    const tp_act act = ((const tp__linear_attr *)q->attr)->act;
    const double p = ((const tp__linear_attr *)q->attr)->dropout;
    const tp_view *x = &q->x[0], *w = &q->x[1], *b = &q->x[2];

    if (act < TP_ACT_NONE || act > TP_ACT_SIGMOID)
        return tp_fail(q, TP_E_VALUE, "unknown activation %d", (int)act);
    if (!(p >= 0.0 && p < 1.0))
        return tp_fail(q, TP_E_VALUE, "p must be at least 0 and less than 1, not %g", p);
    q->draws = q->train && p > 0.0;
    if (w->ndim != 2) return tp_fail(q, TP_E_SHAPE, "w must be [outputs,inputs]");
    if (x->ndim < 1) return tp_fail(q, TP_E_SHAPE, "x needs one axis or more");
    if (x->dim[x->ndim - 1] != w->dim[1])
        return tp_fail(q, TP_E_SHAPE, "inner sizes differ: %lld and %lld",
                       (long long)x->dim[x->ndim - 1], (long long)w->dim[1]);
    if (!tp_absent(b) && (b->ndim != 1 || b->dim[0] != w->dim[0]))
        return tp_fail(q, TP_E_SHAPE, "b must be [%lld]", (long long)w->dim[0]);
    for (int i = 0; i < 2; i++)
        if (w->dim[i] > INT32_MAX) return tp_fail(q, TP_E_SHAPE, "sizes must be below 2^31");

    q->y[0] = *x;
    q->y[0].dim[x->ndim - 1] = w->dim[0];
    q->y[1] = q->y[0];
    if (act == TP_ACT_RELU) q->y[1].dtype = TP_U8;
    if (act == TP_ACT_NONE) q->y[1] = (tp_view){ .dtype = x->dtype, .ndim = 1 };
    return TP_OK;
}

static double linear_macs(const tp_infer *q)
{
    return (double)q->y[0].numel * (double)q->x[1].dim[1];
}

#define DROP(a, p) .attr = TP_ATTR(tp__linear_attr, a, p)
#define ACT(a)     DROP(a, 0.0)

static const tp_gradcase linear_cases[] = {
    { "bias", .in = { TP_DIMS(4, 5), TP_DIMS(3, 5), TP_DIMS(3) }, ACT(TP_ACT_NONE) },
    { "no bias", .in = { TP_DIMS(4, 5), TP_DIMS(3, 5) }, ACT(TP_ACT_NONE) },
    { "one row", .in = { TP_DIMS(5), TP_DIMS(7, 5), TP_DIMS(7) }, ACT(TP_ACT_NONE) },
    { "relu", .in = { TP_DIMS(2, 2, 3), TP_DIMS(5, 3), TP_DIMS(5) }, ACT(TP_ACT_RELU) },
    { "relu, no bias", .in = { TP_DIMS(3, 2), TP_DIMS(3, 2) }, ACT(TP_ACT_RELU) },
    { "gelu", .in = { TP_DIMS(3, 2, 3), TP_DIMS(6, 3), TP_DIMS(6) }, ACT(TP_ACT_GELU) },
    { "gelu, no bias", .in = { TP_DIMS(1, 9), TP_DIMS(2, 9) }, ACT(TP_ACT_GELU) },
    { "quick_gelu", .in = { TP_DIMS(5, 2), TP_DIMS(4, 2), TP_DIMS(4) }, ACT(TP_ACT_QUICK_GELU) },
    { "quick_gelu, no bias", .in = { TP_DIMS(2, 3), TP_DIMS(3, 3) }, ACT(TP_ACT_QUICK_GELU) },
    { "silu", .in = { TP_DIMS(5, 3), TP_DIMS(4, 3), TP_DIMS(4) }, ACT(TP_ACT_SILU) },
    { "gelu_tanh", .in = { TP_DIMS(5, 3), TP_DIMS(4, 3), TP_DIMS(4) }, ACT(TP_ACT_GELU_TANH) },
    { "tanh", .in = { TP_DIMS(2, 4), TP_DIMS(3, 4), TP_DIMS(3) }, ACT(TP_ACT_TANH) },
    { "sigmoid", .in = { TP_DIMS(3, 5), TP_DIMS(2, 5) }, ACT(TP_ACT_SIGMOID) },
    { "several blocks", .in = { TP_DIMS(70, 2), TP_DIMS(3, 2), TP_DIMS(3) }, ACT(TP_ACT_GELU) },
    { "relu, dropout", .in = { TP_DIMS(9, 3), TP_DIMS(5, 3), TP_DIMS(5) }, DROP(TP_ACT_RELU, 0.3) },
    { "gelu, dropout", .in = { TP_DIMS(3, 7, 3), TP_DIMS(11, 3), TP_DIMS(11) },
      DROP(TP_ACT_GELU, 0.5) },
    { "gelu, dropout, packs", .in = { TP_DIMS(5, 2), TP_DIMS(16, 2), TP_DIMS(16) },
      DROP(TP_ACT_GELU, 0.2) },
    { "quick_gelu, dropout", .in = { TP_DIMS(5, 2), TP_DIMS(4, 2) }, DROP(TP_ACT_QUICK_GELU, 0.5) },
    { "silu, dropout", .in = { TP_DIMS(5, 3), TP_DIMS(4, 3), TP_DIMS(4) }, DROP(TP_ACT_SILU, 0.5) },
    { "no rows", .in = { TP_DIMS(0, 2), TP_DIMS(3, 2), TP_DIMS(3) }, ACT(TP_ACT_GELU) },
    { "no inputs", .in = { TP_DIMS(2, 0), TP_DIMS(3, 0), TP_DIMS(3) }, ACT(TP_ACT_GELU) },
    { 0 },
};

TP_KERNEL(linear_fwd);
TP_KERNEL(linear_bwd);
TP_WORK(linear_work);

const tp_op tp_op_linear = {
    .name = "linear",
    .doc = "act(x w^T + b) over the last axis, with dropout if given",
    .nx = 3,
    .inputs = "x, w, b",
    .ny = 2, /* y; m act'(Z), for ReLU m Z > 0, or nothing; Z = x w^T + b */
    .attr_size = sizeof(tp__linear_attr),
    .saves = TP_SAVE_X(0) | TP_SAVE_X(1) | TP_SAVE_Y(1),
    .optional = 1u << 2,
    .flags = TP_COMPUTES | TP_ACCUMULATES | TP_TAKES_BF16,
    .shape = linear_shape,
    .macs = linear_macs,
    .forward = TP_KERNELS(linear_fwd),
    .backward = TP_KERNELS(linear_bwd),
    .work = TP_WORKS(linear_work),
    .cases = linear_cases,
};

tp_tensor tp_linear(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b, tp_act act)
{
    return tp_apply(T, &tp_op_linear, (&(tp__linear_attr){ act, 0.0 }), x, w, b);
}

tp_tensor tp_linear_dropout(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b, tp_act act, double p)
{
    if (act == TP_ACT_NONE) return tp_dropout(T, tp_linear(T, x, w, b, act), p);
    return tp_apply(T, &tp_op_linear, (&(tp__linear_attr){ act, p }), x, w, b);
}
