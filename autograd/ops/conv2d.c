/* conv2d.c - convolutions of images, channels last.
 *
 *     y[b,o,n] = bias[n] + sum_k sum_c x[b, o stride - pad + k dilation, c] w[n,c,k]
 *
 * Weights are in PyTorch's layout, [Co,Ci/groups,KH,KW]; group i of the outputs reads group i of
 * the inputs. Groups of one input and one output go to tp_depthwise_conv2d. */
#include "tensor/geometry/conv2d.h"
#include "autograd/ops/op_inner.h"
#include <tapegrad/tensor.h>

#define MOST INT32_MAX /* the largest option and size, so that no product overflows */

static tp_code check_channels(tp_infer *q)
{
    const int64_t groups = ((const tp_conv_cfg *)q->attr)->groups;
    const tp_view *x = &q->x[0], *w = &q->x[1], *b = &q->x[2];
    if (x->ndim != 4) return tp_fail(q, TP_E_SHAPE, "x must be [B,H,W,C]");
    if (w->ndim != 4) return tp_fail(q, TP_E_SHAPE, "w must be [Co,Ci/groups,KH,KW]");
    const bool last = x->dim[3] % groups == 0 && x->dim[3] / groups == w->dim[1];
    const bool first = x->dim[1] % groups == 0 && x->dim[1] / groups == w->dim[1];
    if (first && !last && w->dim[1] > 0)
        return tp_fail(q, TP_E_SHAPE,
                       "x must be [B,H,W,%lld], channels last; it looks like channels first: "
                       "tp_permute it by 0, 2, 3, 1",
                       (long long)x->dim[1]);
    if (x->dim[3] % groups != 0 || w->dim[0] % groups != 0)
        return tp_fail(q, TP_E_SHAPE,
                       "%lld inputs and %lld outputs are no multiples of %lld groups",
                       (long long)x->dim[3], (long long)w->dim[0], (long long)groups);
    if (w->dim[1] != x->dim[3] / groups)
        return tp_fail(q, TP_E_SHAPE, "w must be [Co,%lld,KH,KW]", (long long)(x->dim[3] / groups));
    if (!tp_absent(b) && (b->ndim != 1 || b->dim[0] != w->dim[0]))
        return tp_fail(q, TP_E_SHAPE, "b must be [%lld]", (long long)w->dim[0]);
    for (int i = 0; i < 4; i++)
        if (x->dim[i] > MOST || w->dim[i] > MOST)
            return tp_fail(q, TP_E_SHAPE, "sizes must be below 2^31");
    return TP_OK;
}

static tp_code conv2d_shape(tp_infer *q)
{
    static const char *const name[] = { "stride", "pad", "dilation" };
    const tp_conv_cfg *cfg = q->attr;
    const tp_view *x = &q->x[0], *w = &q->x[1];

    if (tp__expect_float(q) != TP_OK) return TP_E_DTYPE;
    for (int i = 0; i < 6; i++) {
        const int64_t value = (i < 2 ? cfg->stride : i < 4 ? cfg->pad : cfg->dilation)[i % 2];
        if (value < (i / 2 == 1 ? 0 : 1) || value > MOST)
            return tp_fail(q, TP_E_VALUE, "%s cannot be %lld", name[i / 2], (long long)value);
    }
    if (cfg->groups < 1)
        return tp_fail(q, TP_E_VALUE, "groups cannot be %lld", (long long)cfg->groups);
    if (check_channels(q) != TP_OK) return TP_E_SHAPE;
    for (int i = 0; i < 2; i++) {
        if (w->dim[2 + i] < 1) return tp_fail(q, TP_E_SHAPE, "kernel sizes must be 1 or more");
        const int64_t span = cfg->dilation[i] * (w->dim[2 + i] - 1) + 1;
        const int64_t room = x->dim[1 + i] + 2 * cfg->pad[i];
        if (x->dim[1 + i] > 0 && span > room)
            return tp_fail(q, TP_E_SHAPE, "kernel spans %lld, axis %d with its pad only %lld",
                           (long long)span, 1 + i, (long long)room);
    }
    const tp__conv2d g = tp__conv2d_of(cfg, x, w);
    q->y[0] = *x;
    q->y[0].dim[1] = g.axis[0].out;
    q->y[0].dim[2] = g.axis[1].out;
    q->y[0].dim[3] = g.co;
    return TP_OK;
}

/* Counts all taps, also those in the padding. */
static double conv2d_macs(const tp_infer *q)
{
    const tp_view *w = &q->x[1];
    return (double)q->y[0].numel * (double)(w->dim[1] * w->dim[2] * w->dim[3]);
}

#define CFG(...)                                                                                   \
    .attr = &(tp_conv_cfg)                                                                         \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define PLAIN        .stride = { 1, 1 }, .dilation = { 1, 1 }, .groups = 1
#define PAD(h, w)    .stride = { 1, 1 }, .pad = { h, w }, .dilation = { 1, 1 }, .groups = 1
#define STRIDE(s, p) .stride = { s, s }, .pad = { p, p }, .dilation = { 1, 1 }, .groups = 1
#define GROUPS(n)    .stride = { 1, 1 }, .pad = { 1, 1 }, .dilation = { 1, 1 }, .groups = n
#define X(...)                                                                                     \
    {                                                                                              \
        4,                                                                                         \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define B(n)                                                                                       \
    {                                                                                              \
        1,                                                                                         \
        {                                                                                          \
            n                                                                                      \
        }                                                                                          \
    }

/* clang-format off */
static const tp_gradcase conv2d_cases[] = {
    { "plain", .in = { X(2, 4, 5, 3), X(2, 3, 3, 2), B(2) }, CFG(PLAIN) },
    { "same size", .in = { X(2, 3, 5, 2), X(3, 2, 3, 3), B(3) }, CFG(PAD(1, 1)) },
    { "no bias", .in = { X(1, 3, 3, 3), X(2, 3, 2, 2) }, CFG(PAD(1, 0)) },
    { "1x1", .in = { X(2, 3, 2, 5), X(4, 5, 1, 1), B(4) }, CFG(PLAIN) },
    { "1x1, stride", .in = { X(1, 4, 5, 3), X(2, 3, 1, 1), B(2) }, CFG(STRIDE(2, 0)) },
    { "patches", .in = { X(2, 4, 6, 3), X(5, 3, 2, 2), B(5) }, CFG(STRIDE(2, 0)) },
    { "patches, some left over", .in = { X(1, 5, 7, 2), X(3, 2, 3, 3), B(3) }, CFG(STRIDE(3, 0)) },
    { "stride", .in = { X(1, 7, 6, 2), X(3, 2, 3, 3), B(3) }, CFG(STRIDE(2, 1)) },
    { "stride skips", .in = { X(1, 7, 5, 2), X(2, 2, 2, 2), B(2) }, CFG(STRIDE(3, 1)) },
    { "stem", .in = { X(1, 9, 11, 3), X(4, 3, 7, 7), B(4) }, CFG(STRIDE(4, 2)) },
    { "all differ by axis", .in = { X(1, 8, 9, 2), X(2, 2, 2, 3), B(2) },
      CFG(.stride = { 2, 3 }, .pad = { 0, 2 }, .dilation = { 3, 2 }, .groups = 1) },
    { "dilation beyond the stride", .in = { X(1, 9, 8, 1), X(2, 1, 3, 2), B(2) },
      CFG(.stride = { 4, 2 }, .pad = { 3, 3 }, .dilation = { 2, 4 }, .groups = 1) },
    { "wide pad", .in = { X(1, 2, 1, 2), X(2, 2, 2, 2), B(2) }, CFG(PAD(3, 4)) },
    { "groups", .in = { X(2, 3, 4, 4), X(6, 2, 3, 3), B(6) }, CFG(GROUPS(2)) },
    { "a channel a group", .in = { X(1, 3, 4, 3), X(6, 1, 3, 3), B(6) }, CFG(GROUPS(3)) },
    { "packs", .in = { X(1, 3, 4, 8), X(16, 8, 3, 3), B(16) }, CFG(PAD(1, 1)) },
    { "packs, groups", .in = { X(1, 3, 4, 16), X(16, 8, 2, 2), B(16) }, CFG(GROUPS(2)) },
    { "packs, stride", .in = { X(1, 5, 6, 8), X(8, 8, 3, 3) }, CFG(STRIDE(2, 1)) },
    { "one output", .in = { X(1, 3, 3, 2), X(1, 2, 3, 3), B(1) }, CFG(PLAIN) },
    { "one channel", .in = { X(1, 3, 6, 1), X(1, 1, 2, 2), B(1) }, CFG(PLAIN) },
    { "a long row", .in = { X(1, 1, 530, 1), X(2, 1, 1, 3), B(2) }, CFG(PAD(0, 1)) },
    { "no images", .in = { X(0, 3, 3, 2), X(2, 2, 3, 3), B(2) }, CFG(PAD(1, 1)) },
    { "no rows", .in = { X(2, 0, 3, 2), X(2, 2, 3, 3), B(2) }, CFG(PAD(1, 1)) },
    { "rows of pad alone", .in = { X(1, 0, 3, 2), X(2, 2, 2, 2), B(2) }, CFG(PAD(1, 1)) },
    { "no inputs", .in = { X(1, 3, 3, 0), X(2, 0, 2, 2), B(2) }, CFG(PLAIN) },
    { "no outputs", .in = { X(1, 3, 3, 2), X(0, 2, 2, 2), B(0) }, CFG(PLAIN) },
    { "1x1, no images", .in = { X(0, 3, 3, 2), X(3, 2, 1, 1), B(3) }, CFG(PLAIN) },
    { 0 },
};
/* clang-format on */

TP_KERNEL(conv2d_fwd);
TP_KERNEL(conv2d_bwd);
TP_WORK(conv2d_work);

const tp_op tp_op_conv2d = {
    .name = "conv2d",
    .doc = "convolution of x [B,H,W,Ci], w [Co,Ci/groups,KH,KW]",
    .nx = 3, /* x, w, b */
    .ny = 1,
    .attr_size = sizeof(tp_conv_cfg),
    .saves = TP_SAVE_X(0) | TP_SAVE_X(1),
    .optional = 1u << 2,
    .flags = TP_COMPUTES | TP_ACCUMULATES,
    .shape = conv2d_shape,
    .macs = conv2d_macs,
    .forward = TP_KERNELS(conv2d_fwd),
    .backward = TP_KERNELS(conv2d_bwd),
    .work = TP_WORKS(conv2d_work),
    .cases = conv2d_cases,
};

/* Replaces zeros by the defaults. */
static tp_conv_cfg with_defaults(tp_conv_cfg cfg)
{
    for (int i = 0; i < 2; i++) {
        if (cfg.stride[i] == 0) cfg.stride[i] = 1;
        if (cfg.dilation[i] == 0) cfg.dilation[i] = 1;
    }
    if (cfg.groups == 0) cfg.groups = 1;
    return cfg;
}

/* Does each group have one input and one output? */
static bool is_depthwise(tp_tensor x, tp_tensor w, int64_t groups)
{
    const tp_shape s = tp_shape_of(x), v = tp_shape_of(w);
    return s.ndim == 4 && v.ndim == 4 && groups > 1 && groups == s.dim[3] && v.dim[0] == s.dim[3];
}

tp_tensor tp_conv2d(tp_tape *T, tp_tensor x, tp_tensor w, tp_tensor b, tp_conv_cfg cfg)
{
    tp_conv_cfg at = with_defaults(cfg);
    if (is_depthwise(x, w, at.groups)) {
        at.groups = 0;
        return tp_depthwise_conv2d(T, x, w, b, at);
    }
    return tp_apply(T, &tp_op_conv2d, &at, x, w, b);
}
