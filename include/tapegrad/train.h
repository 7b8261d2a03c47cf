/* train.h - the engine of training runs (train library): one loop for every program.
 *
 * A program is described by one constant tp_training: its settings, how data and model are opened,
 * the loss of a batch, a validation. tp_train_main does everything else: command line, run folder
 * with lock, log, progress with ETA, learning rate, accumulation, clipping, averages, recorded
 * steps, validation, early stopping, best and last checkpoint, signals, time limits, NaN, resuming
 * with the same bits, forecasts of memory and time. examples/first_text and examples/first_image
 * are complete programs of 150 lines.
 *
 * Only this library prints: tp_train_main is the main function of a program. The functions of a
 * program report errors by tp_run_fail or leave them on the objects of the run (tape, parameters);
 * the engine checks after each call. */
#ifndef TAPEGRAD_TRAIN_H
#define TAPEGRAD_TRAIN_H

#include <tapegrad/events.h>
#include <tapegrad/options.h>
#include <tapegrad/tapegrad.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- settings of every training program ---- */

/* Where a program runs. Settings that begin with this struct can use the rows of
 * tp_machine_options. */
typedef struct tp_machine_settings {
    char *device;
    int dtype; /* a tp_dtype: f32, f64, bf16 */
    int64_t threads;
} tp_machine_settings;

/* Values of --schedule, in the order of its choices. */
enum {
    TP_RATE_CONSTANT,
    TP_RATE_LINEAR,
    TP_RATE_COSINE,
    TP_RATE_STEP,
    TP_RATE_ONECYCLE,
    TP_RATE_PLATEAU
};

/* The value of an option of the optimisers, which is a number or a flag. */
typedef union tp_train_value {
    double number;
    bool flag;
} tp_train_value;
enum { TP_TRAIN_VALUES = 32 };

/* The first member of a training program's settings. tp_train_defaults gives usual values. */
typedef struct tp_train_settings {
    tp_machine_settings machine;
    char *run_dir, *init, *config, *lr_range;
    bool resume, overwrite, plan, check_finite, graph, profile, report, tensorboard;
    char *tensorboard_dir, *trace;
    int histograms;        /* of --tensorboard; 0: none, else a sum of 1: weights, 2: gradients */
    int64_t epochs, steps; /* a run ends after either; 0: no limit */
    double time;           /* seconds; 0: no limit */
    double peer_timeout;   /* seconds without a byte from another process of the run */
    int64_t batch, accumulation, seed;
    int schedule, recompute;
    int optimizer;                          /* tp_optim_find; 0: adamw */
    tp_train_value option[TP_TRAIN_VALUES]; /* tp_train_set, tp_train_get */
    double lr, warmup, lr_end, lr_factor;
    int64_t lr_every, lr_patience;
    bool ema_aside, shard_optimizer, exchange_bf16, sync_bn;
    double clip, ema;
    int64_t log_every, eval_every, checkpoint_every;
    int64_t patience;  /* validations without a better score that end a run; 0: no limit */
    int64_t keep_last; /* checkpoints kept beside last.safetensors and best.safetensors */
    int64_t keep_best;
} tp_train_settings;

/* Usual values of the settings, with a copy of run_dir; tp_options_free frees the texts. NULL:
 * without texts. */
TP_API tp_train_settings tp_train_defaults(const char *run_dir);

/* The optimiser, and the values of the optimisers' options that have flags, by their names in
 * tp_optim_new: tp_train_set(&s->train, "weight_decay", 0.01). An option has one value, shared by
 * all optimisers that have it. set and choose: false if there is no such name; get: NaN. */
TP_API bool tp_train_choose(tp_train_settings *o, const char *optimizer);
TP_API bool tp_train_set(tp_train_settings *o, const char *option, double value);
TP_API double tp_train_get(const tp_train_settings *o, const char *option);

/* --config FILE starts a run with the settings of a config.json: one that a run wrote, or
 * {"settings": {"lr": 0.001}}, with the names of the flags. Flags on the command line win. Of a
 * file that a run wrote, settings that are its preset's follow another preset on the command line,
 * and what open derived from them ("derived") is left to open again.
 * Unknown names, wrong types and the file of another program are refused. */

/* Option rows for settings that begin with a tp_train_settings: all of them with headings, and the
 * groups. A program's own row before them replaces the one of the same name. */
extern TP_API const tp_option tp_train_options[];
extern TP_API const tp_option tp_run_options[];       /* run-dir resume overwrite config ... */
extern TP_API const tp_option tp_length_options[];    /* epochs steps time batch accumulation */
extern TP_API const tp_option tp_rate_options[];      /* lr warmup schedule lr-end lr-every ... */
extern TP_API const tp_option tp_optimizer_options[]; /* optimizer weight-decay ... clip ema */
/* The rows of optimizer, weight-decay and so on come from the optimisers' own (optim_kind.h).
 * Optimisers that a program registers before it uses its settings become choices of --optimizer,
 * with flags. */
extern TP_API const tp_option tp_report_options[];  /* log-every eval-every ... report */
extern TP_API const tp_option tp_device_options[];  /* device dtype threads check-finite ... */
extern TP_API const tp_option tp_machine_options[]; /* device dtype threads; tp_machine_settings */
/* check-finite profile trace: with tp_machine_options all of tp_device_options but graph, for
 * programs whose steps cannot be captured. */
extern TP_API const tp_option tp_inspection_options[];
/* --recompute, for models that support it; tp_train_settings.recompute is a tp_recompute. Not part
 * of tp_train_options. */
extern TP_API const tp_option tp_recompute_options[];

/* Creates the optimiser that the settings choose over P; rule gives each parameter's factors and
 * may be NULL. raw_eps: use Adam's eps as fairseq does (optim.h). Never NULL. */
TP_API tp_optim *tp_train_optimizer(tp_params *P, const tp_train_settings *o, bool raw_eps,
                                    tp_factor_rule rule, void *env);
/* The learning rate of the update that follows u completed ones in a run of `total` updates; warmup
 * is counted in updates. TP_RATE_PLATEAU: that before the first drop; the engine multiplies it,
 * also where a program has a `rate` of its own, by what validations have made of it. */
TP_API double tp_train_rate(const tp_train_settings *o, int64_t u, int64_t total);

/* ---- a run ---- */

enum { TP_RUN_SUMS = 8 };

/* The run, which the functions of a program receive. They may change only the members marked as set
 * by open and share. */
typedef struct tp_run {
    void *settings; /* the program's, which begin with a tp_train_settings */
    void *state;    /* the program's own: tp_training.state_size bytes, initially zero */
    tp_device *D;
    tp_params *P;   /* these four are opened after the data, before build */
    tp_tape *T, *E; /* training, and evaluation: not recording, not training */

    /* set by open and share: */
    int64_t batches;    /* per epoch; 0: the data have no epochs */
    int64_t units;      /* per batch, for the speed: tokens, images; 0: --batch */
    uint64_t data_hash; /* a resumed run must find the same; 0: not checked */

    /* set by next or loss where batches differ: the number of targets over which the loss of this
     * batch is the mean. Where an update averages several batches, each weighs by it. --batch if it
     * is not set */
    int64_t targets;

    int64_t per_epoch;    /* updates per epoch; 0: no epochs */
    int64_t update;       /* completed updates */
    int64_t epoch, batch; /* of the next batch: epoch, and number in it (or in the run) */
    int rank, ranks;      /* of the processes that train together; alone: 0 of 1 */
    bool trial;           /* a short trial for measurements, perhaps on a dry device */

    /* Since the last report: the sums of tp_run_sum's figures, and the number of batches. What is
     * still on the device is added before a report or a checkpoint; process 0 then has the sums
     * over all processes, the others zeros. Besides tp_run_sum, next may add counts of its own to
     * sum, and read may set both. */
    double sum[TP_RUN_SUMS];
    int64_t summed;
} tp_run;

/* ---- a program ---- */

typedef struct tp_training {
    /* the engine adds the manual's parts for every run: signals, files, status; synopsis NULL:
     * flags, and how to resume */
    tp_command command;
    const char *program; /* in config.json: "enwik8"; NULL: command.name */
    const char *unit;    /* the unit of tp_run.units: "tokens" */
    /* name of the validation score, a metadata key of best.safetensors: "valid_bpc"; must differ
     * from the log's own keys, such as "loss" */
    const char *score;
    const char *score_text; /* a format with one %f: "validation %.4f bpc" */
    bool higher;            /* a higher score is better */
    /* error for a resumed run whose data have another hash: a sentence that follows the
     * checkpoint's name; NULL: a general one */
    const char *other_data;
    size_t settings_size, state_size;
    /* flags applied on top of tp_train_defaults if settings_of is NULL: "--epochs 10 --ema 0.99" */
    const char *defaults;

    /* Functions marked "may be NULL" have a default; all others are required, as are the texts
     * above except program, other_data and defaults. */

    /* Fills the zeroed settings with everything that flags may change. asked and given: the
     * settings and flags of the command line, for presets; NULL for the defaults that the help
     * shows. False with the reason in why. May be NULL, for tp_train_defaults("runs/PROGRAM") and
     * `defaults`. */
    bool (*settings_of)(void *settings, const void *asked, const tp_given_flags *given, char *why,
                        size_t size);

    /* Opens the data; may complete the settings, for example a learning rate that depends on the
     * data. from: the checkpoint that the run resumes or starts from (--init); NULL if none, as in
     * a trial. share: called instead of open for a trial run R, which uses the data of the run
     * `with`; may be NULL: trial runs open the data themselves. */
    void (*open)(tp_run *R, tp_file *from);
    void (*share)(tp_run *R, const tp_run *with);

    /* Declares the model in R->P. */
    void (*build)(tp_run *R);
    /* Loads the weights of --init into the model; may be NULL, which loads them by name. */
    void (*init)(tp_run *R, tp_file *from);
    /* The optimiser and the learning rate; may be NULL, for tp_train_optimizer and
     * tp_train_rate. */
    tp_optim *(*optimizer)(tp_run *R);
    double (*rate)(const tp_run *R, int64_t update);

    /* Feeds batch R->batch of R->epoch into slots (tp_feed). It usually follows the previous one,
     * but not in a resumed run, nor after an epoch whose last batches were too few for an
     * update. */
    void (*next)(tp_run *R);
    /* The mean loss of that batch, a scalar on R->T. With --graph it is recorded: anything besides
     * ops then happens only once. */
    tp_tensor (*loss)(tp_run *R);

    /* Validates on R->E and returns the score, which is logged; text receives its form for the
     * progress line (score_text if left empty). Must call tp_run_stopped for each batch and end
     * early if that is true, as in a trial after a few batches. A NaN or infinite score is never
     * the best. With --ema the parameters hold the averages, unless --ema-aside is given. best is
     * called after a validation that was the best so far; may be NULL. */
    double (*validate)(tp_run *R, char *text, size_t size);
    void (*best)(tp_run *R);

    /* Prints what is trained on which data (tp_run_say) and notes it for config.json; may be NULL,
     * which prints the number of parameters. */
    void (*describe)(tp_run *R);
    /* Adds to a report of the mean loss: text for the progress line (may stay empty), notes for the
     * log; may be NULL. after is called when the report is written, before R->sum restarts; may be
     * NULL. */
    void (*report)(tp_run *R, double loss, char *text, size_t size);
    void (*after)(tp_run *R);
    /* Prints final messages when the run ends; may be NULL. */
    void (*done)(tp_run *R);

    /* Writes metadata that evaluation needs to the best and last checkpoint: the model's
     * configuration; may be NULL. */
    void (*write_model)(tp_run *R, tp_writer *W);
    /* Write and read the program's own state in the last checkpoint; may be NULL. read is called
     * after build. Each of several processes calls both, write with the same names, and neither
     * may call tp_run_total: of tensors "state.*", whose first axis is the batch, each writes and
     * finds its own rows, also if their number has changed; of all else the file has rank 0's, so a
     * program adds up its counts before. */
    void (*write)(tp_run *R, tp_writer *W);
    void (*read)(tp_run *R, tp_file *F);

    /* For forecasts; all may be NULL. flops: of an update; 0 or NULL: a whole update is timed.
     * warm: updates until memory use is steady; NULL: 2. host_bytes: of prefetched data.
     * other_bytes: of device memory that build allocated besides R->P, for the weights of another
     * model. smaller: reduces settings, which already have a batch of 2 and no accumulation, so
     * that a trial of them is cheap. */
    double (*flops)(const tp_run *R);
    int64_t (*warm)(const tp_run *R);
    double (*host_bytes)(const tp_run *R);
    double (*other_bytes)(const tp_run *R);
    void (*smaller)(const tp_run *R, void *settings);

    /* Frees what open, share and build created, even if they failed; may be NULL. Called only if
     * open or share was. */
    void (*close)(tp_run *R);
} tp_training;

/* The main function of a training program; argv holds flags only. Returns the exit status: 0
 * finished or time limit reached, 1 error, 2 bad flag, 128 + signal. */
TP_API int tp_train_main(const tp_training *t, int argc, char **argv);

/* Under an MPI launcher (mpirun -n 4 PROGRAM ...), tp_train_main trains in all its processes
 * together (peers.h). --batch stays the number of examples of all: before open, the engine sets
 * the settings' train.batch to the rows of this process, so a program divides nothing. It reads its
 * rows by giving tp_run_share to its reader, and adds up what it counts by tp_run_total. A program
 * whose reader ignores its rank is refused. Only rank 0 prints and writes files. */

/* tp_train_main in one of several processes; NULL: alone. */
TP_API int tp_train_main_with(const tp_training *t, tp_peers *G, int argc, char **argv);

/* ---- for the functions of a program ---- */

/* Fails the run, which keeps the first reason and ends before anything is overwritten. */
TP_API void tp_run_fail(tp_run *R, const char *fmt, ...) TP_PRINTF(2, 3);
TP_API bool tp_run_ok(tp_run *R); /* also checks tapes and parameters */

/* True if the run (a signal, a failure) or a trial's validation must end. For long loops. */
TP_API bool tp_run_stopped(tp_run *R);

/* This process's part of the batches, for the `share` of readers (data.h, loader.h). */
TP_API tp_share tp_run_share(const tp_run *R);
/* Replaces x [n] by the sums over the processes of the run, the same bits in each: what a
 * validation has counted, divided by what it has seen. All processes call it equally often, in
 * next, loss or validate; if one has failed before, x stays and R fails in all. */
TP_API void tp_run_total(tp_run *R, double *x, int n);
/* The same for bytes: *all, to be freed, holds the n bytes of each process, one after another in
 * the order of the ranks, *bytes together. False, with R failed and *all NULL: a process failed. */
TP_API TP_CHECKED bool tp_run_collect(tp_run *R, const void *mine, size_t n, void **all,
                                      size_t *bytes);

/* Prints a separate line above the progress line. */
TP_API void tp_run_say(tp_run *R, const char *fmt, ...) TP_PRINTF(2, 3);

/* Reports that an unreadable example is skipped, and why. Use it as the `bad` of a loader with the
 * run as env. */
TP_API void tp_run_left_out(void *R, const char *name, const char *why);

/* Adds figures of this batch, scalars on R->T in the dtype of the loss, to R->sum [n], n at most
 * TP_RUN_SUMS; of several processes, the mean over them. They are read when losses are: on a GPU
 * not before a report or a checkpoint. Called by loss for each batch, not with --graph. */
TP_API void tp_run_sum(tp_run *R, int n, const tp_tensor *x);

/* Add an entry to the current line of log.jsonl or, during describe, to config.json. NaN and
 * infinity become null. */
TP_API void tp_run_note(tp_run *R, const char *key, double x);
TP_API void tp_run_note_int(tp_run *R, const char *key, int64_t x);
TP_API void tp_run_note_text(tp_run *R, const char *key, const char *text);

/* The run's event file, to which a program may add images, histograms and texts of its own under
 * R->update; the engine closes it. NULL, which the functions of events.h ignore, without
 * --tensorboard and in all processes but rank 0. */
TP_API tp_events *tp_run_events(tp_run *R);

/* Writes the path "DIR/name" in the run folder to buf and returns buf. */
TP_API char *tp_run_path(const tp_run *R, const char *name, char *buf, size_t size);

/* ---- for other commands of a program ---- */

/* Settings of a command that runs a trained model; its own settings begin with this struct. */
typedef struct tp_trained_settings {
    tp_machine_settings machine;
    char *run_dir, *checkpoint;
} tp_trained_settings;
extern TP_API const tp_option tp_trained_options[]; /* checkpoint run-dir */

/* The objects of such a command. They keep their errors; why holds the first error of the command
 * itself. */
typedef struct tp_trained {
    char path[4200]; /* of the checkpoint */
    tp_device *D;
    tp_params *P;
    tp_tape *T; /* not recording, not training */
    char why[4096];
} tp_trained;

/* Finds the checkpoint: the one in the settings, else best.safetensors of the run's folder, else
 * last.safetensors. Allocates nothing. */
TP_API tp_trained tp_trained_find(const tp_trained_settings *o);
/* Opens device, parameters and tape. blank: weights will be loaded. */
TP_API void tp_trained_open(tp_trained *t, const tp_machine_settings *o, uint64_t seed, bool blank);
/* false: t->why has the first error, even an object's */
TP_API bool tp_trained_ok(tp_trained *t);
TP_API bool tp_trained_fail(tp_trained *t, const char *fmt, ...) TP_PRINTF(2, 3); /* false */
TP_API bool tp_trained_printed(tp_trained *t); /* false: standard output failed, as t->why says */
TP_API void tp_trained_close(tp_trained *t);

/* Makes SIGINT, SIGTERM, SIGHUP and SIGUSR1 be only recorded; a second one kills the process. */
TP_API void tp_catch_signals(void);
TP_API int tp_stop_signal(void); /* the signal received, or 0 */

/* Makes an allocated path absolute, so that it is valid in other folders. NULL stays NULL. */
TP_API void tp_absolute_path(char **path);

/* A line on stderr about work in progress, "images 120/500 [##--] TEXT ETA 0:12". A terminal shows
 * one line, which is redrawn a few times a second and never longer than the terminal is wide;
 * elsewhere, and with TERM=dumb, one separate line a minute. */
typedef struct tp_ticker {
    const char *unit; /* what is counted: "images" */
    int64_t last;     /* their total number */
    double began, drawn;
    bool terminal, shown;
} tp_ticker;
TP_API tp_ticker tp_ticker_start(const char *unit, int64_t last);
TP_API bool tp_ticker_due(const tp_ticker *t); /* true if it is time to draw */
/* The text consists of fields separated by two blanks; the last ones are dropped if it is too
 * long. */
TP_API void tp_ticker_draw(tp_ticker *t, int64_t done, const char *fmt, ...) TP_PRINTF(3, 4);
TP_API void tp_ticker_end(tp_ticker *t); /* clears the line */

#ifdef __cplusplus
}
#endif
#endif
