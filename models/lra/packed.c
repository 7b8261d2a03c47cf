/* packed.c - the encoder over packed documents: one row for each token, and one for each CLS.
 *
 * Layers see the rows of all CLS, then those of all tokens; only softmax attention, to which a CLS of
 * TP_LRA_CLS_POOL is a token, needs it in its document. */
#include "inner.h"

/* The rows of a layer, [cls+M,d]: cls of them are CLS and no tokens. */
typedef struct rows {
    tp_tensor x;
    int64_t cls;
    tp_packed of;
} rows;

static tp_tensor first_rows(tp_tape *T, tp_tensor x, int64_t n)
{
    return tp_slice(T, x, 0, 0, n);
}

static tp_tensor later_rows(tp_tape *T, tp_tensor x, int64_t n)
{
    return tp_slice(T, x, 0, n, tp_dim(x, 0) - n);
}

static tp_tensor softmax(tp_tape *T, const tp_lra_attn *m, tp_tensor x, tp_packed of)
{
    const tp_attn_cfg c = { .heads = m->cfg.heads, .dropout = m->cfg.dropout };
    const tp_tensor q = tp_linear_forward(T, &m->q, x), k = tp_linear_forward(T, &m->k, x);
    const tp_tensor v = tp_linear_forward(T, &m->v, x);
    return tp_linear_forward(T, &m->out, tp_packed_attention(T, q, k, v, of, of, c));
}

/* A CLS that is an embedding enters the attention without norm1. */
static tp_tensor attend(tp_tape *T, const tp_lra_layer *m, const rows *r)
{
    const tp_lra_attn_cfg *c = &m->attn.cfg;
    const tp__lra_batch of = { .mask = TP_NONE, .packed = r->of };
    const bool own = r->cls > 0 && !c->cls_from_seq;
    const tp_tensor token = own ? later_rows(T, r->x, r->cls) : r->x;
    tp_tensor cls = TP_NONE;
    if (own) cls = tp_reshape(T, first_rows(T, r->x, r->cls), TP_SHAPE(r->cls, 1, c->dim));
    const tp_tensor x = tp_layernorm_forward(T, &m->norm1, token);
    tp_enter(T, m->attn.path);
    return tp_leave(T, c->kind == TP_LRA_LS ? tp__lra_long_short(T, &m->attn, x, cls, of, false)
                                            : softmax(T, &m->attn, x, r->of));
}

static void run_layer(tp_tape *T, const tp_lra_layer *m, rows *r)
{
    tp_enter(T, m->path);
    const tp_tensor x = tp_dropout_add(T, attend(T, m, r), TP_NONE, r->x, m->dropout);
    r->x = tp_leave(T, tp_mlp_forward(T, &m->mlp, tp_layernorm_forward(T, &m->norm2, x), x));
}

/* Words and positions; places: the table of positions or rows of it. */
static tp_tensor embed(tp_tape *T, const tp_lra *m, tp_tensor ids, tp_tensor places,
                       tp_tensor position)
{
    const tp_tensor x = tp_embedding_forward(T, &m->words, ids, 1.0);
    const tp_tensor at = tp_embedding(T, places, position, 1.0);
    return tp_cast(T, tp_add(T, x, tp_cast(T, at, tp_dtype_of(x))), tp_compute_dtype(T));
}

/* The first rows of TP_LRA_CLS_POOL: token vocab - 1 at position 0 of each of n documents; the tokens of
 * documents begin at position 1. */
static rows with_token(tp_tape *T, const tp_lra *m, const tp_lra_packed *a, int64_t n)
{
    const tp_tensor table = m->positions.weight;
    const tp_tensor cls =
        embed(T, m, tp_full(T, tp_dtype_of(a->ids), TP_SHAPE(n), (double)(m->cfg.vocab - 1)), table,
              tp_full(T, TP_I32, TP_SHAPE(n), 0.0));
    const tp_tensor x = embed(T, m, a->ids, later_rows(T, table, 1), a->position);
    rows r = { .cls = n, .of = a->of };
    if (m->cfg.attn.kind == TP_LRA_LS)
        r.x = tp_concat(T, 0, cls, x);
    else
        r.x = tp_packed_prepend(T, cls, x, a->of, &r.of);
    if (m->cfg.attn.kind != TP_LRA_LS) r.cls = 0;
    return r;
}

static rows begin(tp_tape *T, const tp_lra *m, const tp_lra_packed *a, int64_t n)
{
    rows r = { .of = a->of };
    if (m->cfg.pooling == TP_LRA_CLS_POOL)
        r = with_token(T, m, a, n);
    else
        r.x = embed(T, m, a->ids, m->positions.weight, a->position);
    r.x = tp_dropout(T, r.x, m->cfg.dropout);
    return r;
}

/* What stands for the documents, of the rows after all layers. */
static tp_tensor pool(tp_tape *T, const tp_lra *m, const rows *r, int64_t n, int64_t length)
{
    tp_tensor x = r->x;
    if (m->cfg.pooling == TP_LRA_MEAN) {
        x = tp_packed_sum(T, tp_layernorm_forward(T, &m->norm, x), r->of);
        return tp_scale(T, x, 1.0 / (double)length);
    }
    if (r->cls > 0)
        x = first_rows(T, x, n);
    else
        x = tp_index_select(T, x, 0, first_rows(T, r->of.offset, n));
    return tp_layernorm_forward(T, &m->norm, x);
}

/* The padded length. */
static int64_t length_of(const tp_lra_packed *a)
{
    return a->length ? a->length : a->of.longest;
}

static bool check(tp_tape *T, const tp_lra *m, const tp_lra_packed *a)
{
    const tp_lra_attn_cfg *c = &m->cfg.attn;
    const int64_t most = c->length, length = length_of(a);
    if (!tp_ok(T)) return false;
    if (!tp_params_ok(m->params))
        tp_raise(T, TP_E_STATE, "%s", tp_params_why(m->params));
    else if (c->kind != TP_LRA_SOFTMAX && (c->kind != TP_LRA_LS || c->fixed || c->conv > 0))
        tp_raise(T, TP_E_VALUE,
                 "only softmax attention and long-short attention without fixed projections and "
                 "convolution take packed documents: pad them");
    else if (tp_ndim(a->of.offset) != 1 || tp_dim(a->of.offset, 0) < 1)
        tp_raise(T, TP_E_SHAPE, "the offsets must be [documents + 1]");
    else if (tp_ndim(a->ids) != 1 || tp_ndim(a->position) != 1 ||
             tp_dim(a->ids, 0) != tp_dim(a->position, 0))
        tp_raise(T, TP_E_SHAPE, "ids and positions must be vectors of one size");
    else if (length < a->of.longest)
        tp_raise(T, TP_E_VALUE, "a padded length of %lld is less than the longest document, %lld",
                 (long long)length, (long long)a->of.longest);
    else if (length < 1 || length > most)
        tp_raise(T, TP_E_SHAPE, "documents have 1 to %lld tokens in this model, not %lld",
                 (long long)most, (long long)length);
    return tp_ok(T);
}

tp_tensor tp_lra_encode_packed(tp_tape *T, const tp_lra *m, tp_lra_packed a)
{
    if (!tp_want_module(T, m, "lra")) return TP_NONE;
    const tp_lra_cfg *c = &m->cfg;
    tp_enter(T, m->path);
    if (!check(T, m, &a)) return tp_leave(T, TP_NONE);
    const int64_t n = tp_dim(a.of.offset, 0) - 1, d = c->attn.dim;
    const bool embedding = c->pooling == TP_LRA_CLS_LAST || c->pooling == TP_LRA_CLS_TOKEN;
    const int enters = c->pooling == TP_LRA_CLS_TOKEN ? 0 : c->layers - 1;
    rows r = begin(T, m, &a, n);
    for (int l = 0; l < c->layers; l++) {
        if (embedding && l == enters) {
            const tp_tensor one = tp_reshape(T, m->cls, TP_SHAPE(1, d));
            const tp_tensor cls = tp_expand(T, tp_cast(T, one, tp_dtype_of(r.x)), TP_SHAPE(n, d));
            r.x = tp_concat(T, 0, cls, r.x);
            r.cls = n;
        }
        run_layer(T, &m->layer[l], &r);
    }
    return tp_leave(T, pool(T, m, &r, n, length_of(&a)));
}

tp_tensor tp_lra_forward_packed(tp_tape *T, const tp_lra *m, tp_lra_packed a, tp_lra_packed b)
{
    if (!tp_want_module(T, m, "lra")) return TP_NONE;
    const tp_tensor x = tp_lra_encode_packed(T, m, a);
    const tp_tensor y = tp_given(b.ids) ? tp_lra_encode_packed(T, m, b) : TP_NONE;
    return tp_lra_classify(T, m, x, y);
}
