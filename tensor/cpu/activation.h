/* activation.h - activations and their derivatives for `real`, straight-line so that loops over
 * them vectorise. Included by kernel files where real is defined; no include guard.
 *
 *     relu        max(x, 0); derivative 0 at 0
 *     gelu        x/2 (1 + erf(x/sqrt 2))
 *     quick_gelu  x sigmoid(1.702 x) */

/* NaN stays NaN. */
static inline real R(tp__relu)(real x)
{
    return x < 0 ? 0 : x;
}

static inline real R(tp__relu_grad)(real x)
{
    return x > 0 ? (real)1 : 0;
}

static inline real R(tp__normal_cdf)(real x)
{
    return RC(0.5) * (1 + r_erf(x * RC(0.70710678118654752)));
}

static inline real R(tp__gelu)(real x)
{
    return x * R(tp__normal_cdf)(x);
}

static inline real R(tp__gelu_grad)(real x)
{
    return R(tp__normal_cdf)(x) + x * RC(0.39894228040143268) * r_exp(RC(-0.5) * x * x);
}

static inline real R(tp__sigmoid)(real x)
{
    return 1 / (1 + r_exp(-x));
}

static inline real R(tp__quick_gelu)(real x)
{
    return x * R(tp__sigmoid)(RC(1.702) * x);
}

static inline real R(tp__quick_gelu_grad)(real x)
{
    const real s = R(tp__sigmoid)(RC(1.702) * x);
    return s * (1 + RC(1.702) * x * (1 - s));
}
