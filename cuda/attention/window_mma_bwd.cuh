/* window_mma_bwd.cuh - common to the gradient kernels of attention over maps on tensor cores. */
#ifndef TP_WINDOW_MMA_BWD_CUH
#define TP_WINDOW_MMA_BWD_CUH

#include "cuda/attention/window_mma.cuh"

constexpr int WIN_MMA_STEP = 32, WIN_MMA_STEP_N = WIN_MMA_STEP / 8; /* columns of a step */

/* The log-sum-exp (base 2) and delta of a query's cell. Hidden queries and those without a cell get
 * zero probabilities. */
static __device__ inline float2 win_mma_of_query(const win_mma &p, int b, int h, int cell)
{
    float2 v = { INFINITY, 0.0f };
    if (cell >= 0 && win_mma_shown(p, b, cell)) {
        const int64_t at = (b * p.g.heads + h) * p.g.cells + cell;
        v.x = ATTN_MMA_LOG2E * p.lse[at];
        v.y = p.delta[at];
    }
    return v;
}

/* Turns logits s into dS and dp = dO V^T into the probabilities, unscaled and zero where dropped.
 * of(n, e) returns both values of a query. */
template <bool DROP, int N, class F, class DROPPED>
static __device__ inline void win_mma_gradients(const win_mma &p, float s[N][4], float dp[N][4],
                                                F of, const DROPPED &dropped)
{
    const float c = p.scale * ATTN_MMA_LOG2E;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float2 row = of(n, e);
            const float probability = tp_exp2(c * s[n][e] - row.x);
            const bool drop = DROP && dropped.at(n, e);
            const float keep = drop ? 0.0f : p.drop.scale;
            s[n][e] = probability * (DROP ? keep * dp[n][e] - row.y : dp[n][e] - row.y);
            dp[n][e] = drop ? 0.0f : probability;
        }
}

/* Sixteen rows of a tile as A operands, in registers up to 64 columns, else reloaded. */
template <int COLS> struct win_mma_held {
    static constexpr bool kept = COLS <= 64;
    uint32_t a[kept ? COLS / 16 : 1][4];
    const bf16 *tile;
    int row;
    __device__ win_mma_held(const bf16 *from, int first) : tile(from), row(first) {}
    /* Once the tile is there. */
    __device__ void take()
    {
#pragma unroll
        for (int k = 0; kept && k < COLS / 16; k++) tp_frag_a<COLS>(a[k], tile, row, k);
    }
    /* s += these rows times 8 N rows of another tile. */
    template <int N> __device__ void add_products(float s[N][4], const bf16 *other) const
    {
        if constexpr (kept) {
            attn_mma_products<COLS, N>(s, a, other);
        } else {
#pragma unroll 2
            for (int k = 0; k < COLS / 16; k++) {
                uint32_t now[4];
                tp_frag_a<COLS>(now, tile, row, k);
                attn_mma_product<COLS, N>(s, now, other, k);
            }
        }
    }
};

/* The heads' slices of q (from the map's first token) and dO. */
static __device__ inline win_mma_source win_mma_queries_of(const win_mma &p, int b, int h)
{
    return { p.q + (b * p.g.tokens + p.g.global) * p.g.width + h * p.g.dim,
             p.dout + b * p.g.cells * p.g.width + h * p.g.dim, NULL, NULL };
}

#endif
