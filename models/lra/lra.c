/* lra.c - the encoder of the Long Range Arena and its classifiers.
 *
 *     x = words[ids] + positions
 *     x = x + attn(norm1(x)),  x = x + mlp(norm2(x))      for each layer
 *     z = head(pool(norm(x)))
 *
 * A CLS embedding c is not a token: [c; x] + attn(norm1(x), c), so it bypasses norm1.
 *
 * Packed documents have one row per token and per CLS. All CLS rows precede all token rows; only
 * softmax attention, where the CLS of TP_LRA_CLS_POOL is a token, needs it in its document. */
#include <stdio.h>
#include <string.h>
#include <tapegrad/random.h>

#include "inner.h"
#include "parts.h"

/* ---- parameters ---- */

static void init_layer(tp_params *P, tp_lra_layer *m, const char *name, const tp_lra_cfg *c,
                       tp_tensor mix)
{
    tp_lra_attn_cfg attn = c->attn;
    attn.cls_from_seq = c->pooling == TP_LRA_CLS_POOL && attn.kind == TP_LRA_LS;
    attn.length = tp__lra_rows(c, attn.length);
    m->path = tp_push(P, name);
    m->dropout = c->dropout;
    m->recompute = c->recompute;
    tp_layernorm_init(P, &m->norm1, "norm1", attn.dim, 1e-5);
    m->attn.mix = mix;
    tp__lra_attn_init(P, &m->attn, "mha", &attn);
    tp_layernorm_init(P, &m->norm2, "norm2", attn.dim, 1e-5);
    tp_mlp_init(P, &m->mlp, "mlpblock.0", "mlpblock.3", attn.dim, c->hidden, TP_ACT_GELU,
                c->dropout);
    tp_pop(P);
}

static tp_init table_rule(const char *name, tp_shape s, tp_init dflt, void *env)
{
    (void)s;
    (void)env;
    const bool table = tp_ends_in(name, "_embeddings.weight");
    return table ? (tp_init){ TP_INIT_NORMAL, 0.02, 0.0 } : dflt;
}

static void init_encoder(tp_params *P, tp_lra *m)
{
    const tp_lra_cfg *c = &m->cfg;
    const int64_t d = c->attn.dim;
    char name[32] = "transformer";

    tp_push(P, "model");
    if (tp__lra_has_embedding(c))
        m->cls = tp_param(P, "cls_embed", TP_SHAPE(1, 1, d), (tp_init){ .kind = TP_INIT_ZERO }, 0);
    tp_push(P, "embeddings");
    tp_embedding_init(P, &m->words, "word_embeddings", c->vocab, d);
    tp_embedding_init(P, &m->positions, "position_embeddings", tp__lra_rows(c, c->attn.length), d);
    tp_pop(P);
    for (int l = 0; l < (c->tied ? 1 : c->layers); l++) {
        if (!c->tied) snprintf(name, sizeof name, "transformer_%d", l);
        init_layer(P, &m->layer[l], name, c, l ? m->layer[0].attn.mix : TP_NONE);
    }
    for (int l = 1; c->tied && l < c->layers; l++) m->layer[l] = m->layer[0];
    m->layer[c->layers - 1].ends = tp__lra_has_embedding(c);
    tp_layernorm_init(P, &m->norm, "norm", d, 1e-5);
    tp_pop(P);
}

static void model_init(tp_params *P, void *module, const char *name, const void *of)
{
    tp_lra *m = module;
    const tp_lra_cfg cfg = *(const tp_lra_cfg *)of;
    char why[256];

    memset(m, 0, sizeof *m);
    m->params = P;
    m->cfg = cfg;
    if (!tp__lra_check(&cfg, why, sizeof why)) {
        tp_params_raise(P, TP_E_VALUE, "LRA encoder: %s", why);
        return;
    }
    m->path = tp_push(P, name);
    tp_params_init_rule(P, table_rule, NULL);
    init_encoder(P, m);
    tp_push(P, "seq_classifer"); /* the official spelling */
    const int64_t in = cfg.attn.dim * (cfg.pair ? 4 : 1);
    tp_linear_init(P, &m->head[0], "mlpblock.0", in, cfg.hidden, true);
    tp_linear_init(P, &m->head[1], "mlpblock.2", cfg.hidden, cfg.classes, true);
    tp_pop(P);
    tp_params_init_rule(P, NULL, NULL);
    tp_pop(P);
}

/* ---- layers ---- */

/* in: x [B,n,d]; the CLS [B,1,d] or TP_NONE; the mask or TP_NONE -> x + attn(norm1(x)), with a CLS
 * [B,1+n,d]. The encoder's last layer returns only the CLS row, [B,1,d]. */
static tp_tensor attend(tp_tape *T, const void *self, int nx, const tp_tensor *in)
{
    const tp_lra_layer *m = self;
    (void)nx;
    const tp_tensor u = tp_layernorm_forward(T, &m->norm1, in[0]);
    if (m->ends)
        return tp_dropout_add(T, tp__lra_attn_cls(T, &m->attn, u, in[1], in[2]), TP_NONE, in[1],
                              m->dropout);
    const tp_tensor a = tp__lra_attn(T, &m->attn, (tp_tensor[]){ in[1], in[2] }, u);
    const tp_tensor x = tp_given(in[1]) ? tp_concat(T, 1, in[1], in[0]) : in[0];
    return tp_dropout_add(T, a, TP_NONE, x, m->dropout);
}

/* As attend -> the layer's result, the CLS first. */
static tp_tensor run_layer(tp_tape *T, const void *self, int nx, const tp_tensor *in)
{
    const tp_lra_layer *m = self;
    tp_enter(T, m->path);
    const tp_tensor x = m->recompute == TP_RECOMPUTE_ATTENTION
                            ? tp_checkpoint_n(T, attend, m, nx, in)
                            : attend(T, m, nx, in);
    return tp_leave(T, tp_mlp_forward(T, &m->mlp, tp_layernorm_forward(T, &m->norm2, x), x));
}

/* Replaces x and *cls, if there is one, by the layer's results. The encoder's last layer computes
 * none for x. */
static tp_tensor pass(tp_tape *T, const tp_lra_layer *m, tp_tensor x, tp_tensor *cls,
                      tp_tensor mask)
{
    const tp_tensor in[] = { x, *cls, mask };
    const tp_tensor y = m->recompute == TP_RECOMPUTE_BLOCK ? tp_checkpoint_n(T, run_layer, m, 3, in)
                                                           : run_layer(T, m, 3, in);
    if (!tp_given(*cls)) return y;
    if (m->ends) return *cls = y;
    *cls = tp_slice(T, y, 1, 0, 1);
    return tp_slice(T, y, 1, 1, tp_dim(y, 1) - 1);
}

/* Prepends token vocab - 1 to the sequences. */
static void prepend(tp_tape *T, const tp_lra *m, tp_tensor *ids, tp_tensor *mask)
{
    const int64_t n = tp__lra_rows(&m->cfg, tp_dim(*ids, 1)) - 1;
    const tp_shape one = TP_SHAPE(tp_dim(*ids, 0), 1);
    const tp_tensor cls = tp_full(T, tp_dtype_of(*ids), one, (double)(m->cfg.vocab - 1));
    *ids = tp_concat(T, 1, cls, tp_slice(T, *ids, 1, 0, n));
    if (!tp_given(*mask)) return;
    *mask = tp_concat(T, 1, tp_full(T, TP_U8, one, 1.0), tp_slice(T, *mask, 1, 0, n));
}

static tp_tensor embed(tp_tape *T, const tp_lra *m, tp_tensor ids)
{
    const tp_tensor words = tp_embedding_forward(T, &m->words, ids, 1.0);
    const tp_tensor places = tp_slice(T, m->positions.weight, 0, 0, tp_dim(ids, 1));
    const tp_tensor x = tp_add(T, words, tp_cast(T, places, tp_dtype_of(words)));
    return tp_dropout(T, tp_cast(T, x, tp_compute_dtype(T)), m->cfg.dropout);
}

static bool check(tp_tape *T, const tp_lra *m, tp_tensor ids, tp_tensor mask)
{
    const tp_lra_cfg *c = &m->cfg;
    if (!tp_ok(T)) return false;
    if (!tp_params_ok(m->params)) {
        tp_raise(T, TP_E_STATE, "%s", tp_params_why(m->params));
        return false;
    }
    if (tp_ndim(ids) != 2 || tp_dim(ids, 1) < 1)
        tp_raise(T, TP_E_SHAPE, "ids must be [batch,tokens], at least one token long");
    else if (tp_dim(ids, 1) > c->attn.length)
        tp_raise(T, TP_E_SHAPE, "sequences of %lld tokens are longer than the %lld of this model",
                 (long long)tp_dim(ids, 1), (long long)c->attn.length);
    else if (tp_given(mask) &&
             (tp_dtype_of(mask) != TP_U8 || tp_ndim(mask) != 2 ||
              tp_dim(mask, 0) != tp_dim(ids, 0) || tp_dim(mask, 1) != tp_dim(ids, 1)))
        tp_raise(T, TP_E_SHAPE, "the mask must be u8 and have the shape of the ids");
    return tp_ok(T);
}

tp_tensor tp_lra_encode(tp_tape *T, const tp_lra *m, tp_tensor ids, tp_tensor mask)
{
    if (!tp_want_module(T, m, "lra")) return TP_NONE;
    const tp_lra_cfg *c = &m->cfg;
    tp_tensor cls = TP_NONE;

    tp_enter(T, m->path);
    if (!check(T, m, ids, mask)) return tp_leave(T, TP_NONE);
    if (c->pooling == TP_LRA_CLS_POOL) prepend(T, m, &ids, &mask);
    tp_tensor x = embed(T, m, ids);
    for (int l = 0; l < c->layers; l++) {
        const bool last = l + 1 == c->layers;
        const bool enters = c->pooling == TP_LRA_CLS_TOKEN ? l == 0 : last;
        if (tp__lra_has_embedding(c) && enters)
            cls = tp_expand(T, tp_cast(T, m->cls, tp_dtype_of(x)),
                            TP_SHAPE(tp_dim(x, 0), 1, c->attn.dim));
        x = pass(T, &m->layer[l], x, &cls, mask);
    }
    if (tp_given(cls)) return tp_leave(T, tp_layernorm_forward(T, &m->norm, cls));
    return tp_leave(T, tp__lra_hide(T, tp_layernorm_forward(T, &m->norm, x), mask));
}

/* ---- classifiers ---- */

tp_tensor tp_lra_pool(tp_tape *T, const tp_lra *m, tp_tensor encoded)
{
    if (!tp_want_module(T, m, "lra")) return TP_NONE;
    if (m->cfg.pooling == TP_LRA_MEAN) return tp_mean(T, encoded, 1);
    tp_enter(T, m->path);
    const tp_shape s = TP_SHAPE(tp_dim(encoded, 0), tp_dim(encoded, 2));
    return tp_leave(T, tp_reshape(T, tp_slice(T, encoded, 1, 0, 1), s));
}

tp_tensor tp_lra_classify(tp_tape *T, const tp_lra *m, tp_tensor a, tp_tensor b)
{
    if (!tp_want_module(T, m, "lra")) return TP_NONE;
    tp_enter(T, m->path);
    if (tp_ok(T) && tp_given(b) != m->cfg.pair)
        return tp_leave(T, tp_raise(T, TP_E_VALUE, "the classifier reads %s",
                                    m->cfg.pair ? "two documents" : "one document"));
    if (m->cfg.pair) a = tp_concat(T, 1, a, b, tp_mul(T, a, b), tp_sub(T, a, b));
    a = tp_linear_act(T, &m->head[0], a, TP_ACT_RELU);
    return tp_leave(T, tp_linear_forward(T, &m->head[1], a));
}

static tp_tensor first_rows(tp_tape *T, tp_tensor x, int64_t n)
{
    return tp_slice(T, x, 0, 0, n);
}

static tp_tensor later_rows(tp_tape *T, tp_tensor x, int64_t n)
{
    return tp_slice(T, x, 0, n, tp_dim(x, 0) - n);
}

/* ---- packed documents: layers ---- */

static tp_tensor softmax_packed(tp_tape *T, const tp_lra_attn *m, tp_tensor x, tp_packed of)
{
    const tp_attn_cfg c = { .heads = m->cfg.heads, .dropout = m->cfg.dropout };
    const tp_tensor q = tp_linear_forward(T, &m->q, x), k = tp_linear_forward(T, &m->k, x);
    const tp_tensor v = tp_linear_forward(T, &m->v, x);
    return tp_packed_attention(T, q, k, v, of, of, c);
}

/* cls: [n,d] or TP_NONE. The encoder's last layer returns only the CLS rows. */
static tp_tensor attention_packed(tp_tape *T, const tp_lra_layer *layer, tp_tensor x, tp_tensor cls,
                                  tp_packed of)
{
    const tp_lra_attn *m = &layer->attn;
    const tp__lra_batch batch = { .mask = TP_NONE, .packed = of };
    const int64_t d = m->cfg.dim;
    if (m->cfg.kind != TP_LRA_LS) {
        const tp_tensor y = m->cfg.kind == TP_LRA_NONE ? tp_linear_forward(T, &m->v, x)
                                                       : softmax_packed(T, m, x, of);
        return tp_linear_forward(T, &m->out, y);
    }
    if (tp_given(cls)) cls = tp_reshape(T, cls, TP_SHAPE(tp_dim(cls, 0), 1, d));
    const tp_tensor y = tp__lra_long_short(T, m, x, cls, batch, layer->ends);
    return layer->ends ? tp_reshape(T, y, TP_SHAPE(tp_dim(y, 0), d)) : y;
}

/* in: token rows, after the CLS rows with TP_LRA_CLS_POOL; rows of a CLS embedding, which bypasses
 * norm1, or TP_NONE; token offsets -> [cls; x] + attention. */
static tp_tensor attend_packed(tp_tape *T, const tp_lra_layer *m, int64_t longest,
                               const tp_tensor *in)
{
    const tp_packed of = { in[2], longest };
    const tp_tensor u = tp_layernorm_forward(T, &m->norm1, in[0]);
    tp_enter(T, m->attn.path);
    const tp_tensor y = tp_leave(T, attention_packed(T, m, u, in[1], of));
    tp_tensor x = in[0];
    if (tp_given(in[1])) x = m->ends ? in[1] : tp_concat(T, 0, in[1], in[0]);
    return tp_dropout_add(T, y, TP_NONE, x, m->dropout);
}

/* Recomputation does not know the longest document, but the model's length bounds it. */
static int64_t bound(const tp_lra_layer *m)
{
    return m->attn.cfg.length - m->attn.cfg.cls_from_seq;
}

static tp_tensor packed_attend_again(tp_tape *T, const void *self, int nx, const tp_tensor *in)
{
    (void)nx;
    return attend_packed(T, self, bound(self), in);
}

static tp_tensor run_packed(tp_tape *T, const tp_lra_layer *m, int64_t longest, const tp_tensor *in)
{
    tp_enter(T, m->path);
    const tp_tensor x = m->recompute == TP_RECOMPUTE_ATTENTION
                            ? tp_checkpoint_n(T, packed_attend_again, m, 3, in)
                            : attend_packed(T, m, longest, in);
    return tp_leave(T, tp_mlp_forward(T, &m->mlp, tp_layernorm_forward(T, &m->norm2, x), x));
}

static tp_tensor run_packed_again(tp_tape *T, const void *self, int nx, const tp_tensor *in)
{
    (void)nx;
    return run_packed(T, self, bound(self), in);
}

/* Replaces x and a CLS embedding *cls by the layer's results; the encoder's last layer leaves x. */
static tp_tensor pass_packed(tp_tape *T, const tp_lra_layer *m, tp_tensor x, tp_tensor *cls,
                             tp_packed of)
{
    const tp_tensor in[] = { x, *cls, of.offset };
    const tp_tensor y = m->recompute == TP_RECOMPUTE_BLOCK
                            ? tp_checkpoint_n(T, run_packed_again, m, 3, in)
                            : run_packed(T, m, of.longest, in);
    if (!tp_given(*cls)) return y;
    if (m->ends) return *cls = y;
    const int64_t n = tp_dim(*cls, 0);
    *cls = first_rows(T, y, n);
    return later_rows(T, y, n);
}

/* ---- packed documents: embeddings ---- */

/* Words and positions; places: the position table or rows of it. */
static tp_tensor embed_packed(tp_tape *T, const tp_lra *m, tp_tensor ids, tp_tensor places,
                              tp_tensor position)
{
    const tp_tensor x = tp_embedding_forward(T, &m->words, ids, 1.0);
    const tp_tensor at = tp_embedding(T, places, position, 1.0);
    return tp_cast(T, tp_add(T, x, tp_cast(T, at, tp_dtype_of(x))), tp_compute_dtype(T));
}

/* Prepends the CLS of TP_LRA_CLS_POOL, token vocab - 1 at position 0, of each of n documents;
 * tokens begin at position 1. */
static tp_tensor with_token(tp_tape *T, const tp_lra *m, const tp_lra_packed *a, int64_t n,
                            tp_packed *of)
{
    const tp_tensor table = m->positions.weight;
    const tp_tensor cls =
        embed_packed(T, m, tp_full(T, tp_dtype_of(a->ids), TP_SHAPE(n), (double)(m->cfg.vocab - 1)),
                     table, tp_full(T, TP_I32, TP_SHAPE(n), 0.0));
    const tp_tensor x = embed_packed(T, m, a->ids, later_rows(T, table, 1), a->position);
    if (m->cfg.attn.kind == TP_LRA_LS) return tp_concat(T, 0, cls, x);
    return tp_packed_prepend(T, cls, x, a->of, of);
}

/* ---- packed documents: the encoder ---- */

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

static bool check_packed(tp_tape *T, const tp_lra *m, const tp_lra_packed *a)
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

/* Pools the final rows into one per document. */
static tp_tensor pool_packed(tp_tape *T, const tp_lra *m, tp_tensor x, tp_packed of, int64_t n,
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
    if (!check_packed(T, m, &a)) return tp_leave(T, TP_NONE);
    const int64_t n = tp_dim(a.of.offset, 0) - 1, d = c->attn.dim;
    const int enters = c->pooling == TP_LRA_CLS_TOKEN ? 0 : c->layers - 1;
    tp_packed of = a.of;
    tp_tensor cls = TP_NONE;
    tp_tensor x = c->pooling == TP_LRA_CLS_POOL
                      ? with_token(T, m, &a, n, &of)
                      : embed_packed(T, m, a.ids, m->positions.weight, a.position);
    x = tp_dropout(T, x, c->dropout);
    for (int l = 0; l < c->layers; l++) {
        if (tp__lra_has_embedding(c) && l == enters) {
            const tp_tensor one = tp_reshape(T, m->cls, TP_SHAPE(1, d));
            cls = tp_expand(T, tp_cast(T, one, tp_dtype_of(x)), TP_SHAPE(n, d));
        }
        x = pass_packed(T, &m->layer[l], x, &cls, of);
    }
    return tp_leave(T, pool_packed(T, m, x, of, n, length_of(&a)));
}

/* ---- the model ---- */

/* Document i of a batch, pooled; the mask leaves out id 0. */
static tp_tensor document(tp_tape *T, const tp_lra *m, tp_tensor ids, int i)
{
    if (m->cfg.pair) {
        const tp_shape s = TP_SHAPE(tp_dim(ids, 0), tp_dim(ids, 2));
        ids = tp_reshape(T, tp_slice(T, ids, 1, i, 1), s);
    }
    const tp_tensor mask = tp_ne(T, ids, tp_full(T, tp_dtype_of(ids), TP_SHAPE(1), 0.0));
    return tp_lra_pool(T, m, tp_lra_encode(T, m, ids, mask));
}

static tp_tensor model_forward(tp_tape *T, const void *module, void *state, tp_tensor ids)
{
    const tp_lra *m = module;
    const bool pair = m->cfg.pair;
    (void)state;
    if (tp_ok(T) && (tp_ndim(ids) != (pair ? 3 : 2) || (pair && tp_dim(ids, 1) != 2)))
        return tp_raise(T, TP_E_SHAPE, "ids must be %s",
                        pair ? "[batch,2,tokens]: the model reads pairs of documents"
                             : "[batch,tokens]");
    tp_enter(T, NULL);
    const tp_tensor a = document(T, m, ids, 0), b = pair ? document(T, m, ids, 1) : TP_NONE;
    return tp_leave(T, tp_lra_classify(T, m, a, b));
}

/* Performer's features: blocks of orthogonal rows with the lengths of normal vectors. */
static bool model_redraw(tp_params *P, const void *module, uint64_t seed, uint64_t draw)
{
    const tp_lra *m = module;
    for (int i = 0; i < m->cfg.layers; i++) {
        const tp_tensor w = m->layer[i].attn.features;
        if (!tp_given(w)) continue;
        tp_random r = tp_random_stream(seed, "lra.features", (uint64_t)i, draw);
        if (!tp__draw_features(P, w, &r)) return false;
    }
    return tp_params_ok(P);
}

/* Landmarks have no weights; mixtures, projections and random features do. */
static bool model_same(const void *one, const void *other)
{
    const tp_lra_cfg *a = one, *b = other;
    const tp_lra_attn_cfg *x = &a->attn, *y = &b->attn;
    return x->kind == y->kind && x->dim == y->dim && x->heads == y->heads &&
           x->length == y->length && (x->rank == y->rank || x->kind == TP_LRA_NYSTROM) &&
           (x->window > 0) == (y->window > 0) && x->conv == y->conv && x->fixed == y->fixed &&
           x->raw_kv == y->raw_kv && a->layers == b->layers && a->hidden == b->hidden &&
           a->vocab == b->vocab && a->pooling == b->pooling && a->tied == b->tied &&
           a->pair == b->pair;
}

static const tp_model_part parts[] = {
    { "attn", sizeof(tp_lra_attn), tp__lra_attn_init, tp__lra_attn },
    { 0 },
};

const tp_model tp_model_lra = {
    .name = "lra-encoder",
    .input = TP_DOCUMENTS,
    .cfg_size = sizeof(tp_lra_cfg),
    .size = sizeof(tp_lra),
    .presets = tp__lra_presets,
    .preset = tp__lra_preset,
    .check = tp__lra_check,
    .members = tp__lra_members,
    .init = model_init,
    .forward = model_forward,
    .paper = tp__lra_paper,
    .same = model_same,
    .head = "seq_classifer.mlpblock.2.weight",
    .redraw = model_redraw,
    .parts = parts,
};
