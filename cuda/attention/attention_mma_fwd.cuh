/* attention_mma_fwd.cuh - common to the forward kernels of full and relative attention on tensor
 * cores: the state of a warp's queries, from logits to results. */
#ifndef TP_ATTENTION_MMA_FWD_CUH
#define TP_ATTENTION_MMA_FWD_CUH

#include "cuda/attention/attention_mma.cuh"

constexpr int ATTN_MMA_N = ATTN_MMA_STEP / 8;

/* Turns logits of 16 rows into unnormalised probabilities; top: unscaled maxima. */
template <int COLS, int N>
static __device__ inline void attn_mma_fold(float s[N][4], float o[COLS / 8][4], float top[2],
                                            float sum[2], float c)
{
    bool moved = false;
    float next[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float local = top[half];
#pragma unroll
        for (int n = 0; n < N; n++) local = fmaxf(local, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
        next[half] = tp_quad<tp_max_of>(local);
        moved = moved || next[half] > top[half];
    }
    if (__any_sync(0xffffffffu, moved)) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float fade = tp_exp2(c * (top[half] - next[half]));
            top[half] = next[half];
            sum[half] *= fade;
#pragma unroll
            for (int n = 0; n < COLS / 8; n++) {
                o[n][2 * half] *= fade;
                o[n][2 * half + 1] *= fade;
            }
        }
    }
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            s[n][e] = tp_exp2(c * s[n][e] - c * top[e / 2]);
            sum[e / 2] += s[n][e];
        }
}

/* The state of the 16 * ROWS queries of a warp. */
template <int COLS, int ROWS> struct attn_mma_queries {
    uint32_t q[ROWS][COLS / 16][4];
    float o[ROWS][COLS / 8][4], top[ROWS][2], sum[ROWS][2];
    __device__ void clear()
    {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            attn_mma_clear<COLS / 8>(o[r]);
            top[r][0] = top[r][1] = -1e30f; /* finite: a step may mask every key */
            sum[r][0] = sum[r][1] = 0.0f;
        }
    }
};

/* Completes a step from its logits s: queries from i, keys from j. edge: pairs may be masked. */
template <int COLS, int ROWS, bool BIASED, bool PACKED = false>
static __device__ inline void attn_mma_values(const attn<bf16> &p, const attn_mma_block &at,
                                              attn_mma_queries<COLS, ROWS> &w,
                                              float s[ROWS][ATTN_MMA_N][4], int i, int j, bool edge,
                                              const bf16 *values)
{
    constexpr int BITS = 4 * ATTN_MMA_N; /* of 16 rows */
    static_assert(ROWS * BITS <= 32, "a bit for each element");
    const int lane = (int)threadIdx.x % 32, row = i + lane / 4, column = j + lane % 4 * 2;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (edge)
            attn_mma_mask<false, ATTN_MMA_N, false, BIASED>(p, at, row + 16 * r, column, s[r]);
        attn_mma_fold<COLS, ATTN_MMA_N>(s[r], w.o[r], w.top[r], w.sum[r], p.scale * ATTN_MMA_LOG2E);
    }
    uint32_t dropped = 0;
    if (p.drop_below)
#pragma unroll 1
        for (int r = 0; r < ROWS; r++)
            dropped |=
                attn_mma_dropped<false, ATTN_MMA_N, false, PACKED>(p, at, row + 16 * r, column)
                << (BITS * r);
#pragma unroll
    for (int r = 0; r < ROWS; r++) attn_mma_drop<ATTN_MMA_N>(p, s[r], dropped >> (BITS * r));
#pragma unroll
    for (int k = 0; k < ATTN_MMA_N / 2; k++) {
        uint32_t a[ROWS][4];
#pragma unroll
        for (int r = 0; r < ROWS; r++) tp_frag_of(a[r], s[r][2 * k], s[r][2 * k + 1]);
#pragma unroll
        for (int n = 0; n < COLS / 16; n++) {
            uint32_t b[4];
            tp_frag_bt<COLS>(b, values, 16 * k, n);
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                tp_mma_bf16(w.o[r][2 * n], a[r], b, w.o[r][2 * n]);
                tp_mma_bf16(w.o[r][2 * n + 1], a[r], b + 2, w.o[r][2 * n + 1]);
            }
        }
    }
}

template <int COLS, int ROWS>
static __device__ inline void attn_mma_finish(const attn<bf16> &p, const attn_mma_block &at,
                                              const attn_mma_queries<COLS, ROWS> &w, int i)
{
    const int lane = (int)threadIdx.x % 32;
    const attn_sink<bf16> out = { p.out, false };
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float k[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = i + 16 * r + lane / 4 + 8 * half;
            const float sum = tp_quad<tp_sum_of>(w.sum[r][half]);
            k[half] = sum == 0.0f ? 0.0f : 1.0f / sum;
            if (row < p.queries && lane % 4 == 0)
                p.lse[attn_row(p, at.b, at.h, row)] =
                    sum == 0.0f ? 0.0f : p.scale * w.top[r][half] + logf(sum);
        }
        attn_mma_store<COLS>(p, out, at, p.queries, p.width, i + 16 * r, k, w.o[r]);
    }
}

#endif
