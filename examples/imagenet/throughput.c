/* throughput.c - `imagenet throughput`: pictures a second through a model, forward alone and in
 * training, and the memory that each takes. No pictures are read: pixels are noise. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image_commands.h"
#include "probe.h"

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

static void measure(probe *b, const char *what, bool training, double seconds)
{
    const probe_time t = probe_measure(b, training, seconds);
    if (t.steps == 0) return;
    printf("%-9s %10.1f images/s  %9.2f ms a step  %8.1f MB  (median of %d)\n", what,
           (double)b->batch / t.seconds, 1e3 * t.seconds, t.bytes / 1e6, t.steps);
    fflush(stdout);
}

static bool run(probe *b, const throughput_options *s, char *why, size_t size)
{
    image_settings model = { .accumulation = 1 };
    classifier_cfg cfg;
    bool done = image_preset(&model, s->preset, -1, why, size);
    if (s->size > 0) model.size = s->size;
    model.c = s->c;
    model.recompute = s->recompute;
    done = done && image_model(&model, s->classes, &cfg, why, size) &&
           probe_open(b, &cfg, &model, false, why, size);
    free(model.preset);
    if (!done) return false;
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
    probe b = { 0 };
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
        probe_close(&b);
    }
    options_free(table, &s);
    return status;
}
