/* activations.c - memory that a recorded forward pass of an LRA encoder saves for backward, without dropout, in
 * values. Masks, a byte a token, are left out. */
#include "inner.h"

/* One layer of one sequence. */
typedef struct sizes {
    double rows, n,
        cls; /* of the layer's input; without a CLS among them; CLS beside the n tokens: 0 or 1 */
    double d, h, r;
} sizes;

/* Output of a row norm and its statistics, the input included. */
static double normed(double rows, double d)
{
    return 2.0 * rows * (d + 1.0);
}

/* Long-short attention beside its input and its output. */
static double long_short(const tp_lra_attn_cfg *c, const sizes *z)
{
    const double n = z->n, d = z->d, r = z->r, low = r + z->cls;
    const double keys = (c->raw_kv ? 2.0 * n * d : 2.0 * normed(n, d)) +
                        (c->raw_kv || low == 0.0 ? 2.0 * low * d : 2.0 * normed(low, d));
    const double scores = r > 0.0 && !c->fixed ? n * z->h * r : 0.0;
    const double of_cls = z->cls * (d + 2.0 * (n + 1.0) * d + d + z->h);
    const double joined = z->cls > 0.0 || c->conv > 0 ? (n + z->cls) * d : 0.0;
    return n * d + keys + scores + n * d + n * z->h + of_cls + joined;
}

/* The six steps towards the pseudo-inverse: y, and the left sides of the three other products. */
static double nystrom(const sizes *z)
{
    const double n = z->n, d = z->d, r = z->r, square = z->h * r * r;
    if (n == r) return 4.0 * n * d + n * z->h;
    return 2.0 * n * d + square * (3.0 + 6.0 * 4.0) + n * d + n * d;
}

/* Everything that one attention saves beside its input. */
static double attention(const tp_lra_attn_cfg *c, const sizes *z)
{
    const double n = z->n, d = z->d, h = z->h, r = z->r;
    const double conv = c->conv > 0 ? n * d : 0.0;
    switch (c->kind) {
    case TP_LRA_SOFTMAX: return 4.0 * n * d + n * h;
    case TP_LRA_LINFORMER: return 4.0 * n * d + n * h + 2.0 * r * d + conv;
    case TP_LRA_PERFORMER: return 4.0 * n * d;
    case TP_LRA_LINEAR: return 4.0 * n * d;
    case TP_LRA_NYSTROM: return nystrom(z) + conv;
    case TP_LRA_REFORMER: return 3.0 * n * d;
    case TP_LRA_NONE: return n * d;
    case TP_LRA_LS: break;
    }
    return long_short(c, z);
}

/* The input of a layer, whose norm's statistics and result belong to the attention. */
static double layer(const tp_lra_cfg *c, const sizes *z)
{
    const double rows = z->rows + (c->attn.cls_from_seq ? 0.0 : z->cls), d = z->d;
    const double input = z->rows * d;
    if (c->recompute == TP_RECOMPUTE_BLOCK) return input;
    const double rest = normed(rows, d) + 2.0 * rows * (double)c->hidden;
    if (c->recompute == TP_RECOMPUTE_ATTENTION) return input + rest;
    return normed(z->rows, d) + attention(&c->attn, z) + rest;
}

double tp_lra_activations(const tp_lra_cfg *c, int64_t tokens)
{
    const bool ls = c->attn.kind == TP_LRA_LS;
    const bool first = ls && c->pooling == TP_LRA_CLS_POOL;
    const double rows = (double)tp__lra_rows(c, tokens > 0 ? tokens : c->attn.length);
    const double d = (double)c->attn.dim, documents = c->pair ? 2.0 : 1.0;
    double values = rows;

    for (int l = 0; l < c->layers; l++) {
        const bool enters =
            c->pooling == TP_LRA_CLS_TOKEN || (c->pooling == TP_LRA_CLS_LAST && l + 1 == c->layers);
        const sizes z = { .rows = rows,
                          .n = first ? rows - 1.0 : rows,
                          .cls = first || enters,
                          .d = d,
                          .h = c->attn.heads,
                          .r = ls || c->attn.kind != TP_LRA_REFORMER ? (double)c->attn.rank : 0.0 };
        values += layer(c, &z);
    }
    values += tp__lra_has_embedding(c) ? normed(1.0, d) : normed(rows, d);
    return 4.0 *
           (documents * values + (c->pair ? 6.0 : 1.0) * d + (double)(c->hidden + c->classes));
}
