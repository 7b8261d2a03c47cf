/* interpolate.h - the inputs of each output of a resized axis, by PyTorch's rules without
 * antialiasing.
 *
 * Output o is at input coordinate (o + 1/2) in/out - 1/2, or o (in - 1)/(out - 1) with aligned
 * corners. Bilinear interpolation raises a negative coordinate to 0 and reads the two inputs around
 * it. Bicubic reads four inputs, weighted by cubic convolution with a = -3/4. Reads beyond an end
 * return the input at that end. Nearest reads input floor(o in/out), or floor((o + 1/2) in/out) if
 * exact, in f32 like PyTorch, which matters where the quotient is near an integer. */
#ifndef TP_INTERPOLATE_H
#define TP_INTERPOLATE_H

#include <math.h>
#include <tapegrad/op.h>
#include <tapegrad/ops.h>

#include "tensor/host_device.h"

typedef struct tp__interpolate_attr {
    int64_t size[2]; /* rows, columns of the result */
    tp_interpolation mode;
    bool align_corners;
} tp__interpolate_attr;

typedef struct tp__resize_axis {
    int64_t in, out;
    int taps; /* 1, 2 or 4 */
    bool align;
    float shift;  /* nearest */
    double scale; /* inputs per output */
} tp__resize_axis;

typedef struct tp__resize {
    int64_t batch, channels;
    tp__resize_axis axis[2]; /* rows, columns */
} tp__resize;

/* x: the input, or its gradient. */
static inline tp__resize tp__resize_of(const tp__interpolate_attr *at, const tp_view *x)
{
    tp__resize g;
    g.batch = x->dim[0];
    g.channels = x->dim[3];
    for (int i = 0; i < 2; i++) {
        tp__resize_axis *a = &g.axis[i];
        a->in = x->dim[1 + i];
        a->out = at->size[i];
        a->taps = at->mode == TP_INTERPOLATE_BICUBIC    ? 4
                  : at->mode == TP_INTERPOLATE_BILINEAR ? 2
                                                        : 1;
        a->shift = at->mode == TP_INTERPOLATE_NEAREST_EXACT ? 0.5f : 0.0f;
        a->align = at->align_corners;
        a->scale = !a->align    ? (double)a->in / (double)a->out
                   : a->out > 1 ? (double)(a->in - 1) / (double)(a->out - 1)
                                : 0.0;
    }
    return g;
}

/* Weights of the taps of output o. The first tap reads input *first, maybe outside the axis. */
TP_HD static inline void tp__resize_weights(const tp__resize_axis *a, int64_t o, double w[4],
                                            int64_t *first)
{
    if (a->taps == 1) {
        const float nearest = floorf(((float)o + a->shift) * (float)a->scale);
        w[0] = 1.0;
        w[1] = w[2] = w[3] = 0.0;
        *first = nearest < (float)(a->in - 1) ? (int64_t)nearest : a->in - 1;
        return;
    }
    double at = a->align ? (double)o * a->scale : ((double)o + 0.5) * a->scale - 0.5;
    if (a->taps == 2 && at < 0.0) at = 0.0;
    int64_t i = (int64_t)floor(at);
    if (i > a->in - 1) i = a->in - 1;
    double t = at - (double)i;
    if (t > 1.0) t = 1.0;
    w[0] = 1.0 - t;
    w[1] = t;
    w[2] = w[3] = 0.0;
    *first = i;
    if (a->taps == 2) return;
    const double k = -0.75, u = 1.0 - t;
    w[0] = ((k * (t + 1.0) - 5.0 * k) * (t + 1.0) + 8.0 * k) * (t + 1.0) - 4.0 * k;
    w[1] = ((k + 2.0) * t - (k + 3.0)) * t * t + 1.0;
    w[2] = ((k + 2.0) * u - (k + 3.0)) * u * u + 1.0;
    w[3] = ((k * (u + 1.0) - 5.0 * k) * (u + 1.0) + 8.0 * k) * (u + 1.0) - 4.0 * k;
    *first = i - 1;
}

TP_HD static inline int64_t tp__resize_inside(const tp__resize_axis *a, int64_t i)
{
    return i < 0 ? 0 : i < a->in ? i : a->in - 1;
}

/* A range [*first, *end) that contains all outputs that read input i. */
TP_HD static inline void tp__resize_readers(const tp__resize_axis *a, int64_t i, int64_t *first,
                                            int64_t *end)
{
    const double reach = a->taps == 2 ? 1.0 : 2.0, half = a->align ? 0.0 : 0.5;
    *first = 0;
    *end = a->out;
    if (a->scale <= 0.0) return;
    double low = ((double)i - reach + half) / a->scale - half;
    double high = ((double)i + reach + half) / a->scale - half;
    if (a->taps == 1) { /* allow for f32 rounding */
        const double slack = (double)a->out * 0x1p-21;
        low = (double)i / a->scale - slack;
        high = (double)(i + 1) / a->scale + slack;
    }
    if (i > 0 && low > 1.0) *first = (int64_t)low - 1;
    if (i < a->in - 1 && high + 2.0 < (double)a->out) *end = (int64_t)(high + 2.0);
}

#endif
