/* rows_layer.c - products, norms, softmax, convolution, pooling, resizing, attention, modules. */
#define TP_NO_SITE
#include <string.h>

#include "rows.h"

static tp_tensor run_matmul(compare_call *c)
{
    return tp_matmul_t(c->T, c->x[0], compare_flag(c, "ta"), c->x[1], compare_flag(c, "tb"));
}

static tp_tensor run_einsum(compare_call *c)
{
    return tp_einsum_n(c->T, compare_text(c, "spec", ""), c->nx, c->x);
}

static tp_tensor run_linear(compare_call *c)
{
    const char *act = compare_text(c, "act", "none");
    return tp_linear(c->T, c->x[0], c->x[1], compare_input(c, 2),
                     strcmp(act, "relu") == 0   ? TP_ACT_RELU
                     : strcmp(act, "gelu") == 0 ? TP_ACT_GELU
                                                : TP_ACT_NONE);
}

static tp_tensor run_layernorm(compare_call *c)
{
    return tp_layernorm(c->T, c->x[0], compare_input(c, 1), compare_input(c, 2),
                        compare_number(c, "eps", 1e-5));
}

static tp_tensor run_rmsnorm(compare_call *c)
{
    return tp_rmsnorm(c->T, c->x[0], compare_input(c, 1), compare_number(c, "eps", 1e-5));
}

static tp_tensor run_instancenorm(compare_call *c)
{
    return tp_instancenorm(c->T, c->x[0], compare_input(c, 1), compare_input(c, 2),
                           compare_number(c, "eps", 1e-5));
}

static tp_tensor run_groupnorm(compare_call *c)
{
    return tp_groupnorm(c->T, c->x[0], compare_int(c, "groups", 1), compare_input(c, 1),
                        compare_input(c, 2), compare_number(c, "eps", 1e-5));
}

/* The options stride, pad, dilation: two numbers each. */
static tp_conv_cfg conv_cfg(const compare_call *c)
{
    tp_conv_cfg cfg = { .groups = compare_int(c, "groups", 0) };
    compare_list(c, "stride", 2, cfg.stride);
    compare_list(c, "pad", 2, cfg.pad);
    compare_list(c, "dilation", 2, cfg.dilation);
    return cfg;
}

static tp_tensor run_conv2d(compare_call *c)
{
    return tp_conv2d(c->T, c->x[0], c->x[1], compare_input(c, 2), conv_cfg(c));
}

static tp_tensor run_conv2d_relu(compare_call *c)
{
    return tp_conv2d_relu(c->T, c->x[0], c->x[1], compare_input(c, 2), compare_input(c, 3),
                          conv_cfg(c));
}

static tp_tensor run_conv1d(compare_call *c)
{
    return tp_conv1d(c->T, c->x[0], c->x[1], compare_input(c, 2), conv_cfg(c));
}

/* The options stride, pad, dilation, output_pad: a number for each axis. */
static tp_tensor run_conv_transpose(compare_call *c)
{
    tp_conv_transpose_cfg cfg = { .groups = compare_int(c, "groups", 0) };
    compare_list(c, "stride", 2, cfg.stride);
    compare_list(c, "pad", 2, cfg.pad);
    compare_list(c, "dilation", 2, cfg.dilation);
    compare_list(c, "output_pad", 2, cfg.output_pad);
    return (tp_shape_of(c->x[0]).ndim == 3 ? tp_conv_transpose1d : tp_conv_transpose2d)(
        c->T, c->x[0], c->x[1], compare_input(c, 2), cfg);
}

static tp_pool_cfg pool_cfg(const compare_call *c)
{
    tp_pool_cfg cfg = { .ignore_pad = compare_flag(c, "ignore_pad"),
                        .ceil = compare_flag(c, "ceil") };
    compare_list(c, "kernel", 2, cfg.kernel);
    compare_list(c, "stride", 2, cfg.stride);
    compare_list(c, "pad", 2, cfg.pad);
    return cfg;
}

static tp_tensor run_max_pool2d(compare_call *c)
{
    return tp_max_pool2d(c->T, c->x[0], pool_cfg(c));
}

static tp_tensor run_avg_pool2d(compare_call *c)
{
    return tp_avg_pool2d(c->T, c->x[0], pool_cfg(c));
}

static tp_tensor run_adaptive_max_pool2d(compare_call *c)
{
    return tp_adaptive_max_pool2d(c->T, c->x[0], compare_int(c, "height", 1),
                                  compare_int(c, "width", 1));
}

static tp_tensor run_adaptive_avg_pool2d(compare_call *c)
{
    return tp_adaptive_avg_pool2d(c->T, c->x[0], compare_int(c, "height", 1),
                                  compare_int(c, "width", 1));
}

static tp_unfold_cfg unfold_cfg(const compare_call *c)
{
    tp_unfold_cfg cfg = { { 0 }, { 0 }, { 0 }, { 0 } };
    compare_list(c, "kernel", 2, cfg.kernel);
    compare_list(c, "stride", 2, cfg.stride);
    compare_list(c, "pad", 2, cfg.pad);
    compare_list(c, "dilation", 2, cfg.dilation);
    return cfg;
}

static tp_tensor run_unfold(compare_call *c)
{
    return tp_unfold(c->T, c->x[0], unfold_cfg(c));
}

static tp_tensor run_fold(compare_call *c)
{
    return tp_fold(c->T, c->x[0], compare_int(c, "height", 1), compare_int(c, "width", 1),
                   unfold_cfg(c));
}

static tp_tensor run_interpolate(compare_call *c)
{
    static const char *const names[] = { "bilinear", "bicubic", "nearest", "nearest-exact" };
    const char *mode = compare_text(c, "mode", "bilinear");
    int k = 0;
    while (k < 3 && strcmp(mode, names[k]) != 0) k++;
    return tp_interpolate(c->T, c->x[0], compare_int(c, "height", 1), compare_int(c, "width", 1),
                          (tp_interpolation)k, compare_flag(c, "align_corners"));
}

/* One map; x1: boxes, x2: the image of each. */
static tp_tensor run_roi_align(compare_call *c)
{
    tp_roi_align_cfg cfg = { .samples = (int)compare_int(c, "samples", 0),
                             .aligned = compare_flag(c, "aligned") };
    cfg.scale[0] = compare_number(c, "scale", 1.0);
    compare_list(c, "size", 2, cfg.size);
    return tp_roi_align(c->T, 1, c->x, c->x[1], c->x[2], cfg);
}

static tp_tensor run_attention(compare_call *c)
{
    return tp_attention(c->T, c->x[0], c->x[1], c->x[2], compare_input(c, 3), compare_input(c, 4),
                        (tp_attn_cfg){ .heads = (int)compare_int(c, "heads", 1),
                                       .causal = compare_flag(c, "causal"),
                                       .scale = compare_number(c, "scale", 0.0) });
}

static tp_tensor run_embedding(compare_call *c)
{
    return tp_embedding(c->T, c->x[0], c->x[1], compare_number(c, "scale", 1.0));
}

const compare_row compare_layer_rows[] = {
    ONE(softmax),
    ONE(log_softmax),
    OWN(matmul),
    OWN(linear),
    OWN(layernorm),
    OWN(rmsnorm),
    OWN(instancenorm),
    OWN(conv2d),
    OWN(conv2d_relu),
    OWN(max_pool2d),
    OWN(avg_pool2d),
    OWN(adaptive_max_pool2d),
    OWN(adaptive_avg_pool2d),
    OWN(unfold),
    OWN(fold),
    OWN(interpolate),
    OWN(roi_align),
    OWN(attention),
    OWN(embedding),
    OWN(groupnorm),
    OWN(einsum),
    OWN(conv1d),
    { .op = "conv_transpose1d", .run = run_conv_transpose },
    { .op = "conv_transpose2d", .run = run_conv_transpose },
    { 0 },
};
