/* vmath.h - exp, log, tanh and erf in float as straight-line code that compilers vectorise.
 *
 * libm calls in a loop cost 6 to 17 times more. Each function is exact at its special values
 * (signed zeros, infinities, NaN) and right for subnormal arguments and results. Largest errors
 * over all floats, with and without fused multiply-add: exp 1.02 ulp, log 0.9 ulp, tanh 1.5 ulp,
 * erf 1.3 ulp (tests/test_vmath.c). Coefficients are minimax fits of the relative error, rounded to
 * float one after the other. Double uses libm: it is for tests, not for speed. */
#ifndef TP_VMATH_H
#define TP_VMATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* For what must be inlined into a loop for the loop to vectorise. */
#define TP_INLINE static inline __attribute__((always_inline))

TP_INLINE float tp__bits_float(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

TP_INLINE uint32_t tp__float_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

/* exp(x) = 2^n e^r with |r| <= ln2/2; the factor 2^n in two steps, for subnormal results. The
 * comparisons are written so that NaN passes through. */
TP_INLINE float tp__expf(float x)
{
    float z = x < -104.0f ? -104.0f : x; /* e^-104 rounds to 0, e^89 overflows to infinity */
    z = z > 89.0f ? 89.0f : z;
    const float magic = 0x1.8p23f;
    const float t = z * 0x1.715476p0f + magic; /* n = x/ln2, rounded into the low bits of t */
    const float n = t - magic;
    const float r = (z - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f; /* ln2 in two parts */
    float p = 0x1.6a4154p-10f;                                    /* (e^r - 1 - r) / r^2 */
    p = p * r + 0x1.1239c6p-7f;
    p = p * r + 0x1.5558bcp-5f;
    p = p * r + 0x1.555492p-3f;
    p = p * r + 0x1.fffffcp-2f;
    p = p * (r * r) + r + 1.0f;
    const int32_t e = (int32_t)(tp__float_bits(t) << 9) >> 9; /* n, sign-extended */
    const int32_t e0 = e >> 1, e1 = e - e0;
    return p * tp__bits_float((uint32_t)(e0 + 127) << 23) *
           tp__bits_float((uint32_t)(e1 + 127) << 23);
}

/* log(x) = k ln2 + log(1 + f) with sqrt(1/2) <= 1 + f < sqrt(2). */
TP_INLINE float tp__logf(float x)
{
    const uint32_t sqrt_half = 0x3f3504f3u;
    const float tiny = 0x1p-126f;
    const uint32_t u = tp__float_bits(x < tiny ? x * 0x1p23f : x);
    const int32_t k = (int32_t)(u - sqrt_half) >> 23;
    const float f = tp__bits_float(u - ((uint32_t)k << 23)) - 1.0f;
    const float n = (float)k - (x < tiny ? 23.0f : 0.0f);
    float p = -0x1.38c9dep-4f; /* (log(1 + f) - f + f^2/2) / f^3 */
    p = p * f + 0x1.055ec6p-3f;
    p = p * f - 0x1.0d8242p-3f;
    p = p * f + 0x1.22d92ep-3f;
    p = p * f - 0x1.54728ap-3f;
    p = p * f + 0x1.99a01cp-3f;
    p = p * f - 0x1.000226p-2f;
    p = p * f + 0x1.555554p-2f;
    const float s = f * f;
    const float low = (p * f) * s + n * 0x1.7f7d1cp-20f; /* ln2 in the two parts of tp__expf */
    const float y = n * 0x1.62e4p-1f + (f - (0.5f * s - low));
    const float outside = x == 0.0f ? -INFINITY : NAN;
    return x > 0.0f ? (x < INFINITY ? y : x) : outside;
}

/* An odd polynomial for |x| < 0.55, beyond it 1 - 2 / (e^(2|x|) + 1). */
TP_INLINE float tp__tanhf(float x)
{
    const float a = fabsf(x), s = x * x;
    const float large = 1.0f - 2.0f / (tp__expf(2.0f * a) + 1.0f);
    float p = -0x1.995794p-8f; /* (tanh(x) / x - 1) / x^2 */
    p = p * s + 0x1.58ec9cp-6f;
    p = p * s - 0x1.b91f22p-5f;
    p = p * s + 0x1.110cf0p-3f;
    p = p * s - 0x1.55554ap-2f;
    const float small = p * s * x + x;
    return copysignf(a < 0.55f ? small : large, x);
}

/* An odd polynomial for |x| < 15/16, beyond it 1 - e^-q(|x|); from 4 on the result is 1. */
TP_INLINE float tp__erff(float x)
{
    const float a = fabsf(x), s = x * x;
    float p = -0x1.36ae98p-11f; /* erf(x) / x - 1 */
    p = p * s + 0x1.466bdcp-8f;
    p = p * s - 0x1.b669c6p-6f;
    p = p * s + 0x1.ce1858p-4f;
    p = p * s - 0x1.8126dcp-2f;
    p = p * s + 0x1.06eba6p-3f;
    const float small = p * x + x;
    const float t = a > 4.0f ? 4.0f : a;
    float q = -0x1.bf79b0p-13f; /* -log(1 - erf(t)) / t */
    q = q * t + 0x1.a4ba4ap-9f;
    q = q * t - 0x1.76c340p-6f;
    q = q * t + 0x1.af0c4ep-4f;
    q = q * t + 0x1.457f6cp-1f;
    q = q * t + 0x1.20e5f0p+0f;
    const float large = 1.0f - tp__expf(-q * t);
    return copysignf(a < 0.9375f ? small : large, x);
}

#endif
