/* test_vmath.c - the float functions of cpu/kit/vmath.h against libm in double, over all
 * exponents, compiled here and in the kernels of every instruction set of this machine. */
#include <criterion/criterion.h>
#include <math.h>
#include <tapegrad/tapegrad.h>

#include "cpu/kit/vmath.h"

#define CHUNK (1 << 18)
#define STEP  2039 /* between bit patterns: 4000 floats per exponent and sign */

/* The error in units in the last place of a float near `scale`; overflow counts as 2^128. */
static double ulps(float got, double want, double scale)
{
    if (isnan(want) || isnan(got)) return isnan(want) && isnan(got) ? 0.0 : INFINITY;
    const double limit = 0x1p128;
    const double a = fmax(-limit, fmin(limit, (double)got)), b = fmax(-limit, fmin(limit, want));
    int exponent = -125; /* the exponent of subnormals and zero */
    if (scale != 0.0) frexp(fmin(fabs(scale), limit / 2), &exponent);
    return fabs(a - b) / ldexp(1.0, (exponent < -125 ? -125 : exponent) - 24);
}

static double gelu(double x)
{
    return x == -INFINITY ? NAN : x * 0.5 * erfc(-x * 0.70710678118654752);
}

static double silu(double x)
{
    return x == -INFINITY ? NAN : x / (1.0 + exp(-x));
}

/* The functions of one float and of CHUNK floats. */
#define OVER_ARRAY(name)                                                                           \
    static float name##_one(float x)                                                               \
    {                                                                                              \
        return tp__##name##f(x);                                                                   \
    }                                                                                              \
    static void name##_array(const float *x, float *y)                                             \
    {                                                                                              \
        for (int i = 0; i < CHUNK; i++) y[i] = tp__##name##f(x[i]);                                \
    }
OVER_ARRAY(exp)
OVER_ARRAY(exp_low)
OVER_ARRAY(expm1)
OVER_ARRAY(log)
OVER_ARRAY(log1p)
OVER_ARRAY(tanh)

/* As in kernels: libm beyond TP_TURNS. */
static inline float tp__sine_anyf(float x)
{
    return fabsf(x) > TP_TURNS ? (float)sin((double)x) : tp__sinf(x);
}
static inline float tp__cosine_anyf(float x)
{
    return fabsf(x) > TP_TURNS ? (float)cos((double)x) : tp__cosf(x);
}
OVER_ARRAY(sine_any)
OVER_ARRAY(cosine_any)

static inline float tp__belowf(float x)
{
    float below;
    tp__gaussf(x, &below);
    return below;
}
OVER_ARRAY(below)

static inline float tp__densityf(float x)
{
    float below;
    return tp__gaussf(x, &below);
}
OVER_ARRAY(density)

static double below(double x)
{
    return 0.5 * erfc(-x * 0.70710678118654752);
}

static double density(double x)
{
    return 0.39894228040143268 * exp(-0.5 * x * x);
}

typedef struct function {
    const char *name;
    void (*array)(const float *x, float *y);
    tp_tensor (*op)(tp_tape *T, tp_tensor x);
    double (*exact)(double x);
    double limit;
    enum { OF_RESULT, OF_X, OF_ONE } unit; /* the limit is in ulps of the result, x or 1 */
} function;

static const function functions[] = {
    { "exp", exp_array, tp_exp, exp, 1.02, OF_RESULT },
    { "expm1", expm1_array, tp_expm1, expm1, 1.5, OF_RESULT },
    { "log", log_array, tp_log, log, 0.9, OF_RESULT },
    { "log1p", log1p_array, tp_log1p, log1p, 1.5, OF_RESULT },
    { "tanh", tanh_array, tp_tanh, tanh, 1.5, OF_RESULT },
    { "sin", sine_any_array, tp_sin, sin, 1.5, OF_RESULT },
    { "cos", cosine_any_array, tp_cos, cos, 1.5, OF_RESULT },
    { "normal integral", below_array, NULL, below, 0.7, OF_ONE },
    { "normal density", density_array, NULL, density, 0.5, OF_ONE },
    { "gelu", NULL, tp_gelu, gelu, 2.0, OF_X },
    { "silu", NULL, tp_silu, silu, 2.0, OF_X },
};
#define FUNCTIONS (int)(sizeof functions / sizeof *functions)

/* Compares f on every STEP-th bit pattern of a float, in the kernels of T or, if NULL, compiled
 * here. */
static void sweep(const function *f, tp_tape *T, const char *where)
{
    static float x[CHUNK], y[CHUNK];
    double worst = 0.0;
    float at = 0.0f;
    for (uint64_t bits = 0; bits < UINT64_C(1) << 32;) {
        for (int i = 0; i < CHUNK; i++, bits += STEP) x[i] = tp__bits_float((uint32_t)bits);
        if (T) {
            tp_reset(T);
            tp_read(T, f->op(T, tp_from(T, TP_F32, TP_SHAPE(CHUNK), x)), y, sizeof y);
        } else {
            f->array(x, y);
        }
        for (int i = 0; i < CHUNK; i++) {
            const double want = f->exact((double)x[i]);
            const double unit = f->unit == OF_ONE ? 1.0 : f->unit == OF_X ? (double)x[i] : want;
            const double error = ulps(y[i], want, unit);
            if (error > worst) worst = error, at = x[i];
        }
    }
    cr_expect(worst <= f->limit, "%s (%s): %.3f ulp at %a", f->name, where, worst, (double)at);
}

Test(vmath, accuracy_as_compiled_here)
{
    for (int i = 0; i < FUNCTIONS; i++)
        if (functions[i].array) sweep(&functions[i], NULL, "inline");
}

static void sweep_kernels(tp_isa isa)
{
    tp_device *D = tp_device_open(
        "cpu", &(tp_device_opts){ .threads = 2, .isa = isa, .keep_subnormals = true });
    tp_tape *T = tp_tape_new(D, NULL);
    for (int i = 0; i < FUNCTIONS; i++)
        if (functions[i].op) sweep(&functions[i], T, tp_device_stats(D).isa);
    cr_expect(tp_ok(T), "%s", tp_why(T));
    tp_tape_free(T);
    tp_device_close(D);
}

Test(vmath, accuracy_base)
{
    if (!tp_isa_runs(TP_ISA_BASE)) cr_skip_test("this build has no baseline kernels");
    sweep_kernels(TP_ISA_BASE);
}

Test(vmath, accuracy_avx2)
{
    if (!tp_isa_runs(TP_ISA_AVX2)) cr_skip_test("this machine does not run avx2 kernels");
    sweep_kernels(TP_ISA_AVX2);
}

Test(vmath, accuracy_avx512)
{
    if (!tp_isa_runs(TP_ISA_AVX512)) cr_skip_test("this machine does not run avx512 kernels");
    sweep_kernels(TP_ISA_AVX512);
}

/* The exponential of softmax: as accurate as the other up to 88, and 0 below -87. */
Test(vmath, exp_of_low_numbers)
{
    static float x[CHUNK], y[CHUNK];
    double worst = 0.0;
    for (int i = 0; i < CHUNK; i++) x[i] = -88.0f + 176.0f * (float)i / (float)CHUNK;
    exp_low_array(x, y);
    for (int i = 0; i < CHUNK; i++) {
        const double want = x[i] < -87.0f ? 0.0 : exp((double)x[i]);
        worst = fmax(worst, ulps(y[i], want, want));
    }
    cr_expect_leq(worst, 1.02, "%.3f ulp", worst);
}

/* Values that must be exact, including the sign of zero. */
Test(vmath, special_values)
{
    const float least = 0x1p-149f, most = 0x1.fffffep127f;
    const struct {
        const char *what;
        float (*f)(float);
        float x, want;
    } table[] = {
        { "exp(0)", exp_one, 0.0f, 1.0f },
        { "exp(-0)", exp_one, -0.0f, 1.0f },
        { "exp(inf)", exp_one, INFINITY, INFINITY },
        { "exp(-inf)", exp_one, -INFINITY, 0.0f },
        { "exp(NaN)", exp_one, NAN, NAN },
        { "exp of the most", exp_one, most, INFINITY },
        { "exp of minus the most", exp_one, -most, 0.0f },
        { "exp(89)", exp_one, 89.0f, INFINITY },
        { "exp(-104)", exp_one, -104.0f, 0.0f },
        { "exp_low(0)", exp_low_one, 0.0f, 1.0f },
        { "exp_low(-inf)", exp_low_one, -INFINITY, 0.0f },
        { "exp_low of minus the most", exp_low_one, -most, 0.0f },
        { "exp_low(NaN)", exp_low_one, NAN, NAN },
        { "log(1)", log_one, 1.0f, 0.0f },
        { "log(0)", log_one, 0.0f, -INFINITY },
        { "log(-0)", log_one, -0.0f, -INFINITY },
        { "log(-1)", log_one, -1.0f, NAN },
        { "log(-inf)", log_one, -INFINITY, NAN },
        { "log(inf)", log_one, INFINITY, INFINITY },
        { "log(NaN)", log_one, NAN, NAN },
        { "log of minus the least", log_one, -least, NAN },
        { "expm1(0)", expm1_one, 0.0f, 0.0f },
        { "expm1(-0)", expm1_one, -0.0f, -0.0f },
        { "expm1(inf)", expm1_one, INFINITY, INFINITY },
        { "expm1(-inf)", expm1_one, -INFINITY, -1.0f },
        { "expm1(NaN)", expm1_one, NAN, NAN },
        { "expm1 of the least", expm1_one, least, least },
        { "expm1 of the most", expm1_one, most, INFINITY },
        { "expm1 of minus the most", expm1_one, -most, -1.0f },
        { "log1p(0)", log1p_one, 0.0f, 0.0f },
        { "log1p(-0)", log1p_one, -0.0f, -0.0f },
        { "log1p(-1)", log1p_one, -1.0f, -INFINITY },
        { "log1p(-2)", log1p_one, -2.0f, NAN },
        { "log1p(inf)", log1p_one, INFINITY, INFINITY },
        { "log1p(-inf)", log1p_one, -INFINITY, NAN },
        { "log1p(NaN)", log1p_one, NAN, NAN },
        { "log1p of the least", log1p_one, least, least },
        { "tanh(0)", tanh_one, 0.0f, 0.0f },
        { "tanh(-0)", tanh_one, -0.0f, -0.0f },
        { "tanh(inf)", tanh_one, INFINITY, 1.0f },
        { "tanh(-inf)", tanh_one, -INFINITY, -1.0f },
        { "tanh(NaN)", tanh_one, NAN, NAN },
        { "tanh of the least", tanh_one, least, least },
        { "sin(0)", sine_any_one, 0.0f, 0.0f },
        { "sin(-0)", sine_any_one, -0.0f, -0.0f },
        { "sin(inf)", sine_any_one, INFINITY, NAN },
        { "sin(NaN)", sine_any_one, NAN, NAN },
        { "sin of the least", sine_any_one, least, least },
        { "cos(0)", cosine_any_one, 0.0f, 1.0f },
        { "cos(-inf)", cosine_any_one, -INFINITY, NAN },
        { "cos of the least", cosine_any_one, least, 1.0f },
        { "normal integral up to 0", below_one, 0.0f, 0.5f },
        { "normal integral up to inf", below_one, INFINITY, 1.0f },
        { "normal integral up to -inf", below_one, -INFINITY, 0.0f },
        { "normal integral up to NaN", below_one, NAN, NAN },
        { "normal density at inf", density_one, INFINITY, 0.0f },
        { "normal density at -inf", density_one, -INFINITY, 0.0f },
        { "normal density at NaN", density_one, NAN, NAN },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const float got = table[i].f(table[i].x), want = table[i].want;
        const bool same = isnan(want) ? isnan(got) : got == want && !signbit(got) == !signbit(want);
        cr_expect(same, "%s is %a, not %a", table[i].what, (double)got, (double)want);
    }
}
