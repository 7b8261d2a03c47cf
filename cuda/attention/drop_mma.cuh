/* drop_mma.cuh - which elements of tensor core accumulators dropout drops. The lanes of a warp draw
 * the random blocks of four adjacent elements once and exchange the bits; all must take part.
 *
 * Lane 4 g + q holds elements (g, 2 q), (g, 2 q + 1), (g + 8, 2 q) and (g + 8, 2 q + 1) of each
 * tile of 16 x 8. The result's bit 4 n + e belongs to element e of tile n; other bits are 0. Where
 * the first element of a row is not the first of its block, the row reaches into one more block.
 *
 * For 16 x 32 elements a lane draws 4 blocks of about 55 instructions, most of them for the integer
 * units, which unrolling would not relieve. Dropout as a whole takes 360 (by columns: 410)
 * instructions. */
#ifndef TP_DROP_MMA_CUH
#define TP_DROP_MMA_CUH

#include "cuda/kit/mask.cuh"

/* Bit 4 n for each of N <= 8 tiles. */
template <int N> constexpr uint32_t DROP_MMA_TILES = 0x11111111u >> (32 - 4 * N);

/* Bit k: element 4 block + k is dropped. */
static __device__ inline uint32_t drop_mma_block(const tp_mask &m, int64_t block)
{
    const tp_philox p = tp_random_block(m.random, (uint64_t)block);
    uint32_t bits = 0;
    for (int k = 0; k < 4; k++) bits |= (uint32_t)(p.w[k] < m.below) << k;
    return bits;
}

/* Random elements follow rows, of which `columns` <= 8 N are used. first: the elements in column 0
 * of the lane's rows g and g + 8. Draws N blocks per lane, one more if a row reaches past 2 N. */
template <int N>
static __device__ inline uint32_t drop_mma_rows(const tp_mask &m, const int64_t first[2],
                                                int columns)
{
    const int lane = (int)threadIdx.x % 32, q = lane % 4;
    const int64_t block = ((q % 2 ? first[1] : first[0]) >> 2) + q / 2;
    const int start[2] = { (int)first[0] & 3, (int)first[1] & 3 };
    uint32_t drawn = 0, bits = 0; /* drawn: blocks q / 2 + 2 n of row g + q % 2 * 8 */
#pragma unroll 1
    for (int n = 0; n < N; n++) drawn |= drop_mma_block(m, block + 2 * n) << (4 * n);
    if (N < 8 && __any_sync(0xffffffffu, max(start[0], start[1]) + columns > 8 * N))
        drawn |= drop_mma_block(m, block + 2 * N) << (4 * N % 32);
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const int at = start[e / 2] + 2 * q + e % 2; /* in the row's blocks; of tile 0 */
        const uint32_t row = __shfl_sync(0xffffffffu, drawn, lane - q + at / 4 % 2 * 2 + e / 2);
        bits |= (row >> (at / 8 * 4 + at % 4) & DROP_MMA_TILES<N>) << e;
    }
    return bits;
}

/* Random elements follow columns: element (row, column) is first + column stride + row or, with
 * DOWN, + 15 - row. Draws N blocks per lane, and N / 4 more if columns reach into a fifth block. */
template <int N, bool DOWN>
static __device__ inline uint32_t drop_mma_columns(const tp_mask &m, int64_t first, int64_t stride)
{
    const int lane = (int)threadIdx.x % 32, g = lane / 4, q = lane % 4;
    const int64_t own = first + lane % 8 * stride;
    uint32_t drawn = 0, fifth = 0, bits = 0; /* block lane / 8 of column lane % 8; its block 4 */
#pragma unroll 1
    for (int n = 0; n < N; n++)
        drawn |= drop_mma_block(m, ((own + 8 * n * stride) >> 2) + lane / 8) << (4 * n);
    if (__any_sync(0xffffffffu, (own & 3) != 0)) {
#pragma unroll
        for (int k = 0; k < N; k += 4) {
            const int n = k + lane / 8;
            fifth |= drop_mma_block(m, ((own + 8 * n * stride) >> 2) + 4) << (4 * n);
        }
        fifth |= __shfl_xor_sync(0xffffffffu, fifth, 8);
        fifth |= __shfl_xor_sync(0xffffffffu, fifth, 16);
    }
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const int c = 2 * q + e % 2, r = g + e / 2 * 8;
        const int start = (int)(((uint32_t)first + (uint32_t)c * (uint32_t)stride) & 3u);
        const int at = start + (DOWN ? 15 - r : r);
        uint32_t column = __shfl_sync(0xffffffffu, drawn, at / 4 % 4 * 8 + c);
        if (DOWN == (e < 2)) { /* only these can reach block 4 */
            const uint32_t end = __shfl_sync(0xffffffffu, fifth, c);
            if (at >= 16) column = end;
        }
        bits |= (column >> (at % 4) & DROP_MMA_TILES<N>) << e;
    }
    return bits;
}

#endif
