/* op_cases.c - the cases of bench_ops: calls, shapes, and what their results cost.
 *
 * A row is a call. FLOPs and bytes are those that the result needs; MOVES takes the bytes for each
 * of N elements, forward and backward (0: twice forward). bench/peers/ops_pytorch.py reads the
 * rows, too (bench_ops --list). */
#include <tapegrad/op.h>

#include "op_case.h"

/* clang-format off */
#define X(...)             { .shape = TP_DIMS(__VA_ARGS__) }
#define UNIT(...)          { .shape = TP_DIMS(__VA_ARGS__), .unit = true }
#define FIXED(...)         { .shape = TP_DIMS(__VA_ARGS__), .fixed = true }
#define FIXED_UNIT(...)    { .shape = TP_DIMS(__VA_ARGS__), .fixed = true, .unit = true }
#define WIDE(...)          { .shape = TP_DIMS(__VA_ARGS__), .wide = true }
#define FIXED_WIDE(...)    { .shape = TP_DIMS(__VA_ARGS__), .fixed = true, .wide = true }
#define IDS(BELOW, ...)    { .shape = TP_DIMS(__VA_ARGS__), .below = BELOW }
#define NONE               { .none = true }
#define MOVES(FORWARD, BACKWARD, N) \
    .mbyte = 1e-6 * (FORWARD) * (N), .mbyte_back = 1e-6 * (BACKWARD) * (N)
#define MADE(FORWARD, N)   .mbyte = 1e-6 * (FORWARD) * (N), .forward_only = true
#define IN(...)            .in = { __VA_ARGS__ }

/* ---- calls that take more than their case says ---- */

static tp_tensor where(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    (void)k;
    return tp_where(T, tp_gt(T, x[0], 0), x[0], x[1]);
}

/* 512 regions of 60 to 220 pixels of two images of 512 x 512 (bench/peers/op_cases.py has the
 * same). */
enum { REGIONS = 512 };

static tp_tensor pool_regions(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    const int64_t side = op_case_int(k, "side");
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
    return tp_roi_align(T, 1, x, tp_from(T, TP_F32, TP_SHAPE(REGIONS, 4), box),
                        tp_from(T, TP_I32, TP_SHAPE(REGIONS, 2), place),
                        (tp_roi_align_cfg){ .size = { side, side }, .scale = { 0.125 },
                                            .aligned = true });
}

static tp_tensor chunk_project_kv(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    const tp_kv y = tp_chunk_project_kv(T, x[0], x[1], x[2], TP_NONE, op_case_int(k, "heads"),
                                        op_case_int(k, "chunk"), op_case_int(k, "rank"));
    return tp_concat(T, 1, y.k, y.v);
}

/* Where 32 documents begin that are as long, in words, as film reviews: the quantiles of a
 * log-normal distribution of median 175 (bench/peers/op_cases.py has their lengths). */
static const int32_t reviews[] = {
    0,    43,   196,  519,  628,  849,  907,  1069, 1421, 1537, 1770,
    1839, 2009, 2398, 2521, 2768, 2846, 3025, 3464, 3595, 3857, 3943,
    4131, 4651, 4789, 5069, 5163, 5361, 6070, 6216, 6516, 6617, 6826
};
enum { REVIEWS = sizeof reviews / sizeof *reviews - 1, REVIEW_ROWS = 6826, LONGEST_REVIEW = 709 };

static tp_packed of_reviews(tp_tape *T)
{
    return (tp_packed){ tp_from(T, TP_I32, TP_SHAPE(REVIEWS + 1), reviews), LONGEST_REVIEW };
}

static tp_tensor packed_attention(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    const tp_packed of = of_reviews(T);
    (void)k;
    return tp_packed_attention(T, x[0], x[1], x[2], of, of, (tp_attn_cfg){ .heads = 2 });
}

static tp_tensor packed_windows(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    const tp_window_in in = { .q = x[0], .k = x[1], .v = x[2], .low_k = x[3], .low_v = x[4],
                              .offset = of_reviews(T).offset };
    (void)k;
    return tp_window_attention_2d(T, in, (tp_window_attn_cfg){ .heads = 2, .height = 1,
                                                               .width = LONGEST_REVIEW,
                                                               .window = { 1, 8 },
                                                               .halo = { 0, 4 } });
}

/* ---- shared by rows ---- */

#define LINEAR(M, K, N) .mflop = 2e-6 * (M) * (double)(K) * (N), IN(X(M, K), X(N, K), X(N))
#define EINSUM(SPEC, SIZES) "einsum", SPEC " " SIZES, "spec=" SPEC
#define LAYERNORM(B, N, C) "eps=1e-5", MOVES(8, 0, B * N * C), IN(X(B, N, C), X(C), X(C))
#define MAP_NORM(ARGS, B, N, C) \
    ARGS "eps=1e-5", MOVES(8, 0, B * N * N * C), IN(X(B, N, N, C), X(C), X(C))
#define BATCHNORM(B, N, C) \
    "momentum=0.1 eps=1e-5", MOVES(12, 20, B * N * N * C), \
    IN(X(B, N, N, C), X(C), X(C), FIXED(C), FIXED(C))

#define ROWS (4096 * 512)
#define PAIR IN(X(4096, 512), X(4096, 512))
/* Of one shape, with a row, and with a number. */
#define TWO(NAME) \
    { #NAME, "4096x512", MOVES(12, 20, ROWS), PAIR }, \
    { #NAME, "4096x512 row", MOVES(8, 12, ROWS), IN(X(4096, 512), X(512)) }, \
    { #NAME, "4096x512 number", "k=1.5", MOVES(8, 8, ROWS), IN(X(4096, 512)) }
/* The loss of x and a target. */
#define TO_TARGET(X, TARGET) MOVES(8, 12, ROWS), IN(X(4096, 512), TARGET(4096, 512))

/* M x N matrices, BYTES for each element: one, and a square one along its rows and columns. */
#define MATRIX(M, N, ARGS, BYTES) ARGS, MOVES(BYTES, 0, M * N), IN(X(M, N))
#define SQUARE(NAME, ARGS, BYTES) \
    { NAME, "1024x1024", MATRIX(1024, 1024, ARGS "=1", BYTES) }, \
    { NAME, "1024x1024 down", MATRIX(1024, 1024, ARGS "=0", BYTES) }
/* Each axis of a cube. */
#define CUBE(NAME, AXIS, WHICH) \
    { NAME, "128x128x128 " WHICH, "axes=" #AXIS, MOVES(4, 4, 128 * 128 * 128), \
      IN(X(128, 128, 128)) }
#define CUBES(NAME) \
    CUBE(NAME, 2, "last axis"), CUBE(NAME, 1, "middle axis"), CUBE(NAME, 0, "first axis")
#define UPDATE(BYTES, N, ...) .update = true, .mbyte = 1e-6 * (BYTES) * (N), IN(X(__VA_ARGS__))

/* B images of N x N, 3 x 3 taps, C channels to C; with stride 2 to D; the size doubled by K x K
 * taps; by C groups. */
#define CONV(B, N, C) \
    "pad=1,1", .mflop = 18e-6 * (B) * N * N * C * C, IN(X(B, N, N, C), X(C, C, 3, 3))
#define HALVE(B, N, C, D) \
    "stride=2,2 pad=1,1", .mflop = 4.5e-6 * B * N * N * C * D, IN(X(B, N, N, C), X(D, C, 3, 3))
#define DOUBLE(B, N, C, D, K) \
    .mflop = 2e-6 * B * N * N * K * K * C * D, IN(X(B, N, N, C), X(C, D, K, K))
#define DEPTHWISE(B, N, C, FORWARD, BACKWARD) \
    MOVES(FORWARD, BACKWARD, (B) * N * N * C), IN(X(B, N, N, C), X(C, 1, 3, 3))
#define MAPS(B, N, C, BYTES) MOVES(BYTES, 0, B * N * N * C), IN(X(B, N, N, C))

/* 500 steps of x [B,500,C], G gates of H units. */
#define RNN(G, B, C, H) \
    .mflop = 2e-6 * B * 500 * G * H * (C + H), \
    IN(X(B, 500, C), X(G * H, C), X(G * H, H), X(G * H), X(G * H))

/* B texts of N tokens after a cache of N, width 512, 8 heads, window 512, chunks of 16, rank 1.
 * That is 3 N w d MACs for the window and 3 N n d for the n vectors that a query sees on
 * average. */
#define LS(B, N) \
    "heads=8 chunk=16 rank=1 window=512", \
    .mflop = 6e-6 * (B) * (N) * 512.0 * (512.0 + (N) / 16.0 + ((N) / 16.0 - 1.0) / 2.0), \
    IN(X(B, N, 512), X(B, 512 + (N), 512), X(B, 512 + (N), 512), X(B, (N) / 8, 512), \
    X(B, (N) / 8, 512), \
       WIDE(512, 512), WIDE((N) / 8, 512), WIDE(8, 64), WIDE(8, 64))
/* N tokens from the start of a text: no cache, so that the last query sees N / 16 vectors. */
#define LS_CONTEXT(N) \
    "heads=8 chunk=16 rank=1 window=512 masked=1", .tokens = N, \
    .mflop = 6e-6 * 512.0 * (N * 512.0 - 512.0 * 511.0 / 2.0 + N * (N / 16.0 - 1.0) / 2.0), \
    IN(X(1, N, 512), X(1, N, 512), X(1, N, 512), X(1, N / 16, 512), X(1, N / 16, 512), \
       WIDE(512, 512), WIDE(N / 16, 512), WIDE(8, 64), WIDE(8, 64))

#define QKV(...) X(__VA_ARGS__), X(__VA_ARGS__), X(__VA_ARGS__)
/* B texts of N tokens, 8 heads of 64; each token sees the fraction SHARE of all. */
#define ATTENTION(B, N, SHARE, ARGS) \
    "heads=8" ARGS, .mflop = 4e-6 * (B) * (N) * 512.0 * (N) * (SHARE), IN(QKV(B, N, 512))

/* B maps of S x S cells, width 32 H. ViL: chunks of 7 x 7 that see KEYS cells on average in each
 * direction, one global token, no table of positions; ViL-LS: 8 low-rank keys, 13 x 13 cells and a
 * table; LSLA: windows of 7 x 7. */
#define WINDOWS(H, HEIGHT, WIDTH, ARGS) \
    "heads=" #H " height=" #HEIGHT " width=" #WIDTH " " ARGS, .call = "window_attention_2d"
#define VIL(B, S, H, KEYS) \
    WINDOWS(H, S, S, "global=1 window=7,7 halo=7,7"), \
    .mflop = 4e-6 * B * S * S * 32.0 * H * (KEYS * KEYS + 1), \
    IN(QKV(B, S * S + 1, 32 * H))
#define VIL_LS(B, S, H, KEYS) \
    WINDOWS(H, S, S, "global=1 window=7,7 halo=3,3 reach=9,9 stride=13"), \
    .mflop = 4e-6 * B * S * S * 32.0 * H * (KEYS * KEYS + 9), \
    IN(QKV(B, S * S + 1, 32 * H), X(B, 8, 32 * H), X(B, 8, 32 * H), X(253, H))
#define LSLA(B, S, H) \
    "heads=" #H " height=" #S " width=" #S " window=7 shift=3", \
    .mflop = 4e-6 * B * S * S * 32.0 * H * 49, \
    IN(QKV(B, S * S, 32 * H), X(49, 49), X(169, H), X(169, H))
/* Long-short attention of an encoder: B sequences of N tokens, 2 heads of 32, segments of W tokens
 * that see HALF = W / 2 to either side, R low keys. */
#define SEQUENCE(B, N, W, HALF, R) \
    WINDOWS(2, 1, N, "window=1," #W " halo=0," #HALF), \
    .mflop = 4e-6 * B * N * 64.0 * (2.0 * W + R - W * W / (double)N), \
    IN(QKV(B, N, 64), X(B, R, 64), X(B, R, 64))
/* Longformer: N tokens, H heads of 64, in chunks of W tokens; a query sees exactly W keys to either
 * side. */
#define BAND(N, H, W) \
    WINDOWS(H, 1, N, "window=1," #W " halo=0," #W " edge=exact"), \
    .mflop = 4e-6 * N * 64.0 * H * (2.0 * W + 1 - W * (W + 1.0) / N), IN(QKV(1, N, 64 * H))

/* ---- on the CPU ---- */

const op_case op_cases_cpu[] = {
    { "matmul", "1024x1024x1024", .mflop = 2e-6 * 1024.0 * 1024.0 * 1024.0,
      IN(X(1024, 1024), X(1024, 1024)) },
    { "copy", "y = 2x, 64 MB", "k=2", .call = "scale", MOVES(8, 0, 16777216), IN(X(16777216)) },

    { "linear", "2048x512->512", LINEAR(2048, 512, 512) },
    { "linear", "2048x2048->512", LINEAR(2048, 2048, 512) },
    { "linear_gelu", "2048x512->2048", "act=gelu", .call = "linear", LINEAR(2048, 512, 2048) },
    { "glu_linear", "2048x512->1024 SwiGLU", "kind=silu", .mflop = 4e-6 * 2048 * 512 * 1024,
      IN(X(2048, 512), X(1024, 512), NONE, X(1024, 512)) },
    { EINSUM("bij,bjk->bik", "8x512x512x512"), .mflop = 16e-6 * 512 * 512 * 512,
      IN(X(8, 512, 512), X(8, 512, 512)) },
    { EINSUM("bhqd,bhkd->bhqk", "4x8x512x512x64"), .mflop = 64e-6 * 512 * 512 * 64,
      IN(X(4, 8, 512, 64), X(4, 8, 512, 64)) },
    { EINSUM("bqhd,bkhd->bhqk", "4x8x512x512x64"), .mflop = 64e-6 * 512 * 512 * 64,
      IN(X(4, 512, 8, 64), X(4, 512, 8, 64)) },
    { EINSUM("bi,oij,bj->bo", "256x128x128x128"), .mflop = 2e-6 * 256 * 128 * 128 * 128,
      IN(X(256, 128), X(128, 128, 128), X(256, 128)) },
    { EINSUM("bchw,oc->bohw", "8x256x28x28 to 256"), .mflop = 16e-6 * 256 * 256 * 784,
      IN(X(8, 256, 28, 28), X(256, 256)) },
    { EINSUM("bi,bi->b", "4096x512"), MOVES(8, 16, ROWS), PAIR },
    { EINSUM("bii->bi", "64x256x256"), MOVES(8, 4 * 256, 64 * 256), IN(X(64, 256, 256)) },

    { "layernorm", "2048x512", "eps=1e-5", MOVES(8, 0, 2048 * 512),
      IN(X(2048, 512), X(512), X(512)) },
    { "batchnorm", "8x56x56x64", BATCHNORM(8, 56, 64) },
    { "batchnorm", "8x14x14x384", BATCHNORM(8, 14, 384) },
    { "layernorm", "8x3137x48", LAYERNORM(8, 3137, 48) },
    { "layernorm", "8x3137x96", LAYERNORM(8, 3137, 96) },
    { "layernorm", "8x785x192", LAYERNORM(8, 785, 192) },
    { "layernorm", "8x196x384", LAYERNORM(8, 196, 384) },
    { "instancenorm", "8x14x14x384", MAP_NORM("", 8, 14, 384) },
    { "instancenorm", "8x56x56x64", MAP_NORM("", 8, 56, 64) },
    { "groupnorm", "8x56x56x64 g32", MAP_NORM("groups=32 ", 8, 56, 64) },
    { "groupnorm", "8x14x14x512 g32", MAP_NORM("groups=32 ", 8, 14, 512) },
    { "weight_standardize", "256x256x3x3", "eps=1e-5", MOVES(8, 0, 256 * 256 * 9),
      IN(X(256, 256, 3, 3)) },

    /* losses, means where no reduction is named */
    { "cross_entropy", "2048x208", MOVES(4, 0, 2048 * 208), IN(X(2048, 208), IDS(208, 2048)) },
    { "nll", "8192x256", MOVES(12, 4 * 256, 8192), IN(X(8192, 256), IDS(256, 8192)) },
    { "bce", "4096x512", TO_TARGET(UNIT, FIXED_UNIT) },
    { "bce_logits", "4096x512", TO_TARGET(X, FIXED_UNIT) },
    { "mse", "4096x512", TO_TARGET(X, FIXED) },
    { "smooth_l1", "4096x512", "beta=1", TO_TARGET(X, FIXED) },
    { "focal", "20000x80", "alpha=0.25 gamma=2 reduction=sum", MOVES(4, 8, 20000 * 80),
      IN(X(20000, 80), IDS(81, 20000)) },
    { "giou", "262144x4", "eps=1e-7 reduction=sum", MOVES(32, 48, 262144),
      IN(UNIT(262144, 4), FIXED_UNIT(262144, 4)) },
    { "kl_div", "4096x512", "reduction=sum", TO_TARGET(X, FIXED_UNIT) },
    { "cosine_similarity", "4096x512", "eps=1e-8", MOVES(8, 0, ROWS), PAIR },
    { "triplet_margin", "4096x512", "margin=1", MOVES(12, 0, ROWS),
      IN(X(4096, 512), X(4096, 512), X(4096, 512)) },
    { "ctc", "64x256x64, up to 50 labels", "blank=63", MOVES(4, 0, 64 * 256 * 64),
      IN(X(64, 256, 64), IDS(63, 64, 50), NONE, IDS(50, 64)) },

    { "chunk_project", "2048x512 l16 r1", "heads=8 chunk=16 rank=1", MOVES(4, 0, 2048 * 512),
      IN(X(1, 2048, 512), X(1, 2048, 8)) },
    { "chunk_project", "4x3136x64 l3136 r64", "heads=1 chunk=3136 rank=64",
      .mflop = 2e-6 * 4 * 3136 * 64 * 64,
      IN(X(4, 3136, 64), X(4, 3136, 64)) },
    { "chunk_project_kv", "4x4096x64 l4096 h2 r32", "heads=2 chunk=4096 rank=32",
      .apply = chunk_project_kv,
      .mflop = 4e-6 * 4 * 4096 * 64 * 32, IN(QKV(4, 4096, 64)) },
    { "ls_attention", "2048+2048 d512 h8 w512 l16 r1", LS(1, 2048) },
    { "ls_attention", "8192+8192 d512 h8 w512 l16 r1", LS(1, 8192) },
    { "ls_attention", "2K tokens", LS_CONTEXT(2048) },
    { "ls_attention", "4K tokens", LS_CONTEXT(4096) },
    { "ls_attention", "8K tokens", LS_CONTEXT(8192) },
    { "ls_attention", "16K tokens", LS_CONTEXT(16384) },
    { "ls_attention", "32K tokens", LS_CONTEXT(32768) },
    { "ls_attention", "64K tokens", LS_CONTEXT(65536) },
    { "attention", "4096 d512 h8", ATTENTION(1, 4096, 1.0, "") },
    { "attention", "2048 d512 h8 causal ALiBi",
      ATTENTION(1, 2048, 2049.0 / 4096.0, " causal=1 alibi=1") },
    { "attention", "2048 d512 h8/2 causal", "heads=8 kv_heads=2 causal=1",
      .mflop = 4e-6 * 2048 * 512.0 * 2048 * 2049.0 / 4096.0,
      IN(X(1, 2048, 512), X(1, 2048, 128), X(1, 2048, 128)) },
    { "attention", "4096 d512 h8 causal", ATTENTION(1, 4096, 4097.0 / 8192.0, " causal=1") },
    /* positions cost a third product */
    { "rel_attention", "4096 d512 h8", "heads=8", .mflop = 3e-6 * 4096 * 512.0 * (4096 + 1.0),
      IN(QKV(1, 4096, 512), X(4096, 512), X(8, 64), X(8, 64)) },
    { "attention", "4x4096 d64 h2", "heads=2", .mflop = 4e-6 * 4 * 4096.0 * 4096 * 64,
      IN(QKV(4, 4096, 64)) },
    { "window_attention", "ViL 8x56x56 h3", VIL(8, 56, 3, 19.25) },
    { "window_attention", "ViL-LS 8x56x56 h3", VIL_LS(8, 56, 3, 12.25) },
    { "window_attention", "4x4096 d64 h2 w8 r32", SEQUENCE(4, 4096, 8, 4, 32) },
    { "window_attention", "Longformer 2048 d768 h12", BAND(2048, 12, 256) },
    { "packed_attention", "32 reviews d64 h2", .apply = packed_attention,
      .mflop = 4e-6 * 64 * 2115840,
      IN(QKV(REVIEW_ROWS, 64)) },
    { "packed_window_attention", "32 reviews d64 h2 w8 r32", .apply = packed_windows,
      .mflop = 4e-6 * REVIEW_ROWS * 64.0 * (16.0 + 32.0),
      IN(QKV(REVIEW_ROWS, 64), X(REVIEWS, 32, 64), X(REVIEWS, 32, 64)) },
    { "window_attention", "ViL map of 56x56", VIL(1, 56, 3, 19.25), .tokens = 3137 },
    { "window_attention", "ViL map of 112x112", VIL(1, 112, 3, 20.125), .tokens = 12545 },
    { "window_attention", "ViL map of 224x224", VIL(1, 224, 3, 20.5625), .tokens = 50177 },
    { "window_attention", "ViL map of 448x448", VIL(1, 448, 3, 20.78125), .tokens = 200705 },
    { "lsh_attention", "4096 d512 h8 c64 r2", "heads=8",
      .mflop = 4e-6 * 4096 * 512 * (2 * 128 + 64),
      IN(X(1, 4096, 512), X(1, 4096, 512), FIXED_WIDE(8, 64, 2, 64)) },
    { "linear_attention", "4096 d512 h8", "heads=8", .mflop = 4e-6 * 4096 * 512 * 64,
      IN(QKV(1, 4096, 512)) },
    { "linear_attention", "4096 d512 h8 m256", "heads=8 features=positive",
      .mflop = 8e-6 * 4096 * 512 * 256,
      IN(QKV(1, 4096, 512), FIXED_WIDE(256, 64)) },
    { "lsla_attention", "8x56x56 h3", LSLA(8, 56, 3) },

    { "conv2d", "8x56x56x64 k3", CONV(8, 56, 64) },
    { "conv2d", "8x28x28x128 k3", CONV(8, 28, 128) },
    { "conv2d", "8x14x14x256 k3", CONV(8, 14, 256) },
    { "conv2d", "8x7x7x512 k3", CONV(8, 7, 512) },
    { "conv2d", "4x224x224x3 to 48 k3 s2", HALVE(4, 224, 3, 48) },
    { "conv2d", "4x56x56x96 to 192 k3 s2", HALVE(4, 56, 96, 192) },
    { "conv2d", "4x28x28x192 to 384 k3 s2", HALVE(4, 28, 192, 384) },
    { "conv2d", "4x14x14x384 to 768 k3 s2", HALVE(4, 14, 384, 768) },
    { "conv2d_relu", "8x56x56x64 k3", "pad=1,1", .mflop = 18e-6 * 8 * 56 * 56 * 64 * 64,
      IN(X(8, 56, 56, 64), X(64, 64, 3, 3), NONE, X(8, 56, 56, 64)) },
    { "depthwise_conv2d", "8x56x56x64 k3", "pad=1,1", DEPTHWISE(8, 56, 64, 8, 0) },
    { "depthwise_conv2d", "8x56x56x64 k3 s2", "stride=2,2 pad=1,1", DEPTHWISE(8, 56, 64, 5, 0) },
    { "depthwise_conv2d", "8x28x28x192 k3", "pad=1,1", DEPTHWISE(8, 28, 192, 8, 0) },
    { "depthwise_conv2d", "8x28x28x192 k3 s2", "stride=2,2 pad=1,1", DEPTHWISE(8, 28, 192, 5, 0) },
    { "depthwise_conv2d", "8x14x14x384 k3", "pad=1,1", DEPTHWISE(8, 14, 384, 8, 0) },
    { "depthwise_conv2d", "8x14x14x384 k3 s2", "stride=2,2 pad=1,1", DEPTHWISE(8, 14, 384, 5, 0) },
    { "conv1d", "8x3000x128 k3", "pad=1", .mflop = 6e-6 * 8 * 3000 * 128 * 128,
      IN(X(8, 3000, 128), X(128, 128, 3)) },
    { "conv_transpose2d", "8x28x28x128 to 64 k2 s2", "stride=2,2", DOUBLE(8, 28, 128, 64, 2) },
    { "conv_transpose2d", "8x28x28x128 to 64 k4 s2", "stride=2,2 pad=1,1",
      DOUBLE(8, 28, 128, 64, 4) },
    { "max_pool2d", "8x112x112x64 k3 s2", "kernel=3,3 stride=2,2 pad=1,1", MAPS(8, 112, 64, 5) },
    { "avg_pool2d", "8x56x56x64 k2", "kernel=2,2", MAPS(8, 56, 64, 5) },
    { "avg_pool2d", "8x56x56x64 k3 s2 ceil", "kernel=3,3 stride=2,2 pad=1,1 ceil=1",
      MAPS(8, 56, 64, 5) },
    { "adaptive_max_pool2d", "8x56x56x64 to 7x7", "height=7 width=7", MAPS(8, 56, 64, 4.1) },
    { "adaptive_avg_pool2d", "8x56x56x64 to 24x24", "height=24 width=24", MAPS(8, 56, 64, 4.7) },
    { "unfold", "8x56x56x64 k3", "kernel=3,3 pad=1,1", MAPS(8, 56, 64, 40) },
    { "unfold", "8x224x224x3 k16 s16", "kernel=16,16 stride=16,16", MAPS(8, 224, 3, 8) },
    { "fold", "8x56x56x64 k3", "height=56 width=56 kernel=3,3 pad=1,1",
      MOVES(40, 0, 8 * 56 * 56 * 64),
      IN(X(8, 56, 56, 576)) },
    { "interpolate", "8x56x56x64 to 112x112", "height=112 width=112", MAPS(8, 56, 64, 20) },
    { "interpolate", "8x56x56x64 to 112x112 nearest", "height=112 width=112 mode=nearest",
      MAPS(8, 56, 64, 20) },
    { "interpolate", "8x56x56x64 to 112x112 bicubic", "height=112 width=112 mode=bicubic",
      MAPS(8, 56, 64, 20) },
    { "roi_align", "512 of 2x64x64x256 to 7x7", "side=7", .apply = pool_regions,
      MOVES(4, 0, 256 * (2 * 64 * 64 + REGIONS * 7 * 7)), IN(X(2, 64, 64, 256)) },
    { "roi_align", "512 of 2x64x64x256 to 14x14", "side=14", .apply = pool_regions,
      MOVES(4, 0, 256 * (2 * 64 * 64 + REGIONS * 14 * 14)), IN(X(2, 64, 64, 256)) },

    { "lstm", "32x500x128 to 256", RNN(4, 32, 128, 256) },
    { "lstm", "8x500x512 to 512", RNN(4, 8, 512, 512) },
    { "lstm", "64x500x128 to 128", RNN(4, 64, 128, 128) },
    { "gru", "32x500x128 to 256", RNN(3, 32, 128, 256) },
    { "gru", "8x500x512 to 512", RNN(3, 8, 512, 512) },
    { "gru", "64x500x128 to 128", RNN(3, 64, 128, 128) },

    TWO(mul), TWO(add), TWO(div),
    { "maximum", "4096x512", MOVES(12, 20, ROWS), PAIR },
    { "pow", "4096x512", MOVES(12, 20, ROWS), IN(UNIT(4096, 512), X(4096, 512)) },
    { "gt", "4096x512", MADE(9, ROWS), PAIR },
    { "where", "4096x512, x > 0", .apply = where, MOVES(18, 17, ROWS), PAIR },
    { "sin", "4096x512", MOVES(8, 12, ROWS), IN(X(4096, 512)) },
    { "clamp", "256x512 in cache", "lo=-0.5 hi=0.5", MOVES(8, 12, 256 * 512), IN(X(256, 512)) },
    { "cast", "4096x512 to i64", "dt=i64", MADE(12, ROWS), IN(X(4096, 512)) },
    { "gelu", "4096x512", MOVES(8, 12, ROWS), IN(X(4096, 512)) },
    { "dropout_add", "4096x512", "p=0.2", MOVES(12, 8, ROWS),
      IN(X(4096, 512), NONE, X(4096, 512)) },
    { "glu", "4096x1024", "axis=-1", MOVES(12, 20, ROWS), IN(X(4096, 1024)) },
    { "rotary", "8x512x512 h8", "heads=8", MOVES(8, 8, ROWS), IN(X(8, 512, 512)) },

    { "softmax", "4096x512", MOVES(8, 12, ROWS), IN(X(4096, 512)) },
    SQUARE("prod", "axes", 4), SQUARE("var", "correction=1 axes", 4), SQUARE("norm", "p=2 axes", 4),
    { "argmin", "1024x1024", "axes=1", MADE(4, 1024 * 1024), IN(X(1024, 1024)) },
    { "argmin", "1024x1024 down", "axes=0", MADE(4, 1024 * 1024), IN(X(1024, 1024)) },
    SQUARE("cumsum", "axis", 8),
    { "cumsum", "64x16384", MATRIX(64, 16384, "axis=1", 8) },
    { "cumsum", "1x1048576", MATRIX(1, 1048576, "axis=1", 8) },
    SQUARE("cumprod", "axis", 8), SQUARE("sort", "axis", 16),
    { "sort", "64x16384", MATRIX(64, 16384, "axis=1", 16) },
    { "sort", "1x1048576", MATRIX(1, 1048576, "axis=1", 16) },
    { "argsort", "1024x1024", "axis=1", MADE(12, 1024 * 1024), IN(X(1024, 1024)) },
    { "argsort", "64x16384", "axis=1", MADE(12, 64 * 16384), IN(X(64, 16384)) },
    SQUARE("topk", "k=10 largest=1 axis", 4),
    { "topk", "64x16384", MATRIX(64, 16384, "k=10 largest=1 axis=1", 4) },
    { "topk", "1x1048576", MATRIX(1, 1048576, "k=10 largest=1 axis=1", 4) },
    CUBES("sum"), CUBES("mean"), CUBES("max"), CUBES("logsumexp"),

    { "embedding", "4096 of 208x512", "scale=1", MOVES(4, 4, ROWS),
      IN(X(208, 512), IDS(208, 4096)) },
    { "permute", "8x512x8x64 to 0213", "order=0,2,1,3", MOVES(8, 8, ROWS), IN(X(8, 512, 8, 64)) },
    { "flip", "2048x1024 last", "axes=-1", MOVES(8, 8, 2048 * 1024), IN(X(2048, 1024)) },
    { "flip", "8x56x56x64 columns", "axes=2", MOVES(8, 8, 8 * 56 * 56 * 64), IN(X(8, 56, 56, 64)) },
    { "pad_nd", "8x56x56x64 reflect 1", "before=0,1,1 after=0,1,1 mode=reflect",
      MOVES(4, 4, 8 * (56 * 56 + 58 * 58) * 64), IN(X(8, 56, 56, 64)) },
    { "pad_nd", "8x64x56x56 reflect 3", "before=0,0,3,3 after=0,0,3,3 mode=reflect",
      MOVES(4, 4, 512 * (56 * 56 + 62 * 62)), IN(X(8, 64, 56, 56)) },
    { "repeat", "1024x512 2x2", "times=2,2", MOVES(20, 20, 1024 * 512), IN(X(1024, 512)) },
    { "repeat_interleave", "1024x512 x4", "axis=1 times=4", MOVES(20, 20, 1024 * 512),
      IN(X(1024, 512)) },
    { "index_select", "64x512x64 middle", "axis=1", MOVES(8, 8, 64 * 512 * 64),
      IN(X(64, 512, 64), IDS(512, 512)) },
    { "index_select", "2048x1024 last", "axis=1", MOVES(8, 8, 2048 * 1024),
      IN(X(2048, 1024), IDS(1024, 1024)) },
    { "index_add", "64x512x64 middle", "axis=1", MOVES(16, 8, 64 * 512 * 64),
      IN(X(64, 512, 64), IDS(512, 512), X(64, 512, 64)) },
    { "index_add", "2048x1024 last", "axis=1", MOVES(16, 8, 2048 * 1024),
      IN(X(2048, 1024), IDS(1024, 1024), X(2048, 1024)) },
    { "segment_max", "65536x64 in 4096", "n=4096", MOVES(4, 4, 65536 * 64),
      IN(X(65536, 64), IDS(65536, 4096)) },
    { "segment_mean", "65536x64 in 4096", "n=4096", MOVES(4, 8, 65536 * 64),
      IN(X(65536, 64), IDS(65536, 4096)) },

    { "arange", "1M f32", "dt=f32 end=1048576 step=1", MADE(4, 1048576) },
    { "arange", "1M i64", "dt=i64 end=1048576 step=1", MADE(8, 1048576) },
    { "rand", "1M", "dt=f32 s=1048576", MADE(4, 1048576) },
    { "randn", "1M", "dt=f32 s=1048576", MADE(4, 1048576) },
    { "tril", "1024x1024", MOVES(8, 8, 1048576), IN(X(1024, 1024)) },

    { "adamw", "4M elements", UPDATE(28, 4194304, 4194304) },
    { "rmsprop", "4M elements", UPDATE(20, 4194304, 4194304) },
    { "adagrad", "4M elements", UPDATE(20, 4194304, 4194304) },
    { "lion", "4M elements", UPDATE(20, 4194304, 4194304) },
    { "lamb", "4M elements", UPDATE(40, 4194304, 4194304) },
    { "adafactor", "2048x2048", UPDATE(24, 2048 * 2048, 2048, 2048) },
    { 0 },
};

/* ---- on a GPU ---- */

/* BY divides batches, rows and texts under the same names: 1, or more to try the program. */
#define BATCH(B, BY) ((B) > (BY) ? (B) / (BY) : 1)
#define TOKENS(BY)   (65536 / (BY))
#define SIDE(BY)     (8192 / (BY))
#define LONG(BY)     (134217728 / (BY) / (BY))
#define TALL(BY)     X(TOKENS(BY), 512)
#define ON_GPU(BY) \
    { "matmul", "8192x8192x8192", .mflop = 2e-6 * SIDE(BY) * SIDE(BY) * SIDE(BY), \
      IN(X(SIDE(BY), SIDE(BY)), X(SIDE(BY), SIDE(BY))) }, \
    { "copy", "y = 2x, 128M elements", "k=2", .call = "scale", MOVES(8, 8, LONG(BY)), \
      IN(X(LONG(BY))) }, \
    { "linear", "65536x512->512", LINEAR(TOKENS(BY), 512, 512) }, \
    { "linear", "65536x2048->512", LINEAR(TOKENS(BY), 2048, 512) }, \
    { "linear_gelu", "65536x512->2048", "act=gelu", .call = "linear", \
      LINEAR(TOKENS(BY), 512, 2048) }, \
    { "mul", "65536x512", MOVES(12, 20, TOKENS(BY) * 512), IN(TALL(BY), TALL(BY)) }, \
    { "gelu", "65536x512", MOVES(8, 12, TOKENS(BY) * 512), IN(TALL(BY)) }, \
    { "softmax", "65536x512", MOVES(8, 12, TOKENS(BY) * 512), IN(TALL(BY)) }, \
    { "layernorm", "65536x512", "eps=1e-5", MOVES(8, 12, TOKENS(BY) * 512), \
      IN(TALL(BY), WIDE(512), WIDE(512)) }, \
    { "dropout_add", "65536x512", "p=0.2", MOVES(12, 8, TOKENS(BY) * 512), \
      IN(TALL(BY), NONE, TALL(BY)) }, \
    { "cross_entropy", "65536x208", MOVES(4, 0, TOKENS(BY) * 208), \
      IN(X(TOKENS(BY), 208), IDS(208, TOKENS(BY))) }, \
    { "cross_entropy", "8192x50265", MOVES(4, 0, SIDE(BY) * 50265), \
      IN(X(SIDE(BY), 50265), IDS(50265, SIDE(BY))) }, \
    { "embedding", "65536 of 208x512", "scale=1", MOVES(4, 4, TOKENS(BY) * 512), \
      IN(X(208, 512), IDS(208, TOKENS(BY))) }, \
    { "permute", "8x8192x8x64 to 0213", "order=0,2,1,3", MOVES(8, 8, TOKENS(BY) * 512), \
      IN(X(8, SIDE(BY), 8, 64)) }, \
    { "chunk_project", "8x8192x512 l16 r1", "heads=8 chunk=16 rank=1", \
      MOVES(4, 0, TOKENS(BY) * 512), \
      IN(X(8, SIDE(BY), 512), X(8, SIDE(BY), 8)) }, \
    { "depthwise_conv2d", "64x56x56x96 k3", "pad=1,1", DEPTHWISE(BATCH(64, BY), 56, 96, 8, 12) }, \
    { "conv2d", "64x56x56x64 k3", CONV(BATCH(64, BY), 56, 64) }, \
    { "conv2d", "64x14x14x256 k3", CONV(BATCH(64, BY), 14, 256) }, \
    { "adamw", "64M elements", UPDATE(28, LONG(BY) / 2, LONG(BY) / 2) }, \
    { "ls_attention", "1x2048+2048 d512 h8 w512 l16 r1", LS(1, 2048 / BY) }, \
    { "ls_attention", "8x2048+2048 d512 h8 w512 l16 r1", LS(BATCH(8, BY), 2048 / BY) }, \
    { "ls_attention", "1x8192+8192 d512 h8 w512 l16 r1", LS(1, SIDE(BY)) }, \
    { "ls_attention", "8x8192+8192 d512 h8 w512 l16 r1", LS(BATCH(8, BY), SIDE(BY)) }, \
    { "attention", "8x4096 d512 h8", ATTENTION(BATCH(8, BY), 4096 / BY, 1.0, "") }, \
    { "attention", "8x4096 d512 h8 causal", \
      ATTENTION(BATCH(8, BY), 4096 / BY, 4097.0 / 8192.0, " causal=1") }, \
    { 0 }

const op_case op_cases_cuda[] = { ON_GPU(1) }, op_cases_smoke[] = { ON_GPU(64) };
/* clang-format on */
