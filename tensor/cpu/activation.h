/* activation.h - activations and their derivatives, inlined into loops over `real` that vectorise.
 * Included by kernel files where real is defined, hence without a guard. A slope is the derivative
 * where the activation was x; comparisons let NaN through.
 *
 *     relu        max(x, 0), slope 0 at 0
 *     gelu        x P(x), P the integral of the normal distribution up to x
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

TP_INLINE real R(relu)(real x)
{
    return x < 0 ? 0 : x;
}

TP_INLINE real R(relu_slope)(real x)
{
    return x > 0 ? 1 : 0;
}

/* The value, and the slope beside it for what little that costs. */
TP_INLINE real R(gelu_both)(real x, real *slope)
{
    real below;
    const real density = r_gauss(x, &below);
    *slope = below + x * density;
    return x * below;
}

TP_INLINE real R(quick_gelu_both)(real x, real *slope)
{
    const real s = R(logistic)(RC(1.702) * x);
    *slope = R(gated_slope)(x, s, RC(1.702));
    return x * s;
}

TP_INLINE real R(gelu)(real x)
{
    real slope;
    return R(gelu_both)(x, &slope);
}

TP_INLINE real R(gelu_slope)(real x)
{
    real slope;
    R(gelu_both)(x, &slope);
    return slope;
}

TP_INLINE real R(quick_gelu)(real x)
{
    real slope;
    return R(quick_gelu_both)(x, &slope);
}

TP_INLINE real R(quick_gelu_slope)(real x)
{
    real slope;
    R(quick_gelu_both)(x, &slope);
    return slope;
}
