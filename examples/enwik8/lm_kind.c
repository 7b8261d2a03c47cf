/* lm_kind.c - the table of language models, and functions for any of them. */
#include "lm_kind.h"

#include <stdio.h>

/* The kinds, in the order of the choices of --model. */
static const lm_kind *const kinds[] = { &lm_kind_ls, &lm_kind_txl };
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
