/* attn.h - the geometry of attention: sizes, and the keys that a query sees. */
#ifndef TP_ATTN_H
#define TP_ATTN_H

#include <tapegrad/op.h>
#include <tapegrad/ops.h>

typedef struct tp_attn {
    int64_t batch, heads, queries, keys, dim, width; /* B, H, N, S, D, H * D              */
    int64_t ahead, span; /* S - N; most keys that a query sees, 0: no limit */
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

/* x: inputs of tp_attention (q, k, v, mask, bias) or tp_rel_attention (q, k, v, pos, r_w, r_r). */
static inline tp_attn tp__attn(const tp_view *x, const tp_attn_cfg *cfg, bool positions)
{
    const tp_view *q = &x[0], *k = &x[1];
    return (tp_attn){
        .batch = q->dim[0],
        .heads = cfg->heads,
        .queries = q->dim[1],
        .keys = k->dim[1],
        .dim = q->dim[2] / cfg->heads,
        .width = q->dim[2],
        .ahead = k->dim[1] - q->dim[1],
        .span = positions ? cfg->max_span : 0,
        .causal = positions || cfg->causal,
        .positions = positions,
        .shared = positions || x[4].ndim == 3,
    };
}

#endif
