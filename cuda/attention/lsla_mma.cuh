/* lsla_mma.cuh - light self-limited attention on tensor cores: values shared by a head's windows.
 *
 * A thread has the same pairs of query and key in every window: accumulators of four warps with 16
 * queries each. Scale and biases are in shared memory in the order of these reads. */
#ifndef TP_LSLA_MMA_CUH
#define TP_LSLA_MMA_CUH

#include "cuda/attention/attention_mma.cuh"
#include "cuda/attention/lsla.cuh"

constexpr int LSLA_MMA_ROWS = 64; /* of a tile: all tokens of a window */
constexpr int LSLA_MMA_TABLE = 8 * ATTN_MMA_THREADS;

/* [2 halves][4][threads]: a thread's two elements of a row, for blocks of columns n and n + 1.
 * scale and inner are multiplied by log2 e; missing pairs have scale 0, inner -inf and outer 0. */
struct lsla_mma_tables {
    tp_pack<float> *scale, *inner, *outer;
};

/* Bit 4 n + e: the thread's pair (n, e) joins two regions in windows at the lower (y) or right (x)
 * edge. */
struct lsla_mma_apart {
    uint32_t y, x;
};

static __device__ inline float *lsla_mma_pair(tp_pack<float> *table, int half, int n)
{
    return table[(4 * half + n / 2) * ATTN_MMA_THREADS + threadIdx.x].at;
}

static __device__ inline int lsla_mma_query(int e)
{
    return (int)threadIdx.x / 32 * 16 + (int)threadIdx.x % 32 / 4 + e / 2 * 8;
}
static __device__ inline int lsla_mma_key(int n, int e)
{
    return 8 * n + (int)threadIdx.x % 4 * 2 + e % 2;
}

/* Bit 4 n + e: dropout drops the thread's pair (n, e). row: element (query, key 0) of the map's
 * first cell; cell: of the thread's two queries. */
template <int N>
static __device__ inline uint32_t lsla_mma_dropped(const lsla<bf16> &p, int64_t row,
                                                   const int cell[2])
{
    const int n = (int)p.g.n;
    const int64_t first[2] = { row + (int64_t)cell[0] * n, row + (int64_t)cell[1] * n };
    return drop_mma_rows<N>(p.drop, first, n);
}

/* Probability x of a pair, negative if it is dropped; DROPS: there is dropout. */
template <bool DROPS>
static __device__ inline float lsla_mma_mark(uint32_t dropped, int n, int e, float x)
{
    if (!DROPS) return x;
    return copysignf(x, __uint_as_float(dropped << (31 - 4 * n - e)));
}
/* A marked probability, unscaled. */
template <bool DROPS> static __device__ inline float lsla_mma_kept(float x)
{
    return DROPS ? fmaxf(x, 0.0f) : x;
}

static __device__ inline lsla_mma_apart lsla_mma_set_head(const lsla<bf16> &p, int h,
                                                          const lsla_mma_tables &m)
{
    const int n = (int)p.g.n, w = (int)p.g.window, heads = (int)p.g.heads;
    const int edge = p.g.shift ? w - (int)p.g.shift : w;
    lsla_mma_apart apart = { 0, 0 };
#pragma unroll 1
    for (int k = 0; k < 32; k++) {
        const int half = k / 16, column = k % 16 / 2, e = 2 * half + k % 2;
        const int a = lsla_mma_query(e), b = lsla_mma_key(column, e), i = k % 4;
        const bool valid = a < n && b < n;
        const int64_t place = valid ? tp__lsla_place(&p.g, a, b) * heads + h : 0;
        const float scale = p.scale && valid ? tp_float(p.scale[a * n + b]) : p.fixed;
        const float inner = p.inner ? tp_float(p.inner[place]) : 0.0f;
        lsla_mma_pair(m.scale, half, column)[i] = valid ? ATTN_MMA_LOG2E * scale : 0.0f;
        lsla_mma_pair(m.inner, half, column)[i] = valid ? ATTN_MMA_LOG2E * inner : -INFINITY;
        lsla_mma_pair(m.outer, half, column)[i] =
            valid && p.outer ? tp_float(p.outer[place]) : 0.0f;
        apart.y |= (uint32_t)((a / w >= edge) != (b / w >= edge)) << (4 * column + e);
        apart.x |= (uint32_t)((a % w >= edge) != (b % w >= edge)) << (4 * column + e);
    }
    return apart;
}

#endif
