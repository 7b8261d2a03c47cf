/* throughput.c - `imagenet throughput`: pictures a second through a model, forward alone and in
 * training, and the memory that each takes. No pictures are read: pixels are noise. */
#include <math.h>
#include <progress.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/random.h>

#include "image_commands.h"
#include "image_settings.h"

typedef struct throughput_options {
    common_settings c;
    char *preset;
    int64_t size, classes;
    int recompute;
    double seconds;
} throughput_options;

#define AT(field) offsetof(throughput_options, field)

/* clang-format off */
static const option table[] = {
    { "MODEL", OPT_HEADING, 0, 0, 0, 0, NULL, NULL },
    { "preset", OPT_TEXT, 0, AT(preset), 0, 0, "NAME", "The model; 'imagenet train --help' lists them." },
    { "size", OPT_INT, 0, AT(size), 0, 4096, "N", "Pictures are size x size pixels; 0: the preset's." },
    { "classes", OPT_INT, 0, AT(classes), 1, 1000000, "N", "Classes." },
    { "batch", OPT_INT, 0, AT(c.batch), 1, 65536, "N", "Pictures that run at once." },
    { "recompute", OPT_CHOICE, 0, AT(recompute), 0, 0, "none|attention|block",
      "What backward computes again instead of keeping it." },
    { "seconds", OPT_NUM, 0, AT(seconds), 0.01, 3600, "X", "Time of each of the two measurements." },
    { "MACHINE", OPT_HEADING, 0, 0, 0, 0, NULL, NULL },
    OPTIONS_MACHINE(throughput_options, 0),
    { 0 },
};
/* clang-format on */

static const program manual = {
    .name = "imagenet throughput",
    .summary = "measures how many pictures a second a model takes",
    .synopsis = "[--preset NAME] [--batch N] [flag ...]",
    .about =
        "Runs the model on noise, forward alone (as in evaluation) and then in training steps: "
        "forward, backward and update. Prints the pictures a second of the median step after "
        "one that is not counted, and the largest memory.",
    .table = table,
    .more = "EXIT STATUS\n    0 measured; 1 an error; 2 a bad flag\n",
};

enum { STEPS = 4096 };

typedef struct bench {
    tp_device *D;
    tp_params *P;
    tp_tape *T;
    tp_optim *O;
    classifier *m;
    float *x;
    int32_t *y;
    int64_t batch;
} bench;

/* Seconds of one step. */
static double step(bench *b, bool training)
{
    const int64_t side = b->m->cfg.size;
    const double began = seconds_now();
    tp_reset(b->T);
    tp_tensor x = tp_from(b->T, TP_F32, TP_SHAPE(b->batch, side, side, 3), b->x);
    if (tp_compute_dtype(b->T) == TP_F64) x = tp_cast(b->T, x, TP_F64);
    const tp_tensor z = classifier_forward(b->T, b->m, x);
    if (training) {
        const tp_tensor y = tp_from(b->T, TP_I32, TP_SHAPE(b->batch), b->y);
        tp_backward(b->T, tp_cross_entropy(b->T, z, y, TP_MEAN));
        tp_step(b->O, 1e-6);
    }
    tp_device_sync(b->D);
    return seconds_now() - began;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(bench *b, const char *what, bool training, double seconds)
{
    static double time[STEPS];
    int n = 0;
    tp_train(b->T, training);
    tp_record(b->T, training);
    tp_device_reset_peak(b->D);
    step(b, training);
    for (double passed = 0; n < STEPS && passed < seconds && tp_ok(b->T); n++)
        passed += time[n] = step(b, training);
    if (n == 0) return;
    qsort(time, (size_t)n, sizeof time[0], compare);
    printf("%-9s %10.1f images/s  %9.2f ms a step  %8.1f MB  (median of %d)\n", what,
           (double)b->batch / time[n / 2], 1e3 * time[n / 2],
           (double)tp_device_stats(b->D).peak_bytes / 1e6, n);
    fflush(stdout);
}

static bool run(bench *b, const throughput_options *s, char *why, size_t size)
{
    image_settings model = { .accumulation = 1 };
    classifier_cfg cfg;
    bool done = image_preset(&model, s->preset, -1, why, size);
    if (s->size > 0) model.size = s->size;
    model.recompute = s->recompute;
    done = done && image_model(&model, s->classes, &cfg, why, size);
    free(model.preset);
    if (!done) return false;
    const int64_t n = s->c.batch * cfg.size * cfg.size * 3;
    const tp_dtype dtype = (tp_dtype)s->c.dtype;
    tp_random r = tp_random_stream(1, "throughput", 0, 0);
    b->batch = s->c.batch;
    b->D = tp_device_open(s->c.device, &(tp_device_opts){ .threads = (int)s->c.threads });
    b->P = tp_params_new(b->D, &(tp_params_opts){ .dtype = dtype == TP_F64 ? TP_F64 : TP_F32 });
    b->T = tp_tape_new(b->D, &(tp_tape_opts){ .compute = dtype });
    b->m = calloc(1, sizeof *b->m);
    b->x = malloc((size_t)n * sizeof *b->x);
    b->y = calloc((size_t)b->batch, sizeof *b->y);
    if (!b->m || !b->x || !b->y) {
        snprintf(why, size, "out of memory");
        return false;
    }
    tp_random_normals(&r, b->x, n);
    classifier_init(b->P, b->m, &cfg);
    b->O = tp_adamw_new(b->P, NULL);
    printf("%s, %lld x %lld pixels, batch %lld, %lld parameters, %s\n", s->preset,
           (long long)cfg.size, (long long)cfg.size, (long long)b->batch,
           (long long)tp_params_count(b->P), tp_device_name(b->D));
    measure(b, "forward", false, s->seconds);
    measure(b, "training", true, s->seconds);
    snprintf(why, size, "%s", tp_why(b->T));
    return tp_ok(b->T);
}

int throughput_main(int argc, char **argv)
{
    char why[4096] = "";
    bench b = { 0 };
    throughput_options s = {
        .c = { .device = strdup("cpu"), .run_dir = NULL, .batch = 32 },
        .preset = strdup("tiny"),
        .classes = 1000,
        .seconds = 3,
    };
    int status = options_parse(&manual, argc, argv, &s, NULL);
    if (status == OPTIONS_RUN) {
        status = run(&b, &s, why, sizeof why) ? 0 : 1;
        if (status) fprintf(stderr, "%s: %s\n", manual.name, why);
        tp_optim_free(b.O);
        tp_tape_free(b.T);
        tp_params_free(b.P);
        tp_device_close(b.D);
        free(b.m);
        free(b.x);
        free(b.y);
    }
    options_free(table, &s);
    return status;
}
