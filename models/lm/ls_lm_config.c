/* ls_lm_config.c - the Transformer-LS language model's presets, checks and metadata, and the model
 * as one constant. Keys are those of the specification. */
#include <stdio.h>
#include <string.h>

#include "inner.h"
#include "model_inner.h"

/* ---- presets ---- */

tp_ls_lm_cfg tp_ls_lm_tiny(int64_t vocab)
{
    return (tp_ls_lm_cfg){
        .vocab = vocab,
        .dim = 128,
        .hidden = 512,
        .layers = 4,
        .mem_len = 256,
        .ls = { .attn = { .heads = 4, .chunk = 16, .rank = 1, .window = 64 } },
        .pre_ln = true,
        .gelu = true,
    };
}

tp_ls_lm_cfg tp_ls_lm_small(int64_t vocab)
{
    return (tp_ls_lm_cfg){
        .vocab = vocab,
        .dim = 512,
        .hidden = 2048,
        .layers = 12,
        .mem_len = 2048,
        .ls = { .attn = { .heads = 8, .chunk = 16, .rank = 1, .window = 512 } },
        .pre_ln = true,
        .gelu = true,
        .dropout = 0.2,
        .emb_dropout = 0.2,
    };
}

tp_ls_lm_cfg tp_ls_lm_large(int64_t vocab)
{
    tp_ls_lm_cfg c = tp_ls_lm_small(vocab);
    c.layers = 30;
    c.dropout = c.emb_dropout = 0.4;
    return c;
}

/* Trained in half an hour on two cores: examples/enwik8. */
static tp_ls_lm_cfg mini(int64_t vocab)
{
    tp_ls_lm_cfg c = tp_ls_lm_tiny(vocab);
    c.layers = 5;
    c.dim = 192;
    c.hidden = 768;
    return c;
}

static const struct {
    const char *name;
    tp_ls_lm_cfg (*make)(int64_t vocab);
} sizes[] = {
    { "tiny", tp_ls_lm_tiny },
    { "mini", mini },
    { "small", tp_ls_lm_small },
    { "large", tp_ls_lm_large },
};

/* The dictionaries of the papers' texts. */
static const struct {
    const char *name;
    int64_t vocab;
} texts[] = { { "enwik8", 208 }, { "text8", 32 } };

/* "ls_lm-SIZE-TEXT" */
static bool model_preset(void *cfg, const char *name, char *why, size_t size)
{
    char full[64];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
            snprintf(full, sizeof full, "ls_lm-%s-%s", sizes[i].name, texts[k].name);
            if (strcmp(full, name) != 0) continue;
            *(tp_ls_lm_cfg *)cfg = sizes[i].make(texts[k].vocab);
            return true;
        }
    snprintf(why, size, "no Transformer-LS language model is called '%.80s'", name);
    return false;
}

/* ---- checks ---- */

bool tp_ls_lm_cfg_check(const tp_ls_lm_cfg *c, char *why, size_t size)
{
    const tp_ls_attn_cfg *ls = &c->ls.attn;
    const long long L = (long long)c->mem_len;

    if (!tp_ls_cfg_check(&c->ls, c->dim, why, size)) return false;
    tp__lm_check_common(c->vocab, c->dim, c->hidden, c->layers, c->mem_len, why, size);
    if (why[0]) return false;
    if (ls->window > TP_LM_MAX_SIZE || ls->chunk > TP_LM_MAX_SIZE ||
        (int64_t)ls->heads * ls->rank > TP_LM_MAX_SIZE)
        snprintf(why, size, "a window of %d, chunks of %d and %d heads of rank %d: at most %d",
                 ls->window, ls->chunk, ls->heads, ls->rank, TP_LM_MAX_SIZE);
    else if (c->mem_len < (ls->masked ? 0 : 1))
        snprintf(why, size, "a cache of %lld rows: the model needs one%s", L,
                 c->mem_len == 0 ? " unless empty caches are masked" : "");
    else if (c->mem_len % ls->chunk)
        snprintf(why, size, "the chunk length %d does not divide the cache of %lld rows", ls->chunk,
                 L);
    else if (c->mem_len < ls->window && !ls->masked)
        snprintf(why, size,
                 "the cache of %lld rows is shorter than the window of %d: "
                 "lengthen it, or set the option masked",
                 L, ls->window);
    else if (!tp__lm_is_rate(c->dropout) || !tp__lm_is_rate(c->emb_dropout))
        snprintf(why, size, "dropout must be in [0,1), not %g and %g", c->dropout, c->emb_dropout);
    return !why[0];
}

/* ---- metadata ---- */

static const char *const caches[] = { "phantom", "masked", NULL };
static const char *const windows[] = { "token", "segment", NULL };
static const char *const inputs[] = { "raw", "ln_local", NULL };
static const char *const orders[] = { "compress_first", "project_first", NULL };
static const char *const norms[] = { "on", "off", NULL };

#define AT(member) offsetof(tp_ls_lm_cfg, member)
static const tp__member members[] = {
    { .key = "vocab_size", .kind = MEMBER_INT64, .at = AT(vocab) },
    { .key = "d_model", .kind = MEMBER_INT64, .at = AT(dim) },
    { .key = "d_inner", .kind = MEMBER_INT64, .at = AT(hidden) },
    { .key = "n_layer", .kind = MEMBER_INT, .at = AT(layers) },
    { .key = "n_head", .kind = MEMBER_INT, .at = AT(ls.attn.heads) },
    { .key = "mem_len", .kind = MEMBER_INT64, .at = AT(mem_len) },
    { .key = "chunk_size", .kind = MEMBER_INT, .at = AT(ls.attn.chunk) },
    { .key = "chunk_rank", .kind = MEMBER_INT, .at = AT(ls.attn.rank) },
    { .key = "window_len", .kind = MEMBER_INT, .at = AT(ls.attn.window) },
    { .key = "clamp_len", .kind = MEMBER_INT, .at = AT(ls.attn.clamp) },
    { .key = "cpos_clamp_len", .kind = MEMBER_INT, .at = AT(ls.attn.chunk_clamp) },
    { .key = "use_bias", .kind = MEMBER_FLAG, .at = AT(bias) },
    { .key = "pre_ln", .kind = MEMBER_FLAG, .at = AT(pre_ln) },
    { .key = "use_gelu", .kind = MEMBER_FLAG, .at = AT(gelu) },
    { .key = "dropout", .kind = MEMBER_REAL, .at = AT(dropout) },
    { .key = "emb_dropout", .kind = MEMBER_REAL, .at = AT(emb_dropout) },
    { .key = "empty_cache", .kind = MEMBER_CHOICE, .at = AT(ls.attn.masked), .words = caches },
    { .key = "window", .kind = MEMBER_CHOICE, .at = AT(ls.attn.segment), .words = windows },
    { .key = "dproj_input", .kind = MEMBER_CHOICE, .at = AT(ls.ln_local), .words = inputs },
    { .key = "cache_dproj", .kind = MEMBER_CHOICE, .at = AT(ls.project_first), .words = orders },
    { .key = "dual_ln", .kind = MEMBER_CHOICE, .at = AT(ls.raw_kv), .words = norms },
    { .key = NULL },
};

void tp_ls_lm_cfg_write(const tp_ls_lm_cfg *cfg, tp_writer *W)
{
    tp_writer_meta(W, "model", tp_model_ls_lm.name);
    tp__members_write(members, cfg, W);
}

bool tp_ls_lm_cfg_read(tp_ls_lm_cfg *cfg, tp_file *F, char *why, size_t size)
{
    *cfg = (tp_ls_lm_cfg){ 0 };
    return tp__members_read(members, tp_model_ls_lm.name, cfg, F, why, size) &&
           tp_ls_lm_cfg_check(cfg, why, size);
}

/* ---- the model ---- */

static bool model_check(const void *cfg, char *why, size_t size)
{
    return tp_ls_lm_cfg_check(cfg, why, size);
}

static void model_write(const void *cfg, tp_writer *W)
{
    tp_ls_lm_cfg_write(cfg, W);
}

static bool model_read(void *cfg, tp_file *F, char *why, size_t size)
{
    return tp_ls_lm_cfg_read(cfg, F, why, size);
}

static tp_common_cfg model_get(const void *cfg)
{
    const tp_ls_lm_cfg *c = cfg;
    return (tp_common_cfg){ .cache = c->mem_len, .outputs = c->vocab, .recompute = c->recompute };
}

static void model_set(void *cfg, const tp_common_cfg *o)
{
    tp_ls_lm_cfg *c = cfg;
    c->mem_len = o->cache;
    c->vocab = o->outputs;
    c->recompute = o->recompute;
}

static void model_init(tp_params *P, void *m, const char *name, const void *cfg)
{
    tp_ls_lm_init(P, m, name, *(const tp_ls_lm_cfg *)cfg);
}

static tp_tensor model_forward(tp_tape *T, const void *m, void *state, tp_tensor x)
{
    return tp_ls_lm_forward(T, m, state, x);
}

static void model_state_clear(tp_tape *T, void *state)
{
    tp_ls_lm_state_clear(T, state);
}

static bool model_state_write(tp_tape *T, const void *m, const void *state, tp_writer *W)
{
    return tp_ls_lm_state_write(T, m, state, W);
}

static bool model_state_read(tp_tape *T, const void *m, void *state, tp_file *F)
{
    return tp_ls_lm_state_read(T, m, state, F);
}

static tp_flops model_flops(const void *cfg, int64_t tokens, int64_t cache)
{
    const tp_ls_lm_cfg *c = cfg;
    return tp_ls_lm_flops(c, tokens ? tokens : c->mem_len, cache ? cache : c->mem_len);
}

static double model_activations(const void *cfg, int64_t tokens, int64_t cache)
{
    const tp_ls_lm_cfg *c = cfg;
    return tp_ls_lm_activations(c, tokens ? tokens : c->mem_len, cache ? cache : c->mem_len);
}

const tp_model tp_model_ls_lm = {
    .name = "transformer-ls-lm",
    .input = TP_TOKENS,
    .cfg_size = sizeof(tp_ls_lm_cfg),
    .size = sizeof(tp_ls_lm),
    .state_size = sizeof(tp_ls_lm_state),
    .carried = "cache",
    .preset = model_preset,
    .check = model_check,
    .write = model_write,
    .read = model_read,
    .get = model_get,
    .set = model_set,
    .init = model_init,
    .forward = model_forward,
    .state_clear = model_state_clear,
    .state_write = model_state_write,
    .state_read = model_state_read,
    .flops = model_flops,
    .activations = model_activations,
};
