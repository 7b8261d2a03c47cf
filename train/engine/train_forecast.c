/* train_forecast.c - predicts the memory of a run: the run's own code takes a few steps on a dry
 * device, which counts memory without computing. */
#include "forecast.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer.h"

enum { MOST_UPDATES = 16 };

/* Bytes of its buffer that OpenBLAS touches per thread. CPUs with AVX2 use our own products. */
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

/* getrusage would include the peak of the process that started this one. */
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
    trial->patience = updates + 1;
    trial->t->validate(&trial->run, text, sizeof text);
    trial->patience = 0;
    return tp__run_fine(trial) && tp__run_update(trial, &norm);
}

/* `built`, the device memory after building, is that of the moments, of other models, one block each for
 * weights and averages, and the staging memory of a swap, which is smaller than a block. */
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
        .gradients = block,
        .optimizer = (double)moments,
        .averages = (double)averages * block,
        .other = (1 + rounded) * other,
        .state = carried > 0 ? carried : 0,
        .peak = (double)stats.peak_bytes,
        .ahead = trial->t->host_bytes ? trial->t->host_bytes(R) : 0,
        .process = (double)(stats.held_peak_bytes + packed),
    };
    m->activations =
        m->peak - m->weights - m->gradients - m->optimizer - m->averages - m->other - m->state;
}

/* Adds the memory of the process outside the device. A checkpoint copies the state. Reading the
 * data may already have reached the peak. */
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
    snprintf(why, size, "%s", trial.why);
    tp__run_trial_end(&trial);
    free(o);
    if (done) add_process(r, m);
    return done;
}
