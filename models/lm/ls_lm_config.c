/* ls_lm_config.c - presets, checks and members of the Transformer-LS language model, and its
 * constant. Metadata keys follow the specification. */
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

/* Trains in half an hour on two cores: examples/enwik8. */
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

/* Sizes of the dictionaries of the papers' texts. */
static const struct {
    const char *name;
    int64_t vocab;
} texts[] = { { "enwik8", 208 }, { "text8", 32 } };

/* Parses "ls_lm-SIZE-TEXT". */
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
    if (!c) {
        if (why) snprintf(why, size, "ls_lm_cfg_check: NULL was given in place of a configuration");
        return false;
    }
    const tp_ls_attn_cfg *ls = &c->ls.attn;
    const long long L = (long long)c->mem_len;

    if (!tp_ls_cfg_check(&c->ls, c->dim, why, size)) return false;
    tp__lm_check_common(c->vocab, c->dim, c->hidden, c->layers, c->mem_len, why, size);
    if (why[0]) return false;
    if (ls->window > TP_LM_MAX_SIZE || ls->chunk > TP_LM_MAX_SIZE ||
        (int64_t)ls->heads * ls->rank > TP_LM_MAX_SIZE)
        snprintf(
            why, size,
            "the model has a window of %d, chunks of %d and %d heads of rank %d, not at most %d",
            ls->window, ls->chunk, ls->heads, ls->rank, TP_LM_MAX_SIZE);
    else if (c->mem_len < (ls->masked ? 0 : 1))
        snprintf(why, size, "the model has a cache of %lld rows, but it needs one%s", L,
                 c->mem_len == 0 ? " unless empty caches are masked" : "");
    else if (c->mem_len % ls->chunk)
        snprintf(why, size, "the chunk length %d does not divide the cache of %lld rows", ls->chunk,
                 L);
    else if (c->mem_len < ls->window && !ls->masked)
        snprintf(why, size,
                 "the cache of %lld rows is shorter than the window of %d: "
                 "lengthen it, or set masked",
                 L, ls->window);
    else if (!tp__is_rate(c->dropout) || !tp__is_rate(c->emb_dropout) || !tp__is_rate(ls->dropout))
        snprintf(why, size, "dropout must be in [0,1), not %g, %g and %g", c->dropout,
                 c->emb_dropout, ls->dropout);
    return !why[0];
}

/* ---- metadata ---- */

static const char *const caches[] = { "phantom", "masked", NULL };
static const char *const windows[] = { "token", "segment", NULL };
static const char *const inputs[] = { "raw", "ln_local", NULL };
static const char *const orders[] = { "compress_first", "project_first", NULL };
static const char *const norms[] = { "on", "off", NULL };

#define AT(member) offsetof(tp_ls_lm_cfg, member)
static const tp_model_member members[] = {
    { "vocab_size", TP_MEMBER_INT64, .at = AT(vocab), .common = TP_COMMON_OUTPUTS },
    { "d_model", TP_MEMBER_INT64, .at = AT(dim) },
    { "d_inner", TP_MEMBER_INT64, .at = AT(hidden) },
    { "n_layer", TP_MEMBER_INT, .at = AT(layers) },
    { "n_head", TP_MEMBER_INT, .at = AT(ls.attn.heads) },
    { "mem_len", TP_MEMBER_INT64, .at = AT(mem_len), .common = TP_COMMON_CACHE },
    { "chunk_size", TP_MEMBER_INT, .at = AT(ls.attn.chunk) },
    { "chunk_rank", TP_MEMBER_INT, .at = AT(ls.attn.rank) },
    { "window_len", TP_MEMBER_INT, .at = AT(ls.attn.window) },
    { "clamp_len", TP_MEMBER_INT, .at = AT(ls.attn.clamp) },
    { "cpos_clamp_len", TP_MEMBER_INT, .at = AT(ls.attn.chunk_clamp) },
    { "use_bias", TP_MEMBER_FLAG, .at = AT(bias) },
    { "pre_ln", TP_MEMBER_FLAG, .at = AT(pre_ln) },
    { "use_gelu", TP_MEMBER_FLAG, .at = AT(gelu) },
    { "dropout", TP_MEMBER_REAL, .at = AT(dropout) },
    { "emb_dropout", TP_MEMBER_REAL, .at = AT(emb_dropout) },
    { "empty_cache", TP_MEMBER_CHOICE, .at = AT(ls.attn.masked), .words = caches },
    { "window", TP_MEMBER_CHOICE, .at = AT(ls.attn.segment), .words = windows },
    { "dproj_input", TP_MEMBER_CHOICE, .at = AT(ls.ln_local), .words = inputs },
    { "cache_dproj", TP_MEMBER_CHOICE, .at = AT(ls.project_first), .words = orders },
    { "dual_ln", TP_MEMBER_CHOICE, .at = AT(ls.raw_kv), .words = norms },
    { "dropatt", TP_MEMBER_REAL, .at = AT(ls.attn.dropout), .optional = true },
    { .kind = TP_MEMBER_HIDDEN, .at = AT(recompute), .common = TP_COMMON_RECOMPUTE },
    { .kind = TP_MEMBER_END },
};

/* ---- the model ---- */

static bool model_check(const void *cfg, char *why, size_t size)
{
    return tp_ls_lm_cfg_check(cfg, why, size);
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

/* Language models of bytes (enwik8) and letters (text8). */
/* clang-format off */
static const tp_model_row rows[] = {
    { "ls_lm-tiny-enwik8",  "Transformer-LS LM", .also = "ls_lm-tiny",                   .norm_cost = 5 },
    { "ls_lm-tiny-text8",   "Transformer-LS LM",                                         .norm_cost = 5 },
    { "ls_lm-mini-enwik8",  "Transformer-LS LM", .also = "ls_lm-mini",                   .norm_cost = 5 },
    { "ls_lm-mini-text8",   "Transformer-LS LM",                                         .norm_cost = 5 },
    { "ls_lm-small-enwik8", "Transformer-LS LM", .also = "ls_lm-small", .params = 44e6,  .norm_cost = 5 },
    { "ls_lm-small-text8",  "Transformer-LS LM",                        .params = 44e6,  .norm_cost = 5 },
    { "ls_lm-large-enwik8", "Transformer-LS LM", .also = "ls_lm-large", .params = 110e6, .norm_cost = 5 },
    { "ls_lm-large-text8",  "Transformer-LS LM",                                         .norm_cost = 5 },
    { 0 },
};
/* clang-format on */

const tp_model tp_model_ls_lm = {
    .name = "transformer-ls-lm",
    .input = TP_TOKENS,
    .cfg_size = sizeof(tp_ls_lm_cfg),
    .size = sizeof(tp_ls_lm),
    .state_size = sizeof(tp_ls_lm_state),
    .carried = "cache",
    .presets = rows,
    .preset = model_preset,
    .check = model_check,
    .members = members,
    .init = model_init,
    .forward = model_forward,
    .head = "in_emb.weight",
    .state_clear = model_state_clear,
    .state_write = model_state_write,
    .state_read = model_state_read,
};
