/* training.h - shared by `imdb pretrain` and `imdb train`: settings, flags, recipes, the base of
 * their state, and engine callbacks that need only these. */
#ifndef TRAINING_H
#define TRAINING_H

#include <tapegrad/train.h>

#include "imdb.h"

/* ---- learning rates and weight decay ---- */

enum { RATE_POLYNOMIAL = TP_RATE_PLATEAU + 1 }; /* of --schedule */
enum { DECAY_ALL, DECAY_MATRICES };             /* of --decay */

/* Recipe values beyond the engine's settings. train.warmup below 1 is a share of the run's
 * updates. */
typedef struct rate_choice {
    double power;
    int decay;
} rate_choice;

/* Option rows for settings S with a tp_train_settings base.train and a rate_choice member `at`.
 * They include tp_rate_options and tp_optimizer_options. */
#define OPTIONS_RATES(S, at)                                                                       \
    TP_NUM("warmup", S, base.train.warmup, 0, TP_BIG, TP_SAVED,                                    \
           "Updates over which the learning rate rises linearly from 0; below 1: a share of the "  \
           "run's updates."),                                                                      \
        TP_CHOICE(                                                                                 \
            "schedule", S, base.train.schedule,                                                    \
            "constant|linear|cosine|step|onecycle|plateau|polynomial", TP_SAVED,                   \
            "Learning rate after the warm-up. plateau: drops where validations find nothing "      \
            "better. polynomial: falls to --lr-end as the share of "                               \
            "the remaining updates to the power of --power."),                                     \
        TP_NUM("power", S, at.power, 0, 100, TP_SAVED, "Power of --schedule polynomial."),         \
        TP_CHOICE("decay", S, at.decay, "all|matrices", TP_SAVED,                                  \
                  "Which parameters --weight-decay applies to: all, as in fairseq, or neither "    \
                  "biases nor layer norms."),                                                      \
        TP_ROWS(tp_rate_options), TP_ROWS(tp_optimizer_options)

/* The learning rate of the update after u completed ones in a run of `total`. */
double text_rate(const tp_train_settings *o, const rate_choice *r, int64_t u, int64_t total);
int64_t text_warmup(const tp_train_settings *o, int64_t total); /* in updates */

/* The settings' optimiser; adds Adam's eps as fairseq and transformers do (optim.h: raw_eps). */
tp_optim *text_optimizer(tp_params *P, const tp_train_settings *o, const rate_choice *r);

/* ---- both commands ---- */

/* What R->sum counts: tokens since the last report. */
enum { TOKENS };

/* First member, `base`, of both commands' settings. */
typedef struct text_settings {
    tp_train_settings train; /* first: the engine's */
    model_choice m;
    rate_choice r;
    int recipe;
    char *tokenizer;
    adaptation lora;
} text_settings;

/* First member, `base`, of both commands' states. */
typedef struct text_run {
    tp_bpe *vocab; /* a trial borrows it */
    tp_roberta_cfg cfg;
    text_model m;
    int64_t tokens; /* in the batches up to the last report, with padding */
} text_run;

/* Option rows for settings S. */
#define OPTIONS_TEXT_MODEL(S)                                                                      \
    TP_HEADING("MODEL"), OPTIONS_MODEL(S, base.m, TP_SAVED), TP_ROWS(tp_recompute_options)
#define OPTION_TIME(S)                                                                             \
    TP_NUM("time", S, base.train.time, 0, TP_BIG, 0,                                               \
           "Stop after this many seconds, with a validation and a checkpoint; 0: no limit.")
#define OPTION_ACCUMULATION(S)                                                                     \
    TP_INT("accumulation", S, base.train.accumulation, 1, 65536, TP_SAVED,                         \
           "Batches whose gradients are averaged for one update.")

/* The members of a tp_training that both commands share. */
#define TEXT_TRAINING                                                                              \
    .other_data =                                                                                  \
        "the texts differ from those that this run trains and validates on; give those with "      \
        "--data",                                                                                  \
    .build = text_run_build, .optimizer = text_run_optimizer, .rate = text_run_rate,               \
    .after = text_run_after, .write = text_run_write, .read = text_run_read

/* ---- opening; each fails R and returns false ---- */

/* Opens the vocabulary of the settings or the file; a resumed run's is in its checkpoint. */
bool text_run_open_vocab(tp_run *R, const tp_file *from);

/* Chooses a new run's model from preset, flags and file; a resumed run's is its checkpoint's. */
bool text_run_choose(tp_run *R, tp_file *from, tp_roberta_head head, int64_t classes);

/* Fails if the warm-up is longer than the run. */
bool text_run_check_warmup(tp_run *R);

/* For a trial, which repeats one batch of noise: borrows the vocabulary and model of `with`. */
void text_run_share(tp_run *R, const tp_run *with);

/* ---- engine callbacks (tp_training) ---- */

void text_run_build(tp_run *R);
tp_optim *text_run_optimizer(tp_run *R);
double text_run_rate(const tp_run *R, int64_t update);
void text_run_write_model(tp_run *R, tp_writer *W); /* configuration and vocabulary */
void text_run_after(tp_run *R);
void text_run_write(tp_run *R, tp_writer *W);
void text_run_read(tp_run *R, tp_file *F);
void text_run_close(tp_run *R); /* frees the members of the base */

/* ---- shared parts ---- */

/* FLOPs of this process in an update with texts of this many tokens: backward counts twice
 * forward. spared: multiply-adds that the forward pass of a text omits. */
double text_run_flops(const tp_run *R, int64_t tokens, double spared);

/* Describes the model: "roberta: 4 layers ...; 5513474 parameters, N of_what". */
void text_run_describe(tp_run *R, int64_t n, const char *of_what);

/* Logs the tokens and the passes over `steps` batches; returns the passes. */
double text_run_report(tp_run *R, int64_t steps);

/* ---- `imdb pretrain` ---- */

typedef enum pretrain_recipe {
    PRETRAIN_ROBERTA,
    PRETRAIN_LONGFORMER,
    PRETRAIN_NOTEBOOK,
    PRETRAIN_MINI,
    PRETRAIN_RECIPES
} pretrain_recipe;

typedef struct pretrain_settings {
    text_settings base;   /* first */
    char *data, *cache;   /* data: comma-separated paths */
    int documents, masks; /* tp_document_end; MASKS_... */
    int64_t sequence, limit, eval_sequences;
    double held_out, mask_rate;
} pretrain_settings;

enum { MASKS_INDEPENDENT, MASKS_EXACT };

extern const tp_option pretrain_options[];

/* Sets a recipe's values; large: for a large model. */
void pretrain_take_recipe(pretrain_settings *s, pretrain_recipe recipe, bool large);

/* A tp_training's settings_of. */
bool pretrain_settings_of(void *settings, const void *asked, const tp_given_flags *given, char *why,
                          size_t size);

/* ---- `imdb train` ---- */

typedef enum train_recipe {
    TRAIN_ROBERTA,
    TRAIN_LONGFORMER,
    TRAIN_MINI,
    TRAIN_RECIPES
} train_recipe;

typedef struct train_settings {
    text_settings base; /* first */
    text_data d;
    int packed; /* 0 or 1 */
    bool balance;
    int64_t bucket, passes, valid_every; /* valid_every: updates; 0: each pass, -1: at the end */
    double smoothing;
} train_settings;

extern const tp_option text_train_options[];

/* Sets a recipe's values. */
void train_take_recipe(train_settings *s, train_recipe recipe);

/* The batching of s. */
text_batching train_batching(const train_settings *s);

/* A tp_training's settings_of. */
bool train_settings_of(void *settings, const void *asked, const tp_given_flags *given, char *why,
                       size_t size);

#endif
