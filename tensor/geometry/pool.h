/* pool.h - geometry of pooling windows over channels-last images, for shape rule and kernels.
 *
 * Output o of an axis sees the inputs of [o stride - pad, o stride - pad + kernel) that exist. */
#ifndef TP_POOL_H
#define TP_POOL_H

#include <tapegrad/op.h>
#include <tapegrad/ops.h>

#include "tensor/host_device.h"

typedef struct tp__pool_axis {
    int64_t in, out, kernel, stride, pad;
} tp__pool_axis;

typedef struct tp__pool {
    int64_t batch, channels;
    tp__pool_axis axis[2]; /* rows, columns                                      */
    bool ignore_pad;       /* average: divide by the number of inputs that exist */
} tp__pool;

/* The defaults of cfg are already filled in, see tp_max_pool2d. */
static inline tp__pool tp__pool_of(const tp_pool_cfg *cfg, const tp_view *x)
{
    tp__pool g;
    g.batch = x->dim[0];
    g.channels = x->dim[3];
    g.ignore_pad = cfg->ignore_pad;
    for (int i = 0; i < 2; i++) {
        tp__pool_axis *a = &g.axis[i];
        a->in = x->dim[1 + i];
        a->kernel = cfg->kernel[i];
        a->stride = cfg->stride[i];
        a->pad = cfg->pad[i];
        const int64_t room = a->in + 2 * a->pad - a->kernel;
        a->out = a->in == 0 || room < 0 ? 0 : room / a->stride + 1;
    }
    return g;
}

typedef struct tp__range {
    int64_t first, end;
} tp__range;

/* The inputs that output o sees. */
TP_HD static inline tp__range tp__pool_window(const tp__pool_axis *a, int64_t o)
{
    const int64_t begin = o * a->stride - a->pad, end = begin + a->kernel;
    tp__range r;
    r.first = begin > 0 ? begin : 0;
    r.end = end < a->in ? end : a->in;
    return r;
}

/* The outputs that see input i. */
TP_HD static inline tp__range tp__pool_seen(const tp__pool_axis *a, int64_t i)
{
    const int64_t at = i + a->pad, end = at / a->stride + 1;
    tp__range r;
    r.first = at < a->kernel ? 0 : (at - a->kernel) / a->stride + 1;
    r.end = end < a->out ? end : a->out;
    return r;
}

/* The divisor of an output's average. */
TP_HD static inline int64_t tp__pool_count(const tp__pool *g, int64_t row, int64_t col)
{
    const tp__range h = tp__pool_window(&g->axis[0], row), w = tp__pool_window(&g->axis[1], col);
    return g->ignore_pad ? (h.end - h.first) * (w.end - w.first)
                         : g->axis[0].kernel * g->axis[1].kernel;
}

#endif
