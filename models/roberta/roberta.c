/* roberta.c - RoBERTa: parameters, the encoder over padded texts and packed documents, heads.
 *
 *     x = LN(words[id] + positions[p] + types[0])
 *     x = LN(x + W_o attend(x)),  x = LN(x + W_2 gelu(W_1 x))       for each layer
 *
 * Rows of the tables for padding get no gradient (tp_embedding_pad). A text with more tokens than
 * the table of positions has places is refused. Row numbers are computed in f32: exact for batches
 * of fewer than 2^24 tokens. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inner.h"
#include "lra/inner.h"

/* ---- parameters ---- */

static tp_init rule(const char *name, tp_shape s, tp_init dflt, void *env)
{
    (void)env;
    if (s.ndim >= 2) return (tp_init){ TP_INIT_NORMAL, 0.02, 0.0 };
    return tp_ends_in(name, "bias") ? (tp_init){ .kind = TP_INIT_ZERO } : dflt;
}

/* Declares lra.h's long-short attention under RoBERTa's names. */
static void init_ls(tp_params *P, tp_lra_attn *m, const tp_roberta_cfg *c, tp_linear_m out)
{
    *m = (tp_lra_attn){ .cfg = { .kind = TP_LRA_LS,
                                 .dim = c->dim,
                                 .heads = c->heads,
                                 .length = c->length,
                                 .rank = c->rank,
                                 .window = c->window,
                                 .dropout = c->attention_dropout,
                                 .cls_from_seq = true,
                                 .raw_kv = c->raw_kv },
                        .out = out };
    m->path = tp_push(P, "attention.self");
    tp_linear_init(P, &m->q, "query", c->dim, c->dim, true);
    tp_linear_init(P, &m->k, "key", c->dim, c->dim, true);
    tp_linear_init(P, &m->v, "value", c->dim, c->dim, true);
    if (!c->raw_kv) tp_dualln_init(P, &m->dual_ln, "dual_ln_l", "dual_ln_s", c->dim, 1e-5);
    if (c->rank > 0) tp_linear_init(P, &m->dynamic, "dconv_fc", c->dim, c->heads * c->rank, true);
    tp_pop(P);
}

static void init_layer(tp_params *P, tp_roberta_layer *m, int i, const tp_roberta_cfg *c)
{
    char name[32];
    const int64_t d = c->dim;
    snprintf(name, sizeof name, "encoder.layer.%d", i);
    m->path = tp_push(P, name);
    m->kind = c->kind;
    m->heads = c->heads;
    m->length = c->length;
    m->dropout = c->dropout;
    m->attention_dropout = c->attention_dropout;
    m->recompute = c->recompute;
    tp_linear_init(P, &m->out, "attention.output.dense", d, d, true);
    if (c->kind == TP_ROBERTA_LS) {
        init_ls(P, &m->ls, c, m->out);
    } else if (c->kind == TP_ROBERTA_LONGFORMER) {
        tp__longformer_init(P, &m->window, "attention.self", c);
    } else {
        tp_linear_init(P, &m->query, "attention.self.query", d, d, true);
        tp_linear_init(P, &m->key, "attention.self.key", d, d, true);
        tp_linear_init(P, &m->value, "attention.self.value", d, d, true);
    }
    tp_layernorm_init(P, &m->attention_norm, "attention.output.LayerNorm", d, 1e-5);
    tp_linear_init(P, &m->fc1, "intermediate.dense", d, c->hidden, true);
    tp_linear_init(P, &m->fc2, "output.dense", c->hidden, d, true);
    tp_layernorm_init(P, &m->norm, "output.LayerNorm", d, 1e-5);
    tp_pop(P);
}

/* Published, but no head reads it. */
static void init_pooler(tp_params *P, int64_t dim)
{
    const tp_init any = { TP_INIT_NORMAL, 0.02, 0.0 };
    tp_push(P, "pooler.dense");
    tp_param(P, "weight", TP_SHAPE(dim, dim), any, TP_FROZEN);
    tp_param(P, "bias", TP_SHAPE(dim), any, TP_FROZEN);
    tp_pop(P);
}

static void init_head(tp_params *P, tp_roberta *m)
{
    const tp_roberta_cfg *c = &m->cfg;
    if (c->head == TP_ROBERTA_CLS) {
        tp_linear_init(P, &m->dense, "classifier.dense", c->dim, c->dim, true);
        tp_linear_init(P, &m->out, "classifier.out_proj", c->dim, c->classes, true);
        return;
    }
    tp_push(P, "lm_head");
    m->bias = tp_param(P, "bias", TP_SHAPE(c->vocab), (tp_init){ .kind = TP_INIT_ZERO }, 0);
    tp_linear_init(P, &m->dense, "dense", c->dim, c->dim, true);
    tp_layernorm_init(P, &m->head_norm, "layer_norm", c->dim, 1e-5);
    tp_tie(P, "decoder.weight", m->words.weight);
    tp_tie(P, "decoder.bias", m->bias);
    tp_pop(P);
}

static void model_init(tp_params *P, void *module, const char *name, const void *of)
{
    tp_roberta *m = module;
    const tp_roberta_cfg cfg = *(const tp_roberta_cfg *)of;
    char why[256];
    memset(m, 0, sizeof *m);
    m->params = P;
    m->cfg = cfg;
    if (!tp__roberta_check(&cfg, why, sizeof why)) {
        tp_params_raise(P, TP_E_VALUE, "RoBERTa: %s", why);
        return;
    }
    m->path = tp_push(P, name);
    tp_params_init_rule(P, rule, NULL);
    tp_push(P, "roberta");
    tp_embedding_init(P, &m->words, "embeddings.word_embeddings", cfg.vocab, cfg.dim);
    tp_embedding_init(P, &m->positions, "embeddings.position_embeddings", cfg.length + 2, cfg.dim);
    tp_embedding_init(P, &m->types, "embeddings.token_type_embeddings", 1, cfg.dim);
    tp_layernorm_init(P, &m->norm, "embeddings.LayerNorm", cfg.dim, 1e-5);
    for (int i = 0; i < cfg.layers; i++) init_layer(P, &m->layer[i], i, &cfg);
    if (!cfg.no_pooler) init_pooler(P, cfg.dim);
    tp_pop(P);
    init_head(P, m);
    tp_params_init_rule(P, NULL, NULL);
    tp_pop(P);
}

/* Padded rows of a text: a multiple of half a window (Longformer), or one more than a multiple of
 * the window (LS). */
static int64_t rows_for(const tp_roberta_cfg *c, int64_t tokens)
{
    const int64_t ls = c->kind == TP_ROBERTA_LS;
    const int64_t step = ls ? c->window : c->kind == TP_ROBERTA_LONGFORMER ? c->window / 2 : 1;
    const int64_t most = ls && tokens < 2 ? 2 : tokens; /* a CLS needs a token, even padding */
    return step > 1 ? (most - ls + step - 1) / step * step + ls : most;
}

/* ---- layers ---- */

enum { X, MASK, OFFSET, ROWS, USED, LOCAL, INPUTS }; /* of a layer; OFFSET, if packed, not MASK */

static tp_tensor full(tp_tape *T, const tp_roberta_layer *m, const tp_tensor *in, tp_packed of)
{
    const tp_attn_cfg c = { .heads = m->heads, .dropout = m->attention_dropout };
    const tp_tensor q = tp_linear_forward(T, &m->query, in[X]);
    const tp_tensor k = tp_linear_forward(T, &m->key, in[X]);
    const tp_tensor v = tp_linear_forward(T, &m->value, in[X]);
    return tp_given(of.offset) ? tp_packed_attention(T, q, k, v, of, of, c)
                               : tp_attention(T, q, k, v, in[MASK], TP_NONE, c);
}

static tp_tensor windows(tp_tape *T, const tp_roberta_layer *m, const tp_tensor *in, tp_packed of)
{
    const tp_roberta_global g = { in[ROWS], in[USED], in[LOCAL] };
    return tp__longformer(T, &m->window, &(tp_longformer_in){ in[MASK], of, g }, in[X]);
}

/* Packed: all first tokens precede the others, which `of` divides. */
static tp_tensor long_short(tp_tape *T, const tp_roberta_layer *m, const tp_tensor *in,
                            tp_packed of)
{
    if (!tp_given(of.offset))
        return tp__lra_attn(T, &m->ls, (tp_tensor[]){ TP_NONE, in[MASK] }, in[X]);
    tp_enter(T, m->ls.path);
    return tp_leave(
        T, tp__lra_long_short(T, &m->ls, in[X], TP_NONE, (tp__lra_batch){ TP_NONE, of }, false));
}

/* LN(x + W_o attend(x)); longest: of packed documents. */
static tp_tensor attend(tp_tape *T, const tp_roberta_layer *m, int64_t longest, const tp_tensor *in)
{
    const tp_packed of = { in[OFFSET], longest };
    tp_tensor y;
    if (m->kind == TP_ROBERTA_LS)
        y = long_short(T, m, in, of);
    else if (m->kind == TP_ROBERTA_LONGFORMER)
        y = tp_linear_forward(T, &m->out, windows(T, m, in, of));
    else
        y = tp_linear_forward(T, &m->out, full(T, m, in, of));
    return tp_layernorm_forward(T, &m->attention_norm,
                                tp_dropout_add(T, y, TP_NONE, in[X], m->dropout));
}

/* Recomputation does not know the longest document, but the model's length bounds it. Long-short
 * attention separates the first token. */
static int64_t bound(const tp_roberta_layer *m)
{
    return m->length - (m->kind == TP_ROBERTA_LS);
}

static tp_tensor attend_again(tp_tape *T, const void *self, int nx, const tp_tensor *in)
{
    (void)nx;
    return attend(T, self, bound(self), in);
}

static tp_tensor run_layer(tp_tape *T, const tp_roberta_layer *m, int64_t longest,
                           const tp_tensor *in)
{
    tp_enter(T, m->path);
    const tp_tensor x = m->recompute == TP_RECOMPUTE_ATTENTION
                            ? tp_checkpoint_n(T, attend_again, m, INPUTS, in)
                            : attend(T, m, longest, in);
    const tp_tensor y = tp_linear_forward(T, &m->fc2, tp_linear_act(T, &m->fc1, x, TP_ACT_GELU));
    return tp_leave(
        T, tp_layernorm_forward(T, &m->norm, tp_dropout_add(T, y, TP_NONE, x, m->dropout)));
}

static tp_tensor run_again(tp_tape *T, const void *self, int nx, const tp_tensor *in)
{
    (void)nx;
    return run_layer(T, self, bound(self), in);
}

static tp_tensor run_layers(tp_tape *T, const tp_roberta *m, tp_tensor x, tp_tensor mask,
                            tp_packed of, const tp_roberta_global *g)
{
    for (int i = 0; i < m->cfg.layers; i++) {
        const tp_tensor all[INPUTS] = { x, mask, of.offset, g->rows, g->used, g->local };
        x = m->cfg.recompute == TP_RECOMPUTE_BLOCK
                ? tp_checkpoint_n(T, run_again, &m->layer[i], INPUTS, all)
                : run_layer(T, &m->layer[i], of.longest, all);
    }
    return x;
}

/* ---- the encoder ---- */

/* 1 + number of real tokens so far; padding 1: [B,n] */
static tp_tensor positions(tp_tape *T, tp_tensor ids)
{
    const tp_tensor pad = tp_full(T, tp_dtype_of(ids), TP_SHAPE(1), (double)TP_ROBERTA_PAD);
    const tp_tensor real = tp_cast(T, tp_ne(T, ids, pad), TP_F32);
    const tp_tensor place = tp_mul(T, tp_cumsum(T, real, 1), real);
    return tp_cast(T, tp_add(T, place, tp_number(1.0)), TP_I32);
}

/* at: rows of the position table. */
static tp_tensor embed(tp_tape *T, const tp_roberta *m, tp_tensor ids, tp_tensor at)
{
    const tp_tensor words = tp_embedding_pad(T, m->words.weight, ids, 1.0, TP_ROBERTA_PAD);
    const tp_tensor places = tp_embedding_pad(T, m->positions.weight, at, 1.0, TP_ROBERTA_PAD);
    tp_tensor x = tp_add(T, tp_add(T, words, places), m->types.weight);
    x = tp_layernorm_forward(T, &m->norm, tp_cast(T, x, tp_compute_dtype(T)));
    return tp_dropout(T, x, m->cfg.dropout);
}

/* The first token of each text is global. */
static tp_roberta_global first_token(tp_tape *T, tp_tensor ids, tp_tensor mask)
{
    const int64_t B = tp_dim(ids, 0), n = tp_dim(ids, 1);
    const tp_tensor none = tp_full(T, TP_U8, TP_SHAPE(B, 1), 0.0);
    return (tp_roberta_global){ tp_arange(T, TP_I32, 0.0, (double)(B * n), (double)n),
                                tp_full(T, TP_U8, TP_SHAPE(B, 1), 1.0),
                                tp_concat(T, 1, none, tp_slice(T, mask, 1, 1, n - 1)) };
}

/* Columns beyond the position table must be padding. */
static bool check_places(tp_tape *T, const tp_roberta *m, tp_tensor ids)
{
    const int64_t B = tp_dim(ids, 0), n = tp_dim(ids, 1), most = m->cfg.length;
    if (n <= most) return true;
    const tp_tensor copy = tp_cast(T, ids, TP_I32);
    const size_t bytes = (size_t)(B * n) * sizeof(int32_t);
    int32_t *id = malloc(bytes);
    if (!id) tp_raise(T, TP_E_MEMORY, "ids: out of memory");
    const bool read = id && tp_read(T, copy, id, bytes);
    for (int64_t b = 0; read && b < B && tp_ok(T); b++) {
        int64_t tokens = 0;
        for (int64_t i = 0; i < n; i++) tokens += id[b * n + i] != TP_ROBERTA_PAD;
        if (tokens > most)
            tp_raise(T, TP_E_SHAPE,
                     "text %lld has %lld tokens, more than the %lld of this model: cut it",
                     (long long)b, (long long)tokens, (long long)most);
    }
    free(id);
    return tp_ok(T);
}

static bool check(tp_tape *T, const tp_roberta *m, const tp_roberta_in *in)
{
    if (!tp_ok(T)) return false;
    const tp_tensor ids = in->ids, mask = in->mask;
    const int64_t n = tp_ndim(ids) == 2 ? tp_dim(ids, 1) : 0;
    if (!tp_params_ok(m->params))
        tp_raise(T, TP_E_STATE, "%s", tp_params_why(m->params));
    else if (n < 1)
        tp_raise(T, TP_E_SHAPE, "ids must be [batch,tokens], at least one token long");
    else if (n > rows_for(&m->cfg, m->cfg.length))
        tp_raise(T, TP_E_SHAPE,
                 "texts of %lld tokens are longer than the %lld of this model: cut them",
                 (long long)n, (long long)m->cfg.length);
    else if (tp_given(mask) && (tp_dtype_of(mask) != TP_U8 || tp_ndim(mask) != 2 ||
                                tp_dim(mask, 0) != tp_dim(ids, 0) || tp_dim(mask, 1) != n))
        tp_raise(T, TP_E_SHAPE, "the mask must be u8 and have the shape of the ids");
    return tp_ok(T) && check_places(T, m, ids);
}

/* Pads texts to `tokens`; indices of global tokens grow by the preceding padding. */
static void pad_texts(tp_tape *T, tp_roberta_in *in, int64_t tokens)
{
    const int64_t B = tp_dim(in->ids, 0), more = tokens - tp_dim(in->ids, 1);
    const tp_tensor none = tp_full(T, TP_U8, TP_SHAPE(B, more), 0.0);
    const tp_dtype dt = tp_dtype_of(in->ids);
    in->ids = tp_concat(T, 1, in->ids, tp_full(T, dt, TP_SHAPE(B, more), (double)TP_ROBERTA_PAD));
    in->mask = tp_concat(T, 1, in->mask, none);
    tp_roberta_global *g = &in->global;
    if (tp_given(g->local)) g->local = tp_concat(T, 1, g->local, none);
    if (!tp_given(g->rows)) return;
    const tp_tensor rows = tp_cast(T, tp_reshape(T, g->rows, TP_SHAPE(B, -1)), TP_F32);
    const tp_tensor before = tp_arange(T, TP_F32, 0.0, (double)(B * more), (double)more);
    const tp_tensor at = tp_add(T, rows, tp_unsqueeze(T, before, 1));
    g->rows = tp_reshape(T, tp_cast(T, at, TP_I32), TP_SHAPE(-1));
}

tp_tensor tp_roberta_encode(tp_tape *T, const tp_roberta *m, tp_roberta_in in)
{
    if (!tp_want_module(T, m, "roberta")) return TP_NONE;
    const tp_roberta_cfg *c = &m->cfg;
    tp_enter(T, m->path);
    if (!check(T, m, &in)) return tp_leave(T, TP_NONE);
    const tp_tensor pad = tp_full(T, tp_dtype_of(in.ids), TP_SHAPE(1), (double)TP_ROBERTA_PAD);
    if (!tp_given(in.mask)) in.mask = tp_ne(T, in.ids, pad);
    const int64_t n = tp_dim(in.ids, 1), rows = rows_for(c, n);
    if (rows > n) pad_texts(T, &in, rows);
    tp_roberta_global g = in.global;
    if (c->kind == TP_ROBERTA_LONGFORMER && c->head == TP_ROBERTA_CLS && !tp_given(g.local))
        g = first_token(T, in.ids, in.mask);
    tp_tensor x = embed(T, m, in.ids, positions(T, in.ids));
    x = run_layers(T, m, x, in.mask, (tp_packed){ TP_NONE, 0 }, &g);
    return tp_leave(T, rows > n ? tp_slice(T, x, 1, 0, n) : x);
}

/* ---- packed documents ---- */

static bool check_packed(tp_tape *T, const tp_roberta *m, const tp_roberta_packed *a)
{
    if (!tp_ok(T)) return false;
    const int64_t most = m->cfg.length;
    if (!tp_params_ok(m->params))
        tp_raise(T, TP_E_STATE, "%s", tp_params_why(m->params));
    else if (tp_ndim(a->of.offset) != 1 || tp_dim(a->of.offset, 0) < 1)
        tp_raise(T, TP_E_SHAPE, "the offsets must be [documents + 1]");
    else if (tp_ndim(a->ids) != 1 || tp_ndim(a->position) != 1 ||
             tp_dim(a->ids, 0) != tp_dim(a->position, 0))
        tp_raise(T, TP_E_SHAPE, "ids and positions must be vectors of one size");
    else if (tp_dim(a->ids, 0) < tp_dim(a->of.offset, 0) - 1)
        tp_raise(T, TP_E_SHAPE, "%lld tokens are fewer than the %lld documents",
                 (long long)tp_dim(a->ids, 0), (long long)tp_dim(a->of.offset, 0) - 1);
    else if (a->of.longest < 1 || a->of.longest > most)
        tp_raise(T, TP_E_SHAPE, "documents have 1 to %lld tokens in this model, not %lld: cut them",
                 (long long)most, (long long)a->of.longest);
    return tp_ok(T);
}

static tp_tensor zero_like(tp_tape *T, tp_tensor x)
{
    return tp_full(T, tp_dtype_of(x), TP_SHAPE(1), 0.0);
}

/* The first token of each document is global. */
static tp_roberta_global first_packed(tp_tape *T, const tp_roberta_packed *a)
{
    const int64_t n = tp_dim(a->of.offset, 0) - 1;
    return (tp_roberta_global){ tp_slice(T, a->of.offset, 0, 0, n),
                                tp_full(T, TP_U8, TP_SHAPE(n, 1), 1.0),
                                tp_ne(T, a->position, zero_like(T, a->position)) };
}

/* New index of each row when the n documents' first tokens come first: [M]. */
static tp_tensor apart(tp_tape *T, tp_tensor position, int64_t n)
{
    const int64_t M = tp_dim(position, 0);
    const tp_tensor first = tp_eq(T, position, zero_like(T, position));
    const tp_tensor document = tp_cumsum(T, tp_cast(T, first, TP_F32), 0); /* from 1 */
    const tp_tensor later = tp_arange(T, TP_F32, (double)n, (double)(n + M), 1.0);
    const tp_tensor at =
        tp_where(T, first, tp_sub(T, document, tp_number(1.0)), tp_sub(T, later, document));
    return tp_cast(T, at, TP_I32);
}

/* Runs the layers between two permutations, as long-short attention separates first tokens. */
static tp_tensor run_apart(tp_tape *T, const tp_roberta *m, tp_tensor x, const tp_roberta_packed *a)
{
    const int64_t n = tp_dim(a->of.offset, 0) - 1;
    const tp_tensor at = apart(T, a->position, n),
                    none = tp_full(T, tp_dtype_of(x), tp_shape_of(x), 0.0);
    const tp_tensor offset = tp_sub(T, tp_cast(T, a->of.offset, TP_F32),
                                    tp_arange(T, TP_F32, 0.0, (double)(n + 1), 1.0));
    const tp_roberta_global g = { TP_NONE, TP_NONE, TP_NONE };
    x = run_layers(T, m, tp_index_add(T, none, 0, at, x), TP_NONE,
                   (tp_packed){ tp_cast(T, offset, TP_I32), a->of.longest - 1 }, &g);
    return tp_index_select(T, x, 0, at);
}

tp_tensor tp_roberta_encode_packed(tp_tape *T, const tp_roberta *m, tp_roberta_packed a)
{
    if (!tp_want_module(T, m, "roberta")) return TP_NONE;
    const tp_roberta_cfg *c = &m->cfg;
    tp_enter(T, m->path);
    if (!check_packed(T, m, &a)) return tp_leave(T, TP_NONE);
    const tp_tensor place = tp_add(T, tp_cast(T, a.position, TP_F32), tp_number(2.0));
    const tp_tensor x = embed(T, m, a.ids, tp_cast(T, place, TP_I32));
    if (c->kind == TP_ROBERTA_LS) return tp_leave(T, run_apart(T, m, x, &a));
    if (c->kind == TP_ROBERTA_LONGFORMER && c->head == TP_ROBERTA_CLS && !tp_given(a.global.local))
        a.global = first_packed(T, &a);
    return tp_leave(T, run_layers(T, m, x, TP_NONE, a.of, &a.global));
}

/* ---- heads ---- */

tp_tensor tp_roberta_classify(tp_tape *T, const tp_roberta *m, tp_tensor x)
{
    if (!tp_want_module(T, m, "roberta")) return TP_NONE;
    tp_enter(T, m->path);
    if (tp_ok(T) && m->cfg.head != TP_ROBERTA_CLS)
        return tp_leave(T, tp_raise(T, TP_E_VALUE, "the model has no classifier"));
    if (tp_ndim(x) == 3)
        x = tp_reshape(T, tp_slice(T, x, 1, 0, 1), TP_SHAPE(tp_dim(x, 0), tp_dim(x, 2)));
    x = tp_linear_forward(T, &m->dense, tp_dropout(T, x, m->cfg.dropout));
    x = tp_dropout(T, tp_tanh(T, x), m->cfg.dropout);
    return tp_leave(T, tp_linear_forward(T, &m->out, x));
}

tp_tensor tp_roberta_predict(tp_tape *T, const tp_roberta *m, tp_tensor x, tp_tensor rows)
{
    if (!tp_want_module(T, m, "roberta")) return TP_NONE;
    tp_enter(T, m->path);
    if (tp_ok(T) && m->cfg.head != TP_ROBERTA_MLM)
        return tp_leave(T, tp_raise(T, TP_E_VALUE, "the model has no head that predicts tokens"));
    if (tp_given(rows)) {
        if (tp_ndim(x) == 3)
            x = tp_reshape(T, x, TP_SHAPE(tp_dim(x, 0) * tp_dim(x, 1), tp_dim(x, 2)));
        x = tp_index_select(T, x, 0, rows);
    }
    x = tp_layernorm_forward(T, &m->head_norm, tp_linear_act(T, &m->dense, x, TP_ACT_GELU));
    return tp_leave(T, tp_linear(T, x, m->words.weight, m->bias, TP_ACT_NONE));
}

static tp_tensor apply_head(tp_tape *T, const tp_roberta *m, tp_tensor x)
{
    return m->cfg.head == TP_ROBERTA_CLS ? tp_roberta_classify(T, m, x)
                                         : tp_roberta_predict(T, m, x, TP_NONE);
}

tp_tensor tp_roberta_forward_packed(tp_tape *T, const tp_roberta *m, tp_roberta_packed a)
{
    if (!tp_want_module(T, m, "roberta")) return TP_NONE;
    tp_enter(T, NULL);
    tp_tensor x = tp_roberta_encode_packed(T, m, a);
    if (tp_ok(T) && m->cfg.head == TP_ROBERTA_CLS) {
        const int64_t documents = tp_dim(a.of.offset, 0) - 1;
        x = tp_index_select(T, x, 0, tp_slice(T, a.of.offset, 0, 0, documents));
    }
    return tp_leave(T, apply_head(T, m, x));
}

/* ---- the model ---- */

static tp_tensor model_forward(tp_tape *T, const void *module, void *state, tp_tensor ids)
{
    const tp_roberta *m = module;
    (void)state;
    tp_enter(T, NULL);
    return tp_leave(T, apply_head(T, m, tp_roberta_encode(T, m, (tp_roberta_in){ .ids = ids })));
}

static const tp_model_part parts[] = {
    { "longformer", sizeof(tp_longformer_m), tp__longformer_init, tp__longformer },
    { 0 },
};

const tp_model tp_model_roberta = {
    .name = "roberta",
    .input = TP_DOCUMENTS,
    .cfg_size = sizeof(tp_roberta_cfg),
    .size = sizeof(tp_roberta),
    .presets = tp__roberta_presets,
    .preset = tp__roberta_preset,
    .check = tp__roberta_check,
    .members = tp__roberta_members,
    .init = model_init,
    .forward = model_forward,
    .load = tp__roberta_load,
    .resizes = "the table of positions",
    .resizes_to = tp__roberta_resizes,
    .head = "classifier.out_proj.weight",
    .spellings = tp__roberta_spellings,
    .may_lack = tp__roberta_may_lack,
    .fill = tp__roberta_fill,
    .parts = parts,
};
