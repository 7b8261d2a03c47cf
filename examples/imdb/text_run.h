/* text_run.h - what `imdb pretrain` and `imdb train` share: the head of their settings and of their state, and
 * functions of the engine's table that need no more than these heads. */
#ifndef TEXT_RUN_H
#define TEXT_RUN_H

#include "rates.h"
#include "text_model.h"
#include "tokenizer.h"

/* The first member, `base`, of the settings of both commands. */
typedef struct text_settings {
    tp_train_settings train; /* first: the engine's */
    model_choice m;
    rate_choice r;
    int recipe;
    char *tokenizer;
} text_settings;

/* The first member, `base`, of the state of both commands. */
typedef struct text_run {
    tp_bpe *vocab; /* a trial borrows it */
    tp_roberta_cfg cfg;
    text_model m;
    int64_t tokens; /* of the run's batches so far, padding included */
    int32_t *noise; /* a trial's batch */
} text_run;

/* Rows of a table for settings S. */
/* clang-format off */
#define OPTIONS_TEXT_MODEL(S) \
    TP_HEADING("MODEL"), \
    OPTION_MODEL(S, base.m, TP_SAVED), \
    OPTIONS_MODEL(S, base.m, TP_SAVED), \
    OPTIONS_DROPOUT(S, base.m, TP_SAVED), \
    TP_ROWS(tp_recompute_options)
#define OPTION_TIME(S) \
    TP_NUM("time", S, base.train.time, 0, TP_BIG, 0, \
           "Stop after this many seconds, with a validation and a checkpoint; 0: no limit.")
#define OPTION_ACCUMULATION(S) \
    TP_INT("accumulation", S, base.train.accumulation, 1, 65536, TP_SAVED, \
           "Batches whose gradients are averaged for one update.")
/* clang-format on */

/* The members of a tp_training that both commands share. */
/* clang-format off */
#define TEXT_TRAINING \
    .other_data = "the texts differ from those that this run trains and validates on; give those with --data", \
    .build = text_run_build, \
    .optimizer = text_run_optimizer, \
    .rate = text_run_rate, \
    .write = text_run_write, \
    .read = text_run_read
/* clang-format on */

/* ---- opening; each fails R and returns false ---- */

/* Opens the vocabulary: that of the settings, or that of the file; a resumed run's is in its checkpoint. */
bool text_run_open_vocab(tp_run *R, const tp_file *from);

/* Chooses the model. A new run's follows from preset, flags and file, a resumed one's is that of its checkpoint. */
bool text_run_choose(tp_run *R, tp_file *from, tp_roberta_head head, int64_t classes);

/* Expects a warm-up that is not longer than the run. */
bool text_run_check_warmup(tp_run *R);

/* For a trial, which runs every step on the same batch of noise: borrows vocabulary and model of the run `with`. */
void text_run_share(tp_run *R, const tp_run *with);

/* Allocates `noise`: `cells` random ids, followed by `more` numbers that the caller sets. */
bool text_run_make_noise(tp_run *R, int64_t cells, int64_t more);

/* ---- functions of the engine's table (tp_training) ---- */

void text_run_build(tp_run *R);
tp_optim *text_run_optimizer(tp_run *R);
double text_run_rate(const tp_run *R, int64_t update);
void text_run_write_model(tp_run *R, tp_writer *W); /* configuration and vocabulary */
void text_run_write(tp_run *R, tp_writer *W);
void text_run_read(tp_run *R, tp_file *F);
void text_run_close(tp_run *R); /* frees the members of the base */

/* ---- parts of the others ---- */

/* FLOPs of an update with texts of so many tokens: backward counts twice forward. spared: multiply-adds of the model
 * that the forward pass of a text leaves out. */
double text_run_flops(const tp_run *R, int64_t tokens, double spared);

/* Describes the model: "roberta: 4 layers ...; 5513474 parameters, N of_what". */
void text_run_describe(tp_run *R, int64_t n, const char *of_what);

/* Notes the tokens and the passes over `steps` batches in the log; returns the passes. */
double text_run_report(tp_run *R, int64_t steps);

#endif
