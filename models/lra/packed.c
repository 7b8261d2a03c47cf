/* packed.c - the encoder over packed documents: one row for each token, and one for each CLS.
 *
 * Rows of all CLS come before those of all tokens; only softmax attention, to which a CLS of TP_LRA_CLS_POOL is a
 * token, needs it in its document. */
#include "inner.h"

static tp_tensor first_rows(tp_tape *T, tp_tensor x, int64_t n)
{
    return tp_slice(T, x, 0, 0, n);
}

static tp_tensor later_rows(tp_tape *T, tp_tensor x, int64_t n)
{
    return tp_slice(T, x, 0, n, tp_dim(x, 0) - n);
}

/* ---- layers ---- */

static tp_tensor softmax(tp_tape *T, const tp_lra_attn *m, tp_tensor x, tp_packed of)
{
    const tp_attn_cfg c = { .heads = m->cfg.heads, .dropout = m->cfg.dropout };
    const tp_tensor q = tp_linear_forward(T, &m->q, x), k = tp_linear_forward(T, &m->k, x);
    const tp_tensor v = tp_linear_forward(T, &m->v, x);
    return tp_packed_attention(T, q, k, v, of, of, c);
}

/* cls: [n,d] or TP_NONE. The layer that ends the encoder returns the rows of the CLS only. */
static tp_tensor attention(tp_tape *T, const tp_lra_layer *layer, tp_tensor x, tp_tensor cls,
                           tp_packed of)
{
    const tp_lra_attn *m = &layer->attn;
    const tp__lra_batch batch = { .mask = TP_NONE, .packed = of };
    const int64_t d = m->cfg.dim;
    if (m->cfg.kind != TP_LRA_LS) {
        const tp_tensor y =
            m->cfg.kind == TP_LRA_NONE ? tp_linear_forward(T, &m->v, x) : softmax(T, m, x, of);
        return tp_linear_forward(T, &m->out, y);
    }
    if (tp_given(cls)) cls = tp_reshape(T, cls, TP_SHAPE(tp_dim(cls, 0), 1, d));
    const tp_tensor y = tp__lra_long_short(T, m, x, cls, batch, layer->ends);
    return layer->ends ? tp_reshape(T, y, TP_SHAPE(tp_dim(y, 0), d)) : y;
}

/* in: the rows of tokens, of TP_LRA_CLS_POOL after those of the CLS; the rows of an embedding as CLS, which enters
 * without norm1, or TP_NONE; offsets of the tokens -> [cls; x] + attention. */
static tp_tensor attend(tp_tape *T, const tp_lra_layer *m, int64_t longest, const tp_tensor *in)
{
    const tp_packed of = { in[2], longest };
    const tp_tensor u = tp_layernorm_forward(T, &m->norm1, in[0]);
    tp_enter(T, m->attn.path);
    const tp_tensor y = tp_leave(T, attention(T, m, u, in[1], of));
    tp_tensor x = in[0];
    if (tp_given(in[1])) x = m->ends ? in[1] : tp_concat(T, 0, in[1], in[0]);
    return tp_dropout_add(T, y, TP_NONE, x, m->dropout);
}

/* What is recomputed later cannot know the longest document, but it has at most as many tokens as the model. */
static int64_t bound(const tp_lra_layer *m)
{
    return m->attn.cfg.length - m->attn.cfg.cls_from_seq;
}

static tp_tensor attend_again(tp_tape *T, const void *self, int nx, const tp_tensor *in)
{
    (void)nx;
    return attend(T, self, bound(self), in);
}

static tp_tensor run_layer(tp_tape *T, const tp_lra_layer *m, int64_t longest, const tp_tensor *in)
{
    tp_enter(T, m->path);
    const tp_tensor x = m->recompute == TP_RECOMPUTE_ATTENTION
                            ? tp_checkpoint_n(T, attend_again, m, 3, in)
                            : attend(T, m, longest, in);
    return tp_leave(T, tp_mlp_forward(T, &m->mlp, tp_layernorm_forward(T, &m->norm2, x), x));
}

static tp_tensor run_again(tp_tape *T, const void *self, int nx, const tp_tensor *in)
{
    (void)nx;
    return run_layer(T, self, bound(self), in);
}

/* Replaces x and, if there is an embedding as CLS, *cls by the layer's results; x not by those of the layer that
 * ends the encoder. */
static tp_tensor pass(tp_tape *T, const tp_lra_layer *m, tp_tensor x, tp_tensor *cls, tp_packed of)
{
    const tp_tensor in[] = { x, *cls, of.offset };
    const tp_tensor y = m->recompute == TP_RECOMPUTE_BLOCK ? tp_checkpoint_n(T, run_again, m, 3, in)
                                                           : run_layer(T, m, of.longest, in);
    if (!tp_given(*cls)) return y;
    if (m->ends) return *cls = y;
    const int64_t n = tp_dim(*cls, 0);
    *cls = first_rows(T, y, n);
    return later_rows(T, y, n);
}

/* ---- embeddings ---- */

/* Words and positions; places: the table of positions or rows of it. */
static tp_tensor embed(tp_tape *T, const tp_lra *m, tp_tensor ids, tp_tensor places,
                       tp_tensor position)
{
    const tp_tensor x = tp_embedding_forward(T, &m->words, ids, 1.0);
    const tp_tensor at = tp_embedding(T, places, position, 1.0);
    return tp_cast(T, tp_add(T, x, tp_cast(T, at, tp_dtype_of(x))), tp_compute_dtype(T));
}

/* Puts the CLS of TP_LRA_CLS_POOL, token vocab - 1 at position 0 of each of n documents, before the tokens, which
 * begin at position 1. */
static tp_tensor with_token(tp_tape *T, const tp_lra *m, const tp_lra_packed *a, int64_t n,
                            tp_packed *of)
{
    const tp_tensor table = m->positions.weight;
    const tp_tensor cls =
        embed(T, m, tp_full(T, tp_dtype_of(a->ids), TP_SHAPE(n), (double)(m->cfg.vocab - 1)), table,
              tp_full(T, TP_I32, TP_SHAPE(n), 0.0));
    const tp_tensor x = embed(T, m, a->ids, later_rows(T, table, 1), a->position);
    if (m->cfg.attn.kind == TP_LRA_LS) return tp_concat(T, 0, cls, x);
    return tp_packed_prepend(T, cls, x, a->of, of);
}

/* ---- the encoder ---- */

/* The padded length. */
static int64_t length_of(const tp_lra_packed *a)
{
    return a->length ? a->length : a->of.longest;
}

bool tp_lra_packs(const tp_lra_cfg *cfg)
{
    if (!cfg) return false;
    const tp_lra_attn_cfg *c = &cfg->attn;
    if (c->kind == TP_LRA_LS) return !c->fixed && c->conv == 0;
    return c->kind == TP_LRA_SOFTMAX || c->kind == TP_LRA_NONE;
}

static bool check(tp_tape *T, const tp_lra *m, const tp_lra_packed *a)
{
    const tp_lra_attn_cfg *c = &m->cfg.attn;
    const int64_t most = c->length, length = length_of(a);
    if (!tp_ok(T)) return false;
    if (!tp_params_ok(m->params))
        tp_raise(T, TP_E_STATE, "%s", tp_params_why(m->params));
    else if (!tp_lra_packs(&m->cfg))
        tp_raise(T, TP_E_VALUE,
                 "only softmax attention, none, and long-short attention without fixed projections "
                 "and convolution take packed documents: pad them");
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

/* What stands for n documents, of the rows after all layers. */
static tp_tensor pool(tp_tape *T, const tp_lra *m, tp_tensor x, tp_packed of, int64_t n,
                      int64_t length)
{
    if (m->cfg.pooling == TP_LRA_MEAN) {
        x = tp_packed_sum(T, tp_layernorm_forward(T, &m->norm, x), of);
        return tp_scale(T, x, 1.0 / (double)length);
    }
    if (m->cfg.pooling == TP_LRA_CLS_POOL)
        x = m->cfg.attn.kind == TP_LRA_LS ? first_rows(T, x, n)
                                          : tp_index_select(T, x, 0, first_rows(T, of.offset, n));
    return tp_layernorm_forward(T, &m->norm, x);
}

tp_tensor tp_lra_encode_packed(tp_tape *T, const tp_lra *m, tp_lra_packed a)
{
    if (!tp_want_module(T, m, "lra")) return TP_NONE;
    const tp_lra_cfg *c = &m->cfg;
    tp_enter(T, m->path);
    if (!check(T, m, &a)) return tp_leave(T, TP_NONE);
    const int64_t n = tp_dim(a.of.offset, 0) - 1, d = c->attn.dim;
    const int enters = c->pooling == TP_LRA_CLS_TOKEN ? 0 : c->layers - 1;
    tp_packed of = a.of;
    tp_tensor cls = TP_NONE;
    tp_tensor x = c->pooling == TP_LRA_CLS_POOL
                      ? with_token(T, m, &a, n, &of)
                      : embed(T, m, a.ids, m->positions.weight, a.position);
    x = tp_dropout(T, x, c->dropout);
    for (int l = 0; l < c->layers; l++) {
        if (tp__lra_has_embedding(c) && l == enters) {
            const tp_tensor one = tp_reshape(T, m->cls, TP_SHAPE(1, d));
            cls = tp_expand(T, tp_cast(T, one, tp_dtype_of(x)), TP_SHAPE(n, d));
        }
        x = pass(T, &m->layer[l], x, &cls, of);
    }
    return tp_leave(T, pool(T, m, x, of, n, length_of(&a)));
}

tp_tensor tp_lra_forward_packed(tp_tape *T, const tp_lra *m, tp_lra_packed a, tp_lra_packed b)
{
    if (!tp_want_module(T, m, "lra")) return TP_NONE;
    const tp_tensor x = tp_lra_encode_packed(T, m, a);
    const tp_tensor y = tp_given(b.ids) ? tp_lra_encode_packed(T, m, b) : TP_NONE;
    return tp_lra_classify(T, m, x, y);
}
