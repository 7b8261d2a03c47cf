/* attention_mma_bwd.cuh - common to the gradient kernels of full and relative attention on tensor
 * cores: rows held by a warp, steps of two tiles, from logits to gradients. */
#ifndef TP_ATTENTION_MMA_BWD_CUH
#define TP_ATTENTION_MMA_BWD_CUH

#include "cuda/attention/attention_mma.cuh"

constexpr int ATTN_MMA_ROWS = 16 * ATTN_MMA_WARPS; /* of a block */
/* Columns of a step, and blocks of 8 columns in it. */
template <int COLS> constexpr int ATTN_MMA_STEPS = COLS == 128 ? 16 : 32;
template <int COLS> constexpr int ATTN_MMA_BLOCKS = ATTN_MMA_STEPS<COLS> / 8;

/* Sixteen rows of a tile as A operands, in registers up to 64 columns, else reloaded. */
template <int COLS> struct attn_mma_held {
    static constexpr bool kept = COLS <= 64;
    static constexpr int N = ATTN_MMA_BLOCKS<COLS>;
    uint32_t a[kept ? COLS / 16 : 1][4];
    const bf16 *tile;
    __device__ void take(const bf16 *from)
    {
        tile = from;
#pragma unroll
        for (int k = 0; kept && k < COLS / 16; k++) tp_frag_a<COLS>(a[k], from, 0, k);
    }
    __device__ void operand(uint32_t now[4], int k) const
    {
        if constexpr (kept)
            for (int x = 0; x < 4; x++) now[x] = a[k][x];
        else
            tp_frag_a<COLS>(now, tile, 0, k);
    }
    /* s = these rows times the rows of another tile. UNROLL: smaller if registers are scarce. */
    template <int UNROLL = COLS / 16> __device__ void scores(float s[N][4], const bf16 *other) const
    {
        attn_mma_clear<N>(s);
#pragma unroll UNROLL
        for (int k = 0; k < COLS / 16; k++) {
            uint32_t now[4];
            operand(now, k);
#pragma unroll
            for (int n = 0; n < N; n += 2) {
                uint32_t b[4];
                tp_frag_b<COLS>(b, other, 8 * n, k);
                tp_mma_bf16(s[n], now, b, s[n]);
                tp_mma_bf16(s[n + 1], now, b + 2, s[n + 1]);
            }
        }
    }
};

/* Turns logits s into dS and dp = dO V^T into the probabilities after dropout. of(n, e) returns the
 * log-sum-exp (base 2) and delta of the element's query. */
template <int N, class F>
static __device__ inline void attn_mma_gradients(const attn<bf16> &p, uint32_t dropped,
                                                 float s[N][4], float dp[N][4], F of)
{
    const float c = p.scale * ATTN_MMA_LOG2E;
    attn_mma_drop<N>(p, dp, dropped);
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float2 row = of(n, e); /* lse, delta */
            const float probability = tp_exp2(c * s[n][e] - row.x);
            s[n][e] = probability * (dp[n][e] - row.y);
            dp[n][e] = probability;
        }
    attn_mma_drop<N>(p, dp, dropped);
}

/* Double buffer: two steps of two tiles, one copied while the other is used. */
template <int COLS> struct attn_mma_ring {
    static constexpr int TILE = ATTN_MMA_STEPS<COLS> * COLS;
    bf16 *now, *other;
    __device__ void fetch(bf16 *to, const attn<bf16> &p, const bf16 *x, const bf16 *y, int first,
                          int count, int width) const
    {
        tp_tile_copy<COLS, ATTN_MMA_STEPS<COLS>, ATTN_MMA_THREADS>(to, x, first, count, p.dim,
                                                                   width);
        tp_tile_copy<COLS, ATTN_MMA_STEPS<COLS>, ATTN_MMA_THREADS>(to + TILE, y, first, count,
                                                                   p.dim, width);
    }
    __device__ void turn()
    {
        bf16 *const swap = now;
        now = other;
        other = swap;
    }
};

/* Log-sum-exp (base 2) and delta of the queries of a step: thread t has those of query i + t. */
template <int STEPS>
static __device__ inline float2 attn_mma_row_values(const attn<bf16> &p, const attn_mma_block &at,
                                                    int i)
{
    const int row = i + (int)threadIdx.x;
    float2 v = { 0.0f, 0.0f };
    if (threadIdx.x < STEPS && row < p.queries) {
        const int64_t r = attn_row(p, at.b, at.h, row);
        v.x = p.lse[r] * ATTN_MMA_LOG2E;
        v.y = p.delta[r];
    }
    return v;
}

#endif
