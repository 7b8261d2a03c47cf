/* ls_lm.c - the Transformer-LS language model, and the caches of its streams.
 *
 *     a  = norm1(h)                   residuals add to the *normalised* a and b2, not to the raw h;
 *     b2 = norm2(a + attn(a, cache))  no norm follows the last block
 *     h' = b2 + ff(b2)
 *
 * Layer n caches its raw input, detached: norm1 of the cache uses the current weights and
 * contributes to their gradient. At the start of a stream official caches are rows of zeros that
 * take part in the softmax; with the option `masked` the cache is shorter instead. */
#include <math.h>
#include <stdio.h>

#include "inner.h"

/* ---- block ---- */

void tp_ls_block_init(tp_params *P, tp_ls_block *m, const char *name, const tp_ls_lm_cfg *cfg)
{
    if (!tp_params_want_module(P, m, "ls_block")) return;
    const tp_act act = cfg->gelu ? TP_ACT_GELU : TP_ACT_RELU;

    m->path = tp_push(P, name);
    m->pre_ln = cfg->pre_ln;
    m->dropout = cfg->dropout;
    m->recompute = cfg->recompute;
    tp_ls_attn_init(P, &m->attn, "attn", cfg->dim, cfg->bias, cfg->ls);
    tp_layernorm_init(P, &m->norm1, "norm1", cfg->dim, 1e-5);
    tp_mlp_init(P, &m->ff, "ff.fc1", "ff.fc2", cfg->dim, cfg->hidden, act, cfg->dropout);
    tp_layernorm_init(P, &m->norm2, "norm2", cfg->dim, 1e-5);
    tp_pop(P);
}

/* x: a [B,M,d] (normalised if pre_ln), the raw cache [B,L,d], both tables -> a + attn(a). The
 * residual is included, so that recomputation sums the gradient of a in the same order. */
static tp_tensor attend(tp_tape *T, const void *self, int nx, const tp_tensor *x)
{
    const tp_ls_block *m = self;
    const tp_tensor cache = m->pre_ln ? tp_layernorm_forward(T, &m->norm1, x[1]) : x[1];
    const tp_ls_context ctx = { x[2], x[3], tp_dim(cache, 1) };
    const tp_tensor y = tp_ls_attn_forward(T, &m->attn, x[0], cache, ctx);
    (void)nx;
    return tp_dropout_add(T, y, TP_NONE, x[0], m->dropout);
}

tp_tensor tp__ls_block_finish(tp_tape *T, const tp_ls_block *m, tp_tensor b)
{
    const tp_tensor b2 = tp_layernorm_forward(T, m->pre_ln ? &m->norm2 : &m->norm1, b);
    const tp_tensor h = tp_mlp_forward(T, &m->ff, b2, b2);
    return m->pre_ln ? h : tp_layernorm_forward(T, &m->norm2, h);
}

/* x: h [B,M,d], cache [B,L,d], both tables. */
static tp_tensor run_block(tp_tape *T, const void *self, int nx, const tp_tensor *x)
{
    const tp_ls_block *m = self;
    tp_enter(T, m->path);
    const tp_tensor a = m->pre_ln ? tp_layernorm_forward(T, &m->norm1, x[0]) : x[0];
    const tp_tensor in[] = { a, x[1], x[2], x[3] };
    const tp_tensor b = m->recompute == TP_RECOMPUTE_ATTENTION
                            ? tp_checkpoint_n(T, attend, m, nx, in)
                            : attend(T, m, nx, in);
    return tp_leave(T, tp__ls_block_finish(T, m, b));
}

tp_tensor tp_ls_block_forward(tp_tape *T, const tp_ls_block *m, tp_tensor h, tp_tensor cache,
                              tp_tensor pos_win, tp_tensor pos_cmp)
{
    if (!tp_want_module(T, m, "ls_block")) return TP_NONE;
    const tp_tensor x[] = { h, cache, pos_win, pos_cmp };
    return m->recompute == TP_RECOMPUTE_BLOCK ? tp_checkpoint_n(T, run_block, m, 4, x)
                                              : run_block(T, m, 4, x);
}

/* ---- model ---- */

void tp_ls_lm_init(tp_params *P, tp_ls_lm *m, const char *name, tp_ls_lm_cfg cfg)
{
    if (!tp_params_want_module(P, m, "ls_lm")) return;
    char why[256];
    *m = (tp_ls_lm){ .params = P, .cfg = cfg };
    if (!tp_ls_lm_cfg_check(&cfg, why, sizeof why)) {
        tp_params_raise(P, TP_E_VALUE, "language model: %s", why);
        return;
    }
    m->path = tp_push(P, name);
    tp_params_init_rule(P, tp__lm_init_rule, NULL);
    m->in_emb = tp_param(P, "in_emb.weight", TP_SHAPE(cfg.vocab, cfg.dim), (tp_init){ 0 }, 0);
    tp_tie(P, "out_emb.weight", m->in_emb);
    m->out_bias = tp_param(P, "out_emb.bias", TP_SHAPE(cfg.vocab), (tp_init){ 0 }, 0);
    m->inv_freq = tp__lm_frequencies(P, "pos_emb.inv_freq", cfg.dim);
    for (int i = 0; i < cfg.layers; i++) {
        char layer[32];
        snprintf(layer, sizeof layer, "layers.%d", i);
        tp_ls_block_init(P, &m->layer[i], layer, &cfg);
    }
    tp_params_init_rule(P, NULL, NULL);
    tp_pop(P);
}

static int64_t gcd(int64_t a, int64_t b)
{
    return b ? gcd(b, a % b) : a;
}

/* Pads tokens [B,M] on the right with id 0 to whole chunks. */
static tp_tensor pad_tokens(tp_tape *T, const tp_ls_attn_cfg *c, tp_tensor tokens)
{
    const int64_t B = tp_dim(tokens, 0), M = tp_dim(tokens, 1);
    const int64_t l = c->chunk, unit = c->window ? c->window / gcd(c->window, l) * l : l;

    if (M % c->chunk == 0) return tokens;
    const tp_shape rest = TP_SHAPE(B, unit - M % unit);
    return tp_concat(T, 1, tokens, tp_full(T, tp_dtype_of(tokens), rest, 0.0));
}

/* [B,M] -> [B,M,d], in the compute dtype, which the whole residual stream keeps. */
static tp_tensor embed(tp_tape *T, const tp_ls_lm *m, tp_tensor tokens)
{
    const tp_tensor h = tp_embedding(T, m->in_emb, tokens, sqrt((double)m->cfg.dim));
    return tp_dropout(T, tp_cast(T, h, tp_compute_dtype(T)), m->cfg.emb_dropout);
}

tp_tensor tp_ls_lm_forward(tp_tape *T, const tp_ls_lm *m, tp_ls_lm_state *s, tp_tensor tokens)
{
    if (!tp_want_module(T, m, "ls_lm")) return TP_NONE;
    if (!tp_want(T, s, "ls_lm", "a state")) return TP_NONE;
    const tp_ls_lm_cfg *c = &m->cfg;
    const tp_ls_attn_cfg *ls = &c->ls.attn;
    tp_enter(T, m->path);
    if (!tp__lm_check_input(T, m->params, tokens, s->cache[0])) return tp_leave(T, TP_NONE);

    tp_tensor h = embed(T, m, pad_tokens(T, ls, tokens));
    const int64_t B = tp_dim(h, 0), M = tp_dim(h, 1);
    const tp_shape none = TP_SHAPE(B, ls->masked ? 0 : c->mem_len, c->dim);
    const tp_tensor empty = tp_given(s->cache[0]) ? TP_NONE : tp_full(T, tp_dtype_of(h), none, 0.0);
    const int64_t L = tp_dim(tp_given(empty) ? empty : s->cache[0], 1);

    const int64_t span = ls->segment ? 2 * (int64_t)ls->window : ls->window;
    tp_tensor pos_win = tp__lm_positions(T, &s->pos_win, span, m->inv_freq, ls->clamp);
    const tp_tensor pos_cmp = tp__lm_positions(T, &s->pos_cmp, (L + M) / ls->chunk * ls->rank,
                                               m->inv_freq, ls->chunk_clamp);
    pos_win = tp_dropout(T, pos_win, c->dropout);

    for (int i = 0; i < c->layers; i++) {
        const tp_tensor cache = tp_given(empty) ? empty : s->cache[i];
        const tp_tensor next = tp_ls_block_forward(T, &m->layer[i], h, cache, pos_win, pos_cmp);
        tp__lm_remember(T, &s->cache[i], cache, h, c->mem_len);
        h = next;
    }
    if (M != tp_dim(tokens, 1)) h = tp_slice(T, h, 1, 0, tp_dim(tokens, 1));
    h = tp_dropout(T, h, c->emb_dropout);
    return tp_leave(T, tp_linear(T, h, m->in_emb, m->out_bias, TP_ACT_NONE));
}

/* ---- state ---- */

void tp_ls_lm_state_clear(tp_tape *T, tp_ls_lm_state *s)
{
    if (!s) {
        tp_raise_here(T, TP_E_STATE, "ls_lm_state_clear: NULL was given in place of a state");
        return;
    }
    tp__lm_slots_clear(T, TP_LM_MAX_LAYERS, s->cache);
    tp__lm_slots_clear(T, 1, &s->pos_win);
    tp__lm_slots_clear(T, 1, &s->pos_cmp);
}

bool tp_ls_lm_state_write(tp_tape *T, const tp_ls_lm *m, const tp_ls_lm_state *s, tp_writer *W)
{
    if (!m) {
        tp_raise_here(T, TP_E_STATE, "ls_lm_state_write: NULL was given in place of a module");
        return false;
    }
    return tp__lm_slots_write(T, "cache", m->cfg.layers, s->cache, W);
}

bool tp_ls_lm_state_read(tp_tape *T, const tp_ls_lm *m, tp_ls_lm_state *s, tp_file *F)
{
    if (!m) {
        tp_raise_here(T, TP_E_STATE, "ls_lm_state_read: NULL was given in place of a module");
        return false;
    }
    const tp_ls_lm_cfg *c = &m->cfg;
    const int64_t least = c->ls.attn.masked ? 0 : c->mem_len;
    return tp__lm_slots_read(T, "cache", c->layers, s->cache, least, c->mem_len, c->dim, F);
}
