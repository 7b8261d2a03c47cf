/* activation.cuh - activations and their derivatives in float, by the CPU's formulas. A slope is the
 * derivative at the input x; comparisons propagate NaN. */
#ifndef TP_ACTIVATION_CUH
#define TP_ACTIVATION_CUH

#include "cuda/kit/kernel.cuh"

static __device__ inline float tp_logistic(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* The derivative of x s(u(x)) with s = s(u) and du = u'. */
static __device__ inline float tp_gated_slope(float x, float s, float du)
{
    return s + x * du * s * (1.0f - s);
}

static __device__ inline float tp_normal_cdf(float x)
{
    return 0.5f * (1.0f + erff(x * 0.70710678118654752f));
}

static __device__ inline float tp_relu_f(float x)
{
    return x < 0.0f ? 0.0f : x;
}

static __device__ inline float tp_gelu_f(float x)
{
    return x * tp_normal_cdf(x);
}
static __device__ inline float tp_gelu_slope(float x)
{
    return tp_normal_cdf(x) + x * 0.39894228040143268f * expf(-0.5f * x * x); /* 1/sqrt(2 pi) */
}

static __device__ inline float tp_quick_gelu_f(float x)
{
    return x * tp_logistic(1.702f * x);
}
static __device__ inline float tp_quick_gelu_slope(float x)
{
    return tp_gated_slope(x, tp_logistic(1.702f * x), 1.702f);
}

#endif
