/* views.c - unsqueeze, squeeze, flatten and transpose, by reshape or permute, and repeats, by
 * expanding a view of x. */
#include "autograd/nodes.h"
#include "autograd/ops/op_inner.h"
#include "autograd/tape.h"
#include "tensor/geometry/reduced.h"

/* Gets x's shape; false with T failed if x is not T's. */
static bool shape_of(tp_tape *T, const char *op, tp_tensor x, tp_shape *s)
{
    char what[64] = "";
    tp__append(what, sizeof what, "%s: input 0", op);
    const tp_node *n = tp_ok(T) ? tp__node(T, x, what) : NULL;
    if (n) *s = tp__view_shape(&n->view);
    return n != NULL;
}

/* Returns the axis from the front; -1 with T failed if out of range. */
static int axis_of(tp_tape *T, const char *op, int ndim, int axis)
{
    const int k = tp__axis(ndim, axis);
    if (k < 0) tp__fail(T, TP_E_SHAPE, "%s: axis %d is out of range for %d axes", op, axis, ndim);
    return k;
}

/* Appends an axis to s; s->ndim counts excess axes, too. */
static void append(tp_shape *s, int64_t size)
{
    if (s->ndim < TP_MAX_DIMS) s->dim[s->ndim] = size;
    s->ndim++;
}

tp_tensor tp_unsqueeze(tp_tape *T, tp_tensor x, int axis)
{
    tp_shape s, y = TP_SCALAR;
    if (!shape_of(T, "unsqueeze", x, &s)) return TP_FAILED;
    const int at = axis_of(T, "unsqueeze", s.ndim + 1, axis);
    if (at < 0) return TP_FAILED;
    for (int i = 0; i <= s.ndim; i++) append(&y, i < at ? s.dim[i] : i == at ? 1 : s.dim[i - 1]);
    return tp_reshape(T, x, y);
}

tp_tensor tp_squeeze(tp_tape *T, tp_tensor x, int axes)
{
    tp_shape s, y = TP_SCALAR;
    unsigned set;
    bool keep;
    char why[200];
    if (!shape_of(T, "squeeze", x, &s)) return TP_FAILED;
    if (!tp__axes(axes, s.ndim, &set, &keep, why, sizeof why))
        return tp__fail(T, TP_E_SHAPE, "squeeze: %s", why);
    for (int i = 0; i < s.ndim; i++) {
        const bool chosen = set >> i & 1u;
        if (chosen && s.dim[i] != 1 && axes != TP_ALL)
            return tp__fail(T, TP_E_SHAPE,
                            "squeeze: axis %d has size %lld: only axes of size 1 can be dropped", i,
                            (long long)s.dim[i]);
        if (!chosen || s.dim[i] != 1) append(&y, s.dim[i]);
    }
    return tp_reshape(T, x, y);
}

tp_tensor tp_flatten(tp_tape *T, tp_tensor x, int first, int last)
{
    tp_shape s, y = TP_SCALAR;
    if (!shape_of(T, "flatten", x, &s)) return TP_FAILED;
    if (s.ndim == 0) append(&s, 1);
    const int from = axis_of(T, "flatten", s.ndim, first), to = axis_of(T, "flatten", s.ndim, last);
    if (from < 0 || to < 0) return TP_FAILED;
    if (from > to)
        return tp__fail(T, TP_E_VALUE, "flatten: axis %d comes after axis %d", first, last);
    for (int i = 0; i < s.ndim; i++) {
        if (i <= from || i > to)
            append(&y, s.dim[i]);
        else if (__builtin_mul_overflow(y.dim[from], s.dim[i], &y.dim[from]))
            return tp__fail(T, TP_E_SHAPE, "flatten: the merged axis is too long");
    }
    return tp_reshape(T, x, y);
}

tp_tensor tp_transpose(tp_tape *T, tp_tensor x, int a, int b)
{
    tp_shape s;
    if (!shape_of(T, "transpose", x, &s)) return TP_FAILED;
    const int i = axis_of(T, "transpose", s.ndim, a), j = axis_of(T, "transpose", s.ndim, b);
    if (i < 0 || j < 0) return TP_FAILED;
    for (int k = 0; k < s.ndim; k++) s.dim[k] = k == i ? j : k == j ? i : k;
    return tp_permute(T, x, s);
}

/* ---- repeats ---- */

/* *size *= times; false with T failed on overflow. */
static bool lengthen(tp_tape *T, const char *op, int64_t *size, int64_t times)
{
    if (!__builtin_mul_overflow(*size, times, size)) return true;
    tp__fail(T, TP_E_SHAPE, "%s: the result is too large", op);
    return false;
}

/* Views x as `from`, expands to `to`, reshapes to y. */
static tp_tensor expanded(tp_tape *T, tp_tensor x, tp_shape from, tp_shape to, tp_shape y)
{
    return tp_reshape(T, tp_expand(T, tp_reshape(T, x, from), to), y);
}

/* Repeats x's last axes with counts, as many as one expansion can: an axis of size 1 before each is
 * expanded, others merge with their left neighbour. Sets their counts to 1. */
static tp_tensor repeat_some(tp_tape *T, tp_tensor x, tp_shape *times)
{
    enum { MOST = (TP_MAX_DIMS - 1) / 2 };
    tp_shape y = tp_shape_of(x), from = TP_SHAPE(1), to = TP_SHAPE(1);
    int begin = y.ndim;
    for (int n = 0; begin > 0 && n < MOST; begin--) n += times->dim[begin - 1] != 1;
    for (int i = 0; i < y.ndim; i++) {
        const int64_t n = y.dim[i], t = i < begin ? 1 : times->dim[i];
        if (t != 1) {
            append(&from, 1);
            append(&to, t);
            append(&from, 1);
            append(&to, 1);
            if (!lengthen(T, "repeat", &y.dim[i], t)) return TP_FAILED;
            times->dim[i] = 1;
        }
        if (!lengthen(T, "repeat", &from.dim[from.ndim - 1], n)) return TP_FAILED;
        to.dim[to.ndim - 1] = from.dim[from.ndim - 1];
    }
    return expanded(T, x, from, to, y);
}

tp_tensor tp_repeat(tp_tape *T, tp_tensor x, tp_shape times)
{
    tp_shape s, y = TP_SCALAR;
    bool again = false;
    if (!shape_of(T, "repeat", x, &s)) return TP_FAILED;
    if (times.ndim < s.ndim || times.ndim > TP_MAX_DIMS)
        return tp__fail(T, TP_E_SHAPE, "repeat: %d counts for %d axes; at most %d are possible",
                        times.ndim, s.ndim, TP_MAX_DIMS);
    for (int i = 0; i < times.ndim; i++) {
        if (times.dim[i] < 0)
            return tp__fail(T, TP_E_VALUE, "repeat: cannot repeat axis %d %lld times", i,
                            (long long)times.dim[i]);
        append(&y, i < times.ndim - s.ndim ? 1 : s.dim[i - (times.ndim - s.ndim)]);
    }
    x = tp_reshape(T, x, y);
    do {
        x = repeat_some(T, x, &times);
        again = false;
        for (int i = 0; i < times.ndim; i++) again |= times.dim[i] != 1;
    } while (again && tp_ok(T));
    return x;
}

tp_tensor tp_repeat_interleave(tp_tape *T, tp_tensor x, int axis, int64_t times)
{
    static const char op[] = "repeat_interleave";
    tp_shape s, from = TP_SHAPE(1, 1, 1);
    if (!shape_of(T, op, x, &s)) return TP_FAILED;
    const int at = axis_of(T, op, s.ndim, axis);
    if (at < 0) return TP_FAILED;
    if (times < 0)
        return tp__fail(T, TP_E_VALUE, "%s: cannot repeat elements %lld times", op,
                        (long long)times);
    for (int i = 0; i < s.ndim; i++)
        if (!lengthen(T, op, &from.dim[i <= at ? 0 : 2], s.dim[i])) return TP_FAILED;
    if (!lengthen(T, op, &s.dim[at], times)) return TP_FAILED;
    return expanded(T, x, from, TP_SHAPE(from.dim[0], times, from.dim[2]), s);
}
