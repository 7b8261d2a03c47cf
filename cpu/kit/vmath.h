/* vmath.h - exp, expm1, log, log1p, tanh, pow, sin, cos and the normal distribution in float as
 * straight-line code that vectorises.
 *
 * libm calls in a loop cost 6 to 17 times more. Each function is exact at its special values
 * (signed zeros, infinities, NaN) and correct for subnormal arguments and results. Largest errors
 * over all floats, with and without fused multiply-add: exp 1.02 ulp, expm1 1.49 ulp, log 0.9 ulp,
 * log1p 1.44 ulp, tanh 1.5 ulp, pow 0.6 ulp, sin and cos 1.45 ulp, the normal distribution 0.65 ulp
 * of 1 (tests/tensor/test_vmath.c). Coefficients are minimax fits, rounded to float. Double uses
 * libm, since it only serves tests. */
#ifndef TP_VMATH_H
#define TP_VMATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* For functions that must be inlined for the calling loop to vectorise. */
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

/* e^x for a softmax: x is below 88, and results below e^-87 are 0. Saves a quarter of the work. */
TP_INLINE float tp__exp_lowf(float x)
{
    int32_t n;
    const float z = x < -87.0f ? -87.0f : x;
    const float p = tp__exp_rest(z, &n) + 1.0f;
    const float y = p * tp__power_of_2(n);
    return x < -87.0f ? 0.0f : y;
}

/* e^x - 1 = 2^n (e^r - 1) + (2^n - 1), halved so that 2^n does not overflow before the result; for
 * n = 0 that would round subnormal results. */
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

/* log1p between -1 and infinity: log(u) for u = 1 + x rounded, corrected for the rounding. */
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

/* An odd polynomial for |x| < 0.55, else 1 - 2 / (e^(2|x|) + 1). */
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

TP_INLINE double tp__bits_double(uint64_t u)
{
    double d;
    memcpy(&d, &u, sizeof d);
    return d;
}

TP_INLINE uint64_t tp__double_bits(double d)
{
    uint64_t u;
    memcpy(&u, &d, sizeof u);
    return u;
}

/* sin and cos take |x| up to TP_TURNS only: for larger x, which is rare, callers use libm. */
#define TP_TURNS 0x1p25f

/* sin(x + first pi/2). x = n pi/2 + r with |r| <= pi/4, in double: pi/2 in two parts, the first
 * with so few digits that n times it is exact; n is in the low bits of t. */
TP_INLINE float tp__sine(float x, uint32_t first)
{
    const double d = (double)x, magic = 0x1.8p52;
    const double t = d * 0x1.45f306dc9c883p-1 + magic, n = t - magic;
    const float r = (float)((d - n * 0x1.921fb54p+0) - n * 0x1.10b4611a62633p-30), z = r * r;
    const uint32_t quarter = (uint32_t)tp__double_bits(t) + first;
    float p = 0x1.6dbe3p-19f; /* (sin(r) / r - 1) / r^2 */
    p = p * z - 0x1.a013a8p-13f;
    p = p * z + 0x1.11110ep-7f;
    p = p * z - 0x1.555556p-3f;
    float q = 0x1.9bd8ecp-16f; /* (cos(r) - 1 + r^2/2) / r^4 */
    q = q * z - 0x1.6c12d4p-10f;
    q = q * z + 0x1.555554p-5f;
    const float odd = p * z * r + r, even = q * (z * z) - 0.5f * z + 1.0f;
    const float v = quarter & 1u ? even : odd;
    return quarter & 2u ? -v : v;
}

TP_INLINE float tp__sinf(float x)
{
    const float y = tp__sine(x, 0);
    return x == 0.0f ? x : y;
}

TP_INLINE float tp__cosf(float x)
{
    return tp__sine(x, 1);
}

/* x^y = 2^(y log2 |x|) with C's signs and special values, in double: the logarithm needs the digits
 * of the result and its exponent. |x| = 2^k m with sqrt(1/2) <= m < sqrt(2); log2 m = s P(s^2) with
 * s = (m - 1) / (m + 1). Integers of 64 bits become double through their low bits, as AVX2 has no
 * conversion. */
TP_INLINE float tp__powf(float x, float y)
{
    const uint64_t sqrt_half = 0x3fe6a09e667f3bcdu, one = 0x3ff0000000000000u;
    const double a = fabs((double)x), e = (double)y;
    const uint64_t u = tp__double_bits(a);
    const uint64_t k = (u - sqrt_half + one) >> 52; /* the exponent + 1023 */
    const double m = tp__bits_double(u - (k << 52) + one);
    const double whole = tp__bits_double(k | 0x4330000000000000u) - (0x1p52 + 1023.0);
    const double s = (m - 1.0) / (m + 1.0), z = s * s;
    double p = 0x1.21b5261aae3dap-2;
    p = p * z + 0x1.4795084da6141p-2;
    p = p * z + 0x1.a61a30beb13cfp-2;
    p = p * z + 0x1.2776c2909a8bap-1;
    p = p * z + 0x1.ec709dc53f327p-1;
    p = p * z + 0x1.71547652b824cp+1;
    double log2a = s * p + whole;
    log2a = a == 0.0 ? -(double)INFINITY : a < 0x1p200 ? log2a : a; /* infinity, NaN */
    double w = e * log2a;
    w = w < -160.0 ? -160.0 : w; /* rounds to 0 */
    w = w > 130.0 ? 130.0 : w;   /* overflows */
    const double magic = 0x1.8p52, t = w + magic;
    const double f = w - (t - magic);
    double q = 0x1.41d32db2a0000p-13; /* 2^f */
    q = q * f + 0x1.5f456b23a7000p-10;
    q = q * f + 0x1.3b2dbbcb51800p-7;
    q = q * f + 0x1.c6aed4b82b770p-5;
    q = q * f + 0x1.ebfbdadc9ec1cp-3;
    q = q * f + 0x1.62e430c7e9f0fp-1;
    q = q * f + 0x1.0000000261590p+0;
    float v = (float)tp__bits_double(tp__double_bits(q) + (tp__double_bits(t) << 52));
    const float size = fabsf(y), half = 0.5f * size;
    const int whole_y = floorf(size) == size, odd = whole_y & (floorf(half) != half);
    v = ((a == 1.0) & (size == INFINITY)) ? 1.0f : v;
    v = ((x < 0.0f) & !whole_y & (x > -INFINITY) & (y == y)) ? NAN : v;
    v = (odd & (int)(tp__float_bits(x) >> 31)) ? -v : v;
    return ((y == 0.0f) | (x == 1.0f)) ? 1.0f : v;
}

/* The density of the normal distribution at x, and in *below its integral up to x. Both derive from
 * one g = e^(-x^2/2): the integral from |x| on is g times a slowly falling function, fitted with
 * the weight g. The fit has even degree, so it stays positive in its rough tail. g needs neither
 * the range nor the last bits of tp__expf, which would make a dense layer with GELU a tenth
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
