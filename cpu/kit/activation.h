/* activation.h - gelu and the activations of tensor/geometry/formulas.h, inlined into loops over
 * `real` so that they vectorise.
 *
 *     gelu        x P(x), P the cumulative normal distribution */
#ifndef TP_ACTIVATION_H
#define TP_ACTIVATION_H

#include "cpu/kit/real.h"

#define TP_FORMULA TP_INLINE
#include "tensor/geometry/formulas.h"

/* Returns the value. The slope adds little cost. */
TP_INLINE real gelu_both(real x, real *slope)
{
    real below;
    const real density = r_gauss(x, &below);
    *slope = below + x * density;
    return x * below;
}

TP_INLINE real quick_gelu_both(real x, real *slope)
{
    *slope = quick_gelu_slope(x);
    return quick_gelu_value(x);
}

TP_INLINE real silu_both(real x, real *slope)
{
    *slope = silu_slope(x);
    return silu_value(x);
}

TP_INLINE real gelu_tanh_both(real x, real *slope)
{
    *slope = gelu_tanh_slope(x);
    return gelu_tanh_value(x);
}

TP_INLINE real tanh_both(real x, real *slope)
{
    *slope = tanh_slope(x);
    return r_tanh(x);
}

TP_INLINE real sigmoid_both(real x, real *slope)
{
    *slope = sigmoid_slope(x);
    return logistic(x);
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

#endif
