/* ref_attention.c - attention in plain ops: matmul, where, softmax, dropout, gather. */
#include "ops/ref_attention.h"

#include <math.h>
#include <stdlib.h>

/* [B,N,H*D] -> [B,H,N,D] */
static tp_tensor split_heads(tp_tape *T, tp_tensor x, int64_t heads)
{
    const tp_shape s =
        TP_SHAPE(tp_dim(x, 0), tp_dim(x, 1), heads, heads ? tp_dim(x, 2) / heads : 0);
    return tp_permute(T, tp_reshape(T, x, s), TP_SHAPE(0, 2, 1, 3));
}

/* [B,H,N,D] -> [B,N,H*D] */
static tp_tensor join_heads(tp_tape *T, tp_tensor x)
{
    const tp_shape s = TP_SHAPE(tp_dim(x, 0), tp_dim(x, 2), tp_dim(x, 1) * tp_dim(x, 3));
    return tp_reshape(T, tp_permute(T, x, TP_SHAPE(0, 2, 1, 3)), s);
}

/* The visible keys of each query: u8 of the logits' shape [B,H,N,S]. */
static tp_tensor visible(tp_tape *T, tp_shape s, const uint8_t *mask, tp_attn_cfg cfg)
{
    const int64_t heads = s.dim[1], n = s.dim[2], keys = s.dim[3];
    uint8_t *see = malloc((size_t)(s.dim[0] * heads * n * keys) + 1), *to = see;
    for (int64_t b = 0; b < s.dim[0]; b++)
        for (int64_t row = 0; row < heads * n; row++)
            for (int64_t j = 0; j < keys; j++) {
                const int64_t distance = row % n + keys - n - j;
                *to++ = (!mask || mask[b * keys + j]) && (!cfg.causal || distance >= 0) &&
                        (!cfg.max_span || distance < cfg.max_span);
            }
    const tp_tensor t = tp_from(T, TP_U8, s, see);
    free(see);
    return t;
}

/* The result from logits [B,H,N,S] and values [B,S,H*D]. A query that sees no key has equal logits;
 * its probabilities are replaced by zeros. */
static tp_tensor attend(tp_tape *T, tp_tensor logits, tp_tensor v, const uint8_t *mask,
                        tp_attn_cfg cfg)
{
    const tp_shape s = tp_shape_of(logits);
    const tp_dtype dt = tp_dtype_of(logits);
    const tp_tensor see = visible(T, s, mask, cfg);
    tp_tensor p = tp_softmax(T, tp_where(T, see, logits, tp_full(T, dt, s, -1e30)));
    p = tp_dropout(T, tp_where(T, see, p, tp_full(T, dt, s, 0.0)), cfg.dropout);
    return join_heads(T, tp_matmul(T, p, split_heads(T, v, cfg.heads)));
}

static double scale_of(tp_attn_cfg cfg, tp_tensor q)
{
    const int64_t size = tp_dim(q, 2) / cfg.heads;
    return cfg.scale != 0.0 ? cfg.scale : 1.0 / sqrt((double)size);
}

tp_tensor ref_attention(tp_tape *T, tp_tensor q, tp_tensor k, tp_tensor v, const uint8_t *mask,
                        tp_tensor bias, tp_attn_cfg cfg)
{
    tp_tensor s =
        tp_matmul_t(T, split_heads(T, q, cfg.heads), false, split_heads(T, k, cfg.heads), true);
    s = tp_scale(T, s, scale_of(cfg, q));
    return attend(T, tp_given(bias) ? tp_add(T, s, bias) : s, v, mask, cfg);
}

/* Gathers the position logits (q + r_r) pos^T [B,H,N,S] at the distance of each key. */
static tp_tensor by_key(tp_tape *T, tp_tensor x)
{
    const tp_shape s = tp_shape_of(x);
    const int64_t n = s.dim[2], keys = s.dim[3], total = tp_numel(x);
    int64_t *at = malloc((size_t)(total + 1) * sizeof *at);
    for (int64_t e = 0; e < total; e++) {
        const int64_t distance = e / keys % n + keys - n - e % keys;
        at[e] = distance > 0 ? distance : 0;
    }
    const tp_tensor index = tp_from(T, TP_I64, s, at);
    free(at);
    return tp_gather(T, x, 3, index);
}

tp_tensor ref_rel_attention(tp_tape *T, tp_tensor q, tp_tensor k, tp_tensor v, tp_tensor pos,
                            tp_tensor r_w, tp_tensor r_r, tp_attn_cfg cfg)
{
    const int64_t width = tp_dim(q, 2), keys = tp_dim(k, 1);
    const tp_tensor q_w = tp_add(T, q, tp_reshape(T, r_w, TP_SHAPE(width)));
    const tp_tensor q_r = tp_add(T, q, tp_reshape(T, r_r, TP_SHAPE(width)));
    const tp_tensor rows = tp_expand(T, pos, TP_SHAPE(tp_dim(q, 0), keys, width));
    const tp_tensor content =
        tp_matmul_t(T, split_heads(T, q_w, cfg.heads), false, split_heads(T, k, cfg.heads), true);
    const tp_tensor position = tp_matmul_t(T, split_heads(T, q_r, cfg.heads), false,
                                           split_heads(T, rows, cfg.heads), true);
    const tp_tensor s = tp_scale(T, tp_add(T, content, by_key(T, position)), scale_of(cfg, q));
    cfg.causal = true;
    return attend(T, s, v, NULL, cfg);
}

tp_shape ref_attention_input(const ref_attention_case *p, int i)
{
    const int64_t width = p->H * p->D;
    if (i == 0) return TP_SHAPE(p->B, p->N, width);
    if (i < 3) return TP_SHAPE(p->B, p->S, width);
    if (p->relative) return i == 3 ? TP_SHAPE(p->S, width) : TP_SHAPE(p->H, p->D);
    if (i == 3 && p->bias == 3) return TP_SHAPE(p->H, p->N, p->S);
    if (i == 3 && p->bias == 4) return TP_SHAPE(p->B, p->H, p->N, p->S);
    return TP_SCALAR;
}

uint8_t *ref_attention_mask(const ref_attention_case *p)
{
    if (p->mask == NO_MASK) return NULL;
    uint8_t *m = malloc((size_t)(p->B * p->S) + 1);
    for (int64_t e = 0; e < p->B * p->S; e++)
        m[e] = e % 3 != 1 && (p->mask != BLIND || e < (p->B - 1) * p->S);
    return m;
}
