/* probe.c - times steps on noise. */
#include "probe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <tapegrad/random.h>
#include <time.h>

bool probe_open(probe *b, const classifier_cfg *cfg, image_settings *s, bool dry, char *why,
                size_t size)
{
    const tp_dtype dtype = (tp_dtype)s->train.machine.dtype;
    const int64_t n = s->train.batch * cfg->size * cfg->size * 3;
    tp_random r = tp_random_stream(1, "probe", 0, 0);
    *b = (probe){ .batch = s->train.batch, .dry = dry };
    b->D =
        tp_device_open(s->train.machine.device,
                       &(tp_device_opts){ .threads = (int)s->train.machine.threads, .dry = dry });
    b->P = tp_params_new(b->D, &(tp_params_opts){ .dtype = dtype == TP_F64 ? TP_F64 : TP_F32 });
    b->T = tp_tape_new(b->D, &(tp_tape_opts){ .compute = dtype });
    b->m = calloc(1, sizeof *b->m);
    b->x = calloc((size_t)n, sizeof *b->x);
    b->y = calloc((size_t)b->batch, sizeof *b->y);
    if (!b->m || !b->x || !b->y) {
        snprintf(why, size, "out of memory");
        return false;
    }
    if (!dry) tp_random_normals(&r, b->x, n);
    classifier_init(b->P, b->m, cfg);
    b->O = image_new_optimizer(b->P, s);
    if (s->train.ema > 0) b->ema = tp_ema_new(b->P, s->train.ema);
    snprintf(why, size, "%s", !tp_params_ok(b->P) ? tp_params_why(b->P) : tp_optim_why(b->O));
    return tp_params_ok(b->P) && tp_optim_ok(b->O);
}

void probe_close(probe *b)
{
    tp_ema_free(b->ema);
    tp_optim_free(b->O);
    tp_tape_free(b->T);
    tp_params_free(b->P);
    tp_device_close(b->D);
    classifier_free(b->m);
    free(b->x);
    free(b->y);
}

double probe_step(probe *b, bool training)
{
    const double began = tp_seconds();
    tp_train(b->T, training);
    tp_record(b->T, training);
    tp_reset(b->T);
    const tp_tensor x = classifier_input(b->T, b->m, b->x, b->batch);
    const tp_tensor z = classifier_forward(b->T, b->m, x);
    if (training) {
        const tp_tensor y = tp_from(b->T, TP_I32, TP_SHAPE(b->batch), b->y);
        tp_backward(b->T, tp_cross_entropy(b->T, z, y, TP_MEAN));
        tp_step(b->O, 1e-6);
        if (b->ema) tp_ema_update(b->ema);
    }
    tp_device_sync(b->D);
    return tp_seconds() - began;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double timed_step(probe *b, bool training)
{
    struct timespec from, to;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
    const double passed = probe_step(b, training);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
    if (!b->cpu_time) return passed;
    return (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
}

static double peak_of(const probe *b)
{
    return (double)tp_device_stats(b->D).peak_bytes;
}

probe_time probe_measure(probe *b, bool training, double seconds)
{
    enum { STEPS = 4096 };
    static double time[STEPS];
    int n = 0;
    tp_device_reset_peak(b->D);
    probe_step(b, training);
    for (double passed = 0; n < (b->dry ? 1 : STEPS) && passed < seconds && tp_ok(b->T); n++)
        passed += time[n] = timed_step(b, training);
    if (!tp_ok(b->T)) return (probe_time){ 0 };
    if (b->dry) return (probe_time){ (double)NAN, peak_of(b), n };
    qsort(time, (size_t)n, sizeof time[0], compare);
    return (probe_time){ time[n / 2], peak_of(b), n };
}
