/* lsh_attention.cu - LSH attention, forward: hashing, sorting, and the chunks of each round.
 *
 * A warp hashes a token for a round: a lane takes every 32nd column of z. One radix sort by (head,
 * round, bucket) orders the entries of all heads. A block owns 64 queries of a chunk and 64 columns
 * of their values and iterates over the chunk's keys by 64, gathered in sorted order. A launch is
 * one round, in which each token occurs once, and joins its results with those of earlier rounds.
 * Bound by 8 c D operations per token and round, at f32 rate. */
#include "cuda/attention/lsh.cuh"
#include "cuda/kit/random_fill.cuh"

struct lsh_hash {
    int64_t tokens, entries, heads, dim, width, rounds, columns, half, factor, buckets;
    const uint8_t *mask;
    uint32_t *bucket; /* [B,H,R,N] */
};

/* The larger one; of equals, that of the lower index. */
struct lsh_best {
    float z;
    int at;
};

static __device__ inline lsh_best lsh_better(lsh_best a, lsh_best b)
{
    return b.z > a.z || (b.z == a.z && b.at < a.at) ? b : a;
}

/* First index of the largest of z and -z, columns [first, end) of z. */
template <class S, class R>
static __device__ inline int lsh_largest(const lsh_hash &k, const S *x, const R *rotations,
                                         int first, int end)
{
    const int lane = (int)threadIdx.x % 32, n = end - first;
    lsh_best best = { -INFINITY, 2 * n };
    for (int j = lane; j < n; j += 32) {
        float z = 0.0f;
        for (int64_t d = 0; d < k.dim; d++)
            z += tp_float(x[d]) * tp_float(rotations[d * k.rounds * k.columns + first + j]);
        best = lsh_better(best, { z, j });
        best = lsh_better(best, { -z, n + j });
    }
    for (int d = 16; d > 0; d >>= 1) {
        const lsh_best other = { __shfl_xor_sync(0xffffffffu, best.z, d),
                                 __shfl_xor_sync(0xffffffffu, best.at, d) };
        best = lsh_better(best, other);
    }
    return best.at < 2 * n ? best.at : 0; /* else NaN */
}

template <class S, class R>
__global__ void __launch_bounds__(TP_THREADS)
    lsh_hash_kernel(lsh_hash k, int64_t n, const S *x, const R *rotations)
{
    const int lane = (int)threadIdx.x % 32;
    for (int64_t e = tp_warp_number(); e < n; e += tp_warps()) {
        const int64_t head = tp_div(e, k.entries), entry = e - head * k.entries;
        const int64_t round = tp_div(entry, k.tokens), token = entry - round * k.tokens;
        const int64_t b = tp_div(head, k.heads), h = head - b * k.heads;
        const S *row = x + (b * k.tokens + token) * k.width + h * k.dim;
        const R *of = rotations + (h * k.dim * k.rounds + round) * k.columns;
        int64_t bucket = lsh_largest(k, row, of, 0, (int)k.half);
        if (k.half < k.columns)
            bucket += k.factor * lsh_largest(k, row, of, (int)k.half, (int)k.columns);
        if (k.mask && !k.mask[b * k.tokens + token]) bucket = k.buckets;
        if (lane == 0) k.bucket[e] = (uint32_t)bucket;
    }
}

/* Sort key of entry e: head, round and bucket. */
struct lsh_key {
    const uint32_t *bucket;
    int64_t tokens, buckets;
    __device__ int64_t operator()(int64_t e) const
    {
        return tp_div(e, tokens) * (buckets + 1) + bucket[e];
    }
};

/* order = tokens of the sorted entries; without a list, of all in order. */
static __global__ void __launch_bounds__(TP_THREADS)
    lsh_order_kernel(int64_t n, int64_t tokens, const tp_keyed *list, int32_t *order)
{
    TP_EACH (i, n) {
        const int64_t e = list ? (int64_t)list[i].row : i;
        order[i] = (int32_t)(e - tp_div(e, tokens) * tokens);
    }
}

/* Folds a tile of logits into each row's maximum, sum and result; s becomes e^(s - maximum). */
static __device__ inline void lsh_online(float s[4][4], float o[4][4], float top[4], float sum[4])
{
#pragma unroll
    for (int r = 0; r < 4; r++) {
        const float here = fmaxf(fmaxf(s[r][0], s[r][1]), fmaxf(s[r][2], s[r][3]));
        const float next = fmaxf(top[r], attn_f32_row<tp_max_of>(here));
        const float base = next > -INFINITY ? next : 0.0f;
        const float fade = expf(top[r] - base);
        top[r] = next;
        sum[r] *= fade;
#pragma unroll
        for (int c = 0; c < 4; c++) {
            o[r][c] *= fade;
            s[r][c] = expf(s[r][c] - base);
            sum[r] += s[r][c];
        }
    }
}

/* Drops exponentials of a tile. */
template <class S>
static __device__ inline void lsh_drop(const lsh<S> &p, const lsh_block &k, int64_t entry, int j,
                                       float s[4][4])
{
    float keep[4][4];
    lsh_keep(p, k, entry, j, keep);
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
        for (int c = 0; c < 4; c++) s[r][c] *= keep[r][c];
}

/* Joins row r of the block's result with earlier rounds. */
template <class S>
static __device__ inline void lsh_join(const lsh<S> &p, const lsh_block &k, int token,
                                       const float o[4], float top, float sum)
{
    const int tx = (int)threadIdx.x % 16;
    const int64_t at = lsh_head(p, k) * p.tokens + token;
    float high = top, before = 0.0f, scale = 1.0f, total = sum;
    if (p.before) {
        high = fmaxf(top, p.before[2 * at]);
        before = expf(p.before[2 * at] - high + p.before[2 * at + 1]);
        scale = expf(top - high);
        total = before + scale * sum;
    }
    for (int c = 0; c < 4; c++) {
        const int x = k.x0 + 4 * tx + c;
        if (x >= p.dim) continue;
        float *y = p.y + lsh_base(p, k) + (int64_t)token * p.width + x;
        *y = (p.before ? before * *y + scale * o[c] : o[c]) / total;
    }
    if (tx > 0 || k.x0 > 0) return;
    p.stats[2 * at] = high;
    p.stats[2 * at + 1] = logf(total);
}

template <class S>
__global__ void __launch_bounds__(ATTN_F32_THREADS, 1) lsh_forward(lsh<S> p, int slabs, int tiles)
{
    TP_SHARED_REST(float, transposed);
    TP_SHARED(lsh_tile, t, [1]);
    float *const stage = transposed + ATTN_F32_FLOATS;
    const int ty = (int)threadIdx.x / 16;
    const lsh_block k(slabs, tiles, p.chunks, p.heads);
    const int64_t own = ((int64_t)p.round * p.chunks + k.chunk) * p.chunk;
    const int64_t first = p.chunks == 1 ? own : (own + p.entries - p.chunk) % p.entries;
    float o[4][4], top[4], sum[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
    attn_f32_clear(o);
    for (int r = 0; r < 4; r++) top[r] = -INFINITY;
    lsh_take(p, k, own + k.tile * ATTN_F32_TILE, p.chunk - k.tile * ATTN_F32_TILE, t[0].query);
    for (int j = 0; j < p.keys; j += ATTN_F32_TILE) {
        float s[4][4];
        __syncthreads();
        lsh_take_keys(p, k, (first + j) % p.entries, p.keys - j, t);
        __syncthreads();
        lsh_logits(p, k, t[0], stage, s);
        lsh_online(s, o, top, sum);
        if (p.drop.below > 0) lsh_drop(p, k, own + k.tile * ATTN_F32_TILE, j, s);
        attn_f32_keep<true>(transposed, s);
        __syncthreads();
        attn_f32_load<ATTN_F32_TILE>(stage, lsh_of(p, k, p.v, t[0].key, NULL), 0, k.x0, p.dim);
        __syncthreads();
        attn_f32_outer(o, transposed, stage, ATTN_F32_TILE);
    }
    for (int r = 0; r < 4; r++) {
        const float total = attn_f32_row<tp_sum_of>(sum[r]);
        const int token = t[0].query[4 * ty + r];
        if (token >= 0) lsh_join(p, k, token, o[r], top[r], total);
    }
}

template <class S>
__global__ void __launch_bounds__(TP_THREADS) lsh_round_off(int64_t n, const float *from, S *to)
{
    TP_EACH (i, n) tp_put(to + i, from[i]);
}

template <class S> static tp_code lsh_buckets(const tp_call *c, const tp_lsh &g, const lsh_room &w)
{
    const int64_t n = g.batch * g.heads * g.entries;
    const tp_view *given = &c->x[LSH_ROTATIONS];
    const lsh_hash k = { g.tokens,
                         g.entries,
                         g.heads,
                         g.dim,
                         g.width,
                         g.rounds,
                         g.columns,
                         g.factor[0] / 2,
                         g.factor[0],
                         g.buckets,
                         tp_absent(&c->x[LSH_MASK]) ? NULL : tp_in<uint8_t>(&c->x[LSH_MASK]),
                         w.bucket };
    if (tp_absent(given)) {
        const tp_code code =
            tp_fill_random(c, g.heads * g.dim * g.rounds * g.columns, tp_normal_of(), w.rotations);
        if (code != TP_OK) return code;
        return tp_launch(c, lsh_hash_kernel<S, float>, tp_grid(c, 32 * n), TP_THREADS, 0, k, n,
                         tp_in<S>(&c->x[LSH_QK]), static_cast<const float *>(w.rotations));
    }
    return tp_with_type(c, given->dtype, [&](auto r) {
        using R = decltype(r);
        return tp_launch(c, lsh_hash_kernel<S, R>, tp_grid(c, 32 * n), TP_THREADS, 0, k, n,
                         tp_in<S>(&c->x[LSH_QK]), tp_in<R>(given));
    });
}

template <class S> static tp_code lsh_find_order(const tp_call *c, const lsh_room &w)
{
    const tp_lsh g = tp__lsh(c->x, static_cast<const tp_lsh_attn_cfg *>(c->attr));
    const int64_t n = g.batch * g.heads * g.entries, V = n / g.tokens * (g.buckets + 1);
    const tp_keyed *list = NULL;
    if (g.chunks > 1) {
        if (n >= TP_NOWHERE || V > TP_NOWHERE)
            return tp__cuda_fail(c, TP_E_VALUE,
                                 "at most 2^32 - 2 entries, and heads times rounds times buckets; "
                                 "use a smaller batch");
        tp_code code = lsh_buckets<S>(c, g, w);
        if (code == TP_OK)
            code = tp_sort_keys(c, lsh_key{ w.bucket, g.tokens, g.buckets }, n, V, w.lists,
                                w.counts, &list);
        if (code != TP_OK) return code;
    }
    return tp_launch(c, lsh_order_kernel, tp_grid(c, n), TP_THREADS, 0, n, g.tokens, list,
                     tp_out<int32_t>(&c->y[LSH_ORDER]));
}

template <class S> static tp_code lsh_attention_fwd(const tp_call *c)
{
    const lsh_room w = lsh_room_of(c);
    const int64_t n = c->y[LSH_Y].numel;
    lsh<S> p = lsh_problem<S>(c);
    if (n == 0) return TP_OK;
    const int slabs = attn_tiles(p.dim, ATTN_F32_TILE), tiles = attn_tiles(p.chunk, ATTN_F32_TILE);
    float *const last = p.stats;
    p.norm = w.norm;
    p.y = std::is_same<S, float>::value ? tp_out<float>(&c->y[LSH_Y]) : w.y;
    tp_code code = lsh_find_order<S>(c, w);
    if (code == TP_OK) code = lsh_prepare_rows(c, p, w.norm);
    for (p.round = 0; code == TP_OK && p.rounds > p.round; p.round++) {
        /* never written in place: blocks of other columns read the former sums */
        p.stats = (p.rounds - p.round) % 2 ? last : w.before;
        p.before = p.round == 0 ? NULL : p.stats == last ? w.before : last;
        code = tp_launch(c, lsh_forward<S>,
                         (unsigned)((int64_t)slabs * tiles * p.chunks * p.heads * p.batch),
                         ATTN_F32_THREADS, ATTN_F32_SHARED, p, slabs, tiles);
    }
    if (code != TP_OK || std::is_same<S, float>::value) return code;
    return tp_launch(c, lsh_round_off<S>, tp_grid(c, n), TP_THREADS, 0, n,
                     static_cast<const float *>(w.y), tp_out<S>(&c->y[LSH_Y]));
}

TP_CUDA_KERNEL(lsh_attention_fwd)
