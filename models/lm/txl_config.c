/* txl_config.c - presets, checks and members of Transformer-XL, and its constant. */
#include <stdio.h>
#include <string.h>

#include "inner.h"
#include "model_inner.h"

/* ---- presets ---- */

tp_txl_cfg tp_txl_base(int64_t vocab)
{
    return (tp_txl_cfg){ .vocab = vocab,
                         .dim = 512,
                         .hidden = 2048,
                         .d_head = 64,
                         .layers = 12,
                         .heads = 8,
                         .mem_len = 512,
                         .dropout = 0.1 };
}

tp_txl_cfg tp_txl_large(int64_t vocab)
{
    return (tp_txl_cfg){ .vocab = vocab,
                         .dim = 1024,
                         .hidden = 3072,
                         .d_head = 128,
                         .layers = 24,
                         .heads = 8,
                         .mem_len = 768,
                         .dropout = 0.15,
                         .att_dropout = 0.15 };
}

/* As wide and deep as the Transformer-LS model of the same name. */
static tp_txl_cfg small_one(int layers, int64_t dim, int64_t vocab)
{
    return (tp_txl_cfg){ .vocab = vocab,
                         .dim = dim,
                         .hidden = 4 * dim,
                         .d_head = dim / 4,
                         .layers = layers,
                         .heads = 4,
                         .mem_len = 256 };
}

static tp_txl_cfg tiny(int64_t vocab)
{
    return small_one(4, 128, vocab);
}

static tp_txl_cfg mini(int64_t vocab)
{
    return small_one(5, 192, vocab);
}

static const struct {
    const char *name;
    tp_txl_cfg (*make)(int64_t vocab);
} sizes[] = {
    { "tiny", tiny },
    { "mini", mini },
    { "base", tp_txl_base },
    { "large", tp_txl_large },
};

/* Sizes of the dictionaries of the papers' texts. */
static const struct {
    const char *name;
    int64_t vocab;
} texts[] = { { "enwik8", 204 }, { "text8", 27 } };

/* Parses "txl-SIZE-TEXT". */
static bool model_preset(void *cfg, const char *name, char *why, size_t size)
{
    char full[64];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
            snprintf(full, sizeof full, "txl-%s-%s", sizes[i].name, texts[k].name);
            if (strcmp(full, name) != 0) continue;
            *(tp_txl_cfg *)cfg = sizes[i].make(texts[k].vocab);
            return true;
        }
    snprintf(why, size, "no Transformer-XL is called '%.80s'", name);
    return false;
}

/* ---- checks ---- */

bool tp_txl_cfg_check(const tp_txl_cfg *c, char *why, size_t size)
{
    if (!c) {
        if (why) snprintf(why, size, "txl_cfg_check: NULL was given in place of a configuration");
        return false;
    }
    why[0] = '\0';
    tp__lm_check_common(c->vocab, c->dim, c->hidden, c->layers, c->mem_len, why, size);
    if (why[0]) return false;
    if (c->dim < 2 || c->dim % 2)
        snprintf(why, size, "the width %lld is odd, but sinusoidal positions come in pairs",
                 (long long)c->dim);
    else if (c->heads < 1 || !tp__lm_is_size(c->d_head) || !tp__lm_is_size(c->heads * c->d_head))
        snprintf(why, size, "the model has %d heads of width %lld, which is impossible", c->heads,
                 (long long)c->d_head);
    else if (c->mem_len < 0 || (c->same_length && c->mem_len == 0))
        snprintf(why, size, "the model has a memory of %lld rows%s, which is impossible",
                 (long long)c->mem_len, c->same_length ? " with same_length" : "");
    else if (!tp__is_rate(c->dropout) || !tp__is_rate(c->att_dropout))
        snprintf(why, size, "dropout must be in [0,1), not %g and %g", c->dropout, c->att_dropout);
    return !why[0];
}

/* ---- metadata ---- */

#define AT(member) offsetof(tp_txl_cfg, member)
static const tp_model_member members[] = {
    { "vocab_size", TP_MEMBER_INT64, .at = AT(vocab), .common = TP_COMMON_OUTPUTS },
    { "d_model", TP_MEMBER_INT64, .at = AT(dim) },
    { "d_inner", TP_MEMBER_INT64, .at = AT(hidden) },
    { "d_head", TP_MEMBER_INT64, .at = AT(d_head) },
    { "n_layer", TP_MEMBER_INT, .at = AT(layers) },
    { "n_head", TP_MEMBER_INT, .at = AT(heads) },
    { "mem_len", TP_MEMBER_INT64, .at = AT(mem_len), .common = TP_COMMON_CACHE },
    { "clamp_len", TP_MEMBER_INT64, .at = AT(clamp) },
    { "pre_lnorm", TP_MEMBER_FLAG, .at = AT(pre_ln) },
    { "same_length", TP_MEMBER_FLAG, .at = AT(same_length) },
    { "dropout", TP_MEMBER_REAL, .at = AT(dropout) },
    { "dropatt", TP_MEMBER_REAL, .at = AT(att_dropout) },
    { .kind = TP_MEMBER_HIDDEN, .at = AT(recompute), .common = TP_COMMON_RECOMPUTE },
    { .kind = TP_MEMBER_END },
};

/* ---- the model ---- */

static bool model_check(const void *cfg, char *why, size_t size)
{
    return tp_txl_cfg_check(cfg, why, size);
}

static void model_init(tp_params *P, void *m, const char *name, const void *cfg)
{
    tp_txl_init(P, m, name, *(const tp_txl_cfg *)cfg);
}

static tp_tensor model_forward(tp_tape *T, const void *m, void *state, tp_tensor x)
{
    return tp_txl_forward(T, m, state, x);
}

static void model_state_clear(tp_tape *T, void *state)
{
    tp_txl_state_clear(T, state);
}

static bool model_state_write(tp_tape *T, const void *m, const void *state, tp_writer *W)
{
    return tp_txl_state_write(T, m, state, W);
}

static bool model_state_read(tp_tape *T, const void *m, void *state, tp_file *F)
{
    return tp_txl_state_read(T, m, state, F);
}

/* Language models of bytes (enwik8) and letters (text8). */
/* clang-format off */
static const tp_model_row rows[] = {
    { "txl-tiny-enwik8",  "Transformer-XL", .also = "txl-tiny",                                   .norm_cost = 5 },
    { "txl-tiny-text8",   "Transformer-XL",                                                       .norm_cost = 5 },
    { "txl-mini-enwik8",  "Transformer-XL", .also = "txl-mini",                                   .norm_cost = 5 },
    { "txl-mini-text8",   "Transformer-XL",                                                       .norm_cost = 5 },
    { "txl-base-enwik8",  "Transformer-XL", .also = "txl-base txl-small-enwik8", .params = 41e6,  .norm_cost = 5 },
    { "txl-base-text8",   "Transformer-XL", .also = "txl-small-text8",                            .norm_cost = 5 },
    { "txl-large-enwik8", "Transformer-XL", .also = "txl-large",                 .params = 277e6, .norm_cost = 5 },
    { 0 },
};
/* clang-format on */

const tp_model tp_model_txl = {
    .name = "transformer-xl",
    .input = TP_TOKENS,
    .cfg_size = sizeof(tp_txl_cfg),
    .size = sizeof(tp_txl),
    .state_size = sizeof(tp_txl_state),
    .carried = "memory",
    .presets = rows,
    .preset = model_preset,
    .check = model_check,
    .members = members,
    .init = model_init,
    .forward = model_forward,
    .head = "word_emb.emb_layers.0.weight",
    .state_clear = model_state_clear,
    .state_write = model_state_write,
    .state_read = model_state_read,
};
