/* op_cases_cuda.h - the cases of bench_ops for a GPU. op_cases_cuda.c includes it twice: with SHRINK 1,
 * and with 64, which divides batches, rows and texts by 64 under the same names. */

// clang-format off
#undef ROWS
#undef BATCH
#undef LS
#undef ATTENTION
#undef CONV
#define ROWS     (65536 / SHRINK) /* tokens of a batch */
#define BATCH(B) ((B) > SHRINK ? (B) / SHRINK : 1)
#define SIDE     (8192 / SHRINK)
#define LONG     (134217728 / SHRINK / SHRINK)

/* B texts of N tokens after N cached ones; distance tables and biases in f32. */
#define LS(B, N) \
    op_named, .args = "heads=8 chunk=16 rank=1 window=512", .f32 = 0x1e0, \
    .mflop = 6e-6 * (B) * (N) * 512.0 * (512.0 + (N) / 16.0 + ((N) / 16.0 - 1.0) / 2.0), \
    .in = { { { 3, { B, N, 512 } }, 0 }, \
            { { 3, { B, 512 + (N), 512 } }, 0 }, { { 3, { B, 512 + (N), 512 } }, 0 }, \
            { { 3, { B, (N) / 8, 512 } }, 0 }, { { 3, { B, (N) / 8, 512 } }, 0 }, \
            { { 2, { 512, 512 } }, 0 }, { { 2, { (N) / 8, 512 } }, 0 }, \
            { { 2, { 8, 64 } }, 0 }, { { 2, { 8, 64 } }, 0 } }

/* B texts of N tokens, 8 heads of 64; each token sees the fraction SHARE of all. */
#define ATTENTION(B, N, SHARE, ARGS) \
    op_named, .args = "heads=8" ARGS, .mflop = 4e-6 * (B) * (N) * 512.0 * (N) * (SHARE), \
    .in = { { { 3, { B, N, 512 } }, 0 }, { { 3, { B, N, 512 } }, 0 }, { { 3, { B, N, 512 } }, 0 } }

/* B images of N x N, 3 x 3 taps, C channels to C. */
#define CONV(B, N, C) \
    .mflop = 18e-6 * (B) * N * N * C * C, .in = { { { 4, { B, N, N, C } }, 0 }, { { 4, { C, C, 3, 3 } }, 0 } }

    { "matmul", "8192x8192x8192", op_named, .mflop = 2e-6 * SIDE * SIDE * SIDE,
      .in = { { { 2, { SIDE, SIDE } }, 0 }, { { 2, { SIDE, SIDE } }, 0 } } },
    { "copy", "y = 2x, 128M elements", op_named, .call = "scale", .args = "k=2", .mbyte = 8e-6 * LONG, .mbyte_back = 8e-6 * LONG,
      .in = { { { 1, { LONG } }, 0 } } },
    { "linear", "65536x512->512", op_named, .mflop = 2e-6 * ROWS * 512.0 * 512.0,
      .in = { { { 2, { ROWS, 512 } }, 0 }, { { 2, { 512, 512 } }, 0 }, { { 1, { 512 } }, 0 } } },
    { "linear", "65536x2048->512", op_named, .mflop = 2e-6 * ROWS * 2048.0 * 512.0,
      .in = { { { 2, { ROWS, 2048 } }, 0 }, { { 2, { 512, 2048 } }, 0 }, { { 1, { 512 } }, 0 } } },
    { "linear_gelu", "65536x512->2048", op_named, .call = "linear", .args = "act=gelu", .mflop = 2e-6 * ROWS * 512.0 * 2048.0,
      .in = { { { 2, { ROWS, 512 } }, 0 }, { { 2, { 2048, 512 } }, 0 }, { { 1, { 2048 } }, 0 } } },
    { "mul", "65536x512", op_named, .mbyte = 12e-6 * ROWS * 512, .mbyte_back = 20e-6 * ROWS * 512,
      .in = { { { 2, { ROWS, 512 } }, 0 }, { { 2, { ROWS, 512 } }, 0 } } },
    { "gelu", "65536x512", op_named, .mbyte = 8e-6 * ROWS * 512, .mbyte_back = 12e-6 * ROWS * 512,
      .in = { { { 2, { ROWS, 512 } }, 0 } } },
    { "softmax", "65536x512", op_named, .mbyte = 8e-6 * ROWS * 512, .mbyte_back = 12e-6 * ROWS * 512,
      .in = { { { 2, { ROWS, 512 } }, 0 } } },
    { "layernorm", "65536x512", op_named, .args = "eps=1e-5", .f32 = 6, .mbyte = 8e-6 * ROWS * 512, .mbyte_back = 12e-6 * ROWS * 512,
      .in = { { { 2, { ROWS, 512 } }, 0 }, { { 1, { 512 } }, 0 }, { { 1, { 512 } }, 0 } } },
    { "dropout_add", "65536x512", op_named, .absent = 1 << 1, .args = "p=0.2", .mbyte = 12e-6 * ROWS * 512, .mbyte_back = 8e-6 * ROWS * 512,
      .in = { { { 2, { ROWS, 512 } }, 0 }, { { 2, { ROWS, 512 } }, 0 } } },
    { "cross_entropy", "65536x208", op_named, .mbyte = 4e-6 * ROWS * 208,
      .in = { { { 2, { ROWS, 208 } }, 0 }, { { 1, { ROWS } }, 208 } } },
    { "cross_entropy", "8192x50265", op_named, .mbyte = 4e-6 * SIDE * 50265,
      .in = { { { 2, { SIDE, 50265 } }, 0 }, { { 1, { SIDE } }, 50265 } } },
    { "embedding", "65536 of 208x512", op_named, .args = "scale=1", .mbyte = 4e-6 * ROWS * 512, .mbyte_back = 4e-6 * ROWS * 512,
      .in = { { { 2, { 208, 512 } }, 0 }, { { 1, { ROWS } }, 208 } } },
    { "permute", "8x8192x8x64 to 0213", op_named, .args = "order=0,2,1,3", .mbyte = 8e-6 * ROWS * 512, .mbyte_back = 8e-6 * ROWS * 512,
      .in = { { { 4, { 8, SIDE, 8, 64 } }, 0 } } },
    { "chunk_project", "8x8192x512 l16 r1", op_named, .args = "heads=8 chunk=16 rank=1", .mbyte = 4e-6 * ROWS * 512,
      .in = { { { 3, { 8, SIDE, 512 } }, 0 }, { { 3, { 8, SIDE, 8 } }, 0 } } },
    { "depthwise_conv2d", "64x56x56x96 k3", op_named, .args = "pad=1,1",
      .mbyte = 8e-6 * BATCH(64) * 56 * 56 * 96, .mbyte_back = 12e-6 * BATCH(64) * 56 * 56 * 96,
      .in = { { { 4, { BATCH(64), 56, 56, 96 } }, 0 }, { { 4, { 96, 1, 3, 3 } }, 0 } } },
    { "conv2d", "64x56x56x64 k3", op_named, .args = "pad=1,1", CONV(BATCH(64), 56, 64) },
    { "conv2d", "64x14x14x256 k3", op_named, .args = "pad=1,1", CONV(BATCH(64), 14, 256) },
    { "adamw", "64M elements", NULL, .mbyte = 28e-6 * LONG / 2, .in = { { { 1, { LONG / 2 } }, 0 } } },
    { "ls_attention", "1x2048+2048 d512 h8 w512 l16 r1", LS(1, 2048 / SHRINK) },
    { "ls_attention", "8x2048+2048 d512 h8 w512 l16 r1", LS(BATCH(8), 2048 / SHRINK) },
    { "ls_attention", "1x8192+8192 d512 h8 w512 l16 r1", LS(1, SIDE) },
    { "ls_attention", "8x8192+8192 d512 h8 w512 l16 r1", LS(BATCH(8), SIDE) },
    { "attention", "8x4096 d512 h8", ATTENTION(BATCH(8), 4096 / SHRINK, 1.0, "") },
    { "attention", "8x4096 d512 h8 causal", ATTENTION(BATCH(8), 4096 / SHRINK, 4097.0 / 8192.0, " causal=1") },
    { 0 },
    // clang-format on
