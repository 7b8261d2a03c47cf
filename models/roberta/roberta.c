/* roberta.c - the encoder, with its heads: parameters and forward pass. */
#include <stdio.h>
#include <string.h>

#include "inner.h"

/* ---- parameters ---- */

static tp_init rule(const char *name, tp_shape s, tp_init dflt, void *env)
{
    (void)env;
    if (s.ndim >= 2) return (tp_init){ TP_INIT_NORMAL, 0.02, 0.0 };
    return tp_ends_in(name, "bias") ? (tp_init){ .kind = TP_INIT_ZERO } : dflt;
}

/* Long-short attention of the encoders of lra.h, under the names of RoBERTa. */
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
    m->dropout = c->dropout;
    m->attention_dropout = c->attention_dropout;
    m->recompute = c->recompute;
    tp_linear_init(P, &m->out, "attention.output.dense", d, d, true);
    if (c->kind == TP_ROBERTA_LS) {
        init_ls(P, &m->ls, c, m->out);
    } else if (c->kind == TP_ROBERTA_LONGFORMER) {
        tp_longformer_init(P, &m->window, "attention.self", d, c->heads, c->window,
                           c->attention_dropout);
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

void tp_roberta_init(tp_params *P, tp_roberta *m, const char *name, tp_roberta_cfg cfg)
{
    char why[256];
    if (!tp_params_want_module(P, m, "roberta")) return;
    memset(m, 0, sizeof *m);
    m->params = P;
    m->cfg = cfg;
    if (!tp_roberta_cfg_check(&cfg, why, sizeof why)) {
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

/* ---- layers ---- */

enum { X, MASK, ROWS, USED, LOCAL, INPUTS }; /* of a layer */

/* LN(x + W_o attend(x)) */
static tp_tensor attend(tp_tape *T, const void *self, int nx, const tp_tensor *in)
{
    const tp_roberta_layer *m = self;
    const tp_tensor x = in[X];
    tp_tensor y;
    (void)nx;
    if (m->kind == TP_ROBERTA_LS) {
        y = tp_lra_attn_forward(T, &m->ls, x, TP_NONE, in[MASK]);
    } else {
        const tp_attn_cfg c = { .heads = m->heads, .dropout = m->attention_dropout };
        const tp_roberta_global g = { in[ROWS], in[USED], in[LOCAL] };
        if (m->kind == TP_ROBERTA_LONGFORMER)
            y = tp_longformer_forward(T, &m->window, x, in[MASK], g);
        else
            y = tp_attention(T, tp_linear_forward(T, &m->query, x),
                             tp_linear_forward(T, &m->key, x), tp_linear_forward(T, &m->value, x),
                             in[MASK], TP_NONE, c);
        y = tp_linear_forward(T, &m->out, y);
    }
    return tp_layernorm_forward(T, &m->attention_norm,
                                tp_dropout_add(T, y, TP_NONE, x, m->dropout));
}

static tp_tensor run_layer(tp_tape *T, const void *self, int nx, const tp_tensor *in)
{
    const tp_roberta_layer *m = self;
    tp_enter(T, m->path);
    const tp_tensor x = m->recompute == TP_RECOMPUTE_ATTENTION
                            ? tp_checkpoint_n(T, attend, m, nx, in)
                            : attend(T, m, nx, in);
    const tp_tensor y = tp_linear_forward(T, &m->fc2, tp_linear_act(T, &m->fc1, x, TP_ACT_GELU));
    return tp_leave(
        T, tp_layernorm_forward(T, &m->norm, tp_dropout_add(T, y, TP_NONE, x, m->dropout)));
}

/* ---- the encoder ---- */

/* 1 + the number of real tokens up to each, padding 1: [B,n] */
static tp_tensor positions(tp_tape *T, tp_tensor ids)
{
    const tp_tensor pad = tp_full(T, tp_dtype_of(ids), TP_SHAPE(1), (double)TP_ROBERTA_PAD);
    const tp_tensor real = tp_cast(T, tp_ne(T, ids, pad), TP_F32);
    const tp_tensor place = tp_mul(T, tp_cumsum(T, real, 1), real);
    return tp_cast(T, tp_add(T, place, tp_number(1.0)), TP_I32);
}

static tp_tensor embed(tp_tape *T, const tp_roberta *m, tp_tensor ids)
{
    const tp_tensor words = tp_embedding_pad(T, m->words.weight, ids, 1.0, TP_ROBERTA_PAD);
    const tp_tensor places =
        tp_embedding_pad(T, m->positions.weight, positions(T, ids), 1.0, TP_ROBERTA_PAD);
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

static bool check(tp_tape *T, const tp_roberta *m, const tp_roberta_in *in)
{
    if (!tp_ok(T)) return false;
    const tp_tensor ids = in->ids, mask = in->mask;
    const int64_t n = tp_ndim(ids) == 2 ? tp_dim(ids, 1) : 0;
    if (!tp_params_ok(m->params))
        tp_raise(T, TP_E_STATE, "%s", tp_params_why(m->params));
    else if (n < 1)
        tp_raise(T, TP_E_SHAPE, "ids must be [batch,tokens], at least one token long");
    else if (n > tp__roberta_rows(&m->cfg, m->cfg.length))
        tp_raise(T, TP_E_SHAPE, "texts of %lld tokens are longer than the %lld of this model",
                 (long long)n, (long long)m->cfg.length);
    else if (tp_given(in->global.local) && tp__roberta_rows(&m->cfg, n) != n)
        tp_raise(T, TP_E_SHAPE,
                 "%lld tokens with global ones are no multiple of half a window: pad them",
                 (long long)n);
    else if (tp_given(mask) && (tp_dtype_of(mask) != TP_U8 || tp_ndim(mask) != 2 ||
                                tp_dim(mask, 0) != tp_dim(ids, 0) || tp_dim(mask, 1) != n))
        tp_raise(T, TP_E_SHAPE, "the mask must be u8 and have the shape of the ids");
    return tp_ok(T);
}

tp_tensor tp_roberta_encode(tp_tape *T, const tp_roberta *m, tp_roberta_in in)
{
    if (!tp_want_module(T, m, "roberta")) return TP_NONE;
    const tp_roberta_cfg *c = &m->cfg;
    tp_enter(T, m->path);
    if (!check(T, m, &in)) return tp_leave(T, TP_NONE);
    const tp_tensor pad = tp_full(T, tp_dtype_of(in.ids), TP_SHAPE(1), (double)TP_ROBERTA_PAD);
    if (!tp_given(in.mask)) in.mask = tp_ne(T, in.ids, pad);
    const int64_t n = tp_dim(in.ids, 1), rows = tp__roberta_rows(c, n);
    if (rows > n) {
        const tp_shape more = TP_SHAPE(tp_dim(in.ids, 0), rows - n);
        in.ids =
            tp_concat(T, 1, in.ids, tp_full(T, tp_dtype_of(in.ids), more, (double)TP_ROBERTA_PAD));
        in.mask = tp_concat(T, 1, in.mask, tp_full(T, TP_U8, more, 0.0));
    }
    tp_roberta_global g = in.global;
    if (c->kind == TP_ROBERTA_LONGFORMER && c->head == TP_ROBERTA_CLS && !tp_given(g.local))
        g = first_token(T, in.ids, in.mask);
    tp_tensor x = embed(T, m, in.ids);
    for (int i = 0; i < c->layers; i++) {
        const tp_tensor all[INPUTS] = { x, in.mask, g.rows, g.used, g.local };
        x = c->recompute == TP_RECOMPUTE_BLOCK
                ? tp_checkpoint_n(T, run_layer, &m->layer[i], INPUTS, all)
                : run_layer(T, &m->layer[i], INPUTS, all);
    }
    return tp_leave(T, rows > n ? tp_slice(T, x, 1, 0, n) : x);
}

/* ---- heads ---- */

tp_tensor tp_roberta_classify(tp_tape *T, const tp_roberta *m, tp_tensor x)
{
    if (!tp_want_module(T, m, "roberta")) return TP_NONE;
    tp_enter(T, m->path);
    if (tp_ok(T) && m->cfg.head != TP_ROBERTA_CLS)
        return tp_leave(T, tp_raise(T, TP_E_VALUE, "the model has no classifier"));
    const tp_shape s = TP_SHAPE(tp_dim(x, 0), tp_dim(x, 2));
    tp_tensor y = tp_reshape(T, tp_slice(T, x, 1, 0, 1), s);
    y = tp_linear_forward(T, &m->dense, tp_dropout(T, y, m->cfg.dropout));
    y = tp_dropout(T, tp_tanh(T, y), m->cfg.dropout);
    return tp_leave(T, tp_linear_forward(T, &m->out, y));
}

tp_tensor tp_roberta_predict(tp_tape *T, const tp_roberta *m, tp_tensor x, tp_tensor rows)
{
    if (!tp_want_module(T, m, "roberta")) return TP_NONE;
    tp_enter(T, m->path);
    if (tp_ok(T) && m->cfg.head != TP_ROBERTA_MLM)
        return tp_leave(T, tp_raise(T, TP_E_VALUE, "the model has no head that predicts tokens"));
    if (tp_given(rows)) {
        const tp_shape s = TP_SHAPE(tp_dim(x, 0) * tp_dim(x, 1), tp_dim(x, 2));
        x = tp_index_select(T, tp_reshape(T, x, s), 0, rows);
    }
    x = tp_layernorm_forward(T, &m->head_norm, tp_linear_act(T, &m->dense, x, TP_ACT_GELU));
    return tp_leave(T, tp_linear(T, x, m->words.weight, m->bias, TP_ACT_NONE));
}

tp_tensor tp_roberta_forward(tp_tape *T, const tp_roberta *m, tp_tensor ids)
{
    if (!tp_want_module(T, m, "roberta")) return TP_NONE;
    tp_enter(T, NULL);
    const tp_tensor x = tp_roberta_encode(T, m, (tp_roberta_in){ .ids = ids });
    return tp_leave(T, m->cfg.head == TP_ROBERTA_CLS ? tp_roberta_classify(T, m, x)
                                                     : tp_roberta_predict(T, m, x, TP_NONE));
}
