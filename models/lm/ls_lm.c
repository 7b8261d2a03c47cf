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
#include "model_inner.h"

/* ---- presets ---- */

#define LS(n, keys)                                                                                \
    .ls = { .attn = { .heads = n, .chunk = 16, .rank = 1, .window = keys } }, .pre_ln = true,      \
    .gelu = true
#define FIRST(n, width) .dim = width, .hidden = 4 * (width), .layers = n, .mem_len = 256, LS(4, 64)
#define PAPER(n, rate)                                                                             \
    .dim = 512, .hidden = 2048, .layers = n, .mem_len = 2048, LS(8, 512), .dropout = rate,         \
    .emb_dropout = rate
#define TINY  FIRST(4, 128)
#define SMALL PAPER(12, 0.2)

tp_ls_lm_cfg tp_ls_lm_tiny(int64_t vocab)
{
    return (tp_ls_lm_cfg){ .vocab = vocab, TINY };
}

tp_ls_lm_cfg tp_ls_lm_small(int64_t vocab)
{
    return (tp_ls_lm_cfg){ .vocab = vocab, SMALL };
}

/* Language models of bytes (enwik8) and letters (text8), with the papers' vocabulary sizes. The
 * mini models train in half an hour on two cores: examples/enwik8. */
/* clang-format off */
#define ENWIK8(...) .cfg = &(const tp_ls_lm_cfg){ .vocab = 208, __VA_ARGS__ }
#define TEXT8(...)  .cfg = &(const tp_ls_lm_cfg){ .vocab = 32, __VA_ARGS__ }
/* clang-format on */
static const tp_model_row presets[] = {
    { "ls_lm-tiny-enwik8", "Transformer-LS LM", .also = "ls_lm-tiny", .norm_cost = 5,
      ENWIK8(TINY) },
    { "ls_lm-tiny-text8", "Transformer-LS LM", .norm_cost = 5, TEXT8(TINY) },
    { "ls_lm-mini-enwik8", "Transformer-LS LM", .also = "ls_lm-mini", .norm_cost = 5,
      ENWIK8(FIRST(5, 192)) },
    { "ls_lm-mini-text8", "Transformer-LS LM", .norm_cost = 5, TEXT8(FIRST(5, 192)) },
    { "ls_lm-small-enwik8", "Transformer-LS LM", .also = "ls_lm-small", .params = 44e6,
      .norm_cost = 5, ENWIK8(SMALL) },
    { "ls_lm-small-text8", "Transformer-LS LM", .params = 44e6, .norm_cost = 5, TEXT8(SMALL) },
    { "ls_lm-large-enwik8", "Transformer-LS LM", .also = "ls_lm-large", .params = 110e6,
      .norm_cost = 5, ENWIK8(PAPER(30, 0.4)) },
    { "ls_lm-large-text8", "Transformer-LS LM", .norm_cost = 5, TEXT8(PAPER(30, 0.4)) },
    { 0 },
};

/* ---- members; the keys are those of the specification ---- */

static const char *const caches[] = { "phantom", "masked", NULL };
static const char *const windows[] = { "token", "segment", NULL };
static const char *const inputs[] = { "raw", "ln_local", NULL };
static const char *const orders[] = { "compress_first", "project_first", NULL };
static const char *const norms[] = { "on", "off", NULL };

#define AT(member) offsetof(tp_ls_lm_cfg, member)
static const tp_model_member members[] = {
    { "vocab_size", TP_MEMBER_INT64, .at = AT(vocab), .common = TP_COMMON_OUTPUTS, .least = 1,
      .most = TP_LM_MAX_SIZE },
    { "d_model", TP_MEMBER_INT64, .at = AT(dim), .least = 1, .most = TP_LM_MAX_SIZE },
    { "d_inner", TP_MEMBER_INT64, .at = AT(hidden), .least = 1, .most = TP_LM_MAX_SIZE },
    { "n_layer", TP_MEMBER_INT, .at = AT(layers), .least = 1, .most = TP_LM_MAX_LAYERS },
    { "n_head", TP_MEMBER_INT, .at = AT(ls.attn.heads), .least = 1, .most = TP_LM_MAX_SIZE },
    { "mem_len", TP_MEMBER_INT64, .at = AT(mem_len), .common = TP_COMMON_CACHE, .least = 0,
      .most = TP_LM_MAX_SIZE },
    { "chunk_size", TP_MEMBER_INT, .at = AT(ls.attn.chunk), .least = 1, .most = TP_LM_MAX_SIZE },
    { "chunk_rank", TP_MEMBER_INT, .at = AT(ls.attn.rank), .least = 0, .most = TP_LM_MAX_SIZE },
    { "window_len", TP_MEMBER_INT, .at = AT(ls.attn.window), .least = 0, .most = TP_LM_MAX_SIZE },
    { "clamp_len", TP_MEMBER_INT, .at = AT(ls.attn.clamp) },
    { "cpos_clamp_len", TP_MEMBER_INT, .at = AT(ls.attn.chunk_clamp) },
    { "use_bias", TP_MEMBER_FLAG, .at = AT(bias) },
    { "pre_ln", TP_MEMBER_FLAG, .at = AT(pre_ln) },
    { "use_gelu", TP_MEMBER_FLAG, .at = AT(gelu) },
    { "dropout", TP_MEMBER_RATE, .at = AT(dropout) },
    { "emb_dropout", TP_MEMBER_RATE, .at = AT(emb_dropout) },
    { "empty_cache", TP_MEMBER_CHOICE, .at = AT(ls.attn.masked), .words = caches },
    { "window", TP_MEMBER_CHOICE, .at = AT(ls.attn.segment), .words = windows },
    { "dproj_input", TP_MEMBER_CHOICE, .at = AT(ls.ln_local), .words = inputs },
    { "cache_dproj", TP_MEMBER_CHOICE, .at = AT(ls.project_first), .words = orders },
    { "dual_ln", TP_MEMBER_CHOICE, .at = AT(ls.raw_kv), .words = norms },
    { "dropatt", TP_MEMBER_RATE, .at = AT(ls.attn.dropout), .optional = true },
    { "window_heads", TP_MEMBER_INT, .at = AT(ls.window_heads), .optional = true, .least = 0,
      .most = TP_LM_MAX_SIZE },
    { .kind = TP_MEMBER_HIDDEN, .at = AT(recompute), .common = TP_COMMON_RECOMPUTE },
    { .kind = TP_MEMBER_END },
};

/* ---- checks ---- */

static bool model_check(const void *cfg, char *why, size_t size)
{
    const tp_ls_lm_cfg *c = cfg;
    const tp_ls_attn_cfg *ls = &c->ls.attn;
    const long long L = (long long)c->mem_len;

    if (!tp__check_members(members, c, why, size)) return false;
    if (!tp_ls_cfg_check(&c->ls, c->dim, why, size)) return false;
    if ((int64_t)ls->heads * ls->rank > TP_LM_MAX_SIZE)
        snprintf(why, size, "the model has %d heads of rank %d, together not at most %d", ls->heads,
                 ls->rank, TP_LM_MAX_SIZE);
    else if (c->mem_len == 0 && !ls->masked)
        snprintf(
            why, size,
            "the model has a cache of 0 rows, but it needs one unless empty caches are masked");
    else if (c->mem_len % ls->chunk)
        snprintf(why, size, "the chunk length %d does not divide the cache of %lld rows", ls->chunk,
                 L);
    else if (c->mem_len < ls->window && !ls->masked)
        snprintf(why, size,
                 "the cache of %lld rows is shorter than the window of %d: "
                 "lengthen it, or set masked",
                 L, ls->window);
    return !why[0];
}

/* ---- block ---- */

static void block_init(tp_params *P, void *module, const char *name, const void *of)
{
    tp_ls_block *m = module;
    const tp_ls_lm_cfg *cfg = of;
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

/* x: h [B,M,d], the raw cache [B,L,d], both tables -> a + attn(a), a = norm1(h) if pre_ln, else h.
 * The residual is included, so that recomputation sums the gradient of a in the same order. */
static tp_tensor attend(tp_tape *T, const void *self, int nx, const tp_tensor *x)
{
    const tp_ls_block *m = self;
    const tp_kv raw = { x[0], x[1] }; /* rows to normalise in one pass */
    const tp_kv in = m->pre_ln ? tp_layernorm_forward_kv(T, &m->norm1, raw) : raw;
    const tp_ls_context ctx = { x[2], x[3], tp_dim(in.v, 1) };
    const tp_tensor y = tp_ls_attn_forward(T, &m->attn, in.k, in.v, ctx);
    (void)nx;
    return tp_dropout_add(T, y, TP_NONE, in.k, m->dropout);
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
    const tp_tensor b = m->recompute == TP_RECOMPUTE_ATTENTION
                            ? tp_checkpoint_n(T, attend, m, nx, x)
                            : attend(T, m, nx, x);
    return tp_leave(T, tp__ls_block_finish(T, m, b));
}

/* with: the cache and both tables. */
static tp_tensor block_forward(tp_tape *T, const void *module, void *with, tp_tensor h)
{
    const tp_ls_block *m = module;
    const tp_tensor *in = with, x[] = { h, in[0], in[1], in[2] };
    return m->recompute == TP_RECOMPUTE_BLOCK ? tp_checkpoint_n(T, run_block, m, 4, x)
                                              : run_block(T, m, 4, x);
}

/* ---- model ---- */

static void model_init(tp_params *P, void *module, const char *name, const void *of)
{
    tp_ls_lm *m = module;
    const tp_ls_lm_cfg cfg = *(const tp_ls_lm_cfg *)of;
    char why[256];
    *m = (tp_ls_lm){ .params = P, .cfg = cfg };
    if (!model_check(&cfg, why, sizeof why)) {
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
        block_init(P, &m->layer[i], layer, &cfg);
    }
    tp_params_init_rule(P, NULL, NULL);
    tp_pop(P);
}

void tp_ls_lm_init(tp_params *P, tp_ls_lm *m, const char *name, tp_ls_lm_cfg cfg)
{
    if (tp_params_want_module(P, m, "ls_lm")) model_init(P, m, name, &cfg);
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

static tp_tensor model_forward(tp_tape *T, const void *module, void *state, tp_tensor tokens)
{
    const tp_ls_lm *m = module;
    tp_ls_lm_state *s = state;
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
    tp_tensor pos_cmp = tp__lm_positions(T, &s->pos_cmp, (L + M) / ls->chunk * ls->rank,
                                         m->inv_freq, ls->chunk_clamp);
    /* Once for all layers. */
    pos_win = tp_cast(T, tp_dropout(T, pos_win, c->dropout), tp_compute_dtype(T));
    pos_cmp = tp_cast(T, pos_cmp, tp_compute_dtype(T));

    for (int i = 0; i < c->layers; i++) {
        tp_tensor with[] = { tp_given(empty) ? empty : s->cache[i], pos_win, pos_cmp };
        const tp_tensor next = block_forward(T, &m->layer[i], with, h);
        tp__lm_remember(T, &s->cache[i], with[0], h, c->mem_len);
        h = next;
    }
    if (M != tp_dim(tokens, 1)) h = tp_slice(T, h, 1, 0, tp_dim(tokens, 1));
    h = tp_dropout(T, h, c->emb_dropout);
    return tp_leave(T, tp_linear(T, h, m->in_emb, m->out_bias, TP_ACT_NONE));
}

tp_tensor tp_ls_lm_forward(tp_tape *T, const tp_ls_lm *m, tp_ls_lm_state *s, tp_tensor tokens)
{
    if (!tp_want_module(T, m, "ls_lm") || !tp_want(T, s, "ls_lm", "a state")) return TP_NONE;
    return model_forward(T, m, s, tokens);
}

/* ---- state ---- */

static void model_state_clear(tp_tape *T, void *state)
{
    tp_ls_lm_state *s = state;
    tp__lm_slots_clear(T, TP_LM_MAX_LAYERS, s->cache);
    tp__lm_slots_clear(T, 1, &s->pos_win);
    tp__lm_slots_clear(T, 1, &s->pos_cmp);
}

static bool model_state_write(tp_tape *T, const void *module, const void *state, tp_writer *W)
{
    const tp_ls_lm *m = module;
    const tp_ls_lm_state *s = state;
    return tp__lm_slots_write(T, "cache", m->cfg.layers, s->cache, W);
}

static bool model_state_read(tp_tape *T, const void *module, void *state, tp_file *F)
{
    const tp_ls_lm_cfg *c = &((const tp_ls_lm *)module)->cfg;
    tp_ls_lm_state *s = state;
    const int64_t least = c->ls.attn.masked ? 0 : c->mem_len;
    return tp__lm_slots_read(T, "cache", c->layers, s->cache, least, c->mem_len, c->dim, F);
}

/* ---- the model ---- */

static const tp_model_part parts[] = {
    { "block", sizeof(tp_ls_block), block_init, block_forward },
    { 0 },
};

const tp_model tp_model_ls_lm = {
    .name = "transformer-ls-lm",
    .input = TP_TOKENS,
    .cfg_size = sizeof(tp_ls_lm_cfg),
    .size = sizeof(tp_ls_lm),
    .state_size = sizeof(tp_ls_lm_state),
    .carried = "cache",
    .presets = presets,
    .check = model_check,
    .members = members,
    .init = model_init,
    .forward = model_forward,
    .head = "in_emb.weight",
    .state_clear = model_state_clear,
    .state_write = model_state_write,
    .state_read = model_state_read,
    .parts = parts,
};
