/* op_cases_attention.c - cases of bench_ops: attention and what belongs to it. */
#include "op_cases.h"

static tp_tensor chunk_project_kv(tp_tape *T, const tp_tensor *x, const op_case *k)
{
    const tp_kv y = tp_chunk_project_kv(T, x[0], x[1], x[2], TP_NONE, 2, 4096, 32);
    (void)k;
    return tp_concat(T, 1, y.k, y.v);
}

/* Where 32 documents begin that are as long, in words, as film reviews: the quantiles of a log-normal
 * distribution of median 175. */
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
    const tp_window_in in = { .q = x[0],
                              .k = x[1],
                              .v = x[2],
                              .low_k = x[3],
                              .low_v = x[4],
                              .offset = of_reviews(T).offset };
    const tp_window_attn_cfg cfg = {
        .heads = 2, .height = 1, .width = LONGEST_REVIEW, .window = { 1, 8 }, .halo = { 0, 4 }
    };
    (void)k;
    return tp_window_attention_2d(T, in, cfg);
}

/* clang-format off */
/* N tokens after a cache of N, width 512, 8 heads, window 512, chunks of 16, rank 1. That is
 * 3 N w d MACs for the window and 3 N n d for the n vectors that a query sees on average. */
#define LS_CASE(N) \
    op_named, .args = "heads=8 chunk=16 rank=1 window=512", \
    .mflop = 6e-6 * N * 512.0 * (512.0 + N / 16.0 + (N / 16.0 - 1.0) / 2.0), \
    .in = { \
        { { 3, { 1, N, 512 } }, 0 },       { { 3, { 1, 512 + N, 512 } }, 0 }, \
        { { 3, { 1, 512 + N, 512 } }, 0 }, { { 3, { 1, N / 8, 512 } }, 0 }, \
        { { 3, { 1, N / 8, 512 } }, 0 },   { { 2, { 512, 512 } }, 0 }, \
        { { 2, { N / 8, 512 } }, 0 },      { { 2, { 8, 64 } }, 0 }, \
        { { 2, { 8, 64 } }, 0 }, \
    }

/* N tokens from the start of a text: no cache, so that the last query sees N / 16 vectors. */
#define LS_CONTEXT(N) \
    op_named, .args = "heads=8 chunk=16 rank=1 window=512 masked=1", .tokens = N, \
    .mflop = 6e-6 * 512.0 * (N * 512.0 - 512.0 * 511.0 / 2.0 + N * (N / 16.0 - 1.0) / 2.0), \
    .in = { \
        { { 3, { 1, N, 512 } }, 0 },      { { 3, { 1, N, 512 } }, 0 }, \
        { { 3, { 1, N, 512 } }, 0 },      { { 3, { 1, N / 16, 512 } }, 0 }, \
        { { 3, { 1, N / 16, 512 } }, 0 }, { { 2, { 512, 512 } }, 0 }, \
        { { 2, { N / 16, 512 } }, 0 },    { { 2, { 8, 64 } }, 0 }, \
        { { 2, { 8, 64 } }, 0 }, \
    }

/* N tokens, 8 heads of 64; each token sees the fraction SHARE of all. */
#define ATTENTION_CASE(N, SHARE, ARGS) \
    op_named, .args = "heads=8" ARGS, .mflop = 4e-6 * N * 512.0 * N * (SHARE), \
    .in = { { { 3, { 1, N, 512 } }, 0 }, \
            { { 3, { 1, N, 512 } }, 0 }, \
            { { 3, { 1, N, 512 } }, 0 } }

/* The same with positions, without a memory. They cost a third product. */
#define RELATIVE_CASE(N) \
    op_named, .args = "heads=8", .mflop = 3e-6 * N * 512.0 * (N + 1.0), \
    .in = { \
        { { 3, { 1, N, 512 } }, 0 }, { { 3, { 1, N, 512 } }, 0 }, { { 3, { 1, N, 512 } }, 0 }, \
        { { 2, { N, 512 } }, 0 },    { { 2, { 8, 64 } }, 0 },     { { 2, { 8, 64 } }, 0 }, \
    }

/* B maps of S x S cells, width 32 H. ViL: chunks of 7 x 7 that see KEYS cells on average, one global
 * token; ViL-LS: 8 low-rank keys and 13 x 13 cells; LSLA: windows of 7 x 7. */
#define MAP_QKV(B, N, H) \
    { { 3, { B, N, 32 * H } }, 0 }, { { 3, { B, N, 32 * H } }, 0 }, \
    { \
        { 3, { B, N, 32 * H } }, 0 \
    }
#define WINDOWS(H, HEIGHT, WIDTH, ARGS) \
    op_named, .call = "window_attention_2d", .args = "heads=" #H " height=" #HEIGHT " width=" #WIDTH " " ARGS
#define VIL_CASE(B, S, H, KEYS) \
    WINDOWS(H, S, S, "global=1 window=7,7 halo=7,7"), .mflop = 4e-6 * B * S * S * 32.0 * H * (KEYS + 1), \
    .in = { MAP_QKV(B, S * S + 1, H), { { 0 }, 0 }, { { 0 }, 0 }, { { 2, { 729, H } }, 0 } }
#define VIL_LS_CASE(B, S, H, KEYS) \
    WINDOWS(H, S, S, "global=1 window=7,7 halo=3,3 reach=9,9 stride=13"), \
    .mflop = 4e-6 * B * S * S * 32.0 * H * (KEYS + 9), \
    .in = { MAP_QKV(B, S * S + 1, H), { { 3, { B, 8, 32 * H } }, 0 }, { { 3, { B, 8, 32 * H } }, 0 }, \
            { { 2, { 253, H } }, 0 } }
/* Long-short attention of an encoder: B sequences of N tokens, 2 heads of 32, segments of W tokens that
 * see HALF = W / 2 to either side, R low keys. */
#define SEQUENCE_CASE(B, N, W, HALF, R) \
    WINDOWS(2, 1, N, "window=1," #W " halo=0," #HALF), \
    .mflop = 4e-6 * B * N * 64.0 * (2.0 * W + R - W * W / (double)N), \
    .in = { MAP_QKV(B, N, 2), { { 3, { B, R, 64 } }, 0 }, { { 3, { B, R, 64 } }, 0 } }
/* Longformer: N tokens, H heads of 64, in chunks of W tokens; a query sees exactly W keys to either side. */
#define BAND_CASE(N, H, W) \
    WINDOWS(H, 1, N, "window=1," #W " halo=0," #W " edge=exact"), \
    .mflop = 4e-6 * N * 64.0 * H * (2.0 * W + 1 - W * (W + 1.0) / N), \
    .in = { { { 3, { 1, N, 64 * H } }, 0 }, { { 3, { 1, N, 64 * H } }, 0 }, { { 3, { 1, N, 64 * H } }, 0 } }
/* Rows of the reviews, three tensors of 2 heads of 32. */
#define REVIEW_QKV \
    { { 2, { REVIEW_ROWS, 64 } }, 0 }, { { 2, { REVIEW_ROWS, 64 } }, 0 }, \
    { \
        { 2, { REVIEW_ROWS, 64 } }, 0 \
    }
#define LSLA_CASE(B, S, H) \
    op_named, .args = "heads=" #H " height=" #S " width=" #S " window=7 shift=3", \
    .mflop = 4e-6 * B * S * S * 32.0 * H * 49, \
    .in = { MAP_QKV(B, S * S, H), { { 2, { 49, 49 } }, 0 }, { { 2, { 169, H } }, 0 }, { { 2, { 169, H } }, 0 } }

const op_case op_cases_attention[] = {
    { "chunk_project", "2048x512 l16 r1", op_named, .args = "heads=8 chunk=16 rank=1", .mbyte = 4e-6 * 2048 * 512,
      .in = { { { 3, { 1, 2048, 512 } }, 0 }, { { 3, { 1, 2048, 8 } }, 0 } } },
    { "chunk_project", "4x3136x64 l3136 r64", op_named, .args = "heads=1 chunk=3136 rank=64", .mflop = 2e-6 * 4 * 3136 * 64 * 64,
      .in = { { { 3, { 4, 3136, 64 } }, 0 }, { { 3, { 4, 3136, 64 } }, 0 } } },
    { "chunk_project_kv", "4x4096x64 l4096 h2 r32", chunk_project_kv,
      .mflop = 4e-6 * 4 * 4096 * 64 * 32,
      .in = { { { 3, { 4, 4096, 64 } }, 0 }, { { 3, { 4, 4096, 64 } }, 0 }, { { 3, { 4, 4096, 64 } }, 0 } } },
    { "ls_attention", "2048+2048 d512 h8 w512 l16 r1", LS_CASE(2048) },
    { "ls_attention", "8192+8192 d512 h8 w512 l16 r1", LS_CASE(8192) },
    { "ls_attention", "2K tokens", LS_CONTEXT(2048) },
    { "ls_attention", "4K tokens", LS_CONTEXT(4096) },
    { "ls_attention", "8K tokens", LS_CONTEXT(8192) },
    { "ls_attention", "16K tokens", LS_CONTEXT(16384) },
    { "ls_attention", "32K tokens", LS_CONTEXT(32768) },
    { "ls_attention", "64K tokens", LS_CONTEXT(65536) },
    { "attention", "4096 d512 h8", ATTENTION_CASE(4096, 1.0, "") },
    { "attention", "2048 d512 h8 causal ALiBi", ATTENTION_CASE(2048, 2049.0 / 4096.0, " causal=1 alibi=1") },
    { "attention", "2048 d512 h8/2 causal", op_named, .args = "heads=8 kv_heads=2 causal=1",
      .mflop = 4e-6 * 2048 * 512.0 * 2048 * 2049.0 / 4096.0,
      .in = { { { 3, { 1, 2048, 512 } }, 0 }, { { 3, { 1, 2048, 128 } }, 0 }, { { 3, { 1, 2048, 128 } }, 0 } } },
    { "attention", "4096 d512 h8 causal", ATTENTION_CASE(4096, 4097.0 / 8192.0, " causal=1") },
    { "rel_attention", "4096 d512 h8", RELATIVE_CASE(4096) },
    { "attention", "4x4096 d64 h2", op_named, .args = "heads=2",
      .mflop = 4e-6 * 4 * 4096.0 * 4096 * 64,
      .in = { { { 3, { 4, 4096, 64 } }, 0 }, { { 3, { 4, 4096, 64 } }, 0 }, { { 3, { 4, 4096, 64 } }, 0 } } },
    { "window_attention", "ViL 8x56x56 h3", VIL_CASE(8, 56, 3, 19.25 * 19.25) },
    { "window_attention", "ViL-LS 8x56x56 h3", VIL_LS_CASE(8, 56, 3, 12.25 * 12.25) },
    { "window_attention", "4x4096 d64 h2 w8 r32", SEQUENCE_CASE(4, 4096, 8, 4, 32) },
    { "window_attention", "Longformer 2048 d768 h12", BAND_CASE(2048, 12, 256) },
    { "packed_attention", "32 reviews d64 h2", packed_attention,
      .mflop = 4e-6 * 64 * 2115840, .in = { REVIEW_QKV } },
    { "packed_window_attention", "32 reviews d64 h2 w8 r32", packed_windows,
      .mflop = 4e-6 * REVIEW_ROWS * 64.0 * (16.0 + 32.0),
      .in = { REVIEW_QKV, { { 3, { REVIEWS, 32, 64 } }, 0 }, { { 3, { REVIEWS, 32, 64 } }, 0 } } },
    { "window_attention", "ViL map of 56x56", VIL_CASE(1, 56, 3, 19.25 * 19.25), .tokens = 3137 },
    { "window_attention", "ViL map of 112x112", VIL_CASE(1, 112, 3, 20.125 * 20.125), .tokens = 12545 },
    { "window_attention", "ViL map of 224x224", VIL_CASE(1, 224, 3, 20.5625 * 20.5625), .tokens = 50177 },
    { "window_attention", "ViL map of 448x448", VIL_CASE(1, 448, 3, 20.78125 * 20.78125), .tokens = 200705 },
    { "lsh_attention", "4096 d512 h8 c64 r2", op_named, .args = "heads=8", .fixed = 1 << 2, .f32 = 1 << 2,
      .mflop = 4e-6 * 4096 * 512 * (2 * 128 + 64),
      .in = { { { 3, { 1, 4096, 512 } }, 0 }, { { 3, { 1, 4096, 512 } }, 0 }, { { 4, { 8, 64, 2, 64 } }, 0 } } },
    { "linear_attention", "4096 d512 h8", op_named, .args = "heads=8", .mflop = 4e-6 * 4096 * 512 * 64,
      .in = { { { 3, { 1, 4096, 512 } }, 0 }, { { 3, { 1, 4096, 512 } }, 0 }, { { 3, { 1, 4096, 512 } }, 0 } } },
    { "linear_attention", "4096 d512 h8 m256", op_named, .args = "heads=8 features=positive", .fixed = 1 << 3, .f32 = 1 << 3,
      .mflop = 8e-6 * 4096 * 512 * 256,
      .in = { { { 3, { 1, 4096, 512 } }, 0 }, { { 3, { 1, 4096, 512 } }, 0 }, { { 3, { 1, 4096, 512 } }, 0 },
              { { 2, { 256, 64 } }, 0 } } },
    { "lsla_attention", "8x56x56 h3", LSLA_CASE(8, 56, 3) },
    { 0 },
};
/* clang-format on */
