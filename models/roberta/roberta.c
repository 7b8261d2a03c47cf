/* roberta.c - parameters and heads. The encoder: encoder.c. */
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
    m->length = c->length;
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

tp_tensor tp_roberta_forward(tp_tape *T, const tp_roberta *m, tp_tensor ids)
{
    if (!tp_want_module(T, m, "roberta")) return TP_NONE;
    tp_enter(T, NULL);
    return tp_leave(T, apply_head(T, m, tp_roberta_encode(T, m, (tp_roberta_in){ .ids = ids })));
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
