/* functions.h - tables of the unary and binary elementwise functions. A function is one row, which
 * its op (autograd/ops/unary.c, binary.c) and the kernels (cpu/ and cuda/, the same names) expand:
 * there is no other list of names and no other copy of a formula.
 *
 * Formulas are C and CUDA C over `real`: RC(0.5) is a constant of the type, r_exp and its like are
 * the backend's functions, other names are those of formulas.h. A value that depends on x is a
 * conditional whose comparisons are false for NaN, so that NaN is propagated. `&` and `|` in place
 * of `&&` and `||` let loops vectorise. */
#ifndef TP_FUNCTIONS_H
#define TP_FUNCTIONS_H

/* f(name, description, what backward reads, inputs of the gradient test, value at x, slope)
 *
 * The slope is in terms of what backward reads: y, if the derivative can be computed from it, since
 * the op that reads the result often saves it anyway; otherwise x. */
/* clang-format off */
#define TP_UNARY(f)                                                                                \
    f(exp, "e^x", y, any, r_exp(x), y)                                                             \
    f(log, "natural logarithm", x, above_zero, r_log(x), 1 / x)                                    \
    f(sqrt, "square root", y, above_zero, r_sqrt(x), RC(0.5) / y)                                  \
    f(square, "x^2", x, any, x * x, 2 * x)                                                         \
    f(abs, "absolute value; gradient 0 at 0", x, any, r_abs(x), (real)((x > 0) - (x < 0)))         \
    f(relu, "max(x, 0); gradient 0 at 0", y, any, relu_value(x), relu_slope(y))                    \
    f(gelu, "x/2 (1 + erf(x/sqrt 2))", x, far, gelu_value(x), gelu_slope(x))                       \
    f(gelu_tanh, "x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))", x, far,                          \
      gelu_tanh_value(x), gelu_tanh_slope(x))                                                      \
    f(quick_gelu, "x sigmoid(1.702 x)", x, far, quick_gelu_value(x), quick_gelu_slope(x))          \
    f(hardswish, "x clamp(x + 3, 0, 6) / 6", x, far, x < -3 ? 0 : x > 3 ? x : x * (x + 3) / 6,     \
      x < -3 ? 0 : x > 3 ? 1 : (2 * x + 3) / 6)                                                    \
    f(silu, "x sigmoid(x)", x, far, silu_value(x), silu_slope(x))                                  \
    f(mish, "x tanh(softplus(x))", x, far, x * mish_gate(x), mish_slope(x, mish_gate(x)))          \
    f(sigmoid, "1 / (1 + e^-x)", y, far, logistic(x), y * (1 - y))                                 \
    f(tanh, "hyperbolic tangent", y, far, r_tanh(x), 1 - y * y)                                    \
    f(softplus, "log(1 + e^x)", x, far, relu_value(x) + r_log1p_finite(r_exp(-r_abs(x))),          \
      logistic(x))                                                                                 \
    f(expm1, "e^x - 1, exact near 0", y, any, r_expm1(x), y + 1)                                   \
    f(log1p, "log(1 + x), exact near 0", x, above_zero, r_log1p(x), 1 / (1 + x))                   \
    f(reciprocal, "1 / x", y, above_zero, 1 / x, -y * y)                                           \
    f(rsqrt, "1 / sqrt(x)", y, above_zero, 1 / r_sqrt(x), RC(-0.5) * y * y * y)

/* The same; CPU loops compute large arguments separately. */
#define TP_UNARY_TURNS(f)                                                                          \
    f(sin, "sine", x, far, r_sin(x), r_cos(x))                                                     \
    f(cos, "cosine", x, far, r_cos(x), -r_sin(x))

/* f(name, description, what backward reads, shape rule, value at x, slope), with the call's
 * constants a and b (tp_unary_attr). none: the slope reads neither x nor y. */
#define TP_UNARY_OF(f)                                                                             \
    f(leaky_relu, "x above 0, k x below; gradient k at 0", x, tp__like_x, x > 0 ? x : a * x,       \
      x > 0 ? 1 : a)                                                                               \
    f(elu, "x above 0, k (e^x - 1) below; gradient k at 0", x, tp__like_x,                         \
      x > 0 ? x : a * r_expm1(x), x > 0 ? 1 : a * r_exp(x))                                        \
    f(scale, "k x", none, tp__like_x, a * x, a)                                                    \
    f(clamp, "min(max(x, lo), hi); gradient 0 outside the bounds", x, clamp_shape,                 \
      (x < a ? a : x) > b ? b : x < a ? a : x,                                                     \
      ((x < a) | (x > b)) ? RC(0.0) : RC(1.0))

/* f(name, description, value at x). The gradient is 0 whatever dy is. */
#define TP_UNARY_STEPS(f)                                                                          \
    f(floor, "the largest integer not above x; gradient 0", r_floor(x))                            \
    f(round, "the nearest integer, halves to even; gradient 0", r_round(x))                        \
    f(sign, "-1, 0 or 1, NaN of NaN; gradient 0", x > 0 ? 1 : x < 0 ? -1 : x)

/* f(name, description, inputs of the gradient test, value at a and b, dy times slope by a, by b) */
#define TP_BINARY(f)                                                                               \
    f(maximum, "the larger operand, NaN if one is; at ties half a gradient for each", far,         \
      ((a > b) | (a != a)) ? a : b, share(dy, a < b, a == b), share(dy, a > b, a == b))            \
    f(minimum, "the smaller operand, NaN if one is; at ties half a gradient for each", far,        \
      ((a < b) | (a != a)) ? a : b, share(dy, a > b, a == b), share(dy, a < b, a == b))

/* The same, with special gradients on the CPU; slopes of sums read no operand. */
#define TP_BINARY_SUMS(f)                                                                          \
    f(add, "a + b", any, a + b, dy, dy)                                                            \
    f(sub, "a - b", any, a - b, dy, -dy)
#define TP_BINARY_PRODUCTS(f)                                                                      \
    f(mul, "a b", any, a * b, dy * b, dy * a)                                                      \
    f(div, "a / b", any, a / b, dy / b, -dy * a / b / b)
#define TP_BINARY_POWERS(f)                                                                        \
    f(pow, "a^b", pow_cases, r_pow(a, b), b == 0 ? 0 : dy * (b * r_pow(a, b - 1)),                 \
      ((a == 0) & (b >= 0)) ? 0 : dy * (r_pow(a, b) * r_log(a)))
/* clang-format on */

#endif
