/* presets.c - a preset is a row of the table of models and a recipe of its kind. */
#include <stdio.h>

#include "lm_kind.h"

static const char *const words[LM_PRESETS] = { "tiny", "mini", "small", "large" };

double preset_lr(const settings *s, bool text8)
{
    const lm_recipe *r = lm_recipe_of(s);
    return text8 ? r->lr_text8 : r->lr;
}

static void take_recipe(settings *s, const lm_recipe *r)
{
    s->tokens = r->tokens;
    s->mem_len = r->cache;
    s->dropout = s->emb_dropout = r->dropout;
    s->eval_tokens = r->eval_tokens;
    s->train.steps = r->steps;
    s->train.warmup = (double)r->warmup;
    s->train.batch = r->batch;
    s->train.lr = 0; /* preset_lr */
    s->train.lr_end = r->lr_end;
    s->train.schedule = r->schedule;
    tp_train_set(&s->train, "weight_decay", r->weight_decay);
    s->train.clip = r->clip;
    s->train.log_every = r->log_every;
    s->train.eval_every = r->eval_every;
    s->train.checkpoint_every = r->checkpoint_every;
}

bool settings_preset(settings *s, char *why, size_t size)
{
    const lm_recipe *r = lm_recipe_of(s);
    const lm_kind *k = lm_kind_at(s->model);
    tp_model_cfg c;
    char name[64];
    if (!r) {
        snprintf(why, size, "--phase %lld: this preset has only one phase", (long long)s->phase);
        return false;
    }
    snprintf(name, sizeof name, "%s-%s-enwik8", k->rows, words[s->preset]);
    if (!tp_model_preset(&c, name, why, size)) return false;
    lm_cfg_into(&c, s);
    s->d_head = s->dim / s->heads;
    tp_train_choose(&s->train, k->optimizer);
    take_recipe(s, r);
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
        .dual_ln = true,
    };
    s->train.seed = 2;
    return settings_preset(s, why, size);
}
