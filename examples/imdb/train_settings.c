/* train_settings.c - the flags of `imdb train`, and its recipes: section 4.1 of Transformer-LS with the recipes of
 * fairseq for RoBERTa and of Longformer's paper. */
#include "train_settings.h"

#include <stdio.h>
#include <string.h>

#define S train_settings

const tp_option text_train_options[] = {
    TP_HEADING("TEXTS"),
    OPTION_TEXTS(S, d, TP_FREE),
    OPTION_TOKENIZER(S, base.tokenizer, TP_FREE),
    OPTIONS_COLUMNS(S, d, TP_SAVED),
    OPTIONS_PARTS(S, d, TP_SAVED),
    TP_INT("examples", S, d.train, 0, TP_BIG, TP_SAVED,
           "Train on that many texts, of a folder equally many of each class; 0: all."),
    TP_INT("valid-examples", S, d.valid, 0, TP_BIG, TP_SAVED,
           "Validate on that many texts; 0: all."),
    TP_CHOICE(
        "packed", S, packed, "no|yes", TP_SAVED,
        "Are the texts of a batch packed one after another, without padding? Results differ only "
        "by rounding. The default is yes on the CPU, no on a GPU, where padding is faster."),
    TP_INT(
        "bucket", S, bucket, 0, 1000000, TP_SAVED,
        "Number of batches whose texts are sorted by length before they are divided into batches, "
        "each padded to its longest text; 0: not sorted. The default is 0 for packed batches, "
        "otherwise 50."),
    OPTIONS_TEXT_MODEL(S),
    TP_HEADING("RUN"),
    TP_STRING(
        "init", S, base.train.init, "FILE", 0,
        "Start from the weights of this file: a checkpoint of 'imdb pretrain', 'convert' or "
        "'train', or a published one of RoBERTa or Longformer (safetensors, .bin, .pt). A head for "
        "other classes begins anew."),
    TP_ROWS(tp_run_options),
    TP_HEADING("TRAINING"),
    TP_CHOICE(
        "recipe", S, base.recipe, "roberta|longformer|mini", TP_SAVED,
        "Sets everything below. roberta: fairseq's for RoBERTa-large. longformer: of "
        "Longformer's paper, also for long-short RoBERTa. mini: for small models. The default "
        "follows from the model."),
    TP_INT("epochs", S, passes, 0, 1000000, TP_SAVED,
           "Passes over the texts; 0: --steps ends the run."),
    TP_INT("steps", S, base.train.steps, 0, TP_BIG, TP_FREE,
           "Total updates; 0: --epochs ends the run."),
    OPTION_TIME(S),
    TP_INT(
        "batch", S, base.train.batch, 1, 65536, TP_SAVED,
        "Batch size, in texts. Unless --accumulation is given, too, an update keeps the recipe's 32 "
        "texts if this divides 32."),
    OPTION_ACCUMULATION(S),
    TP_NUM("smoothing", S, smoothing, 0, 0.99, TP_SAVED,
           "Share of each target that is spread over all classes."),
    TP_INT("seed", S, base.train.seed, 0, TP_BIG, TP_SAVED,
           "Seed of new weights, order of texts and dropout."),
    OPTIONS_RATES(S, base.r),
    TP_HEADING("REPORTS AND CHECKPOINTS"),
    TP_INT("eval-every", S, valid_every, -1, TP_BIG, TP_FREE,
           "Updates between validations; 0: after each pass; -1: only at the end of the run."),
    TP_INT(
        "checkpoint-every", S, base.train.checkpoint_every, 0, TP_BIG, TP_FREE,
        "Updates between checkpoints, in addition to the one at the end of the run; 0: after each "
        "pass."),
    TP_ROWS(tp_report_options),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_device_options),
    { 0 },
};

/* ---- recipes ---- */

static const struct recipe {
    int64_t batch, epochs;
    double lr, warmup, weight_decay, clip;
} recipes[TRAIN_RECIPES] = {
    { 8, 10, 1e-5, 0.06, 0.1, 0 },
    { 1, 15, 3e-5, 0.1, 0.1, 0 },
    { 16, 5, 3e-4, 0.1, 0.1, 1 },
};
enum { TEXTS = 32 }; /* of an update, in all recipes */

void train_take_recipe(train_settings *s, train_recipe recipe)
{
    const struct recipe *r = &recipes[recipe];
    tp_train_settings *o = &s->base.train;
    s->base.recipe = (int)recipe;
    text_take_adamw(o);
    s->passes = r->epochs;
    o->epochs = o->eval_every = o->checkpoint_every = 0;
    o->batch = r->batch;
    o->accumulation = TEXTS / r->batch;
    o->lr = r->lr;
    o->warmup = r->warmup;
    o->schedule = RATE_POLYNOMIAL;
    tp_train_set(o, "weight_decay", r->weight_decay);
    o->clip = r->clip;
    s->base.r = (rate_choice){ .power = 1, .decay = DECAY_ALL };
}

/* The recipe that fits the model of the command line, which may be that of a file. */
static bool usual(const train_settings *a, train_recipe *recipe, char *why, size_t size)
{
    tp_roberta_cfg c;
    *recipe = TRAIN_MINI;
    if (!a || (!a->base.m.preset && !a->base.train.init)) return true;
    tp_file *F = a->base.m.preset ? NULL : tp_file_open(a->base.train.init);
    const bool done = model_choose(&c, &a->base.m, F, (model_wish){ .classes = 2 }, why, size);
    tp_file_close(F);
    if (done && c.dim >= 512)
        *recipe = c.kind == TP_ROBERTA_FULL ? TRAIN_ROBERTA : TRAIN_LONGFORMER;
    return done;
}

text_batching train_batching(const train_settings *s)
{
    return (text_batching){ s->base.train.batch, s->bucket, s->packed };
}

/* Packed attention has no kernels for tensor cores. */
static void choose_batches(train_settings *s, const train_settings *a, const tp_given_flags *given)
{
    const char *device = a ? a->base.train.machine.device : NULL;
    const bool cpu = !device || strcmp(device, "cpu") == 0;
    s->packed = a && tp_was_given(given, "packed") ? a->packed : cpu;
    s->bucket = s->packed ? 0 : 50;
}

bool train_settings_of(void *settings, const void *asked, const tp_given_flags *given, char *why,
                       size_t size)
{
    train_settings *s = settings;
    const train_settings *a = asked;
    train_recipe recipe = a ? (train_recipe)a->base.recipe : TRAIN_MINI;
    *s = (train_settings){ .base = { .train = tp_train_defaults("runs/imdb"),
                                     .m = model_as_it_is } };
    s->base.train.epochs = 0;
    if (a && a->base.train.resume) return true; /* the checkpoint has the rest */
    if ((!a || !tp_was_given(given, "recipe")) && !usual(a, &recipe, why, size)) return false;
    train_take_recipe(s, recipe);
    choose_batches(s, a, given);
    if (a && tp_was_given(given, "batch") && TEXTS % a->base.train.batch == 0)
        s->base.train.accumulation = TEXTS / a->base.train.batch;
    return true;
}
