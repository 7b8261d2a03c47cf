/* transformer_xl.c - the Transformer-XL language model (Dai et al. 2019), the full-attention
 * baseline: every token attends to all tokens of its segment up to itself and to a memory of
 * earlier layer inputs.
 *
 *     logit = ((q + r_w) k + (q + r_r) r_net(pe(distance))) / sqrt(D),   distance <= clamp
 *
 * All layers share the two biases. qkv_net is one matrix, as in the published weights, but its
 * query rows multiply the segment only; upstream also projects queries of the memory, and drops
 * them. */
#include <math.h>
#include <stdio.h>

#include "inner.h"

/* ---- layer ---- */

void tp_txl_attn_init(tp_params *P, tp_txl_attn *m, const char *name, const tp_txl_cfg *cfg,
                      tp_tensor r_w_bias, tp_tensor r_r_bias)
{
    if (!tp_params_want_module(P, m, "txl_attn")) return;
    const int64_t d = cfg->dim, heads = cfg->heads * cfg->d_head;
    tp_linear_m qkv;

    *m = (tp_txl_attn){ .path = tp_push(P, name),
                        .pre_ln = cfg->pre_ln,
                        .recompute = cfg->recompute,
                        .dropout = cfg->dropout,
                        .cfg = { .heads = cfg->heads,
                                 .dropout = cfg->att_dropout,
                                 .max_span = cfg->same_length ? cfg->mem_len : 0 },
                        .r_w_bias = r_w_bias,
                        .r_r_bias = r_r_bias };
    tp_linear_init(P, &qkv, "qkv_net", d, 3 * heads, false);
    m->qkv_net = qkv.weight;
    tp_linear_init(P, &m->o_net, "o_net", heads, d, false);
    tp_linear_init(P, &m->r_net, "r_net", d, heads, false);
    tp_layernorm_init(P, &m->norm, "layer_norm", d, 1e-5);
    tp_pop(P);
}

/* Applies part 0 (q), 1 (k) or 2 (v) of qkv_net to x. */
static tp_tensor project(tp_tape *T, const tp_txl_attn *m, tp_tensor x, int part)
{
    const int64_t rows = tp_dim(m->qkv_net, 0) / 3;
    return tp_linear(T, x, tp_slice(T, m->qkv_net, 0, part * rows, rows), TP_NONE, TP_ACT_NONE);
}

/* x: w [B,N,d], mem [B,L,d], pos [L+N,d] -> w + attn(w) [B,N,d]. */
static tp_tensor attend(tp_tape *T, const void *self, int nx, const tp_tensor *x)
{
    const tp_txl_attn *m = self;
    const int64_t N = tp_dim(x[0], 1), L = tp_dim(x[1], 1);
    tp_tensor w = x[0], all = tp_concat(T, 1, x[1], w);
    (void)nx;
    if (m->pre_ln) {
        all = tp_layernorm_forward(T, &m->norm, all);
        w = tp_slice(T, all, 1, L, N);
    }
    const tp_tensor q = project(T, m, w, 0), k = project(T, m, all, 1), v = project(T, m, all, 2);
    const tp_tensor pos = tp_linear_forward(T, &m->r_net, x[2]);
    tp_tensor y = tp_rel_attention(T, q, k, v, pos, m->r_w_bias, m->r_r_bias, m->cfg);
    y = tp_linear_forward(T, &m->o_net, y);
    return tp_dropout_add(T, y, TP_NONE, x[0], m->dropout);
}

tp_tensor tp_txl_attn_forward(tp_tape *T, const tp_txl_attn *m, tp_tensor w, tp_tensor mem,
                              tp_tensor pos)
{
    if (!tp_want_module(T, m, "txl_attn")) return TP_NONE;
    const tp_tensor x[] = { w, mem, pos };
    tp_enter(T, m->path);
    const tp_tensor y = m->recompute == TP_RECOMPUTE_ATTENTION ? tp_checkpoint_n(T, attend, m, 3, x)
                                                               : attend(T, m, 3, x);
    return tp_leave(T, m->pre_ln ? y : tp_layernorm_forward(T, &m->norm, y));
}

static void init_layer(tp_params *P, tp_txl_layer *m, const char *name, const tp_txl *model)
{
    const tp_txl_cfg *c = &model->cfg;
    m->path = tp_push(P, name);
    tp_txl_attn_init(P, &m->attn, "dec_attn", c, model->r_w_bias, model->r_r_bias);
    tp_push(P, "pos_ff");
    tp_mlp_init(P, &m->ff, "CoreNet.0", "CoreNet.3", c->dim, c->hidden, TP_ACT_RELU, c->dropout);
    tp_layernorm_init(P, &m->ff_norm, "layer_norm", c->dim, 1e-5);
    tp_pop(P);
    tp_pop(P);
}

/* x: as in attend. */
static tp_tensor run_layer(tp_tape *T, const void *self, int nx, const tp_tensor *x)
{
    const tp_txl_layer *m = self;
    const bool pre = m->attn.pre_ln;
    (void)nx;
    tp_enter(T, m->path);
    const tp_tensor h = tp_txl_attn_forward(T, &m->attn, x[0], x[1], x[2]);
    const tp_tensor in = pre ? tp_layernorm_forward(T, &m->ff_norm, h) : h;
    const tp_tensor y = tp_mlp_forward(T, &m->ff, in, h);
    return tp_leave(T, pre ? y : tp_layernorm_forward(T, &m->ff_norm, y));
}

/* ---- model ---- */

void tp_txl_init(tp_params *P, tp_txl *m, const char *name, tp_txl_cfg cfg)
{
    if (!tp_params_want_module(P, m, "txl")) return;
    char why[256];
    const tp_init rule = { 0 }; /* replaced by tp__lm_init_rule */
    *m = (tp_txl){ .params = P, .cfg = cfg };
    if (!tp_txl_cfg_check(&cfg, why, sizeof why)) {
        tp_params_raise(P, TP_E_VALUE, "Transformer-XL: %s", why);
        return;
    }
    const tp_shape heads = TP_SHAPE(cfg.heads, cfg.d_head);
    m->path = tp_push(P, name);
    tp_params_init_rule(P, tp__lm_init_rule, NULL);
    m->r_w_bias = tp_param(P, "r_w_bias", heads, rule, 0);
    m->r_r_bias = tp_param(P, "r_r_bias", heads, rule, 0);
    m->emb = tp_param(P, "word_emb.emb_layers.0.weight", TP_SHAPE(cfg.vocab, cfg.dim), rule, 0);
    tp_tie(P, "crit.out_layers.0.weight", m->emb);
    for (int i = 0; i < cfg.layers; i++) {
        char layer[32];
        snprintf(layer, sizeof layer, "layers.%d", i);
        init_layer(P, &m->layer[i], layer, m);
    }
    m->out_bias = tp_param(P, "crit.out_layers.0.bias", TP_SHAPE(cfg.vocab), rule, 0);
    m->inv_freq = tp__lm_frequencies(P, "pos_emb.inv_freq", cfg.dim);
    tp_params_init_rule(P, NULL, NULL);
    tp_pop(P);
}

tp_tensor tp_txl_forward(tp_tape *T, const tp_txl *m, tp_txl_state *s, tp_tensor tokens)
{
    if (!tp_want_module(T, m, "txl")) return TP_NONE;
    if (!tp_want(T, s, "txl", "a state")) return TP_NONE;
    const tp_txl_cfg *c = &m->cfg;
    tp_enter(T, m->path);
    if (!tp__lm_check_input(T, m->params, tokens, s->mem[0])) return tp_leave(T, TP_NONE);

    const int64_t B = tp_dim(tokens, 0), N = tp_dim(tokens, 1);
    tp_tensor h = tp_embedding(T, m->emb, tokens, sqrt((double)c->dim));
    h = tp_dropout(T, tp_cast(T, h, tp_compute_dtype(T)), c->dropout);
    const tp_tensor empty = tp_full(T, tp_dtype_of(h), TP_SHAPE(B, 0, c->dim), 0.0);
    const int64_t L = tp_given(s->mem[0]) ? tp_dim(s->mem[0], 1) : 0;
    const tp_tensor table = tp__lm_positions(T, &s->pos, L + N, m->inv_freq, c->clamp);
    const tp_tensor pos = tp_dropout(T, table, c->dropout);

    for (int i = 0; i <= c->layers; i++) {
        const tp_tensor mem = tp_given(s->mem[i]) ? s->mem[i] : empty;
        const tp_tensor x[] = { h, mem, pos };
        tp_tensor next = h;
        if (i < c->layers)
            next = c->recompute == TP_RECOMPUTE_BLOCK
                       ? tp_checkpoint_n(T, run_layer, &m->layer[i], 3, x)
                       : run_layer(T, &m->layer[i], 3, x);
        tp__lm_remember(T, &s->mem[i], mem, h, c->mem_len);
        h = next;
    }
    h = tp_dropout(T, h, c->dropout);
    return tp_leave(T, tp_linear(T, h, m->emb, m->out_bias, TP_ACT_NONE));
}

/* ---- state ---- */

void tp_txl_state_clear(tp_tape *T, tp_txl_state *s)
{
    if (!s) {
        tp_raise_here(T, TP_E_STATE, "txl_state_clear: NULL was given in place of a state");
        return;
    }
    tp__lm_slots_clear(T, TP_LM_MAX_LAYERS + 1, s->mem);
    tp__lm_slots_clear(T, 1, &s->pos);
}

bool tp_txl_state_write(tp_tape *T, const tp_txl *m, const tp_txl_state *s, tp_writer *W)
{
    if (!m) {
        tp_raise_here(T, TP_E_STATE, "txl_state_write: NULL was given in place of a module");
        return false;
    }
    return tp__lm_slots_write(T, "mem", m->cfg.layers + 1, s->mem, W);
}

bool tp_txl_state_read(tp_tape *T, const tp_txl *m, tp_txl_state *s, tp_file *F)
{
    if (!m) {
        tp_raise_here(T, TP_E_STATE, "txl_state_read: NULL was given in place of a module");
        return false;
    }
    const tp_txl_cfg *c = &m->cfg;
    return tp__lm_slots_read(T, "mem", c->layers + 1, s->mem, 0, c->mem_len, c->dim, F);
}
