/* skew.cuh - skews mma accumulators: shifts row i by i columns. This turns products with a table of
 * distances into logits of keys (Transformer-XL's relative shift), and back, in registers.
 *
 *     tp_skew     S[i][c] = G[i][c - i]        tp_unskew     G[i][u] = S[i][u + i]
 *     tp_skew_columns     S[i][c] = G[c - i][c]
 *
 * for rows i of 0 .. 7, over blocks of 8 columns. A row is in the four lanes of a quad, two columns
 * per lane, and its shift is lane / 4: one shuffle and two selects per value. tp_skew_columns moves
 * values along columns, with one select. Rows 8 .. 15 of an accumulator, its second half, move by
 * one more block: the caller passes other blocks. */
#ifndef TP_SKEW_CUH
#define TP_SKEW_CUH

#include "cuda/kit/kernel.cuh"

/* out = block b of S, from x = block b of G and y = block b - 1. */
static __device__ inline void tp_skew(float out[2], const float x[2], const float y[2])
{
    const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    const float v0 = 2 * q + g < 8 ? x[0] : y[0], v1 = 2 * q + 1 + g < 8 ? x[1] : y[1];
    const int first = lane - q + (q - (g + g % 2) / 2 + 4) % 4;
    const int second = lane - q + (q - (g - g % 2) / 2 + 4) % 4;
    out[0] = __shfl_sync(0xffffffffu, g % 2 ? v1 : v0, first);
    out[1] = __shfl_sync(0xffffffffu, g % 2 ? v0 : v1, second);
}

/* out = block b of G, from x = block b of S and y = block b + 1. */
static __device__ inline void tp_unskew(float out[2], const float x[2], const float y[2])
{
    const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    const float v0 = 2 * q >= g ? x[0] : y[0], v1 = 2 * q + 1 >= g ? x[1] : y[1];
    const int first = lane - q + (q + (g - g % 2) / 2) % 4;
    const int second = lane - q + (q + (g + g % 2) / 2) % 4;
    out[0] = __shfl_sync(0xffffffffu, g % 2 ? v1 : v0, first);
    out[1] = __shfl_sync(0xffffffffu, g % 2 ? v0 : v1, second);
}

/* out = rows 0 .. 7 of S, from x = rows 0 .. 7 of G and y = the eight before. */
static __device__ inline void tp_skew_columns(float out[2], const float x[2], const float y[2])
{
    const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
#pragma unroll
    for (int e = 0; e < 2; e++) {
        const int c = 2 * q + e;
        out[e] = __shfl_sync(0xffffffffu, g <= c ? x[e] : y[e], ((c - g) & 7) * 4 + q);
    }
}

/* Skews 16 new columns: g has the two blocks of G after the kept ones; s gets two blocks of S. */
template <int MT>
static __device__ inline void tp_skew_step(float s[MT][2][4], float kept[MT][2 * MT][4],
                                           float g[MT][2][4])
{
#pragma unroll
    for (int m = 0; m < MT; m++) {
        float all[2 * MT + 2][4]; /* block m's rows are 16 m further down: 2 m blocks back */
#pragma unroll
        for (int b = 0; b < 2 * MT + 2; b++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                all[b][i] = b < 2 * MT ? kept[m][b][i] : g[m][b - 2 * MT][i];
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const int b = 2 * MT + n - 2 * m;
            tp_skew(s[m][n], all[b], all[b - 1]);
            tp_skew(s[m][n] + 2, all[b - 1] + 2, all[b - 2] + 2);
        }
#pragma unroll
        for (int b = 0; b < 2 * MT; b++)
#pragma unroll
            for (int i = 0; i < 4; i++) kept[m][b][i] = all[b + 2][i];
    }
}

#endif
