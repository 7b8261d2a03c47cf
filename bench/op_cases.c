/* op_cases.c - the case tables of bench_ops. FLOPs and bytes are those that the result needs in f32. */
#include "op_cases.h"

#include <stdlib.h>

int64_t op_numel(tp_shape s)
{
    int64_t n = 1;
    for (int i = 0; i < s.ndim; i++) n *= s.dim[i];
    return n;
}

int op_inputs(const op_case *k)
{
    int n = 0;
    while (n < OP_MAX_IN && k->in[n].shape.ndim > 0) n++;
    return n;
}

void *op_numbers(const op_case *k, int i, uint32_t *seed)
{
    const int64_t n = op_numel(k->in[i].shape), below = k->in[i].below;
    void *host = malloc((size_t)n * (below > 0 ? sizeof(int64_t) : sizeof(float)));
    if (!host) exit(1);
    for (int64_t j = 0; j < n; j++) {
        *seed = *seed * 1664525u + 1013904223u;
        if (below > 0)
            ((int64_t *)host)[j] = (int64_t)(*seed >> 8) % below;
        else
            ((float *)host)[j] = (float)(*seed >> 8) * 0x1p-23f - 1.0f;
    }
    return host;
}

static tp_tensor matmul(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_matmul(T, x[0], x[1]);
}

static tp_tensor linear(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_linear(T, x[0], x[1], x[2], TP_ACT_NONE);
}

static tp_tensor lstm(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_lstm(T, x[0], (tp_rnn_weights){ x[1], x[2], x[3], x[4] }, NULL, TP_NONE, false);
}

static tp_tensor gru(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_gru(T, x[0], (tp_rnn_weights){ x[1], x[2], x[3], x[4] }, NULL, TP_NONE, false);
}

static tp_tensor gelu_linear(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_linear(T, x[0], x[1], x[2], TP_ACT_GELU);
}

static tp_tensor copy(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_scale(T, x[0], 2.0);
}

static tp_tensor mul(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_mul(T, x[0], x[1]);
}

static tp_tensor gelu(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_gelu(T, x[0]);
}

static tp_tensor layernorm(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_layernorm(T, x[0], x[1], x[2], 1e-5);
}

static tp_tensor softmax(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_softmax(T, x[0]);
}

static tp_tensor dropout_add(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_dropout_add(T, x[0], TP_NONE, x[1], 0.2);
}

static tp_tensor embedding(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_embedding(T, x[0], x[1], 1.0);
}

static tp_tensor swap_middle(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_permute(T, x[0], TP_SHAPE(0, 2, 1, 3));
}

static tp_tensor depthwise(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_depthwise_conv2d(T, x[0], x[1], TP_NONE, (tp_conv_cfg){ .pad = { 1, 1 } });
}

static tp_tensor depthwise_s2(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_depthwise_conv2d(T, x[0], x[1], TP_NONE,
                               (tp_conv_cfg){ .stride = { 2, 2 }, .pad = { 1, 1 } });
}

static tp_tensor conv(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_conv2d(T, x[0], x[1], TP_NONE, (tp_conv_cfg){ .pad = { 1, 1 } });
}

static tp_tensor conv_s2(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_conv2d(T, x[0], x[1], TP_NONE, (tp_conv_cfg){ .stride = { 2, 2 }, .pad = { 1, 1 } });
}

static tp_tensor max_pool(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_max_pool2d(T, x[0],
                         (tp_pool_cfg){ .kernel = { 3, 3 }, .stride = { 2, 2 }, .pad = { 1, 1 } });
}

static tp_tensor avg_pool(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_avg_pool2d(T, x[0], (tp_pool_cfg){ .kernel = { 2, 2 } });
}

static tp_tensor resize(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_interpolate(T, x[0], 112, 112, TP_INTERPOLATE_BILINEAR, false);
}

static tp_tensor resize_bicubic(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_interpolate(T, x[0], 112, 112, TP_INTERPOLATE_BICUBIC, false);
}

static tp_tensor batchnorm(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_batchnorm(T, x[0], x[1], x[2], x[3], x[4], TP_NONE, 0.1, 1e-5);
}

static tp_tensor instancenorm(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_instancenorm(T, x[0], x[1], x[2], 1e-5);
}

static tp_tensor standardize(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_weight_standardize(T, x[0], 1e-5, false);
}

static tp_tensor cross_entropy(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_cross_entropy(T, x[0], x[1], TP_MEAN);
}

static tp_tensor chunk_project(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    return tp_chunk_project(T, x[0], x[1], k->cfg.heads, k->cfg.chunk, k->cfg.rank);
}

static tp_tensor attention(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    return tp_attention(T, x[0], x[1], x[2], TP_NONE, TP_NONE,
                        (tp_attn_cfg){ .heads = k->cfg.heads, .causal = k->causal });
}

static tp_tensor ls_attention(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    return tp_ls_attention(
        T, (tp_ls_in){ x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], x[8], 0, 0 }, k->cfg);
}

static tp_tensor window_attention(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    const tp_window_in in = { x[0], x[1], x[2], x[3], x[4], x[5], x[6] };
    return tp_window_attention_2d(T, in, *(const tp_window_attn_cfg *)k->map);
}

static tp_tensor lsla_attention(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    return tp_lsla_attention(T, x[0], x[1], x[2], x[3], x[4], x[5],
                             *(const tp_lsla_attn_cfg *)k->map);
}

/* N tokens after a cache of N, width 512, 8 heads, window 512, chunks of 16, rank 1. That is
 * 3 N w d MACs for the window and 3 N n d for the n vectors that a query sees on average. */
#define LS_CASE(N)                                                                                 \
    .cfg = { .heads = 8, .chunk = 16, .rank = 1, .window = 512 },                                  \
    .mflop = 6e-6 * N * 512.0 * (512.0 + N / 16.0 + (N / 16.0 - 1.0) / 2.0),                       \
    .in = {                                                                                        \
        { { 3, { 1, N, 512 } }, 0 },       { { 3, { 1, 512 + N, 512 } }, 0 },                      \
        { { 3, { 1, 512 + N, 512 } }, 0 }, { { 3, { 1, N / 8, 512 } }, 0 },                        \
        { { 3, { 1, N / 8, 512 } }, 0 },   { { 2, { 512, 512 } }, 0 },                             \
        { { 2, { N / 8, 512 } }, 0 },      { { 2, { 8, 64 } }, 0 },                                \
        { { 2, { 8, 64 } }, 0 },                                                                   \
    }

/* N tokens from the start of a text: no cache, so that the last query sees N / 16 vectors. */
#define LS_CONTEXT(N)                                                                              \
    .tokens = N, .cfg = { .heads = 8, .chunk = 16, .rank = 1, .window = 512, .masked = true },     \
    .mflop = 6e-6 * 512.0 * (N * 512.0 - 512.0 * 511.0 / 2.0 + N * (N / 16.0 - 1.0) / 2.0),        \
    .in = {                                                                                        \
        { { 3, { 1, N, 512 } }, 0 },      { { 3, { 1, N, 512 } }, 0 },                             \
        { { 3, { 1, N, 512 } }, 0 },      { { 3, { 1, N / 16, 512 } }, 0 },                        \
        { { 3, { 1, N / 16, 512 } }, 0 }, { { 2, { 512, 512 } }, 0 },                              \
        { { 2, { N / 16, 512 } }, 0 },    { { 2, { 8, 64 } }, 0 },                                 \
        { { 2, { 8, 64 } }, 0 },                                                                   \
    }

/* N tokens, 8 heads of 64; each token sees the fraction SHARE of all. */
#define ATTENTION_CASE(N, SHARE)                                                                   \
    .cfg = { .heads = 8 }, .causal = (SHARE) < 1.0, .mflop = 4e-6 * N * 512.0 * N * (SHARE),       \
    .in = { { { 3, { 1, N, 512 } }, 0 },                                                           \
            { { 3, { 1, N, 512 } }, 0 },                                                           \
            { { 3, { 1, N, 512 } }, 0 } }

/* B maps of S x S cells, width 32 H. ViL: chunks of 7 x 7 that see KEYS cells on average, one global
 * token; ViL-LS: 8 low-rank keys and 13 x 13 cells; LSLA: windows of 7 x 7. */
#define MAP_QKV(B, N, H)                                                                           \
    { { 3, { B, N, 32 * H } }, 0 }, { { 3, { B, N, 32 * H } }, 0 },                                \
    {                                                                                              \
        { 3, { B, N, 32 * H } }, 0                                                                 \
    }
#define VIL_CASE(B, S, H, KEYS)                                                                    \
    .mflop = 4e-6 * B * S * S * 32.0 * H * (KEYS + 1),                                             \
    .map =                                                                                         \
        &(const tp_window_attn_cfg){                                                               \
            .heads = H, .height = S, .width = S, .global = 1, .window = { 7, 7 }, .halo = { 7, 7 } \
        },                                                                                         \
    .in = { MAP_QKV(B, S * S + 1, H), { { 0 }, 0 }, { { 0 }, 0 }, { { 2, { 729, H } }, 0 } }
#define VIL_LS_CASE(B, S, H, KEYS)                                                                 \
    .mflop = 4e-6 * B * S * S * 32.0 * H * (KEYS + 9),                                             \
    .map = &(const tp_window_attn_cfg){ .heads = H,                                                \
                                        .height = S,                                               \
                                        .width = S,                                                \
                                        .global = 1,                                               \
                                        .window = { 7, 7 },                                        \
                                        .halo = { 3, 3 },                                          \
                                        .reach = { 9, 9 },                                         \
                                        .stride = 13 },                                            \
    .in = { MAP_QKV(B, S * S + 1, H),                                                              \
            { { 3, { B, 8, 32 * H } }, 0 },                                                        \
            { { 3, { B, 8, 32 * H } }, 0 },                                                        \
            { { 2, { 253, H } }, 0 } }
#define LSLA_CASE(B, S, H)                                                                         \
    .mflop = 4e-6 * B * S * S * 32.0 * H * 49,                                                     \
    .map =                                                                                         \
        &(const tp_lsla_attn_cfg){ .heads = H, .height = S, .width = S, .window = 7, .shift = 3 }, \
    .in = { MAP_QKV(B, S * S, H),                                                                  \
            { { 2, { 49, 49 } }, 0 },                                                              \
            { { 2, { 169, H } }, 0 },                                                              \
            { { 2, { 169, H } }, 0 } }

/* 500 steps of x [B,500,C], G gates of H units. */
#define RNN_CASE(G, B, C, H)                                                                       \
    .mflop = 2e-6 * B * 500 * G * H * (C + H), .in = { { { 3, { B, 500, C } }, 0 },                \
                                                       { { 2, { G * H, C } }, 0 },                 \
                                                       { { 2, { G * H, H } }, 0 },                 \
                                                       { { 1, { G * H } }, 0 },                    \
                                                       { { 1, { G * H } }, 0 } }
#define LINEAR_CASE(K, N)                                                                          \
    .mflop = 2e-6 * 2048.0 * K * N,                                                                \
    .in = { { { 2, { 2048, K } }, 0 }, { { 2, { N, K } }, 0 }, { { 1, { N } }, 0 } }

/* B images of N x N, 3 x 3 taps, C channels to C. */
#define CONV_CASE(B, N, C)                                                                         \
    .mflop = 18e-6 * B * N * N * C * C,                                                            \
    .in = { { { 4, { B, N, N, C } }, 0 }, { { 4, { C, C, 3, 3 } }, 0 } }

/* Stride 2, C channels to D. */
#define HALVE_CASE(B, N, C, D)                                                                     \
    .mflop = 4.5e-6 * B * N * N * C * D,                                                           \
    .in = { { { 4, { B, N, N, C } }, 0 }, { { 4, { D, C, 3, 3 } }, 0 } }

/* CONV_CASE with C groups; BYTES are moved for each element of the input. */
#define DEPTHWISE_CASE(B, N, C, BYTES)                                                             \
    .mbyte = (BYTES)*1e-6 * B * N * N * C,                                                         \
    .in = { { { 4, { B, N, N, C } }, 0 }, { { 4, { C, 1, 3, 3 } }, 0 } }

#define BATCHNORM_CASE(B, N, C)                                                                    \
    .mbyte = 12e-6 * B * N * N * C, .mbyte_back = 20e-6 * B * N * N * C,                           \
    .in = { { { 4, { B, N, N, C } }, 0 },                                                          \
            { { 1, { C } }, 0 },                                                                   \
            { { 1, { C } }, 0 },                                                                   \
            { { 1, { C } }, 0 },                                                                   \
            { { 1, { C } }, 0 } }

/* clang-format off */
const op_case op_cases_cpu[] = {
    { "matmul", "1024x1024x1024", matmul, .mflop = 2e-6 * 1024.0 * 1024.0 * 1024.0,
      .in = { { { 2, { 1024, 1024 } }, 0 }, { { 2, { 1024, 1024 } }, 0 } } },
    { "copy", "y = 2x, 64 MB", copy, .mbyte = 8e-6 * 16777216.0,
      .in = { { { 1, { 16777216 } }, 0 } } },
    { "linear", "2048x512->512", linear, LINEAR_CASE(512, 512) },
    { "linear", "2048x2048->512", linear, LINEAR_CASE(2048, 512) },
    { "linear_gelu", "2048x512->2048", gelu_linear, LINEAR_CASE(512, 2048) },
    { "layernorm", "2048x512", layernorm, .mbyte = 8e-6 * 2048 * 512,
      .in = { { { 2, { 2048, 512 } }, 0 }, { { 1, { 512 } }, 0 }, { { 1, { 512 } }, 0 } } },
    { "cross_entropy", "2048x208", cross_entropy, .mbyte = 4e-6 * 2048 * 208,
      .in = { { { 2, { 2048, 208 } }, 0 }, { { 1, { 2048 } }, 208 } } },
    { "chunk_project", "2048x512 l16 r1", chunk_project, .mbyte = 4e-6 * 2048 * 512,
      .cfg = { .heads = 8, .chunk = 16, .rank = 1 },
      .in = { { { 3, { 1, 2048, 512 } }, 0 }, { { 3, { 1, 2048, 8 } }, 0 } } },
    { "chunk_project", "4x3136x64 l3136 r64", chunk_project, .mflop = 2e-6 * 4 * 3136 * 64 * 64,
      .cfg = { .heads = 1, .chunk = 3136, .rank = 64 },
      .in = { { { 3, { 4, 3136, 64 } }, 0 }, { { 3, { 4, 3136, 64 } }, 0 } } },
    { "ls_attention", "2048+2048 d512 h8 w512 l16 r1", ls_attention, LS_CASE(2048) },
    { "ls_attention", "8192+8192 d512 h8 w512 l16 r1", ls_attention, LS_CASE(8192) },
    { "ls_attention", "2K tokens", ls_attention, LS_CONTEXT(2048) },
    { "ls_attention", "4K tokens", ls_attention, LS_CONTEXT(4096) },
    { "ls_attention", "8K tokens", ls_attention, LS_CONTEXT(8192) },
    { "ls_attention", "16K tokens", ls_attention, LS_CONTEXT(16384) },
    { "ls_attention", "32K tokens", ls_attention, LS_CONTEXT(32768) },
    { "ls_attention", "64K tokens", ls_attention, LS_CONTEXT(65536) },
    { "attention", "4096 d512 h8", attention, ATTENTION_CASE(4096, 1.0) },
    { "attention", "4096 d512 h8 causal", attention, ATTENTION_CASE(4096, 4097.0 / 8192.0) },
    { "conv2d", "8x56x56x64 k3", conv, CONV_CASE(8, 56, 64) },
    { "conv2d", "8x28x28x128 k3", conv, CONV_CASE(8, 28, 128) },
    { "conv2d", "8x14x14x256 k3", conv, CONV_CASE(8, 14, 256) },
    { "conv2d", "8x7x7x512 k3", conv, CONV_CASE(8, 7, 512) },
    { "conv2d", "4x224x224x3 to 48 k3 s2", conv_s2, HALVE_CASE(4, 224, 3, 48) },
    { "conv2d", "4x56x56x96 to 192 k3 s2", conv_s2, HALVE_CASE(4, 56, 96, 192) },
    { "conv2d", "4x28x28x192 to 384 k3 s2", conv_s2, HALVE_CASE(4, 28, 192, 384) },
    { "conv2d", "4x14x14x384 to 768 k3 s2", conv_s2, HALVE_CASE(4, 14, 384, 768) },
    { "depthwise_conv2d", "8x56x56x64 k3", depthwise, DEPTHWISE_CASE(8, 56, 64, 8) },
    { "depthwise_conv2d", "8x56x56x64 k3 s2", depthwise_s2, DEPTHWISE_CASE(8, 56, 64, 5) },
    { "depthwise_conv2d", "8x28x28x192 k3", depthwise, DEPTHWISE_CASE(8, 28, 192, 8) },
    { "depthwise_conv2d", "8x28x28x192 k3 s2", depthwise_s2, DEPTHWISE_CASE(8, 28, 192, 5) },
    { "depthwise_conv2d", "8x14x14x384 k3", depthwise, DEPTHWISE_CASE(8, 14, 384, 8) },
    { "depthwise_conv2d", "8x14x14x384 k3 s2", depthwise_s2, DEPTHWISE_CASE(8, 14, 384, 5) },
    { "batchnorm", "8x56x56x64", batchnorm, BATCHNORM_CASE(8, 56, 64) },
    { "batchnorm", "8x14x14x384", batchnorm, BATCHNORM_CASE(8, 14, 384) },
    { "layernorm", "8x3137x48", layernorm, .mbyte = 8e-6 * 8 * 3137 * 48,
      .in = { { { 3, { 8, 3137, 48 } }, 0 }, { { 1, { 48 } }, 0 }, { { 1, { 48 } }, 0 } } },
    { "layernorm", "8x3137x96", layernorm, .mbyte = 8e-6 * 8 * 3137 * 96,
      .in = { { { 3, { 8, 3137, 96 } }, 0 }, { { 1, { 96 } }, 0 }, { { 1, { 96 } }, 0 } } },
    { "layernorm", "8x785x192", layernorm, .mbyte = 8e-6 * 8 * 785 * 192,
      .in = { { { 3, { 8, 785, 192 } }, 0 }, { { 1, { 192 } }, 0 }, { { 1, { 192 } }, 0 } } },
    { "layernorm", "8x196x384", layernorm, .mbyte = 8e-6 * 8 * 196 * 384,
      .in = { { { 3, { 8, 196, 384 } }, 0 }, { { 1, { 384 } }, 0 }, { { 1, { 384 } }, 0 } } },
    { "instancenorm", "8x14x14x384", instancenorm, .mbyte = 8e-6 * 8 * 14 * 14 * 384,
      .in = { { { 4, { 8, 14, 14, 384 } }, 0 }, { { 1, { 384 } }, 0 }, { { 1, { 384 } }, 0 } } },
    { "window_attention", "ViL 8x56x56 h3", window_attention, VIL_CASE(8, 56, 3, 19.25 * 19.25) },
    { "window_attention", "ViL-LS 8x56x56 h3", window_attention, VIL_LS_CASE(8, 56, 3, 12.25 * 12.25) },
    { "window_attention", "ViL map of 56x56", window_attention, .tokens = 3137,
      VIL_CASE(1, 56, 3, 19.25 * 19.25) },
    { "window_attention", "ViL map of 112x112", window_attention, .tokens = 12545,
      VIL_CASE(1, 112, 3, 20.125 * 20.125) },
    { "window_attention", "ViL map of 224x224", window_attention, .tokens = 50177,
      VIL_CASE(1, 224, 3, 20.5625 * 20.5625) },
    { "window_attention", "ViL map of 448x448", window_attention, .tokens = 200705,
      VIL_CASE(1, 448, 3, 20.78125 * 20.78125) },
    { "lsla_attention", "8x56x56 h3", lsla_attention, LSLA_CASE(8, 56, 3) },
    { "max_pool2d", "8x112x112x64 k3 s2", max_pool, .mbyte = 5e-6 * 8 * 112 * 112 * 64,
      .in = { { { 4, { 8, 112, 112, 64 } }, 0 } } },
    { "avg_pool2d", "8x56x56x64 k2", avg_pool, .mbyte = 5e-6 * 8 * 56 * 56 * 64,
      .in = { { { 4, { 8, 56, 56, 64 } }, 0 } } },
    { "interpolate", "8x56x56x64 to 112x112", resize, .mbyte = 20e-6 * 8 * 56 * 56 * 64,
      .in = { { { 4, { 8, 56, 56, 64 } }, 0 } } },
    { "interpolate", "8x56x56x64 to 112x112 bicubic", resize_bicubic, .mbyte = 20e-6 * 8 * 56 * 56 * 64,
      .in = { { { 4, { 8, 56, 56, 64 } }, 0 } } },
    { "instancenorm", "8x56x56x64", instancenorm, .mbyte = 8e-6 * 8 * 56 * 56 * 64,
      .in = { { { 4, { 8, 56, 56, 64 } }, 0 }, { { 1, { 64 } }, 0 }, { { 1, { 64 } }, 0 } } },
    { "lstm", "32x500x128 to 256", lstm, RNN_CASE(4, 32, 128, 256) },
    { "lstm", "8x500x512 to 512", lstm, RNN_CASE(4, 8, 512, 512) },
    { "lstm", "64x500x128 to 128", lstm, RNN_CASE(4, 64, 128, 128) },
    { "gru", "32x500x128 to 256", gru, RNN_CASE(3, 32, 128, 256) },
    { "gru", "8x500x512 to 512", gru, RNN_CASE(3, 8, 512, 512) },
    { "gru", "64x500x128 to 128", gru, RNN_CASE(3, 64, 128, 128) },
    { "weight_standardize", "256x256x3x3", standardize, .mbyte = 8e-6 * 256 * 256 * 9,
      .in = { { { 4, { 256, 256, 3, 3 } }, 0 } } },
    { 0 },
};
/* clang-format on */

#define SHRINK 1
const op_case op_cases_cuda[] = {
#include "op_cases_cuda.h"
};

#undef SHRINK
#define SHRINK 64
const op_case op_cases_smoke[] = {
#include "op_cases_cuda.h"
};
