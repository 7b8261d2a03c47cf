/* flops.c - multiply-adds of the text models, and what training saves. Softmax, activations, additions and lookups
 * are not counted. Longformer projects global keys and values, as published; packed texts may not. Long-short layers are those of the encoders of lra.h with the first token as CLS. */
#include "inner.h"

/* The number of pairs of a query and a key at most `half` tokens apart, among n tokens. */
static double near(double n, double half)
{
    return half < n ? n * (2.0 * half + 1.0) - half * (half + 1.0) : n * n;
}

static tp_flops long_short(const tp_roberta_cfg *c, int64_t n)
{
    const tp_lra_cfg lra = { .attn = { .kind = TP_LRA_LS,
                                       .dim = c->dim,
                                       .heads = c->heads,
                                       .length = c->length,
                                       .rank = c->rank,
                                       .window = c->window,
                                       .raw_kv = c->raw_kv },
                             .layers = c->layers,
                             .hidden = c->hidden,
                             .pooling = TP_LRA_CLS_POOL };
    tp_flops y = tp_lra_flops(&lra, n - 1);
    y.macs -= (double)c->dim * (double)c->hidden; /* its classifier */
    return y;
}

tp_flops tp_roberta_flops(const tp_roberta_cfg *c, int64_t tokens)
{
    if (!c) return (tp_flops){ 0 };
    const int64_t own = tokens > 0 ? tokens : c->length, rows = tp__roberta_rows(c, own);
    const double n = (double)rows, d = (double)c->dim, L = c->layers;
    const double dense = n * (4.0 * d * d + 2.0 * d * (double)c->hidden);
    const bool global = c->head == TP_ROBERTA_CLS;
    tp_flops y = { .macs = L * (dense + 2.0 * n * n * d), .norm = (2.0 * L + 1.0) * n * d };
    if (c->kind == TP_ROBERTA_LS) y = long_short(c, rows);
    if (c->kind == TP_ROBERTA_LONGFORMER) {
        const double once = global ? d * d + 2.0 * n * d * d + 4.0 * n * d : 0.0;
        y.macs = L * (dense + 2.0 * near(n, (double)(c->window / 2)) * d + once);
    }
    if (c->head == TP_ROBERTA_CLS) {
        y.macs += d * d + d * (double)c->classes;
    } else {
        y.macs += (double)own * d * (d + (double)c->vocab);
        y.norm += (double)own * d;
    }
    y.paper = y.macs;
    return y;
}

/* A layer saves its input, queries, keys, values, the attention's result with its log-sum-exps, both inputs of norms
 * with two statistics each, the MLP's input and both sides of GELU. Longformer adds global keys and values and the
 * joined result; LS the tokens without the CLS, the joined result, keys and values before their norms, and what it
 * projects. */
double tp__roberta_activations(const tp_roberta_cfg *c, int64_t tokens)
{
    const double n = (double)tp__roberta_rows(c, tokens > 0 ? tokens : c->length);
    const double d = (double)c->dim, h = c->heads, r = (double)c->rank;
    double attention = n * (5.0 * d + h);
    if (c->kind == TP_ROBERTA_LONGFORMER && c->head == TP_ROBERTA_CLS) attention += 3.0 * n * d;
    if (c->kind == TP_ROBERTA_LS)
        attention += n * ((c->raw_kv ? 0.0 : 2.0 * d + 2.0) + 3.0 * d + h * r) + 6.0 * r * d;
    double layer = attention + n * (3.0 * d + 2.0 * (double)c->hidden + 4.0);
    if (c->recompute == TP_RECOMPUTE_ATTENTION) layer -= attention;
    if (c->recompute == TP_RECOMPUTE_BLOCK) layer = n * d;
    const double head = c->head == TP_ROBERTA_MLM ? n * (4.0 * d + (double)c->vocab) : 6.0 * d;
    return 4.0 * (n * (d + 2.0) + c->layers * layer + head);
}
