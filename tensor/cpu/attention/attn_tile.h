/* attn_tile.h - attention on the CPU: a call, and a tile of it. */
#ifndef TP_ATTN_TILE_H
#define TP_ATTN_TILE_H

#include "tensor/cpu/attention/attn_scratch.h"
#include "tensor/cpu/kit/philox_words.h"
#include "tensor/cpu/kit/real.h"
#include "tensor/kernel.h"

typedef struct attn {
    tp_attn g;
    tp_attn_cut cut;
    tp_attn_scratch at;
    tp_rng rng;
    uint32_t drop_below; /* 0: no dropout */
    bool pairs;          /* products in bf16: pairs.h */
    int64_t step;        /* tiles begin at multiples of it in packed keys; 1: nothing is packed */
    /* Of queries and their gradients. With pairs, of logits and theirs, so that bf16 operands stay exact. */
    real scale;
    real keep_scale;
    const real *q, *k, *v, *bias, *pos, *r_w, *r_r, *dout;
    const real *slopes; /* ALiBi's [H], or NULL */
    bool alibi;         /* the standard ones    */
    const uint8_t *mask;
    int64_t bias_batch; /* elements of bias for each batch row; 0: one bias for all */
    real *out, *lse;    /* written by forward, read by backward         */
    real *dq, *dk, *dv, *dbias, *dpos;
    real *dr;        /* [H][nq][2][D]: parts of the gradients of r_w and r_r */
    double *dslopes; /* [B][H][nk]: parts of the gradient of the slopes      */
    real *work;
    int64_t phase;
    /* Dropout takes element [B,H,drop_queries,drop_keys], row drop_first + b of B: those of the padded
     * documents if this is one of several. */
    int64_t drop_first, drop_queries, drop_keys;
} attn;

/* m queries from i and n keys from j of one head, with the scratch of the thread. The keys are some of the `count`
 * packed ones from `first` on. */
typedef struct tile {
    int64_t b, h, i, m, j, n, first, count;
    real slope;     /* ALiBi's, of the head    */
    double dslope;  /* its gradient            */
    tp_words words; /* random words of dropout */
    real *scratch;
    real *q, *out, *row; /* of these queries, see attn_scratch.h */
    real *s;             /* logits, then probabilities; in backward, gradients of the logits */
    int64_t ld_s, ld;
} tile;

/* Offset of row r of the tile in q and in the result. */
static inline int64_t query_at(const attn *a, const tile *t, int64_t r)
{
    return (t->b * a->g.queries + t->i + r) * a->g.width + t->h * a->g.dim;
}

/* Offset of key j in k and v. */
static inline int64_t key_at(const attn *a, const tile *t, int64_t j)
{
    return (t->b * a->g.room + j) * a->g.kv_width + t->h / a->g.group * a->g.dim;
}

#endif
