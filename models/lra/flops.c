/* flops.c - multiply-adds of the LRA encoders for sequences of the full length, by the rule behind Table 1 of
 * Transformer-LS: products and convolutions count, and each element of a layer norm as 5; softmax,
 * activations and additions do not. */
#include "inner.h"

typedef struct sizes {
    double n; /* tokens of the attention; of LS without a CLS among them */
    double d, h, r;
} sizes;

/* Multiply-adds of one attention beside its four projections. */
static double attention_macs(const tp_lra_attn_cfg *c, const sizes *z)
{
    const double n = z->n, d = z->d, r = z->r, D = z->d / z->h;
    int64_t b[2] = { c->buckets[0], c->buckets[1] };
    const int64_t chunk = c->chunk ? c->chunk : 64;

    switch (c->kind) {
    case TP_LRA_SOFTMAX: return 2.0 * n * n * d;
    case TP_LRA_LINFORMER: return 4.0 * n * r * d + (double)c->conv * n * d;
    case TP_LRA_PERFORMER: return 4.0 * n * r * d + n * r * z->h;
    case TP_LRA_NYSTROM:
        if (r == n) return 2.0 * n * n * d + (double)c->conv * n * d;
        return 4.0 * n * r * d + r * r * d + 24.0 * z->h * r * r * r + z->h * n * r * r +
               (double)c->conv * n * d;
    case TP_LRA_REFORMER:
        if (c->length <= chunk) return 2.0 * n * n * d - n * d * d;
        if (!b[0]) tp_lsh_buckets(c->length, c->length, chunk, b);
        return (c->rounds ? c->rounds : 2) *
                   (n * d * (double)(b[0] + b[1]) / 2.0 + 4.0 * n * (double)chunk * d) -
               n * d * d;
    case TP_LRA_LINEAR: return 2.0 * n * d * D;
    case TP_LRA_NONE: return 0.0;
    case TP_LRA_LS: break;
    }
    const double side = c->window > 1 ? (double)(c->window / 2) : 1.0;
    const double keys = c->window > 0 ? (double)c->window + 2.0 * side : r > 0.0 ? 0.0 : 1.0;
    return 4.0 * n * r * d + (c->fixed ? 0.0 : n * d * z->h * r) + 2.0 * n * keys * d +
           (double)c->conv * n * d;
}

/* The layers that a CLS passes through. */
static double cls_layers(const tp_lra_cfg *c)
{
    switch (c->pooling) {
    case TP_LRA_CLS_LAST: return 1.0;
    case TP_LRA_CLS_TOKEN: return c->layers;
    case TP_LRA_CLS_POOL: return c->attn.kind == TP_LRA_LS ? c->layers : 0.0;
    default: return 0.0;
    }
}

tp_flops tp_lra_flops(const tp_lra_cfg *c)
{
    const bool ls = c->attn.kind == TP_LRA_LS, row = c->pooling == TP_LRA_CLS_POOL;
    const double N = (double)c->attn.length, d = (double)c->attn.dim, r = (double)c->attn.rank;
    const double f = (double)c->hidden, L = c->layers, documents = c->pair ? 2.0 : 1.0;
    const sizes z = { .n = ls && row ? N - 1.0 : N, .d = d, .h = c->attn.heads, .r = r };
    const double with = cls_layers(c);
    const bool embedded = c->pooling == TP_LRA_CLS_LAST || c->pooling == TP_LRA_CLS_TOKEN;
    double macs = L * (N * (4.0 * d * d + 2.0 * d * f) + attention_macs(&c->attn, &z));
    double norm = L * 2.0 * N * d + (embedded ? d : N * d);

    macs += with * (4.0 * z.n * d + d);
    if (embedded) {
        macs += with * (4.0 * d * d + 2.0 * d * f);
        norm += with * d;
    }
    if (ls && !c->attn.raw_kv) norm += L * 2.0 * (z.n + r) * d + with * 2.0 * d;
    tp_flops y = { .norm = documents * norm };
    y.macs = documents * macs + (c->pair ? 4.0 : 1.0) * d * f + f * (double)c->classes;
    y.paper = y.macs;
    return y;
}
