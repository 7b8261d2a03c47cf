/* reduced.c - decodes the axes of a reduction (ops/reduce.h). */
#include "tensor/geometry/reduced.h"

#include <stdio.h>
#include <tapegrad/ops.h>

#include "tensor/geometry/broadcast.h"
#include "tensor/shape.h"

enum { MARK_BITS = 0x7f000000 };

static bool is_set(int axes)
{
    return axes >= 0 && (axes & MARK_BITS) == TP__AXES_MARK;
}

/* The axis, counted from the front or the end, of bit i. */
static int axis_of_bit(int i)
{
    return i < TP_MAX_DIMS ? i : i - 2 * TP_MAX_DIMS;
}

static bool out_of_range(int axis, int ndim, char *why, size_t size)
{
    snprintf(why, size, "axis %d is out of range for %d axes", axis, ndim);
    return false;
}

static bool members(int axes, int ndim, unsigned *set, char *why, size_t size)
{
    for (int i = 0; i < 2 * TP_MAX_DIMS; i++) {
        const int axis = axis_of_bit(i), k = tp__axis(ndim, axis);
        if (!(axes >> i & 1)) continue;
        if (k < 0) return out_of_range(axis, ndim, why, size);
        if (*set >> k & 1u) {
            snprintf(why, size, "axis %d is given twice, as %d and as %d", k, k, axis);
            return false;
        }
        *set |= 1u << k;
    }
    return true;
}

bool tp__axes(int axes, int ndim, unsigned *set, bool *keep, char *why, size_t size)
{
    const unsigned all = (1u << ndim) - 1;
    *set = 0;
    *keep = is_set(axes) && (axes & TP__AXES_KEEP);
    if (axes == TP_ALL || (is_set(axes) && (axes & TP__AXES_ALL))) {
        *set = all;
        return true;
    }
    if (!is_set(axes)) {
        const int k = tp__axis(ndim, axes);
        if (k < 0) return out_of_range(axes, ndim, why, size);
        *set = 1u << k;
        return true;
    }
    if (axes & TP__AXES_BEYOND)
        snprintf(why, size, "TP_AXES and TP_KEEP take axes from %d to %d, at most %d of them",
                 -TP_MAX_DIMS, TP_MAX_DIMS - 1, TP_MAX_DIMS);
    else if (axes & TP__AXES_TWICE)
        snprintf(why, size, "TP_AXES has an axis twice");
    else if (!(axes & TP__AXES_BITS))
        snprintf(why, size, "the set of axes is empty");
    else
        return members(axes, ndim, set, why, size);
    return false;
}

tp_view tp__reduced(const tp_view *x, int axes)
{
    tp_view b = *x;
    unsigned set;
    bool keep;
    char why[1];
    tp__axes(axes, x->ndim, &set, &keep, why, sizeof why);
    for (int i = 0; i < x->ndim; i++)
        if (set >> i & 1u) b.dim[i] = 1;
    b.data = NULL;
    return b;
}

size_t tp__reduce_work(const tp_call *c, size_t state)
{
    const tp_view b = tp__reduced(&c->x[0], ((const tp_reduce_attr *)c->attr)->axes);
    const tp_fold_split f = tp__fold(&c->x[0], &b);
    return tp_is_backward(c) || f.blocks == 1 ? 0 : (size_t)(f.blocks * f.nb) * state;
}
