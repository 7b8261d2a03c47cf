/* remap.c - the stretches of flips and pads, merging axes that move alike. */
#include "tensor/geometry/remap.h"

#include "tensor/geometry/reduced.h"

static tp_remap_axis straight(int64_t n)
{
    return (tp_remap_axis){ .nx = n, .ny = n, .part[TP_MIDDLE] = { 0, 0, n, 1 } };
}

static tp_remap_axis reversed(int64_t n)
{
    return (tp_remap_axis){ .nx = n, .ny = n, .part[TP_MIDDLE] = { 0, n - 1, n, -1 } };
}

static tp_remap_axis padded(int64_t n, int64_t before, int64_t after, tp_pad_mode mode)
{
    tp_remap_axis a = { .nx = n, .ny = before + n + after, .part[TP_MIDDLE] = { before, 0, n, 1 } };
    tp_stretch *const head = &a.part[TP_BEFORE], *const tail = &a.part[TP_AFTER];
    if (mode == TP_PAD_CONSTANT) return a;
    const int step = mode == TP_PAD_REFLECT ? -1 : mode == TP_PAD_CIRCULAR;
    *head = (tp_stretch){ 0, 0, before, step };
    *tail = (tp_stretch){ before + n, n - 1, after, step };
    if (mode == TP_PAD_REFLECT) {
        head->x = before;
        tail->x = n - 2;
    } else if (mode == TP_PAD_CIRCULAR) {
        head->x = n - before;
        tail->x = 0;
    }
    return a;
}

/* +1 or -1 if an axis is one full stretch in that direction, else 0. */
static int direction(const tp_remap_axis *a)
{
    return a->nx == a->ny ? a->part[TP_MIDDLE].step : 0;
}

/* Merges axes and computes the strides. */
static tp_remap remap_of(int ndim, const tp_remap_axis *axis)
{
    tp_remap m = { .n = 0, .inner = 1 };
    for (int i = 0; i < ndim; i++) {
        const int way = axis[i].nx == 1 && axis[i].ny == 1 ? 0 : direction(&axis[i]);
        tp_remap_axis *const last = m.n > 0 ? &m.axis[m.n - 1] : NULL;
        if (axis[i].nx == 1 && axis[i].ny == 1) continue;
        if (last && way != 0 && direction(last) == way)
            *last = way > 0 ? straight(last->nx * axis[i].nx) : reversed(last->nx * axis[i].nx);
        else
            m.axis[m.n++] = axis[i];
    }
    if (m.n > 1 && direction(&m.axis[m.n - 1]) > 0) m.inner = m.axis[--m.n].nx;
    if (m.n == 0) m.axis[m.n++] = straight(1);
    int64_t x_stride = m.inner, y_stride = m.inner;
    for (int i = m.n - 1; i >= 0; i--) {
        m.axis[i].x_stride = x_stride;
        m.axis[i].y_stride = y_stride;
        x_stride *= m.axis[i].nx;
        y_stride *= m.axis[i].ny;
    }
    return m;
}

tp_remap tp__remap_flip(const tp_view *x, int axes)
{
    tp_remap_axis axis[TP_MAX_DIMS];
    unsigned set;
    bool keep;
    char why[200];
    if (!tp__axes(axes, x->ndim, &set, &keep, why, sizeof why))
        set = 0; /* excluded by the shape rule */
    for (int i = 0; i < x->ndim; i++)
        axis[i] = set >> i & 1u ? reversed(x->dim[i]) : straight(x->dim[i]);
    return remap_of(x->ndim, axis);
}

tp_remap tp__remap_pad(const tp_view *x, const tp_pad_cfg *cfg)
{
    tp_remap_axis axis[TP_MAX_DIMS];
    for (int i = 0; i < x->ndim; i++)
        axis[i] = padded(x->dim[i], cfg->before[i], cfg->after[i], cfg->mode);
    return remap_of(x->ndim, axis);
}
