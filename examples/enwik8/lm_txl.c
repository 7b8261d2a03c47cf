/* lm_txl.c - the baseline Transformer-XL with the recipe of its own scripts: one phase. */
#include "lm_kind.h"

static void from(const settings *s, int64_t vocab, void *cfg)
{
    *(tp_txl_cfg *)cfg = (tp_txl_cfg){
        .vocab = vocab,
        .dim = s->dim,
        .hidden = s->hidden,
        .d_head = s->d_head,
        .layers = (int)s->layers,
        .heads = (int)s->heads,
        .mem_len = s->mem_len,
        .clamp = s->clamp,
        .pre_ln = s->pre_ln,
        .same_length = s->same_length,
        .dropout = s->dropout,
        .att_dropout = s->att_dropout,
        .recompute = (tp_recompute)s->train.recompute,
    };
}

static void into(const void *cfg, settings *s)
{
    const tp_txl_cfg *c = cfg;
    s->layers = c->layers;
    s->dim = c->dim;
    s->hidden = c->hidden;
    s->heads = c->heads;
    s->d_head = c->d_head;
    s->pre_ln = c->pre_ln;
    s->att_dropout = c->att_dropout;
}

static bool grows(const settings *s)
{
    (void)s;
    return true;
}

static void limit(void *cfg, int64_t clamp, int64_t chunk_clamp, bool same_length)
{
    tp_txl_cfg *c = cfg;
    (void)chunk_clamp;
    if (clamp >= 0) c->clamp = clamp;
    if (same_length) c->same_length = true;
}

/* All recipes: cosine schedule to the last step, clipped gradient. */
#define RECIPE(tokens_, cache_, steps_, warmup_, batch_, rate, end, dropout_)                      \
    .tokens = tokens_, .cache = cache_, .steps = steps_, .warmup = warmup_, .batch = batch_,       \
    .lr = rate, .lr_text8 = rate, .lr_end = end, .schedule = TP_RATE_COSINE, .dropout = dropout_,  \
    .clip = 0.25

const lm_kind lm_kind_txl = {
    .model = &tp_model_txl,
    .name = "Transformer-XL",
    .rows = "txl",
    .optimizer = "adam",
    .style = TP_TEXT_TXL,
    .recipe = { [PRESET_TINY] = { { RECIPE(256, 256, 10000, 50, 8, 1e-3, 0, 0), .log_every = 10,
                                    .eval_every = 100, .eval_tokens = 16384,
                                    .checkpoint_every = 100 } },
                [PRESET_MINI] = { { RECIPE(128, 256, 7000, 200, 16, 2e-3, 2e-5, 0), .log_every = 50,
                                    .eval_every = 500, .checkpoint_every = 500 } },
                [PRESET_SMALL] = { { RECIPE(512, 512, 400000, 0, 22, 2.5e-4, 0, 0.1),
                                     .log_every = 100, .eval_every = 4000,
                                     .checkpoint_every = 4000 } },
                [PRESET_LARGE] = { { RECIPE(768, 768, 400000, 4000, 64, 2.5e-4, 0, 0.15),
                                     .log_every = 100, .eval_every = 4000,
                                     .checkpoint_every = 4000 } } },
    .from = from,
    .into = into,
    .grows = grows,
    .limit = limit,
};
