/* presets.c - the recipes: a tiny model for a first run, one for half an hour, and the papers'
 * launch scripts.
 *
 * Transformer-LS (Appendix D and the scripts; where they disagree, Appendix D's batch and the
 * scripts' rates): three phases that double the segment and halve the rate; text8 trains at twice
 * the rate. Transformer-XL: the settings of its own scripts, one phase. */
#include "settings.h"

#include <stdio.h>
#include <tapegrad/models.h>

typedef struct recipe {
    int64_t tokens, steps, warmup, batch;
    double lr, dropout, weight_decay;
    int64_t log_every, eval_every, eval_tokens, checkpoint_every;
} recipe;

/* [preset][phase - 1]; steps 0: there is no such phase. */
static const recipe ls_recipes[4][3] = {
    [PRESET_TINY] = { { 256, 10000, 50, 8, 3e-3, 0.0, 0.01, 10, 100, 16384, 100 } },
    [PRESET_MINI] = { { 128, 7000, 200, 16, 2.5e-3, 0.0, 0.01, 50, 500, 0, 500 } },
    [PRESET_SMALL] = { { 2048, 430000, 10000, 32, 2.5e-4, 0.2, 0.01, 100, 1000, 0, 1000 },
                       { 4096, 50000, 5000, 32, 1.25e-4, 0.2, 0.01, 100, 1000, 0, 1000 },
                       { 8192, 50000, 5000, 16, 6.25e-5, 0.2, 0.01, 100, 1000, 0, 1000 } },
    [PRESET_LARGE] = { { 2048, 430000, 10000, 32, 2.5e-4, 0.4, 0.1, 100, 1000, 0, 1000 },
                       { 4096, 50000, 5000, 32, 1.25e-4, 0.4, 0.1, 100, 1000, 0, 1000 },
                       { 8192, 50000, 5000, 16, 6.25e-5, 0.4, 0.1, 100, 1000, 0, 1000 } },
};

static const recipe txl_recipes[4] = {
    [PRESET_TINY] = { 256, 10000, 50, 8, 1e-3, 0.0, 0.0, 10, 100, 16384, 100 },
    [PRESET_MINI] = { 128, 7000, 200, 16, 2e-3, 0.0, 0.0, 50, 500, 0, 500 },
    [PRESET_SMALL] = { 512, 400000, 0, 22, 2.5e-4, 0.1, 0.0, 100, 4000, 0, 4000 },
    [PRESET_LARGE] = { 768, 400000, 4000, 64, 2.5e-4, 0.15, 0.0, 100, 4000, 0, 4000 },
};

static const recipe *find(const settings *s)
{
    if (s->phase < 1 || s->phase > 3 || (s->model == MODEL_TXL && s->phase > 1)) return NULL;
    const recipe *r =
        s->model == MODEL_TXL ? &txl_recipes[s->preset] : &ls_recipes[s->preset][s->phase - 1];
    return r->steps ? r : NULL;
}

double preset_lr(const settings *s, bool text8)
{
    const recipe *r = find(s);
    return r->lr * (text8 && s->model == MODEL_LS && s->preset >= PRESET_SMALL ? 2 : 1);
}

/* mini: many short streams, so that an update sees many places of the text. With few long ones the
 * model follows what it is just reading, and other text loses by it. */
static tp_lm_cfg ls_model(int which)
{
    if (which == PRESET_LARGE) return tp_lm_large(0);
    if (which == PRESET_SMALL) return tp_lm_small(0);
    tp_lm_cfg c = tp_lm_tiny(0);
    if (which == PRESET_MINI) {
        c.layers = 5;
        c.dim = 192;
        c.hidden = 768;
    }
    return c;
}

static void fill_ls(settings *s)
{
    const tp_lm_cfg c = ls_model(s->preset);
    s->layers = c.layers;
    s->dim = c.dim;
    s->hidden = c.hidden;
    s->heads = c.ls.heads;
    s->d_head = c.dim / c.ls.heads;
    s->chunk = c.ls.chunk;
    s->rank = c.ls.rank;
    s->window = c.ls.window;
    s->pre_ln = c.pre_ln;
    s->gelu = c.gelu;
    s->train.optimizer = TP_BY_ADAMW;
}

static void fill_txl(settings *s)
{
    tp_txl_cfg c = s->preset == PRESET_LARGE ? tp_txl_large(0) : tp_txl_base(0);
    if (s->preset < PRESET_SMALL) { /* as wide and deep as Transformer-LS */
        const tp_lm_cfg t = ls_model(s->preset);
        c.layers = t.layers;
        c.dim = t.dim;
        c.hidden = t.hidden;
        c.heads = t.ls.heads;
        c.d_head = t.dim / t.ls.heads;
    }
    s->layers = c.layers;
    s->dim = c.dim;
    s->hidden = c.hidden;
    s->heads = c.heads;
    s->d_head = c.d_head;
    s->pre_ln = c.pre_ln;
    s->att_dropout = s->preset < PRESET_SMALL ? 0 : c.att_dropout;
    s->train.optimizer = TP_BY_ADAM;
    s->train.schedule = TP_RATE_COSINE;
    s->train.clip = 0.25;
}

bool settings_preset(settings *s, char *why, size_t size)
{
    const recipe *r = find(s);
    if (!r) {
        snprintf(why, size, "--phase %lld: this preset has one phase only", (long long)s->phase);
        return false;
    }
    if (s->model == MODEL_TXL)
        fill_txl(s);
    else
        fill_ls(s);
    s->tokens = s->mem_len = r->tokens;
    if (s->preset == PRESET_MINI) {
        s->mem_len = 2 * r->tokens;
        s->train.schedule = TP_RATE_COSINE;
        s->train.lr_end = 2e-5;
        s->train.clip = s->model == MODEL_LS ? 1 : s->train.clip;
    }
    s->train.steps = r->steps;
    s->train.warmup = (double)r->warmup;
    s->train.batch = r->batch;
    s->train.lr = 0;
    s->dropout = s->emb_dropout = r->dropout;
    s->train.weight_decay = r->weight_decay;
    s->train.log_every = r->log_every;
    s->train.eval_every = r->eval_every;
    s->eval_tokens = r->eval_tokens;
    s->train.checkpoint_every = r->checkpoint_every;
    return true;
}

bool settings_start(settings *s, int model, int which, int64_t phase, char *why, size_t size)
{
    *s = (settings){
        .train = tp_train_defaults("runs/enwik8"),
        .model = model,
        .preset = which,
        .phase = phase,
        .chunk = 16,
        .rank = 1,
        .window = 64,
        .d_head = 64,
        .dual_ln = true,
    };
    s->train.seed = 2;
    return settings_preset(s, why, size);
}
