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
#include "model_inner.h"

/* ---- presets ---- */

/* Language models of bytes (enwik8) and letters (text8), with the papers' vocabulary sizes. The
 * first ones match the width and depth of the Transformer-LS models of the same names. */
/* clang-format off */
#define ENWIK8(...) .cfg = &(const tp_txl_cfg){ .vocab = 204, __VA_ARGS__ }
#define TEXT8(...)  .cfg = &(const tp_txl_cfg){ .vocab = 27, __VA_ARGS__ }
#define FIRST(n, width) \
    .dim = width, .hidden = 4 * (width), .d_head = (width) / 4, .layers = n, .heads = 4, \
    .mem_len = 256
#define BASE \
    .dim = 512, .hidden = 2048, .d_head = 64, .layers = 12, .heads = 8, .mem_len = 512, \
    .dropout = 0.1
#define LARGE \
    .dim = 1024, .hidden = 3072, .d_head = 128, .layers = 24, .heads = 8, .mem_len = 768, \
    .dropout = 0.15, .att_dropout = 0.15
/* clang-format on */
static const tp_model_row presets[] = {
    { "txl-tiny-enwik8", "Transformer-XL", .also = "txl-tiny", .norm_cost = 5,
      ENWIK8(FIRST(4, 128)) },
    { "txl-tiny-text8", "Transformer-XL", .norm_cost = 5, TEXT8(FIRST(4, 128)) },
    { "txl-mini-enwik8", "Transformer-XL", .also = "txl-mini", .norm_cost = 5,
      ENWIK8(FIRST(5, 192)) },
    { "txl-mini-text8", "Transformer-XL", .norm_cost = 5, TEXT8(FIRST(5, 192)) },
    { "txl-base-enwik8", "Transformer-XL", .also = "txl-base txl-small-enwik8", .params = 41e6,
      .norm_cost = 5, ENWIK8(BASE) },
    { "txl-base-text8", "Transformer-XL", .also = "txl-small-text8", .norm_cost = 5, TEXT8(BASE) },
    { "txl-large-enwik8", "Transformer-XL", .also = "txl-large", .params = 277e6, .norm_cost = 5,
      ENWIK8(LARGE) },
    { "txl-large-text8", "Transformer-XL", .params = 277e6, .norm_cost = 5, TEXT8(LARGE) },
    { 0 },
};

/* ---- members ---- */

#define AT(member) offsetof(tp_txl_cfg, member)
static const tp_model_member members[] = {
    { "vocab_size", TP_MEMBER_INT64, .at = AT(vocab), .common = TP_COMMON_OUTPUTS, .least = 1,
      .most = TP_LM_MAX_SIZE },
    { "d_model", TP_MEMBER_INT64, .at = AT(dim), .least = 1, .most = TP_LM_MAX_SIZE },
    { "d_inner", TP_MEMBER_INT64, .at = AT(hidden), .least = 1, .most = TP_LM_MAX_SIZE },
    { "d_head", TP_MEMBER_INT64, .at = AT(d_head), .least = 1, .most = TP_LM_MAX_SIZE },
    { "n_layer", TP_MEMBER_INT, .at = AT(layers), .least = 1, .most = TP_LM_MAX_LAYERS },
    { "n_head", TP_MEMBER_INT, .at = AT(heads), .least = 1, .most = TP_LM_MAX_SIZE },
    { "mem_len", TP_MEMBER_INT64, .at = AT(mem_len), .common = TP_COMMON_CACHE, .least = 0,
      .most = TP_LM_MAX_SIZE },
    { "clamp_len", TP_MEMBER_INT64, .at = AT(clamp) },
    { "pre_lnorm", TP_MEMBER_FLAG, .at = AT(pre_ln) },
    { "same_length", TP_MEMBER_FLAG, .at = AT(same_length) },
    { "dropout", TP_MEMBER_RATE, .at = AT(dropout) },
    { "dropatt", TP_MEMBER_RATE, .at = AT(att_dropout) },
    { .kind = TP_MEMBER_HIDDEN, .at = AT(recompute), .common = TP_COMMON_RECOMPUTE },
    { .kind = TP_MEMBER_END },
};

/* ---- checks ---- */

static bool model_check(const void *cfg, char *why, size_t size)
{
    const tp_txl_cfg *c = cfg;
    if (!tp__check_members(members, c, why, size)) return false;
    if (c->dim % 2)
        snprintf(why, size, "the width %lld is odd, but sinusoidal positions come in pairs",
                 (long long)c->dim);
    else if (c->heads * c->d_head > TP_LM_MAX_SIZE)
        snprintf(why, size, "the model has %d heads of width %lld, together not at most %d",
                 c->heads, (long long)c->d_head, TP_LM_MAX_SIZE);
    else if (c->same_length && c->mem_len == 0)
        snprintf(why, size,
                 "the model has a memory of 0 rows with same_length, which is impossible");
    return !why[0];
}

/* ---- layer ---- */

/* Biases already in m are the model's; otherwise the layer owns them. */
static void attn_init(tp_params *P, void *module, const char *name, const void *of)
{
    tp_txl_attn *m = module;
    const tp_txl_cfg *cfg = of;
    const int64_t d = cfg->dim, heads = cfg->heads * cfg->d_head;
    const tp_shape each = TP_SHAPE(cfg->heads, cfg->d_head);

    *m = (tp_txl_attn){ .path = tp_push(P, name),
                        .pre_ln = cfg->pre_ln,
                        .recompute = cfg->recompute,
                        .dropout = cfg->dropout,
                        .cfg = { .heads = cfg->heads,
                                 .dropout = cfg->att_dropout,
                                 .max_span = cfg->same_length ? cfg->mem_len : 0 },
                        .r_w_bias = m->r_w_bias,
                        .r_r_bias = m->r_r_bias };
    if (!tp_given(m->r_w_bias)) m->r_w_bias = tp_param(P, "r_w_bias", each, (tp_init){ 0 }, 0);
    if (!tp_given(m->r_r_bias)) m->r_r_bias = tp_param(P, "r_r_bias", each, (tp_init){ 0 }, 0);
    tp_linear_init(P, &m->qkv_net, "qkv_net", d, 3 * heads, false);
    tp_linear_init(P, &m->o_net, "o_net", heads, d, false);
    tp_linear_init(P, &m->r_net, "r_net", d, heads, false);
    tp_layernorm_init(P, &m->norm, "layer_norm", d, 1e-5);
    tp_pop(P);
}

/* Applies part 0 (q), 1 (k) or 2 (v) of qkv_net to x. */
static tp_tensor project(tp_tape *T, const tp_txl_attn *m, tp_tensor x, int part)
{
    return tp_linear_part(T, &m->qkv_net, x, part, 3);
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

static tp_tensor attn_forward(tp_tape *T, const void *module, void *with, tp_tensor w)
{
    const tp_txl_attn *m = module;
    const tp_tensor *in = with, x[] = { w, in[0], in[1] };
    tp_enter(T, m->path);
    const tp_tensor y = m->recompute == TP_RECOMPUTE_ATTENTION ? tp_checkpoint_n(T, attend, m, 3, x)
                                                               : attend(T, m, 3, x);
    return tp_leave(T, m->pre_ln ? y : tp_layernorm_forward(T, &m->norm, y));
}

static void init_layer(tp_params *P, tp_txl_layer *m, const char *name, const tp_txl *model)
{
    const tp_txl_cfg *c = &model->cfg;
    m->path = tp_push(P, name);
    m->attn.r_w_bias = model->r_w_bias;
    m->attn.r_r_bias = model->r_r_bias;
    attn_init(P, &m->attn, "dec_attn", c);
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
    const tp_tensor h = attn_forward(T, &m->attn, (tp_tensor[]){ x[1], x[2] }, x[0]);
    const tp_tensor in = pre ? tp_layernorm_forward(T, &m->ff_norm, h) : h;
    const tp_tensor y = tp_mlp_forward(T, &m->ff, in, h);
    return tp_leave(T, pre ? y : tp_layernorm_forward(T, &m->ff_norm, y));
}

/* ---- network ---- */

static void model_init(tp_params *P, void *module, const char *name, const void *of)
{
    tp_txl *m = module;
    const tp_txl_cfg cfg = *(const tp_txl_cfg *)of;
    char why[256];
    const tp_init rule = { 0 }; /* replaced by tp__lm_init_rule */
    *m = (tp_txl){ .params = P, .cfg = cfg };
    if (!model_check(&cfg, why, sizeof why)) {
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

static tp_tensor model_forward(tp_tape *T, const void *module, void *state, tp_tensor tokens)
{
    const tp_txl *m = module;
    tp_txl_state *s = state;
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

static void model_state_clear(tp_tape *T, void *state)
{
    tp_txl_state *s = state;
    tp__lm_slots_clear(T, TP_LM_MAX_LAYERS + 1, s->mem);
    tp__lm_slots_clear(T, 1, &s->pos);
}

static bool model_state_write(tp_tape *T, const void *module, const void *state, tp_writer *W)
{
    const tp_txl *m = module;
    const tp_txl_state *s = state;
    return tp__lm_slots_write(T, "mem", m->cfg.layers + 1, s->mem, W);
}

static bool model_state_read(tp_tape *T, const void *module, void *state, tp_file *F)
{
    const tp_txl_cfg *c = &((const tp_txl *)module)->cfg;
    tp_txl_state *s = state;
    return tp__lm_slots_read(T, "mem", c->layers + 1, s->mem, 0, c->mem_len, c->dim, F);
}

/* ---- the model ---- */

static const tp_model_part parts[] = {
    { "attn", sizeof(tp_txl_attn), attn_init, attn_forward },
    { 0 },
};

const tp_model tp_model_txl = {
    .name = "transformer-xl",
    .input = TP_TOKENS,
    .cfg_size = sizeof(tp_txl_cfg),
    .size = sizeof(tp_txl),
    .state_size = sizeof(tp_txl_state),
    .carried = "memory",
    .presets = presets,
    .check = model_check,
    .members = members,
    .init = model_init,
    .forward = model_forward,
    .head = "word_emb.emb_layers.0.weight",
    .state_clear = model_state_clear,
    .state_write = model_state_write,
    .state_read = model_state_read,
    .parts = parts,
};
