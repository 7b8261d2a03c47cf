/* trainer.h - everything that a training run holds. What programs see of it is its first member.
 *
 *     tp_train_main     train_main.c     command line, plan or run, exit status
 *     settings          train_settings.c defaults, manual, what a resumed run may change
 *     opening           train_open.c     data, model, optimiser; from a checkpoint or afresh
 *     one update        train_update.c   batches, gradients, the optimiser
 *     after it          train_report.c   validation, log, checkpoints: what an update leaves
 *     checkpoints       train_state.c    last and best
 *     forecasts         train_plan.c, train_forecast.c */
#ifndef TP_TRAINER_H
#define TP_TRAINER_H

#include <tapegrad/train.h>

#include "folder.h"
#include "log.h"
#include "progress.h"

/* Losses, each the mean of a batch; those of `pending` batches are still on the device. */
typedef struct tp_tally {
    double report, epoch; /* since the last report, since the epoch began */
    int64_t reported, of_epoch, pending;
} tp_tally;

/* The clock since the last report. */
typedef struct tp_stopwatch {
    double began, going; /* going: when training last went on after a pause */
    int64_t updates;
} tp_stopwatch;

typedef struct tp_trainer {
    tp_run run;
    const tp_training *t;
    tp_command command; /* t's, with the manual completed */
    char synopsis[256], about[6000], more[8000];
    const tp_peers *peers; /* NULL: this process trains alone */
    const tp_train_settings *o;

    tp_folder folder;
    tp_run_log log;
    tp_progress bar;
    json_t *notes; /* of tp_run_note; NULL: they go nowhere */

    tp_optim *O;
    tp_ema *ema;      /* NULL without                         */
    tp_capture *C;    /* NULL without recorded steps          */
    tp_tensor losses; /* slot: the sum of the pending losses  */
    bool on_gpu;

    tp_tally sum;
    tp_stopwatch watch;
    int64_t last;     /* the update that ends the run, if its time is not up before   */
    int64_t saved;    /* update of the last checkpoint; -1: none                      */
    bool unvalidated; /* a signal came before the validation after this update ended  */
    double norm;      /* of the last gradient that was read                           */
    double seconds;   /* spent on updates, by this process and earlier ones           */
    double best;      /* score of best.safetensors; the worst possible: none          */
    int64_t best_at;  /* its update, which may be later than a resumed run's          */
    int64_t patience; /* calls of tp_run_stopped until a trial has seen enough; 0: all */
    bool begun;       /* files of the run have been written into its folder           */
    bool opened;      /* the program's open or share has been called                  */
    char why[6000];
} tp_trainer;

/* ---- train_settings.c ---- */

/* Fails where the program lacks what every program must have. */
bool tp__run_check_program(tp_trainer *r);

/* The program's name in its files. */
const char *tp__run_program(const tp_training *t);

/* r->command: the program's manual, and what is true of every run. */
void tp__run_complete_manual(tp_trainer *r);

/* Settings with the program's defaults, or the presets that were asked for; *settings is to be
 * freed with its texts in either case, NULL: no memory. */
bool tp__run_new_settings(tp_trainer *r, void **settings, const void *asked,
                          const tp_given_flags *given);

/* Does the number of updates shape the learning rate? */
bool tp__run_steps_shape(const tp_trainer *r);

/* Takes over the given flags that a resumed run may set; names those that it may not. */
bool tp__run_merge(tp_trainer *r, const void *asked, const tp_given_flags *given);

/* ---- train_open.c ---- */

/* A run out of the command line. False: it failed (run.why), or *status is an exit status of the
 * command line. Close in either case. */
bool tp__run_open(tp_trainer *r, const tp_training *t, const tp_peers *peers, int argc, char **argv,
                  int *status);
void tp__run_close(tp_trainer *r);

/* Devices, model, optimiser out of r->o; dry: on a device that only counts. */
bool tp__run_build(tp_trainer *r, bool dry, bool blank);

/* A trial beside r, with settings of its own (whose texts stay r's). End it in either case. */
bool tp__run_trial_begin(tp_trainer *trial, const tp_trainer *r, void *settings, bool dry);
void tp__run_trial_end(tp_trainer *trial);

/* The engine's own beginning of the run's folder: config.json, an empty or shortened log. */
bool tp__run_files(tp_trainer *r);

/* ---- failures: train_run.c ---- */

/* The run of a program's view. */
static inline tp_trainer *tp__run_of(tp_run *R)
{
    return (tp_trainer *)(void *)R;
}

/* Notes the first reason why the run cannot go on; always false. */
bool tp__run_fail(tp_trainer *r, const char *fmt, ...) TP_PRINTF(2, 3);

/* The same for a run that came to NaN or infinity: why, and what to do about it. */
bool tp__run_lost(tp_trainer *r, const char *why);

/* The same for every object of the run that has failed; true: none has. */
bool tp__run_fine(tp_trainer *r);

/* ---- several processes: train_run.c ---- */

/* Is it so in any process of the run? */
bool tp__run_anywhere(const tp_trainer *r, bool here);

/* Is it so in all of them? Where it is, but not in another one, the run fails with that reason: no
 * process waits for one that has failed. Every process calls these in the same order. */
bool tp__run_everywhere(tp_trainer *r, bool fine);

/* ---- train_update.c ---- */

/* One update; *norm is the gradient's, readable until the next one. */
bool tp__run_update(tp_trainer *r, tp_tensor *norm);

/* Reads the losses that are still on the device, those of update `at`; false, with the reason, if
 * they are NaN or infinite. */
bool tp__run_collect(tp_trainer *r, int64_t at);

/* Sets run.epoch and run.batch to batch number `batch` of the next update. */
void tp__run_place(tp_trainer *r, int64_t batch);

/* The learning rate of the update after `update`. */
double tp__run_rate(const tp_trainer *r, int64_t update);

/* ---- train_report.c ---- */

/* What follows an update; last: there is no next. stop: a signal has come. */
bool tp__run_after_update(tp_trainer *r, tp_tensor norm, bool last, bool stop);

/* The validation and the report that a stopped run left out. */
bool tp__run_finish_validation(tp_trainer *r);

/* ---- train_state.c ---- */

/* last.safetensors: all that the next update depends on. load: into a built run. */
bool tp__run_save(tp_trainer *r);
bool tp__run_load(tp_trainer *r, tp_file *F);

/* best.safetensors: what evaluation needs, and the score. */
bool tp__run_save_best(tp_trainer *r, double score);
bool tp__run_find_best(tp_trainer *r);

/* ---- train_main.c ---- */

/* What the program says of the run. */
void tp__run_describe(tp_trainer *r);

/* ---- train_plan.c ---- */

/* --plan: prints what the run would take. Returns the exit status. */
int tp__run_plan(tp_trainer *r);

/* The memory that is expected, in the introduction of a run, with a warning if the machine has less
 * to give. */
void tp__run_announce(tp_trainer *r);

#endif
