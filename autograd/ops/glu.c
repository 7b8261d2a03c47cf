/* glu.c - gated linear units.
 *
 *     glu_linear   y = act(g) * u,   g = x Wg^T + bg,   u = x Wu^T + bu
 *     glu          y = a * sigmoid(b), a and b the halves of x along an axis
 *
 * glu_linear is fused: the last product multiplies by act(g) while its tiles are in cache. It saves
 * g and u; recomputing act(g) and act'(g) from g costs one exponential, less than reading a third
 * matrix. */
#include "autograd/ops/op_inner.h"
#include "tensor/geometry/linalg.h"
#include "tensor/geometry/shape_ops.h"

TP_KERNEL(glu_linear_fwd);
TP_KERNEL(glu_linear_bwd);
TP_WORK(glu_linear_work);
TP_KERNEL(glu_fwd);
TP_KERNEL(glu_bwd);

/* ---- glu_linear ---- */

static tp_code check_up(tp_infer *q)
{
    const tp_view *w = &q->x[1], *b = &q->x[2], *up = &q->x[3], *b_up = &q->x[4];
    const bool both = tp_absent(up);
    if (both && w->dim[0] % 2)
        return tp_fail(q, TP_E_SHAPE,
                       "without w_up, w holds the gate and the other factor, so its %lld rows must "
                       "be even in number",
                       (long long)w->dim[0]);
    if (both && !tp_absent(b_up))
        return tp_fail(q, TP_E_VALUE, "b_up belongs to w_up; without it, b [2N] holds both biases");
    if (!both && !tp__same_shape(w, up))
        return tp_fail(q, TP_E_SHAPE, "w and w_up must be of one shape");
    if (!tp_absent(b) && (b->ndim != 1 || b->dim[0] != w->dim[0]))
        return tp_fail(q, TP_E_SHAPE, "b must be [%lld]", (long long)w->dim[0]);
    if (!tp_absent(b_up) && (b_up->ndim != 1 || b_up->dim[0] != w->dim[0]))
        return tp_fail(q, TP_E_SHAPE, "b_up must be [%lld]", (long long)w->dim[0]);
    return TP_OK;
}

static tp_code glu_linear_shape(tp_infer *q)
{
    const tp_glu_kind kind = ((const tp__glu_attr *)q->attr)->kind;
    const tp_view *x = &q->x[0], *w = &q->x[1];
    if ((int)kind < TP_GLU_SIGMOID || kind > TP_GLU_RELU)
        return tp_fail(q, TP_E_VALUE, "unknown kind %d", (int)kind);
    if (w->ndim != 2) return tp_fail(q, TP_E_SHAPE, "w must be [N,K], or [2N,K] without w_up");
    if (x->ndim < 1) return tp_fail(q, TP_E_SHAPE, "x needs one axis or more");
    if (x->dim[x->ndim - 1] != w->dim[1])
        return tp_fail(q, TP_E_SHAPE, "inner sizes differ: %lld and %lld",
                       (long long)x->dim[x->ndim - 1], (long long)w->dim[1]);
    for (int i = 0; i < 2; i++)
        if (w->dim[i] > INT32_MAX) return tp_fail(q, TP_E_SHAPE, "sizes must be below 2^31");
    const tp_code code = check_up(q);
    if (code != TP_OK) return code;
    q->y[0] = *x;
    q->y[0].dim[x->ndim - 1] = tp_absent(&q->x[3]) ? w->dim[0] / 2 : w->dim[0];
    q->y[1] = q->y[2] = q->y[0];
    return TP_OK;
}

static double glu_linear_macs(const tp_infer *q)
{
    return 2.0 * (double)q->y[0].numel * (double)q->x[1].dim[1];
}

#define KIND(k) .attr = TP_ATTR(tp__glu_attr, k)
static const tp_gradcase glu_linear_cases[] = {
    { "sigmoid", .in = { TP_DIMS(4, 5), TP_DIMS(6, 5), TP_DIMS(6) }, KIND(TP_GLU_SIGMOID) },
    { "silu", .in = { TP_DIMS(2, 3, 4), TP_DIMS(10, 4), TP_DIMS(10) }, KIND(TP_GLU_SILU) },
    { "gelu, no bias", .in = { TP_DIMS(3, 5), TP_DIMS(4, 5) }, KIND(TP_GLU_GELU) },
    { "relu", .in = { TP_DIMS(3), TP_DIMS(6, 3), TP_DIMS(6) }, KIND(TP_GLU_RELU) },
    { "two weights", .in = { TP_DIMS(4, 5), TP_DIMS(3, 5), TP_DIMS(3), TP_DIMS(3, 5), TP_DIMS(3) },
      KIND(TP_GLU_SILU) },
    { "two weights, one bias",
      .in = { TP_DIMS(4, 2), TP_DIMS(3, 2), { 0 }, TP_DIMS(3, 2), TP_DIMS(3) }, KIND(TP_GLU_GELU) },
    { "two weights, no bias", .in = { TP_DIMS(2, 3), TP_DIMS(9, 3), { 0 }, TP_DIMS(9, 3) },
      KIND(TP_GLU_SILU) },
    { "packs", .in = { TP_DIMS(3, 3), TP_DIMS(32, 3), TP_DIMS(32) }, KIND(TP_GLU_SILU) },
    { "several blocks", .in = { TP_DIMS(70, 2), TP_DIMS(6, 2), TP_DIMS(6) }, KIND(TP_GLU_GELU) },
    { "no rows", .in = { TP_DIMS(0, 2), TP_DIMS(6, 2), TP_DIMS(6) }, KIND(TP_GLU_SILU) },
    { "no inputs", .in = { TP_DIMS(2, 0), TP_DIMS(6, 0), TP_DIMS(6) }, KIND(TP_GLU_SILU) },
    { "no outputs", .in = { TP_DIMS(2, 3), TP_DIMS(0, 3), TP_DIMS(0) }, KIND(TP_GLU_SILU) },
    { 0 },
};
#undef KIND

const tp_op tp_op_glu_linear = {
    .name = "glu_linear",
    .doc = "act(x wg^T + bg) * (x wu^T + bu): GLU, SwiGLU, GEGLU, ReGLU",
    .nx = 5,
    .inputs = "x, w, b, w_up, b_up",
    .ny = 3, /* y, g, u */
    .attr_size = sizeof(tp__glu_attr),
    .saves = TP_SAVE_X(0) | TP_SAVE_X(1) | TP_SAVE_X(3) | TP_SAVE_Y(1) | TP_SAVE_Y(2),
    .optional = 1u << 2 | 1u << 3 | 1u << 4,
    .flags = TP_COMPUTES | TP_ACCUMULATES,
    .shape = glu_linear_shape,
    .macs = glu_linear_macs,
    .forward = TP_KERNELS(glu_linear_fwd),
    .backward = TP_KERNELS(glu_linear_bwd),
    .work = TP_WORKS(glu_linear_work),
    .cases = glu_linear_cases,
};

tp_tensor tp_glu_linear(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b, tp_tensor w_up,
                        tp_tensor b_up, tp_glu_kind kind)
{
    return tp_apply(T, &tp_op_glu_linear, (&(tp__glu_attr){ kind }), x, w, b, w_up, b_up);
}

/* ---- glu ---- */

static tp_code glu_shape(tp_infer *q)
{
    const tp_view *x = &q->x[0];
    const int axis = tp__check_axis(q, x->ndim, ((const tp_axis_attr *)q->attr)->axis);
    if (axis < 0) return TP_E_SHAPE;
    if (x->dim[axis] % 2)
        return tp_fail(q, TP_E_SHAPE, "axis %d must have an even size to be halved, not %lld", axis,
                       (long long)x->dim[axis]);
    q->y[0] = *x;
    q->y[0].dim[axis] /= 2;
    return TP_OK;
}

#define AXIS(a) .attr = TP_ATTR(tp_axis_attr, a)
static const tp_gradcase glu_cases[] = {
    { "last axis", .in = { TP_DIMS(5, 6) }, AXIS(-1) },
    { "first axis", .in = { TP_DIMS(4, 7) }, AXIS(0) },
    { "middle", .in = { TP_DIMS(3, 4, 5) }, AXIS(1) },
    { "packs", .in = { TP_DIMS(9, 64) }, AXIS(1) },
    { "vector", .in = { TP_DIMS(2) }, AXIS(0) },
    { "empty", .in = { TP_DIMS(2, 0, 3) }, AXIS(1) },
    { 0 },
};
#undef AXIS

const tp_op tp_op_glu = {
    .name = "glu",
    .doc = "a * sigmoid(b) of the halves a, b of x along an axis",
    .nx = 1,
    .ny = 1,
    .attr_size = sizeof(tp_axis_attr),
    .saves = TP_SAVE_X(0),
    .shape = glu_shape,
    .forward = TP_KERNELS(glu_fwd),
    .backward = TP_KERNELS(glu_bwd),
    .cases = glu_cases,
};

tp_tensor tp_glu(tp_tape *T, tp_tensor x, int axis)
{
    return tp_apply(T, &tp_op_glu, (&(tp_axis_attr){ axis }), x);
}
