/* activation.cuh - activations of tensor/geometry/formulas.h and gelu, in float. */
#ifndef TP_ACTIVATION_CUH
#define TP_ACTIVATION_CUH

#include "cuda/kit/real.cuh"

#define TP_FORMULA static __device__ inline
#include "tensor/geometry/formulas.h"

static __device__ inline float normal_cdf(float x)
{
    return 0.5f * (1.0f + erff(x * 0.70710678118654752f));
}

static __device__ inline float gelu_value(float x)
{
    return x * normal_cdf(x);
}

static __device__ inline float gelu_slope(float x)
{
    return normal_cdf(x) + x * 0.39894228040143268f * expf(-0.5f * x * x); /* 1/sqrt(2 pi) */
}

#endif
