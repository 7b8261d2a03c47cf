/* unary.c - elementwise functions of one operand: tensor/geometry/functions.h. */
#include <math.h>

#include "autograd/ops/op_inner.h"
#include "tensor/geometry/elementwise.h"
#include "tensor/geometry/functions.h"

/* ---- inputs for the gradient test ---- */

#define CASES(name, with)                                                                          \
    static const tp_gradcase name[] = {                                                            \
        { "vector", .in = { TP_DIMS(7) }, .fill = with },                                          \
        { "odd sizes", .in = { TP_DIMS(3, 5, 7) }, .fill = with },                                 \
        { "empty", .in = { TP_DIMS(0, 3) }, .fill = with },                                        \
        { 0 },                                                                                     \
    }

static void positive(int i, tp_view *x)
{
    (void)i;
    for (int64_t e = 0; e < x->numel; e++) tp_st(x, e, fabs(tp_ld(x, e)) + 0.1);
}

/* Covers the outer parts of hardswish, away from its kinks at -3 and 3. */
static void wide(int i, tp_view *x)
{
    (void)i;
    for (int64_t e = 0; e < x->numel; e++) {
        const double v = 6.0 * tp_ld(x, e);
        tp_st(x, e, fabs(fabs(v) - 3.0) < 0.01 ? 1.1 * v : v);
    }
}

/* Avoids the steps of floor, round and sign, at multiples of 1/2. */
static void between(int i, tp_view *x)
{
    (void)i;
    for (int64_t e = 0; e < x->numel; e++) {
        const double v = 6.0 * tp_ld(x, e), step = rint(2.0 * v) / 2.0;
        tp_st(x, e, fabs(v - step) < 0.05 ? step + 0.1 : v);
    }
}

CASES(any, NULL);
CASES(above_zero, positive);
CASES(far, wide);
CASES(flat, between);

/* ---- functions without constants ---- */

#define SAVES_x    TP_SAVE_X(0)
#define SAVES_y    TP_SAVE_Y(0)
#define SAVES_none 0
#define UNARY(f, text, reads, rule, inputs)                                                        \
    .name = #f, .doc = text, .nx = 1, .ny = 1, .saves = SAVES_##reads, .shape = rule,              \
    .flags = TP_ELEMENTWISE, .forward = TP_KERNELS(f##_fwd), .cases = inputs
#define WRAPPER(f)                                                                                 \
    tp_tensor tp_##f(tp_tape *T, tp_tensor x)                                                      \
    {                                                                                              \
        return tp_apply(T, &tp_op_##f, NULL, x);                                                   \
    }
#define FUNCTION(f, text, reads, inputs, value, slope)                                             \
    TP_KERNEL(f##_fwd);                                                                            \
    TP_KERNEL(f##_bwd);                                                                            \
    const tp_op tp_op_##f = { UNARY(f, text, reads, tp__like_x, inputs),                           \
                              .backward = TP_KERNELS(f##_bwd) };                                   \
    WRAPPER(f)
#define STEP(f, text, value)                                                                       \
    TP_KERNEL(f##_fwd);                                                                            \
    const tp_op tp_op_##f = { UNARY(f, text, none, tp__like_x, flat),                              \
                              .backward = TP_KERNELS(step_bwd) };                                  \
    WRAPPER(f)

TP_KERNEL(step_bwd);
TP_UNARY(FUNCTION)
TP_UNARY_TURNS(FUNCTION)
TP_UNARY_STEPS(STEP)

/* ---- functions with constants ---- */

static tp_code clamp_shape(tp_infer *q)
{
    const tp_unary_attr *k = q->attr;
    if (!(k->a <= k->b))
        return tp_fail(q, TP_E_VALUE, "bounds must be ordered: %g and %g", k->a, k->b);
    return tp__like_x(q);
}

static const tp_gradcase scale_cases[] = {
    { "half", .in = { TP_DIMS(3, 5) }, .attr = &(tp_unary_attr){ .a = 0.5 } },
    { "negative", .in = { TP_DIMS(7) }, .attr = &(tp_unary_attr){ .a = -3.0 } },
    { "zero", .in = { TP_DIMS(7) }, .attr = &(tp_unary_attr){ .a = 0.0 } },
    { 0 },
};

static const tp_gradcase neg_cases[] = {
    { "matrix", .in = { TP_DIMS(3, 5) }, .attr = &(tp_unary_attr){ .a = -1.0 } },
    { 0 },
};

static const tp_gradcase clamp_cases[] = {
    { "both sides", .in = { TP_DIMS(9, 5) }, .attr = &(tp_unary_attr){ -0.3, 0.5 } },
    { "below only", .in = { TP_DIMS(17) }, .attr = &(tp_unary_attr){ 0.0, INFINITY } },
    { 0 },
};

static const tp_gradcase leaky_relu_cases[] = {
    { "a hundredth", .in = { TP_DIMS(9, 5) }, .attr = &(tp_unary_attr){ .a = 0.01 },
      .fill = between },
    { "negative", .in = { TP_DIMS(7) }, .attr = &(tp_unary_attr){ .a = -0.5 }, .fill = between },
    { "empty", .in = { TP_DIMS(0, 3) }, .attr = &(tp_unary_attr){ .a = 0.01 } },
    { 0 },
};

static const tp_gradcase elu_cases[] = {
    { "one", .in = { TP_DIMS(9, 5) }, .attr = &(tp_unary_attr){ .a = 1.0 }, .fill = between },
    { "half", .in = { TP_DIMS(7) }, .attr = &(tp_unary_attr){ .a = 0.5 }, .fill = between },
    { "empty", .in = { TP_DIMS(0, 3) }, .attr = &(tp_unary_attr){ .a = 1.0 } },
    { 0 },
};

#define FUNCTION_OF(f, text, reads, rule, value, slope)                                            \
    TP_KERNEL(f##_fwd);                                                                            \
    TP_KERNEL(f##_bwd);                                                                            \
    const tp_op tp_op_##f = { UNARY(f, text, reads, rule, f##_cases),                              \
                              .attr_size = sizeof(tp_unary_attr),                                  \
                              .backward = TP_KERNELS(f##_bwd) };

TP_UNARY_OF(FUNCTION_OF)

const tp_op tp_op_neg = {
    .name = "neg",
    .doc = "-x",
    .nx = 1,
    .ny = 1,
    .attr_size = sizeof(tp_unary_attr),
    .flags = TP_ELEMENTWISE,
    .shape = tp__like_x,
    .forward = TP_KERNELS(scale_fwd),
    .backward = TP_KERNELS(scale_bwd),
    .cases = neg_cases,
};

tp_tensor tp_scale(tp_tape *T, tp_tensor x, double k)
{
    return tp_apply(T, &tp_op_scale, &(tp_unary_attr){ .a = k }, x);
}

tp_tensor tp_leaky_relu(tp_tape *T, tp_tensor x, double k)
{
    return tp_apply(T, &tp_op_leaky_relu, &(tp_unary_attr){ .a = k }, x);
}

tp_tensor tp_elu(tp_tape *T, tp_tensor x, double k)
{
    return tp_apply(T, &tp_op_elu, &(tp_unary_attr){ .a = k }, x);
}

tp_tensor tp_neg(tp_tape *T, tp_tensor x)
{
    return tp_apply(T, &tp_op_neg, &(tp_unary_attr){ .a = -1.0 }, x);
}

tp_tensor tp_clamp(tp_tape *T, tp_tensor x, double lo, double hi)
{
    const tp_unary_attr k = { lo, hi };
    return tp_apply(T, &tp_op_clamp, &k, x);
}
