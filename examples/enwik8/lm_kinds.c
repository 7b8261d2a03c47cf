/* lm_kinds.c - the table of language models with their recipes, and functions for all of them. */
#include <stdio.h>

#include "enwik8.h"

/* ---- Transformer-LS: the recipes of Appendix D of the paper and the official scripts ---- */

/* Where they disagree: Appendix D's batch, the scripts' rates. Each of three phases doubles the
 * segment and halves the rate; text8 trains at twice the rate. */

static void ls_from(const settings *s, int64_t vocab, void *cfg)
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
                .raw_kv = !s->dual_ln,
                .window_heads = (int)s->window_heads },
        .bias = s->bias,
        .pre_ln = s->pre_ln,
        .gelu = s->gelu,
        .dropout = s->dropout,
        .emb_dropout = s->emb_dropout,
        .recompute = (tp_recompute)s->train.recompute,
    };
}

static void ls_into(const void *cfg, settings *s)
{
    const tp_ls_lm_cfg *c = cfg;
    s->layers = c->layers;
    s->dim = c->dim;
    s->hidden = c->hidden;
    s->heads = c->ls.attn.heads;
    s->chunk = c->ls.attn.chunk;
    s->rank = c->ls.attn.rank;
    s->window = c->ls.attn.window;
    s->mem_len = c->mem_len;
    s->clamp = c->ls.attn.clamp;
    s->chunk_clamp = c->ls.attn.chunk_clamp;
    s->bias = c->bias;
    s->pre_ln = c->pre_ln;
    s->gelu = c->gelu;
    s->masked = c->ls.attn.masked;
    s->segment_window = c->ls.attn.segment;
    s->dropout = c->dropout;
    s->emb_dropout = c->emb_dropout;
    s->att_dropout = c->ls.attn.dropout;
    s->ln_local = c->ls.ln_local;
    s->project_first = c->ls.project_first;
    s->dual_ln = !c->ls.raw_kv;
    s->window_heads = c->ls.window_heads;
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

static bool ls_grows(const settings *s)
{
    return s->masked;
}

static void ls_limit(void *cfg, int64_t clamp, int64_t chunk_clamp, bool same_length)
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
 * streams the model adapts to the current text and gets worse on the rest. */
static const lm_kind ls_kind = {
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
    .from = ls_from,
    .into = ls_into,
    .segment = segment,
    .round = round_up,
    .grows = ls_grows,
    .limit = ls_limit,
};

/* ---- the baseline Transformer-XL: its own scripts' recipe, one phase ---- */

static void txl_from(const settings *s, int64_t vocab, void *cfg)
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

static void txl_into(const void *cfg, settings *s)
{
    const tp_txl_cfg *c = cfg;
    s->layers = c->layers;
    s->dim = c->dim;
    s->hidden = c->hidden;
    s->heads = c->heads;
    s->d_head = c->d_head;
    s->mem_len = c->mem_len;
    s->clamp = c->clamp;
    s->same_length = c->same_length;
    s->dropout = c->dropout;
    s->pre_ln = c->pre_ln;
    s->att_dropout = c->att_dropout;
}

static bool txl_grows(const settings *s)
{
    (void)s;
    return true;
}

static void txl_limit(void *cfg, int64_t clamp, int64_t chunk_clamp, bool same_length)
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

static const lm_kind txl_kind = {
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
    .from = txl_from,
    .into = txl_into,
    .grows = txl_grows,
    .limit = txl_limit,
};

/* ---- any language model ---- */

/* In the order of the choices of --model. */
static const lm_kind *const kinds[] = { &ls_kind, &txl_kind };
enum { KINDS = sizeof kinds / sizeof *kinds };

const lm_kind *lm_kind_at(int model)
{
    return kinds[model];
}

const lm_kind *lm_kind_of(const tp_model *model)
{
    for (int k = 0; k < KINDS; k++)
        if (kinds[k]->model == model) return kinds[k];
    return NULL;
}

const lm_recipe *lm_recipe_of(const settings *s)
{
    if (s->phase < 1 || s->phase > LM_PHASES) return NULL;
    const lm_recipe *r = &kinds[s->model]->recipe[s->preset][s->phase - 1];
    return r->steps ? r : NULL;
}

tp_model_cfg lm_cfg_of(const settings *s, int64_t vocab)
{
    const lm_kind *k = kinds[s->model];
    tp_model_cfg c = { .model = k->model };
    k->from(s, vocab, &c.at);
    return c;
}

void lm_cfg_into(const tp_model_cfg *c, settings *s)
{
    for (int k = 0; k < KINDS; k++) {
        if (kinds[k]->model != c->model) continue;
        s->model = k;
        kinds[k]->into(&c->at, s);
    }
}

bool lm_cfg_read(tp_model_cfg *c, tp_file *F, char *why, size_t size)
{
    if (!tp_model_read(c, F, why, size)) return false;
    if (lm_kind_of(c->model)) return true;
    snprintf(why, size, "%s holds a %s, not a language model", tp_file_path(F), c->model->name);
    return false;
}

bool lm_segment_check(const tp_model_cfg *c, const char *flag, int64_t tokens, char *why,
                      size_t size)
{
    const lm_kind *k = lm_kind_of(c->model);
    return !k->segment || k->segment(&c->at, flag, tokens, why, size);
}

int64_t lm_at_most(const tp_model_cfg *c, int64_t asked, int64_t enough)
{
    const lm_kind *k = lm_kind_of(c->model);
    const int64_t least = k->round ? k->round(&c->at, enough) : enough;
    return asked > least ? least : asked;
}

void lm_set_cache(tp_model_cfg *c, int64_t rows)
{
    tp_common_cfg o = tp_model_get(c);
    o.cache = rows;
    tp_model_set(c, &o);
}
