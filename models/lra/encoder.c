/* encoder.c - the encoder of the Long Range Arena and its classifiers.
 *
 *     x = words[ids] + positions
 *     x = x + attn(norm1(x)),  x = x + mlp(norm2(x))      for each layer
 *     z = head(pool(norm(x)))
 *
 * A CLS embedding c is no token: [c; x] + attn(norm1(x), c), so it enters the attention without norm1. */
#include <stdio.h>
#include <string.h>

#include "inner.h"

int64_t tp__lra_rows(const tp_lra_cfg *c, int64_t tokens)
{
    const bool keeps = c->attn.kind != TP_LRA_NYSTROM && c->attn.kind != TP_LRA_REFORMER;
    return c->pooling == TP_LRA_CLS_POOL && keeps ? tokens + 1 : tokens;
}

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
    tp_lra_attn_init(P, &m->attn, "mha", attn, mix);
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

void tp_lra_init(tp_params *P, tp_lra *m, const char *name, tp_lra_cfg cfg)
{
    if (!tp_params_want_module(P, m, "lra")) return;
    char why[256];

    memset(m, 0, sizeof *m);
    m->params = P;
    m->cfg = cfg;
    if (!tp_lra_cfg_check(&cfg, why, sizeof why)) {
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

/* in: x [B,n,d]; the CLS [B,1,d] or TP_NONE; the mask or TP_NONE -> x + attn(norm1(x)), with a CLS [B,1+n,d]. Of
 * the layer that ends the encoder the CLS's row alone, [B,1,d]. */
static tp_tensor attend(tp_tape *T, const void *self, int nx, const tp_tensor *in)
{
    const tp_lra_layer *m = self;
    (void)nx;
    const tp_tensor u = tp_layernorm_forward(T, &m->norm1, in[0]);
    if (m->ends)
        return tp_dropout_add(T, tp__lra_attn_cls(T, &m->attn, u, in[1], in[2]), TP_NONE, in[1],
                              m->dropout);
    const tp_tensor a = tp_lra_attn_forward(T, &m->attn, u, in[1], in[2]);
    const tp_tensor x = tp_given(in[1]) ? tp_concat(T, 1, in[1], in[0]) : in[0];
    return tp_dropout_add(T, a, TP_NONE, x, m->dropout);
}

/* As attend -> the layer's result, with a CLS that first. */
static tp_tensor run_layer(tp_tape *T, const void *self, int nx, const tp_tensor *in)
{
    const tp_lra_layer *m = self;
    tp_enter(T, m->path);
    const tp_tensor x = m->recompute == TP_RECOMPUTE_ATTENTION
                            ? tp_checkpoint_n(T, attend, m, nx, in)
                            : attend(T, m, nx, in);
    return tp_leave(T, tp_mlp_forward(T, &m->mlp, tp_layernorm_forward(T, &m->norm2, x), x));
}

/* Replaces x and, if there is one, *cls by the layer's results. None of x are computed by the layer that ends the
 * encoder. */
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

/* Puts the token vocab - 1 before the sequences. */
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

tp_tensor tp_lra_forward(tp_tape *T, const tp_lra *m, tp_lra_document a, tp_lra_document b)
{
    if (!tp_want_module(T, m, "lra")) return TP_NONE;
    tp_enter(T, NULL);
    const tp_tensor x = tp_lra_pool(T, m, tp_lra_encode(T, m, a.ids, a.mask));
    tp_tensor y = TP_NONE;
    if (tp_given(b.ids)) y = tp_lra_pool(T, m, tp_lra_encode(T, m, b.ids, b.mask));
    return tp_leave(T, tp_lra_classify(T, m, x, y));
}

/* Document i of a batch, with its mask. */
static tp_lra_document document(tp_tape *T, const tp_lra *m, tp_tensor ids, int i)
{
    if (m->cfg.pair) {
        const tp_shape s = TP_SHAPE(tp_dim(ids, 0), tp_dim(ids, 2));
        ids = tp_reshape(T, tp_slice(T, ids, 1, i, 1), s);
    }
    return (tp_lra_document){ ids, tp_ne(T, ids, tp_full(T, tp_dtype_of(ids), TP_SHAPE(1), 0.0)) };
}

tp_tensor tp_lra_forward_ids(tp_tape *T, const tp_lra *m, tp_tensor ids)
{
    if (!tp_want_module(T, m, "lra")) return TP_NONE;
    const bool pair = m->cfg.pair;
    if (tp_ok(T) && (tp_ndim(ids) != (pair ? 3 : 2) || (pair && tp_dim(ids, 1) != 2)))
        return tp_raise(T, TP_E_SHAPE, "ids must be %s",
                        pair ? "[batch,2,tokens]: the model reads pairs of documents"
                             : "[batch,tokens]");
    tp_enter(T, NULL);
    const tp_lra_document a = document(T, m, ids, 0), none = { TP_NONE, TP_NONE };
    return tp_leave(T, tp_lra_forward(T, m, a, pair ? document(T, m, ids, 1) : none));
}
