/* activation.cuh - activations of tensor/geometry/formulas.h and gelu, in float. The formulas,
 * which both backends expand, use the names of cpu/kit/real.h. */
#ifndef TP_ACTIVATION_CUH
#define TP_ACTIVATION_CUH

#include "cuda/kit/kernel.cuh"

typedef float real;
#define RC(x)          x##f
#define r_exp          expf
#define r_expm1        expm1f
#define r_log          logf
#define r_log1p        log1pf
#define r_log1p_finite log1pf
#define r_tanh         tanhf
#define r_sqrt         sqrtf
#define r_abs          fabsf
#define r_floor        floorf
#define r_sin          sinf
#define r_cos          cosf
#define r_round        rintf /* halves to even */

/* x^0 is 1 and x^1 x; other powers by CUDA's powf, with C's special values. */
static __device__ inline float r_pow(float a, float b)
{
    return b == 2.0f ? a * a : b == 1.0f ? a : powf(a, b);
}

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
