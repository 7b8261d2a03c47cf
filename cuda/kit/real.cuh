/* real.cuh - the type of arithmetic and its functions, by the names of tensor/cpu/kit/real.h, for formulas
 * that both backends expand. */
#ifndef TP_REAL_CUH
#define TP_REAL_CUH

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

#endif
