/* formulas.h - building blocks of the formulas of functions.h, defined once for all backends. A
 * slope is the derivative at the input x; comparisons propagate NaN.
 *
 *     relu        max(x, 0), slope 0 at 0
 *     quick_gelu  x s(1.702 x), s the logistic function
 *     silu        x s(x)
 *
 * Included by cpu/kit/activation.h and cuda/kit/activation.cuh, which first define TP_FORMULA (how
 * such a function is declared), real, RC, r_exp and r_tanh, and afterwards gelu, since they
 * approximate erf differently. */
#ifndef TP_FORMULAS_H
#define TP_FORMULAS_H

#include <stdbool.h>

TP_FORMULA real logistic(real x)
{
    return 1 / (1 + r_exp(-x));
}

/* The derivative of x s(u(x)) with s = s(u) and du = u'. */
TP_FORMULA real gated_slope(real x, real s, real du)
{
    return s + x * du * s * (1 - s);
}

TP_FORMULA real relu_value(real x)
{
    return x < 0 ? 0 : x;
}

TP_FORMULA real relu_slope(real x)
{
    return x > 0 ? RC(1.0) : RC(0.0);
}

TP_FORMULA real quick_gelu_value(real x)
{
    return x * logistic(RC(1.702) * x);
}

TP_FORMULA real quick_gelu_slope(real x)
{
    return gated_slope(x, logistic(RC(1.702) * x), RC(1.702));
}

TP_FORMULA real silu_value(real x)
{
    return x * logistic(x);
}

TP_FORMULA real silu_slope(real x)
{
    return gated_slope(x, logistic(x), 1);
}

/* The tanh approximation of gelu, x/2 (1 + tanh u), is x s(2u), which keeps small results exact. */
TP_FORMULA real gelu_2u(real x)
{
    return RC(1.5957691216057308) * (x + RC(0.044715) * x * x * x); /* 2 sqrt(2/pi) */
}

TP_FORMULA real gelu_2u_slope(real x)
{
    return RC(1.5957691216057308) * (1 + RC(0.134145) * x * x);
}

TP_FORMULA real gelu_tanh_value(real x)
{
    return x * logistic(gelu_2u(x));
}

TP_FORMULA real gelu_tanh_slope(real x)
{
    return gated_slope(x, logistic(gelu_2u(x)), gelu_2u_slope(x));
}

TP_FORMULA real sigmoid_slope(real x)
{
    const real y = logistic(x);
    return y * (1 - y);
}

TP_FORMULA real tanh_slope(real x)
{
    const real y = r_tanh(x);
    return 1 - y * y;
}

/* Mish is x t with t = tanh(log(1 + e^x)) = w / (w + 2), w = e^x (e^x + 2); from 20 on t is 1. */
TP_FORMULA real mish_gate(real x)
{
    const real e = r_exp(x > 20 ? 20 : x), w = e * (e + 2);
    return w / (w + 2);
}

TP_FORMULA real mish_slope(real x, real t)
{
    return t + x * (1 - t * t) * logistic(x);
}

/* None, half or all of a gradient. */
TP_FORMULA real share(real dy, bool none, bool half)
{
    return none ? RC(0.0) : half ? RC(0.5) * dy : dy;
}

#endif
