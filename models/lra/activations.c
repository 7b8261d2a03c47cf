/* activations.c - memory that a recorded forward pass of an LRA encoder saves for backward, without dropout, in
 * values of four bytes. */
#include "inner.h"

/* One layer of one sequence. */
typedef struct sizes {
    double rows, n,
        cls; /* of the layer's input; without a CLS among them; CLS beside the n: 0 or 1 */
    double d, h, r;
    bool ends; /* the tokens' results are not computed */
} sizes;

/* Input, output and statistics of a row norm. */
static double normed(double rows, double d)
{
    return 2.0 * rows * (d + 1.0);
}

/* A mask, a byte a token. */
static double mask(double n)
{
    return n / 4.0;
}

/* Queries, keys, values, result and the logarithms of the denominators of an attention. */
static double attended(double queries, double keys, const sizes *z)
{
    return 2.0 * (queries + keys) * z->d + queries * z->h;
}

/* Values without padding, the filters, and the sum with the attention's result. */
static double convolution(const tp_lra_attn_cfg *c, const sizes *z)
{
    return c->conv > 0 ? 2.0 * z->n * z->d + mask(z->n) + (double)c->conv * z->d : 0.0;
}

/* Keys and values are saved without padding for the mixtures, and mixed for the attention. */
static double linformer(const sizes *z)
{
    return attended(z->n, z->r, z) + 2.0 * z->n * z->d + 2.0 * mask(z->n);
}

/* Two attentions; landmarks and G v once more by head, and the product with the inverse; in each step towards the
 * inverse y and the left sides of three more products. */
static double nystrom(const sizes *z)
{
    const double n = z->n, square = z->h * z->r * z->r;
    if (n == z->r) return attended(n, n, z) + 2.0 * mask(n);
    return attended(z->r, n, z) + attended(n, z->r, z) + 2.0 * mask(n) + 3.0 * z->r * z->d +
           (3.0 + 6.0 * 4.0) * square;
}

/* With the order of all entries and two numbers a token. */
static double reformer(const tp_lra_attn_cfg *c, const sizes *z)
{
    const double all = c->rounds ? c->rounds : 2;
    const double rounds = z->n > (double)(c->chunk ? c->chunk : 64) ? all : 1.0;
    return 3.0 * z->n * z->d + z->h * z->n * (rounds + 2.0);
}

/* With the sums of features times values, and three numbers a token. */
static double kernel(const sizes *z, double features, double columns)
{
    return 4.0 * z->n * z->d + z->h * (features * columns + 3.0 * z->n);
}

static double long_short(const tp_lra_attn_cfg *c, const sizes *z)
{
    const double n = z->n, d = z->d, r = z->r, low = r + z->cls;
    const bool convolves = c->conv > 0 && !z->ends;
    double y = attended(n, n + low, z) + (convolves ? convolution(c, z) - n * d : 0.0);
    if (!c->raw_kv) y += 2.0 * (n + low) * (d + 2.0); /* inputs and statistics of the norms */
    if (r > 0.0) y += c->fixed ? 2.0 * n * d + 2.0 * mask(n) : n * z->h * r;
    if (c->raw_kv && !c->fixed) y += 2.0 * z->cls * r * d; /* before they are joined to the CLS */
    if (z->cls > 0.0) y += attended(1.0, n + 1.0, z) + mask(n + 1.0);
    if (z->ends) return y;
    return z->cls > 0.0 || convolves ? y + (n + z->cls) * d : y; /* joined or summed */
}

/* Everything that one attention saves beside its input. */
static double attention(const tp_lra_attn_cfg *c, const sizes *z)
{
    const double D = z->d / z->h;
    switch (c->kind) {
    case TP_LRA_LS: return long_short(c, z);
    case TP_LRA_SOFTMAX: return attended(z->n, z->n, z);
    case TP_LRA_LINFORMER: return linformer(z) + convolution(c, z);
    case TP_LRA_PERFORMER: return kernel(z, z->r, D + 1.0);
    case TP_LRA_NYSTROM: return nystrom(z) + convolution(c, z);
    case TP_LRA_REFORMER: return reformer(c, z);
    case TP_LRA_LINEAR: return kernel(z, D, D);
    default: return z->n * z->d;
    }
}

/* `made` rows leave the attention: those of the input and a CLS that is none of them. */
static double layer(const tp_lra_cfg *c, const sizes *z, double made)
{
    const double input = z->rows * z->d;
    if (c->recompute == TP_RECOMPUTE_BLOCK) return input;
    const double rest = normed(made, z->d) + 2.0 * made * (double)c->hidden;
    if (c->recompute == TP_RECOMPUTE_ATTENTION) return input + rest;
    return normed(z->rows, z->d) + attention(&c->attn, z) + rest;
}

/* Masks, layers, and the last norm. */
static double document(const tp_lra_cfg *c, double rows)
{
    const bool first = c->attn.kind == TP_LRA_LS && c->pooling == TP_LRA_CLS_POOL;
    const double d = (double)c->attn.dim;
    double values = mask(rows);
    for (int l = 0; l < c->layers; l++) {
        const bool last = l + 1 == c->layers;
        const bool beside =
            c->pooling == TP_LRA_CLS_TOKEN || (c->pooling == TP_LRA_CLS_LAST && last);
        const sizes z = { .rows = rows,
                          .n = first ? rows - 1.0 : rows,
                          .cls = first || beside,
                          .d = d,
                          .h = c->attn.heads,
                          .r = (double)c->attn.rank,
                          .ends = last && tp__lra_has_embedding(c) };
        values += layer(c, &z, z.ends ? 1.0 : beside ? rows + 1.0 : rows);
    }
    if (tp__lra_has_embedding(c)) return values + normed(1.0, d);
    return values + rows * (d + 2.0) + mask(rows);
}

double tp_lra_activations(const tp_lra_cfg *c, int64_t tokens)
{
    if (!c) return 0;
    const double rows = (double)tp__lra_rows(c, tokens > 0 ? tokens : c->attn.length);
    const double documents = c->pair ? 2.0 : 1.0, d = (double)c->attn.dim;
    const double head = (c->pair ? 6.0 : 1.0) * d + (double)(c->hidden + c->classes);
    return 4.0 * (documents * document(c, rows) + head);
}
