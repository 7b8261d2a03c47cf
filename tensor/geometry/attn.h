/* attn.h - the geometry of attention: sizes, and the keys that a query sees. */
#ifndef TP_ATTN_H
#define TP_ATTN_H

#include <math.h>
#include <tapegrad/op.h>
#include <tapegrad/ops.h>

typedef struct tp_attn {
    int64_t batch, heads, queries, keys, dim, width; /* B, H, N, S, D, H * D */
    int64_t ahead, span;     /* S - N; most keys a query sees, 0: no limit */
    int64_t group, kv_width; /* query heads that share a head of k and v; H / group * D */
    int64_t room;            /* rows of k and v in a batch row; those after S are unused */
    bool causal, positions;
    bool shared; /* a bias [H,N,S] or positions: their gradients sum over the batch */
} tp_attn;

/* Query i sees the keys first <= j < end that the mask allows. */
static inline int64_t tp__first_key(const tp_attn *a, int64_t i)
{
    const int64_t first = i + a->ahead + 1 - a->span;
    return a->span && first > 0 ? first : 0;
}

static inline int64_t tp__end_key(const tp_attn *a, int64_t i)
{
    const int64_t end = i + a->ahead + 1;
    return !a->causal || end > a->keys ? a->keys : end > 0 ? end : 0;
}

/* The number of rows of k and v used. */
static inline int64_t tp__attn_keys(const tp_view *k, const tp_attn_cfg *cfg)
{
    return cfg->keys > 0 ? cfg->keys : k->dim[1];
}

/* The standard ALiBi slope of head h: 2^(-8 (h+1) / p) for the first p heads, p the largest power
 * of two that is at most H; then the odd ones of 2p. */
static inline double tp__alibi_slope(int heads, int h)
{
    int p = 1;
    while (p <= heads / 2) p *= 2;
    const double step = h < p ? h + 1 : h - p + 0.5;
    return exp2(-8.0 * step / p);
}

/* tp_packed_attention: inputs after q, k and v, and attributes. */
enum { PACKED_OF_Q = 3, PACKED_OF_K };
typedef struct tp_packed_attn {
    tp_attn_cfg cfg;
    int64_t queries, keys; /* of a longest document */
} tp_packed_attn;

/* x: inputs of tp_attention (q, k, v, mask, bias) or tp_rel_attention (q, k, v, pos, r_w, r_r). */
static inline tp_attn tp__attn(const tp_view *x, const tp_attn_cfg *cfg, bool positions)
{
    const tp_view *q = &x[0], *k = &x[1];
    const int64_t keys = tp__attn_keys(k, cfg), dim = q->dim[2] / cfg->heads;
    const int64_t group = cfg->kv_heads > 0 ? cfg->heads / cfg->kv_heads : 1;
    return (tp_attn){
        .batch = q->dim[0],
        .heads = cfg->heads,
        .queries = q->dim[1],
        .keys = keys,
        .dim = dim,
        .width = q->dim[2],
        .ahead = keys - q->dim[1],
        .span = positions ? cfg->max_span : 0,
        .group = group,
        .kv_width = cfg->heads / group * dim,
        .room = k->dim[1],
        .causal = positions || cfg->causal,
        .positions = positions,
        .shared = positions || x[4].ndim == 3,
    };
}

#endif
