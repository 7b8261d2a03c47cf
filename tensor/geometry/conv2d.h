/* conv2d.h - geometry of convolutions of channels-last images, for shape rule, scratch and kernels.
 *
 * A pass computes positions of one image from positions of another. Along an axis, position j and
 * tap t read position from + j move + t hop, or nothing outside the image. The convolution itself
 * is one pass. Its gradient dX takes one pass for each remainder of a position modulo the stride:
 * the taps that meet such positions form a dense convolution of dY, so each element has one writer
 * and nothing is scattered. Sequences [B,N,C] are convolved as images of one row. */
#ifndef TP_CONV2D_H
#define TP_CONV2D_H

#include "tensor/geometry/depthwise.h"

typedef struct tp__conv2d {
    int64_t batch, groups, ci, co; /* channels of all groups */
    tp__conv_axis axis[2];         /* rows, columns */
} tp__conv2d;

/* cfg has its defaults filled in, see tp_conv2d. */
static inline tp__conv2d tp__conv2d_of(const tp_conv_cfg *cfg, const tp_view *x, const tp_view *w)
{
    static const tp_conv_cfg plain = { { 1, 1 }, { 0, 0 }, { 1, 1 }, 1 };
    const bool flat = x->ndim == 3;
    tp__conv2d g;
    g.batch = x->dim[0];
    g.groups = cfg->groups;
    g.ci = x->dim[x->ndim - 1];
    g.co = w->dim[0];
    g.axis[0] =
        flat ? tp__conv_axis_of(&plain, 0, 1, 1) : tp__conv_axis_of(cfg, 0, x->dim[1], w->dim[2]);
    g.axis[1] = tp__conv_axis_of(cfg, flat ? 0 : 1, x->dim[x->ndim - 2], w->dim[w->ndim - 1]);
    return g;
}

/* The convolution of a call. Its result gives the number of positions: fewer than fit in the call
 * of a transposed convolution with output_pad. */
static inline tp__conv2d tp__conv2d_call(const tp_call *c)
{
    const tp_view *y = &c->y[0];
    tp__conv2d g = tp__conv2d_of((const tp_conv_cfg *)c->attr, &c->x[0], &c->x[1]);
    g.axis[1].out = y->dim[y->ndim - 2];
    if (y->ndim == 4) g.axis[0].out = y->dim[1];
    return g;
}

/* ---- transposed convolutions ---- */

typedef struct tp__conv_transpose_attr {
    tp_conv_cfg conv; /* first: kernels read this */
    int64_t output_pad[2];
} tp__conv_transpose_attr;

/* A transposed convolution Y of X is the gradient of the convolution with the same weights whose
 * result is like X and whose input is like Y. `c` is a call of that convolution:
 *
 *     forward    x = (like Y, w, none)    dy = X    dx = (Y, none, none)
 *     backward   x = (dY, w, none)        dy = X    dx = (none, dw, none)    y = dX */
typedef struct tp__conv2d_turned {
    tp_call c;
    tp_view x[3], y, dy, dx[3];
} tp__conv2d_turned;

static inline void tp__conv2d_turn(const tp_call *c, tp__conv2d_turned *t)
{
    const bool back = tp_is_backward(c);
    t->x[0] = t->dx[0] = c->y[0];
    t->x[1] = t->dx[1] = c->x[1];
    t->x[2] = t->dx[2] = c->x[1];
    t->x[2].ndim = t->dx[2].ndim = -1;
    t->y = t->dy = c->x[0];
    t->x[0].data = back ? c->dy[0].data : NULL;
    t->x[2].data = t->dx[2].data = t->dx[1].data = t->y.data = NULL;
    if (back) {
        t->dx[0].data = NULL;
        t->dx[1] = c->dx[1];
        t->y.data = c->dx[0].data;
        t->y.dtype = c->dx[0].dtype;
    }
    t->c = *c;
    t->c.nx = 3;
    t->c.x = t->x;
    t->c.y = &t->y;
    t->c.dy = &t->dy;
    t->c.dx = t->dx;
}

/* Whether the convolution is a plain matrix product with the rows of x. */
static inline bool tp__conv2d_is_product(const tp__conv2d *g)
{
    for (int i = 0; i < 2; i++)
        if (g->axis[i].taps != 1 || g->axis[i].stride != 1 || g->axis[i].pad != 0 ||
            g->axis[i].out != g->axis[i].in)
            return false;
    return g->groups == 1;
}

/* One axis of a pass. */
typedef struct tp__conv2d_span {
    int64_t to, at, step, count; /* computes positions at, at + step, ... of `to` */
    int64_t size, from, move;    /* reads an axis of `size` positions */
    int64_t taps, hop;
    int64_t tap, next; /* tap t of the pass is tap + t next of the kernel */
} tp__conv2d_span;

typedef struct tp__conv2d_pass {
    tp__conv2d_span axis[2];
    int64_t batch, groups;
    int64_t from, to; /* channels of a group */
    bool back;        /* reads dY */
} tp__conv2d_pass;

/* One axis of the forward pass. */
static inline tp__conv2d_span tp__conv2d_straight(const tp__conv_axis *a)
{
    tp__conv2d_span s;
    s.to = s.count = a->out;
    s.at = 0;
    s.step = 1;
    s.size = a->in;
    s.from = -a->pad;
    s.move = a->stride;
    s.taps = a->taps;
    s.hop = a->dilation;
    s.tap = 0;
    s.next = 1;
    return s;
}

static inline tp__conv2d_pass tp__conv2d_forward(const tp__conv2d *g)
{
    tp__conv2d_pass p;
    p.batch = g->batch;
    p.groups = g->groups;
    p.from = g->ci / g->groups;
    p.to = g->co / g->groups;
    p.back = false;
    for (int i = 0; i < 2; i++) p.axis[i] = tp__conv2d_straight(&g->axis[i]);
    return p;
}

/* One axis of the pass for remainder f. Its taps k, in descending order, are those where f + pad -
 * k dilation is divisible by stride. */
static inline tp__conv2d_span tp__conv2d_phase(const tp__conv_axis *a, int64_t f)
{
    tp__conv2d_span s;
    int64_t every = a->stride, rest = a->dilation, first = 0;
    while (rest > 0) { /* leaves the greatest common divisor in `every` */
        const int64_t r = every % rest;
        every = rest;
        rest = r;
    }
    s.hop = a->dilation / every;
    every = a->stride / every;
    while (first < every && first < a->taps && (f + a->pad - first * a->dilation) % a->stride != 0)
        first++;
    s.to = a->in;
    s.at = f;
    s.step = a->stride;
    s.count = f < a->in ? (a->in - f + a->stride - 1) / a->stride : 0;
    s.size = a->out;
    s.move = 1;
    s.taps = first < every && first < a->taps ? (a->taps - 1 - first) / every + 1 : 0;
    s.tap = first + (s.taps - 1) * every;
    s.next = -every;
    s.from = (f + a->pad - s.tap * a->dilation) / a->stride;
    return s;
}

/* The number of passes of dX, one for each pair of remainders. */
static inline int64_t tp__conv2d_phases(const tp__conv2d *g)
{
    int64_t n = 1;
    for (int i = 0; i < 2; i++)
        n *= g->axis[i].stride < g->axis[i].in ? g->axis[i].stride : g->axis[i].in;
    return n;
}

static inline tp__conv2d_pass tp__conv2d_backward(const tp__conv2d *g, int64_t n)
{
    tp__conv2d_pass p = tp__conv2d_forward(g);
    const tp__conv_axis *w = &g->axis[1];
    const int64_t across = w->stride < w->in ? w->stride : w->in;
    p.axis[0] = tp__conv2d_phase(&g->axis[0], n / across);
    p.axis[1] = tp__conv2d_phase(w, n % across);
    p.from = g->co / g->groups;
    p.to = g->ci / g->groups;
    p.back = true;
    return p;
}

/* Elements of a pass's weights. */
static inline int64_t tp__conv2d_weights(const tp__conv2d_pass *p)
{
    return p->groups * p->axis[0].taps * p->axis[1].taps * p->from * p->to;
}

/* Whether the pass computes all positions of the image, in order. */
static inline bool tp__conv2d_dense(const tp__conv2d_pass *p)
{
    return p->axis[0].step == 1 && p->axis[1].step == 1;
}

#endif
