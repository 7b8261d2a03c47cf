/* throughput.c - `imagenet throughput`: images per second and memory of a model, in evaluation and
 * training, on noise. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image_commands.h"
#include "image_file.h"
#include "probe.h"

typedef struct throughput_options {
    image_common c;
    char *set;
    int64_t size, classes;
    int recompute;
    double seconds;
} throughput_options;

#define S throughput_options

static const tp_option table[] = {
    TP_HEADING("MODEL"),
    TP_STRING_OF("preset", S, c.preset, "NAME", image_preset_known, 0,
                 "The model; 'imagenet train --help' lists them."),
    OPTION_SET(S, set, 0),
    OPTION_WEIGHTS(S),
    TP_INT("size", S, size, 0, 4096, 0, "Size of the images, in pixels a side; 0: the preset's."),
    TP_INT("classes", S, classes, 1, 1000000, 0,
           "Number of classes; with --weights, those of the file."),
    TP_INT("batch", S, c.batch, 1, 65536, 0, "Batch size, in images."),
    TP_CHOICE("recompute", S, recompute, "none|attention|block", 0,
              "What the backward pass recomputes instead of storing."),
    TP_NUM("seconds", S, seconds, 0.01, 3600, 0, "Duration of each of the two measurements."),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_machine_options),
    { 0 },
};

static const char manual_more[] =
    "EXIT STATUS\n    0 success; 1 an error, such as an unknown preset; 2 a wrong command line\n";

static const tp_command manual = {
    .name = "imagenet throughput",
    .summary = "measures the speed of a model in images per second",
    .synopsis = "[--preset NAME [--weights FILE]] [--batch N] [flag ...]",
    .about =
        "Runs the model on noise, first forward only (as in evaluation), then in training steps: "
        "forward, backward and update. Prints images per second and milliseconds of the median "
        "step, after one step that is not counted, and the peak memory. The weights are initial "
        "values, or those of --weights.",
    .table = table,
    .more = manual_more,
};

static void measure(probe *b, const char *what, bool training, double seconds)
{
    const probe_time t = probe_measure(b, training, seconds);
    if (t.steps == 0) return;
    printf("%-9s %10.1f images/s  %9.2f ms a step  %8.1f MB  (median of %d)\n", what,
           (double)b->batch / t.seconds, 1e3 * t.seconds, t.bytes / 1e6, t.steps);
    fflush(stdout);
}

static bool load(probe *b, tp_file *F, bool resized, char *why, size_t size)
{
    const bool done =
        resized ? classifier_load_resized(b->P, b->m, F) : classifier_weights(b->P, b->m, F);
    if (!done) snprintf(why, size, "%s", tp_params_why(b->P));
    return done;
}

/* F: published weights, or NULL. */
static bool measure_both(probe *b, const throughput_options *s, tp_file *F, char *why, size_t size)
{
    image_settings model = { .train = tp_train_defaults(NULL) };
    classifier_cfg cfg;
    bool done = image_preset(&model, s->c.preset, -1, why, size);
    if (s->size > 0) model.size = s->size;
    model.train.machine = s->c.t.machine;
    model.train.batch = s->c.batch;
    model.train.recompute = s->recompute;
    model.set = s->set;
    done = done && image_model(&model, s->classes, &cfg, why, size);
    if (done && F && !classifier_adopt(&cfg, F)) {
        snprintf(why, size, "%s", tp_file_why(F));
        done = false;
    }
    done = done && probe_open(b, &cfg, &model, false, why, size) &&
           (!F || load(b, F, s->size > 0, why, size));
    free(model.preset);
    if (!done) return false;
    printf("%s, %lld x %lld pixels, batch %lld, %lld parameters, %s\n", s->c.preset,
           (long long)cfg.size, (long long)cfg.size, (long long)b->batch,
           (long long)tp_params_count(b->P), tp_device_name(b->D));
    measure(b, "forward", false, s->seconds);
    measure(b, "training", true, s->seconds);
    snprintf(why, size, "%s", tp_why(b->T));
    return tp_ok(b->T);
}

static bool run(void *settings, char *why, size_t size)
{
    const throughput_options *s = settings;
    probe b = { 0 };
    tp_file *F = s->c.weights ? tp_file_open(s->c.weights) : NULL;
    const bool done = measure_both(&b, s, F, why, size);
    probe_close(&b);
    tp_file_close(F);
    return done;
}

int throughput_main(int argc, char **argv)
{
    throughput_options s = {
        .c = { .t.machine = { .device = strdup("cpu") }, .preset = strdup("tiny"), .batch = 32 },
        .classes = 1000,
        .seconds = 3,
    };
    return tp_command_main(&manual, argc, argv, &s, run);
}
