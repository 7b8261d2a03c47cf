/* train.h - the engine of training runs (train library): one loop for every program.
 *
 * A program describes itself by one constant tp_training: its settings, how data and model are
 * opened, the loss of a batch, a validation. tp_train_main does the rest: command line, run folder
 * with lock, log, progress with ETA, learning rate, accumulation, clipping, averages, recorded
 * steps, validation, best and last checkpoint, signals, time limits, NaN, resuming with the same
 * bits, forecasts of memory and time. examples/first_text and examples/first_image are whole
 * programs of 150 lines.
 *
 * This library alone prints: tp_train_main is the main function of a program. Functions of the
 * program report errors by tp_run_fail, or leave them on the objects of the run (tape, parameters);
 * the engine looks after each call. */
#ifndef TAPEGRAD_TRAIN_H
#define TAPEGRAD_TRAIN_H

#include <tapegrad/options.h>
#include <tapegrad/tapegrad.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- settings that every training program has ---- */

/* Where a program runs. Settings that begin with one can have the rows of tp_machine_options. */
typedef struct tp_machine_settings {
    char *device;
    int dtype; /* of tp_dtype: f32, f64, bf16 */
    int64_t threads;
} tp_machine_settings;

/* In the order of the choices of --optimizer and --schedule. */
enum { TP_BY_ADAMW, TP_BY_ADAM, TP_BY_SGD, TP_BY_QHM, TP_BY_ADAMW_VIL };
enum { TP_RATE_CONSTANT, TP_RATE_LINEAR, TP_RATE_COSINE, TP_RATE_STEP, TP_RATE_ONECYCLE };

/* The first member of a training program's settings. tp_train_defaults gives usual values. */
typedef struct tp_train_settings {
    tp_machine_settings machine;
    char *run_dir, *init;
    bool resume, overwrite, plan, check_finite, graph, profile;
    int64_t epochs, steps; /* a run ends after either; 0: not by this one */
    double time;           /* seconds; 0: no limit                        */
    int64_t batch, accumulation, seed;
    int schedule, optimizer, recompute;
    double lr, warmup, lr_end, lr_factor;
    int64_t lr_every;
    double weight_decay, beta1, beta2, eps, momentum, nu;
    bool nesterov;
    double clip, ema;
    int64_t log_every, eval_every, checkpoint_every;
} tp_train_settings;

TP_API tp_train_settings tp_train_defaults(const char *run_dir);

/* Rows for tables of settings that begin with a tp_train_settings: all of them with their headings, and
 * in groups. A row of the program's own before them replaces the one of the same name. */
extern TP_API const tp_option tp_train_options[];
extern TP_API const tp_option tp_run_options[];       /* run-dir resume overwrite plan init      */
extern TP_API const tp_option tp_length_options[];    /* epochs steps time batch accumulation    */
extern TP_API const tp_option tp_rate_options[];      /* lr warmup schedule lr-end lr-every ...  */
extern TP_API const tp_option tp_optimizer_options[]; /* optimizer weight-decay ... clip ema     */
extern TP_API const tp_option tp_report_options[];    /* log-every eval-every checkpoint-every   */
extern TP_API const tp_option tp_device_options[];    /* device dtype threads check-finite ...   */
extern TP_API const tp_option
    tp_machine_options[]; /* device dtype threads; tp_machine_settings   */
/* --recompute, for models that can: tp_train_settings.recompute is a tp_recompute. Not among
 * tp_train_options. */
extern TP_API const tp_option tp_recompute_options[];

/* The optimiser that the options name; P's parameters, each with the factors of the rule (may be
 * NULL). raw_eps: Adam's eps as fairseq has it (optim.h). Never NULL. */
TP_API tp_optim *tp_train_optimizer(tp_params *P, const tp_train_settings *o, bool raw_eps,
                                    tp_factor_rule rule, void *env);
/* The learning rate of the update after u, in a run of `total` updates; warmup counts updates. */
TP_API double tp_train_rate(const tp_train_settings *o, int64_t u, int64_t total);

/* ---- a run ---- */

/* What the functions of a program are given. They change only what is marked so. */
typedef struct tp_run {
    void *settings; /* the program's, which begin with a tp_train_settings                */
    void *state;    /* the program's own, tp_training.state_size bytes, zero at first */
    tp_device *D;
    tp_params *P;   /* these four are opened after the data, before build             */
    tp_tape *T, *E; /* training, and evaluation: not recording, not training          */

    /* set by open and share: */
    int64_t batches;    /* of an epoch; 0: the data have no epochs                   */
    int64_t units;      /* of a batch, for the speed: tokens, images; 0: --batch     */
    uint64_t data_hash; /* a resumed run must find the same; 0: is not checked       */

    int64_t per_epoch;    /* updates of an epoch; 0: none                              */
    int64_t update;       /* updates made                                              */
    int64_t epoch, batch; /* of the next batch: epoch, and number in it (or in the run) */
    int rank, ranks;      /* of the processes that train together: 0 of 1 without      */
    bool trial;           /* on the side, to measure: a few updates, perhaps dry       */
} tp_run;

/* ---- a program ---- */

typedef struct tp_training {
    tp_command command;     /* the manual gets what is true of every run: signals, files, status;
                               synopsis NULL: flags, and how to resume                      */
    const char *program;    /* in config.json: "enwik8"; NULL: command.name                    */
    const char *unit;       /* what tp_run.units counts: "tokens"                              */
    const char *score;      /* of a validation, metadata of best.safetensors: "valid_bpc"; not
                               a name that the log has anyway, such as "loss"                  */
    const char *score_text; /* a format with one %f: "validation %.4f bpc"                  */
    bool higher;            /* is a higher score better?                                    */
    const char *other_data; /* what a resumed run says of data with another hash: a sentence
                               that follows the checkpoint's name; NULL: a general one       */
    size_t settings_size, state_size;
    const char *defaults; /* "--epochs 10 --ema 0.99": on top of tp_train_defaults, where
                             settings_of is NULL                                         */

    /* Functions marked "may be NULL" have a default; all others are needed, as are the texts above
     * them but program, other_data and defaults. */

    /* Fills settings, which are zero, with all that flags may change. asked: settings and names
     * that the command line gave, for presets; NULL for the defaults that the help shows. False
     * with the reason in why. May be NULL: tp_train_defaults("runs/PROGRAM"), and defaults. */
    bool (*settings_of)(void *settings, const void *asked, const tp_given_flags *given, char *why,
                        size_t size);

    /* Opens the data; may complete the settings, as by a learning rate that depends on the data.
     * from: the checkpoint that the run resumes or begins with (--init), or NULL, as in a trial.
     * share: in place of open for a trial run, whose data are those of another run, R; may be NULL:
     * trial runs open the data anew. */
    void (*open)(tp_run *R, tp_file *from);
    void (*share)(tp_run *R, const tp_run *with);

    /* Declares the model in R->P. */
    void (*build)(tp_run *R);
    /* The weights of --init, from, into the model; may be NULL: by name. */
    void (*init)(tp_run *R, tp_file *from);
    /* May be NULL: tp_train_optimizer and tp_train_rate by the flags. */
    tp_optim *(*optimizer)(tp_run *R);
    double (*rate)(const tp_run *R, int64_t update);

    /* Brings batch R->batch of R->epoch into slots by tp_feed. It mostly follows the one before,
     * but not in a resumed run, nor after an epoch whose last batches were too few for an update.
     */
    void (*next)(tp_run *R);
    /* The mean loss of that batch, a scalar of R->T. With --graph it is recorded: what it does
     * besides ops is done once. */
    tp_tensor (*loss)(tp_run *R);

    /* Validates on R->E and returns the score, which the log gets; text: what the progress says of
     * it, by score_text where it stays empty. Asks tp_run_stopped for each batch and ends early
     * where it says so, as a trial does after a few. A score that is NaN or infinite is never the
     * best. With --ema the parameters hold the averages. best: after a validation that was the best
     * so far; may be NULL.
     */
    double (*validate)(tp_run *R, char *text, size_t size);
    void (*best)(tp_run *R);

    /* Says what is trained on what (tp_run_say), and notes for config.json; may be NULL: the number
     * of parameters. */
    void (*describe)(tp_run *R);
    /* What a report says beside the mean loss: text for the progress line (may stay empty), notes
     * for the log; may be NULL. after: the report is written, sums may begin anew; may be NULL. */
    void (*report)(tp_run *R, double loss, char *text, size_t size);
    void (*after)(tp_run *R);
    /* Says what is left to say when the run ends; may be NULL. */
    void (*done)(tp_run *R);

    /* Metadata that evaluation needs, in best and last checkpoint: the model's configuration; may
     * be NULL. */
    void (*write_model)(tp_run *R, tp_writer *W);
    /* State of the program's own in the last checkpoint; may be NULL. read: after build. */
    void (*write)(tp_run *R, tp_writer *W);
    void (*read)(tp_run *R, tp_file *F);

    /* Forecasts. flops: of an update, 0 or NULL: time is measured by a whole one. warm: updates
     * until memory is steady; may be NULL: 2. host_bytes: of data in advance; may be NULL. smaller:
     * makes settings of the run cheap to try, with a batch of 2 and no accumulation already; may be
     * NULL. */
    double (*flops)(const tp_run *R);
    int64_t (*warm)(const tp_run *R);
    double (*host_bytes)(const tp_run *R);
    void (*smaller)(const tp_run *R, void *settings);

    /* Frees what open, share and build made, also where they failed; may be NULL. Is not called
     * where neither open nor share was. */
    void (*close)(tp_run *R);
} tp_training;

/* The main function of a training program: argv holds flags only. Returns the exit status: 0 done,
 * or time is up; 1 an error; 2 a bad flag; 128 + signal. */
TP_API int tp_train_main(const tp_training *t, int argc, char **argv);

/* How several processes train one model, each on batches of its own (tp_run.rank, ranks): the
 * engine calls these in the same order in all of them, and where one fails all end. Process 0 alone
 * prints and writes; every one validates, and all must come to the same score. */
typedef struct tp_peers {
    int rank, ranks;
    void *env;
    bool (*any)(void *env, bool here);        /* true everywhere if it is true anywhere  */
    void (*sum)(void *env, double *x, int n); /* replaces x by the sums over all         */
    bool (*reduce)(void *env, tp_params *P);  /* replaces the gradients by their means;
                                                 false: it failed                        */
} tp_peers;
TP_API int tp_train_main_with(const tp_training *t, const tp_peers *peers, int argc, char **argv);

/* ---- for the functions of a program ---- */

/* Fails the run: the first reason is kept, and the run ends before anything is overwritten. */
TP_API void tp_run_fail(tp_run *R, const char *fmt, ...) TP_PRINTF(2, 3);
TP_API bool tp_run_ok(tp_run *R); /* looks at tapes and parameters too */

/* Is the run to end (a signal, a failure), or a trial's validation? For long loops. */
TP_API bool tp_run_stopped(tp_run *R);

/* A line of its own above the progress line. */
TP_API void tp_run_say(tp_run *R, const char *fmt, ...) TP_PRINTF(2, 3);

/* Says that an example is left out since it cannot be read, and why: tp_loader_opts.bad, whose env
 * is the run. */
TP_API void tp_run_left_out(void *R, const char *name, const char *why);

/* Notes in the line of log.jsonl that is in work, from describe in config.json. NaN and infinity
 * become null. */
TP_API void tp_run_note(tp_run *R, const char *key, double x);
TP_API void tp_run_note_int(tp_run *R, const char *key, int64_t x);
TP_API void tp_run_note_text(tp_run *R, const char *key, const char *text);

/* "DIR/name" of the run folder. Returns buf. */
TP_API char *tp_run_path(const tp_run *R, const char *name, char *buf, size_t size);

/* ---- for other commands of a program ---- */

/* What a command that runs a trained model is told; its settings begin with one. */
typedef struct tp_trained_settings {
    tp_machine_settings machine;
    char *run_dir, *checkpoint;
} tp_trained_settings;
extern TP_API const tp_option tp_trained_options[]; /* checkpoint run-dir */

/* What such a command runs it with. Errors stay with the objects; why has the first of the
 * command's own. */
typedef struct tp_trained {
    char path[4200]; /* of the checkpoint */
    tp_device *D;
    tp_params *P;
    tp_tape *T; /* not recording, not training */
    char why[4096];
} tp_trained;

/* Begins with the name of the checkpoint: the one that the options give, else best.safetensors of
 * the run's folder, else last.safetensors. Takes nothing that would have to be freed. */
TP_API tp_trained tp_trained_find(const tp_trained_settings *o);
/* Opens device, parameters and tape. blank: weights are about to be loaded. */
TP_API void tp_trained_open(tp_trained *t, const tp_machine_settings *o, uint64_t seed, bool blank);
TP_API bool tp_trained_ok(tp_trained *t); /* false: see t->why, which has an object's error then */
TP_API bool tp_trained_fail(tp_trained *t, const char *fmt, ...) TP_PRINTF(2, 3); /* false */
TP_API void tp_trained_close(tp_trained *t);

/* From here on SIGINT, SIGTERM and SIGHUP only note that they came; a second one kills. */
TP_API void tp_catch_signals(void);
TP_API int tp_stop_signal(void); /* the signal that came, or 0 */

TP_API double tp_seconds(void); /* of a clock that never jumps */

/* Makes an allocated path absolute, so that it holds in other folders too. NULL stays. */
TP_API void tp_absolute_path(char **path);

/* A line on stderr, on a terminal only, rewritten a few times a second. */
typedef struct tp_ticker {
    double began, drawn;
} tp_ticker;
TP_API tp_ticker tp_ticker_start(void);
TP_API bool tp_ticker_due(tp_ticker *t); /* is it time to draw? */
TP_API void tp_ticker_draw(tp_ticker *t, const char *fmt, ...) TP_PRINTF(2, 3);
TP_API void tp_ticker_end(tp_ticker *t); /* clears the line */

#ifdef __cplusplus
}
#endif
#endif
