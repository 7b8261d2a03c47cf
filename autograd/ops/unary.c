/* unary.c - elementwise functions of one operand; tensor/cpu/unary.c generates their kernels.
 *
 * An op saves its result for backward if the derivative can be computed from it, since the op that
 * reads the result often saves it anyway. Other ops save their input. */
#include <math.h>

#include "autograd/ops/op_inner.h"
#include "tensor/geometry/elementwise.h"

/* clang-format off */
#define BOTH(f) TP_KERNEL(f##_fwd); TP_KERNEL(f##_bwd)
BOTH(exp); BOTH(log); BOTH(sqrt); BOTH(square); BOTH(abs); BOTH(relu); BOTH(gelu); BOTH(gelu_tanh);
BOTH(quick_gelu); BOTH(hardswish); BOTH(silu); BOTH(mish); BOTH(sigmoid); BOTH(tanh); BOTH(softplus);
BOTH(expm1); BOTH(log1p); BOTH(sin); BOTH(cos); BOTH(reciprocal); BOTH(rsqrt); BOTH(leaky_relu); BOTH(elu); BOTH(scale); BOTH(clamp);
TP_KERNEL(floor_fwd); TP_KERNEL(round_fwd); TP_KERNEL(sign_fwd); TP_KERNEL(step_bwd);
/* clang-format on */

/* ---- inputs for the gradient test ---- */

/* clang-format off */
#define SHAPES(fill_with)                                                                          \
    {                                                                                              \
        { "vector", .in = { { 1, { 7 } } }, .fill = fill_with },                                   \
        { "odd sizes", .in = { { 3, { 3, 5, 7 } } }, .fill = fill_with },                          \
        { "empty", .in = { { 2, { 0, 3 } } }, .fill = fill_with },                                 \
        { 0 },                                                                                     \
    }
/* clang-format on */

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

/* Between the steps of floor, round and sign, which are at multiples of 1/2. */
static void between(int i, tp_view *x)
{
    (void)i;
    for (int64_t e = 0; e < x->numel; e++) {
        const double v = 6.0 * tp_ld(x, e), step = rint(2.0 * v) / 2.0;
        tp_st(x, e, fabs(v - step) < 0.05 ? step + 0.1 : v);
    }
}

static const tp_gradcase any[] = SHAPES(NULL);
static const tp_gradcase above_zero[] = SHAPES(positive);
static const tp_gradcase far[] = SHAPES(wide);
static const tp_gradcase flat[] = SHAPES(between);

/* ---- the ops ---- */

#define UNARY(f, text, reads, inputs)                                                              \
    .name = #f, .doc = text, .nx = 1, .ny = 1, .saves = reads, .shape = tp__like_x,                \
    .flags = TP_ELEMENTWISE, .forward = TP_KERNELS(f##_fwd), .backward = TP_KERNELS(f##_bwd),      \
    .cases = inputs
#define STEP(f, text)                                                                              \
    .name = #f, .doc = text, .nx = 1, .ny = 1, .shape = tp__like_x, .flags = TP_ELEMENTWISE,       \
    .forward = TP_KERNELS(f##_fwd), .backward = TP_KERNELS(step_bwd), .cases = flat

/* clang-format off */
const tp_op tp_op_exp = { UNARY(exp, "e^x", TP_SAVE_Y(0), any) };
const tp_op tp_op_log = { UNARY(log, "natural logarithm", TP_SAVE_X(0), above_zero) };
const tp_op tp_op_sqrt = { UNARY(sqrt, "square root", TP_SAVE_Y(0), above_zero) };
const tp_op tp_op_square = { UNARY(square, "x^2", TP_SAVE_X(0), any) };
const tp_op tp_op_abs = { UNARY(abs, "absolute value; gradient 0 at 0", TP_SAVE_X(0), any) };
const tp_op tp_op_relu = { UNARY(relu, "max(x, 0); gradient 0 at 0", TP_SAVE_Y(0), any) };
const tp_op tp_op_gelu = { UNARY(gelu, "x/2 (1 + erf(x/sqrt 2))", TP_SAVE_X(0), far) };
const tp_op tp_op_gelu_tanh = { UNARY(gelu_tanh, "x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))", TP_SAVE_X(0), far) };
const tp_op tp_op_quick_gelu = { UNARY(quick_gelu, "x sigmoid(1.702 x)", TP_SAVE_X(0), far) };
const tp_op tp_op_hardswish = { UNARY(hardswish, "x clamp(x + 3, 0, 6) / 6", TP_SAVE_X(0), far) };
const tp_op tp_op_silu = { UNARY(silu, "x sigmoid(x)", TP_SAVE_X(0), far) };
const tp_op tp_op_mish = { UNARY(mish, "x tanh(softplus(x))", TP_SAVE_X(0), far) };
const tp_op tp_op_sigmoid = { UNARY(sigmoid, "1 / (1 + e^-x)", TP_SAVE_Y(0), far) };
const tp_op tp_op_tanh = { UNARY(tanh, "hyperbolic tangent", TP_SAVE_Y(0), far) };
const tp_op tp_op_softplus = { UNARY(softplus, "log(1 + e^x)", TP_SAVE_X(0), far) };
const tp_op tp_op_expm1 = { UNARY(expm1, "e^x - 1, exact near 0", TP_SAVE_Y(0), any) };
const tp_op tp_op_log1p = { UNARY(log1p, "log(1 + x), exact near 0", TP_SAVE_X(0), above_zero) };
const tp_op tp_op_sin = { UNARY(sin, "sine", TP_SAVE_X(0), far) };
const tp_op tp_op_cos = { UNARY(cos, "cosine", TP_SAVE_X(0), far) };
const tp_op tp_op_reciprocal = { UNARY(reciprocal, "1 / x", TP_SAVE_Y(0), above_zero) };
const tp_op tp_op_rsqrt = { UNARY(rsqrt, "1 / sqrt(x)", TP_SAVE_Y(0), above_zero) };
const tp_op tp_op_floor = { STEP(floor, "the largest integer not above x; gradient 0") };
const tp_op tp_op_round = { STEP(round, "the nearest integer, halves to even; gradient 0") };
const tp_op tp_op_sign = { STEP(sign, "-1, 0 or 1, NaN of NaN; gradient 0") };

tp_tensor tp_exp(tp_tape *T, tp_tensor x)        { return tp_apply(T, &tp_op_exp, NULL, x); }
tp_tensor tp_log(tp_tape *T, tp_tensor x)        { return tp_apply(T, &tp_op_log, NULL, x); }
tp_tensor tp_sqrt(tp_tape *T, tp_tensor x)       { return tp_apply(T, &tp_op_sqrt, NULL, x); }
tp_tensor tp_square(tp_tape *T, tp_tensor x)     { return tp_apply(T, &tp_op_square, NULL, x); }
tp_tensor tp_abs(tp_tape *T, tp_tensor x)        { return tp_apply(T, &tp_op_abs, NULL, x); }
tp_tensor tp_relu(tp_tape *T, tp_tensor x)       { return tp_apply(T, &tp_op_relu, NULL, x); }
tp_tensor tp_gelu(tp_tape *T, tp_tensor x)       { return tp_apply(T, &tp_op_gelu, NULL, x); }
tp_tensor tp_gelu_tanh(tp_tape *T, tp_tensor x)  { return tp_apply(T, &tp_op_gelu_tanh, NULL, x); }
tp_tensor tp_quick_gelu(tp_tape *T, tp_tensor x) { return tp_apply(T, &tp_op_quick_gelu, NULL, x); }
tp_tensor tp_hardswish(tp_tape *T, tp_tensor x)  { return tp_apply(T, &tp_op_hardswish, NULL, x); }
tp_tensor tp_silu(tp_tape *T, tp_tensor x)       { return tp_apply(T, &tp_op_silu, NULL, x); }
tp_tensor tp_mish(tp_tape *T, tp_tensor x)       { return tp_apply(T, &tp_op_mish, NULL, x); }
tp_tensor tp_sigmoid(tp_tape *T, tp_tensor x)    { return tp_apply(T, &tp_op_sigmoid, NULL, x); }
tp_tensor tp_tanh(tp_tape *T, tp_tensor x)       { return tp_apply(T, &tp_op_tanh, NULL, x); }
tp_tensor tp_softplus(tp_tape *T, tp_tensor x)   { return tp_apply(T, &tp_op_softplus, NULL, x); }
tp_tensor tp_expm1(tp_tape *T, tp_tensor x)      { return tp_apply(T, &tp_op_expm1, NULL, x); }
tp_tensor tp_log1p(tp_tape *T, tp_tensor x)      { return tp_apply(T, &tp_op_log1p, NULL, x); }
tp_tensor tp_sin(tp_tape *T, tp_tensor x)        { return tp_apply(T, &tp_op_sin, NULL, x); }
tp_tensor tp_cos(tp_tape *T, tp_tensor x)        { return tp_apply(T, &tp_op_cos, NULL, x); }
tp_tensor tp_reciprocal(tp_tape *T, tp_tensor x) { return tp_apply(T, &tp_op_reciprocal, NULL, x); }
tp_tensor tp_rsqrt(tp_tape *T, tp_tensor x)      { return tp_apply(T, &tp_op_rsqrt, NULL, x); }
tp_tensor tp_floor(tp_tape *T, tp_tensor x)      { return tp_apply(T, &tp_op_floor, NULL, x); }
tp_tensor tp_round(tp_tape *T, tp_tensor x)      { return tp_apply(T, &tp_op_round, NULL, x); }
tp_tensor tp_sign(tp_tape *T, tp_tensor x)       { return tp_apply(T, &tp_op_sign, NULL, x); }
/* clang-format on */

/* ---- functions with constants ---- */

static tp_code clamp_shape(tp_infer *q)
{
    const tp_unary_attr *k = q->attr;
    if (!(k->a <= k->b))
        return tp_fail(q, TP_E_VALUE, "bounds must be ordered: %g and %g", k->a, k->b);
    return tp__like_x(q);
}

static const tp_gradcase scale_cases[] = {
    { "half", .in = { { 2, { 3, 5 } } }, .attr = &(tp_unary_attr){ .a = 0.5 } },
    { "negative", .in = { { 1, { 7 } } }, .attr = &(tp_unary_attr){ .a = -3.0 } },
    { "zero", .in = { { 1, { 7 } } }, .attr = &(tp_unary_attr){ .a = 0.0 } },
    { 0 },
};

static const tp_gradcase neg_cases[] = {
    { "matrix", .in = { { 2, { 3, 5 } } }, .attr = &(tp_unary_attr){ .a = -1.0 } },
    { 0 },
};

static const tp_gradcase clamp_cases[] = {
    { "both sides", .in = { { 2, { 9, 5 } } }, .attr = &(tp_unary_attr){ -0.3, 0.5 } },
    { "below only", .in = { { 1, { 17 } } }, .attr = &(tp_unary_attr){ 0.0, INFINITY } },
    { 0 },
};

static const tp_gradcase leaky_relu_cases[] = {
    { "a hundredth", .in = { { 2, { 9, 5 } } }, .attr = &(tp_unary_attr){ .a = 0.01 },
      .fill = between },
    { "negative", .in = { { 1, { 7 } } }, .attr = &(tp_unary_attr){ .a = -0.5 }, .fill = between },
    { "empty", .in = { { 2, { 0, 3 } } }, .attr = &(tp_unary_attr){ .a = 0.01 } },
    { 0 },
};

static const tp_gradcase elu_cases[] = {
    { "one", .in = { { 2, { 9, 5 } } }, .attr = &(tp_unary_attr){ .a = 1.0 }, .fill = between },
    { "half", .in = { { 1, { 7 } } }, .attr = &(tp_unary_attr){ .a = 0.5 }, .fill = between },
    { "empty", .in = { { 2, { 0, 3 } } }, .attr = &(tp_unary_attr){ .a = 1.0 } },
    { 0 },
};

const tp_op tp_op_leaky_relu = {
    UNARY(leaky_relu, "x above 0, k x below; gradient k at 0", TP_SAVE_X(0), leaky_relu_cases),
    .attr_size = sizeof(tp_unary_attr),
};

const tp_op tp_op_elu = {
    UNARY(elu, "x above 0, k (e^x - 1) below; gradient k at 0", TP_SAVE_X(0), elu_cases),
    .attr_size = sizeof(tp_unary_attr),
};

const tp_op tp_op_scale = {
    UNARY(scale, "k x", 0, scale_cases),
    .attr_size = sizeof(tp_unary_attr),
};

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

const tp_op tp_op_clamp = {
    .name = "clamp",
    .doc = "min(max(x, lo), hi); gradient 0 outside the bounds",
    .nx = 1,
    .ny = 1,
    .attr_size = sizeof(tp_unary_attr),
    .saves = TP_SAVE_X(0),
    .flags = TP_ELEMENTWISE,
    .shape = clamp_shape,
    .forward = TP_KERNELS(clamp_fwd),
    .backward = TP_KERNELS(clamp_bwd),
    .cases = clamp_cases,
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
