/* conv.h - checks, defaults and op members shared by plain, depthwise and transposed convolutions
 * and by windows of maps. */
#ifndef TP_OPS_CONV_H
#define TP_OPS_CONV_H

#include <string.h>

#include "autograd/ops/op_inner.h"
#include "tensor/geometry/depthwise.h"

#define MOST INT32_MAX /* the largest option and size, so that no product overflows */

/* Members of an op of x, w and optional b with attributes `attr`, except its description: op_shape
 * and op_cases, the kernels name_fwd, name_bwd and name_work; also: more flags. */
#define TP_CONVOLUTION(op, attr, work_of, kernels, also)                                           \
    .name = #op, .nx = 3, .ny = 1, .inputs = "x, w, b", .attr_size = sizeof(attr),                 \
    .saves = TP_SAVE_X(0) | TP_SAVE_X(1), .optional = 1u << 2,                                     \
    .flags = TP_COMPUTES | TP_ACCUMULATES | (also), .shape = op##_shape, .macs = work_of,          \
    .forward = TP_KERNELS(kernels##_fwd), .backward = TP_KERNELS(kernels##_bwd),                   \
    .work = TP_WORKS(kernels##_work), .cases = op##_cases

/* Replaces zeros by defaults, except groups, which depthwise convolutions lack; with one axis,
 * element 1 of each pair stays as given. */
static inline tp_conv_cfg tp__conv_steps(tp_conv_cfg cfg, int axes)
{
    for (int i = 0; i < axes; i++) {
        if (cfg.stride[i] == 0) cfg.stride[i] = 1;
        if (cfg.dilation[i] == 0) cfg.dilation[i] = 1;
    }
    return cfg;
}

static inline tp_conv_cfg tp__conv_defaults(tp_conv_cfg cfg, int axes)
{
    cfg = tp__conv_steps(cfg, axes);
    if (cfg.groups == 0) cfg.groups = 1;
    return cfg;
}

/* Fails unless n options of that many axes are valid: pads from 0, others from 1. */
static inline tp_code tp__expect_steps(tp_infer *q, int n, const char *const *name,
                                       const int64_t *const *value, int axes)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < axes; k++)
            if (value[i][k] < (strcmp(name[i], "pad") == 0 ? 0 : 1) || value[i][k] > MOST)
                return tp_fail(q, TP_E_VALUE, "%s cannot be %lld", name[i], (long long)value[i][k]);
    return TP_OK;
}

/* Fails if a kernel is longer than its padded axis of x, unless that is empty. */
static inline tp_code tp__expect_room(tp_infer *q, const tp__conv_axis *a, int axis)
{
    const int64_t span = a->dilation * (a->taps - 1) + 1, room = a->in + 2 * a->pad;
    if (a->in == 0 || span <= room) return TP_OK;
    return tp_fail(q, TP_E_SHAPE, "kernel spans %lld, axis %d with its pad only %lld",
                   (long long)span, axis, (long long)room);
}

/* Fails unless the options at the start of q->attr are valid. Depthwise convolutions have no
 * groups. */
static inline tp_code tp__expect_conv_cfg(tp_infer *q, int axes, bool depthwise)
{
    static const char *const name[] = { "stride", "pad", "dilation" };
    const tp_conv_cfg *cfg = q->attr;
    const int64_t *const value[] = { cfg->stride, cfg->pad, cfg->dilation };
    if (tp__expect_steps(q, 3, name, value, axes) != TP_OK) return TP_E_VALUE;
    for (int i = 0; axes == 1 && i < 3; i++)
        if (value[i][1] != 0)
            return tp_fail(q, TP_E_VALUE, "%s[1] must be 0, not %lld: there is one axis", name[i],
                           (long long)value[i][1]);
    if (depthwise && cfg->groups != 0)
        return tp_fail(q, TP_E_VALUE, "groups must be 0, not %lld: each channel has its own kernel",
                       (long long)cfg->groups);
    if (!depthwise && (cfg->groups < 1 || cfg->groups > MOST))
        return tp_fail(q, TP_E_VALUE, "groups cannot be %lld", (long long)cfg->groups);
    return TP_OK;
}

/* Fails unless x is [B,...,C] and w has as many axes, with kernel sizes of 1 or more. first: names
 * w's first two axes. */
static inline tp_code tp__expect_conv(tp_infer *q, int axes, const char *first)
{
    const tp_view *x = &q->x[0], *w = &q->x[1];
    if (x->ndim != axes + 2)
        return tp_fail(q, TP_E_SHAPE, "x must be %s", axes == 1 ? "[B,N,C]" : "[B,H,W,C]");
    if (w->ndim != axes + 2)
        return tp_fail(q, TP_E_SHAPE, "w must be [%s,%s]", first, axes == 1 ? "K" : "KH,KW");
    for (int i = 0; i < axes + 2; i++)
        if (x->dim[i] > MOST || w->dim[i] > MOST)
            return tp_fail(q, TP_E_SHAPE, "sizes must be below 2^31");
    for (int i = 2; i < axes + 2; i++)
        if (w->dim[i] < 1) return tp_fail(q, TP_E_SHAPE, "kernel sizes must be 1 or more");
    return TP_OK;
}

/* Describes the result of a plain or depthwise convolution with that many channels. Fails if a
 * kernel exceeds its padded axis. Requires the checks above. */
static inline tp_code tp__conv_result(tp_infer *q, int axes, int64_t channels)
{
    const tp_view *x = &q->x[0];
    tp_view y = *x;
    for (int i = 0; i < axes; i++) {
        const tp__conv_axis a = tp__conv_axis_of(q->attr, i, x->dim[1 + i], q->x[1].dim[2 + i]);
        if (tp__expect_room(q, &a, 1 + i) != TP_OK) return TP_E_SHAPE;
        y.dim[1 + i] = a.out;
    }
    y.dim[axes + 1] = channels;
    q->y[0] = y;
    return TP_OK;
}

/* Multiply-adds of a plain or depthwise convolution. Counts all taps, even in the padding. */
static inline double tp__conv_macs(const tp_infer *q)
{
    const tp_view *w = &q->x[1];
    return w->dim[0] ? (double)q->y[0].numel * (double)(w->numel / w->dim[0]) : 0.0;
}

#endif
