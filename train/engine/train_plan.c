/* train_plan.c - --plan: the memory and time of a run. For memory, the run's own code takes a few
 * steps on a dry device, which counts without computing. For time, a smaller trial takes real
 * steps; its FLOP/s and the run's FLOPs give the run's time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options_inner.h"
#include "trainer.h"

/* ---- memory ---- */

enum { MOST_UPDATES = 16 };

/* Bytes of OpenBLAS's buffer touched per thread. AVX2 CPUs use our own products. */
#define PACKED ((size_t)5 << 20)

/* ---- this process and its machine ---- */

/* The value of a row of a /proc table, in bytes (the table has kB); 0 if the row is missing. */
static size_t bytes_in(const char *table, const char *name)
{
    char line[128];
    unsigned long long kib = 0;
    const size_t length = strlen(name);
    FILE *f = fopen(table, "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, name, length) == 0 && sscanf(line + length, ": %llu kB", &kib) == 1)
            break;
    if (f) fclose(f);
    return (size_t)kib * 1024;
}

size_t tp__run_memory_resident(void)
{
    return bytes_in("/proc/self/status", "VmRSS");
}

/* getrusage would include the parent process's peak. */
size_t tp__run_memory_peak(void)
{
    return bytes_in("/proc/self/status", "VmHWM");
}

size_t tp__run_memory_available(void)
{
    return bytes_in("/proc/meminfo", "MemAvailable");
}

size_t tp__run_memory_installed(void)
{
    return bytes_in("/proc/meminfo", "MemTotal");
}

/* ---- the forecast ---- */

void *tp__run_settings_copy(const tp_trainer *r)
{
    void *copy = malloc(r->t->settings_size);
    if (copy) memcpy(copy, r->run.settings, r->t->settings_size);
    return copy;
}

/* Runs updates until memory is steady, as many validation batches, and another update. */
static bool rehearse(tp_trainer *trial)
{
    const tp_run *R = &trial->run;
    const int64_t steady = trial->t->warm ? trial->t->warm(R) : 2;
    const int64_t updates = steady < MOST_UPDATES ? steady : MOST_UPDATES;
    char text[400];
    tp_tensor norm;
    for (int64_t u = 0; u < updates; u++)
        if (!tp__run_update(trial, &norm)) return false;
    trial->calls = updates + 1;
    /* takes a block */
    const bool swapped = tp_optim_has_averages(trial->O) && tp_optim_swap(trial->O);
    trial->t->validate(&trial->run, text, sizeof text);
    if (swapped) tp_optim_swap(trial->O);
    trial->calls = 0;
    return tp__run_fine(trial) && tp__run_update(trial, &norm);
}

/* The share of the parameters that are not frozen: only these have gradients. */
static double trained(const tp_params *P)
{
    int64_t all = 0, some = 0;
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) {
        if (it.buffer || it.alias_of) continue;
        all += tp_numel(it.tensor);
        some += it.frozen ? 0 : tp_numel(it.tensor);
    }
    return all > 0 ? (double)some / (double)all : 1;
}

/* `built`, the device memory after building, consists of the moments, other models, a block each
 * for weights and averages, and a swap's staging memory, smaller than a block. */
static void account(tp_trainer *trial, size_t built, tp_forecast *m)
{
    const tp_run *R = &trial->run;
    const size_t averages = trial->ema ? 1 : 0, moments = tp_optim_bytes(trial->O);
    const double other = trial->t->other_bytes ? trial->t->other_bytes(R) : 0;
    const double block = ((double)(built - moments) - other) / (double)(1 + averages);
    const double rounded = trial->o->machine.dtype == TP_BF16 ? 0.5 : 0; /* bf16 weights */
    const tp_stats stats = tp_device_stats(R->D);
    const size_t packed = strcmp(stats.isa, "base") == 0 ? PACKED * (size_t)stats.threads : 0;
    tp_reset(R->T);
    const double kept = (double)tp_device_stats(R->D).live_bytes;
    const double carried = kept - (double)built - block - rounded * (block + other);
    *m = (tp_forecast){
        .weights = (1 + rounded) * block,
        .gradients = trained(R->P) * block,
        .optimizer = (double)moments,
        .averages = (double)averages * block,
        .other = (1 + rounded) * other,
        .state = carried > 0 ? carried : 0,
        .peak = (double)stats.peak_bytes,
        .ahead = trial->t->host_bytes ? trial->t->host_bytes(R) : 0,
        .process = (double)(stats.held_peak_bytes + packed),
    };
    const double known =
        m->weights + m->gradients + m->optimizer + m->averages + m->other + m->state;
    m->activations = m->peak > known ? m->peak - known : 0;
}

/* The trial is one process. In several, the moments may be divided, and gradients are exchanged
 * through buffers. */
static void account_peers(const tp_trainer *r, tp_forecast *m)
{
    const double others = 1.0 - 1.0 / (double)r->run.ranks;
    const double less = r->o->shard_optimizer ? others * m->optimizer : 0;
    m->optimizer -= less;
    m->peak -= less;
    m->process -= less;
    if (r->X) m->process += (double)tp_exchange_stats_of(r->X).memory;
}

/* Adds the process's memory outside the device. A checkpoint copies the state. Reading the data may
 * already have reached the peak. */
static void add_process(const tp_trainer *r, tp_forecast *m)
{
    const size_t used = r->run.D ? tp_device_stats(r->run.D).held_peak_bytes : 0;
    const size_t now = tp__run_memory_resident();
    const double process =
        m->process + m->state + m->ahead + (now > used ? (double)(now - used) : 0);
    const double before = (double)tp__run_memory_peak();
    m->process = process > before ? process : before;
}

bool tp__run_forecast(const tp_trainer *r, int recompute, tp_forecast *m, char *why, size_t size)
{
    tp_trainer trial;
    tp_train_settings *o = tp__run_settings_copy(r);
    if (!o) {
        snprintf(why, size, "out of memory");
        return false;
    }
    o->recompute = recompute;
    bool done = tp__run_trial_begin(&trial, r, o, true);
    const size_t built = done ? tp_device_stats(trial.run.D).live_bytes : 0;
    done = done && rehearse(&trial);
    if (done) account(&trial, built, m);
    if (done) account_peers(r, m);
    snprintf(why, size, "%s", trial.why);
    tp__run_trial_end(&trial);
    free(o);
    if (done) add_process(r, m);
    return done;
}

enum { WARM_UP = 2, MAX_WAYS = 3 };
static const char *const way_names[MAX_WAYS] = { "none", "attention", "block" };
static const double PROBE_SECONDS = 0.5;

/* ---- the plan: memory ---- */

typedef struct memory_row {
    const char *name;
    double bytes[MAX_WAYS];
    bool seldom; /* not printed if 0 */
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

#define ALL(part) m[0].part, m[1].part, m[2].part
static void print_memory(const tp_forecast m[MAX_WAYS], int ways, int way)
{
    const memory_row rows[] = {
        { "weights", { ALL(weights) }, false },
        { "gradients", { ALL(gradients) }, false },
        { "optimizer", { ALL(optimizer) }, false },
        { "averages", { ALL(averages) }, false },
        { "other models", { ALL(other) }, true },
        { "carried state", { ALL(state) }, false },
        { "activations", { ALL(activations) }, false },
        { "peak of a step", { ALL(peak) }, false },
        { "data in advance", { ALL(ahead) }, false },
        { "whole process", { ALL(process) }, false },
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

/* Measures FLOP/s, first with a batch of 2, then with the largest that fits the probe's time. The
 * learning rate is 0: the same work, and the loss cannot diverge. */
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

/* Seconds of an update, from its FLOPs if the program knows them, else by running a full one. */
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
    const double units = (double)(r->run.units * r->o->accumulation * r->run.ranks);
    const double limit = r->o->time;
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
        trial.run.ranks = r->run.ranks;
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
