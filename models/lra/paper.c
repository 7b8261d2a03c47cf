/* paper.c - multiply-adds of the LRA encoders by the rule behind Table 1 of Transformer-LS, which counts those of the
 * official code, and 5 for each element of a layer norm. Softmax, activations and additions count nothing. */
#include "inner.h"

/* What a layer of n tokens takes more by that rule. */
static double more(const tp_lra_cfg *c, double n)
{
    const double d = (double)c->attn.dim, r = (double)c->attn.rank, h = c->attn.heads;
    switch (c->attn.kind) {
    case TP_LRA_NYSTROM: /* here F (Z (G v)), there (F Z) (G v) */
        return n == r ? 0.0 : h * n * r * r - r * r * d;
    case TP_LRA_PERFORMER: return n * r * h;  /* denominators                */
    case TP_LRA_NONE: return 2.0 * n * d * d; /* queries and keys            */
    default: return 0.0;
    }
}

/* The layers that a CLS beside the tokens passes through. */
static double cls_layers(const tp_lra_cfg *c)
{
    switch (c->pooling) {
    case TP_LRA_CLS_LAST: return 1.0;
    case TP_LRA_CLS_TOKEN: return c->layers;
    case TP_LRA_CLS_POOL: return c->attn.kind == TP_LRA_LS ? c->layers : 0.0;
    default: return 0.0;
    }
}

void tp__lra_paper(const void *cfg, int64_t tokens, tp_cost *cost)
{
    const tp_lra_cfg *c = cfg;
    const double N = (double)tp__lra_rows(c, tokens > 0 ? tokens : c->attn.length);
    const double d = (double)c->attn.dim, documents = c->pair ? 2.0 : 1.0;
    const double rest = d * d + 2.0 * d * (double)c->hidden + (double)c->attn.conv * d;
    double other = c->layers * more(c, N) - cls_layers(c) * d;
    if (tp__lra_has_embedding(
            c)) { /* the official code also computes the tokens' results of the last layer */
        other += N * rest;
        cost->norm += documents * N * d;
    }
    cost->paper += cost->beyond + documents * other;
}
