/* train_plan.c - --plan: the memory and time of a run. A dry run counts the memory. For the time, a
 * smaller trial takes real steps, and its FLOP/s and the number of the run's FLOPs give the
 * time of the whole run. */
#include <stdio.h>
#include <stdlib.h>

#include "options_inner.h"
#include "trainer.h"

enum { WARM_UP = 2, MAX_WAYS = 3 };
static const char *const way_names[MAX_WAYS] = { "none", "attention", "block" };
static const double PROBE_SECONDS = 0.5;

/* ---- memory ---- */

typedef struct memory_row {
    const char *name;
    double bytes[MAX_WAYS];
    bool seldom; /* not printed if it is 0 */
} memory_row;

/* The number of values of --recompute; 1 if the program has no such flag. */
static int ways_of(const tp_trainer *r)
{
    return tp_option_find(r->t->command.table, "recompute") ? MAX_WAYS : 1;
}

/* Marks the value of --recompute that the run would use. */
static void print_head(int ways, int way)
{
    char head[32];
    printf("%-24s", ways > 1 ? "memory, MB; --recompute" : "memory, MB");
    for (int k = 0; ways > 1 && k < ways; k++) {
        snprintf(head, sizeof head, "%s%s", k == way ? "*" : "", way_names[k]);
        printf("%12s", head);
    }
    printf("\n");
}

/* clang-format off */
#define ROW(name, part) { name, { m[0].part, m[1].part, m[2].part }, false }
/* clang-format on */
static void print_memory(const tp_forecast m[MAX_WAYS], int ways, int way)
{
    const memory_row rows[] = {
        ROW("weights", weights),
        ROW("gradients", gradients),
        ROW("optimizer", optimizer),
        ROW("averages", averages),
        { "other models", { m[0].other, m[1].other, m[2].other }, true },
        ROW("carried state", state),
        ROW("activations", activations),
        ROW("peak of a step", peak),
        ROW("data in advance", ahead),
        ROW("whole process", process),
    };
    print_head(ways, way);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].seldom && rows[i].bytes[0] == 0) continue;
        printf("%-24s", rows[i].name);
        for (int k = 0; k < ways; k++) printf("%12.1f", rows[i].bytes[k] / 1e6);
        printf("\n");
    }
    printf("%-24s%12.1f\n", "available here", (double)tp__run_memory_available() / 1e6);
    fflush(stdout);
}

/* ---- time ---- */

static double flops_of(const tp_trainer *r)
{
    return r->t->flops ? r->t->flops(&r->run) : 0;
}

/* Seconds and FLOPs of an update with these settings. False with the reason in why. */
static bool time_update(const tp_trainer *r, void *settings, double *seconds, double *flops,
                        char *why, size_t size)
{
    tp_trainer trial;
    tp_tensor norm;
    bool done = tp__run_trial_begin(&trial, r, settings, false);
    for (int u = 0; done && u < WARM_UP; u++) done = tp__run_update(&trial, &norm);
    done = done && tp_device_sync(trial.run.D);
    const double start = tp_seconds();
    int64_t updates = 0;
    for (double passed = 0; done && passed < PROBE_SECONDS / 2; updates++) {
        done = tp__run_update(&trial, &norm) && tp_device_sync(trial.run.D);
        passed = tp_seconds() - start;
    }
    *seconds = (tp_seconds() - start) / (double)updates;
    *flops = done ? flops_of(&trial) : 0;
    snprintf(why, size, "%s", trial.why);
    tp__run_trial_end(&trial);
    return done;
}

/* FLOP/s, first with a batch of 2, then with the largest batch that fits the probe's time. The
 * learning rate is zero: the same work, and the loss cannot diverge. */
static bool measure_rate(const tp_trainer *r, tp_train_settings *o, double *rate, char *why,
                         size_t size)
{
    const int64_t whole = o->batch;
    double seconds, flops;
    o->accumulation = 1;
    o->batch = whole < 2 ? whole : 2;
    o->lr = o->lr_end = 0;
    if (r->t->smaller) r->t->smaller(&r->run, o);
    if (!time_update(r, o, &seconds, &flops, why, size)) return false;
    const double more = (double)o->batch * PROBE_SECONDS / seconds;
    if (more > (double)o->batch && whole > o->batch) {
        o->batch = more < (double)whole ? (int64_t)more : whole;
        if (!time_update(r, o, &seconds, &flops, why, size)) return false;
    }
    *rate = flops / seconds;
    return true;
}

/* Seconds of an update, from its FLOPs if the program knows them, else by taking a whole one. */
static bool measure_update(const tp_trainer *r, double *seconds, double *rate, char *why,
                           size_t size)
{
    void *settings = tp__run_settings_copy(r);
    double flops = flops_of(r);
    if (!settings) {
        snprintf(why, size, "out of memory");
        return false;
    }
    const bool done = flops > 0 ? measure_rate(r, settings, rate, why, size)
                                : time_update(r, settings, seconds, &flops, why, size);
    free(settings);
    if (*rate > 0) *seconds = flops_of(r) / *rate;
    return done;
}

static void print_time(const tp_trainer *r, double update, double rate)
{
    const double units = (double)(r->run.units * r->o->accumulation), limit = r->o->time;
    const double all = update * (double)r->last;
    const bool cut = limit > 0 && limit < all;
    const double speed = units / update;
    char whole[32], gflops[32] = "";
    tp__print_time(whole, sizeof whole, cut ? limit : all);
    if (rate > 0) snprintf(gflops, sizeof gflops, " (%.1f GFLOP/s)", rate * 1e-9);
    printf("Time here: about %.3g s an update%s, %.*f %s/s; "
           "%s for %.0f updates without their validations\n",
           update, gflops, speed < 100 ? 2 : 0, speed, r->t->unit, whole,
           cut ? limit / update : (double)r->last);
}

/* ---- all of --plan ---- */

/* Prints the program's description of the run; the parameters are counted on a dry device. */
static bool describe(const tp_trainer *r, char *why, size_t size)
{
    tp_trainer trial;
    void *settings = tp__run_settings_copy(r);
    const bool done = settings && tp__run_trial_begin(&trial, r, settings, true);
    if (done) {
        trial.bar.silent = false;
        tp__run_describe(&trial);
    }
    snprintf(why, size, "%s", settings ? trial.why : "out of memory");
    if (settings) tp__run_trial_end(&trial);
    free(settings);
    return done;
}

int tp__run_plan(tp_trainer *r)
{
    tp_forecast m[MAX_WAYS] = { 0 };
    const int ways = ways_of(r);
    char why[sizeof r->why] = "";
    double seconds = 0, rate = 0;
    bool done = describe(r, why, sizeof why);
    for (int k = 0; done && k < ways; k++) done = tp__run_forecast(r, k, &m[k], why, sizeof why);
    if (done) print_memory(m, ways, r->o->recompute);
    done = done && measure_update(r, &seconds, &rate, why, sizeof why);
    if (done) print_time(r, seconds, rate);
    char name[200];
    snprintf(name, sizeof name, "%.150s --plan", r->t->command.name);
    if (done) return tp__printed(name);
    tp_command_complain(name, why);
    return 1;
}

void tp__run_announce(tp_trainer *r)
{
    tp_run *R = &r->run;
    const tp_forecast m = r->plan;
    tp_forecast less;
    char why[sizeof r->why];
    if (m.peak <= 0) {
        tp_run_say(R, "warning: the memory of a step cannot be predicted: %s", r->plan_why);
        return;
    }
    const double available = (double)tp__run_memory_available() + (double)tp__run_memory_resident();
    if (r->on_gpu) {
        tp_run_say(R, "a step needs %.0f MB of GPU memory at its peak", m.peak / 1e6);
        return;
    }
    tp_run_say(R, "a step needs %.0f MB at its peak, the process %.0f MB", m.peak / 1e6,
               m.process / 1e6);
    if (tp__run_memory_available() == 0 || m.process <= available) return;
    char way_out[64] = "";
    if (ways_of(r) > 1 && tp__run_forecast(r, MAX_WAYS - 1, &less, why, sizeof why))
        snprintf(way_out, sizeof way_out, "--recompute block needs %.0f MB, ", less.process / 1e6);
    tp_run_say(R,
               "warning: only %.0f MB are available, so the run will swap or be killed; %sa "
               "smaller --batch with --accumulation needs less",
               available / 1e6, way_out);
}
