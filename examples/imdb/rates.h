/* rates.h - learning rates and weight decay of both kinds of training. */
#ifndef RATES_H
#define RATES_H

#include <tapegrad/train.h>

enum { RATE_POLYNOMIAL = TP_RATE_ONECYCLE + 1 }; /* of --schedule */
enum { DECAY_ALL, DECAY_MATRICES };              /* of --decay    */

/* What recipes set besides the engine's settings. train.warmup below 1 is a share of the run's updates. */
typedef struct rate_choice {
    double power;
    int decay;
} rate_choice;

/* Rows of a table for settings S that hold a tp_train_settings as base.train and a rate_choice as member `at`. They
 * include tp_rate_options and tp_optimizer_options. */
/* clang-format off */
#define OPTIONS_RATES(S, at) \
    TP_NUM("warmup", S, base.train.warmup, 0, TP_BIG, TP_SAVED, \
           "Updates over which the learning rate rises linearly from 0; below 1: a share of the run's updates."), \
    TP_CHOICE("schedule", S, base.train.schedule, "constant|linear|cosine|step|onecycle|polynomial", TP_SAVED, \
              "Learning rate after the warm-up. polynomial: falls to --lr-end as the share of the remaining updates " \
              "to the power of --power."), \
    TP_NUM("power", S, at.power, 0, 100, TP_SAVED, "Power of --schedule polynomial."), \
    TP_CHOICE("decay", S, at.decay, "all|matrices", TP_SAVED, \
              "Which parameters --weight-decay applies to: all, as in fairseq, or neither biases nor layer norms."), \
    TP_ROWS(tp_rate_options), \
    TP_ROWS(tp_optimizer_options)
/* clang-format on */

/* The learning rate of the update that follows u completed ones, in a run of `total`. */
double text_rate(const tp_train_settings *o, const rate_choice *r, int64_t u, int64_t total);
int64_t text_warmup(const tp_train_settings *o, int64_t total); /* in updates */

/* A resumed run keeps the update at which its schedule ends: fails R if --steps changes it. The settings of R begin
 * with a tp_train_settings. */
void text_keep_end(tp_run *R, const tp_file *from);

/* Sets what all recipes share: AdamW with the constants of fairseq. */
void text_take_adamw(tp_train_settings *o);

/* The optimiser of the settings; Adam's eps is added as fairseq and transformers do (optim.h: raw_eps). */
tp_optim *text_optimizer(tp_params *P, const tp_train_settings *o, const rate_choice *r);

#endif
