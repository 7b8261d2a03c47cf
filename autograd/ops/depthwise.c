/* depthwise.c - depthwise convolutions over one or two axes, channels last.
 *
 *     y[b,o,c] = bias[c] + sum_k x[b, o stride - pad + k dilation, c] w[c,0,k]
 *
 * Weights are in PyTorch's layout, [C,1,K] and [C,1,KH,KW]. */
#include "tensor/geometry/depthwise.h"
#include "autograd/ops/conv.h"

static tp_code check_cfg(tp_infer *q, int axes)
{
    static const char *const name[] = { "stride", "pad", "dilation" };
    const tp_conv_cfg *cfg = q->attr;
    const int64_t *const value[] = { cfg->stride, cfg->pad, cfg->dilation };

    for (int i = 0; i < 3; i++)
        for (int k = 0; k < axes; k++)
            if (value[i][k] < (i == 1 ? 0 : 1) || value[i][k] > MOST)
                return tp_fail(q, TP_E_VALUE, "%s cannot be %lld", name[i], (long long)value[i][k]);
    for (int i = 0; axes == 1 && i < 3; i++)
        if (value[i][1] != 0)
            return tp_fail(q, TP_E_VALUE, "%s[1] must be 0, not %lld: there is one axis", name[i],
                           (long long)value[i][1]);
    if (cfg->groups != 0)
        return tp_fail(q, TP_E_VALUE, "groups must be 0, not %lld: each channel has its own kernel",
                       (long long)cfg->groups);
    return TP_OK;
}

static tp_code conv_shape(tp_infer *q, int axes)
{
    const tp_conv_cfg *cfg = q->attr;
    const tp_view *x = &q->x[0], *w = &q->x[1], *b = &q->x[2];

    if (check_cfg(q, axes) != TP_OK) return TP_E_VALUE;
    if (x->ndim != axes + 2)
        return tp_fail(q, TP_E_SHAPE, "x must be %s", axes == 1 ? "[B,N,C]" : "[B,H,W,C]");
    const int64_t C = x->dim[x->ndim - 1];
    if (w->ndim == axes + 2 && tp__expect_channels_last(q, w->dim[0]) != TP_OK) return TP_E_SHAPE;
    if (w->ndim != axes + 2 || w->dim[0] != C || w->dim[1] != 1)
        return tp_fail(q, TP_E_SHAPE, "w must be [%lld,1,%s]", (long long)C,
                       axes == 1 ? "K" : "KH,KW");
    if (!tp_absent(b) && (b->ndim != 1 || b->dim[0] != C))
        return tp_fail(q, TP_E_SHAPE, "b must be [%lld]", (long long)C);
    for (int i = 1; i <= axes; i++) {
        if (w->dim[i + 1] < 1 || w->dim[i + 1] > MOST || x->dim[i] > MOST)
            return tp_fail(q, TP_E_SHAPE, "kernel sizes must be 1 or more, all sizes below 2^31");
        const int64_t span = cfg->dilation[i - 1] * (w->dim[i + 1] - 1) + 1;
        const int64_t room = x->dim[i] + 2 * cfg->pad[i - 1];
        if (x->dim[i] > 0 && span > room)
            return tp_fail(q, TP_E_SHAPE, "kernel spans %lld, axis %d with its pad only %lld",
                           (long long)span, i, (long long)room);
    }
    const tp__conv g = tp__conv_of(cfg, x, w);
    q->y[0] = *x;
    q->y[0].dim[axes] = g.w.out;
    if (axes == 2) q->y[0].dim[1] = g.h.out;
    return TP_OK;
}

static tp_code conv1d_shape(tp_infer *q)
{
    return conv_shape(q, 1);
}

static tp_code conv2d_shape(tp_infer *q)
{
    return conv_shape(q, 2);
}

/* Counts all taps, also those in the padding. */
static double conv_macs(const tp_infer *q)
{
    const tp_view *w = &q->x[1];
    return w->dim[0] ? (double)q->y[0].numel * (double)(w->numel / w->dim[0]) : 0.0;
}

#define ONE(s, p, d)                                                                               \
    .attr = &(tp_conv_cfg)                                                                         \
    {                                                                                              \
        .stride = { s }, .pad = { p }, .dilation = { d }                                           \
    }
#define TWO(s, p, d)                                                                               \
    .attr = &(tp_conv_cfg)                                                                         \
    {                                                                                              \
        .stride = { s, s }, .pad = { p, p }, .dilation = { d, d }                                  \
    }

static const tp_gradcase conv1d_cases[] = {
    { "plain", .in = { { 3, { 2, 5, 3 } }, { 3, { 3, 1, 3 } }, { 1, { 3 } } }, ONE(1, 0, 1) },
    { "same size", .in = { { 3, { 1, 6, 2 } }, { 3, { 2, 1, 3 } }, { 1, { 2 } } }, ONE(1, 1, 1) },
    { "no bias", .in = { { 3, { 2, 4, 3 } }, { 3, { 3, 1, 2 } } }, ONE(1, 1, 1) },
    { "stride", .in = { { 3, { 1, 9, 2 } }, { 3, { 2, 1, 3 } }, { 1, { 2 } } }, ONE(2, 1, 1) },
    { "stride skips", .in = { { 3, { 1, 8, 2 } }, { 3, { 2, 1, 2 } }, { 1, { 2 } } },
      ONE(3, 0, 1) },
    { "dilation", .in = { { 3, { 1, 9, 2 } }, { 3, { 2, 1, 3 } }, { 1, { 2 } } }, ONE(1, 2, 2) },
    { "all three", .in = { { 3, { 2, 9, 1 } }, { 3, { 1, 1, 4 } }, { 1, { 1 } } }, ONE(2, 3, 2) },
    { "wide pad", .in = { { 3, { 1, 2, 2 } }, { 3, { 2, 1, 2 } }, { 1, { 2 } } }, ONE(1, 4, 1) },
    { "one tap", .in = { { 3, { 1, 4, 3 } }, { 3, { 3, 1, 1 } }, { 1, { 3 } } }, ONE(1, 0, 1) },
    { "packs", .in = { { 3, { 2, 5, 8 } }, { 3, { 8, 1, 3 } }, { 1, { 8 } } }, ONE(1, 1, 1) },
    { "packs, no pad", .in = { { 3, { 1, 5, 4 } }, { 3, { 4, 1, 3 } } }, ONE(1, 0, 1) },
    { "packs, stride", .in = { { 3, { 2, 11, 8 } }, { 3, { 8, 1, 3 } } }, ONE(2, 1, 1) },
    { "packs, wide pad", .in = { { 3, { 1, 2, 4 } }, { 3, { 4, 1, 3 } } }, ONE(1, 4, 1) },
    { "33 packs", .in = { { 3, { 1, 3, 132 } }, { 3, { 132, 1, 2 } } }, ONE(1, 0, 1) },
    { "33 channels", .in = { { 3, { 1, 4, 33 } }, { 3, { 33, 1, 2 } } }, ONE(1, 1, 2) },
    { "65 outputs", .in = { { 3, { 1, 65, 4 } }, { 3, { 4, 1, 3 } }, { 1, { 4 } } }, ONE(1, 1, 1) },
    { "no images", .in = { { 3, { 0, 4, 3 } }, { 3, { 3, 1, 2 } }, { 1, { 3 } } }, ONE(1, 0, 1) },
    { "no tokens", .in = { { 3, { 2, 0, 3 } }, { 3, { 3, 1, 3 } }, { 1, { 3 } } }, ONE(1, 1, 1) },
    { "no channels", .in = { { 3, { 2, 4, 0 } }, { 3, { 0, 1, 2 } }, { 1, { 0 } } }, ONE(1, 0, 1) },
    { 0 },
};

static const tp_gradcase conv2d_cases[] = {
    { "plain", .in = { { 4, { 2, 4, 3, 2 } }, { 4, { 2, 1, 3, 2 } }, { 1, { 2 } } }, TWO(1, 0, 1) },
    { "same size", .in = { { 4, { 1, 3, 5, 2 } }, { 4, { 2, 1, 3, 3 } }, { 1, { 2 } } },
      TWO(1, 1, 1) },
    { "no bias", .in = { { 4, { 1, 3, 3, 3 } }, { 4, { 3, 1, 2, 2 } } }, TWO(1, 1, 1) },
    { "stride", .in = { { 4, { 1, 5, 6, 1 } }, { 4, { 1, 1, 3, 3 } }, { 1, { 1 } } },
      TWO(2, 1, 1) },
    { "dilation", .in = { { 4, { 1, 5, 6, 2 } }, { 4, { 2, 1, 2, 3 } }, { 1, { 2 } } },
      TWO(1, 1, 2) },
    { "all three", .in = { { 4, { 2, 6, 5, 2 } }, { 4, { 2, 1, 2, 3 } }, { 1, { 2 } } },
      TWO(2, 2, 2) },
    { "axes apart", .in = { { 4, { 1, 7, 8, 2 } }, { 4, { 2, 1, 2, 3 } }, { 1, { 2 } } },
      .attr = &(tp_conv_cfg){ .stride = { 2, 1 }, .pad = { 0, 2 }, .dilation = { 1, 2 } } },
    { "packs, axes apart", .in = { { 4, { 1, 6, 9, 4 } }, { 4, { 4, 1, 3, 3 } }, { 1, { 4 } } },
      .attr = &(tp_conv_cfg){ .stride = { 1, 2 }, .pad = { 2, 0 }, .dilation = { 1, 1 } } },
    { "packs", .in = { { 4, { 2, 4, 7, 4 } }, { 4, { 4, 1, 3, 3 } }, { 1, { 4 } } }, TWO(1, 1, 1) },
    { "packs, nine rows", .in = { { 4, { 1, 9, 3, 4 } }, { 4, { 4, 1, 3, 3 } }, { 1, { 4 } } },
      TWO(1, 1, 1) },
    { "packs, stride", .in = { { 4, { 1, 5, 7, 8 } }, { 4, { 8, 1, 3, 3 } } }, TWO(2, 1, 1) },
    { "packs, stride, several runs and bands",
      .in = { { 4, { 2, 18, 11, 4 } }, { 4, { 4, 1, 3, 3 } }, { 1, { 4 } } }, TWO(2, 1, 1) },
    { "no rows", .in = { { 4, { 2, 0, 3, 2 } }, { 4, { 2, 1, 3, 3 } }, { 1, { 2 } } },
      TWO(1, 1, 1) },
    { 0 },
};

TP_KERNEL(depthwise_fwd);
TP_KERNEL(depthwise_bwd);
TP_WORK(depthwise_work);

const tp_op tp_op_depthwise_conv1d = {
    .name = "depthwise_conv1d",
    .doc = "each channel of x [B,N,C] with its own kernel, w [C,1,K]",
    .attr_size = sizeof(tp_conv_cfg),
    .shape = conv1d_shape,
    .macs = conv_macs,
    TP_CONVOLUTION(depthwise, 0),
    .cases = conv1d_cases,
};

const tp_op tp_op_depthwise_conv2d = {
    .name = "depthwise_conv2d",
    .doc = "each channel of x [B,H,W,C] with its own kernel, w [C,1,KH,KW]",
    .attr_size = sizeof(tp_conv_cfg),
    .shape = conv2d_shape,
    .macs = conv_macs,
    TP_CONVOLUTION(depthwise, 0),
    .cases = conv2d_cases,
};

tp_tensor tp_depthwise_conv1d(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b, tp_conv_cfg cfg)
{
    const tp_conv_cfg at = tp__conv_steps(cfg, 1);
    return tp_apply(T, &tp_op_depthwise_conv1d, &at, x, w, b);
}

tp_tensor tp_depthwise_conv2d(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b, tp_conv_cfg cfg)
{
    const tp_conv_cfg at = tp__conv_steps(cfg, 2);
    return tp_apply(T, &tp_op_depthwise_conv2d, &at, x, w, b);
}
