/* recipes.c - the flags, recipes and learning rates of `imdb pretrain` and `imdb train`.
 * Fine-tuning recipes are section 4.1 of Transformer-LS, fairseq's for RoBERTa, and the Longformer
 * paper's. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "training.h"

/* ---- learning rates and weight decay ---- */

int64_t text_warmup(const tp_train_settings *o, int64_t total)
{
    const double w = o->warmup;
    return (int64_t)(w < 1 ? round(w * (double)total) : w);
}

/* As in fairseq: ((T - u) / (T - warm-up))^power, and `end` from update T on. */
static double polynomial(const tp_train_settings *o, double power, int64_t u, int64_t warm,
                         int64_t total)
{
    if (u < warm) return o->lr * (double)(u + 1) / (double)warm;
    if (u >= total) return o->lr_end;
    const double left = (double)(total - u) / (double)(total - warm);
    return o->lr_end + (o->lr - o->lr_end) * pow(left, power);
}

double text_rate(const tp_train_settings *o, const rate_choice *r, int64_t u, int64_t total)
{
    tp_train_settings whole = *o;
    const int64_t warm = text_warmup(o, total);
    if (o->schedule == RATE_POLYNOMIAL) return polynomial(o, r->power, u, warm, total);
    whole.warmup = (double)warm;
    return tp_train_rate(&whole, u, total);
}

/* Sets AdamW with fairseq's constants, common to all recipes. */
static void take_adamw(tp_train_settings *o)
{
    tp_train_choose(o, "adamw");
    tp_train_set(o, "beta1", 0.9);
    tp_train_set(o, "beta2", 0.98);
    tp_train_set(o, "eps", 1e-6);
}

static tp_factors spare_vectors(const char *name, tp_shape shape, void *env)
{
    (void)name;
    (void)env;
    return (tp_factors){ .lr = 1, .decay = shape.ndim > 1 };
}

tp_optim *text_optimizer(tp_params *P, const tp_train_settings *o, const rate_choice *r)
{
    return tp_train_optimizer(P, o, true, r->decay == DECAY_MATRICES ? spare_vectors : NULL, NULL);
}

/* ---- recipes ---- */

/* power 0: 1. A warm-up below 1 is a share of the run. */
typedef struct recipe {
    int64_t examples, batch; /* examples per update */
    double lr, warmup, weight_decay, clip;
    int64_t epochs, steps, every; /* every: updates between validations */
    double power;
    int decay;
} recipe;

static void take_recipe(text_settings *s, int which, const recipe *r)
{
    tp_train_settings *o = &s->train;
    s->recipe = which;
    take_adamw(o);
    o->epochs = 0;
    o->batch = r->batch;
    o->accumulation = r->examples / r->batch;
    o->lr = r->lr;
    o->warmup = r->warmup;
    o->schedule = RATE_POLYNOMIAL;
    tp_train_set(o, "weight_decay", r->weight_decay);
    o->clip = r->clip;
    s->r = (rate_choice){ .power = r->power > 0 ? r->power : 1, .decay = r->decay };
}

/* ---- flags of `imdb pretrain` ---- */

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

/* ---- recipes of `imdb pretrain` ---- */

static const recipe pretrain_recipes[PRETRAIN_RECIPES] = {
    { 8192, 32, 6e-4, 24000, 0.01, 0, .steps = 500000, .every = 2000 }, /* Liu et al., table 9 */
    { 64, 2, 3e-5, 500, 0.01, 0, .steps = 65000, .every = 500, .power = 3,
      .decay = DECAY_MATRICES },
    { 64, 2, 3e-5, 500, 0.01, 5, .steps = 3000, .every = 500, .decay = DECAY_MATRICES },
    { 16, 16, 1e-3, 200, 0.01, 1, .steps = 3000, .every = 250, .decay = DECAY_MATRICES },
};

void pretrain_take_recipe(pretrain_settings *s, pretrain_recipe which, bool large)
{
    const recipe *r = &pretrain_recipes[which];
    tp_train_settings *o = &s->base.train;
    take_recipe(&s->base, (int)which, r);
    o->steps = r->steps;
    o->eval_every = o->checkpoint_every = r->every;
    if (which != PRETRAIN_ROBERTA || !large) return;
    o->warmup = 30000;
    o->lr = 4e-4;
}

static pretrain_recipe usual_pretraining(const char *preset)
{
    if (!preset || strstr(preset, "-mini")) return PRETRAIN_MINI;
    return strncmp(preset, "roberta-", 8) == 0 ? PRETRAIN_ROBERTA : PRETRAIN_LONGFORMER;
}

/* Scales the warm-up with the updates; keeps the recipe's update size. */
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
    pretrain_take_recipe(s, own ? (pretrain_recipe)a->base.recipe : usual_pretraining(preset),
                         preset && strstr(preset, "-large"));
    if (a) adapt(s, a, given);
    return true;
}

/* ---- flags of `imdb train` ---- */

#undef S
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
    OPTIONS_ADAPTATION(S, base.lora, TP_SAVED),
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
        "Batch size, in texts. Unless --accumulation is given, too, an update keeps the recipe's "
        "32 texts if this divides 32."),
    OPTION_ACCUMULATION(S),
    TP_NUM("smoothing", S, smoothing, 0, 0.99, TP_SAVED,
           "Share of each target that is spread over all classes."),
    TP_FLAG("balance", S, balance, TP_SAVED,
            "Read as many texts of each class, whatever their frequencies: those of rare classes "
            "several times, of frequent ones a part in each pass."),
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

/* ---- recipes of `imdb train` ---- */

enum { TEXTS = 32 }; /* per update, in all recipes */

static const recipe train_recipes[TRAIN_RECIPES] = {
    { TEXTS, 8, 1e-5, 0.06, 0.1, 0, .epochs = 10 },
    { TEXTS, 1, 3e-5, 0.1, 0.1, 0, .epochs = 15 },
    { TEXTS, 16, 3e-4, 0.1, 0.1, 1, .epochs = 5 },
};

void train_take_recipe(train_settings *s, train_recipe which)
{
    tp_train_settings *o = &s->base.train;
    take_recipe(&s->base, (int)which, &train_recipes[which]);
    s->passes = train_recipes[which].epochs;
    o->eval_every = o->checkpoint_every = 0;
}

/* Chooses the recipe for the command line's model, which may be a file's. */
static bool usual_training(const train_settings *a, train_recipe *which, char *why, size_t size)
{
    tp_roberta_cfg c;
    *which = TRAIN_MINI;
    if (!a || (!a->base.m.preset && !a->base.train.init)) return true;
    tp_file *F = a->base.m.preset ? NULL : tp_file_open(a->base.train.init);
    const bool done = model_choose(&c, &a->base.m, F, (model_wish){ .classes = 2 }, why, size);
    tp_file_close(F);
    if (done && c.dim >= 512) *which = c.kind == TP_ROBERTA_FULL ? TRAIN_ROBERTA : TRAIN_LONGFORMER;
    return done;
}

text_batching train_batching(const train_settings *s)
{
    return (
        text_batching){ .batch = s->base.train.batch, .bucket = s->bucket, .packed = s->packed };
}

/* A GPU pads by default: whether packing is faster there has not been measured. */
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
    train_recipe which = a ? (train_recipe)a->base.recipe : TRAIN_MINI;
    *s = (train_settings){ .base = { .train = tp_train_defaults("runs/imdb"),
                                     .m = model_as_it_is } };
    s->base.train.epochs = 0;
    if (a && a->base.train.resume) return true; /* the checkpoint has the rest */
    if ((!a || !tp_was_given(given, "recipe")) && !usual_training(a, &which, why, size))
        return false;
    train_take_recipe(s, which);
    choose_batches(s, a, given);
    if (a && tp_was_given(given, "batch") && TEXTS % a->base.train.batch == 0)
        s->base.train.accumulation = TEXTS / a->base.train.batch;
    return true;
}
