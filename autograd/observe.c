/* observe.c - sets an observer, which apply.c calls after each op, and answers its queries. */
#include <math.h>
#include <stdlib.h>
#include <tapegrad/observe.h>
#include <tapegrad/tensor.h>

#include "autograd/tape.h"

void tp_observe(tp_tape *T, tp_observer f, void *env)
{
    if (!T) return;
    T->observer = f;
    T->observer_env = env;
}

/* The view of x for shape rules. */
static tp_view view_of(tp_tensor x)
{
    tp_view v = { .ndim = -1 };
    if (!tp_given(x)) return v;
    const tp_shape s = tp_shape_of(x);
    v.dtype = tp_dtype_of(x);
    v.ndim = s.ndim;
    v.numel = tp_numel(x);
    for (int i = 0; i < s.ndim; i++) v.dim[i] = s.dim[i];
    return v;
}

double tp_seen_macs(const tp_seen *s)
{
    tp_view local[2 * TP_MAX_INPUTS], *x = local;
    if (!s || !s->op || !s->op->macs) return 0.0;
    const size_t n = (size_t)s->nx + (size_t)s->ny;
    if (n > sizeof local / sizeof *local) x = malloc(n * sizeof *x);
    if (!x) return (double)NAN;
    tp_view *y = x + s->nx;
    for (int i = 0; i < s->nx; i++) x[i] = view_of(s->x[i]);
    for (int i = 0; i < s->ny; i++) y[i] = view_of(s->y[i]);
    const tp_infer q = { .attr = s->attr, .nx = s->nx, .ny = s->ny, .x = x, .y = y, .view_at = -1 };
    const double macs = s->op->macs(&q);
    if (x != local) free(x);
    return macs;
}
