/* train_main.c - the main function of training programs. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "options_inner.h"
#include "terminal.h"
#include "trainer.h"

/* ---- the beginning ---- */

void tp__run_describe(tp_trainer *r)
{
    tp_run *R = &r->run;
    if (r->t->describe)
        r->t->describe(R);
    else if (R->batches == 0)
        tp_run_say(R, "%lld parameters; the data have no epochs", (long long)tp_params_count(R->P));
    else
        tp_run_say(R, "%lld parameters; %lld batches an epoch", (long long)tp_params_count(R->P),
                   (long long)R->batches);
}

static void introduce(tp_trainer *r)
{
    tp_run *R = &r->run;
    const tp_stats machine = tp_device_stats(R->D);
    tp_run_say(R, "%s, %d threads, %s kernels; %lld updates; run folder %s", tp_device_name(R->D),
               machine.threads, machine.isa, (long long)r->last, r->folder.path);
    if (r->folder.no_locks)
        tp_run_say(R, "warning: this file system has no locks: nothing keeps a second process from "
                      "this run folder, where both would spoil the run");
    if (r->log.damaged > 0)
        tp_run_say(R, "warning: %lld damaged lines of %s were left out", (long long)r->log.damaged,
                   r->log.path);
    if (R->update > 0) tp_run_say(R, "resumed after update %lld", (long long)R->update);
}

/* Writes the first files; the folder now belongs to the run. */
static bool begin(tp_trainer *r)
{
    tp_run *R = &r->run;
    tp__progress_start(&r->bar, R->update, r->last, r->o->time, R->rank > 0);
    r->notes = json_object();
    tp__run_describe(r);
    const bool known = R->rank > 0 || tp__run_forecast(r, r->o->recompute, &r->plan, r->plan_why,
                                                       sizeof r->plan_why);
    if (!known) r->plan = (tp_forecast){ 0 };
    bool done = tp__run_compare_peers(r);
    done = tp__run_everywhere(r, done && tp__run_fine(r) && (R->rank > 0 || tp__run_files(r)));
    json_decref(r->notes);
    r->notes = NULL;
    if (!done) return false;
    introduce(r);
    tp__run_announce(r);
    return true;
}

/* ---- the loop ---- */

/* The signal that stops the run, or 0; the same in all processes. */
static int stopping(const tp_trainer *r)
{
    return r->peers ? r->signal : tp_stop_signal();
}

static bool is_late(const tp_trainer *r)
{
    const bool late = r->o->time > 0 && tp_seconds() - r->started >= r->o->time;
    return r->peers ? r->late : late;
}

static void train(tp_trainer *r)
{
    const double began = tp_seconds();
    tp_tensor norm = TP_NONE;
    bool last = false;
    r->started = began;
    r->watch = (tp_stopwatch){ .began = began, .going = began };
    tp_device_reset_profile(r->run.D); /* leave out the time of opening the run */
    if (r->unvalidated && !tp__run_finish_validation(r)) return;
    if (tp__course_over(r) && !r->unvalidated && !r->ends) { /* --patience is new */
        r->ends = true;
        tp__run_save(r);
    }
    if (r->unvalidated || r->run.update >= r->last || tp__course_over(r)) return;
    while (!last && tp__run_update(r, &norm)) {
        const bool stop = stopping(r) != 0;
        last = r->run.update >= r->last || is_late(r) || stop;
        if (!tp__run_after_update(r, norm, last, stop)) return;
        last = last || tp__course_over(r);
        if (!last && stopping(r)) { /* the signal came during the reports */
            last = true;
            if (r->saved < r->run.update) tp__run_save(r);
        }
    }
}

/* ---- the end ---- */

/* Is nothing left to do? A run with --epochs is incomplete if --steps ended it earlier, unless
 * --steps also shapes the learning rate. */
static bool is_complete(const tp_trainer *r)
{
    const tp_run *R = &r->run;
    const int64_t whole = tp__run_steps_shape(r) ? 0 : r->o->epochs * R->per_epoch;
    return (R->update >= (whole > 0 ? whole : r->last) || tp__course_over(r)) && !r->unvalidated;
}

static const char *reason(const tp_trainer *r)
{
    switch (stopping(r)) {
    case SIGINT: return "stopped by SIGINT";
    case SIGTERM: return "stopped by SIGTERM";
    case SIGHUP: return "stopped by SIGHUP";
    case SIGUSR1: return "stopped by SIGUSR1";
    default: return r->run.update >= r->last ? "stopped by --steps" : "time is up";
    }
}

/* A path quoted for a shell. */
static const char *quoted(char *buf, size_t size, const char *path)
{
    if (!strpbrk(path, " \t\n\"'\\$&;|<>()*?[]#~`!{}")) return path;
    snprintf(buf, size, "'%s'", path);
    return strchr(path, '\'') ? path : buf; /* a quote inside would break the quoting */
}

static void say_goodbye(const tp_trainer *r)
{
    const tp_run *R = &r->run;
    char path[TP_PATH + 2], score[400], text[3 * TP_PATH], early[80] = "";
    const bool complete = is_complete(r), by_steps = !stopping(r) && R->update >= r->last;
    snprintf(score, sizeof score, r->t->score_text, r->best);
    if (tp__course_over(r))
        snprintf(early, sizeof early, ", ended by --patience %lld", (long long)r->o->patience);
    if (complete && isfinite(r->best))
        snprintf(text, sizeof text, "Done: %lld updates%s; best %s: %s", (long long)R->update,
                 early, score, r->folder.best);
    else if (complete)
        snprintf(text, sizeof text,
                 "Done: %lld updates%s; no best model: no validation gave a score. Last model: %s",
                 (long long)R->update, early, r->folder.last);
    else
        snprintf(text, sizeof text,
                 "%s %s update %lld, saved in the checkpoint. Continue with: "
                 "%s --resume --run-dir %s%s",
                 reason(r), r->unvalidated ? "in the validation after" : "after",
                 (long long)R->update, r->command.name, quoted(path, sizeof path, r->folder.path),
                 by_steps ? " --steps N" : "");
    tp__print_plain(stdout, text);
    printf("\n");
}

static int complain(const tp_trainer *r)
{
    const char *name = r->t->command.name;
    if (r->run.rank > 0 && tp_peers_ok(r->peers)) return 1; /* rank 0 has the reason, too */
    tp_command_complain(name ? name : "training", r->why);
    return 1;
}

static int finish(tp_trainer *r, double began)
{
    tp_peers_during(r->peers, "the end of the run", TP_PATIENCE);
    if (!r->why[0] && r->t->done) {
        r->t->done(&r->run);
        tp__run_fine(r); /* what it did on tapes may have failed */
    }
    tp__progress_end(&r->bar);
    if (r->why[0])
        complain(r);
    else if (r->run.rank == 0)
        say_goodbye(r);
    if (r->o->profile && r->run.D && r->run.rank == 0)
        tp__op_times_print(r->run.D, tp_seconds() - began);
    return r->why[0] ? 1 : stopping(r) ? 128 + stopping(r) : 0;
}

static int run(tp_trainer *r)
{
    const double began = tp_seconds();
    if (r->o->plan) return r->run.rank > 0 ? 0 : tp__run_plan(r);
    tp_catch_signals();
    if (r->range.updates > 0) return tp__run_range(r);
    if (begin(r)) train(r);
    return finish(r, began);
}

int tp_train_main_with(const tp_training *t, tp_peers *peers, int argc, char **argv)
{
    tp_trainer *r = malloc(sizeof *r);
    int status = TP_PARSED;
    tp__prepare_process();
    if (!t || (argc > 0 && !argv)) {
        fprintf(stderr, "tp_train_main: NULL was given in place of %s\n",
                t ? "flags" : "a program");
        free(r);
        return 1;
    }
    if (!r) {
        fprintf(stderr, "%s: out of memory\n", t->command.name);
        return 1;
    }
    if (tp__run_open(r, t, peers, argc, argv, &status))
        status = run(r);
    else if (r->why[0])
        status = complain(r);
    if (peers) tp_peers_any(peers, false); /* launchers kill the others when one ends by an error */
    tp__run_close(r);
    free(r);
    return status;
}

/* On the watchdog's thread. One write, so that the sentences of several processes do not mix. */
static void end_process(void *name, const char *why)
{
    char text[600];
    const int n = snprintf(text, sizeof text, "%s: %s\n", (const char *)name, why);
    (void)!write(STDERR_FILENO, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
    _exit(1);
}

int tp_train_main(const tp_training *t, int argc, char **argv)
{
    char name[100];
    tp__prepare_process();
    snprintf(name, sizeof name, "%s", t && t->command.name ? t->command.name : "training");
    tp_peers *peers = tp_peers_open(&(tp_peers_opts){ .lost = end_process, .env = name });
    const bool joined = !peers || tp_peers_ok(peers);
    if (!joined && tp_peers_rank(peers) == 0) tp_command_complain(name, tp_peers_why(peers));
    const int status = joined ? tp_train_main_with(t, peers, argc, argv) : 1;
    tp_peers_close(peers);
    return status;
}
