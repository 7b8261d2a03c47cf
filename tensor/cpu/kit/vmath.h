/* vmath.h - exp, expm1, log, log1p, tanh and the normal distribution in float as straight-line code
 * that compilers vectorise.
 *
 * libm calls in a loop cost 6 to 17 times more. Each function is exact at its special values
 * (signed zeros, infinities, NaN) and correct for subnormal arguments and results. Largest errors
 * over all floats, with and without fused multiply-add: exp 1.02 ulp, expm1 1.49 ulp, log 0.9 ulp,
 * log1p 1.44 ulp, tanh 1.5 ulp, the normal distribution 0.65 ulp of 1 (tests/test_vmath.c).
 * Coefficients are minimax fits, rounded to float. Double uses libm: it is for tests, not for speed. */
#ifndef TP_VMATH_H
#define TP_VMATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* For functions that must be inlined into a loop for the loop to vectorise. */
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

/* x = n ln2 + r with |r| <= ln2/2, for |x| < 2^22: returns e^r - 1 and n. */
TP_INLINE float tp__exp_rest(float x, int32_t *whole)
{
    const float magic = 0x1.8p23f;
    const float t = x * 0x1.715476p0f + magic; /* n = x/ln2, rounded into the low bits of t */
    const float n = t - magic;
    const float r = (x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f; /* ln2 in two parts */
    float p = 0x1.6a4154p-10f;                                    /* (e^r - 1 - r) / r^2 */
    p = p * r + 0x1.1239c6p-7f;
    p = p * r + 0x1.5558bcp-5f;
    p = p * r + 0x1.555492p-3f;
    p = p * r + 0x1.fffffcp-2f;
    *whole = (int32_t)(tp__float_bits(t) - tp__float_bits(magic));
    return p * (r * r) + r;
}

TP_INLINE float tp__power_of_2(int32_t n)
{
    return tp__bits_float((uint32_t)(n + 127) << 23);
}

/* The factor 2^n is applied in two steps, for subnormal results. The comparisons propagate NaN. */
TP_INLINE float tp__expf(float x)
{
    int32_t n;
    float z = x < -104.0f ? -104.0f : x; /* e^-104 rounds to 0, e^89 overflows to infinity */
    z = z > 89.0f ? 89.0f : z;
    const float p = tp__exp_rest(z, &n) + 1.0f;
    return p * tp__power_of_2(n >> 1) * tp__power_of_2(n - (n >> 1));
}

/* e^x - 1 = 2^n (e^r - 1) + (2^n - 1), halved so that 2^n does not overflow before the result; with n = 0
 * that would round subnormal results. */
TP_INLINE float tp__expm1f(float x)
{
    int32_t n;
    float z = x < -18.0f ? -18.0f : x; /* e^-18 - 1 rounds to -1 */
    z = z > 89.0f ? 89.0f : z;
    const float q = tp__exp_rest(z, &n);
    const float half = tp__power_of_2(n - 1);
    const float large = 2.0f * (half * q + (half - 0.5f));
    return copysignf(n == 0 ? q : large, x);
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

/* log1p between -1 and infinity: log(u) for the rounded u = 1 + x, corrected by the rest of the sum. */
TP_INLINE float tp__log1p_finitef(float x)
{
    const float u = 1.0f + x, rest = x - (u - 1.0f);
    return tp__logf(u) + rest / u;
}

TP_INLINE float tp__log1pf(float x)
{
    const float y = tp__log1p_finitef(x);
    return x == 0.0f || x == INFINITY ? x : x == -1.0f ? -INFINITY : y;
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

/* The density of the normal distribution at x, and in *below its integral up to x. Both derive from
 * one g = e^(-x^2/2): the integral from |x| on is g times a slowly falling function, fitted with
 * the weight g. The fit has even degree, so it stays positive far out, where it is rough. g needs
 * neither the range nor the last bits of tp__expf, which would make a dense layer with GELU a tenth
 * slower. */
TP_INLINE float tp__gaussf(float x, float *below)
{
    const float a = fabsf(x), t = a > 13.27f ? 13.27f : a; /* where g becomes 0 */
    const float magic = 0x1.8p23f;
    const float z = t * t * -0x1.715476p-1f; /* log2 g = n + f, n in the low bits of s */
    const float s = z + magic;
    const float f = z - (s - magic);
    float g = 0x1.41fbbcp-13f; /* 2^f */
    g = g * f + 0x1.5f3e52p-10f;
    g = g * f + 0x1.3b2d4cp-7f;
    g = g * f + 0x1.c6aee8p-5f;
    g = g * f + 0x1.ebfbdcp-3f;
    g = g * f + 0x1.62e430p-1f;
    g = g * f + 1.0f;
    g *= tp__bits_float((tp__float_bits(s) + 127u) << 23);
    float p = 0x1.0188e8p-24f; /* e^(t^2/2) / sqrt(2 pi) times the integral from t on */
    p = p * t - 0x1.b7726cp-20f;
    p = p * t + 0x1.536a98p-16f;
    p = p * t - 0x1.3e34bep-13f;
    p = p * t + 0x1.9c7312p-11f;
    p = p * t - 0x1.92a5b4p-9f;
    p = p * t + 0x1.3d6380p-7f;
    p = p * t - 0x1.ab8fc6p-6f;
    p = p * t + 0x1.fe3378p-5f;
    p = p * t - 0x1.103a88p-3f;
    p = p * t + 0x1.fffc2cp-3f;
    p = p * t - 0x1.98843ep-2f;
    p = p * t + 0.5f;
    const float beyond = g * p;
    *below = x < 0.0f ? beyond : 1.0f - beyond;
    return g * 0x1.988454p-2f; /* 1/sqrt(2 pi) */
}

TP_INLINE double tp__gauss(double x, double *below)
{
    *below = 0.5 * erfc(-x * 0.70710678118654752);
    return 0.39894228040143268 * exp(-0.5 * x * x);
}

#endif
