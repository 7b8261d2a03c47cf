/* trainer.h - the state of a training run. Its first member is the part that programs see.
 *
 *     tp_train_main     train_main.c      command line, plan or run, exit status
 *     settings          train_settings.c  defaults, manual, settings on resuming, config.json
 *                       train_config.c    --config
 *     opening           train_open.c      data, model, optimiser; new or from a checkpoint
 *     one update        train_update.c    batches, gradients, the optimiser
 *     after it          train_report.c    validation, log, checkpoints
 *                       train_events.c    events for TensorBoard
 *     scores            train_course.c    what validations decide
 *     checkpoints       train_state.c     last and best
 *                       train_kept.c      more of both
 *     several processes train_peers.c     agreement, sums, rows
 *                       train_compare.c   what must be equal in all of them
 *                       train_collect.c   bytes of all
 *                       train_buffers.c   equal statistics of batch norms
 *     forecasts         train_plan.c      memory and time
 *     learning rates    train_range.c     --lr-range */
#ifndef TP_TRAINER_H
#define TP_TRAINER_H

#include <jansson.h>
#include <tapegrad/events.h>
#include <tapegrad/train.h>

#include "folder.h"
#include "progress.h"
#include "range.h"

/* log.jsonl: one JSON object per line, one line per report. */
typedef struct tp_run_log {
    int fd; /* -1: not open */
    char path[4200];
    json_t *last;    /* the last report kept when the log was opened, or NULL */
    int64_t damaged; /* incomplete lines dropped when it was opened */
    char why[6000];  /* empty unless it failed */
} tp_run_log;

/* A step's memory in bytes; the parts add up to the peak. */
typedef struct tp_forecast {
    double weights, gradients, optimizer, averages, state, activations, peak;
    double other;   /* weights of the program's other models */
    double ahead;   /* host memory: prefetched data */
    double process; /* the process: also its code, its data and cached memory */
} tp_forecast;

/* Sums of losses and of their weights: a loss is the mean of a batch, its weight the batch's
 * targets as a multiple of --batch. Those of weight `pending` are on the device. */
typedef struct tp_tally {
    double report, epoch; /* since the last report, since the epoch began */
    double reported, of_epoch, pending;
} tp_tally;

/* The settings of --config. */
typedef struct tp_config_file {
    void *settings;     /* over the program's defaults; NULL: no file */
    tp_given_flags has; /* the rows that it sets */
    bool by_hand;       /* a person wrote it */
} tp_config_file;

/* What the regular validations of a run have found. */
typedef struct tp_course {
    double best;        /* score; NaN: none yet */
    int64_t stale;      /* validations since then */
    tp_plateau plateau; /* of --schedule plateau */
} tp_course;

/* The clock since the last report. */
typedef struct tp_stopwatch {
    double began, going; /* going: when training last continued after a pause */
    int64_t updates;
} tp_stopwatch;

typedef struct tp_trainer {
    tp_run run;
    const tp_training *t;
    tp_command command; /* t's, with its manual completed */
    char synopsis[256], about[6000], more[8000];
    tp_peers *peers; /* NULL: this process trains alone */
    tp_exchange *X;  /* of its gradients */
    const tp_train_settings *o;
    int64_t batch; /* of all processes; 0: not divided yet */

    tp_folder folder;
    tp_run_log log;
    tp_progress bar;
    tp_config_file config;
    json_t *given;     /* the settings before the program's open */
    json_t *preset;    /* preset values that the settings change; NULL: unknown */
    json_t *notes;     /* filled by tp_run_note; NULL: notes are dropped */
    tp_events *events; /* NULL: none */
    json_t *pictures;  /* the run folder's, by name: when they were last changed */

    tp_optim *O;
    tp_ema *ema;                    /* NULL: no averages */
    tp_capture *C;                  /* NULL: steps run without capture */
    tp_tensor losses;               /* slot: the sum of the pending losses */
    tp_tensor term[TP_RUN_SUMS];    /* of this batch, given to tp_run_sum */
    tp_tensor pending[TP_RUN_SUMS]; /* slots: the sums */
    int terms;
    int64_t unread;    /* batches in them */
    tp_tensor weight;  /* slot of a recorded step: the batch's weight */
    tp_tensor clipped; /* the norm of the last update's gradients */
    bool on_gpu;

    tp_exchange_stats exchanged; /* as of the last report */
    tp_tally sum;
    tp_range range; /* of --lr-range */
    tp_course course;
    double weights;    /* of the current update's batches so far */
    double weight_sum; /* over all processes */
    double mean;       /* from the last update's gradients to those of its mean */
    tp_stopwatch watch;
    double started;   /* when training began */
    int signal;       /* that any process got, as of the last agreement; 0: none */
    bool late;        /* --time was over then */
    bool agreed;      /* to exchange this update's gradients */
    bool parted;      /* all processes know that one has failed */
    int64_t made;     /* updates of this process */
    uint64_t rows;    /* a hash of what the program fed in the first of them; 0: nothing */
    int64_t last;     /* the update that ends the run, unless --time does earlier */
    int64_t saved;    /* update of the last checkpoint; -1: none */
    bool ends;        /* that checkpoint ends the run, by itself: no signal came */
    bool unvalidated; /* a signal ended the validation after this update early */
    double norm;      /* of the last gradient read */
    double rate;      /* of the last update */
    json_t *own;      /* the program's figures for the report */
    double seconds;   /* spent on updates, by this process and earlier ones */
    double best;      /* score of best.safetensors; the worst possible: none yet */
    int64_t best_at;  /* its update, perhaps later than a resumed run's */
    int64_t calls;    /* of tp_run_stopped until a trial's validation ends; 0: no limit */
    bool begun;       /* files were written to the run folder */
    bool opened;      /* open or share was called */
    tp_forecast plan; /* for memory; all zero: none, see plan_why */
    char plan_why[6000];
    char why[6000];
    bool lost;    /* because of a NaN or infinity */
    bool in_sums; /* NaN in gradients, which are sums over the processes */
} tp_trainer;

/* ---- train_settings.c ---- */

/* Fails if the program lacks a required member. */
bool tp__run_check_program(tp_trainer *r);

/* The program's name in its files. */
const char *tp__run_program(const tp_training *t);

/* Sets r->command: the program's manual, plus the part that every program shares. */
void tp__run_complete_manual(tp_trainer *r);

/* Settings with the program's defaults or the preset in `asked`. The caller frees *settings and its
 * texts, also on failure; NULL if out of memory. */
bool tp__run_new_settings(tp_trainer *r, void **settings, const void *asked,
                          const tp_given_flags *given);

/* Does the number of updates shape the learning rate? */
bool tp__run_steps_shape(const tp_trainer *r);

/* Applies the flags that a resumed run may change; fails, naming them, on others. */
bool tp__run_merge(tp_trainer *r, const void *asked, const tp_given_flags *given);

/* ---- train_config.c ---- */

/* Reads the file of --config, if there is one, into the settings of the command line, over which
 * the flags are then read again. Fails if it cannot be used. */
bool tp__run_take_config(tp_trainer *r, int argc, char **argv, void *asked);

/* Makes the run's settings: presets, and the file's over them. */
bool tp__run_settle(tp_trainer *r, const void *asked, const tp_given_flags *given);
void tp__run_free_config(tp_trainer *r);

/* ---- train_open.c ---- */

/* Opens a run from the command line. False if it failed (r->why) or *status became an exit status.
 * Call tp__run_close in either case. */
bool tp__run_open(tp_trainer *r, const tp_training *t, tp_peers *peers, int argc, char **argv,
                  int *status);
void tp__run_close(tp_trainer *r);

/* Opens the device and builds the model of r->o; dry: on a device that only counts. */
bool tp__run_build(tp_trainer *r, bool dry, bool blank);

/* Begins a trial beside r with the given settings, whose texts r still owns. Call tp__run_trial_end
 * in either case. */
bool tp__run_trial_begin(tp_trainer *trial, const tp_trainer *r, void *settings, bool dry);
void tp__run_trial_end(tp_trainer *trial);

/* Writes the first files of the run's folder: config.json and an empty or shortened log. */
bool tp__run_files(tp_trainer *r);

/* ---- train_settings.c: config.json ---- */

/* Sets r->preset. Call before the program's open, which may complete the settings. */
void tp__run_compare(tp_trainer *r);

/* The content of config.json: program, model, settings, what open derived from them, preset values,
 * machine, memory forecast. */
json_t *tp__run_config(tp_trainer *r);

/* ---- failures: train_run.c ---- */

/* The engine's state behind a program's view of the run. */
static inline tp_trainer *tp__run_of(tp_run *R)
{
    return (tp_trainer *)(void *)R;
}

/* Fails the run; only the first reason is kept. Always returns false. */
bool tp__run_fail(tp_trainer *r, const char *fmt, ...) TP_PRINTF(2, 3);

/* The same after a NaN or infinity; adds advice to the reason. */
bool tp__run_lost(tp_trainer *r, const char *why);

/* The same if an object of the run has failed; returns true if none has. */
bool tp__run_fine(tp_trainer *r);

/* ---- several processes: train_peers.c ---- */

/* tp_options_parse, with the same status in all processes. Flags that rank 0 refuses, or answers as
 * --help, are not parsed by the others, which would repeat its words. */
int tp__run_parse(tp_trainer *r, int argc, char **argv, void *settings, tp_given_flags *given);

double tp__run_first(tp_trainer *r, double x); /* rank 0's x */

/* Names what the processes do now ("update", 120), for the sentence about a silent one, and a
 * multiple of --peer-timeout for it: TP_PATIENCE where one of them may work alone, as at the start,
 * in a validation or when files are written. */
enum { TP_PATIENCE = 20 };
void tp__run_now(const tp_trainer *r, const char *what, int64_t update, double times);

/* Divides the settings' batch among the processes. Fails if it cannot be divided evenly. */
bool tp__run_take_rows(tp_trainer *r);

/* Sets the settings' batch to that of all processes, for files, or back to this one's rows. */
void tp__run_show_batch(tp_trainer *r, bool whole);

/* Is `here` true in any process of the run? Also after a failure that all know of. */
bool tp__run_anywhere(tp_trainer *r, bool here);

/* Is `fine` true in every process? If another process failed, this one fails too, so that none
 * waits for it. Sets r->signal to a stop signal that any has got, r->late, and r->weight_sum. */
bool tp__run_everywhere(tp_trainer *r, bool fine);

/* Process 0 gets the sums since the last report of all processes; the others' become 0. Returns the
 * mean loss since then, in all. */
double tp__run_gather(tp_trainer *r);

/* Sets the program's sums to 0 in all processes but process 0, which keeps those of a
 * checkpoint. */
void tp__run_forget_sums(tp_run *R);

/* Do several processes train, and has none failed? For exchanges that not all may reach: one that
 * has failed before says so in its next agreement, wherever that is, and it meets this one. */
bool tp__run_together(tp_trainer *r);

/* ---- train_compare.c ---- */

/* Fails, naming rank, host and the difference, unless all processes have the same version,
 * settings, data and weights: before training, and before each checkpoint. Synchronises. */
bool tp__run_compare_peers(tp_trainer *r);

/* watch_rows: call before and after the program's next. check_rows: call after an update; the
 * batches of the first ones must differ between processes, or a program would train on the same
 * rows several times. */
void tp__run_watch_rows(tp_trainer *r, bool begins);
bool tp__run_check_rows(tp_trainer *r);

/* ---- train_buffers.c ---- */

/* Averages over the processes the buffers that differ between them: running statistics of batch
 * norms. Called in each update, so that the run does not depend on when checkpoints are written. */
bool tp__run_even_buffers(tp_trainer *r);

/* ---- train_update.c ---- */

/* One update. *norm is the gradient's norm, readable until the next update. */
bool tp__run_update(tp_trainer *r, tp_tensor *norm);

/* Reads the losses still on the device, up to update `at`. Fails if they are NaN or infinite. */
bool tp__run_collect(tp_trainer *r, int64_t at);

/* Sets run.epoch and run.batch to batch number `batch` of the next update. */
void tp__run_place(tp_trainer *r, int64_t batch);

/* The learning rate of the update after `update`. */
double tp__run_rate(const tp_trainer *r, int64_t update);

/* ---- train_report.c ---- */

/* Does what is due after an update. last: the run's last update; stop: a signal came. */
bool tp__run_after_update(tp_trainer *r, tp_tensor norm, bool last, bool stop);

/* Runs the validation and writes the report that a stopped run left out. */
bool tp__run_finish_validation(tp_trainer *r);

/* Prints the profile of D, opened with `profile`, to stdout, slowest op first. Shares are fractions
 * of `seconds`, the time of the run. */
void tp__op_times_print(tp_device *D, double seconds);

/* The same for the log: [[op, "forward" or "backward", calls, seconds], ...]. */
json_t *tp__op_times_json(tp_device *D);

/* Does --eval-every demand a validation after this update? */
bool tp__run_validates(const tp_trainer *r, int64_t update);

/* ---- train_events.c: without --tensorboard they do nothing ---- */

/* Fails if flags contradict each other. */
bool tp__events_check(tp_trainer *r);

/* Opens a file for the steps after `keep`. */
bool tp__events_open(tp_trainer *r, int64_t keep);
void tp__events_close(tp_trainer *r);

/* Adds a line of the log; the gradients of an update before a validation, which the optimiser has
 * not used; weights and pictures after it. */
void tp__events_report(tp_trainer *r, const json_t *line);
void tp__events_gradients(tp_trainer *r);
bool tp__events_want_gradients(const tp_trainer *r); /* does it ever use them? */
void tp__events_validated(tp_trainer *r);

/* --trace: before and after each update. */
void tp__run_trace(tp_trainer *r, bool begins);

/* ---- train_course.c ---- */

/* Begins the course of a new run. Fails if it waits for validations that never come. */
bool tp__course_begin(tp_trainer *r);

/* Takes the score of a validation that was due. */
void tp__course_take(tp_trainer *r, double score);

/* The factor of the learning rate of the next update: below 1 after drops of --schedule plateau. */
double tp__course_factor(const tp_trainer *r);

/* Has --patience ended the run? */
bool tp__course_over(const tp_trainer *r);

/* A part of last.safetensors. read: false with the reason in r->why. */
void tp__course_write(const tp_trainer *r, tp_writer *W);
bool tp__course_read(tp_trainer *r, tp_file *F);

/* Is score a, of a validation, better than b? A score that is not finite never is. */
bool tp__is_better(const tp_training *t, double a, double b);

/* ---- log.c ---- */

/* Opens the log for reports after step `keep`. Drops later reports, of a run killed after its last
 * checkpoint, and a truncated line. */
bool tp__log_open(tp_run_log *L, const char *path, int64_t keep);

/* A number of the last kept report; 0 if there is none. */
double tp__log_last(const tp_run_log *L, const char *key);

/* Appends the object, which must have a "step", in one write. Takes ownership of it. */
bool tp__log_write(tp_run_log *L, json_t *object);
void tp__log_close(tp_run_log *L);

/* A JSON number; null for NaN and infinity. */
json_t *tp__log_number(double x);

/* ---- train_state.c ---- */

/* last.safetensors: everything the next update depends on. load reads it into a built run. All
 * processes call save. */
bool tp__run_save(tp_trainer *r);
bool tp__run_load(tp_trainer *r, tp_file *F);

/* best.safetensors, or what is kept of others: weights, the model's configuration and the score. */
bool tp__run_save_best(tp_trainer *r, const char *path, double score);
bool tp__run_find_best(tp_trainer *r);

/* ---- train_kept.c ---- */

/* Keep last.safetensors, which is of the present update, and the weights of a validation with this
 * score, if --keep-last and --keep-best ask for it; best: they are in best.safetensors. Files that
 * are no longer wanted are removed. False with the reason in r->why. */
bool tp__run_keep_last(tp_trainer *r);
bool tp__run_keep_best(tp_trainer *r, double score, bool best);

/* Are kept files in the folder? Also false after a failure. */
bool tp__run_has_kept(tp_trainer *r);

/* Removes those of an overwritten run. */
bool tp__run_discard_kept(tp_trainer *r);

/* The place where this process's random numbers begin in the stream of the run's seed. */
uint64_t tp__run_stream(const tp_run *R);

/* ---- train_main.c ---- */

/* Prints the program's description of the run. */
void tp__run_describe(tp_trainer *r);

/* ---- train_range.c ---- */

/* Reads --lr-range, if it was given; fails on what cannot be tested, and on flags without use. */
bool tp__run_take_range(tp_trainer *r, const tp_given_flags *given);

/* Makes the test. Returns the exit status. */
int tp__run_range(tp_trainer *r);

/* ---- train_plan.c ---- */

/* Predicts the run's memory with this value of --recompute; r has settings and data, and may have a
 * device. False with the reason in why. */
bool tp__run_forecast(const tp_trainer *r, int recompute, tp_forecast *m, char *why, size_t size);

/* A shallow copy of the run's settings; the caller frees it, the run still owns the texts. NULL if
 * out of memory. */
void *tp__run_settings_copy(const tp_trainer *r);

size_t tp__run_memory_resident(void);  /* bytes, of this process */
size_t tp__run_memory_peak(void);      /* its peak */
size_t tp__run_memory_available(void); /* bytes available without swapping; 0: unknown */
size_t tp__run_memory_installed(void); /* of the machine; 0: unknown */

/* --plan: prints the memory and time that the run would need. Returns the exit status. */
int tp__run_plan(tp_trainer *r);

/* Prints the expected memory when a run begins, with a warning if the machine has less. */
void tp__run_announce(tp_trainer *r);

#endif
