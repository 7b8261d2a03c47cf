/* unary.cu - elementwise functions of one operand; formulas as in tensor/cpu/unary.c.
 *
 *     y = f(x);   dx = dy f'   with f' computed from what the op saved, x or y
 *
 * Moves 8 bytes per element forward, 12 backward (f32): bound by memory. A new function is a line
 * in the table. */
#include "cuda/kit/activation.cuh"
#include "cuda/kit/map.cuh"
#include "tensor/geometry/elementwise.h"

static __device__ inline float gelu_2u(float x)
{
    return 1.5957691216057308f * (x + 0.044715f * x * x * x); /* 2 sqrt(2/pi) */
}
static __device__ inline float gelu_2u_slope(float x)
{
    return 1.5957691216057308f * (1.0f + 0.134145f * x * x);
}

/* Mish is x t with t = tanh(log(1 + e^x)) = w / (w + 2), w = e^x (e^x + 2); from 20 on t is 1. */
static __device__ inline float mish_gate(float x)
{
    const float e = expf(x > 20.0f ? 20.0f : x), w = e * (e + 2.0f);
    return w / (w + 2.0f);
}
static __device__ inline float mish_slope(float x, float t)
{
    return t + x * (1.0f - t * t) * tp_logistic(x);
}

/* f(name, value at x, slope): the slope is a function of v, the x or y that the op saves. */
/* clang-format off */
#define FUNCTIONS(f)                                                                               \
    f(exp,        expf(x),                         v)                                              \
    f(log,        logf(x),                         1.0f / v)                                       \
    f(sqrt,       sqrtf(x),                        0.5f / v)                                       \
    f(square,     x * x,                           2.0f * v)                                       \
    f(abs,        fabsf(x),                        (float)((v > 0.0f) - (v < 0.0f)))               \
    f(relu,       tp_relu_f(x),                    v > 0.0f ? 1.0f : 0.0f)                         \
    f(gelu,       tp_gelu_f(x),                    tp_gelu_slope(v))                               \
    f(gelu_tanh,  x * tp_logistic(gelu_2u(x)),                                                     \
                  tp_gated_slope(v, tp_logistic(gelu_2u(v)), gelu_2u_slope(v)))                    \
    f(quick_gelu, tp_quick_gelu_f(x),              tp_quick_gelu_slope(v))                         \
    f(hardswish,  x < -3.0f ? 0.0f : x > 3.0f ? x : x * (x + 3.0f) / 6.0f,                         \
                  v < -3.0f ? 0.0f : v > 3.0f ? 1.0f : (2.0f * v + 3.0f) / 6.0f)                   \
    f(silu,       x * tp_logistic(x),              tp_gated_slope(v, tp_logistic(v), 1.0f))        \
    f(sigmoid,    tp_logistic(x),                  v * (1.0f - v))                                 \
    f(mish,       x * mish_gate(x),                mish_slope(v, mish_gate(v)))                    \
    f(tanh,       tanhf(x),                        1.0f - v * v)                                   \
    f(softplus,   tp_relu_f(x) + log1pf(expf(-fabsf(x))), tp_logistic(v))                          \
    f(expm1,      expm1f(x),                       v + 1.0f)                                       \
    f(log1p,      log1pf(x),                       1.0f / (1.0f + v))                              \
    f(sin,        sinf(x),                         cosf(v))                                        \
    f(cos,        cosf(x),                         -sinf(v))                                       \
    f(reciprocal, 1.0f / x,                        -v * v)                                         \
    f(rsqrt,      1.0f / sqrtf(x),                 -0.5f * v * v * v)
/* f(name, value at x): the slope is 0. */
#define STEPS(f)                                                                                   \
    f(floor, floorf(x))                                                                            \
    f(round, rintf(x)) /* halves to even */                                                        \
    f(sign,  x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x)
/* f(name, value at x, slope at x) of functions with a constant a. */
#define FUNCTIONS_OF(f)                                                                            \
    f(leaky_relu, x > 0.0f ? x : a * x,            x > 0.0f ? 1.0f : a)                            \
    f(elu,        x > 0.0f ? x : a * expm1f(x),    x > 0.0f ? 1.0f : a * expf(x))
/* clang-format on */

#define KERNELS(name, value, slope)                                                                \
    struct name##_value {                                                                          \
        __device__ float operator()(float x) const { return value; }                               \
    };                                                                                             \
    struct name##_grad {                                                                           \
        __device__ float operator()(float dy, float v) const { return dy * (slope); }              \
    };                                                                                             \
    template <class S> static tp_code name##_fwd(const tp_call *c)                                 \
    {                                                                                              \
        return tp_map(c, c->x[0].numel, name##_value(), tp_out<S>(&c->y[0]), tp_in<S>(&c->x[0]));  \
    }                                                                                              \
    template <class S> static tp_code name##_bwd(const tp_call *c)                                 \
    {                                                                                              \
        const tp_view *saved = c->x[0].data ? &c->x[0] : &c->y[0];                                 \
        if (!c->dx[0].data) return TP_OK;                                                          \
        return tp_map(c, saved->numel, name##_grad(), tp_out<S>(&c->dx[0]), tp_in<S>(&c->dy[0]),   \
                      tp_in<S>(saved));                                                            \
    }                                                                                              \
    TP_CUDA_KERNEL(name##_fwd)                                                                     \
    TP_CUDA_KERNEL(name##_bwd)

FUNCTIONS(KERNELS)

#define STEP(name, value)                                                                          \
    struct name##_value {                                                                          \
        __device__ float operator()(float x) const { return value; }                               \
    };                                                                                             \
    template <class S> static tp_code name##_fwd(const tp_call *c)                                 \
    {                                                                                              \
        return tp_map(c, c->x[0].numel, name##_value(), tp_out<S>(&c->y[0]), tp_in<S>(&c->x[0]));  \
    }                                                                                              \
    TP_CUDA_KERNEL(name##_fwd)

STEPS(STEP)

struct no_slope {
    __device__ float operator()(float) const { return 0.0f; }
};

template <class S> static tp_code step_bwd(const tp_call *c)
{
    if (!c->dx[0].data) return TP_OK;
    return tp_map(c, c->dx[0].numel, no_slope(), tp_out<S>(&c->dx[0]), tp_in<S>(&c->dy[0]));
}
TP_CUDA_KERNEL(step_bwd)

/* ---- functions with constants ---- */

static tp_unary_attr constants(const tp_call *c)
{
    return *static_cast<const tp_unary_attr *>(c->attr);
}

#define KERNELS_OF(name, value, slope)                                                             \
    struct name##_value {                                                                          \
        float a;                                                                                   \
        __device__ float operator()(float x) const { return value; }                               \
    };                                                                                             \
    struct name##_grad {                                                                           \
        float a;                                                                                   \
        __device__ float operator()(float dy, float x) const { return dy * (slope); }              \
    };                                                                                             \
    template <class S> static tp_code name##_fwd(const tp_call *c)                                 \
    {                                                                                              \
        const name##_value f = { (float)constants(c).a };                                          \
        return tp_map(c, c->x[0].numel, f, tp_out<S>(&c->y[0]), tp_in<S>(&c->x[0]));               \
    }                                                                                              \
    template <class S> static tp_code name##_bwd(const tp_call *c)                                 \
    {                                                                                              \
        const name##_grad f = { (float)constants(c).a };                                           \
        if (!c->dx[0].data) return TP_OK;                                                          \
        return tp_map(c, c->x[0].numel, f, tp_out<S>(&c->dx[0]), tp_in<S>(&c->dy[0]),              \
                      tp_in<S>(&c->x[0]));                                                         \
    }                                                                                              \
    TP_CUDA_KERNEL(name##_fwd)                                                                     \
    TP_CUDA_KERNEL(name##_bwd)

FUNCTIONS_OF(KERNELS_OF)

struct scaled {
    float k;
    __device__ float operator()(float x) const { return k * x; }
};

struct clamped {
    float lo, hi;
    __device__ float operator()(float x) const { return x < lo ? lo : x > hi ? hi : x; }
};

struct clamp_grad {
    float lo, hi;
    __device__ float operator()(float dy, float x) const
    {
        return dy * (x < lo || x > hi ? 0.0f : 1.0f);
    }
};

template <class S> static tp_code scale_fwd(const tp_call *c)
{
    const scaled f = { (float)constants(c).a };
    return tp_map(c, c->x[0].numel, f, tp_out<S>(&c->y[0]), tp_in<S>(&c->x[0]));
}

template <class S> static tp_code scale_bwd(const tp_call *c)
{
    const scaled f = { (float)constants(c).a };
    if (!c->dx[0].data) return TP_OK;
    return tp_map(c, c->x[0].numel, f, tp_out<S>(&c->dx[0]), tp_in<S>(&c->dy[0]));
}

template <class S> static tp_code clamp_fwd(const tp_call *c)
{
    const clamped f = { (float)constants(c).a, (float)constants(c).b };
    return tp_map(c, c->x[0].numel, f, tp_out<S>(&c->y[0]), tp_in<S>(&c->x[0]));
}

template <class S> static tp_code clamp_bwd(const tp_call *c)
{
    const clamp_grad f = { (float)constants(c).a, (float)constants(c).b };
    if (!c->dx[0].data) return TP_OK;
    return tp_map(c, c->x[0].numel, f, tp_out<S>(&c->dx[0]), tp_in<S>(&c->dy[0]),
                  tp_in<S>(&c->x[0]));
}

TP_CUDA_KERNEL(scale_fwd)
TP_CUDA_KERNEL(scale_bwd)
TP_CUDA_KERNEL(clamp_fwd)
TP_CUDA_KERNEL(clamp_bwd)
