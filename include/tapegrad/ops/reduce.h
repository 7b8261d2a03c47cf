/* ops/reduce.h - reductions. See ops.h. */
#ifndef TAPEGRAD_OPS_REDUCE_H
#define TAPEGRAD_OPS_REDUCE_H

#include <tapegrad/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the axes of a reduction ----
 *
 * Every reduction takes one int, which is one of
 *
 *     -1, 0, 1, ...       one axis, which is removed
 *     TP_ALL              all axes: the result is a scalar
 *     TP_AXES(0, -1)      a set of axes, which are removed
 *     TP_KEEP(axes)       any of these: the axes stay, with size 1
 *
 *     tp_sum(T, x, TP_AXES(0, 2))     tp_mean(T, x, TP_KEEP(-1))     tp_max(T, x, TP_KEEP(TP_ALL))
 *
 * TP_AXES takes one to eight axes, each once, in any order. Both macros are constant expressions if
 * their arguments are; in C they evaluate an argument several times. Other integers are refused as
 * axes out of range. */
#define TP_ALL INT32_MIN

enum {
    TP__AXES_MARK = 0x54000000,   /* the highest byte of every set of axes */
    TP__AXES_KEEP = 1 << 20,      /* TP_KEEP */
    TP__AXES_ALL = 1 << 19,       /* all axes */
    TP__AXES_TWICE = 1 << 18,     /* an axis was given twice */
    TP__AXES_BEYOND = 1 << 17,    /* an argument is no axis, or there are more than eight */
    TP__AXES_BITS = (1 << 16) - 1 /* bit i: axis i; bit 16 - i: axis -i, counted from the end */
};

#ifdef __cplusplus
extern "C++" {
constexpr int tp__axis_bit(int axis)
{
    return axis < -TP_MAX_DIMS || axis >= TP_MAX_DIMS ? int(TP__AXES_BEYOND) : 1 << (axis & 15);
}
constexpr int tp__axes_of(std::initializer_list<int> axes)
{
    int set = TP__AXES_MARK;
    for (int axis : axes) {
        const int bit = tp__axis_bit(axis);
        set |= bit != TP__AXES_BEYOND && (set & bit) ? int(TP__AXES_TWICE) : bit;
    }
    return set;
}
constexpr int tp__axes_kept(int axes)
{
    return (axes & 0x7f000000) == TP__AXES_MARK && axes >= 0 ? axes | TP__AXES_KEEP
           : axes == TP_ALL ? TP__AXES_MARK | TP__AXES_KEEP | TP__AXES_ALL
                            : TP__AXES_MARK | TP__AXES_KEEP | tp__axis_bit(axes);
}
}
#define TP_AXES(...)  (tp__axes_of({ __VA_ARGS__ }))
#define TP_KEEP(axes) (tp__axes_kept(axes))
#else
/* clang-format off */
#define TP__AXIS_BIT(axis)                                                                         \
    ((axis) < -TP_MAX_DIMS || (axis) >= TP_MAX_DIMS ? TP__AXES_BEYOND : 1 << ((axis) & 15))
/* The bits of the first n of a to h: their sum equals their union unless one occurs twice. */
#define TP__AXES_JOIN(op, n, a, b, c, d, e, f, g, h)                                               \
    (TP__AXIS_BIT(a) op ((n) > 1 ? TP__AXIS_BIT(b) : 0) op ((n) > 2 ? TP__AXIS_BIT(c) : 0)         \
     op ((n) > 3 ? TP__AXIS_BIT(d) : 0) op ((n) > 4 ? TP__AXIS_BIT(e) : 0)                         \
     op ((n) > 5 ? TP__AXIS_BIT(f) : 0) op ((n) > 6 ? TP__AXIS_BIT(g) : 0)                         \
     op ((n) > 7 ? TP__AXIS_BIT(h) : 0))
#define TP__AXES_SET(a, b, c, d, e, f, g, h, i, j, n, ...)                                         \
    (TP__AXES_MARK | TP__AXES_JOIN(|, n, a, b, c, d, e, f, g, h) |                                 \
     (TP__AXES_JOIN(+, n, a, b, c, d, e, f, g, h) != TP__AXES_JOIN(|, n, a, b, c, d, e, f, g, h)   \
          ? TP__AXES_TWICE : 0) |                                                                  \
     ((n) > TP_MAX_DIMS || (n) < 1 ? TP__AXES_BEYOND : 0))
#define TP_AXES(...)  TP__AXES_SET(__VA_ARGS__, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)
#define TP_KEEP(axes)                                                                              \
    ((axes) >= 0 && ((axes) & 0x7f000000) == TP__AXES_MARK ? (axes) | TP__AXES_KEEP                \
     : (axes) == TP_ALL ? TP__AXES_MARK | TP__AXES_KEEP | TP__AXES_ALL                             \
                        : TP__AXES_MARK | TP__AXES_KEEP | TP__AXIS_BIT(axes))
/* clang-format on */
#endif

/* ---- reductions ----
 *
 * x is floating point, of any shape; tp_sum and tp_mean also take masks, TP_U8, whose sum and mean
 * are f32: tp_mean(T, tp_eq(T, tp_argmax(T, logits, -1), labels), TP_ALL) is an accuracy. Sums
 * (sum, mean, var, std, norm, prod, logsumexp) of bf16 are f32. A NaN among the elements makes the
 * result NaN. */

TP_API tp_tensor tp_sum(tp_tape *T, tp_tensor x, int axes);  /* of no elements: 0 */
TP_API tp_tensor tp_mean(tp_tape *T, tp_tensor x, int axes); /* of no elements: NaN */

/* The product; of no elements: 1. Gradient of x_i: dy times the product of the other elements, also
 * where elements are 0. Both are right if they are in the range of the dtype, whatever the partial
 * products. */
TP_API tp_tensor tp_prod(tp_tape *T, tp_tensor x, int axes);

/* The largest and the smallest element; gradient to the first one, in row-major order of the axes.
 * Axes without elements are an error. */
TP_API tp_tensor tp_max(tp_tape *T, tp_tensor x, int axes);
TP_API tp_tensor tp_min(tp_tape *T, tp_tensor x, int axes);

/* TP_I64, the index of the first maximum or minimum, or of the first NaN; no gradient. Over several
 * axes it counts their elements in row-major order. */
TP_API tp_tensor tp_argmax(tp_tape *T, tp_tensor x, int axes);
TP_API tp_tensor tp_argmin(tp_tape *T, tp_tensor x, int axes);

/* sum (x - mean)^2 / max(0, n - correction) over n elements, and its root. Correction 1 gives the
 * unbiased estimate (PyTorch's default), 0 the variance of the elements themselves. One pass, whose
 * differences from the means of blocks stay accurate where the mean is large. Without degrees of
 * freedom (n <= correction) the result is NaN or infinite. Where std is 0, so is its gradient. std
 * is right where squares leave the range of f32; in f64 it is NaN where they vanish, and infinite
 * where they overflow. */
TP_API tp_tensor tp_var(tp_tape *T, tp_tensor x, int axes, double correction);
TP_API tp_tensor tp_std(tp_tape *T, tp_tensor x, int axes, double correction);

/* (sum |x|^p)^(1/p) for p > 0; p = INFINITY: the largest |x|, of which there must be one; p = 0:
 * the number of elements other than 0. No negative p. As torch.linalg.vector_norm: where the norm
 * is 0, so is its gradient, and elements that share the largest |x| share its gradient equally.
 * Right also where powers leave the range of the dtype. */
TP_API tp_tensor tp_norm(tp_tape *T, tp_tensor x, double p, int axes);

TP_API tp_tensor tp_logsumexp(tp_tape *T, tp_tensor x, int axes); /* of no elements: -infinity */

/* TP_U8: whether any element, or all elements, are nonzero. x has any dtype; NaN is not 0. Of no
 * elements: any 0, all 1. No gradient. */
TP_API tp_tensor tp_any(tp_tape *T, tp_tensor x, int axes);
TP_API tp_tensor tp_all(tp_tape *T, tp_tensor x, int axes);

#ifndef TP_NO_SITE
#include <tapegrad/sites/ops/reduce.h>
#endif

#ifdef __cplusplus
}
#endif
#endif
