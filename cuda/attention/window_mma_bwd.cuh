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

/* Turns logits s into dS and dp = dO V^T into the probabilities. of(n, e) returns both values of a
 * query. */
template <int N, class F>
static __device__ inline void win_mma_gradients(const win_mma &p, float s[N][4], float dp[N][4],
                                                F of)
{
    const float c = p.scale * ATTN_MMA_LOG2E;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float2 row = of(n, e);
            const float probability = tp_exp2(c * s[n][e] - row.x);
            s[n][e] = probability * (dp[n][e] - row.y);
            dp[n][e] = probability;
        }
}

/* Sixteen rows of a tile as A operands. */
template <int COLS>
static __device__ inline void win_mma_hold(uint32_t a[COLS / 16][4], const bf16 *tile, int row)
{
#pragma unroll
    for (int k = 0; k < COLS / 16; k++) tp_frag_a<COLS>(a[k], tile, row, k);
}

/* The heads' slices of q (from the map's first token) and dO. */
static __device__ inline win_mma_source win_mma_queries_of(const win_mma &p, int b, int h)
{
    return { p.q + (b * p.g.tokens + p.g.global) * p.g.width + h * p.g.dim,
             p.dout + b * p.g.cells * p.g.width + h * p.g.dim, NULL, NULL };
}

#endif
