/* op_cases_image.c - cases of bench_ops: ops of image models. */
#include "op_cases.h"

static tp_tensor conv_relu(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_conv2d_relu(T, x[0], x[1], TP_NONE, x[0], (tp_conv_cfg){ .pad = { 1, 1 } });
}

/* 512 regions of 60 to 220 pixels of two images of 512 x 512 (bench/peers/op_cases_image.py has the same). */
enum { REGIONS = 512 };

static tp_tensor pool_regions(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    const int64_t side = k->axis;
    float box[REGIONS][4];
    int32_t place[REGIONS][2];
    for (int r = 0; r < REGIONS; r++) {
        const int w = 60 + r * 53 % 161, h = 60 + r * 97 % 161;
        const float left = (float)(r * 149 % 293 * (512 - w)) / 293.0f,
                    top = (float)(r * 211 % 307 * (512 - h)) / 307.0f;
        const float corners[] = { left, top, left + (float)w, top + (float)h };
        for (int e = 0; e < 4; e++) box[r][e] = corners[e];
        place[r][0] = r % 2;
        place[r][1] = 0;
    }
    return tp_roi_align(
        T, 1, x, tp_from(T, TP_F32, TP_SHAPE(REGIONS, 4), box),
        tp_from(T, TP_I32, TP_SHAPE(REGIONS, 2), place),
        (tp_roi_align_cfg){ .size = { side, side }, .scale = { 0.125 }, .aligned = true });
}

#define REGION_CASE(SIDE)                                                                          \
    .axis = SIDE, .mbyte = 4e-6 * 256 * (2 * 64 * 64 + REGIONS * SIDE * SIDE),                     \
    .in = { { { 4, { 2, 64, 64, 256 } }, 0 } }

/* B images of N x N, 3 x 3 taps, C channels to C. */
#define CONV_CASE(B, N, C)                                                                         \
    .mflop = 18e-6 * B * N * N * C * C,                                                            \
    .in = { { { 4, { B, N, N, C } }, 0 }, { { 4, { C, C, 3, 3 } }, 0 } }

/* Stride 2, C channels to D. */
#define HALVE_CASE(B, N, C, D)                                                                     \
    .mflop = 4.5e-6 * B * N * N * C * D,                                                           \
    .in = { { { 4, { B, N, N, C } }, 0 }, { { 4, { D, C, 3, 3 } }, 0 } }

/* The size doubled by K x K taps, C channels to D. */
#define DOUBLE_CASE(B, N, C, D, K)                                                                 \
    .mflop = 2e-6 * B * N * N * K * K * C * D,                                                     \
    .in = { { { 4, { B, N, N, C } }, 0 }, { { 4, { C, D, K, K } }, 0 } }

/* CONV_CASE with C groups; BYTES are moved for each element of the input. */
#define DEPTHWISE_CASE(B, N, C, BYTES)                                                             \
    .mbyte = (BYTES)*1e-6 * B * N * N * C,                                                         \
    .in = { { { 4, { B, N, N, C } }, 0 }, { { 4, { C, 1, 3, 3 } }, 0 } }

/* clang-format off */
const op_case op_cases_image[] = {
    { "conv2d", "8x56x56x64 k3", op_named, .args = "pad=1,1", CONV_CASE(8, 56, 64) },
    { "conv2d", "8x28x28x128 k3", op_named, .args = "pad=1,1", CONV_CASE(8, 28, 128) },
    { "conv2d", "8x14x14x256 k3", op_named, .args = "pad=1,1", CONV_CASE(8, 14, 256) },
    { "conv2d", "8x7x7x512 k3", op_named, .args = "pad=1,1", CONV_CASE(8, 7, 512) },
    { "conv2d", "4x224x224x3 to 48 k3 s2", op_named, .args = "stride=2,2 pad=1,1", HALVE_CASE(4, 224, 3, 48) },
    { "conv2d", "4x56x56x96 to 192 k3 s2", op_named, .args = "stride=2,2 pad=1,1", HALVE_CASE(4, 56, 96, 192) },
    { "conv2d", "4x28x28x192 to 384 k3 s2", op_named, .args = "stride=2,2 pad=1,1", HALVE_CASE(4, 28, 192, 384) },
    { "conv2d", "4x14x14x384 to 768 k3 s2", op_named, .args = "stride=2,2 pad=1,1", HALVE_CASE(4, 14, 384, 768) },
    { "conv2d_relu", "8x56x56x64 k3", conv_relu, CONV_CASE(8, 56, 64) },
    { "depthwise_conv2d", "8x56x56x64 k3", op_named, .args = "pad=1,1", DEPTHWISE_CASE(8, 56, 64, 8) },
    { "depthwise_conv2d", "8x56x56x64 k3 s2", op_named, .args = "stride=2,2 pad=1,1", DEPTHWISE_CASE(8, 56, 64, 5) },
    { "depthwise_conv2d", "8x28x28x192 k3", op_named, .args = "pad=1,1", DEPTHWISE_CASE(8, 28, 192, 8) },
    { "depthwise_conv2d", "8x28x28x192 k3 s2", op_named, .args = "stride=2,2 pad=1,1", DEPTHWISE_CASE(8, 28, 192, 5) },
    { "depthwise_conv2d", "8x14x14x384 k3", op_named, .args = "pad=1,1", DEPTHWISE_CASE(8, 14, 384, 8) },
    { "depthwise_conv2d", "8x14x14x384 k3 s2", op_named, .args = "stride=2,2 pad=1,1", DEPTHWISE_CASE(8, 14, 384, 5) },
    { "conv1d", "8x3000x128 k3", op_named, .args = "pad=1", .mflop = 6e-6 * 8 * 3000 * 128 * 128,
      .in = { { { 3, { 8, 3000, 128 } }, 0 }, { { 3, { 128, 128, 3 } }, 0 } } },
    { "conv_transpose2d", "8x28x28x128 to 64 k2 s2", op_named, .args = "stride=2,2", DOUBLE_CASE(8, 28, 128, 64, 2) },
    { "conv_transpose2d", "8x28x28x128 to 64 k4 s2", op_named, .args = "stride=2,2 pad=1,1", DOUBLE_CASE(8, 28, 128, 64, 4) },
    { "max_pool2d", "8x112x112x64 k3 s2", op_named, .args = "kernel=3,3 stride=2,2 pad=1,1", .mbyte = 5e-6 * 8 * 112 * 112 * 64,
      .in = { { { 4, { 8, 112, 112, 64 } }, 0 } } },
    { "avg_pool2d", "8x56x56x64 k2", op_named, .args = "kernel=2,2", .mbyte = 5e-6 * 8 * 56 * 56 * 64,
      .in = { { { 4, { 8, 56, 56, 64 } }, 0 } } },
    { "avg_pool2d", "8x56x56x64 k3 s2 ceil", op_named, .args = "kernel=3,3 stride=2,2 pad=1,1 ceil=1", .mbyte = 5e-6 * 8 * 56 * 56 * 64,
      .in = { { { 4, { 8, 56, 56, 64 } }, 0 } } },
    { "adaptive_max_pool2d", "8x56x56x64 to 7x7", op_named, .args = "height=7 width=7", .mbyte = 4.1e-6 * 8 * 56 * 56 * 64,
      .in = { { { 4, { 8, 56, 56, 64 } }, 0 } } },
    { "adaptive_avg_pool2d", "8x56x56x64 to 24x24", op_named, .args = "height=24 width=24", .mbyte = 4.7e-6 * 8 * 56 * 56 * 64,
      .in = { { { 4, { 8, 56, 56, 64 } }, 0 } } },
    { "unfold", "8x56x56x64 k3", op_named, .args = "kernel=3,3 pad=1,1", .mbyte = 40e-6 * 8 * 56 * 56 * 64,
      .in = { { { 4, { 8, 56, 56, 64 } }, 0 } } },
    { "unfold", "8x224x224x3 k16 s16", op_named, .args = "kernel=16,16 stride=16,16", .mbyte = 8e-6 * 8 * 224 * 224 * 3,
      .in = { { { 4, { 8, 224, 224, 3 } }, 0 } } },
    { "fold", "8x56x56x64 k3", op_named, .args = "height=56 width=56 kernel=3,3 pad=1,1", .mbyte = 40e-6 * 8 * 56 * 56 * 64,
      .in = { { { 4, { 8, 56, 56, 576 } }, 0 } } },
    { "interpolate", "8x56x56x64 to 112x112", op_named, .args = "height=112 width=112", .mbyte = 20e-6 * 8 * 56 * 56 * 64,
      .in = { { { 4, { 8, 56, 56, 64 } }, 0 } } },
    { "interpolate", "8x56x56x64 to 112x112 nearest", op_named, .args = "height=112 width=112 mode=nearest", .mbyte = 20e-6 * 8 * 56 * 56 * 64,
      .in = { { { 4, { 8, 56, 56, 64 } }, 0 } } },
    { "interpolate", "8x56x56x64 to 112x112 bicubic", op_named, .args = "height=112 width=112 mode=bicubic", .mbyte = 20e-6 * 8 * 56 * 56 * 64,
      .in = { { { 4, { 8, 56, 56, 64 } }, 0 } } },
    { "roi_align", "512 of 2x64x64x256 to 7x7", pool_regions, REGION_CASE(7) },
    { "roi_align", "512 of 2x64x64x256 to 14x14", pool_regions, REGION_CASE(14) },
    { 0 },
};
/* clang-format on */
