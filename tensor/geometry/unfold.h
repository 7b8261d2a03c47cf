/* unfold.h - geometry of unfold and fold, for shape rules and kernels: the windows of a map
 * [B,H,W,C] form [B,Ho,Wo,KH*KW*C]. Tap k of an axis's window o is at o stride - pad + k dilation
 * in the map. */
#ifndef TP_UNFOLD_H
#define TP_UNFOLD_H

#include "tensor/geometry/depthwise.h"
#include "tensor/geometry/whole.h"

typedef struct tp__fold_attr {
    tp_unfold_cfg cfg; /* first: kernels read this; defaults filled in */
    int64_t size[2];   /* rows and columns of the map */
} tp__fold_attr;

typedef struct tp__unfold {
    int64_t batch, channels;
    tp__conv_axis axis[2]; /* rows, columns; out: windows */
} tp__unfold;

static inline tp__unfold tp__unfold_of(const tp_unfold_cfg *cfg, const tp_view *map)
{
    tp__unfold g;
    g.batch = map->dim[0];
    g.channels = map->dim[3];
    for (int i = 0; i < 2; i++) {
        tp__conv_axis *a = &g.axis[i];
        a->in = map->dim[1 + i];
        a->taps = cfg->kernel[i];
        a->stride = cfg->stride[i];
        a->pad = cfg->pad[i];
        a->dilation = cfg->dilation[i];
        a->out = tp__conv_out(a);
    }
    return g;
}

/* The taps of window o that lie in [lo, hi). */
TP_HD static inline tp__range tp__unfold_taps(const tp__conv_axis *a, int64_t o, int64_t lo,
                                              int64_t hi)
{
    const int64_t base = o * a->stride - a->pad, reach = (a->taps - 1) * a->dilation;
    tp__range r = { 0, a->taps };
    if (base < lo) r.first = tp__least(tp__ceil_div(lo - base, a->dilation), a->taps);
    if (base + reach >= hi) r.end = base < hi ? tp__ceil_div(hi - base, a->dilation) : 0;
    r.end = tp__most(r.end, r.first);
    return r;
}

/* The windows that may have a tap in the non-empty [lo, hi); with dilation some have none. */
TP_HD static inline tp__range tp__unfold_seen(const tp__conv_axis *a, int64_t lo, int64_t hi)
{
    const int64_t before = lo + a->pad - (a->taps - 1) * a->dilation;
    tp__range r;
    r.first = before > 0 ? tp__ceil_div(before, a->stride) : 0;
    r.end = tp__least((hi - 1 + a->pad) / a->stride + 1, a->out);
    return r;
}

#endif
