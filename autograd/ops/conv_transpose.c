/* conv_transpose.c - transposed convolutions of images and of sequences, channels last.
 *
 *     y[b, i stride - pad + k dilation, n] = bias[n] + sum_i sum_k sum_c x[b,i,c] w[c,n,k]
 *
 * As in PyTorch: the gradient of the convolution with the same weights, [Ci,Co/groups,KH,KW] or
 * [Ci,Co/groups,K], in its input. output_pad adds positions at the end of an axis, which otherwise
 * has the least size that such a convolution maps to x's. */
#include "autograd/ops/conv.h"
#include "tensor/geometry/conv2d.h"

/* Returns the size of result axis i; 0 if x has none, -1 with the op failed if it would be
 * empty. */
static int64_t result_size(tp_infer *q, int i)
{
    const tp__conv_transpose_attr *at = q->attr;
    const tp_conv_cfg *cfg = &at->conv;
    const int64_t n = q->x[0].dim[1 + i], taps = q->x[1].dim[2 + i], extra = at->output_pad[i];
    const int64_t span = cfg->dilation[i] * (taps - 1) + 1;
    if (extra < 0 || (extra >= cfg->stride[i] && extra >= cfg->dilation[i])) {
        tp_fail(q, TP_E_VALUE,
                "output_pad cannot be %lld: it is less than the stride or the dilation",
                (long long)extra);
        return -1;
    }
    const int64_t out = (n - 1) * cfg->stride[i] - 2 * cfg->pad[i] + span + extra;
    if (n > 0 && (out < 1 || out > MOST)) {
        tp_fail(q, TP_E_SHAPE, "axis %d of the result would have %lld positions", 1 + i,
                (long long)out);
        return -1;
    }
    return n > 0 ? out : 0;
}

static tp_code transpose_shape(tp_infer *q, int axes)
{
    const tp__conv_transpose_attr *at = q->attr;
    const int64_t groups = at->conv.groups;
    const tp_view *x = &q->x[0], *w = &q->x[1], *b = &q->x[2];

    if (tp__expect_conv_cfg(q, axes, false) != TP_OK) return TP_E_VALUE;
    if (axes == 1 && at->output_pad[1] != 0)
        return tp_fail(q, TP_E_VALUE, "output_pad[1] must be 0, not %lld: there is one axis",
                       (long long)at->output_pad[1]);
    if (tp__expect_conv(q, axes, "Ci,Co/groups") != TP_OK) return TP_E_SHAPE;
    if (tp__expect_channels_last(q, w->dim[0]) != TP_OK) return TP_E_SHAPE;
    const int64_t C = x->dim[axes + 1];
    if (w->dim[0] != C)
        return tp_fail(q, TP_E_SHAPE, "w must be [%lld,Co/groups,%s]", (long long)C,
                       axes == 1 ? "K" : "KH,KW");
    if (C % groups != 0)
        return tp_fail(q, TP_E_SHAPE, "%lld inputs are not a multiple of %lld groups", (long long)C,
                       (long long)groups);
    if (w->dim[1] * groups > MOST) return tp_fail(q, TP_E_SHAPE, "sizes must be below 2^31");
    if (!tp_absent(b) && (b->ndim != 1 || b->dim[0] != w->dim[1] * groups))
        return tp_fail(q, TP_E_SHAPE, "b must be [%lld]", (long long)(w->dim[1] * groups));
    tp_view y = *x;
    for (int i = 0; i < axes; i++)
        if ((y.dim[1 + i] = result_size(q, i)) < 0) return TP_E_SHAPE;
    y.dim[axes + 1] = w->dim[1] * groups;
    q->y[0] = y;
    return TP_OK;
}

static tp_code conv_transpose1d_shape(tp_infer *q)
{
    return transpose_shape(q, 1);
}

static tp_code conv_transpose2d_shape(tp_infer *q)
{
    return transpose_shape(q, 2);
}

/* Counts all taps, even those that the pad cuts off. */
static double macs(const tp_infer *q)
{
    const tp_view *w = &q->x[1];
    return w->dim[0] ? (double)q->x[0].numel * (double)(w->numel / w->dim[0]) : 0.0;
}

#define CFG(...)     .attr = TP_ATTR(tp__conv_transpose_attr, __VA_ARGS__)
#define CONV(...)    CFG(.conv = { __VA_ARGS__ })
#define PLAIN        CONV(.stride = { 1, 1 }, .dilation = { 1, 1 }, .groups = 1)
#define PAD(h, w)    CONV(.stride = { 1, 1 }, .pad = { h, w }, .dilation = { 1, 1 }, .groups = 1)
#define STRIDE(s, p) CONV(.stride = { s, s }, .pad = { p, p }, .dilation = { 1, 1 }, .groups = 1)
#define GROUPS(n)    CONV(.stride = { 2, 2 }, .pad = { 1, 1 }, .dilation = { 1, 1 }, .groups = n)

static const tp_gradcase conv_transpose2d_cases[] = {
    { "plain", .in = { TP_DIMS(2, 3, 4, 3), TP_DIMS(3, 2, 3, 2), TP_DIMS(2) }, PLAIN },
    { "same size", .in = { TP_DIMS(2, 3, 5, 2), TP_DIMS(2, 3, 3, 3), TP_DIMS(3) }, PAD(1, 1) },
    { "no bias", .in = { TP_DIMS(1, 3, 3, 3), TP_DIMS(3, 2, 2, 2) }, PAD(1, 0) },
    { "1x1", .in = { TP_DIMS(2, 3, 2, 5), TP_DIMS(5, 4, 1, 1), TP_DIMS(4) }, PLAIN },
    { "1x1, stride", .in = { TP_DIMS(1, 2, 3, 3), TP_DIMS(3, 2, 1, 1), TP_DIMS(2) }, STRIDE(2, 0) },
    { "1x1, output_pad", .in = { TP_DIMS(1, 2, 3, 3), TP_DIMS(3, 2, 1, 1), TP_DIMS(2) },
      CFG({ .stride = { 1, 1 }, .dilation = { 2, 3 }, .groups = 1 }, { 1, 2 }) },
    { "twice the size", .in = { TP_DIMS(2, 2, 3, 3), TP_DIMS(3, 5, 2, 2), TP_DIMS(5) },
      STRIDE(2, 0) },
    { "overlapping", .in = { TP_DIMS(1, 3, 3, 2), TP_DIMS(2, 3, 4, 4), TP_DIMS(3) }, STRIDE(2, 1) },
    { "gaps", .in = { TP_DIMS(1, 3, 2, 2), TP_DIMS(2, 2, 2, 2), TP_DIMS(2) }, STRIDE(3, 0) },
    { "output_pad", .in = { TP_DIMS(1, 3, 4, 2), TP_DIMS(2, 3, 3, 3), TP_DIMS(3) },
      CFG({ .stride = { 2, 2 }, .pad = { 1, 1 }, .dilation = { 1, 1 }, .groups = 1 }, { 1, 0 }) },
    { "output_pad beyond the stride",
      .in = { TP_DIMS(1, 3, 4, 2), TP_DIMS(2, 2, 2, 2), TP_DIMS(2) },
      CFG({ .stride = { 1, 2 }, .pad = { 0, 1 }, .dilation = { 3, 4 }, .groups = 1 }, { 2, 3 }) },
    { "all differ by axis", .in = { TP_DIMS(1, 4, 3, 2), TP_DIMS(2, 2, 2, 3), TP_DIMS(2) },
      CFG({ .stride = { 2, 3 }, .pad = { 0, 2 }, .dilation = { 3, 2 }, .groups = 1 }, { 1, 2 }) },
    { "groups", .in = { TP_DIMS(2, 3, 2, 4), TP_DIMS(4, 3, 3, 3), TP_DIMS(6) }, GROUPS(2) },
    { "a channel a group", .in = { TP_DIMS(1, 3, 2, 3), TP_DIMS(3, 1, 3, 3), TP_DIMS(3) },
      GROUPS(3) },
    { "packs", .in = { TP_DIMS(1, 3, 4, 8), TP_DIMS(8, 16, 3, 3), TP_DIMS(16) }, PAD(1, 1) },
    { "packs, groups", .in = { TP_DIMS(1, 3, 2, 16), TP_DIMS(16, 8, 2, 2), TP_DIMS(16) },
      GROUPS(2) },
    { "packs, stride", .in = { TP_DIMS(1, 3, 3, 8), TP_DIMS(8, 8, 3, 3) }, STRIDE(2, 1) },
    { "one input", .in = { TP_DIMS(1, 3, 3, 1), TP_DIMS(1, 2, 3, 3), TP_DIMS(2) }, PLAIN },
    { "no images", .in = { TP_DIMS(0, 3, 3, 2), TP_DIMS(2, 2, 3, 3), TP_DIMS(2) }, PAD(1, 1) },
    { "no rows", .in = { TP_DIMS(2, 0, 3, 2), TP_DIMS(2, 2, 3, 3), TP_DIMS(2) }, PAD(1, 1) },
    { "no inputs", .in = { TP_DIMS(1, 3, 3, 0), TP_DIMS(0, 2, 2, 2), TP_DIMS(2) }, PLAIN },
    { "no outputs", .in = { TP_DIMS(1, 3, 3, 2), TP_DIMS(2, 0, 2, 2), TP_DIMS(0) }, PLAIN },
    { "1x1, no inputs", .in = { TP_DIMS(1, 3, 3, 0), TP_DIMS(0, 3, 1, 1), TP_DIMS(3) }, PLAIN },
    { "1x1, no outputs", .in = { TP_DIMS(1, 3, 3, 2), TP_DIMS(2, 0, 1, 1), TP_DIMS(0) }, PLAIN },
    { 0 },
};

#define ONE(s, p, d, g, e)                                                                         \
    CFG({ .stride = { s }, .pad = { p }, .dilation = { d }, .groups = g }, { e })

static const tp_gradcase conv_transpose1d_cases[] = {
    { "plain", .in = { TP_DIMS(2, 4, 3), TP_DIMS(3, 2, 3), TP_DIMS(2) }, ONE(1, 0, 1, 1, 0) },
    { "one tap", .in = { TP_DIMS(2, 4, 3), TP_DIMS(3, 2, 1), TP_DIMS(2) }, ONE(1, 0, 1, 1, 0) },
    { "stride", .in = { TP_DIMS(2, 4, 3), TP_DIMS(3, 2, 4), TP_DIMS(2) }, ONE(2, 1, 1, 1, 0) },
    { "all differ", .in = { TP_DIMS(1, 5, 2), TP_DIMS(2, 3, 3) }, ONE(3, 2, 2, 1, 1) },
    { "groups", .in = { TP_DIMS(2, 3, 4), TP_DIMS(4, 3, 2), TP_DIMS(6) }, ONE(2, 0, 1, 2, 1) },
    { "packs", .in = { TP_DIMS(1, 5, 16), TP_DIMS(16, 8, 3), TP_DIMS(8) }, ONE(2, 1, 1, 1, 1) },
    { "no tokens", .in = { TP_DIMS(2, 0, 2), TP_DIMS(2, 3, 3), TP_DIMS(3) }, ONE(1, 0, 1, 1, 0) },
    { 0 },
};

TP_KERNEL(conv_transpose2d_fwd);
TP_KERNEL(conv_transpose2d_bwd);
TP_WORK(conv_transpose2d_work);

const tp_op tp_op_conv_transpose1d = {
    TP_CONVOLUTION(conv_transpose1d, tp__conv_transpose_attr, macs, conv_transpose2d,
                   TP_TAKES_BF16),
    .doc = "transposed convolution of x [B,N,Ci], w [Ci,Co/groups,K]",
};

const tp_op tp_op_conv_transpose2d = {
    TP_CONVOLUTION(conv_transpose2d, tp__conv_transpose_attr, macs, conv_transpose2d,
                   TP_TAKES_BF16),
    .doc = "transposed convolution of x [B,H,W,Ci], w [Ci,Co/groups,KH,KW]",
};

static tp__conv_transpose_attr attr_of(const tp_conv_transpose_cfg *cfg, int axes)
{
    tp_conv_cfg conv = { .groups = cfg->groups };
    for (int i = 0; i < 2; i++) {
        conv.stride[i] = cfg->stride[i];
        conv.pad[i] = cfg->pad[i];
        conv.dilation[i] = cfg->dilation[i];
    }
    return (tp__conv_transpose_attr){ tp__conv_defaults(conv, axes),
                                      { cfg->output_pad[0], cfg->output_pad[1] } };
}

tp_tensor tp_conv_transpose1d(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b,
                              tp_conv_transpose_cfg cfg)
{
    const tp__conv_transpose_attr at = attr_of(&cfg, 1);
    return tp_apply(T, &tp_op_conv_transpose1d, &at, x, w, b);
}

tp_tensor tp_conv_transpose2d(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b,
                              tp_conv_transpose_cfg cfg)
{
    const tp__conv_transpose_attr at = attr_of(&cfg, 2);
    return tp_apply(T, &tp_op_conv_transpose2d, &at, x, w, b);
}
