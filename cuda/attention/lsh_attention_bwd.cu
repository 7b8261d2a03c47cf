/* lsh_attention_bwd.cu - gradients of LSH attention.
 *
 *     P = e^(s - lse)   dS = P (M dO V^T - delta), 0 where s was replaced
 *     dQ = dS K   dK = dS^T Q   dV = (M P)^T dO      M: the factors of dropout
 *
 * Each round has two launches: in one a block owns 64 queries of a chunk, in the other 64 keys,
 * which the queries of their chunk and of the next one see. A token occurs once in a round, so each
 * sum has one writer and a fixed order. Sums are f32 in c->work; a last pass adds both gradients of
 * qk, that of keys through their normalisation. Bound by 20 c D operations per token and round (for
 * D up to 64), at f32 rate. */
#include "cuda/attention/lsh.cuh"

/* ds = gradients of the tile's logits, w = its probabilities after dropout. The tile begins with
 * entry `entry` and the j-th key that its chunk sees. */
template <class S>
static __device__ inline void lsh_gradients(const lsh<S> &p, const lsh_block &k, const lsh_tile &t,
                                            int64_t entry, int j, float *stage, float ds[4][4],
                                            float w[4][4])
{
    const int ty = (int)threadIdx.x / 16;
    float dp[4][4], keep[4][4];
    const uint32_t replaced = lsh_logits(p, k, t, stage, w);
    attn_f32_clear(dp);
    attn_f32_product<false>(dp, stage, lsh_of(p, k, p.dy, t.query, NULL), 0,
                            lsh_of(p, k, p.v, t.key, NULL), 0, p.dim);
    if (p.drop.below > 0) lsh_keep(p, k, entry, j, keep);
#pragma unroll
    for (int r = 0; r < 4; r++) {
        const int token = t.query[4 * ty + r];
        const int64_t at = lsh_head(p, k) * p.tokens + max(token, 0);
        const float top = p.stats[2 * at], log_sum = p.stats[2 * at + 1], delta = p.delta[at];
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const float each = token < 0 ? 0.0f : expf(w[r][c] - top - log_sum);
            const float f = p.drop.below > 0 ? keep[r][c] : 1.0f;
            w[r][c] = f * each;
            ds[r][c] = replaced >> (4 * r + c) & 1u ? 0.0f : each * (f * dp[r][c] - delta);
        }
    }
}

/* Sets rows `token` of a [B,N,H*D] sum, later adds. */
template <class S>
static __device__ inline void lsh_add(const lsh<S> &p, const lsh_block &k, const int *token,
                                      const float acc[4][4], float *sum)
{
    const int ty = (int)threadIdx.x / 16, tx = (int)threadIdx.x % 16;
    for (int r = 0; r < 4; r++)
        for (int c = 0; c < 4; c++) {
            const int row = token[4 * ty + r], x = k.x0 + 4 * tx + c;
            if (row < 0 || x >= p.dim) continue;
            float *to = sum + lsh_base(p, k) + (int64_t)row * p.width + x;
            *to = p.round ? *to + acc[r][c] : acc[r][c];
        }
}

template <class S>
__global__ void __launch_bounds__(ATTN_F32_THREADS, 1)
    lsh_query_grad(lsh<S> p, int slabs, int tiles)
{
    TP_SHARED_REST(float, transposed);
    TP_SHARED(lsh_tile, t, [1]);
    float *const stage = transposed + ATTN_F32_FLOATS;
    const lsh_block k(slabs, tiles, p.chunks, p.heads);
    const int64_t own = ((int64_t)p.round * p.chunks + k.chunk) * p.chunk;
    const int64_t first = p.chunks == 1 ? own : (own + p.entries - p.chunk) % p.entries;
    float dq[4][4];
    attn_f32_clear(dq);
    lsh_take(p, k, own + k.tile * ATTN_F32_TILE, p.chunk - k.tile * ATTN_F32_TILE, t[0].query);
    for (int j = 0; j < p.keys; j += ATTN_F32_TILE) {
        float ds[4][4], w[4][4];
        __syncthreads();
        lsh_take_keys(p, k, (first + j) % p.entries, p.keys - j, t);
        __syncthreads();
        lsh_gradients(p, k, t[0], own + k.tile * ATTN_F32_TILE, j, stage, ds, w);
        __syncthreads();
        attn_f32_keep<true>(transposed, ds);
        attn_f32_load<ATTN_F32_TILE>(stage, lsh_of(p, k, p.x, t[0].key, t[0].norm), 0, k.x0, p.dim);
        __syncthreads();
        attn_f32_outer(dq, transposed, stage, ATTN_F32_TILE);
    }
    lsh_add(p, k, t[0].query, dq, p.dq);
}

/* acc += T^T rows, for a tile T of queries by keys and 64 columns of the queries' rows. */
template <class S>
static __device__ inline void lsh_by_key(float acc[4][4], const float tile[4][4], float *kept,
                                         float *stage, const lsh_rows<S> &rows, int x0, int dim)
{
    __syncthreads();
    attn_f32_keep<false>(kept, tile);
    attn_f32_load<ATTN_F32_TILE>(stage, rows, 0, x0, dim);
    __syncthreads();
    attn_f32_outer(acc, kept, stage, ATTN_F32_TILE);
}

template <class S>
__global__ void __launch_bounds__(ATTN_F32_THREADS, 1) lsh_key_grad(lsh<S> p, int slabs, int tiles)
{
    TP_SHARED_REST(float, kept);
    TP_SHARED(lsh_tile, t, [1]);
    float *const stage = kept + ATTN_F32_FLOATS;
    const lsh_block k(slabs, tiles, p.chunks, p.heads);
    const int64_t own = ((int64_t)p.round * p.chunks + k.chunk) * p.chunk;
    float dk[4][4], dv[4][4];
    attn_f32_clear(dk);
    attn_f32_clear(dv);
    lsh_take_keys(p, k, own + k.tile * ATTN_F32_TILE, p.chunk - k.tile * ATTN_F32_TILE, t);
    for (int which = 0; which < (p.chunks == 1 ? 1 : 2); which++)
        for (int i = 0; i < p.chunk; i += ATTN_F32_TILE) {
            const int64_t entry = (own + (int64_t)which * p.chunk + i) % p.entries;
            /* a chunk sees its predecessor first */
            const int j = k.tile * ATTN_F32_TILE + (which == 0 && p.chunks > 1 ? p.chunk : 0);
            float ds[4][4], w[4][4];
            __syncthreads();
            lsh_take(p, k, entry, p.chunk - i, t[0].query);
            __syncthreads();
            lsh_gradients(p, k, t[0], entry, j, stage, ds, w);
            if (p.dv)
                lsh_by_key(dv, w, kept, stage, lsh_of(p, k, p.dy, t[0].query, NULL), k.x0, p.dim);
            if (p.dk)
                lsh_by_key(dk, ds, kept, stage, lsh_of(p, k, p.x, t[0].query, NULL), k.x0, p.dim);
        }
    if (p.dv) lsh_add(p, k, t[0].key, dv, p.dv);
    if (p.dk) lsh_add(p, k, t[0].key, dk, p.dk);
}

/* dx = dq + norm (dk - (dk key) key), key = norm x; one warp per row of a head. */
template <class S>
__global__ void __launch_bounds__(TP_THREADS) lsh_join_grads(lsh<S> p, attn_sink<S> dx)
{
    const int64_t rows = (int64_t)p.batch * p.tokens * p.heads;
    const int lane = (int)threadIdx.x % 32;
    for (int64_t r = tp_warp_number(); r < rows; r += tp_warps()) {
        const int64_t token = tp_div(r, p.heads), b = tp_div(token, p.tokens);
        const int64_t at = (b * p.heads + r - token * p.heads) * p.tokens + token - b * p.tokens;
        const float norm = p.norm[at];
        float dot = 0.0f;
        for (int64_t i = r * p.dim + lane; i < (r + 1) * p.dim; i += 32)
            dot += p.dk[i] * norm * tp_float(p.x[i]);
        dot = tp_warp<tp_sum_of>(dot);
        for (int64_t i = r * p.dim + lane; i < (r + 1) * p.dim; i += 32)
            dx.put(i, p.dq[i] + norm * (p.dk[i] - dot * norm * tp_float(p.x[i])));
    }
}

template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    lsh_round_grad(int64_t n, const float *from, attn_sink<S> to)
{
    TP_EACH (i, n) to.put(i, from[i]);
}

/* c->work: norm and delta [B,H,N], dq, dk and, for bf16, dv [B,N,H*D]. */
static size_t lsh_grads_bytes(const tp_call *c)
{
    const tp_lsh g = tp__lsh(c->x, static_cast<const tp_lsh_attn_cfg *>(c->attr));
    const int64_t rows = g.batch * g.heads * g.tokens;
    const int sums = c->x[LSH_QK].dtype == TP_BF16 ? 3 : 2;
    return (size_t)(rows * (2 + sums * g.dim)) * sizeof(float);
}

static size_t lsh_attention_work(const tp_call *c)
{
    return tp_is_backward(c) ? lsh_grads_bytes(c) : lsh_room_of(c).bytes;
}

template <class S> static tp_code lsh_rounds(const tp_call *c, lsh<S> p)
{
    const int slabs = attn_tiles(p.dim, ATTN_F32_TILE), tiles = attn_tiles(p.chunk, ATTN_F32_TILE);
    const unsigned blocks = (unsigned)((int64_t)slabs * tiles * p.chunks * p.heads * p.batch);
    tp_code code = TP_OK;
    for (p.round = 0; code == TP_OK && p.rounds > p.round; p.round++) {
        if (p.dq)
            code = tp_launch(c, lsh_query_grad<S>, blocks, ATTN_F32_THREADS, ATTN_F32_SHARED, p,
                             slabs, tiles);
        if (code == TP_OK)
            code = tp_launch(c, lsh_key_grad<S>, blocks, ATTN_F32_THREADS, ATTN_F32_SHARED, p,
                             slabs, tiles);
    }
    return code;
}

template <class S> static tp_code lsh_attention_bwd(const tp_call *c)
{
    constexpr bool exact = std::is_same<S, float>::value;
    const int64_t n = c->y[LSH_Y].numel;
    lsh<S> p = lsh_problem<S>(c);
    if (n == 0 || (!c->dx[LSH_QK].data && !c->dx[LSH_V].data)) return TP_OK;
    const int64_t rows = (int64_t)p.batch * p.heads * p.tokens;
    float *norm = static_cast<float *>(c->work), *sums = norm + 2 * rows;
    p.norm = norm;
    p.delta = norm + rows;
    p.dy = tp_in<S>(&c->dy[LSH_Y]);
    if (c->dx[LSH_QK].data) {
        p.dq = sums;
        p.dk = sums + n;
    }
    if (c->dx[LSH_V].data) p.dv = exact ? tp_out<float>(&c->dx[LSH_V]) : sums + 2 * n;
    tp_code code = lsh_prepare_rows(c, p, norm);
    if (code == TP_OK) code = lsh_rounds(c, p);
    if (code == TP_OK && p.dq)
        code = tp_launch(c, lsh_join_grads<S>, tp_grid(c, 32 * rows), TP_THREADS, 0, p,
                         attn_sink_of<S>(&c->dx[LSH_QK]));
    if (code == TP_OK && p.dv && !exact)
        code = tp_launch(c, lsh_round_grad<S>, tp_grid(c, n), TP_THREADS, 0, n,
                         static_cast<const float *>(p.dv), attn_sink_of<S>(&c->dx[LSH_V]));
    return code;
}

TP_CUDA_WORK(lsh_attention_work)
TP_CUDA_KERNEL(lsh_attention_bwd)
