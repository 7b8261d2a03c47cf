/* image_plan.c - what a run will take. Memory is counted by steps on a dry device; the time comes
 * from real steps on noise with as many pictures as fit into half a second. */
#include "image_plan.h"

#include <memory_table.h>
#include <progress.h>
#include <stdio.h>
#include <string.h>

#include "probe.h"

static const double PROBE_SECONDS = 0.5;

/* ---- memory, in bytes ---- */

typedef struct budget {
    double weights, optimizer, averages, activations, peak, pictures;
} budget;

static int moments_of(const image_settings *s)
{
    const bool adam = s->optimizer != BY_SGD && s->optimizer != BY_QHM;
    return adam ? 2 : s->momentum > 0;
}

/* The settings with other recomputation, on a dry device. */
static bool count_memory(const training *t, int recompute, budget *m, char *why, size_t size)
{
    image_settings s = t->s;
    classifier_cfg cfg = t->cfg;
    probe b;
    s.recompute = recompute;
    classifier_train_as(&cfg, s.drop_path, (tp_recompute)recompute);
    bool done = probe_open(&b, &cfg, &s, true, why, size);
    for (int k = 0; done && k < 2; k++) probe_step(&b, true);
    if (done) {
        const double block = (double)tp_params_count(b.P) * (s.c.dtype == TP_F64 ? 8 : 4);
        const double peak = (double)tp_device_stats(b.D).peak_bytes;
        const double pixels = (double)(cfg.size * cfg.size * 3);
        *m = (budget){ .weights = block,
                       .optimizer = moments_of(&s) * block,
                       .averages = b.ema ? block : 0,
                       .peak = peak,
                       .pictures = 4.0 * BATCHES_AHEAD * (double)s.c.batch *
                                   (pixels + (double)cfg.classes) };
        m->activations = peak - 2 * m->weights - m->optimizer - m->averages;
        snprintf(why, size, "%s", tp_why(b.T));
        done = tp_ok(b.T);
    }
    probe_close(&b);
    return done;
}

/* clang-format off */
#define ROW(name, part) { name, { m[0].part, m[1].part, m[2].part } }
/* clang-format on */
static void print_memory(const budget m[MEMORY_WAYS], int way)
{
    const memory_row rows[] = {
        ROW("weights", weights),
        ROW("gradients", weights),
        ROW("optimizer", optimizer),
        ROW("averages", averages),
        ROW("activations", activations),
        ROW("peak of a step", peak),
        ROW("pictures in advance", pictures),
    };
    memory_table_print(rows, (int)(sizeof rows / sizeof *rows), way);
}

/* ---- work and time ---- */

/* Backward is twice forward, recomputation is not counted. */
static double flops_of_picture(const training *t)
{
    return 6.0 * classifier_macs(&t->cfg);
}

/* Seconds of the second training step of so many pictures. */
static bool time_step(const training *t, int64_t batch, double *seconds, char *why, size_t size)
{
    image_settings s = t->s;
    probe b;
    s.c.batch = batch;
    bool done = probe_open(&b, &t->cfg, &s, false, why, size);
    for (int k = 0; done && k < 2; k++) *seconds = probe_step(&b, true);
    if (done) snprintf(why, size, "%s", tp_why(b.T));
    done = done && tp_ok(b.T);
    probe_close(&b);
    return done;
}

/* FLOP/s of training steps. */
static bool measure_rate(const training *t, double *rate, char *why, size_t size)
{
    int64_t batch = 2;
    double seconds;
    if (!time_step(t, batch, &seconds, why, size)) return false;
    const int64_t more = (int64_t)((double)batch * PROBE_SECONDS / seconds);
    if (more > batch && t->s.c.batch > batch) {
        batch = more < t->s.c.batch ? more : t->s.c.batch;
        if (!time_step(t, batch, &seconds, why, size)) return false;
    }
    *rate = flops_of_picture(t) * (double)batch / seconds;
    return true;
}

/* ---- the whole ---- */

/* What a choice is called. */
static const char *chosen(const image_settings *s, const char *flag, char *text, size_t size)
{
    for (const option *o = image_options; o->kind != OPT_END; o++)
        if (strcmp(o->name, flag) == 0) option_get(o, s, text, size);
    return text;
}

static bool print_model(const training *t, char *why, size_t size)
{
    image_settings s = t->s;
    probe b;
    s.c.batch = 2;
    const bool done = probe_open(&b, &t->cfg, &s, true, why, size);
    if (done)
        printf("%s (%s): %lld parameters, %lld classes, pictures of %lld x %lld, %.4g GFLOP each "
               "forward\n",
               s.preset, classifier_family(&t->cfg), (long long)tp_params_count(b.P),
               (long long)t->cfg.classes, (long long)s.size, (long long)s.size,
               flops_of_picture(t) / 3e9);
    probe_close(&b);
    return done;
}

static void print_recipe(const training *t)
{
    const image_settings *s = &t->s;
    char recipe[32], optimizer[32], schedule[32];
    printf("%s: %lld pictures for training, %lld for validation\n",
           s->c.data ? s->c.data : "shapes drawn by the program",
           (long long)tp_pictures_count(t->X), (long long)tp_pictures_count(t->V));
    printf("recipe %s: %s, rate %g by the schedule %s after %g epochs, decay %g, drop path %g\n",
           chosen(s, "recipe", recipe, sizeof recipe),
           chosen(s, "optimizer", optimizer, sizeof optimizer), s->c.lr,
           chosen(s, "schedule", schedule, sizeof schedule), s->warmup, s->weight_decay,
           s->drop_path);
    printf("%lld epochs of %lld updates of %lld x %lld pictures (accumulation x batch), %.4g GFLOP "
           "an update\n",
           (long long)s->epochs, (long long)t->per_epoch, (long long)s->accumulation,
           (long long)s->c.batch,
           flops_of_picture(t) * 1e-9 * (double)(s->accumulation * s->c.batch));
}

static void print_duration(const training *t, double rate)
{
    const double pictures = (double)(t->s.accumulation * t->s.c.batch);
    const double update = flops_of_picture(t) * pictures / rate;
    const double updates = (double)training_last_update(t), all = updates * update;
    char whole[32];
    const bool cut = t->s.time > 0 && t->s.time < all;
    print_time(whole, sizeof whole, cut ? t->s.time : all);
    printf("time here: about %.3g s an update (%.1f GFLOP/s), %.3g images/s; %s for %.0f updates "
           "without their validations\n",
           update, rate * 1e-9, pictures / update, whole, cut ? t->s.time / update : updates);
}

int image_plan_main(const training *t)
{
    budget m[MEMORY_WAYS];
    char why[TRAINING_WHY] = "";
    double rate = 0;
    bool done = print_model(t, why, sizeof why);
    if (done) print_recipe(t);
    for (int k = 0; done && k < MEMORY_WAYS; k++) done = count_memory(t, k, &m[k], why, sizeof why);
    if (done) print_memory(m, t->s.recompute);
    fflush(stdout);
    done = done && measure_rate(t, &rate, why, sizeof why);
    if (done) print_duration(t, rate);
    if (!done) fprintf(stderr, "imagenet train --plan: %s\n", why);
    return !done;
}
