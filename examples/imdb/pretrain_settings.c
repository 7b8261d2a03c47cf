/* pretrain_settings.c - the flags of `imdb pretrain`, and its recipes. */
#include "pretrain_settings.h"

#include <math.h>
#include <string.h>

#define S pretrain_settings

const tp_option pretrain_options[] = {
    TP_HEADING("TEXT"),
    TP_STRING(
        "data", S, data, "FILE", TP_FREE,
        "The texts: files, plain or compressed, tar files, or folders with files .txt; several "
        "are separated by commas."),
    OPTION_TOKENIZER(S, base.tokenizer, TP_FREE),
    TP_CHOICE(
        "documents", S, documents, "file|blank|line", TP_SAVED,
        "Where a document ends: only with its file, at blank lines, or with each line. Each ends "
        "with </s>, and all follow one another without padding."),
    TP_NUM("held-out", S, held_out, 0.001, 0.499, TP_SAVED,
           "Share of the tokens that are held out for validation."),
    TP_INT("limit", S, limit, 0, TP_BIG, TP_SAVED, "Read only that many bytes of text; 0: all."),
    TP_STRING(
        "cache", S, cache, "FILE", TP_FREE,
        "Keep the tokens in this file, which the next run reads again, instead of in memory."),
    TP_INT("sequence", S, sequence, 0, 1 << 20, TP_SAVED,
           "Tokens of a training sequence, <s> and </s> included; 0: --length."),
    TP_NUM("mask-rate", S, mask_rate, 0.001, 0.9, TP_SAVED,
           "Share of the tokens that are predicted. Of these, 80 % become <mask> and 10 % another "
           "token."),
    TP_CHOICE("masks", S, masks, "independent|exact", TP_SAVED,
              "Is each token drawn by itself, as transformers does, or a fixed number of each "
              "sequence, as fairseq does? --graph needs exact."),
    OPTIONS_TEXT_MODEL(S),
    TP_HEADING("RUN"),
    TP_STRING(
        "init", S, base.train.init, "FILE", 0,
        "Start from the weights of this file: a checkpoint of this program, or a published one "
        "of RoBERTa or Longformer (safetensors, .bin, .pt). --preset may name another attention: "
        "the weights are then converted, and positions repeated."),
    TP_ROWS(tp_run_options),
    TP_HEADING("TRAINING"),
    TP_CHOICE(
        "recipe", S, base.recipe, "roberta|longformer|notebook|mini", TP_SAVED,
        "Sets everything below. roberta: RoBERTa's own pretraining. longformer: how Longformer "
        "goes on from RoBERTa, 65,000 updates with a rate that falls as a cube. notebook: its "
        "short variant of 3000 updates. mini: for minutes on one core. The default follows from "
        "--preset: mini, roberta, or longformer for the long attentions."),
    TP_INT(
        "steps", S, base.train.steps, 1, TP_BIG, TP_FREE,
        "Updates of the whole run, over which the schedule extends. The recipe's warm-up keeps its "
        "share of them."),
    OPTION_TIME(S),
    TP_INT("batch", S, base.train.batch, 1, 65536, TP_SAVED, "Batch size, in sequences."),
    OPTION_ACCUMULATION(S),
    TP_INT("seed", S, base.train.seed, 0, TP_BIG, TP_SAVED,
           "Seed of initial weights, order of sequences, masks and dropout."),
    OPTIONS_RATES(S, base.r),
    TP_HEADING("REPORTS AND CHECKPOINTS"),
    TP_INT("eval-every", S, base.train.eval_every, 0, TP_BIG, TP_FREE,
           "Updates between validations; 0: only at the end of the run."),
    TP_INT("eval-sequences", S, eval_sequences, 0, TP_BIG, TP_FREE,
           "Validate on that many sequences at most; 0: on all that are held out."),
    TP_ROWS(tp_report_options),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_device_options),
    { 0 },
};

/* ---- recipes ---- */

static const struct recipe {
    int64_t steps, sequences, batch, every; /* sequences: of an update */
    double warmup, lr, power, clip;
    int schedule, decay;
} recipes[PRETRAIN_RECIPES] = {
    { 500000, 8192, 32, 2000, 24000, 6e-4, 1, 0, RATE_POLYNOMIAL,
      DECAY_ALL }, /* Liu et al., table 9 */
    { 65000, 64, 2, 500, 500, 3e-5, 3, 0, RATE_POLYNOMIAL, DECAY_MATRICES },
    { 3000, 64, 2, 500, 500, 3e-5, 1, 5, RATE_POLYNOMIAL, DECAY_MATRICES },
    { 3000, 16, 16, 250, 200, 1e-3, 1, 1, RATE_POLYNOMIAL, DECAY_MATRICES },
};

void pretrain_take_recipe(pretrain_settings *s, pretrain_recipe recipe, bool large)
{
    const struct recipe *r = &recipes[recipe];
    const bool own = recipe == PRETRAIN_ROBERTA && large;
    tp_train_settings *o = &s->base.train;
    s->base.recipe = (int)recipe;
    text_take_adamw(o);
    o->epochs = 0;
    o->steps = r->steps;
    o->batch = r->batch;
    o->accumulation = r->sequences / r->batch;
    o->warmup = own ? 30000 : r->warmup;
    o->lr = own ? 4e-4 : r->lr;
    o->schedule = r->schedule;
    tp_train_set(o, "weight_decay", 0.01);
    o->clip = r->clip;
    o->eval_every = o->checkpoint_every = r->every;
    s->base.r = (rate_choice){ .power = r->power, .decay = r->decay };
}

static pretrain_recipe usual(const char *preset)
{
    if (!preset || strstr(preset, "-mini")) return PRETRAIN_MINI;
    return strncmp(preset, "roberta-", 8) == 0 ? PRETRAIN_ROBERTA : PRETRAIN_LONGFORMER;
}

/* The warm-up keeps its share of the updates, the size of an update that of the recipe. */
static void adapt(pretrain_settings *s, const pretrain_settings *a, const tp_given_flags *given)
{
    tp_train_settings *o = &s->base.train;
    const int64_t sequences = o->batch * o->accumulation;
    if (tp_was_given(given, "steps"))
        o->warmup = fmax(1, round(o->warmup * (double)a->base.train.steps / (double)o->steps));
    if (tp_was_given(given, "batch") && sequences % a->base.train.batch == 0)
        o->accumulation = sequences / a->base.train.batch;
}

bool pretrain_settings_of(void *settings, const void *asked, const tp_given_flags *given, char *why,
                          size_t size)
{
    pretrain_settings *s = settings;
    const pretrain_settings *a = asked;
    (void)why;
    (void)size;
    *s = (pretrain_settings){ .base = { .train = tp_train_defaults("runs/pretrain"),
                                        .m = model_as_it_is },
                              .held_out = 0.05,
                              .mask_rate = 0.15,
                              .eval_sequences = 512 };
    const char *preset = a ? a->base.m.preset : NULL;
    const bool own = a && tp_was_given(given, "recipe");
    pretrain_take_recipe(s, own ? (pretrain_recipe)a->base.recipe : usual(preset),
                         preset && strstr(preset, "-large"));
    if (a) adapt(s, a, given);
    return true;
}
