/* lsla_mma.cuh - light self-limited attention on tensor cores: values shared by all windows of a head.
 *
 * A thread has the same pairs of query and key in every window: accumulators of four warps with 16
 * queries each. So scale and biases are in shared memory in the order in which the thread reads them. */
#ifndef TP_LSLA_MMA_CUH
#define TP_LSLA_MMA_CUH

#include "cuda/attention/attention_mma.cuh"
#include "cuda/attention/lsla.cuh"

constexpr int LSLA_TABLE = 8 * ATTN_MMA_THREADS;

/* [2 halves][4][threads]: the two elements that a thread has in a row, for blocks of columns n and
 * n + 1. scale and inner are times log2 e; missing pairs have scale 0, inner -inf and outer 0. */
struct lsla_tables {
    tp_pack<float> *scale, *inner, *outer;
};

/* Bit 4 n + e: the thread's pair n, e joins two regions in windows at the lower (y) or right (x) border. */
struct lsla_apart {
    uint32_t y, x;
};

static __device__ inline float *lsla_of(tp_pack<float> *table, int half, int n)
{
    return table[(4 * half + n / 2) * ATTN_MMA_THREADS + threadIdx.x].at;
}

static __device__ inline int lsla_query(int e)
{
    return (int)threadIdx.x / 32 * 16 + (int)threadIdx.x % 32 / 4 + e / 2 * 8;
}
static __device__ inline int lsla_key(int n, int e)
{
    return 8 * n + (int)threadIdx.x % 4 * 2 + e % 2;
}

static __device__ inline lsla_apart lsla_set_head(const lsla<bf16> &p, int h, const lsla_tables &m)
{
    const int n = (int)p.g.n, w = (int)p.g.window, heads = (int)p.g.heads;
    const int edge = p.g.shift ? w - (int)p.g.shift : w;
    lsla_apart apart = { 0, 0 };
#pragma unroll 1
    for (int k = 0; k < 32; k++) {
        const int half = k / 16, column = k % 16 / 2, e = 2 * half + k % 2;
        const int a = lsla_query(e), b = lsla_key(column, e), i = k % 4;
        const bool there = a < n && b < n;
        const int64_t place = there ? tp__lsla_place(&p.g, a, b) * heads + h : 0;
        const float scale = p.scale && there ? tp_float(p.scale[a * n + b]) : p.fixed;
        const float inner = p.inner ? tp_float(p.inner[place]) : 0.0f;
        lsla_of(m.scale, half, column)[i] = there ? ATTN_MMA_LOG2E * scale : 0.0f;
        lsla_of(m.inner, half, column)[i] = there ? ATTN_MMA_LOG2E * inner : -INFINITY;
        lsla_of(m.outer, half, column)[i] = there && p.outer ? tp_float(p.outer[place]) : 0.0f;
        apart.y |= (uint32_t)((a / w >= edge) != (b / w >= edge)) << (4 * column + e);
        apart.x |= (uint32_t)((a % w >= edge) != (b % w >= edge)) << (4 * column + e);
    }
    return apart;
}

#endif
