/* lm_ls.c - Transformer-LS with the recipes of Appendix D of the paper and the official scripts
 * (where they disagree: Appendix D's batch, the scripts' rates). Each of three phases doubles the
 * segment and halves the rate; text8 trains at twice the rate. */
#include <stdio.h>

#include "lm_kind.h"

static void from(const settings *s, int64_t vocab, void *cfg)
{
    *(tp_ls_lm_cfg *)cfg = (tp_ls_lm_cfg){
        .vocab = vocab,
        .dim = s->dim,
        .hidden = s->hidden,
        .layers = (int)s->layers,
        .mem_len = s->mem_len,
        .ls = { .attn = { .heads = (int)s->heads,
                          .chunk = (int)s->chunk,
                          .rank = (int)s->rank,
                          .window = (int)s->window,
                          .clamp = (int)s->clamp,
                          .chunk_clamp = (int)s->chunk_clamp,
                          .dropout = s->att_dropout,
                          .masked = s->masked,
                          .segment = s->segment_window },
                .ln_local = s->ln_local,
                .project_first = s->project_first,
                .raw_kv = !s->dual_ln },
        .bias = s->bias,
        .pre_ln = s->pre_ln,
        .gelu = s->gelu,
        .dropout = s->dropout,
        .emb_dropout = s->emb_dropout,
        .recompute = (tp_recompute)s->train.recompute,
    };
}

static void into(const void *cfg, settings *s)
{
    const tp_ls_lm_cfg *c = cfg;
    s->layers = c->layers;
    s->dim = c->dim;
    s->hidden = c->hidden;
    s->heads = c->ls.attn.heads;
    s->chunk = c->ls.attn.chunk;
    s->rank = c->ls.attn.rank;
    s->window = c->ls.attn.window;
    s->bias = c->bias;
    s->pre_ln = c->pre_ln;
    s->gelu = c->gelu;
    s->masked = c->ls.attn.masked;
    s->segment_window = c->ls.attn.segment;
    s->att_dropout = c->ls.attn.dropout;
    s->ln_local = c->ls.ln_local;
    s->project_first = c->ls.project_first;
    s->dual_ln = !c->ls.raw_kv;
}

static bool segment(const void *cfg, const char *flag, int64_t tokens, char *why, size_t size)
{
    const tp_ls_attn_cfg *c = &((const tp_ls_lm_cfg *)cfg)->ls.attn;
    why[0] = '\0';
    if (tokens % c->chunk != 0)
        snprintf(why, size, "%s %lld is not a multiple of --chunk %d", flag, (long long)tokens,
                 c->chunk);
    else if (c->window > 0 && tokens > c->window && tokens % c->window != 0)
        snprintf(why, size, "%s %lld is longer than --window %d and not a multiple of it", flag,
                 (long long)tokens, c->window);
    return !why[0];
}

static int64_t multiple(int64_t x, int64_t of)
{
    return (x + of - 1) / of * of;
}

static int64_t round_up(const void *cfg, int64_t tokens)
{
    const tp_ls_attn_cfg *c = &((const tp_ls_lm_cfg *)cfg)->ls.attn;
    int64_t a = c->chunk, b = c->window;
    const int64_t chunks = multiple(tokens, c->chunk);
    if (chunks <= c->window || c->window == 0) return chunks;
    while (b > 0) { /* Euclid's algorithm */
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return multiple(tokens, c->chunk / a * c->window);
}

static bool grows(const settings *s)
{
    return s->masked;
}

static void limit(void *cfg, int64_t clamp, int64_t chunk_clamp, bool same_length)
{
    tp_ls_attn_cfg *c = &((tp_ls_lm_cfg *)cfg)->ls.attn;
    (void)same_length;
    if (clamp >= 0) c->clamp = (int)clamp;
    if (chunk_clamp >= 0) c->chunk_clamp = (int)chunk_clamp;
}

/* A phase of the paper's training. */
#define PHASE(tokens_, steps_, warmup_, batch_, rate, dropout_, decay)                             \
    {                                                                                              \
        .tokens = tokens_, .cache = tokens_, .steps = steps_, .warmup = warmup_, .batch = batch_,  \
        .lr = rate, .lr_text8 = 2 * (rate), .dropout = dropout_, .weight_decay = decay,            \
        .log_every = 100, .eval_every = 1000, .checkpoint_every = 1000                             \
    }

/* mini uses many short streams, so that an update sees many parts of the text. With few long
 * streams the model adapts to the text at hand and gets worse on the rest. */
const lm_kind lm_kind_ls = {
    .model = &tp_model_ls_lm,
    .name = "Transformer-LS",
    .rows = "ls_lm",
    .optimizer = "adamw",
    .raw_eps = true, /* as in fairseq */
    .style = TP_TEXT_AUTO,
    .recipe = { [PRESET_TINY] = { { .tokens = 256,
                                    .cache = 256,
                                    .steps = 10000,
                                    .warmup = 50,
                                    .batch = 8,
                                    .lr = 3e-3,
                                    .lr_text8 = 3e-3,
                                    .weight_decay = 0.01,
                                    .log_every = 10,
                                    .eval_every = 100,
                                    .eval_tokens = 16384,
                                    .checkpoint_every = 100 } },
                [PRESET_MINI] = { { .tokens = 128,
                                    .cache = 256,
                                    .steps = 7000,
                                    .warmup = 200,
                                    .batch = 16,
                                    .lr = 2.5e-3,
                                    .lr_text8 = 2.5e-3,
                                    .lr_end = 2e-5,
                                    .schedule = TP_RATE_COSINE,
                                    .weight_decay = 0.01,
                                    .clip = 1,
                                    .log_every = 50,
                                    .eval_every = 500,
                                    .checkpoint_every = 500 } },
                [PRESET_SMALL] = { PHASE(2048, 430000, 10000, 32, 2.5e-4, 0.2, 0.01),
                                   PHASE(4096, 50000, 5000, 32, 1.25e-4, 0.2, 0.01),
                                   PHASE(8192, 50000, 5000, 16, 6.25e-5, 0.2, 0.01) },
                [PRESET_LARGE] = { PHASE(2048, 430000, 10000, 32, 2.5e-4, 0.4, 0.1),
                                   PHASE(4096, 50000, 5000, 32, 1.25e-4, 0.4, 0.1),
                                   PHASE(8192, 50000, 5000, 16, 6.25e-5, 0.4, 0.1) } },
    .from = from,
    .into = into,
    .segment = segment,
    .round = round_up,
    .grows = grows,
    .limit = limit,
};
