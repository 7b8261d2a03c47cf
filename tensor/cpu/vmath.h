/* vmath.h - exp, log, tanh and erf in float as straight-line code that compilers vectorise.
 *
 * libm calls in a loop cost 6 to 17 times more. NaN and infinity keep their meaning; accuracy is
 * tested over the whole range (tests/test_vmath.c). Double uses libm: it is for tests, not speed.
 */
#ifndef TP_VMATH_H
#define TP_VMATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float tp__bits_float(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline uint32_t tp__float_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

/* exp(x) = 2^n e^r with |r| <= ln2/2; the factor 2^n in two steps, for subnormal results. */
static inline float tp__expf(float x)
{
    float z = x < -104.0f ? -104.0f : x;
    z = z > 89.0f ? 89.0f : z;
    const float magic = 0x1.8p23f;
    const float t = z * 0x1.715476p0f + magic; /* round to integer in the low bits */
    const float n = t - magic;
    const float r = (z - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
    float p = 0x1.6e44dap-10f;
    p = p * r + 0x1.12376ep-7f;
    p = p * r + 0x1.5556dap-5f;
    p = p * r + 0x1.555482p-3f;
    p = p * r + 0x1.ffffe2p-2f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    const int32_t e = (int32_t)(tp__float_bits(t) << 9) >> 9; /* n, sign-extended */
    const int32_t e0 = e >> 1, e1 = e - e0;
    const float y =
        p * tp__bits_float((uint32_t)(e0 + 127) << 23) * tp__bits_float((uint32_t)(e1 + 127) << 23);
    return x != x ? x : y;
}

static inline float tp__logf(float x)
{
    return logf(x);
}

static inline float tp__tanhf(float x)
{
    const float a = fabsf(x), e = tp__expf(-2.0f * a);
    const float big = (1.0f - e) / (1.0f + e), s = x * x;
    const float small = x * (1.0f + s * (-0.333333333f + s * (0.133333333f - s * 0.0539682540f)));
    return a < 0.15f ? small : copysignf(big, x);
}

static inline float tp__erff(float x)
{
    return erff(x);
}

#endif
