/* activation.h - activations and their derivatives, inlined into loops over `real` that vectorise.
 * A slope is the derivative at the input x; comparisons propagate NaN.
 *
 *     relu        max(x, 0), slope 0 at 0
 *     gelu        x P(x), P the integral of the normal distribution up to x
 *     quick_gelu  x s(1.702 x), s the logistic function
 *     silu        x s(x) */
#ifndef TP_ACTIVATION_H
#define TP_ACTIVATION_H

#include "tensor/cpu/kit/real.h"

TP_INLINE real logistic(real x)
{
    return 1 / (1 + r_exp(-x));
}

/* The derivative of x s(u(x)) with s = s(u) and du = u'. */
TP_INLINE real gated_slope(real x, real s, real du)
{
    return s + x * du * s * (1 - s);
}

TP_INLINE real relu_value(real x)
{
    return x < 0 ? 0 : x;
}

TP_INLINE real relu_slope(real x)
{
    return x > 0 ? 1 : 0;
}

/* Returns the value. The slope adds little to the cost. */
TP_INLINE real gelu_both(real x, real *slope)
{
    real below;
    const real density = r_gauss(x, &below);
    *slope = below + x * density;
    return x * below;
}

TP_INLINE real quick_gelu_both(real x, real *slope)
{
    const real s = logistic(RC(1.702) * x);
    *slope = gated_slope(x, s, RC(1.702));
    return x * s;
}

TP_INLINE real silu_both(real x, real *slope)
{
    const real s = logistic(x);
    *slope = gated_slope(x, s, 1);
    return x * s;
}

TP_INLINE real gelu_value(real x)
{
    real slope;
    return gelu_both(x, &slope);
}

TP_INLINE real gelu_slope(real x)
{
    real slope;
    gelu_both(x, &slope);
    return slope;
}

TP_INLINE real quick_gelu_value(real x)
{
    real slope;
    return quick_gelu_both(x, &slope);
}

TP_INLINE real quick_gelu_slope(real x)
{
    real slope;
    quick_gelu_both(x, &slope);
    return slope;
}

#endif
