/* lsh.cuh - LSH attention on the GPU: the problem, tiles of entries, and their logits. */
#ifndef TP_LSH_CUH
#define TP_LSH_CUH

#include "cuda/attention/attention_f32.cuh"
#include "cuda/kit/keyed_sums.cuh"
#include "cuda/kit/mask.cuh"
#include "tensor/geometry/lsh.h"

/* All but the inputs and the order is f32. NULL: absent, or unused in this pass. */
template <class S> struct lsh {
    int batch, heads, tokens, dim, width, chunk, chunks, rounds, entries, keys;
    int round; /* of this launch */
    const S *x, *v, *dy;
    const uint8_t *mask;
    const int32_t *order; /* [B,H,R*N]                                        */
    const float *norm;    /* [B,H,N]: factors that normalise keys             */
    const float *before;  /* [B,H,N,2]: running softmax statistics            */
    float *stats;         /* [B,H,N,2]: with this round; backward: all rounds */
    float *y;             /* [B,N,H*D]: running result                        */
    float *delta;         /* [B,H,N]: rowsum(dO * O)                          */
    float *dq, *dk, *dv;  /* [B,N,H*D]: of queries, normalised keys, values   */
    tp_mask drop;         /* of tp__lsh_row                                   */
};

template <class S> static lsh<S> lsh_problem(const tp_call *c)
{
    const tp_lsh_attn_cfg *cfg = static_cast<const tp_lsh_attn_cfg *>(c->attr);
    const tp_lsh g = tp__lsh(c->x, cfg);
    lsh<S> p = {};
    p.drop = tp_mask_of(c, c->train ? cfg->dropout : 0.0);
    p.batch = (int)g.batch;
    p.heads = (int)g.heads;
    p.tokens = (int)g.tokens;
    p.dim = (int)g.dim;
    p.width = (int)g.width;
    p.chunk = (int)g.chunk;
    p.chunks = (int)g.chunks;
    p.rounds = (int)g.rounds;
    p.entries = (int)g.entries;
    p.keys = (int)g.keys;
    p.x = tp_in<S>(&c->x[LSH_QK]);
    p.v = tp_in<S>(&c->x[LSH_V]);
    p.mask = tp_absent(&c->x[LSH_MASK]) ? NULL : tp_in<uint8_t>(&c->x[LSH_MASK]);
    p.order = tp_in<int32_t>(&c->y[LSH_ORDER]);
    p.stats = tp_out<float>(&c->y[LSH_STATS]);
    return p;
}

/* The pieces of c->work in a forward call. y: bf16 only. */
struct lsh_room {
    float *norm, *before, *y, *rotations;
    uint32_t *bucket, *counts;
    tp_keyed *lists;
    size_t bytes;
};

static lsh_room lsh_room_of(const tp_call *c)
{
    const tp_lsh g = tp__lsh(c->x, static_cast<const tp_lsh_attn_cfg *>(c->attr));
    const int64_t rows = g.batch * g.heads * g.tokens, n = g.chunks > 1 ? g.rounds * rows : 0;
    const bool drawn = n > 0 && tp_absent(&c->x[LSH_ROTATIONS]);
    const bool rounded = c->x[LSH_QK].dtype == TP_BF16;
    lsh_room w = {};
    char *at = static_cast<char *>(c->work);
    const auto take = [&](int64_t words) {
        void *const p = at + w.bytes;
        w.bytes += (size_t)(words + 3) / 4 * 16;
        return p;
    };
    w.lists = static_cast<tp_keyed *>(take(4 * n));
    w.bucket = static_cast<uint32_t *>(take(n));
    w.counts = static_cast<uint32_t *>(take(TP_SORT_DIGITS * tp_sort_tiles(n)));
    w.norm = static_cast<float *>(take(rows));
    w.before = static_cast<float *>(take(2 * rows));
    w.rotations = static_cast<float *>(take(drawn ? g.heads * g.dim * g.rounds * g.columns : 0));
    w.y = static_cast<float *>(take(rounded ? rows * g.dim : 0));
    return w;
}

/* Row i of a tile is the row of token[i], times factor[i] if factors exist; -1: zeros. */
template <class S> struct lsh_rows {
    const S *at; /* of the head, token 0 */
    const int *token;
    const float *factor;
    int width;
    __device__ float get(int row, int x, int dim) const
    {
        const int t = token[row];
        if (t < 0 || x >= dim) return 0.0f;
        const float v = tp_float(at[(int64_t)t * width + x]);
        return factor ? factor[row] * v : v;
    }
};

/* A head, a chunk of this round or the next, and 64 columns of the head. Blocks are numbered
 * columns first, then tile, chunk, head. */
struct lsh_block {
    int x0, tile, chunk, h, b;
    __device__ lsh_block(int slabs, int tiles, int chunks, int heads)
    {
        unsigned k = blockIdx.x;
        x0 = (int)(k % (unsigned)slabs) * ATTN_F32_TILE;
        k /= (unsigned)slabs;
        tile = (int)(k % (unsigned)tiles);
        k /= (unsigned)tiles;
        chunk = (int)(k % (unsigned)chunks);
        k /= (unsigned)chunks;
        h = (int)(k % (unsigned)heads);
        b = (int)(k / (unsigned)heads);
    }
};

/* The tokens of a tile of 64 queries and one of 64 keys, in shared memory; -1: none. */
struct lsh_tile {
    int query[ATTN_F32_TILE], key[ATTN_F32_TILE];
    float norm[ATTN_F32_TILE]; /* of the keys        */
    int hidden[ATTN_F32_TILE]; /* the key is padding */
};

template <class S> static __device__ inline int64_t lsh_head(const lsh<S> &p, const lsh_block &at)
{
    return (int64_t)at.b * p.heads + at.h;
}

/* Row 0 of the head in [B,N,H*D]. */
template <class S> static __device__ inline int64_t lsh_base(const lsh<S> &p, const lsh_block &at)
{
    return (int64_t)at.b * p.tokens * p.width + at.h * p.dim;
}

/* Copies entries [at, at + n) of the head, wrapped around, to [0,64). The caller adds barriers. */
template <class S>
static __device__ inline void lsh_take(const lsh<S> &p, const lsh_block &k, int64_t at, int n,
                                       int *to)
{
    const int i = (int)threadIdx.x;
    if (i >= ATTN_F32_TILE) return;
    int64_t e = at + i;
    if (e >= p.entries) e -= p.entries;
    to[i] = i < n ? p.order[lsh_head(p, k) * p.entries + e] : -1;
}

template <class S>
static __device__ inline void lsh_take_keys(const lsh<S> &p, const lsh_block &k, int64_t at, int n,
                                            lsh_tile *t)
{
    const int i = (int)threadIdx.x;
    lsh_take(p, k, at, n, t->key);
    if (i >= ATTN_F32_TILE) return;
    const int token = t->key[i];
    t->norm[i] = token < 0 ? 0.0f : p.norm[lsh_head(p, k) * p.tokens + token];
    t->hidden[i] = token >= 0 && p.mask && !p.mask[(int64_t)k.b * p.tokens + token];
}

template <class S>
static __device__ inline lsh_rows<S> lsh_of(const lsh<S> &p, const lsh_block &k, const S *from,
                                            const int *token, const float *factor)
{
    return { from + lsh_base(p, k), token, factor, p.width };
}

/* s = the logits of the tile, -inf without a key. Bit 4 r + c of the result: logit (r, c) was
 * replaced by a constant. */
template <class S>
static __device__ inline uint32_t lsh_logits(const lsh<S> &p, const lsh_block &k, const lsh_tile &t,
                                             float *stage, float s[4][4])
{
    const int ty = (int)threadIdx.x / 16, tx = (int)threadIdx.x % 16;
    uint32_t replaced = 0;
    attn_f32_clear(s);
    attn_f32_product<false>(s, stage, lsh_of(p, k, p.x, t.query, NULL), 0,
                            lsh_of(p, k, p.x, t.key, t.norm), 0, p.dim);
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const int key = t.key[4 * tx + c];
            const bool own = key == t.query[4 * ty + r], hidden = t.hidden[4 * tx + c];
            if (own || hidden || key < 0) replaced |= 1u << (4 * r + c);
            if (hidden) s[r][c] = (float)TP_LSH_PADDED;
            if (own) s[r][c] = (float)TP_LSH_OWN;
            if (key < 0) s[r][c] = -INFINITY;
        }
    return replaced;
}

/* Dropout factors of a tile of entries from `entry` by keys from the j-th that their chunk sees. */
template <class S>
static __device__ inline void lsh_keep(const lsh<S> &p, const lsh_block &k, int64_t entry, int j,
                                       float keep[4][4])
{
    const int ty = (int)threadIdx.x / 16, tx = (int)threadIdx.x % 16;
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const int64_t row = lsh_head(p, k) * p.entries + entry + 4 * ty + r;
            const tp_words<1> words(p.drop, TP_LSH_WORDS + row * p.keys + j + 4 * tx + c);
            keep[r][c] = words.drop(p.drop, 0, 1.0f);
        }
}

/* Computes factors that normalise keys of all heads and, if delta is set, rowsum(dO * O). One warp
 * per row. */
template <class S>
__global__ void __launch_bounds__(TP_THREADS) lsh_prepare(lsh<S> p, const S *y, float *norm)
{
    const int64_t rows = (int64_t)p.batch * p.tokens * p.heads;
    const int lane = (int)threadIdx.x % 32;
    for (int64_t r = tp_warp_number(); r < rows; r += tp_warps()) {
        float square = 0.0f, dot = 0.0f;
        for (int64_t i = r * p.dim + lane; i < (r + 1) * p.dim; i += 32) {
            square += tp_float(p.x[i]) * tp_float(p.x[i]);
            if (p.delta) dot += tp_float(y[i]) * tp_float(p.dy[i]);
        }
        square = tp_warp<tp_sum_of>(square);
        dot = tp_warp<tp_sum_of>(dot);
        const int64_t token = tp_div(r, p.heads), b = tp_div(token, p.tokens);
        const int64_t at = (b * p.heads + r - token * p.heads) * p.tokens + token - b * p.tokens;
        if (lane > 0) continue;
        norm[at] = tp_inverse_root((square / (float)p.dim + (float)TP_LSH_EPS) * (float)p.dim);
        if (p.delta) p.delta[at] = dot;
    }
}

template <class S> static tp_code lsh_prepare_rows(const tp_call *c, const lsh<S> &p, float *norm)
{
    return tp_launch(c, lsh_prepare<S>, tp_grid(c, (int64_t)p.batch * p.tokens * p.heads * 32),
                     TP_THREADS, 0, p, tp_in<S>(&c->y[LSH_Y]), norm);
}

#endif
