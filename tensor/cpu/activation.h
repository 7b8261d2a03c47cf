/* activation.h - activations and their derivatives, inlined into loops over `real` that vectorise.
 * Included by kernel files where real is defined, hence without a guard. A slope is the derivative
 * where the activation was x; comparisons let NaN through.
 *
 *     relu        max(x, 0), slope 0 at 0
 *     gelu        x/2 (1 + erf(x/sqrt 2))
 *     quick_gelu  x s(1.702 x), s the logistic function */

TP_INLINE real R(logistic)(real x)
{
    return 1 / (1 + r_exp(-x));
}

/* The derivative of x s(u(x)) with s = s(u) and du = u'. */
TP_INLINE real R(gated_slope)(real x, real s, real du)
{
    return s + x * du * s * (1 - s);
}

TP_INLINE real R(normal_cdf)(real x)
{
    return RC(0.5) * (1 + r_erf(x * RC(0.70710678118654752)));
}

TP_INLINE real R(normal_density)(real x)
{
    return RC(0.39894228040143268) * r_exp(RC(-0.5) * x * x); /* 1/sqrt(2 pi) */
}

TP_INLINE real R(relu)(real x)
{
    return x < 0 ? 0 : x;
}

TP_INLINE real R(relu_slope)(real x)
{
    return x > 0 ? 1 : 0;
}

TP_INLINE real R(gelu)(real x)
{
    return x * R(normal_cdf)(x);
}

TP_INLINE real R(gelu_slope)(real x)
{
    return R(normal_cdf)(x) + x * R(normal_density)(x);
}

TP_INLINE real R(quick_gelu)(real x)
{
    return x * R(logistic)(RC(1.702) * x);
}

TP_INLINE real R(quick_gelu_slope)(real x)
{
    return R(gated_slope)(x, R(logistic)(RC(1.702) * x), RC(1.702));
}
