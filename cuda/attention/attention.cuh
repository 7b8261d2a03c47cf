/* attention.cuh - full and relative attention: the problem, visibility of keys, dropout. */
#ifndef TP_ATTENTION_CUH
#define TP_ATTENTION_CUH

#include <tapegrad/ops.h>

#include "cuda/kit/kernel.cuh"
#include "tensor/geometry/attn.h"
#include "tensor/geometry/packed.h"

/* The destination of a gradient: in S, or in f32 if it belongs to a parameter. */
template <class S> struct attn_sink {
    void *to; /* NULL: not wanted */
    bool f32;
    __device__ void put(int64_t i, float v) const
    {
        if (f32)
            tp_put(static_cast<float *>(to) + i, v);
        else
            tp_put(static_cast<S *>(to) + i, v);
    }
    /* Skips n elements. */
    __device__ void move(int64_t n)
    {
        if (to) to = static_cast<char *>(to) + n * (int64_t)(f32 ? sizeof(float) : sizeof(S));
    }
};

/* Queries [B,N,H*D], keys and values [B,S,H*D], positions [S,H*D]. NULL: absent, not requested, or
 * unused in this pass. */
template <class S> struct attn {
    int batch, heads, queries, keys, dim, width;
    int ahead;           /* S - N                                             */
    int span;            /* distances that a query sees; 0: no limit          */
    int group, kv_width; /* query heads per head of k and v; width of k and v */
    int room;            /* rows of k and v in a batch row; `keys` are used   */
    bool causal;
    bool sloped, biased; /* ALiBi's slopes; a bias or slopes             */
    int power;           /* the largest power of two up to H, for slopes */
    float scale, keep_scale;
    uint32_t drop_below; /* 0: no dropout */
    tp_random random;
    int64_t bias_batch; /* elements of bias per batch row; 0: one bias for all */
    const S *q, *k, *v, *pos, *r_w, *r_r, *bias, *slopes, *dout;
    const uint8_t *mask;
    S *out;
    float *lse;     /* [B,H,N]                                                           */
    float *biases;  /* [B+1,H,S], bf16: r_w k, then r_r pos                              */
    float *delta;   /* [B,H,N]: rowsum(dO * O)                                           */
    float *dr;      /* [B * query tiles][2][H*D]: parts of dr_w and dr_r, or NULL        */
    float *dpos;    /* [splits][S][H*D]: parts of dpos                                   */
    float *dslopes; /* [B][query tiles][H]: parts of the gradient of the slopes, or NULL */
    int splits;
    attn_sink<S> dq, dk, dv, dbias;
    tp_packing of_q, of_k; /* packed documents; queries, keys and room are those of the longest */
    bool packed;
    int drop_queries, drop_keys; /* dropout's element is one of [B,H,drop_queries,drop_keys] */
};

template <class S> static inline attn_sink<S> attn_sink_of(const tp_view *v)
{
    return { v->data, v->dtype == TP_F32 };
}

template <class S> static attn<S> attn_problem(const tp_call *c, bool positions)
{
    const tp_attn_cfg *cfg = static_cast<const tp_attn_cfg *>(c->attr);
    const int64_t dim = c->x[0].dim[2] / cfg->heads;
    attn<S> p = {};
    p.batch = (int)c->x[0].dim[0];
    p.heads = cfg->heads;
    p.queries = (int)c->x[0].dim[1];
    p.room = (int)c->x[1].dim[1];
    p.keys = (int)tp__attn_keys(&c->x[1], cfg);
    p.dim = (int)dim;
    p.width = (int)c->x[0].dim[2];
    p.group = cfg->kv_heads > 0 ? cfg->heads / cfg->kv_heads : 1;
    p.kv_width = (int)c->x[1].dim[2];
    p.ahead = p.keys - p.queries;
    p.drop_queries = p.queries;
    p.drop_keys = p.keys;
    p.span = positions ? (int)min(cfg->max_span, c->x[1].dim[1]) : 0;
    p.causal = positions || cfg->causal;
    p.scale = (float)(cfg->scale != 0.0 ? cfg->scale : dim ? 1.0 / sqrt((double)dim) : 1.0);
    const bool drop = c->train && cfg->dropout > 0.0;
    p.keep_scale = drop ? (float)(1.0 / (1.0 - cfg->dropout)) : 1.0f;
    p.drop_below = drop ? tp__drop_below(cfg->dropout) : 0;
    p.random = tp_random_of(c);
    p.q = tp_in<S>(&c->x[0]);
    p.k = tp_in<S>(&c->x[1]);
    p.v = tp_in<S>(&c->x[2]);
    if (positions) {
        p.pos = tp_in<S>(&c->x[3]);
        p.r_w = tp_in<S>(&c->x[4]);
        p.r_r = tp_in<S>(&c->x[5]);
    } else {
        p.mask = tp_absent(&c->x[3]) ? NULL : tp_in<uint8_t>(&c->x[3]);
        const S *bias = tp_absent(&c->x[4]) ? NULL : tp_in<S>(&c->x[4]);
        p.slopes = c->x[4].ndim == 1 ? bias : NULL;
        p.bias = c->x[4].ndim == 1 ? NULL : bias;
        p.sloped = p.slopes || cfg->alibi;
        p.biased = p.bias || p.sloped;
        for (p.power = 1; p.power <= p.heads / 2;) p.power *= 2;
        p.bias_batch = c->x[4].ndim == 4 ? (int64_t)p.heads * p.queries * p.keys : 0;
    }
    p.out = tp_out<S>(&c->y[0]);
    p.lse = tp_out<float>(&c->y[1]);
    return p;
}

/* Problem of packed documents: q, k, v and two offsets. */
template <class S> static attn<S> attn_packed_problem(const tp_call *c)
{
    const tp_packed_attn *a = static_cast<const tp_packed_attn *>(c->attr);
    const int64_t n = c->x[PACKED_OF_Q].dim[0] - 1;
    tp_view x[5] = {};
    tp_call padded = *c;
    for (int i = 0; i < 5; i++) x[i].ndim = -1;
    for (int i = 0; i < 3; i++) {
        x[i] = c->x[i];
        x[i].ndim = 3;
        x[i].dim[0] = n;
        x[i].dim[1] = i == 0 ? a->queries : a->keys;
        x[i].dim[2] = c->x[i].dim[1];
    }
    padded.x = x;
    padded.attr = &a->cfg;
    attn<S> p = attn_problem<S>(&padded, false);
    p.packed = true;
    p.of_q = tp__packing(&c->x[PACKED_OF_Q], c->x[0].dim[0], a->queries);
    p.of_k = tp__packing(&c->x[PACKED_OF_K], c->x[1].dim[0], a->keys);
    return p;
}

/* If PACKED, document b as row b of a batch of its length; otherwise the whole problem. */
template <bool PACKED, class S>
using attn_part = typename std::conditional<PACKED, const attn<S>, const attn<S> &>::type;

template <bool PACKED, class S>
static __device__ inline attn_part<PACKED, S> attn_document(const attn<S> &all, int b)
{
    if constexpr (PACKED) {
        const tp_rows q = tp__document(&all.of_q, b), k = tp__document(&all.of_k, b);
        /* Rows before such a batch, if positive. */
        const int64_t of_q = q.first - b * q.count, of_k = k.first - b * k.count;
        attn<S> p = all;
        p.queries = (int)q.count;
        p.keys = p.room = (int)k.count;
        p.ahead = p.keys - p.queries;
        p.q += of_q * p.width;
        p.k += of_k * p.kv_width;
        p.v += of_k * p.kv_width;
        p.out += of_q * p.width;
        p.lse += of_q * p.heads;
        if (p.dout) p.dout += of_q * p.width, p.delta += of_q * p.heads;
        p.dq.move(of_q * p.width);
        p.dk.move(of_k * p.kv_width);
        p.dv.move(of_k * p.kv_width);
        return p;
    } else {
        return all;
    }
}

TP_HD static inline int attn_tiles(int n, int tile)
{
    return (n + tile - 1) / tile;
}

/* Fails the call if a launch cannot have this many blocks. Packed documents are tiled as if each
 * were as long as the longest. */
static inline tp_code attn_check_blocks(const tp_call *c, int64_t blocks)
{
    if (blocks <= INT32_MAX) return TP_OK;
    return tp__cuda_fail(c, TP_E_SHAPE,
                         "%lld blocks of threads (documents or batch rows, times tiles of rows of "
                         "the longest, times heads), but a launch has at most %d; split the batch",
                         (long long)blocks, INT32_MAX);
}

/* Keys visible to queries first..last are in [begin, end). */
template <class S> static __device__ inline int attn_begin_key(const attn<S> &p, int first)
{
    return p.span ? max(first + p.ahead + 1 - p.span, 0) : 0;
}
template <class S> static __device__ inline int attn_end_key(const attn<S> &p, int last)
{
    return p.causal ? max(min(last + p.ahead + 1, p.keys), 0) : p.keys;
}

/* The queries that see one of keys first..last are in [begin, end). */
template <class S> static __device__ inline int attn_begin_query(const attn<S> &p, int first)
{
    return p.causal ? max(first - p.ahead, 0) : 0;
}
template <class S> static __device__ inline int attn_end_query(const attn<S> &p, int last)
{
    return p.span ? max(min(last - p.ahead + p.span, p.queries), 0) : p.queries;
}

/* ALiBi's slope of a head: given, or the standard one. */
template <class S> static __device__ inline float attn_slope(const attn<S> &p, int h)
{
    if (p.slopes) return tp_float(p.slopes[h]);
    const float step = h < p.power ? (float)(h + 1) : (float)(h - p.power) + 0.5f;
    return exp2f(-8.0f * step / (float)p.power);
}

/* ALiBi's term of the logit of query i and key j, for a slope of 1. */
template <class S> static __device__ inline float attn_distance(const attn<S> &p, int i, int j)
{
    return -fabsf((float)(i + p.ahead - j));
}

/* The bias of query i and key j, 0 without one. */
template <class S>
static __device__ inline float attn_bias(const attn<S> &p, int b, int h, int i, int j)
{
    float sum = 0.0f;
    if (p.bias)
        sum = tp_float(p.bias[b * p.bias_batch + ((int64_t)h * p.queries + i) * p.keys + j]);
    return p.sloped ? sum + attn_slope(p, h) * attn_distance(p, i, j) : sum;
}

/* Row i of the probabilities [B,H,N,S] of batch row b and head h. */
template <class S> static __device__ inline int64_t attn_row(const attn<S> &p, int b, int h, int i)
{
    return ((int64_t)b * p.heads + h) * p.queries + i;
}

/* The dropout element of query i and key j. */
template <class S>
static __device__ inline int64_t attn_element(const attn<S> &p, int b, int h, int i, int j)
{
    return (((int64_t)b * p.heads + h) * p.drop_queries + i) * p.drop_keys + j;
}

/* Decides which elements of the probabilities [B,H,N,S] to drop; neighbours share random words. */
struct attn_dropout {
    int64_t block;
    tp_philox words;
    __device__ attn_dropout() : block(-1), words() {}
    template <class S> __device__ bool drops(const attn<S> &p, int64_t e)
    {
        if (e >> 2 != block) {
            block = e >> 2;
            words = tp_random_block(p.random, (uint64_t)block);
        }
        const uint32_t even = e & 2 ? words.w[2] : words.w[0];
        const uint32_t odd = e & 2 ? words.w[3] : words.w[1];
        return (e & 1 ? odd : even) < p.drop_below;
    }
};

#endif
