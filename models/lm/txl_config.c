/* txl_config.c - Transformer-XL's presets, checks and metadata, and the model as one constant. */
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

/* As wide and deep as the Transformer-LS of that name. */
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

/* The dictionaries of the papers' texts. */
static const struct {
    const char *name;
    int64_t vocab;
} texts[] = { { "enwik8", 204 }, { "text8", 27 } };

/* "txl-SIZE-TEXT" */
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
    why[0] = '\0';
    tp__lm_check_common(c->vocab, c->dim, c->hidden, c->layers, c->mem_len, why, size);
    if (why[0]) return false;
    if (c->dim < 2 || c->dim % 2)
        snprintf(why, size, "the width %lld is not even: sinusoidal positions come in pairs",
                 (long long)c->dim);
    else if (c->heads < 1 || !tp__lm_is_size(c->d_head) || !tp__lm_is_size(c->heads * c->d_head))
        snprintf(why, size, "%d heads of width %lld", c->heads, (long long)c->d_head);
    else if (c->mem_len < 0 || (c->same_length && c->mem_len == 0))
        snprintf(why, size, "a memory of %lld rows%s", (long long)c->mem_len,
                 c->same_length ? " with same_length" : "");
    else if (!tp__lm_is_rate(c->dropout) || !tp__lm_is_rate(c->att_dropout))
        snprintf(why, size, "dropout must be in [0,1), not %g and %g", c->dropout, c->att_dropout);
    return !why[0];
}

/* ---- metadata ---- */

#define AT(member) offsetof(tp_txl_cfg, member)
static const tp__member members[] = {
    { .key = "vocab_size", .kind = MEMBER_INT64, .at = AT(vocab) },
    { .key = "d_model", .kind = MEMBER_INT64, .at = AT(dim) },
    { .key = "d_inner", .kind = MEMBER_INT64, .at = AT(hidden) },
    { .key = "d_head", .kind = MEMBER_INT64, .at = AT(d_head) },
    { .key = "n_layer", .kind = MEMBER_INT, .at = AT(layers) },
    { .key = "n_head", .kind = MEMBER_INT, .at = AT(heads) },
    { .key = "mem_len", .kind = MEMBER_INT64, .at = AT(mem_len) },
    { .key = "clamp_len", .kind = MEMBER_INT64, .at = AT(clamp) },
    { .key = "pre_lnorm", .kind = MEMBER_FLAG, .at = AT(pre_ln) },
    { .key = "same_length", .kind = MEMBER_FLAG, .at = AT(same_length) },
    { .key = "dropout", .kind = MEMBER_REAL, .at = AT(dropout) },
    { .key = "dropatt", .kind = MEMBER_REAL, .at = AT(att_dropout) },
    { .key = NULL },
};

void tp_txl_cfg_write(const tp_txl_cfg *cfg, tp_writer *W)
{
    tp_writer_meta(W, "model", tp_model_txl.name);
    tp__members_write(members, cfg, W);
}

bool tp_txl_cfg_read(tp_txl_cfg *cfg, tp_file *F, char *why, size_t size)
{
    *cfg = (tp_txl_cfg){ 0 };
    return tp__members_read(members, tp_model_txl.name, cfg, F, why, size) &&
           tp_txl_cfg_check(cfg, why, size);
}

/* ---- the model ---- */

static bool model_check(const void *cfg, char *why, size_t size)
{
    return tp_txl_cfg_check(cfg, why, size);
}

static void model_write(const void *cfg, tp_writer *W)
{
    tp_txl_cfg_write(cfg, W);
}

static bool model_read(void *cfg, tp_file *F, char *why, size_t size)
{
    return tp_txl_cfg_read(cfg, F, why, size);
}

static tp_common_cfg model_get(const void *cfg)
{
    const tp_txl_cfg *c = cfg;
    return (tp_common_cfg){ .cache = c->mem_len, .outputs = c->vocab, .recompute = c->recompute };
}

static void model_set(void *cfg, const tp_common_cfg *o)
{
    tp_txl_cfg *c = cfg;
    c->mem_len = o->cache;
    c->vocab = o->outputs;
    c->recompute = o->recompute;
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

static tp_flops model_flops(const void *cfg, int64_t tokens, int64_t cache)
{
    const tp_txl_cfg *c = cfg;
    return tp_txl_flops(c, tokens ? tokens : c->mem_len, cache ? cache : c->mem_len);
}

static double model_activations(const void *cfg, int64_t tokens, int64_t cache)
{
    const tp_txl_cfg *c = cfg;
    return tp_txl_activations(c, tokens ? tokens : c->mem_len, cache ? cache : c->mem_len);
}

const tp_model tp_model_txl = {
    .name = "transformer-xl",
    .input = TP_TOKENS,
    .cfg_size = sizeof(tp_txl_cfg),
    .size = sizeof(tp_txl),
    .state_size = sizeof(tp_txl_state),
    .carried = "memory",
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
