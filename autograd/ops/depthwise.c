/* depthwise.c - depthwise convolutions over one or two axes, channels last.
 *
 *     y[b,o,c] = bias[c] + sum_k x[b, o stride - pad + k dilation, c] w[c,0,k]
 *
 * Weights are in PyTorch's layout, [C,1,K] and [C,1,KH,KW]. */
#include "tensor/geometry/depthwise.h"
#include "autograd/ops/conv.h"

static tp_code conv_shape(tp_infer *q, int axes)
{
    const tp_view *x = &q->x[0], *w = &q->x[1], *b = &q->x[2];
    if (tp__expect_conv_cfg(q, axes, true) != TP_OK) return TP_E_VALUE;
    if (tp__expect_conv(q, axes, "C,1") != TP_OK) return TP_E_SHAPE;
    if (tp__expect_channels_last(q, w->dim[0]) != TP_OK) return TP_E_SHAPE;
    const int64_t C = x->dim[axes + 1];
    if (w->dim[0] != C || w->dim[1] != 1)
        return tp_fail(q, TP_E_SHAPE, "w must be [%lld,1,%s]", (long long)C,
                       axes == 1 ? "K" : "KH,KW");
    if (!tp_absent(b) && (b->ndim != 1 || b->dim[0] != C))
        return tp_fail(q, TP_E_SHAPE, "b must be [%lld]", (long long)C);
    return tp__conv_result(q, axes, C);
}

static tp_code depthwise_conv1d_shape(tp_infer *q)
{
    return conv_shape(q, 1);
}

static tp_code depthwise_conv2d_shape(tp_infer *q)
{
    return conv_shape(q, 2);
}

#define ONE(s, p, d) .attr = TP_ATTR(tp_conv_cfg, .stride = { s }, .pad = { p }, .dilation = { d })
#define TWO(s, p, d)                                                                               \
    .attr = TP_ATTR(tp_conv_cfg, .stride = { s, s }, .pad = { p, p }, .dilation = { d, d })

static const tp_gradcase depthwise_conv1d_cases[] = {
    { "plain", .in = { TP_DIMS(2, 5, 3), TP_DIMS(3, 1, 3), TP_DIMS(3) }, ONE(1, 0, 1) },
    { "same size", .in = { TP_DIMS(1, 6, 2), TP_DIMS(2, 1, 3), TP_DIMS(2) }, ONE(1, 1, 1) },
    { "no bias", .in = { TP_DIMS(2, 4, 3), TP_DIMS(3, 1, 2) }, ONE(1, 1, 1) },
    { "stride", .in = { TP_DIMS(1, 9, 2), TP_DIMS(2, 1, 3), TP_DIMS(2) }, ONE(2, 1, 1) },
    { "stride skips", .in = { TP_DIMS(1, 8, 2), TP_DIMS(2, 1, 2), TP_DIMS(2) }, ONE(3, 0, 1) },
    { "dilation", .in = { TP_DIMS(1, 9, 2), TP_DIMS(2, 1, 3), TP_DIMS(2) }, ONE(1, 2, 2) },
    { "all three", .in = { TP_DIMS(2, 9, 1), TP_DIMS(1, 1, 4), TP_DIMS(1) }, ONE(2, 3, 2) },
    { "wide pad", .in = { TP_DIMS(1, 2, 2), TP_DIMS(2, 1, 2), TP_DIMS(2) }, ONE(1, 4, 1) },
    { "one tap", .in = { TP_DIMS(1, 4, 3), TP_DIMS(3, 1, 1), TP_DIMS(3) }, ONE(1, 0, 1) },
    { "packs", .in = { TP_DIMS(2, 5, 8), TP_DIMS(8, 1, 3), TP_DIMS(8) }, ONE(1, 1, 1) },
    { "packs, no pad", .in = { TP_DIMS(1, 5, 4), TP_DIMS(4, 1, 3) }, ONE(1, 0, 1) },
    { "packs, stride", .in = { TP_DIMS(2, 11, 8), TP_DIMS(8, 1, 3) }, ONE(2, 1, 1) },
    { "packs, wide pad", .in = { TP_DIMS(1, 2, 4), TP_DIMS(4, 1, 3) }, ONE(1, 4, 1) },
    { "33 packs", .in = { TP_DIMS(1, 3, 132), TP_DIMS(132, 1, 2) }, ONE(1, 0, 1) },
    { "33 channels", .in = { TP_DIMS(1, 4, 33), TP_DIMS(33, 1, 2) }, ONE(1, 1, 2) },
    { "65 outputs", .in = { TP_DIMS(1, 65, 4), TP_DIMS(4, 1, 3), TP_DIMS(4) }, ONE(1, 1, 1) },
    { "no images", .in = { TP_DIMS(0, 4, 3), TP_DIMS(3, 1, 2), TP_DIMS(3) }, ONE(1, 0, 1) },
    { "no tokens", .in = { TP_DIMS(2, 0, 3), TP_DIMS(3, 1, 3), TP_DIMS(3) }, ONE(1, 1, 1) },
    { "no channels", .in = { TP_DIMS(2, 4, 0), TP_DIMS(0, 1, 2), TP_DIMS(0) }, ONE(1, 0, 1) },
    { 0 },
};

static const tp_gradcase depthwise_conv2d_cases[] = {
    { "plain", .in = { TP_DIMS(2, 4, 3, 2), TP_DIMS(2, 1, 3, 2), TP_DIMS(2) }, TWO(1, 0, 1) },
    { "same size", .in = { TP_DIMS(1, 3, 5, 2), TP_DIMS(2, 1, 3, 3), TP_DIMS(2) }, TWO(1, 1, 1) },
    { "no bias", .in = { TP_DIMS(1, 3, 3, 3), TP_DIMS(3, 1, 2, 2) }, TWO(1, 1, 1) },
    { "stride", .in = { TP_DIMS(1, 5, 6, 1), TP_DIMS(1, 1, 3, 3), TP_DIMS(1) }, TWO(2, 1, 1) },
    { "dilation", .in = { TP_DIMS(1, 5, 6, 2), TP_DIMS(2, 1, 2, 3), TP_DIMS(2) }, TWO(1, 1, 2) },
    { "all three", .in = { TP_DIMS(2, 6, 5, 2), TP_DIMS(2, 1, 2, 3), TP_DIMS(2) }, TWO(2, 2, 2) },
    { "axes apart", .in = { TP_DIMS(1, 7, 8, 2), TP_DIMS(2, 1, 2, 3), TP_DIMS(2) },
      .attr = &(tp_conv_cfg){ .stride = { 2, 1 }, .pad = { 0, 2 }, .dilation = { 1, 2 } } },
    { "packs, axes apart", .in = { TP_DIMS(1, 6, 9, 4), TP_DIMS(4, 1, 3, 3), TP_DIMS(4) },
      .attr = &(tp_conv_cfg){ .stride = { 1, 2 }, .pad = { 2, 0 }, .dilation = { 1, 1 } } },
    { "packs", .in = { TP_DIMS(2, 4, 7, 4), TP_DIMS(4, 1, 3, 3), TP_DIMS(4) }, TWO(1, 1, 1) },
    { "packs, nine rows", .in = { TP_DIMS(1, 9, 3, 4), TP_DIMS(4, 1, 3, 3), TP_DIMS(4) },
      TWO(1, 1, 1) },
    { "packs, stride", .in = { TP_DIMS(1, 5, 7, 8), TP_DIMS(8, 1, 3, 3) }, TWO(2, 1, 1) },
    { "packs, stride, several runs and bands",
      .in = { TP_DIMS(2, 18, 11, 4), TP_DIMS(4, 1, 3, 3), TP_DIMS(4) }, TWO(2, 1, 1) },
    { "no rows", .in = { TP_DIMS(2, 0, 3, 2), TP_DIMS(2, 1, 3, 3), TP_DIMS(2) }, TWO(1, 1, 1) },
    { 0 },
};

TP_KERNEL(depthwise_fwd);
TP_KERNEL(depthwise_bwd);
TP_WORK(depthwise_work);

const tp_op tp_op_depthwise_conv1d = {
    TP_CONVOLUTION(depthwise_conv1d, tp_conv_cfg, tp__conv_macs, depthwise, 0),
    .doc = "each channel of x [B,N,C] with its own kernel, w [C,1,K]",
};

const tp_op tp_op_depthwise_conv2d = {
    TP_CONVOLUTION(depthwise_conv2d, tp_conv_cfg, tp__conv_macs, depthwise, 0),
    .doc = "each channel of x [B,H,W,C] with its own kernel, w [C,1,KH,KW]",
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
