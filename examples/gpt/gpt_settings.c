/* gpt_settings.c - the flags of `gpt train` and its recipes: GPT-2's as nanoGPT and llm.c train it,
 * nanoGPT's for fine-tuning, LoRA's rate for adaptations, and one for a first run. */
#include <stdio.h>
#include <string.h>

#include "gpt.h"

#define S gpt_settings

enum { RECIPE_AUTO, RECIPE_MINI, RECIPE_GPT, RECIPE_TUNE, RECIPE_LORA };

const tp_option gpt_options[] = {
    TP_HEADING("TEXT"),
    TP_STRING(
        "data", S, x.paths, "FILE", TP_FREE,
        "The texts: files, plain or compressed, tar files, or folders with files .txt; several "
        "are separated by commas."),
    OPTION_TOKENIZER(S, tokenizer, TP_FREE),
    TP_CHOICE("documents", S, x.documents, "file|blank|line", TP_SAVED,
              "Where a document ends: only with its file, at blank lines, or with each line. The "
              "token <|endoftext|>, or else </s>, follows each if the vocabulary has it."),
    TP_NUM("held-out", S, x.held_out, 0.001, 0.499, TP_SAVED,
           "Share of the tokens that are held out for validation."),
    TP_INT("limit", S, x.limit, 0, TP_BIG, TP_SAVED, "Read only that many bytes of text; 0: all."),
    TP_STRING(
        "cache", S, x.cache, "FILE", TP_FREE,
        "Keep the tokens in this file, which the next run reads again, instead of in memory."),
    TP_HEADING("MODEL"),
    TP_STRING_OF("model", S, model, "NAME", gpt_model_known, TP_SAVED,
                 "gpt2, gpt2-mini, llama-mini, smollm-135m or another one that tp-models lists. If "
                 "not given: that of --init, or " MODEL_DEFAULT "."),
    OPTION_MEMBERS(S, set, TP_SAVED,
                   "Changes members of the model by their names in checkpoints, as n_layer=6; no "
                   "flag may contradict it"),
    TP_CHOICE("attention", S, attention, "as-it-is|full|ls", TP_SAVED,
              "ls: long-short attention, a window of 128 tokens and one vector for each chunk of "
              "16; ls_window, ls_chunk and ls_rank of --set change that. Published weights have "
              "full attention."),
    TP_NUM("dropout", S, dropout, -1, 0.99, TP_SAVED,
           "Dropout of embeddings, residual branches and attention; -1: the model's."),
    TP_ROWS(tp_recompute_options),
    TP_HEADING("RUN"),
    TP_STRING("init", S, train.init, "FILE", 0,
              "Start from the weights of this file: a checkpoint of this program, or a published "
              "one of GPT-2 or Llama (safetensors, .bin, .pt)."),
    OPTIONS_ADAPTATION(S, lora, TP_SAVED),
    TP_ROWS(tp_run_options),
    TP_HEADING("TRAINING"),
    TP_CHOICE("recipe", S, recipe, "auto|mini|gpt|tune|lora", TP_SAVED,
              "Sets everything below. mini: for minutes on two cores. gpt: 0.5 million tokens an "
              "update. tune: from trained weights; lora: the same by adaptations (--lora). auto: "
              "lora or tune with --init; otherwise mini for a model of that name, gpt for others."),
    TP_INT("steps", S, train.steps, 1, TP_BIG, TP_FREE, "Total updates."),
    TP_NUM("time", S, train.time, 0, TP_BIG, 0,
           "Stop after this many seconds, with a validation and a checkpoint; 0: no limit."),
    TP_INT("batch", S, train.batch, 1, 65536, TP_SAVED, "Windows of text in a batch."),
    TP_INT("tokens", S, tokens, 0, 1 << 24, TP_SAVED,
           "Tokens of a window. 0: as many as the model has positions. A new model gets as many "
           "positions as it needs."),
    TP_INT("accumulation", S, train.accumulation, 1, 65536, TP_SAVED,
           "Batches whose gradients are averaged for one update."),
    TP_NUM("lr", S, train.lr, 0, 1000, TP_SAVED, "Learning rate."),
    TP_ROWS(tp_rate_options),
    TP_ROWS(tp_optimizer_options),
    TP_INT("seed", S, train.seed, 0, TP_BIG, TP_SAVED,
           "Seed of initial weights, dropout and the order of the windows."),
    TP_HEADING("REPORTS AND CHECKPOINTS"),
    TP_INT("eval-every", S, train.eval_every, 0, TP_BIG, TP_FREE,
           "Updates between validations; 0: only at the end of the run."),
    TP_INT("eval-windows", S, eval_windows, 0, TP_BIG, TP_FREE,
           "Windows scored by a validation; 0: all that are held out."),
    TP_ROWS(tp_report_options),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_device_options),
    { 0 },
};

/* ---- recipes ---- */

typedef struct recipe {
    int64_t steps, batch, accumulation, tokens, warmup;
    double lr, lr_end, weight_decay;
    int schedule;
    int64_t log_every, every, eval_windows;
} recipe;

static const recipe recipes[] = {
    [RECIPE_MINI] = { 2000, 16, 1, 128, 100, 2e-3, 2e-4, 0.1, TP_RATE_COSINE, 10, 200, 400 },
    [RECIPE_GPT] = { 600000, 8, 60, 0, 2000, 6e-4, 6e-5, 0.1, TP_RATE_COSINE, 10, 1000, 0 },
    [RECIPE_TUNE] = { 200, 1, 32, 0, 0, 3e-5, 3e-5, 0.1, TP_RATE_CONSTANT, 1, 20, 0 },
    [RECIPE_LORA] = { 200, 1, 32, 0, 0, 2e-4, 2e-4, 0.01, TP_RATE_CONSTANT, 1, 20, 0 },
};

/* The one that is named, or follows from the weights or the model. */
static int recipe_of(const S *s, const tp_given_flags *given)
{
    if (tp_was_given(given, "recipe") && s->recipe != RECIPE_AUTO) return s->recipe;
    if (s->train.init) return s->lora.rank > 0 ? RECIPE_LORA : RECIPE_TUNE;
    const char *name = s->model ? s->model : MODEL_DEFAULT;
    return tp_ends_in(name, "-mini") ? RECIPE_MINI : RECIPE_GPT;
}

static void take_recipe(S *s, int which)
{
    const recipe *r = &recipes[which];
    tp_train_settings *o = &s->train;
    tp_train_choose(o, "adamw");
    tp_train_set(o, "beta1", 0.9);
    tp_train_set(o, "beta2", 0.95);
    tp_train_set(o, "weight_decay", r->weight_decay);
    s->recipe = which;
    s->tokens = r->tokens;
    s->eval_windows = r->eval_windows;
    o->epochs = 0;
    o->steps = r->steps;
    o->batch = r->batch;
    o->accumulation = r->accumulation;
    o->lr = r->lr;
    o->lr_end = r->lr_end;
    o->warmup = (double)r->warmup;
    o->schedule = r->schedule;
    o->clip = 1;
    o->log_every = r->log_every;
    o->eval_every = o->checkpoint_every = r->every;
}

bool gpt_settings_of(void *settings, const void *asked, const tp_given_flags *given, char *why,
                     size_t size)
{
    S *s = settings;
    tp_model_cfg c;
    *s = (S){ .train = tp_train_defaults("runs/gpt"), .x.held_out = 0.05, .dropout = -1 };
    take_recipe(s, asked ? recipe_of(asked, given) : RECIPE_MINI);
    if (!asked) s->recipe = RECIPE_AUTO; /* the default that --help names */
    const S *a = asked;
    return !a || !a->model || gpt_model_of_name(&c, a->model, why, size);
}

/* ---- the model ---- */

static tp_model_cfg with_flags(const tp_model_cfg *c, const gpt_settings *s)
{
    tp_gpt_cfg g = *gpt_cfg(c);
    if (s->dropout >= 0) g.dropout = g.emb_dropout = g.att_dropout = s->dropout;
    g.recompute = (tp_recompute)s->train.recompute;
    if (s->attention == ATTENTION_FULL) g.ls_chunk = g.ls_rank = g.ls_window = 0;
    if (s->attention == ATTENTION_LS && g.ls_chunk == 0) {
        g.ls_chunk = 16;
        g.ls_rank = 1;
        g.ls_window = 128;
        g.kv_heads = 0;
    }
    return tp_model_cfg_of(c->model, &g);
}

bool gpt_change(tp_model_cfg *c, const gpt_settings *s, char *why, size_t size)
{
    static const char *const set_by[TP_COMMON_KINDS] = {
        [TP_COMMON_OUTPUTS] = "the vocabulary",
        [TP_COMMON_RECOMPUTE] = "--recompute",
    };
    *c = with_flags(c, s);
    if (!s->set) return true;
    if (!model_set(c, s->set, set_by, why, size)) return false;
    const tp_model_cfg flags = with_flags(c, s);
    return model_set_agrees(c, &flags, why, size);
}
