/* train_report.c - the work after an update, in this order: a validation and the best model, a line
 * of the log, a checkpoint.
 *
 * The checkpoint comes last. After a kill before it, the resumed run repeats the lost work, so log,
 * best and last checkpoint always agree. A signal ends a validation early; the checkpoint records
 * this, and the resumed run starts with that validation and its report.
 *
 * With --profile, also the run's time by op; with --trace, that of an update. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tapegrad/observe.h>
#include <tapegrad/report.h>
#include <unistd.h>

#include "trainer.h"

/* ---- the time of each op ---- */

enum { LINES = 256 };

static const char *direction(const tp_op_time *t)
{
    return t->backward ? "backward" : "forward";
}

void tp__op_times_print(tp_device *D, double seconds)
{
    tp_op_time line[LINES];
    const int all = tp_device_profile(D, line, LINES), n = all < LINES ? all : LINES;
    double sum = 0.0;
    printf("\n%-24s %-9s %10s %12s %10s %7s\n", "op", "direction", "calls", "seconds", "us a call",
           "share");
    for (int i = 0; i < n; i++) {
        const tp_op_time *t = &line[i];
        sum += t->seconds;
        printf("%-24s %-9s %10llu %12.4f %10.1f %6.1f%%\n", t->op, direction(t),
               (unsigned long long)t->calls, t->seconds, 1e6 * t->seconds / (double)t->calls,
               100.0 * t->seconds / seconds);
    }
    printf("%-24s %-9s %10s %12.4f %10s %6.1f%%\n", "all ops", "", "", sum, "",
           100.0 * sum / seconds);
}

json_t *tp__op_times_json(tp_device *D)
{
    tp_op_time line[LINES];
    const int all = tp_device_profile(D, line, LINES), n = all < LINES ? all : LINES;
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_pack("[s,s,I,f]", line[i].op, direction(&line[i]),
                                              (json_int_t)line[i].calls, line[i].seconds));
    return list;
}

/* ---- the trace of an update ---- */

/* Updates made before the traced one: they allocate memory and start threads. */
enum { TRACED = 2 };

void tp__run_trace(tp_trainer *r, bool begins)
{
    char why[TP_PATH + 600];
    if (!r->o->trace || r->run.trial || r->run.rank > 0 || r->made != TRACED) return;
    if (begins)
        tp_trace_begin(r->run.D);
    else if (tp_trace_end(r->run.D, r->o->trace, why, sizeof why))
        tp_run_say(&r->run, "trace of update %lld: %s", (long long)r->run.update + 1, r->o->trace);
    else
        tp_run_say(&r->run, "warning: no trace: %s", why);
}

static void excuse_trace(tp_trainer *r)
{
    if (r->o->trace && r->run.rank == 0 && r->made <= TRACED)
        tp_run_say(&r->run,
                   "warning: no trace: it is of the third update of a process, and this one made "
                   "only %lld",
                   (long long)r->made);
}

/* ---- duties ---- */

typedef struct duties {
    bool validate, report, save, epoch_end;
    bool regular; /* the validation is not only due to the end of the run */
} duties;

static bool due(int64_t every, int64_t n)
{
    return every > 0 && n % every == 0;
}

bool tp__run_validates(const tp_trainer *r, int64_t update)
{
    const int64_t every = r->o->eval_every, epoch = r->run.per_epoch;
    return epoch > 0 ? update % epoch == 0 && due(every, update / epoch) : due(every, update);
}

static duties duties_of(const tp_trainer *r, bool last)
{
    const tp_train_settings *o = r->o;
    const tp_run *R = &r->run;
    const bool end = R->per_epoch > 0 && R->update % R->per_epoch == 0;
    const bool regular = tp__run_validates(r, R->update), measure = last || regular;
    return (duties){ .validate = measure,
                     .report = due(o->log_every, R->update) || end || measure,
                     .save = due(o->checkpoint_every, R->update) || end || last,
                     .epoch_end = end,
                     .regular = regular };
}

/* ---- validation ---- */

static void announce_score(tp_trainer *r, const char *text, bool best)
{
    const tp_run *R = &r->run;
    const char *mark = best ? "  (best)" : "";
    if (R->per_epoch > 0)
        tp_run_say(&r->run, "epoch %g  validation %s%s", (double)R->update / (double)R->per_epoch,
                   text, mark);
    else
        tp_run_say(&r->run, "step %lld  validation %s%s", (long long)R->update, text, mark);
}

/* An equal score of the same update counts too: the run may have resumed from before its best. */
static bool is_best(const tp_trainer *r, double score)
{
    const bool again = score == r->best && r->run.update == r->best_at;
    return tp__is_better(r->t, score, r->best) || (again && isfinite(score));
}

/* Exchanges the weights for the averages to validate with, and back. False: there are none, or no
 * memory, which the optimiser reports. */
static bool swap_averages(tp_trainer *r)
{
    if (tp_optim_has_averages(r->O)) return tp_optim_swap(r->O);
    return r->ema && !r->o->ema_aside && tp_ema_swap(r->ema);
}

/* Validates, with the averaged weights unless --ema-aside, and saves a new best model. False if a
 * signal or an error ended it early. */
static bool validate(tp_trainer *r, bool regular)
{
    char text[400] = "";
    const bool swapped = swap_averages(r);
    const double own = r->t->validate(&r->run, text, sizeof text), score = tp__run_first(r, own);
    if (!text[0]) snprintf(text, sizeof text, r->t->score_text, score);
    if (!json_object_get(r->notes, r->t->score)) tp_run_note(&r->run, r->t->score, score);
    const bool stopped = tp_stop_signal() != 0 || !tp__run_fine(r);
    const bool done = !tp__run_anywhere(r, stopped);
    const bool best = done && is_best(r, score) && tp__run_save_best(r, r->folder.best, score);
    if (best) {
        r->best = score;
        r->best_at = r->run.update;
        if (r->t->best && r->run.rank == 0) r->t->best(&r->run);
    }
    if (done && tp__run_fine(r)) tp__run_keep_best(r, score, best);
    if (swapped) swap_averages(r);
    if (done) announce_score(r, text, best);
    if (done && regular && tp__run_fine(r)) tp__course_take(r, score); /* else it is repeated */
    if (done && !isfinite(score))
        tp_run_say(&r->run, "the %s of this validation is %g: the model is not saved as the best",
                   r->t->score, score);
    return done && tp__run_fine(r);
}

/* ---- reports ---- */

/* Figures of the updates since the last report. */
typedef struct snapshot {
    double loss, units_per_s;
    size_t memory; /* bytes */
} snapshot;

static snapshot take_snapshot(const tp_trainer *r, double loss)
{
    const double units = (double)(r->watch.updates * r->o->accumulation * r->run.units);
    return (snapshot){
        .loss = loss,
        .units_per_s = units * r->run.ranks / (tp_seconds() - r->watch.began),
        .memory = tp_device_stats(r->run.D).peak_bytes,
    };
}

/* The program's figures: text for the progress line, notes for the log. They may be totals, so all
 * processes compute them for a report; between reports only a process that trains alone does. */
static void own_figures(tp_trainer *r, const snapshot *now, bool report, char *text, size_t size)
{
    text[0] = '\0';
    if (!r->t->report || (!report && r->peers)) return;
    r->notes = report ? json_object() : NULL;
    r->t->report(&r->run, now->loss, text, size);
    json_decref(r->own);
    r->own = r->notes;
    r->notes = NULL;
}

static void show(tp_trainer *r, const snapshot *now, bool report)
{
    const tp_run *R = &r->run;
    char own[200], what[400];
    int n = 0;
    if (!report && r->sum.reported <= 0) return; /* all losses are still on the device */
    own_figures(r, now, report, own, sizeof own);
    if (R->per_epoch > 0)
        n = snprintf(what, sizeof what, "epoch %.2f  ", (double)R->update / (double)R->per_epoch);
    snprintf(what + n, sizeof what - (size_t)n, "loss %.4f  %s%s%.0f %s/s  %.0f MB", now->loss, own,
             own[0] ? "  " : "", now->units_per_s, r->t->unit, (double)now->memory / 1e6);
    tp__progress_step(&r->bar, R->update, report, what);
}

static void set(json_t *line, const char *key, double x)
{
    json_object_set_new(line, key, tp__log_number(x));
}

/* Seconds an update that exchanging gradients took: while nothing else was done, and during
 * backward. On GPUs the first report says how gradients travel. */
static void set_exchange(tp_trainer *r, json_t *line)
{
    const tp_exchange_stats now = tp_exchange_stats_of(r->X), *before = &r->exchanged;
    const double updates = (double)(now.updates - before->updates);
    if (before->updates == 0 && strcmp(now.path, "messages") != 0)
        tp_run_say(&r->run, "gradients travel by %s", now.path);
    set(line, "exchange_exposed", (now.exposed - before->exposed) / updates);
    set(line, "exchange_hidden", (now.hidden - before->hidden) / updates);
    r->exchanged = now;
}

/* One line of the log. validation: the notes of a validation, or NULL. */
static json_t *make_line(tp_trainer *r, const snapshot *now, bool epoch_end, json_t *validation)
{
    const tp_run *R = &r->run;
    json_t *line = json_pack("{s:I}", "step", (json_int_t)R->update);
    char key[64];
    if (R->per_epoch > 0) set(line, "epoch", (double)R->update / (double)R->per_epoch);
    json_object_set_new(line, r->t->unit,
                        json_integer(R->update * r->o->accumulation * R->units * R->ranks));
    set(line, "seconds", r->seconds);
    set(line, "loss", now->loss);
    if (r->own) json_object_update(line, r->own);
    set(line, "lr", r->rate);
    set(line, "grad_norm", r->norm);
    snprintf(key, sizeof key, "%s_per_s", r->t->unit);
    set(line, key, now->units_per_s);
    json_object_set_new(line, "memory", json_integer((json_int_t)now->memory));
    json_object_set_new(line, "process", json_integer((json_int_t)tp__run_memory_peak()));
    if (r->X) set_exchange(r, line);
    if (epoch_end) set(line, "train_loss", r->sum.epoch / r->sum.of_epoch);
    if (validation) json_object_update_missing(line, validation);
    if (validation && r->o->profile) json_object_set_new(line, "ops", tp__op_times_json(R->D));
    return line;
}

static bool report(tp_trainer *r, const snapshot *now, bool epoch_end, json_t *validation)
{
    if (r->run.rank == 0) {
        json_t *line = make_line(r, now, epoch_end, validation);
        const bool done = tp__log_write(&r->log, json_incref(line));
        if (done) tp__events_report(r, line);
        json_decref(line);
        if (!done) return tp__run_fail(r, "%s", r->log.why);
    }
    if (r->t->after) r->t->after(&r->run);
    r->sum.report = 0;
    r->sum.reported = 0;
    memset(r->run.sum, 0, sizeof r->run.sum);
    r->run.summed = 0;
    return true;
}

/* ---- files ---- */

/* The page is not part of the run: if it fails, warn. */
static void write_page(tp_trainer *r)
{
    char path[TP_PATH + 32], why[TP_PATH + 600];
    const char *const folder = r->folder.path;
    tp_run_path(&r->run, "report.html", path, sizeof path);
    if (!tp_report_write(path, &folder, 1, why, sizeof why))
        tp_run_say(&r->run, "warning: no page of this run: %s", why);
}

/* An error in a validation ends the run but loses no training: the checkpoint marks the validation
 * as missing, and a resumed run begins with it. */
static void save_unvalidated(tp_trainer *r)
{
    char why[sizeof r->why];
    memcpy(why, r->why, sizeof why);
    r->why[0] = '\0';
    tp_clear(r->run.E);
    const bool parted = r->parted;
    r->parted = false; /* in all processes at once */
    if (tp__run_everywhere(r, tp__run_fine(r))) tp__run_save(r);
    r->parted = parted;
    memcpy(r->why, why, sizeof why);
}

static bool write_files(tp_trainer *r, const snapshot *now, duties todo)
{
    json_t *validation = NULL;
    if (todo.validate && !r->unvalidated) {
        r->notes = json_object();
        r->unvalidated = !validate(r, todo.regular);
        if (tp__course_over(r)) r->ends = todo.save = true;
        validation = r->notes;
        r->notes = NULL;
        if (!r->unvalidated) tp__events_validated(r);
        if (!tp__run_everywhere(r, tp__run_fine(r))) save_unvalidated(r);
    }
    bool done = tp__run_fine(r);
    if (done && todo.report && !r->unvalidated) done = report(r, now, todo.epoch_end, validation);
    done = tp__run_everywhere(r, done);
    const bool validated = validation && !r->unvalidated;
    json_decref(validation);
    if (done && todo.epoch_end && !r->unvalidated) {
        r->sum.epoch = 0;
        r->sum.of_epoch = 0;
    }
    if (done && (todo.save || r->unvalidated)) done = tp__run_compare_peers(r) && tp__run_save(r);
    if (done && r->o->report && validated && r->run.rank == 0) write_page(r);
    return done;
}

/* Recreates the run folder. A folder that now holds another run is left alone. */
static bool recreate(tp_trainer *r)
{
    char path[TP_PATH];
    snprintf(path, sizeof path, "%s", r->folder.path);
    tp__log_close(&r->log);
    tp__folder_close(&r->folder);
    if (!tp__folder_open(&r->folder, path))
        return tp__run_fail(r,
                            "the run folder was removed while in use and cannot be recreated: %s",
                            r->folder.why);
    return tp__missing(r->folder.last) ||
           tp__run_fail(r,
                        "run folder %s was replaced while in use and holds another run; "
                        "update %lld is lost",
                        path, (long long)r->run.update);
}

/* Saves a checkpoint in place of a run folder that was removed. Either way the run fails with a
 * message. */
static void rescue(tp_trainer *r)
{
    r->why[0] = '\0';
    if (!tp__run_everywhere(r, r->run.rank > 0 || recreate(r)) || !tp__run_save(r)) return;
    tp__run_fail(r,
                 "run folder %s was removed while in use; it was recreated with a checkpoint of "
                 "update %lld: continue with --resume",
                 r->folder.path, (long long)r->run.update);
}

static bool vanished(const tp_trainer *r)
{
    return r->run.rank == 0 && tp__folder_vanished(&r->folder);
}

/* Checks that the folder still exists before a write. A process that trains alone checks again
 * after a failed one; of several, all know of the failure by then and exchange nothing more. */
static bool keep_files(tp_trainer *r, const snapshot *now, duties todo)
{
    const bool any = todo.validate || todo.report || todo.save;
    if (any) tp__run_now(r, "files after update", r->run.update, TP_PATIENCE);
    const bool gone = any && tp__run_anywhere(r, vanished(r));
    const bool done = !gone && write_files(r, now, todo);
    if (gone || (!done && !r->peers && vanished(r))) rescue(r);
    return any ? tp__run_everywhere(r, done) : done;
}

static bool read_norm(tp_trainer *r, tp_tensor norm)
{
    char why[200];
    r->norm = tp_item(r->run.T, norm) * r->mean;
    if (!tp__run_fine(r)) return false;
    snprintf(why, sizeof why, "the gradient's norm is %g at update %lld", r->norm,
             (long long)r->run.update);
    return isfinite(r->norm) || tp__run_lost(r, why);
}

/* Excludes the time since `paused` from the clock, and restarts it after a report. */
static void resume_clock(tp_trainer *r, double paused, bool reported)
{
    const double going = tp_seconds();
    r->watch.began += going - paused;
    r->watch.going = going;
    if (reported) r->watch = (tp_stopwatch){ .began = going, .going = going };
}

bool tp__run_after_update(tp_trainer *r, tp_tensor norm, bool last, bool stop)
{
    duties todo = duties_of(r, last && (!stop || r->run.update >= r->last));
    r->watch.updates++;
    r->ends = last && !stop;
    todo.save = todo.save || last;
    if (todo.report || todo.save) {
        if (!tp__run_everywhere(r, tp__run_fine(r) && tp__run_collect(r, r->run.update)))
            return false;
    }
    const bool gathers = todo.report || todo.save;
    const double mean = gathers ? tp__run_gather(r) : r->sum.report / r->sum.reported;
    const snapshot now = take_snapshot(r, mean);
    const double paused = tp_seconds();
    r->seconds += paused - r->watch.going;
    if ((todo.report || todo.save) && !tp__run_everywhere(r, read_norm(r, norm))) return false;
    r->unvalidated = todo.validate && stop;
    show(r, &now, todo.report && !r->unvalidated);
    const bool done = keep_files(r, &now, todo);
    resume_clock(r, paused, todo.report && !r->unvalidated);
    if (last) excuse_trace(r);
    return done;
}

bool tp__run_finish_validation(tp_trainer *r)
{
    duties todo = duties_of(r, r->run.update >= r->last);
    todo.validate = todo.report = todo.save = true;
    r->unvalidated = false;
    r->ends = r->run.update >= r->last;
    r->rate = tp__run_rate(r, r->run.update - 1);
    char text[200];
    const snapshot now = take_snapshot(r, tp__run_first(r, r->sum.report / r->sum.reported));
    own_figures(r, &now, true, text, sizeof text);
    const bool done = keep_files(r, &now, todo);
    resume_clock(r, r->watch.going, true);
    return done;
}
