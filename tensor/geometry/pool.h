/* pool.h - geometry of pooling windows over channels-last images, for shape rules and kernels.
 *
 * Along an axis, output o sees the existing inputs of [o stride - pad, o stride - pad + kernel)
 * or, in adaptive pooling, [floor(o in / out), ceil((o + 1) in / out)). Kernels know only these
 * ranges. */
#ifndef TP_POOL_H
#define TP_POOL_H

#include <tapegrad/op.h>
#include <tapegrad/ops.h>

#include "tensor/geometry/whole.h"

typedef struct tp__pool_attr {
    tp_pool_cfg cfg; /* defaults filled in; all 0 if adaptive */
    int64_t size[2]; /* adaptive: rows and columns of y; otherwise 0 */
} tp__pool_attr;

typedef struct tp__pool_axis {
    int64_t in, out, kernel, stride, pad; /* kernel 0: adaptive */
} tp__pool_axis;

typedef struct tp__pool {
    int64_t batch, channels;
    tp__pool_axis axis[2]; /* rows, columns */
    bool ignore_pad;       /* average: divide by the number of existing inputs */
} tp__pool;

/* Outputs of an axis; 0 or less if no window fits. A window that `ceil` adds begins in the image or
 * in the padding before it. */
static inline int64_t tp__pool_outputs(const tp__pool_axis *a, bool ceil)
{
    const int64_t room = a->in + 2 * a->pad - a->kernel;
    const int64_t out = room < 0 ? 0 : room / a->stride + 1;
    const bool part = room < 0 ? room > -a->stride : room % a->stride > 0;
    return out + (ceil && part && out * a->stride < a->in + a->pad);
}

static inline tp__pool tp__pool_of(const tp__pool_attr *at, const tp_view *x)
{
    const tp_pool_cfg *cfg = &at->cfg;
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
        a->out = a->kernel == 0 ? at->size[i] : a->in == 0 ? 0 : tp__pool_outputs(a, cfg->ceil);
    }
    return g;
}

/* The range of n elements that piece i of m covers; pieces are as equal as possible and overlap
 * rather than split an element. Swap n and m for the pieces covering one. */
TP_HD static inline tp__range tp__pool_piece(int64_t i, int64_t n, int64_t m)
{
    tp__range r;
    r.first = i * n / m;
    r.end = ((i + 1) * n + m - 1) / m;
    return r;
}

/* The window of output o in the padded image. */
TP_HD static inline tp__range tp__pool_reach(const tp__pool_axis *a, int64_t o)
{
    if (a->kernel == 0) return tp__pool_piece(o, a->in, a->out);
    tp__range r;
    r.first = o * a->stride - a->pad;
    r.end = r.first + a->kernel < a->in + a->pad ? r.first + a->kernel : a->in + a->pad;
    return r;
}

/* The inputs that output o sees. */
TP_HD static inline tp__range tp__pool_window(const tp__pool_axis *a, int64_t o)
{
    tp__range r = tp__pool_reach(a, o);
    r.first = r.first > 0 ? r.first : 0;
    r.end = r.end < a->in ? r.end : a->in;
    return r;
}

/* The outputs that see input i. */
TP_HD static inline tp__range tp__pool_seen(const tp__pool_axis *a, int64_t i)
{
    if (a->kernel == 0) return tp__pool_piece(i, a->out, a->in);
    const int64_t at = i + a->pad, end = at / a->stride + 1;
    tp__range r;
    r.first = at < a->kernel ? 0 : (at - a->kernel) / a->stride + 1;
    r.end = end < a->out ? end : a->out;
    return r;
}

/* An axis's factor in the divisor of averages, at its output o. */
TP_HD static inline int64_t tp__pool_count(const tp__pool *g, int axis, int64_t o)
{
    const tp__pool_axis *a = &g->axis[axis];
    const tp__range r = g->ignore_pad ? tp__pool_window(a, o) : tp__pool_reach(a, o);
    return r.end - r.first;
}

#endif
