/* test_elementwise.c - elementwise ops against libm and loops in double: functions of one operand,
 * special values, bf16, casts, errors, empty tensors. Ops of two operands: test_binary.c. */
#include <criterion/criterion.h>
#include <math.h>
#include <tapegrad/tapegrad.h>

#include "support/loops.h"
#include "support/ops.h"
#include "support/values.h"

TestSuite(elementwise, .init = cpu_tape_open, .fini = cpu_tape_close);

/* ---- functions of one operand ---- */

static double gelu(double x)
{
    return x / 2 * (1 + erf(x / sqrt(2.0)));
}
static double gelu_tanh(double x)
{
    return x / 2 * (1 + tanh(sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
}
static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}
static double quick_gelu(double x)
{
    return x * sigmoid(1.702 * x);
}
static double silu(double x)
{
    return x * sigmoid(x);
}
static double hardswish(double x)
{
    return x * fmin(fmax(x + 3, 0), 6) / 6;
}
static double square(double x)
{
    return x * x;
}
static double relu(double x)
{
    return fmax(x, 0);
}
static double neg(double x)
{
    return -x;
}
static double softplus(double x)
{
    return log1p(exp(x));
}
static double mish(double x)
{
    return x * tanh(softplus(x));
}
static double reciprocal(double x)
{
    return 1 / x;
}
static double rsqrt(double x)
{
    return 1 / sqrt(x);
}
static double sign(double x)
{
    return (x > 0) - (x < 0);
}

static const struct {
    const char *name;
    tp_tensor (*op)(tp_tape *T, tp_tensor x);
    double (*exact)(double x);
    double from, to;
} unary[] = {
    { "neg", tp_neg, neg, -9, 9 },
    { "exp", tp_exp, exp, -9, 9 },
    { "log", tp_log, log, 0, 9 },
    { "sqrt", tp_sqrt, sqrt, 0, 9 },
    { "square", tp_square, square, -9, 9 },
    { "abs", tp_abs, fabs, -9, 9 },
    { "relu", tp_relu, relu, -9, 9 },
    { "gelu", tp_gelu, gelu, -9, 9 },
    { "gelu_tanh", tp_gelu_tanh, gelu_tanh, -9, 9 },
    { "quick_gelu", tp_quick_gelu, quick_gelu, -9, 9 },
    { "hardswish", tp_hardswish, hardswish, -9, 9 },
    { "silu", tp_silu, silu, -9, 9 },
    { "sigmoid", tp_sigmoid, sigmoid, -9, 9 },
    { "mish", tp_mish, mish, -9, 9 },
    { "tanh", tp_tanh, tanh, -9, 9 },
    { "softplus", tp_softplus, softplus, -9, 9 },
    { "expm1", tp_expm1, expm1, -9, 9 },
    { "log1p", tp_log1p, log1p, -0.9, 9 },
    { "sin", tp_sin, sin, -9, 9 },
    { "cos", tp_cos, cos, -9, 9 },
    { "reciprocal", tp_reciprocal, reciprocal, 0, 9 },
    { "rsqrt", tp_rsqrt, rsqrt, 0, 9 },
};

/* Values, and gradients against differences of the exact function, on several parallel chunks. */
Test(elementwise, unary)
{
    enum { N = 40003 };
    static double x[N], y[N], g[N];
    for (size_t i = 0; i < sizeof unary / sizeof *unary; i++)
        for (int f64 = 0; f64 < 2; f64++) {
            const tp_dtype dt = f64 ? TP_F64 : TP_F32;
            const double range = unary[i].to - unary[i].from;
            tp_reset(T);
            values_random(x, N, i);
            for (int e = 0; e < N; e++) /* exact in f32, as both dtypes use it; never 0 */
                x[e] = (float)(unary[i].from + range * (0.50001 + 0.5 * x[e]));
            const tp_tensor in = values_input(T, dt, TP_SHAPE(N), x);
            const tp_tensor out = unary[i].op(T, in);
            tp_backward(T, tp_sum(T, out, TP_ALL));
            get_values(T, out, N, y);
            get_values(T, tp_grad(T, in), N, g);
            double value = 0.0, slope = 0.0;
            for (int e = 0; e < N; e++) {
                const double want = unary[i].exact(x[e]), size = fabs(want) + fabs(x[e]);
                const double h = 1e-6 * fmax(fabs(x[e]), 0.01);
                const double d = (unary[i].exact(x[e] + h) - unary[i].exact(x[e] - h)) / (2 * h);
                const bool kink = fabs(fabs(x[e]) - 3) < 1e-4; /* kinks of hardswish */
                value = worse(value, fabs(y[e] - want) / size);
                slope = worse(slope, kink ? 0 : fabs(g[e] - d) / (1 + fabs(d)));
            }
            cr_expect_lt(value, f64 ? 4e-16 : 3e-7, "%s: %g", unary[i].name, value);
            cr_expect_lt(slope, f64 ? 1e-7 : 1e-6, "gradient of %s: %g", unary[i].name, slope);
        }
}

/* Values at and between the steps, and gradients, which are 0 everywhere. */
Test(elementwise, steps)
{
    static const struct {
        const char *name;
        tp_tensor (*op)(tp_tape *T, tp_tensor x);
        double (*exact)(double x);
    } table[] = {
        { "floor", tp_floor, floor },
        { "round", tp_round, rint },
        { "sign", tp_sign, sign },
    };
    enum { N = 20011 };
    static double x[N], y[N], g[N];
    for (int e = 0; e < N; e++) x[e] = (e - N / 2) / 64.0; /* every 32nd is at a half */
    for (int i = 0; i < 3; i++)
        for (int f64 = 0; f64 < 2; f64++) {
            tp_reset(T);
            const tp_tensor in = values_input(T, f64 ? TP_F64 : TP_F32, TP_SHAPE(N), x);
            const tp_tensor out = table[i].op(T, in);
            tp_backward(T, tp_sum(T, tp_mul(T, out, out), TP_ALL));
            get_values(T, out, N, y);
            get_values(T, tp_grad(T, in), N, g);
            for (int e = 0; e < N; e++) {
                cr_assert_eq(y[e], table[i].exact(x[e]), "%s of %g is %g", table[i].name, x[e],
                             y[e]);
                cr_assert_eq(g[e], 0.0, "gradient of %s at %g is %g", table[i].name, x[e], g[e]);
            }
        }
}

Test(elementwise, leaks_and_elus)
{
    const double x[] = { -2, -0.5, 0, 0.5, 2 };
    double y[5], g[5];
    const tp_tensor in = values_input(T, TP_F64, TP_SHAPE(5), x);
    const tp_tensor leaky = tp_leaky_relu(T, in, 0.25), elu = tp_elu(T, in, 2);
    tp_backward(T, tp_sum(T, tp_add(T, leaky, elu), TP_ALL));
    get_values(T, leaky, 5, y);
    for (int e = 0; e < 5; e++) cr_expect_eq(y[e], x[e] > 0 ? x[e] : 0.25 * x[e]);
    get_values(T, elu, 5, y);
    for (int e = 0; e < 5; e++) cr_expect_float_eq(y[e], x[e] > 0 ? x[e] : 2 * expm1(x[e]), 1e-15);
    get_values(T, tp_grad(T, in), 5, g);
    for (int e = 0; e < 5; e++)
        cr_expect_float_eq(g[e], x[e] > 0 ? 2 : 0.25 + 2 * exp(x[e]), 1e-15, "gradient at %g is %g",
                           x[e], g[e]);
}

Test(elementwise, constants)
{
    const double x[] = { -2, -0.5, 0, 0.5, 2 };
    double y[5], g[5];
    const tp_tensor in = values_input(T, TP_F64, TP_SHAPE(5), x);
    const tp_tensor scaled = tp_scale(T, in, -3), cut = tp_clamp(T, in, -0.5, 1);
    tp_backward(T, tp_sum(T, tp_add(T, scaled, cut), TP_ALL));
    get_values(T, scaled, 5, y);
    for (int e = 0; e < 5; e++) cr_expect_eq(y[e], -3 * x[e]);
    get_values(T, cut, 5, y);
    for (int e = 0; e < 5; e++) cr_expect_eq(y[e], fmin(fmax(x[e], -0.5), 1));
    get_values(T, tp_grad(T, in), 5, g);
    const double slope[] = { -3, -2, -2, -2, -3 };
    for (int e = 0; e < 5; e++) cr_expect_eq(g[e], slope[e], "gradient at %g is %g", x[e], g[e]);
}

/* ---- cast, bf16 ---- */

Test(elementwise, cast)
{
    const tp_dtype dtypes[] = { TP_F32, TP_F64, TP_BF16 };
    /* exact in f64, rounded to even in f32 and bf16 */
    const double x[] = {
        1.0, 1.0 + 0x1p-8, 1.0 + 3 * 0x1p-8, -1.0 - 0x1p-9, 1.0 + 0x1p-24, INFINITY
    };
    const double f32[] = { 1.0, 1.0 + 0x1p-8, 1.0 + 3 * 0x1p-8, -1.0 - 0x1p-9, 1.0, INFINITY };
    const double bf16[] = { 1.0, 1.0, 1.0 + 0x1p-6, -1.0, 1.0, INFINITY };
    for (int from = 0; from < 3; from++)
        for (int to = 0; to < 3; to++) {
            double y[6], g[6];
            tp_reset(T);
            const tp_tensor in = values_input(T, dtypes[from], TP_SHAPE(2, 3), x);
            const tp_tensor out = tp_cast(T, in, dtypes[to]);
            tp_backward(T, tp_sum(T, tp_scale(T, out, 1.0 + 0x1p-7), TP_ALL));
            cr_expect_eq(tp_dtype_of(out), dtypes[to]);
            cr_expect_eq(tp_dtype_of(tp_grad(T, in)), dtypes[from]);
            get_values(T, out, 6, y);
            get_values(T, tp_grad(T, in), 6, g);
            const bool rounded = from == 2 || to == 2;
            const double *want = rounded ? bf16 : from == 1 && to == 1 ? x : f32;
            for (int e = 0; e < 6; e++) {
                cr_expect_eq(y[e], want[e], "%s to %s: %a", tp_dtype_name(dtypes[from]),
                             tp_dtype_name(dtypes[to]), y[e]);
                cr_expect_eq(g[e], 1.0 + 0x1p-7);
            }
        }
}

Test(elementwise, bf16_is_rounded_once)
{
    const double x[] = { 1.0, -3.0, 0.15625 }, b[] = { 0x1p-8, 1.0, 0.0078125 };
    double y[3];
    get_values(T,
               tp_add(T, values_constant(T, TP_BF16, TP_SHAPE(3), x),
                      values_constant(T, TP_BF16, TP_SHAPE(3), b)),
               3, y);
    cr_expect_eq(y[0], 1.0, "a tie goes to even");
    cr_expect_eq(y[1], -2.0);
    cr_expect_eq(y[2], 0.1640625);
    const tp_tensor s = tp_square(T, values_constant(T, TP_BF16, TP_SHAPE(3), x));
    cr_expect_eq(tp_dtype_of(s), TP_BF16);
    get_values(T, s, 3, y);
    cr_expect_eq(y[2], 0.0244140625);
}

/* ---- special values ---- */

static tp_tensor cut(tp_tape *t, tp_tensor x)
{
    return tp_clamp(t, x, -1, 1);
}

Test(elementwise, special_values)
{
    const struct {
        const char *name;
        tp_tensor (*op)(tp_tape *T, tp_tensor x);
        double x, y, slope;
    } table[] = {
        { "abs of 0", tp_abs, 0.0, 0.0, 0.0 },
        { "abs of -infinity", tp_abs, -INFINITY, INFINITY, -1.0 },
        { "relu of 0", tp_relu, 0.0, 0.0, 0.0 },
        { "relu of NaN", tp_relu, NAN, NAN, 0.0 },
        { "relu of infinity", tp_relu, INFINITY, INFINITY, 1.0 },
        { "clamp of NaN", cut, NAN, NAN, 1.0 },
        { "clamp at its bound", cut, 1.0, 1.0, 1.0 },
        { "clamp of infinity", cut, INFINITY, 1.0, 0.0 },
        { "sqrt of -1", tp_sqrt, -1.0, NAN, NAN },
        { "sqrt of 0", tp_sqrt, 0.0, 0.0, INFINITY },
        { "log of 0", tp_log, 0.0, -INFINITY, INFINITY },
        { "log of -1", tp_log, -1.0, NAN, -1.0 },
        { "exp of -infinity", tp_exp, -INFINITY, 0.0, 0.0 },
        { "exp of 1000", tp_exp, 1000.0, INFINITY, INFINITY },
        { "sigmoid of -infinity", tp_sigmoid, -INFINITY, 0.0, 0.0 },
        { "sigmoid of -1000", tp_sigmoid, -1000.0, 0.0, 0.0 },
        { "sigmoid of infinity", tp_sigmoid, INFINITY, 1.0, 0.0 },
        { "sigmoid of NaN", tp_sigmoid, NAN, NAN, NAN },
        { "tanh of infinity", tp_tanh, INFINITY, 1.0, 0.0 },
        { "tanh of NaN", tp_tanh, NAN, NAN, NAN },
        { "gelu of 100", tp_gelu, 100.0, 100.0, 1.0 },
        { "gelu of -100", tp_gelu, -100.0, 0.0, 0.0 },
        { "gelu of NaN", tp_gelu, NAN, NAN, NAN },
        { "gelu_tanh of -100", tp_gelu_tanh, -100.0, 0.0, 0.0 },
        { "silu of -1000", tp_silu, -1000.0, 0.0, 0.0 },
        { "silu of 1000", tp_silu, 1000.0, 1000.0, 1.0 },
        { "hardswish of -3", tp_hardswish, -3.0, 0.0, -0.5 },
        { "hardswish of -infinity", tp_hardswish, -INFINITY, 0.0, 0.0 },
        { "hardswish of NaN", tp_hardswish, NAN, NAN, NAN },
        { "mish of -1000", tp_mish, -1000.0, 0.0, 0.0 },
        { "mish of 1000", tp_mish, 1000.0, 1000.0, 1.0 },
        { "mish of NaN", tp_mish, NAN, NAN, NAN },
        { "softplus of -infinity", tp_softplus, -INFINITY, 0.0, 0.0 },
        { "softplus of 1000", tp_softplus, 1000.0, 1000.0, 1.0 },
        { "softplus of NaN", tp_softplus, NAN, NAN, NAN },
        { "expm1 of -infinity", tp_expm1, -INFINITY, -1.0, 0.0 },
        { "expm1 of 1000", tp_expm1, 1000.0, INFINITY, INFINITY },
        { "expm1 of 1e-20", tp_expm1, 0x1p-80, 0x1p-80, 1.0 },
        { "log1p of -1", tp_log1p, -1.0, -INFINITY, INFINITY },
        { "log1p of -2", tp_log1p, -2.0, NAN, -1.0 },
        { "log1p of 1e-24", tp_log1p, 0x1p-80, 0x1p-80, 1.0 },
        { "log1p of infinity", tp_log1p, INFINITY, INFINITY, 0.0 },
        { "sin of -0", tp_sin, -0.0, -0.0, 1.0 },
        { "sin of infinity", tp_sin, INFINITY, NAN, NAN },
        { "sin of NaN", tp_sin, NAN, NAN, NAN },
        { "cos of 0", tp_cos, 0.0, 1.0, 0.0 },
        { "cos of -infinity", tp_cos, -INFINITY, NAN, NAN },
        { "reciprocal of 0", tp_reciprocal, 0.0, INFINITY, -INFINITY },
        { "reciprocal of infinity", tp_reciprocal, INFINITY, 0.0, 0.0 },
        { "rsqrt of 0", tp_rsqrt, 0.0, INFINITY, -INFINITY },
        { "rsqrt of -1", tp_rsqrt, -1.0, NAN, NAN },
        { "floor of -infinity", tp_floor, -INFINITY, -INFINITY, 0.0 },
        { "floor of NaN", tp_floor, NAN, NAN, 0.0 },
        { "round of 2.5", tp_round, 2.5, 2.0, 0.0 },
        { "round of NaN", tp_round, NAN, NAN, 0.0 },
        { "sign of -infinity", tp_sign, -INFINITY, -1.0, 0.0 },
        { "sign of NaN", tp_sign, NAN, NAN, 0.0 },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        for (int f64 = 0; f64 < 2; f64++) {
            double x[37], y[37], g[37]; /* in a vector and in the remainder of the loop */
            for (int e = 0; e < 37; e++) x[e] = table[i].x;
            tp_reset(T);
            const tp_tensor in = values_input(T, f64 ? TP_F64 : TP_F32, TP_SHAPE(37), x);
            const tp_tensor out = table[i].op(T, in);
            tp_backward(T, tp_sum(T, out, TP_ALL));
            get_values(T, out, 37, y);
            get_values(T, tp_grad(T, in), 37, g);
            for (int e = 0; e < 37; e++) {
                const double vy = table[i].y, vg = table[i].slope;
                cr_expect(isnan(vy) ? isnan(y[e]) : y[e] == vy, "%s is %g", table[i].name, y[e]);
                cr_expect(isnan(vg) ? isnan(g[e]) : g[e] == vg, "gradient of %s is %g",
                          table[i].name, g[e]);
            }
        }
}

Test(elementwise, division_by_zero)
{
    const double a[] = { 1, -1, 0 }, b[] = { 0, 0, 0 };
    double y[3];
    get_values(T,
               tp_div(T, values_constant(T, TP_F32, TP_SHAPE(3), a),
                      values_constant(T, TP_F32, TP_SHAPE(3), b)),
               3, y);
    cr_expect(y[0] == INFINITY && y[1] == -INFINITY && isnan(y[2]));
}

/* ---- errors and empty tensors ---- */

Test(elementwise, mistakes)
{
    const tp_tensor i = tp_full(T, TP_I64, TP_SHAPE(2), 1),
                    x = tp_full(T, TP_F32, TP_SHAPE(2, 3), 1);
    const tp_tensor m = tp_full(T, TP_U8, TP_SHAPE(2, 3), 1);
    tp_exp(T, i);
    cr_expect(failed_with(
        T,
        "exp: input 0 must be floating point, not i64; tp_cast converts\n  inputs i64[2]\n  at "));
    tp_add(T, x, tp_full(T, TP_F32, TP_SHAPE(4, 3, 1), 1));
    cr_expect(failed_with(T, "add: along axis -2 the sizes are 2 in a, 3 in b: operands broadcast "
                             "only if sizes are equal or 1\n  inputs f32[2,3], f32[4,3,1]"));
    tp_mul(T, x, tp_full(T, TP_F32, TP_SHAPE(2, 2), 1));
    cr_expect(failed_with(T, "mul: along axis -1 the sizes are 3 in a, 2 in b: operands "));
    tp_sub(T, m, m);
    cr_expect(failed_with(T, "sub: a must be floating point, not "));
    tp_div(T, x, tp_full(T, TP_F64, TP_SHAPE(2, 3), 1));
    cr_expect(failed_with(T, "div: inputs mix f32 and f64"));
    tp_clamp(T, x, 1, -1);
    cr_expect(failed_with(T, "clamp: bounds must be ordered: 1 and -1\n"));
    tp_clamp(T, x, 0, NAN);
    cr_expect(failed_with(T, "clamp: bounds must be ordered: 0 and nan\n"));
}

Test(elementwise, empty)
{
    const tp_shape s = TP_SHAPE(0, 5);
    const tp_tensor x = values_input(T, TP_F32, s, NULL);
    const tp_tensor b = tp_input(T, TP_F32, TP_SHAPE(5), (const float[]){ 1, 2, 3, 4, 5 });
    tp_tensor y = tp_div(T, tp_mul(T, tp_sub(T, tp_add(T, x, b), b), b), b);
    for (size_t i = 0; i < sizeof unary / sizeof *unary; i++) y = unary[i].op(T, y);
    y = tp_clamp(T, tp_scale(T, y, 2), 0, 1);
    y = tp_where(T, tp_full(T, TP_U8, s, 1), y, x);
    y = tp_cast(T, tp_cast(T, y, TP_BF16), TP_F32);
    tp_backward(T, tp_sum(T, y, TP_ALL));
    double g[5];
    get_values(T, tp_grad(T, b), 5, g);
    for (int e = 0; e < 5; e++) cr_expect_eq(g[e], 0.0);
    cr_expect_eq(tp_numel(y), 0);
    cr_expect_eq(tp_dim(y, 1), 5);
}
