/* ls_attention.cu - long-short attention, forward: one softmax over window and chunk vectors.
 *
 * bf16 with heads of 64 and 32 runs on tensor cores (ls_mma_fwd.cuh); everything else uses this
 * file's kernel. A block owns 64 queries of a head and loops over the band of its window, then its
 * vectors, in tiles of 64 columns, with one running maximum and sum for both (ls_plain.cuh). Keys
 * and values are read once per tile of queries, from cache; bound by 6 D operations per visible
 * pair at f32 rate. Saves the log-sum-exp. A query that sees no key gets zeros and a log-sum-exp
 * of 0. */
#include "cuda/attention/ls_mma_fwd.cuh"

/* A thread's state of its four queries: largest logits, sums, four output columns. */
struct ls_online {
    float top[4], sum[4], o[4][4];
};

enum { LS_FEW_QUERIES = 32768 }; /* of all heads: 256 blocks of 128 */

/* Reduces over the 16 threads that share queries. */
template <class Op> static __device__ inline float ls_over_row(float v)
{
#pragma unroll
    for (int d = 8; d > 0; d >>= 1) v = Op::join(v, __shfl_xor_sync(0xffffffffu, v, d));
    return v;
}

/* s becomes exp(s - top); earlier sums are rescaled. */
static __device__ inline void ls_softmax_step(ls_online &m, float s[4][4])
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float next = m.top[i];
        for (int j = 0; j < 4; j++) next = fmaxf(next, s[i][j]);
        next = ls_over_row<tp_max_of>(next);
        const float shift = next == -INFINITY ? 0.0f : next, f = expf(m.top[i] - shift);
        m.top[i] = next;
        m.sum[i] *= f;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            m.o[i][j] *= f;
            s[i][j] = expf(s[i][j] - shift);
            m.sum[i] += s[i][j];
        }
    }
}

/* Drops exponentials of a tile. */
template <class S>
static __device__ inline void ls_drop(const ls_call<S> &p, int part, const ls_tile &t, int64_t head,
                                      float s[4][4])
{
    float keep[4][4];
    ls_keep<false>(p, part, t, head, keep);
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) s[i][j] *= keep[i][j];
}

/* Loops over the columns of a part that queries from t0 see. */
template <ls_way WAY, class S>
static __device__ inline void ls_walk(const ls_call<S> &p, int part, int t0, int b, int h, int d0,
                                      float *pool, ls_online &m)
{
    float *values = pool, *square = pool + LS_SQUARE, s[4][4];
    const ls_rows<S> q = ls_queries(p, p.q, b, h), k = ls_keys(p, p.k[part], part, b, h);
    const ls_rows<S> v = ls_keys(p, p.v[part], part, b, h), r = ls_table(p, part, h);
    const int last = ls_reach(p, part, min(t0 + LS_TILE, p.N) - 1);
    for (int c0 = ls_first(p, part, t0); c0 <= last; c0 += LS_TILE) {
        const ls_tile t = ls_tile_of(p, part, t0, c0);
        ls_product<true, WAY>(p, t, q, p.scale, k, r, pool, s);
        ls_finish_logits<false>(p, part, t, k.bias, r.bias, s);
        ls_softmax_step(m, s);
        if (p.drop.below > 0) ls_drop(p, part, t, (int64_t)b * p.H + h, s);
        __syncthreads();
        ls_put_columns(square, s);
        ls_stage(p, values, LS_TILE, v, c0, 1, d0);
        __syncthreads();
        ls_add_product(square, values, m.o);
    }
}

/* Block: (tile of queries, last first, as these see most; batch row; head; columns). */
template <ls_way VECTORS, class S>
__global__ void __launch_bounds__(LS_THREADS, 1)
    ls_forward_kernel(ls_call<S> p, int tiles, int pieces, S *y, float *lse)
{
    TP_SHARED_REST(float, pool);
    const int64_t item = tp_div(blockIdx.x, pieces), d0 = (blockIdx.x - item * pieces) * LS_TILE;
    const int head = (int)(item % ((int64_t)p.B * p.H)), b = head / p.H, h = head % p.H;
    const int t0 = (tiles - 1 - (int)(item / ((int64_t)p.B * p.H))) * LS_TILE;
    ls_online m;
    for (int i = 0; i < 4; i++) {
        m.top[i] = -INFINITY;
        m.sum[i] = 0.0f;
        for (int j = 0; j < 4; j++) m.o[i][j] = 0.0f;
    }
    if (p.keys[LS_WINDOW_PART] > 0)
        ls_walk<LS_DIAGONAL>(p, LS_WINDOW_PART, t0, b, h, (int)d0, pool, m);
    if (p.keys[LS_VECTOR_PART] > 0) ls_walk<VECTORS>(p, LS_VECTOR_PART, t0, b, h, (int)d0, pool, m);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int t = t0 + ls_row() + i;
        const float sum = ls_over_row<tp_sum_of>(m.sum[i]), f = sum > 0.0f ? 1.0f / sum : 0.0f;
        if (t >= p.N) continue;
        S *to = y + ((int64_t)b * p.N + t) * p.width + (int64_t)h * p.D;
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (d0 + ls_col() + j < p.D) tp_put(to + d0 + ls_col() + j, m.o[i][j] * f);
        if (d0 == 0 && ls_col() == 0)
            lse[(int64_t)head * p.N + t] = sum > 0.0f ? m.top[i] + logf(sum) : 0.0f;
    }
}

template <class S> static tp_code ls_forward_plain(const tp_call *c, const ls_call<S> &p)
{
    const int tiles = (int)ls_tiles(p.N), pieces = (int)ls_tiles(p.D);
    const auto kernel =
        ls_vector_way(p) == LS_SAME ? ls_forward_kernel<LS_SAME, S> : ls_forward_kernel<LS_ANY, S>;
    return tp_launch(c, kernel, (unsigned)((int64_t)tiles * p.B * p.H * pieces), LS_THREADS,
                     2 * LS_SQUARE * sizeof(float), p, tiles, pieces, tp_out<S>(&c->y[0]),
                     tp_out<float>(&c->y[1]));
}

static tp_code ls_forward(const tp_call *c, const ls_call<float> &p)
{
    return ls_forward_plain(c, p);
}

/* A warp with two blocks of 16 queries reads each key once for both; one block per warp doubles the
 * number of blocks. The choice depends only on shapes, so results do not depend on the GPU. */
static tp_code ls_forward(const tp_call *c, const ls_call<bf16> &p)
{
    const bool few = p.D == 64 && (int64_t)p.B * p.H * p.N < LS_FEW_QUERIES;
    if (!tp_aligned(tp_out<bf16>(&c->y[0])) || !ls_mma_serves(p, few ? 64 : 128, LS_MMA_STEP))
        return ls_forward_plain(c, p);
    if (p.D == 64)
        return few ? ls_mma_launch_forward<64, 1>(c, p) : ls_mma_launch_forward<64, 2>(c, p);
    return ls_mma_launch_forward<32, 2>(c, p);
}

template <class S> static tp_code ls_attention_fwd(const tp_call *c)
{
    if (c->y[0].numel == 0) return TP_OK;
    const ls_call<S> p = ls_call_of<S>(c);
    const tp_code code = ls_dot_products(c, p);
    return code == TP_OK ? ls_forward(c, p) : code;
}

static size_t ls_attention_work(const tp_call *c)
{
    return (size_t)tp__ls_plan_of(c).total * sizeof(float);
}

TP_CUDA_WORK(ls_attention_work)
TP_CUDA_KERNEL(ls_attention_fwd)
