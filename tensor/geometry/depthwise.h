/* depthwise.h - geometry of depthwise convolutions, for their shape rule, scratch and kernels.
 *
 * Tap k of an axis connects output o to input i = o stride - pad + k dilation. A 1D convolution is
 * handled as 2D, with one row and one tap along the first axis. */
#ifndef TP_DEPTHWISE_H
#define TP_DEPTHWISE_H

#include <tapegrad/op.h>
#include <tapegrad/ops.h>

typedef struct tp__conv_axis {
    int64_t in, out, taps, stride, pad, dilation;
} tp__conv_axis;

typedef struct tp__conv {
    int64_t batch, channels;
    tp__conv_axis h, w;
} tp__conv;

/* The number of outputs of an axis; 0 if the kernel does not fit. */
static inline int64_t tp__conv_out(const tp__conv_axis *a)
{
    const int64_t room = a->in + 2 * a->pad - a->dilation * (a->taps - 1) - 1;
    return room < 0 ? 0 : room / a->stride + 1;
}

/* Axis i of cfg, over `in` inputs. */
static inline tp__conv_axis tp__conv_axis_of(const tp_conv_cfg *cfg, int i, int64_t in,
                                             int64_t taps)
{
    tp__conv_axis a;
    a.in = in;
    a.taps = taps;
    a.stride = cfg->stride[i];
    a.pad = cfg->pad[i];
    a.dilation = cfg->dilation[i];
    a.out = tp__conv_out(&a);
    return a;
}

/* x [B,N,C] and w [C,1,K], or x [B,H,W,C] and w [C,1,KH,KW]. */
static inline tp__conv tp__conv_of(const tp_conv_cfg *cfg, const tp_view *x, const tp_view *w)
{
    static const tp_conv_cfg plain = { { 1, 1 }, { 0, 0 }, { 1, 1 }, 0 };
    const bool flat = x->ndim == 3;
    const int64_t cols = x->dim[x->ndim - 2], taps = w->dim[w->ndim - 1];
    tp__conv g;
    g.batch = x->dim[0];
    g.channels = w->dim[0];
    g.h = flat ? tp__conv_axis_of(&plain, 0, 1, 1) : tp__conv_axis_of(cfg, 0, x->dim[1], w->dim[2]);
    g.w = tp__conv_axis_of(cfg, flat ? 0 : 1, cols, taps);
    return g;
}

#endif
