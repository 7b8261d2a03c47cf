/* unary.c - elementwise functions of one operand: memory-bound loops with the function inlined.
 *
 *     y = f(x);   dx = dy f'   with f' computed from what the op saved, x or y
 *
 * A new function is two lines in the table below, a name in FUNCTIONS (FUNCTIONS_OF with a constant a), a
 * tp_op in autograd/ops/unary.c. STEPS have the slope 0; TURNS take large arguments from libm. */
#include <string.h>

#include "tensor/cpu/kit/activation.h"
#include "tensor/cpu/kit/real.h"
#include "tensor/geometry/elementwise.h"
#include "tensor/kernel.h"

#define GRAIN (4 * TP_BLOCK)

/* clang-format off */
/* The functions f and f_slope make the kernels f_fwd and f_bwd. */
#define FUNCTIONS(X)                                                                               \
    X(exp) X(log) X(sqrt) X(square) X(abs) X(relu) X(gelu) X(gelu_tanh) X(quick_gelu)              \
    X(hardswish) X(silu) X(mish) X(sigmoid) X(tanh) X(softplus) X(expm1) X(log1p) X(reciprocal)    \
    X(rsqrt)
#define TURNS(X) X(sin, cos, dy) X(cos, sin, -dy) /* f, its slope, what the slope is multiplied by */
#define STEPS(X) X(floor) X(round) X(sign)
#define FUNCTIONS_OF(X) X(leaky_relu) X(elu)
/* clang-format on */

/* The tanh approximation x/2 (1 + tanh u) is x s(2u), which keeps small results exact. */
TP_INLINE real gelu_2u(real x)
{
    return RC(1.5957691216057308) * (x + RC(0.044715) * x * x * x); /* 2 sqrt(2/pi) */
}

TP_INLINE real gelu_2u_slope(real x)
{
    return RC(1.5957691216057308) * (1 + RC(0.134145) * x * x);
}

/* Mish is x t with t = tanh(log(1 + e^x)) = w / (w + 2), w = e^x (e^x + 2); from 20 on t is 1. */
TP_INLINE real mish_gate(real x)
{
    const real e = r_exp(x > 20 ? 20 : x), w = e * (e + 2);
    return w / (w + 2);
}

TP_INLINE real mish_gate_slope(real x, real t)
{
    return t + x * (1 - t * t) * logistic(x);
}

/* The table, beside activation.h. A slope reads x or y, as its parameter says; comparisons propagate
 * NaN. */
/* clang-format off */
TP_INLINE real exp_value(real x)              { return r_exp(x); }
TP_INLINE real exp_slope(real y)        { return y; }
TP_INLINE real log_value(real x)              { return r_log(x); }
TP_INLINE real log_slope(real x)        { return 1 / x; }
TP_INLINE real sqrt_value(real x)             { return r_sqrt(x); }
TP_INLINE real sqrt_slope(real y)       { return RC(0.5) / y; }
TP_INLINE real square_value(real x)           { return x * x; }
TP_INLINE real square_slope(real x)     { return 2 * x; }
TP_INLINE real abs_value(real x)              { return r_abs(x); }
TP_INLINE real abs_slope(real x)        { return (real)((x > 0) - (x < 0)); }
TP_INLINE real gelu_tanh_value(real x)        { return x * logistic(gelu_2u(x)); }
TP_INLINE real gelu_tanh_slope(real x)  { return gated_slope(x, logistic(gelu_2u(x)), gelu_2u_slope(x)); }
TP_INLINE real hardswish_value(real x)        { return x < -3 ? 0 : x > 3 ? x : x * (x + 3) / 6; }
TP_INLINE real hardswish_slope(real x)  { return x < -3 ? 0 : x > 3 ? 1 : (2 * x + 3) / 6; }
TP_INLINE real silu_value(real x)             { return x * logistic(x); }
TP_INLINE real silu_slope(real x)       { return gated_slope(x, logistic(x), 1); }
TP_INLINE real sigmoid_value(real x)          { return logistic(x); }
TP_INLINE real sigmoid_slope(real y)    { return y * (1 - y); }
TP_INLINE real tanh_value(real x)             { return r_tanh(x); }
TP_INLINE real tanh_slope(real y)       { return 1 - y * y; }
TP_INLINE real mish_value(real x)             { return x * mish_gate(x); }
TP_INLINE real mish_slope(real x)       { return mish_gate_slope(x, mish_gate(x)); }
TP_INLINE real softplus_value(real x)         { return (x < 0 ? 0 : x) + r_log1p_finite(r_exp(-r_abs(x))); }
TP_INLINE real softplus_slope(real x)   { return logistic(x); }
TP_INLINE real expm1_value(real x)            { return r_expm1(x); }
TP_INLINE real expm1_slope(real y)      { return y + 1; }
TP_INLINE real log1p_value(real x)            { return r_log1p(x); }
TP_INLINE real log1p_slope(real x)      { return 1 / (1 + x); }
TP_INLINE real reciprocal_value(real x)       { return 1 / x; }
TP_INLINE real reciprocal_slope(real y) { return -y * y; }
TP_INLINE real rsqrt_value(real x)            { return 1 / r_sqrt(x); }
TP_INLINE real rsqrt_slope(real y)      { return RC(-0.5) * y * y * y; }
TP_INLINE real floor_value(real x)            { return r_floor(x); }
TP_INLINE real round_value(real x)            { return r_round(x); }
TP_INLINE real sign_value(real x)             { return x > 0 ? 1 : x < 0 ? -1 : x; }
TP_INLINE real leaky_relu_value(real x, real a)       { return x > 0 ? x : a * x; }
TP_INLINE real leaky_relu_slope(real x, real a) { return x > 0 ? 1 : a; }
TP_INLINE real elu_value(real x, real a)              { return x > 0 ? x : a * r_expm1(x); }
TP_INLINE real elu_slope(real x, real a)        { return x > 0 ? 1 : a * r_exp(x); }
/* clang-format on */

/* The loops over elements [begin, end), inlined where f is known, so that they vectorise. */
TP_INLINE void map(real (*f)(real), const tp_call *c, int64_t begin, int64_t end)
{
    const real *restrict x = c->x[0].data;
    real *restrict y = c->y[0].data;
    for (int64_t i = begin; i < end; i++) y[i] = f(x[i]);
}

TP_INLINE void grad(real (*slope)(real), const tp_call *c, int64_t begin, int64_t end)
{
    const real *restrict saved = c->x[0].data ? c->x[0].data : c->y[0].data;
    const real *restrict dy = c->dy[0].data;
    real *restrict dx = c->dx[0].data;
    for (int64_t i = begin; i < end; i++) dx[i] = dy[i] * slope(saved[i]);
}

TP_INLINE void map_of(real (*f)(real, real), const tp_call *c, int64_t begin, int64_t end)
{
    const real a = (real)((const tp_unary_attr *)c->attr)->a;
    const real *restrict x = c->x[0].data;
    real *restrict y = c->y[0].data;
    for (int64_t i = begin; i < end; i++) y[i] = f(x[i], a);
}

TP_INLINE void grad_of(real (*slope)(real, real), const tp_call *c, int64_t begin, int64_t end)
{
    const real a = (real)((const tp_unary_attr *)c->attr)->a;
    const real *restrict x = c->x[0].data, *restrict dy = c->dy[0].data;
    real *restrict dx = c->dx[0].data;
    for (int64_t i = begin; i < end; i++) dx[i] = dy[i] * slope(x[i], a);
}

static void no_grad(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    memset((real *)c->dx[0].data + begin, 0, (size_t)(end - begin) * sizeof(real));
}

static tp_code forward(const tp_call *c, tp_call_body body)
{
    tp__for(c, c->x[0].numel, GRAIN, body);
    return TP_OK;
}

static tp_code backward(const tp_call *c, tp_call_body body)
{
    if (c->dx[0].data) tp__for(c, c->x[0].numel, GRAIN, body);
    return TP_OK;
}

#define FORWARD(f, map)                                                                            \
    static void f##_map(const tp_call *c, int64_t begin, int64_t end, int thread)                  \
    {                                                                                              \
        (void)thread;                                                                              \
        map(f##_value, c, begin, end);                                                             \
    }                                                                                              \
    static tp_code f##_fwd(const tp_call *c)                                                       \
    {                                                                                              \
        return forward(c, f##_map);                                                                \
    }
#define BACKWARD(f, grad)                                                                          \
    static void f##_grad(const tp_call *c, int64_t begin, int64_t end, int thread)                 \
    {                                                                                              \
        (void)thread;                                                                              \
        grad(f##_slope, c, begin, end);                                                            \
    }                                                                                              \
    static tp_code f##_bwd(const tp_call *c)                                                       \
    {                                                                                              \
        return backward(c, f##_grad);                                                              \
    }
#define FUNCTION(f)    FORWARD(f, map) BACKWARD(f, grad)
#define FUNCTION_OF(f) FORWARD(f, map_of) BACKWARD(f, grad_of)
#define STEP(f)        FORWARD(f, map)

FUNCTIONS(FUNCTION)
FUNCTIONS_OF(FUNCTION_OF)
STEPS(STEP)

/* ---- sin and cos ---- */

enum { TURNED = 256 }; /* elements of a piece */

/* y = f(x) for n <= TURNED elements. If an x is too large for the loop, a second one corrects its y. */
TP_INLINE void turn(real (*f)(real), double (*exact)(double), const real *restrict x,
                    real *restrict y, int64_t n)
{
    int large = 0;
    for (int64_t i = 0; i < n; i++) {
        y[i] = f(x[i]);
        large |= r_large(x[i]);
    }
    for (int64_t i = 0; large && i < n; i++)
        if (r_large(x[i])) y[i] = (real)exact((double)x[i]);
}

#define TURN(f, of_slope, g)                                                                       \
    static void f##_map(const tp_call *c, int64_t begin, int64_t end, int thread)                  \
    {                                                                                              \
        const real *x = c->x[0].data;                                                              \
        real *y = c->y[0].data;                                                                    \
        (void)thread;                                                                              \
        for (int64_t i = begin; i < end; i += TURNED)                                              \
            turn(r_##f, f, x + i, y + i, end - i < TURNED ? end - i : TURNED);                     \
    }                                                                                              \
    static void f##_grad(const tp_call *c, int64_t begin, int64_t end, int thread)                 \
    {                                                                                              \
        const real *x = c->x[0].data, *restrict from = c->dy[0].data;                              \
        real *restrict dx = c->dx[0].data, slope[TURNED];                                          \
        (void)thread;                                                                              \
        for (int64_t i = begin; i < end; i += TURNED) {                                            \
            const int64_t n = end - i < TURNED ? end - i : TURNED;                                 \
            turn(r_##of_slope, of_slope, x + i, slope, n);                                         \
            for (int64_t j = 0; j < n; j++) {                                                      \
                const real dy = from[i + j];                                                       \
                dx[i + j] = (g)*slope[j];                                                          \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static tp_code f##_fwd(const tp_call *c)                                                       \
    {                                                                                              \
        return forward(c, f##_map);                                                                \
    }                                                                                              \
    static tp_code f##_bwd(const tp_call *c)                                                       \
    {                                                                                              \
        return backward(c, f##_grad);                                                              \
    }

TURNS(TURN)

static tp_code step_bwd(const tp_call *c)
{
    return backward(c, no_grad);
}

/* ---- functions with constants ---- */

static void scale_map(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const real *restrict x = c->x[0].data;
    real *restrict y = c->y[0].data;
    const real k = (real)((const tp_unary_attr *)c->attr)->a;
    (void)thread;
    for (int64_t i = begin; i < end; i++) y[i] = k * x[i];
}

static void scale_grad(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const real *restrict dy = c->dy[0].data;
    real *restrict dx = c->dx[0].data;
    const real k = (real)((const tp_unary_attr *)c->attr)->a;
    (void)thread;
    for (int64_t i = begin; i < end; i++) dx[i] = k * dy[i];
}

static void clamp_map(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const tp_unary_attr *k = c->attr;
    const real *restrict x = c->x[0].data;
    real *restrict y = c->y[0].data;
    const real lo = (real)k->a, hi = (real)k->b;
    (void)thread;
    for (int64_t i = begin; i < end; i++) y[i] = x[i] < lo ? lo : x[i] > hi ? hi : x[i];
}

static void clamp_grad(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const tp_unary_attr *k = c->attr;
    const real *restrict x = c->x[0].data, *restrict dy = c->dy[0].data;
    real *restrict dx = c->dx[0].data;
    const real lo = (real)k->a, hi = (real)k->b;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const real slope = ((x[i] < lo) | (x[i] > hi)) ? 0 : 1;
        dx[i] = dy[i] * slope;
    }
}

static tp_code scale_fwd(const tp_call *c)
{
    return forward(c, scale_map);
}
static tp_code scale_bwd(const tp_call *c)
{
    return backward(c, scale_grad);
}
static tp_code clamp_fwd(const tp_call *c)
{
    return forward(c, clamp_map);
}
static tp_code clamp_bwd(const tp_call *c)
{
    return backward(c, clamp_grad);
}

#define BOTH(f)         TP_CPU_KERNEL(f##_fwd) TP_CPU_KERNEL(f##_bwd)
#define STEP_FORWARD(f) TP_CPU_KERNEL(f##_fwd)
FUNCTIONS(BOTH)
FUNCTIONS_OF(BOTH)
STEPS(STEP_FORWARD)
BOTH(sin)
BOTH(cos)
TP_CPU_KERNEL(step_bwd)
BOTH(scale)
BOTH(clamp)
