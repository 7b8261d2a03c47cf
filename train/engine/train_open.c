/* train_open.c - opens a run from presets and flags, or from an earlier run's checkpoint.
 *
 * Flags are parsed twice: first to find the preset, the folder and --resume, then on top of the
 * preset's values. A resumed run takes its settings from the checkpoint; only flags that do not
 * change its course may override them. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "options_inner.h"
#include "trainer.h"

/* ---- devices, model, optimiser ---- */

/* The name of the device: of the processes of a host, each has a GPU of its own. */
static const char *device_of(tp_trainer *r, char *buf, size_t size)
{
    const char *name = r->o->machine.device;
    const tp_transport *t = tp_peers_transport(r->peers);
    if (!t || strncmp(name, "cuda", 4) != 0) return name;
    if (strcmp(name, "cuda") != 0 && t->local_ranks > 1)
        tp__run_fail(
            r,
            "--device %s would put %d processes of host %s on one GPU: give --device cuda, "
            "which gives each its own, and start no more of them than there are GPUs",
            name, t->local_ranks, t->host);
    else if (strcmp(name, "cuda") == 0)
        snprintf(buf, size, "cuda:%d", t->local_rank);
    return strcmp(name, "cuda") == 0 ? buf : name;
}

static void open_device(tp_trainer *r, bool dry, bool blank)
{
    const tp_train_settings *o = r->o;
    const tp_dtype dtype = (tp_dtype)o->machine.dtype;
    char name[32];
    tp_run *R = &r->run;
    const char *device = device_of(r, name, sizeof name);
    if (r->why[0]) return;
    /* on a GPU a trace needs the profile's times */
    const bool profile = o->profile || (o->trace && strncmp(device, "cuda", 4) == 0);
    R->D = tp_device_open(
        device,
        &(tp_device_opts){ .threads = (int)o->machine.threads, .dry = dry, .profile = profile });
    R->P = tp_params_new(R->D, &(tp_params_opts){ .seed = (uint64_t)o->seed,
                                                  .dtype = dtype == TP_F64 ? TP_F64 : TP_F32,
                                                  .blank = blank });
    R->T = tp_tape_new(R->D, &(tp_tape_opts){ .seed = (uint64_t)o->seed,
                                              .compute = dtype,
                                              .train = true,
                                              .check_finite = o->check_finite });
    tp_set_random_state(R->T, (uint64_t)o->seed, tp__run_stream(R));
    R->E = tp_tape_new(R->D, &(tp_tape_opts){ .compute = dtype });
    tp_record(R->E, false);
    r->on_gpu = strncmp(o->machine.device, "cuda", 4) == 0;
}

bool tp__run_build(tp_trainer *r, bool dry, bool blank)
{
    tp_run *R = &r->run;
    open_device(r, dry, blank);
    if (!tp__run_fine(r)) return false;
    if (r->o->graph && r->o->accumulation == 1) r->C = tp_capture_new(R->T);
    r->t->build(R);
    return tp__run_fine(r);
}

/* Call after loading --init's weights, because averages start from them. */
static bool make_optimizer(tp_trainer *r)
{
    tp_run *R = &r->run;
    r->O = r->t->optimizer ? r->t->optimizer(R) : tp_train_optimizer(R->P, r->o, false, NULL, NULL);
    if (r->o->ema > 0 && tp_optim_has_averages(r->O))
        return tp__run_fail(r, "--ema %g: this optimiser keeps averages of its own; give --ema 0",
                            r->o->ema);
    if (r->o->ema > 0) r->ema = tp_ema_new(R->P, r->o->ema);
    return tp__run_fine(r);
}

static bool take_weights(tp_trainer *r, tp_file *from)
{
    if (r->t->init)
        r->t->init(&r->run, from);
    else if (!tp_params_read(r->run.P, from, "", &(tp_load_opts){ .convert = true }))
        tp__run_fail(r, "%s", tp_params_why(r->run.P));
    return tp__run_fine(r);
}

/* ---- data ---- */

/* The update that ends a run with --steps `steps`; 0: none. */
static int64_t end_of(const tp_trainer *r, int64_t steps)
{
    const int64_t whole = r->o->epochs * r->run.per_epoch;
    return whole > 0 && (steps == 0 || whole < steps) ? whole : steps;
}

/* Derives the length of an epoch and the end of the run from the data. */
static bool measure_run(tp_trainer *r)
{
    const tp_train_settings *o = r->o;
    tp_run *R = &r->run;
    if (r->why[0]) return false;
    if (R->batches < 0)
        return tp__run_fail(r, "the program's open set %lld batches an epoch",
                            (long long)R->batches);
    if (R->units == 0) R->units = o->batch;
    R->per_epoch = R->batches / o->accumulation;
    if (R->batches > 0 && R->per_epoch == 0)
        return tp__run_fail(r,
                            "there is too little data for an update of %lld x %lld %s: "
                            "lower --batch or --accumulation",
                            (long long)(r->batch > 0 ? r->batch : o->batch),
                            (long long)o->accumulation, r->t->unit);
    r->last = r->range.updates > 0 ? r->range.updates : end_of(r, o->steps);
    return r->last > 0 || tp__run_fail(r, "--steps N is needed%s: how many updates to make",
                                       R->per_epoch > 0 ? ", or --epochs N" : "");
}

static bool open_data(tp_trainer *r, tp_file *from)
{
    r->given = tp__options_json(r->t->command.table, r->run.settings);
    if (!tp__events_check(r) || !tp__run_take_rows(r)) return false;
    r->opened = true;
    r->t->open(&r->run, from);
    return measure_run(r);
}

/* ---- new and resumed runs ---- */

static bool build_run(tp_trainer *r, tp_file *from, bool resumed)
{
    const bool whole = resumed || (from && !r->t->init); /* the file holds every weight */
    if (!tp__run_build(r, false, whole) || !(resumed || !from || take_weights(r, from)))
        return false;
    if (r->peers)
        r->X = tp_exchange_new(
            r->run.P, r->peers,
            &(tp_exchange_opts){ .shard = r->o->shard_optimizer, .bf16 = r->o->exchange_bf16 });
    if (r->peers && r->o->sync_bn && r->C)
        return tp__run_fail(r, "--graph cannot record the batch norms of --sync-bn: leave one out");
    if (r->peers && r->o->sync_bn) tp_peers_batch_norm(r->peers, r->run.D);
    if (r->X && !tp_exchange_ok(r->X)) return tp__run_fail(r, "%s", tp_exchange_why(r->X));
    return tp__course_begin(r) && make_optimizer(r);
}

static bool begin_with(tp_trainer *r, tp_file *from)
{
    return open_data(r, from) && (r->o->plan || build_run(r, from, false));
}

/* Is the file missing? The run fails if the disk cannot tell. */
static bool is_missing(tp_trainer *r, const char *path)
{
    if (tp__missing(path)) return true;
    if (errno)
        tp__run_fail(r, "%s cannot be accessed: %s; %s", path, strerror(errno),
                     tp_file_advice(errno));
    return false;
}

/* Protects an existing run from being overwritten by mistake. */
static bool is_free(tp_trainer *r)
{
    if (!is_missing(r, r->folder.last))
        return tp__run_fail(r,
                            "run folder %s already holds a run: continue it with --resume, choose "
                            "another --run-dir, or start over with --overwrite",
                            r->folder.path);
    const char *what = NULL;
    if (!is_missing(r, r->folder.best))
        what = "the best model";
    else if (tp__run_has_kept(r))
        what = "kept checkpoints";
    if (!what) return !r->why[0];
    return tp__run_fail(r,
                        "run folder %s holds %s of a run without a last checkpoint: choose another "
                        "--run-dir, or start over with --overwrite",
                        r->folder.path, what);
}

/* Opens a new run. --plan touches no run folder, and --lr-range only files of its own there. */
static bool open_fresh(tp_trainer *r, const tp_given_flags *given)
{
    const char *init = r->o->init;
    if (!tp__run_take_range(r, given)) return false;
    const bool begins = !r->o->plan && r->range.updates == 0 && r->run.rank == 0;
    if (begins && !r->o->overwrite && !is_free(r)) return false;
    r->saved = -1;
    tp__run_compare(r);
    if (!init) return begin_with(r, NULL);
    tp_file *from = tp_file_open(init);
    const bool done =
        tp_file_ok(from) ? begin_with(r, from) : tp__run_fail(r, "%s", tp_file_why(from));
    tp_file_close(from);
    return done;
}

static bool is_ours(tp_trainer *r, const tp_file *F)
{
    const char *program = tp_file_meta(F, "program"), *ours = tp__run_program(r->t);
    return !program || strcmp(program, ours) == 0 || /* not in older files */
           tp__run_fail(r, "%s is a checkpoint of %s, not of %s", r->folder.last, program, ours);
}

/* former: the checkpoint's --steps, before the command line changed it. */
static bool keeps_the_schedule(tp_trainer *r, int64_t former)
{
    const int64_t end = end_of(r, former);
    return !tp__run_steps_shape(r) || end == r->last ||
           tp__run_fail(r, "%s: its schedule ends at update %lld, which --steps cannot change",
                        r->folder.last, (long long)end);
}

static bool open_resumed(tp_trainer *r, const void *asked, const tp_given_flags *given)
{
    const tp_train_settings *wanted = asked;
    char why[5000];
    if (wanted->plan)
        return tp__run_fail(
            r, "--plan describes a new run: leave out --resume and give the flags of the run");
    if (wanted->init || wanted->overwrite || wanted->lr_range)
        return tp__run_fail(r, "--resume continues a run: it cannot be combined with --init, "
                               "--overwrite or --lr-range");
    tp_file *from = tp_file_open(r->folder.last);
    bool done = tp_file_ok(from) || tp__run_fail(r, "cannot resume: %s", tp_file_why(from));
    done = done && is_ours(r, from);
    if (done && !tp_options_read(r->t->command.table, r->run.settings, from, why, sizeof why))
        done = tp__run_fail(r, "%s", why);
    const int64_t steps = r->o->steps;
    done = done && tp__run_merge(r, asked, given);
    if (done) tp__run_compare(r);
    done = done && open_data(r, from) && keeps_the_schedule(r, steps) && build_run(r, from, true) &&
           tp__run_load(r, from);
    tp_file_close(from);
    return done && tp__run_find_best(r);
}

/* Removes a file of the overwritten run. */
static bool discard(tp_trainer *r, const char *former)
{
    return remove(former) == 0 || errno == ENOENT ||
           tp__run_fail(r, "%s cannot be removed: %s; choose another --run-dir", former,
                        strerror(errno));
}

bool tp__run_files(tp_trainer *r)
{
    const bool resumed = r->o->resume;
    r->begun = true;
    const int64_t keep = r->unvalidated ? r->run.update - 1 : r->run.update;
    if (!tp__folder_config(&r->folder, tp__run_config(r)))
        return tp__run_fail(r, "%s", r->folder.why);
    if (!resumed &&
        (!discard(r, r->folder.last) || !discard(r, r->folder.best) || !tp__run_discard_kept(r)))
        return false;
    if (resumed && !tp__run_keep_last(r)) return false; /* a kill may have come before */
    if (!tp__log_open(&r->log, r->folder.log, keep)) return tp__run_fail(r, "%s", r->log.why);
    r->seconds = tp__log_last(&r->log, "seconds");
    return tp__events_open(r, keep);
}

/* ---- opening and closing ---- */

/* asked: the defaults overridden by argv. */
static void open_run(tp_trainer *r, int argc, char **argv, const void *asked,
                     const tp_given_flags *given)
{
    const tp_train_settings *wanted = asked;
    if (!tp__run_settle(r, asked, given)) return;
    r->o = r->run.settings;
    const bool writes = !wanted->plan && r->run.rank == 0;
    const bool named = tp__folder_name(&r->folder, wanted->run_dir);
    const tp_option *unfit = tp__options_unfit(r->t->command.table, asked);
    if (unfit)
        tp__run_fail(r, "--%s is not UTF-8, so a checkpoint cannot hold it: rename it",
                     unfit->name);
    else if (named && wanted->resume && tp__missing(r->folder.path))
        tp__run_fail(r, "cannot resume: there is no folder %s", r->folder.path);
    else if (!named || (writes && !tp__folder_open(&r->folder, wanted->run_dir)))
        tp__run_fail(r, "%s", r->folder.why);
    else if (wanted->resume)
        open_resumed(r, asked, given);
    else if (tp_options_parse(&r->command, argc, argv, r->run.settings, NULL) == TP_PARSED)
        open_fresh(r, given);
}

bool tp__run_open(tp_trainer *r, const tp_training *t, tp_peers *peers, int argc, char **argv,
                  int *status)
{
    void *asked;
    tp_given_flags given;
    *r = (tp_trainer){ .run = { .rank = tp_peers_rank(peers), .ranks = tp_peers_count(peers) },
                       .t = t,
                       .peers = peers,
                       .folder = TP_NO_FOLDER,
                       .log = { .fd = -1 },
                       .best = t->higher ? -(double)INFINITY : (double)INFINITY };
    *status = TP_PARSED;
    if (peers) tp_peers_during(peers, "the start", TP_PATIENCE);
    if (!tp__run_check_program(r)) return false;
    tp__run_complete_manual(r);
    r->run.state = calloc(1, t->state_size + 1);
    if (!r->run.state) return tp__run_fail(r, "out of memory");
    if (tp__run_new_settings(r, &asked, NULL, NULL)) {
        *status = tp__run_parse(r, argc, argv, asked, &given);
        if (*status == TP_PARSED &&
            tp__run_everywhere(r, !r->why[0] && tp__run_take_config(r, argc, argv, asked)))
            open_run(r, argc, argv, asked, &given);
    }
    if (asked) tp_options_free(t->command.table, asked);
    free(asked);
    return *status == TP_PARSED && tp__run_everywhere(r, !r->why[0]);
}

/* Frees the parts that both runs and trials own. */
static void free_parts(tp_trainer *r)
{
    tp_run *R = &r->run;
    if (r->opened && r->t->close) r->t->close(R);
    tp_ema_free(r->ema);
    tp_optim_free(r->O);
    tp_exchange_free(r->X);
    tp_capture_free(r->C);
    tp_tape_free(R->T);
    tp_tape_free(R->E);
    tp_params_free(R->P);
    tp_device_close(R->D);
    free(R->state);
}

void tp__run_close(tp_trainer *r)
{
    tp__log_close(&r->log);
    tp__events_close(r);
    json_decref(r->notes);
    json_decref(r->own);
    json_decref(r->preset);
    json_decref(r->given);
    tp__run_free_config(r);
    if (r->run.state) free_parts(r);
    if (r->run.settings) tp_options_free(r->t->command.table, r->run.settings);
    free(r->run.settings);
    if (!r->begun) tp__folder_forget(&r->folder);
    tp__folder_close(&r->folder);
}

bool tp__run_trial_begin(tp_trainer *trial, const tp_trainer *r, void *settings, bool dry)
{
    *trial = (tp_trainer){ .run = { .settings = settings, .ranks = 1, .trial = true },
                           .t = r->t,
                           .o = settings,
                           .bar = { .silent = true },
                           .folder = TP_NO_FOLDER,
                           .log = { .fd = -1 },
                           .opened = true,
                           .saved = -1 };
    trial->run.state = calloc(1, r->t->state_size + 1);
    if (!trial->run.state) return tp__run_fail(trial, "out of memory");
    if (r->t->share)
        r->t->share(&trial->run, &r->run);
    else
        r->t->open(&trial->run, NULL);
    return measure_run(trial) && tp__run_build(trial, dry, false) && make_optimizer(trial);
}

void tp__run_trial_end(tp_trainer *trial)
{
    if (trial->run.state) free_parts(trial);
}
