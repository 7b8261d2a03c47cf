/* attention_mma.cuh - common to the tensor core kernels of full attention: supported calls, masks
 * and dropout of accumulators.
 *
 * Element s[n][e] of a lane's accumulators is at row + 8 (e / 2), column + 8 n + e % 2, from the
 * (row, column) of its first element. Logits are unscaled: with c = scale log2(e) a probability is
 * 2^(c s - c max). */
#ifndef TP_ATTENTION_MMA_CUH
#define TP_ATTENTION_MMA_CUH

#include "cuda/attention/attention.cuh"
#include "cuda/attention/drop_mma.cuh"
#include "cuda/kit/tiles.cuh"

constexpr float ATTN_MMA_LOG2E = 1.4426950408889634f;
constexpr int ATTN_MMA_WARPS = 4, ATTN_MMA_THREADS = 32 * ATTN_MMA_WARPS;
constexpr int ATTN_MMA_STEP = 32; /* columns of a step */

tp_code tp__attention_mma_fwd(const tp_call *c, const attn<bf16> &p);
tp_code tp__attention_mma_bwd(const tp_call *c, const attn<bf16> &p);

/* The same with relative positions. The first computes p.biases, which the others read. */
tp_code tp__rel_attention_mma_biases(const tp_call *c, const attn<bf16> &p);
tp_code tp__rel_attention_mma_fwd(const tp_call *c, const attn<bf16> &p);
tp_code tp__rel_attention_mma_bwd(const tp_call *c, const attn<bf16> &p);

/* Heads of 8 n <= 128 columns are padded with zeros to 32, 64 or 128. The scale must be positive,
 * or maxima would become minima. Blocks, of 64 rows or more, are counted in 32 bits. */
static inline bool attn_mma_serves(const attn<bf16> &p)
{
    const int64_t tiles = max(attn_tiles(p.queries, 64), attn_tiles(p.room, 64));
    return tiles * p.batch * p.heads <= INT32_MAX && p.dim % 8 == 0 && p.dim > 0 && p.dim <= 128 &&
           p.scale > 1e-6f && tp_aligned(p.q, p.k, p.v, p.pos, p.out, p.dout) &&
           tp_aligned(p.dq.to, p.dk.to, p.dv.to);
}
/* Calls f(COLS) with the padded head size. */
template <class F> static tp_code attn_mma_by_columns(const attn<bf16> &p, F f)
{
    return p.dim <= 32   ? f(std::integral_constant<int, 32>())
           : p.dim <= 64 ? f(std::integral_constant<int, 64>())
                         : f(std::integral_constant<int, 128>());
}

/* Blocks are numbered head first, then batch row, then tile. */
struct attn_mma_block {
    int h, b, tile;
    __device__ attn_mma_block(int heads, int batch)
    {
        const unsigned k = blockIdx.x / (unsigned)heads;
        h = (int)(blockIdx.x % (unsigned)heads);
        b = (int)(k % (unsigned)batch);
        tile = (int)(k / (unsigned)batch);
    }
};

static __device__ inline bool attn_mma_sees(const attn<bf16> &p, int b, int i, int j)
{
    return i < p.queries && j >= 0 && j < p.keys && (!p.causal || j <= i + p.ahead) &&
           (!p.span || j > i + p.ahead - p.span) && (!p.mask || p.mask[(int64_t)b * p.keys + j]);
}

/* Sets masked pairs to -inf; BIASED: adds the bias to the others. TRANSPOSED: rows are keys or,
 * with DISTANCES, distances. */
template <bool TRANSPOSED, int N, bool DISTANCES = false, bool BIASED = true>
static __device__ inline void attn_mma_mask(const attn<bf16> &p, const attn_mma_block &at, int row,
                                            int column, float s[N][4])
{
    const float unscale = 1.0f / p.scale;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int r = row + e / 2 * 8, c = column + 8 * n + e % 2;
            const int i = TRANSPOSED ? c : r, j = DISTANCES ? c + p.ahead - r : TRANSPOSED ? r : c;
            if (!attn_mma_sees(p, at.b, i, j))
                s[n][e] = -INFINITY;
            else if (BIASED && p.biased)
                s[n][e] += unscale * attn_bias(p, at.b, at.h, i, j);
        }
}

/* Bit 4 n + e: dropout drops element (n, e). PACKED: p is a document. */
template <bool TRANSPOSED, int N, bool DISTANCES = false, bool PACKED = false>
static __device__ inline uint32_t attn_mma_dropped(const attn<bf16> &p, const attn_mma_block &at,
                                                   int row, int column)
{
    if (!p.drop_below) return 0;
    const int g = (int)threadIdx.x % 32 / 4, q2 = (int)threadIdx.x % 4 * 2;
    const tp_mask m = { p.random, p.drop_below, p.keep_scale };
    const auto element = [&](int i, int j) {
        if constexpr (PACKED) return attn_element(p, at.b, at.h, i, j);
        return (((int64_t)at.b * p.heads + at.h) * p.queries + i) * p.keys + j;
    };
    if constexpr (TRANSPOSED) {
        const int i = column - q2, r = row - g;
        const int64_t first = element(i, DISTANCES ? i + p.ahead - (r + 15) : r);
        return drop_mma_columns<N, DISTANCES>(m, first,
                                              (int64_t)(PACKED ? p.drop_keys : p.keys) + DISTANCES);
    } else {
        const int64_t first[2] = { element(row, column - q2), element(row + 8, column - q2) };
        return drop_mma_rows<N>(m, first, 8 * N);
    }
}

/* Applies dropout; costs one branch without it. */
template <int N>
static __device__ inline void attn_mma_drop(const attn<bf16> &p, float s[N][4], uint32_t dropped)
{
    if (!p.drop_below) return;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            s[n][e] = dropped >> (4 * n + e) & 1u ? 0.0f : p.keep_scale * s[n][e];
}

/* s += columns 16 k to 16 k + 15 of 16 rows, an A operand, times the rows of a tile. */
template <int COLS, int N>
static __device__ inline void attn_mma_product(float s[N][4], const uint32_t a[4], const bf16 *tile,
                                               int k)
{
#pragma unroll
    for (int n = 0; n < N; n += 2) {
        uint32_t b[4];
        tp_frag_b<COLS>(b, tile, 8 * n, k);
        tp_mma_bf16(s[n], a, b, s[n]);
        tp_mma_bf16(s[n + 1], a, b + 2, s[n + 1]);
    }
}

/* s += 16 rows, held as A operands, times the rows of a tile. */
template <int COLS, int N>
static __device__ inline void attn_mma_products(float s[N][4], const uint32_t a[COLS / 16][4],
                                                const bf16 *tile)
{
#pragma unroll
    for (int k = 0; k < COLS / 16; k++) attn_mma_product<COLS, N>(s, a[k], tile, k);
}

/* o += s, rounded to bf16, times the rows of a tile. */
template <int COLS, int N>
static __device__ inline void attn_mma_mix(float o[COLS / 8][4], const float s[N][4],
                                           const bf16 *tile)
{
#pragma unroll
    for (int k = 0; k < N / 2; k++) {
        uint32_t a[4];
        tp_frag_of(a, s[2 * k], s[2 * k + 1]);
#pragma unroll
        for (int n = 0; n < COLS / 16; n++) {
            uint32_t b[4];
            tp_frag_bt<COLS>(b, tile, 16 * k, n);
            tp_mma_bf16(o[2 * n], a, b, o[2 * n]);
            tp_mma_bf16(o[2 * n + 1], a, b + 2, o[2 * n + 1]);
        }
    }
}

template <int N> static __device__ inline void attn_mma_clear(float s[N][4])
{
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) s[n][e] = 0.0f;
}

/* Stores sixteen rows from `row` of a head, times k, in a tensor [B,count,width]. */
template <int COLS>
static __device__ inline void attn_mma_store(const attn<bf16> &p, const attn_sink<bf16> &to,
                                             const attn_mma_block &at, int count, int width,
                                             int row, const float k[2], const float o[COLS / 8][4])
{
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int r = row + lane / 4 + 8 * half;
        const int64_t first = ((int64_t)at.b * count + r) * width + at.h * p.dim + lane % 4 * 2;
#pragma unroll
        for (int n = 0; n < COLS / 8; n++) {
            if (r >= count || 8 * n >= p.dim) continue;
            const float x = k[half] * o[n][2 * half], y = k[half] * o[n][2 * half + 1];
            if (to.f32) {
                to.put(first + 8 * n, x);
                to.put(first + 8 * n + 1, y);
            } else {
                *reinterpret_cast<uint32_t *>(static_cast<bf16 *>(to.to) + first + 8 * n) =
                    tp_pack_bf16(x, y);
            }
        }
    }
}

#endif
