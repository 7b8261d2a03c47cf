/* permute_plan.h - a permutation of axes, merging axes that stay adjacent; for copies and
 * transposes on CPU and GPU. */
#ifndef TP_PERMUTE_PLAN_H
#define TP_PERMUTE_PLAN_H

#include "tensor/geometry/broadcast.h"

/* The merged axes of y, at least one: sizes, and strides in x (from) and in y (to). */
typedef struct tp_permute_plan {
    int n;
    int64_t dim[TP_MAX_DIMS], from[TP_MAX_DIMS], to[TP_MAX_DIMS];
} tp_permute_plan;

/* order[i] is the axis of x that becomes axis i of y. */
static inline tp_permute_plan tp__permute_plan(const tp_view *x, const int *order)
{
    tp_permute_plan p;
    int64_t stride[TP_MAX_DIMS], step = 1;
    p.n = 0;
    for (int k = x->ndim - 1; k >= 0; k--) {
        stride[k] = step;
        step *= x->dim[k];
    }
    for (int i = 0; i < x->ndim; i++) {
        const int k = order[i];
        if (x->dim[k] == 1) continue;
        if (p.n > 0 && p.from[p.n - 1] == x->dim[k] * stride[k]) {
            p.dim[p.n - 1] *= x->dim[k];
            p.from[p.n - 1] = stride[k];
        } else {
            p.dim[p.n] = x->dim[k];
            p.from[p.n++] = stride[k];
        }
    }
    if (p.n == 0) {
        p.n = 1;
        p.dim[0] = p.from[0] = 1;
    }
    step = 1;
    for (int k = p.n - 1; k >= 0; k--) {
        p.to[k] = step;
        step *= p.dim[k];
    }
    return p;
}

/* All axes but two; strides of x in `from`, of y in `to`. */
static inline void tp__permute_others(const tp_permute_plan *p, int skip1, int skip2, tp_axes *from,
                                      tp_axes *to)
{
    from->n = 0;
    from->count = 1;
    for (int k = 0; k < p->n; k++) {
        if (k == skip1 || k == skip2) continue;
        from->dim[from->n] = to->dim[from->n] = p->dim[k];
        from->stride[from->n] = p->from[k];
        to->stride[from->n++] = p->to[k];
        from->count *= p->dim[k];
    }
    to->n = from->n;
    to->count = from->count;
}

#endif
