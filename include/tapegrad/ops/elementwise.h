/* ops/elementwise.h - elementwise functions of one and of two operands, masks, conversion. See
 * ops.h. */
#ifndef TAPEGRAD_OPS_ELEMENTWISE_H
#define TAPEGRAD_OPS_ELEMENTWISE_H

#include <tapegrad/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- elementwise, two operands ----
 *
 * The operands broadcast into a common shape: axes are aligned at the last one, and an operand that
 * has size 1 along an axis, or lacks leading axes, is repeated. Either operand may be a number
 * (tp_number), which the macros accept as it is: tp_sub(T, 1, z), tp_gt(T, x, 0). */
TP_API tp_tensor tp_add(tp_tape *T, tp_operand a, tp_operand b); /* a + b */
TP_API tp_tensor tp_sub(tp_tape *T, tp_operand a, tp_operand b); /* a - b */
TP_API tp_tensor tp_mul(tp_tape *T, tp_operand a, tp_operand b); /* a b */
TP_API tp_tensor tp_div(tp_tape *T, tp_operand a, tp_operand b); /* a / b */

/* a^b, as C's pow: NaN for a < 0 unless b is an integer, 1 for b = 0. Gradients: da = dy b a^(b-1),
 * 0 where b = 0; db = dy a^b log a, 0 where a = 0 and b >= 0, NaN where a < 0. An exponent that is
 * a number from {-2, -1, -0.5, 0, 0.5, 1, 2, 3} needs no power function. */
TP_API tp_tensor tp_pow(tp_tape *T, tp_operand a, tp_operand b);

/* The larger and the smaller operand; NaN if one is NaN. Where both are equal, each gets half of
 * the gradient; where one is NaN, both get all of it. */
TP_API tp_tensor tp_maximum(tp_tape *T, tp_operand a, tp_operand b);
TP_API tp_tensor tp_minimum(tp_tape *T, tp_operand a, tp_operand b);

/* ---- masks ----
 *
 * Comparisons and logical ops of operands of one floating dtype, or of any integer dtypes, which
 * meet exactly in the wider one, that broadcast as above. Results are masks: TP_U8, 1 where true
 * and 0 elsewhere, without a gradient. Comparisons with NaN are false, except tp_ne. A number is
 * rounded to a floating dtype, and compared exactly with integers. */
TP_API tp_tensor tp_eq(tp_tape *T, tp_operand a, tp_operand b); /* a == b */
TP_API tp_tensor tp_ne(tp_tape *T, tp_operand a, tp_operand b); /* a != b */
TP_API tp_tensor tp_lt(tp_tape *T, tp_operand a, tp_operand b); /* a < b */
TP_API tp_tensor tp_le(tp_tape *T, tp_operand a, tp_operand b); /* a <= b */
TP_API tp_tensor tp_gt(tp_tape *T, tp_operand a, tp_operand b); /* a > b */
TP_API tp_tensor tp_ge(tp_tape *T, tp_operand a, tp_operand b); /* a >= b */

/* Any nonzero value is true, even NaN. */
TP_API tp_tensor tp_logical_and(tp_tape *T, tp_operand a, tp_operand b);
TP_API tp_tensor tp_logical_or(tp_tape *T, tp_operand a, tp_operand b);
TP_API tp_tensor tp_logical_xor(tp_tape *T, tp_operand a, tp_operand b);
TP_API tp_tensor tp_logical_not(tp_tape *T, tp_tensor x);

/* Any dtype; integers are finite. */
TP_API tp_tensor tp_isnan(tp_tape *T, tp_tensor x);
TP_API tp_tensor tp_isfinite(tp_tape *T, tp_tensor x);
TP_API tp_tensor tp_isinf(tp_tape *T, tp_tensor x);

/* mask ? a : b, elementwise, where every element of the mask, TP_U8, that is not 0 selects a. The
 * three broadcast; a and b have one dtype, floating or integer, and one of them may be a number,
 * which that dtype must hold: tp_where(T, m, x, 0). An element that is not selected gets the
 * gradient 0, whatever it is. */
TP_API tp_tensor tp_where(tp_tape *T, tp_tensor mask, tp_operand a, tp_operand b);

/* value where the mask, which broadcasts into x, is not 0, else x. */
TP_API tp_tensor tp_masked_fill(tp_tape *T, tp_tensor x, tp_tensor mask, double value);

/* ---- elementwise, one operand ---- */
TP_API tp_tensor tp_scale(tp_tape *T, tp_tensor x, double k); /* k x */
TP_API tp_tensor tp_neg(tp_tape *T, tp_tensor x);
TP_API tp_tensor tp_exp(tp_tape *T, tp_tensor x);
TP_API tp_tensor tp_log(tp_tape *T, tp_tensor x);
TP_API tp_tensor tp_sqrt(tp_tape *T, tp_tensor x);
TP_API tp_tensor tp_square(tp_tape *T, tp_tensor x);
TP_API tp_tensor tp_abs(tp_tape *T, tp_tensor x);        /* gradient 0 at 0 */
TP_API tp_tensor tp_reciprocal(tp_tape *T, tp_tensor x); /* 1 / x */
TP_API tp_tensor tp_rsqrt(tp_tape *T, tp_tensor x);      /* 1 / sqrt(x) */
TP_API tp_tensor tp_expm1(tp_tape *T, tp_tensor x);      /* e^x - 1, exact near 0 */
TP_API tp_tensor tp_log1p(tp_tape *T, tp_tensor x);      /* log(1 + x), exact near 0 */
TP_API tp_tensor tp_sin(tp_tape *T, tp_tensor x);        /* x: any number of radians */
TP_API tp_tensor tp_cos(tp_tape *T, tp_tensor x);
TP_API tp_tensor tp_floor(tp_tape *T, tp_tensor x); /* gradient 0 */
TP_API tp_tensor tp_round(tp_tape *T, tp_tensor x); /* halves to even; gradient 0 */
TP_API tp_tensor tp_sign(tp_tape *T, tp_tensor x);  /* -1, 0, 1; gradient 0 */
TP_API tp_tensor tp_relu(tp_tape *T, tp_tensor x);
TP_API tp_tensor tp_gelu(tp_tape *T, tp_tensor x);                 /* x/2 (1 + erf(x/sqrt 2)) */
TP_API tp_tensor tp_gelu_tanh(tp_tape *T, tp_tensor x);            /* tanh approximation of GELU */
TP_API tp_tensor tp_quick_gelu(tp_tape *T, tp_tensor x);           /* x sigmoid(1.702 x) */
TP_API tp_tensor tp_hardswish(tp_tape *T, tp_tensor x);            /* x clamp(x + 3, 0, 6) / 6 */
TP_API tp_tensor tp_silu(tp_tape *T, tp_tensor x);                 /* x sigmoid(x) */
TP_API tp_tensor tp_mish(tp_tape *T, tp_tensor x);                 /* x tanh(softplus(x)) */
TP_API tp_tensor tp_leaky_relu(tp_tape *T, tp_tensor x, double k); /* x above 0, k x below */
TP_API tp_tensor tp_elu(tp_tape *T, tp_tensor x, double k); /* x above 0, k (e^x - 1) below */
TP_API tp_tensor tp_softplus(tp_tape *T, tp_tensor x);      /* log(1 + e^x) */
TP_API tp_tensor tp_sigmoid(tp_tape *T, tp_tensor x);
TP_API tp_tensor tp_tanh(tp_tape *T, tp_tensor x);
TP_API tp_tensor tp_clamp(tp_tape *T, tp_tensor x, double lo, double hi); /* gradient inside only */

/* x in dtype dt. To floats it is rounded to nearest even, once; to integers as tp_full says: the
 * fraction is dropped, values out of range become the nearest one in range, and NaN becomes 0. Only
 * conversions between floats have a gradient. */
TP_API tp_tensor tp_cast(tp_tape *T, tp_tensor x, tp_dtype dt);

#ifndef TP_NO_SITE
#include <tapegrad/sites/ops/elementwise.h>
#endif

#ifdef __cplusplus
}
#endif
#endif
