/* conv2d.c - convolutions of images and of sequences, channels last.
 *
 *     y[b,o,n] = bias[n] + sum_k sum_c x[b, o stride - pad + k dilation, c] w[n,c,k]
 *
 * Weights use PyTorch's layout, [Co,Ci/groups,KH,KW] and [Co,Ci/groups,K]; output group i reads
 * input group i. Groups of one input and one output go to the depthwise ops. */
#include "tensor/geometry/conv2d.h"
#include "autograd/ops/conv.h"
#include "autograd/tape.h"
#include <tapegrad/tape.h>
#include <tapegrad/tensor.h>

static tp_code check_channels(tp_infer *q, int axes)
{
    const int64_t groups = ((const tp_conv_cfg *)q->attr)->groups;
    const tp_view *x = &q->x[0], *w = &q->x[1], *b = &q->x[2];
    if (tp__expect_conv(q, axes, "Co,Ci/groups") != TP_OK) return TP_E_SHAPE;
    const int64_t C = x->dim[axes + 1];
    if (tp__expect_channels_last(q, w->dim[1] * groups) != TP_OK) return TP_E_SHAPE;
    if (C % groups != 0 || w->dim[0] % groups != 0)
        return tp_fail(q, TP_E_SHAPE,
                       "%lld inputs and %lld outputs are not multiples of %lld groups",
                       (long long)C, (long long)w->dim[0], (long long)groups);
    if (w->dim[1] != C / groups)
        return tp_fail(q, TP_E_SHAPE, "w must be [Co,%lld,%s]", (long long)(C / groups),
                       axes == 1 ? "K" : "KH,KW");
    if (!tp_absent(b) && (b->ndim != 1 || b->dim[0] != w->dim[0]))
        return tp_fail(q, TP_E_SHAPE, "b must be [%lld]", (long long)w->dim[0]);
    return TP_OK;
}

static tp_code conv_shape(tp_infer *q, int axes)
{
    if (tp__expect_conv_cfg(q, axes, false) != TP_OK) return TP_E_VALUE;
    if (check_channels(q, axes) != TP_OK) return TP_E_SHAPE;
    return tp__conv_result(q, axes, q->x[1].dim[0]);
}

static tp_code conv2d_relu_shape(tp_infer *q)
{
    const tp_view *r = &q->x[3], *y = &q->y[0];
    if (conv_shape(q, 2) != TP_OK) return TP_E_SHAPE;
    for (int i = 0; i < 4; i++)
        if (!tp_absent(r) && (r->ndim != 4 || r->dim[i] != y->dim[i]))
            return tp_fail(q, TP_E_SHAPE, "the residual must be [%lld,%lld,%lld,%lld]",
                           (long long)y->dim[0], (long long)y->dim[1], (long long)y->dim[2],
                           (long long)y->dim[3]);
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

#define CFG(...)     .attr = TP_ATTR(tp_conv_cfg, __VA_ARGS__)
#define PLAIN        .stride = { 1, 1 }, .dilation = { 1, 1 }, .groups = 1
#define PAD(h, w)    .stride = { 1, 1 }, .pad = { h, w }, .dilation = { 1, 1 }, .groups = 1
#define STRIDE(s, p) .stride = { s, s }, .pad = { p, p }, .dilation = { 1, 1 }, .groups = 1
#define GROUPS(n)    .stride = { 1, 1 }, .pad = { 1, 1 }, .dilation = { 1, 1 }, .groups = n

static const tp_gradcase conv2d_cases[] = {
    { "plain", .in = { TP_DIMS(2, 4, 5, 3), TP_DIMS(2, 3, 3, 2), TP_DIMS(2) }, CFG(PLAIN) },
    { "same size", .in = { TP_DIMS(2, 3, 5, 2), TP_DIMS(3, 2, 3, 3), TP_DIMS(3) }, CFG(PAD(1, 1)) },
    { "no bias", .in = { TP_DIMS(1, 3, 3, 3), TP_DIMS(2, 3, 2, 2) }, CFG(PAD(1, 0)) },
    { "1x1", .in = { TP_DIMS(2, 3, 2, 5), TP_DIMS(4, 5, 1, 1), TP_DIMS(4) }, CFG(PLAIN) },
    { "1x1, stride", .in = { TP_DIMS(1, 4, 5, 3), TP_DIMS(2, 3, 1, 1), TP_DIMS(2) },
      CFG(STRIDE(2, 0)) },
    { "patches", .in = { TP_DIMS(2, 4, 6, 3), TP_DIMS(5, 3, 2, 2), TP_DIMS(5) },
      CFG(STRIDE(2, 0)) },
    { "patches, some left over", .in = { TP_DIMS(1, 5, 7, 2), TP_DIMS(3, 2, 3, 3), TP_DIMS(3) },
      CFG(STRIDE(3, 0)) },
    { "stride", .in = { TP_DIMS(1, 7, 6, 2), TP_DIMS(3, 2, 3, 3), TP_DIMS(3) }, CFG(STRIDE(2, 1)) },
    { "stride skips", .in = { TP_DIMS(1, 7, 5, 2), TP_DIMS(2, 2, 2, 2), TP_DIMS(2) },
      CFG(STRIDE(3, 1)) },
    { "stem", .in = { TP_DIMS(1, 9, 11, 3), TP_DIMS(4, 3, 7, 7), TP_DIMS(4) }, CFG(STRIDE(4, 2)) },
    { "all differ by axis", .in = { TP_DIMS(1, 8, 9, 2), TP_DIMS(2, 2, 2, 3), TP_DIMS(2) },
      CFG(.stride = { 2, 3 }, .pad = { 0, 2 }, .dilation = { 3, 2 }, .groups = 1) },
    { "dilation beyond the stride", .in = { TP_DIMS(1, 9, 8, 1), TP_DIMS(2, 1, 3, 2), TP_DIMS(2) },
      CFG(.stride = { 4, 2 }, .pad = { 3, 3 }, .dilation = { 2, 4 }, .groups = 1) },
    { "wide pad", .in = { TP_DIMS(1, 2, 1, 2), TP_DIMS(2, 2, 2, 2), TP_DIMS(2) }, CFG(PAD(3, 4)) },
    { "groups", .in = { TP_DIMS(2, 3, 4, 4), TP_DIMS(6, 2, 3, 3), TP_DIMS(6) }, CFG(GROUPS(2)) },
    { "a channel a group", .in = { TP_DIMS(1, 3, 4, 3), TP_DIMS(6, 1, 3, 3), TP_DIMS(6) },
      CFG(GROUPS(3)) },
    { "packs", .in = { TP_DIMS(1, 3, 4, 8), TP_DIMS(16, 8, 3, 3), TP_DIMS(16) }, CFG(PAD(1, 1)) },
    { "packs, groups", .in = { TP_DIMS(1, 3, 4, 16), TP_DIMS(16, 8, 2, 2), TP_DIMS(16) },
      CFG(GROUPS(2)) },
    { "packs, stride", .in = { TP_DIMS(1, 5, 6, 8), TP_DIMS(8, 8, 3, 3) }, CFG(STRIDE(2, 1)) },
    { "one output", .in = { TP_DIMS(1, 3, 3, 2), TP_DIMS(1, 2, 3, 3), TP_DIMS(1) }, CFG(PLAIN) },
    { "one channel", .in = { TP_DIMS(1, 3, 6, 1), TP_DIMS(1, 1, 2, 2), TP_DIMS(1) }, CFG(PLAIN) },
    { "a long row", .in = { TP_DIMS(1, 1, 530, 1), TP_DIMS(2, 1, 1, 3), TP_DIMS(2) },
      CFG(PAD(0, 1)) },
    { "no images", .in = { TP_DIMS(0, 3, 3, 2), TP_DIMS(2, 2, 3, 3), TP_DIMS(2) }, CFG(PAD(1, 1)) },
    { "no rows", .in = { TP_DIMS(2, 0, 3, 2), TP_DIMS(2, 2, 3, 3), TP_DIMS(2) }, CFG(PAD(1, 1)) },
    { "rows of pad alone", .in = { TP_DIMS(1, 0, 3, 2), TP_DIMS(2, 2, 2, 2), TP_DIMS(2) },
      CFG(PAD(1, 1)) },
    { "no inputs", .in = { TP_DIMS(1, 3, 3, 0), TP_DIMS(2, 0, 2, 2), TP_DIMS(2) }, CFG(PLAIN) },
    { "no outputs", .in = { TP_DIMS(1, 3, 3, 2), TP_DIMS(0, 2, 2, 2), TP_DIMS(0) }, CFG(PLAIN) },
    { "1x1, no images", .in = { TP_DIMS(0, 3, 3, 2), TP_DIMS(3, 2, 1, 1), TP_DIMS(3) },
      CFG(PLAIN) },
    { 0 },
};

static const tp_gradcase conv2d_relu_cases[] = {
    { "residual",
      .in = { TP_DIMS(2, 4, 5, 3), TP_DIMS(2, 3, 3, 2), TP_DIMS(2), TP_DIMS(2, 2, 4, 2) },
      CFG(PLAIN) },
    { "no residual", .in = { TP_DIMS(2, 3, 5, 2), TP_DIMS(3, 2, 3, 3), TP_DIMS(3) },
      CFG(PAD(1, 1)) },
    { "no bias", .in = { TP_DIMS(1, 3, 3, 3), TP_DIMS(2, 3, 2, 2) }, CFG(PAD(1, 0)) },
    { "residual, no bias",
      .in = { TP_DIMS(1, 3, 3, 3), TP_DIMS(2, 3, 2, 2), { 0 }, TP_DIMS(1, 4, 2, 2) },
      CFG(PAD(1, 0)) },
    { "1x1", .in = { TP_DIMS(2, 3, 2, 5), TP_DIMS(4, 5, 1, 1), TP_DIMS(4), TP_DIMS(2, 3, 2, 4) },
      CFG(PLAIN) },
    { "1x1, stride",
      .in = { TP_DIMS(1, 4, 5, 3), TP_DIMS(2, 3, 1, 1), TP_DIMS(2), TP_DIMS(1, 2, 3, 2) },
      CFG(STRIDE(2, 0)) },
    { "groups", .in = { TP_DIMS(2, 3, 4, 4), TP_DIMS(6, 2, 3, 3), TP_DIMS(6), TP_DIMS(2, 3, 4, 6) },
      CFG(GROUPS(2)) },
    { "packs",
      .in = { TP_DIMS(1, 3, 4, 8), TP_DIMS(16, 8, 3, 3), TP_DIMS(16), TP_DIMS(1, 3, 4, 16) },
      CFG(PAD(1, 1)) },
    { "many channels",
      .in = { TP_DIMS(1, 2, 2, 2), TP_DIMS(300, 2, 1, 1), TP_DIMS(300), TP_DIMS(1, 2, 2, 300) },
      CFG(PLAIN) },
    { "no images",
      .in = { TP_DIMS(0, 3, 3, 2), TP_DIMS(2, 2, 3, 3), TP_DIMS(2), TP_DIMS(0, 3, 3, 2) },
      CFG(PAD(1, 1)) },
    { "no inputs",
      .in = { TP_DIMS(1, 3, 3, 0), TP_DIMS(2, 0, 2, 2), TP_DIMS(2), TP_DIMS(1, 2, 2, 2) },
      CFG(PLAIN) },
    { "no outputs",
      .in = { TP_DIMS(1, 3, 3, 2), TP_DIMS(0, 2, 2, 2), TP_DIMS(0), TP_DIMS(1, 2, 2, 0) },
      CFG(PLAIN) },
    { 0 },
};

#define ONE(s, p, d, g) CFG(.stride = { s }, .pad = { p }, .dilation = { d }, .groups = g)

static const tp_gradcase conv1d_cases[] = {
    { "plain", .in = { TP_DIMS(2, 7, 3), TP_DIMS(4, 3, 3), TP_DIMS(4) }, ONE(1, 0, 1, 1) },
    { "same size", .in = { TP_DIMS(2, 6, 2), TP_DIMS(3, 2, 3), TP_DIMS(3) }, ONE(1, 1, 1, 1) },
    { "no bias", .in = { TP_DIMS(1, 5, 3), TP_DIMS(2, 3, 2) }, ONE(1, 1, 1, 1) },
    { "one tap", .in = { TP_DIMS(2, 5, 3), TP_DIMS(4, 3, 1), TP_DIMS(4) }, ONE(1, 0, 1, 1) },
    { "all differ", .in = { TP_DIMS(1, 11, 2), TP_DIMS(3, 2, 3), TP_DIMS(3) }, ONE(3, 2, 2, 1) },
    { "groups", .in = { TP_DIMS(2, 6, 4), TP_DIMS(6, 2, 3), TP_DIMS(6) }, ONE(1, 1, 1, 2) },
    { "packs", .in = { TP_DIMS(1, 5, 16), TP_DIMS(8, 16, 3), TP_DIMS(8) }, ONE(2, 1, 1, 1) },
    { "a long line", .in = { TP_DIMS(1, 530, 1), TP_DIMS(2, 1, 3), TP_DIMS(2) }, ONE(1, 1, 1, 1) },
    { "no sequences", .in = { TP_DIMS(0, 4, 2), TP_DIMS(3, 2, 2), TP_DIMS(3) }, ONE(1, 0, 1, 1) },
    { "no tokens", .in = { TP_DIMS(2, 0, 2), TP_DIMS(3, 2, 3), TP_DIMS(3) }, ONE(1, 1, 1, 1) },
    { "no channels", .in = { TP_DIMS(2, 4, 0), TP_DIMS(3, 0, 2), TP_DIMS(3) }, ONE(1, 0, 1, 1) },
    { 0 },
};

TP_KERNEL(conv2d_fwd);
TP_KERNEL(conv2d_bwd);
TP_WORK(conv2d_work);
TP_KERNEL(conv2d_relu_fwd);
TP_KERNEL(conv2d_relu_bwd);
TP_WORK(conv2d_relu_work);

const tp_op tp_op_conv1d = {
    TP_CONVOLUTION(conv1d, tp_conv_cfg, tp__conv_macs, conv2d, TP_TAKES_BF16),
    .doc = "convolution of x [B,N,Ci], w [Co,Ci/groups,K]",
};

const tp_op tp_op_conv2d = {
    TP_CONVOLUTION(conv2d, tp_conv_cfg, tp__conv_macs, conv2d, TP_TAKES_BF16),
    .doc = "convolution of x [B,H,W,Ci], w [Co,Ci/groups,KH,KW]",
};

const tp_op tp_op_conv2d_relu = {
    .name = "conv2d_relu",
    .doc = "relu(conv2d + residual)",
    .nx = 4,
    .inputs = "x, w, b, residual",
    .ny = 1,
    .attr_size = sizeof(tp_conv_cfg),
    .saves = TP_SAVE_X(0) | TP_SAVE_X(1) | TP_SAVE_Y(0),
    .optional = 1u << 2 | 1u << 3,
    .flags = TP_COMPUTES | TP_ACCUMULATES | TP_TAKES_BF16,
    .shape = conv2d_relu_shape,
    .macs = tp__conv_macs,
    .forward = TP_KERNELS(conv2d_relu_fwd),
    .backward = TP_KERNELS(conv2d_relu_bwd),
    .work = TP_WORKS(conv2d_relu_work),
    .cases = conv2d_relu_cases,
};

/* Has each group one input and output? */
static bool is_depthwise(tp_tensor x, tp_tensor w, int axes, int64_t groups)
{
    const tp_shape s = tp_shape_of(x), v = tp_shape_of(w);
    return s.ndim == axes + 2 && v.ndim == axes + 2 && groups > 1 && groups == s.dim[axes + 1] &&
           v.dim[0] == groups;
}

tp_tensor tp_conv1d(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b, tp_conv_cfg cfg)
{
    tp_conv_cfg at = tp__conv_defaults(cfg, 1);
    if (is_depthwise(x, w, 1, at.groups)) {
        at.groups = 0;
        return tp_depthwise_conv1d(T, x, w, b, at);
    }
    return tp_apply(T, &tp_op_conv1d, &at, x, w, b);
}

tp_tensor tp_conv2d(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b, tp_conv_cfg cfg)
{
    tp_conv_cfg at = tp__conv_defaults(cfg, 2);
    if (is_depthwise(x, w, 2, at.groups)) {
        at.groups = 0;
        return tp_depthwise_conv2d(T, x, w, b, at);
    }
    return tp_apply(T, &tp_op_conv2d, &at, x, w, b);
}

/* True if r can be added to y, perhaps after the cast to y's dtype that the tape applies to
 * inputs. */
static bool is_residual_of(const tp_tape *T, tp_tensor r, tp_tensor y)
{
    const tp_dtype a = tp_dtype_of(r), b = tp_dtype_of(y);
    const tp_shape s = tp_shape_of(r), v = tp_shape_of(y);
    bool same = s.ndim == v.ndim &&
                (a == b || (T->compute != TP_F64 && tp_is_float(a) && a != TP_F64 && b != TP_F64));
    for (int i = 0; i < v.ndim && same; i++) same = s.dim[i] == v.dim[i];
    return same;
}

/* Composes depthwise convolutions; the op itself refuses residuals that do not fit. */
tp_tensor tp_conv2d_relu(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b, tp_tensor residual,
                         tp_conv_cfg cfg)
{
    const tp_conv_cfg at = tp__conv_defaults(cfg, 2);
    if (!is_depthwise(x, w, 2, at.groups))
        return tp_apply(T, &tp_op_conv2d_relu, &at, x, w, b, residual);
    const tp_tensor y = tp_conv2d(T, x, w, b, cfg);
    if (!tp_ok(T)) return TP_NONE;
    if (!tp_given(residual)) return tp_relu(T, y);
    if (!is_residual_of(T, residual, y))
        return tp_apply(T, &tp_op_conv2d_relu, &at, x, w, b, residual);
    return tp_relu(T, tp_add(T, y, tp_cast(T, residual, tp_dtype_of(y))));
}
