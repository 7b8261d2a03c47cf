/* flops.c - multiply-adds of the LRA encoders: of this library's products and convolutions, and by the rule
 * behind Table 1 of Transformer-LS, which counts those of the official code. Softmax, activations and additions
 * count nothing in either; the paper adds 5 for each element of a layer norm. */
#include "inner.h"

/* A sequence in one layer: n tokens, of LS without a CLS among them. */
typedef struct sizes {
    double n, d, h, r;
} sizes;

/* Keys that a token of LS sees around itself; the official code also computes scores beyond the ends. */
static double near(const tp_lra_attn_cfg *c)
{
    const double side = c->window > 1 ? (double)(c->window / 2) : 1.0;
    return c->window > 0 ? (double)c->window + 2.0 * side : c->rank > 0 ? 0.0 : 1.0;
}

/* Pairs of a query and a key beyond the ends. */
static double beyond(const tp_lra_attn_cfg *c)
{
    return c->window > 0 ? (near(c) - (double)c->window) * (double)c->window : 0.0;
}

static void add_long_short(const tp_lra_attn_cfg *c, const sizes *z, tp_flops *y)
{
    const double n = z->n, d = z->d, r = z->r, pairs = n * near(c);
    const double rest =
        4.0 * n * r * d + (c->fixed ? 0.0 : n * d * z->h * r) + (double)c->conv * n * d;
    y->macs += rest + 2.0 * (pairs - beyond(c)) * d;
    y->paper += rest + 2.0 * pairs * d;
}

/* Here F (Z (G v)), in the official code (F Z) (G v). */
static void add_nystrom(const tp_lra_attn_cfg *c, const sizes *z, tp_flops *y)
{
    const double n = z->n, d = z->d, r = z->r, conv = (double)c->conv * n * d;
    const double both = 4.0 * n * r * d + r * r * d + 24.0 * z->h * r * r * r + conv;
    const bool full = n == r;
    y->macs += full ? 2.0 * n * n * d + conv : both + r * r * d;
    y->paper += full ? 2.0 * n * n * d + conv : both + z->h * n * r * r;
}

/* Queries are keys, so that there is a projection less. */
static void add_reformer(const tp_lra_attn_cfg *c, const sizes *z, tp_flops *y)
{
    const int64_t n = (int64_t)z->n, chunk = c->chunk ? c->chunk : 64;
    const double rounds = c->rounds ? c->rounds : 2;
    int64_t b[2] = { c->buckets[0], c->buckets[1] };
    if (!b[0]) tp_lsh_buckets(n, c->length, chunk, b);
    const double columns = (double)(b[0] + b[1]) / 2.0;
    const double keys = n <= chunk ? 2.0 * z->n : rounds * (columns + 4.0 * (double)chunk);
    y->macs += z->n * z->d * (keys - z->d);
    y->paper += z->n * z->d * (keys - z->d);
}

/* Adds one attention beside its four projections. */
static void add_attention(const tp_lra_attn_cfg *c, const sizes *z, tp_flops *y)
{
    const double n = z->n, d = z->d, r = z->r;
    double both = 0.0;
    switch (c->kind) {
    case TP_LRA_LS: add_long_short(c, z, y); break;
    case TP_LRA_NYSTROM: add_nystrom(c, z, y); break;
    case TP_LRA_REFORMER: add_reformer(c, z, y); break;
    case TP_LRA_SOFTMAX: both = 2.0 * n * n * d; break;
    case TP_LRA_LINFORMER: both = 4.0 * n * r * d + (double)c->conv * n * d; break;
    case TP_LRA_LINEAR: both = 2.0 * n * d * d / z->h; break;
    case TP_LRA_PERFORMER:
        both = 4.0 * n * r * d;
        y->paper += n * r * z->h; /* denominators */
        break;
    case TP_LRA_NONE: y->macs -= 2.0 * n * d * d; break; /* no queries and keys */
    }
    y->macs += both;
    y->paper += both;
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

tp_flops tp_lra_flops(const tp_lra_cfg *c, int64_t tokens)
{
    if (!c) return (tp_flops){ 0 };
    const bool ls = c->attn.kind == TP_LRA_LS, first = ls && c->pooling == TP_LRA_CLS_POOL;
    const bool embedded = tp__lra_has_embedding(c);
    const double N = (double)tp__lra_rows(c, tokens > 0 ? tokens : c->attn.length);
    const double d = (double)c->attn.dim, f = (double)c->hidden, L = c->layers;
    const double documents = c->pair ? 2.0 : 1.0, dense = 4.0 * d * d + 2.0 * d * f;
    const double with = cls_layers(c);
    const sizes z = { first ? N - 1.0 : N, d, c->attn.heads, (double)c->attn.rank };
    tp_flops layer = { .macs = N * dense, .paper = N * dense }, y = { 0 };

    add_attention(&c->attn, &z, &layer);
    y.macs = L * layer.macs + with * (4.0 * z.n + 2.0) * d;
    y.paper = L * layer.paper + with * (4.0 * z.n + 1.0) * d;
    y.norm = L * 2.0 * N * d + (embedded ? d : N * d);
    if (embedded) { /* the last layer computes no results of tokens */
        y.macs += with * dense - N * (dense - 3.0 * d * d + (double)c->attn.conv * d);
        y.paper += with * dense;
        y.norm += with * d;
    }
    if (ls && !c->attn.raw_kv) y.norm += L * 2.0 * (z.n + z.r) * d + with * 2.0 * d;
    const double head = (c->pair ? 4.0 : 1.0) * d * f + f * (double)c->classes;
    y.macs = documents * y.macs + head;
    y.paper = documents * y.paper + head;
    y.norm *= documents;
    return y;
}
