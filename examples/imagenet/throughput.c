/* throughput.c - `imagenet throughput`: images per second and memory of a model and its variants,
 * in evaluation and training, on noise. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image_commands.h"
#include "image_file.h"
#include "pictures/picture.h"
#include "probe.h"
#include "variants.h"

typedef struct throughput_options {
    image_common c;
    char *set, *vary, *picture;
    int64_t size, classes;
    int recompute, clock;
    double seconds;
    bool random_shift, dry;
} throughput_options;

#define S throughput_options

static const tp_option table[] = {
    TP_HEADING("MODEL"),
    TP_STRING_OF("preset", S, c.preset, "NAME", image_preset_known, 0,
                 "The model; 'imagenet train --help' lists them."),
    OPTION_SET(S, set, 0),
    TP_STRING("vary", S, vary, "CHANGES/...", 0,
              "Measure the model with each of several changes of its members, written as those of "
              "--set and separated by slashes: edge=exact/edge=mask."),
    TP_FLAG("random-shift", S, random_shift, 0,
            "ViL with windows: also measure training steps with random shift, in which each "
            "window sees its own chunk and one random neighbour instead of all eight ('imagenet "
            "train --random-shift')."),
    OPTION_WEIGHTS(S),
    TP_INT("size", S, size, 0, 4096, 0, "Size of the images, in pixels a side; 0: the preset's."),
    TP_INT("classes", S, classes, 1, 1000000, 0,
           "Number of classes; with --weights, those of the file."),
    TP_INT("batch", S, c.batch, 1, 65536, 0, "Batch size, in images."),
    TP_CHOICE("recompute", S, recompute, "none|attention|block", 0,
              "What the backward pass recomputes instead of storing."),
    TP_HEADING("MEASUREMENT"),
    TP_NUM("seconds", S, seconds, 0.01, 3600, 0, "Duration of each measurement."),
    TP_CHOICE("clock", S, clock, "wall|cpu", 0,
              "Elapsed time, or CPU time, which other load on the machine affects less."),
    TP_FLAG("dry", S, dry, 0,
            "Only count memory, without computing: seconds for any size, and more than this "
            "machine has."),
    TP_STRING("picture", S, picture, "FILE", 0,
              "Draw images per second and memory as bars, as FILE.png or FILE.svg. Needs "
              "gnuplot."),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_machine_options),
    { 0 },
};

static const char manual_more[] =
    "EXIT STATUS\n"
    "    0 success; 1 an error, such as an unknown preset; 2 a wrong command line\n\n"
    "EXAMPLES\n"
    "    imagenet throughput --preset cvt-13 --batch 32\n"
    "    imagenet throughput --preset vil-small-rpb --random-shift --picture shift.png\n"
    "    imagenet throughput --preset vil-small-rpb --vary edge=exact/edge=mask/edge=cyclic\n"
    "    imagenet throughput --preset vil-small-rpb --size 1024 --dry\n";

static const tp_command manual = {
    .name = "imagenet throughput",
    .summary = "measures the speed of a model in images per second",
    .synopsis = "[--preset NAME [--weights FILE]] [--batch N] [flag ...]",
    .about =
        "Runs the model on noise, first forward only (as in evaluation), then in training steps: "
        "forward, backward and update. Prints images per second and milliseconds of the median "
        "step, after one step that is not counted, and the peak memory. The weights are initial "
        "values, or those of --weights. Models by the size of images: imagenet analyze --what "
        "resolution; one attention by the size of its map: imagenet scale.",
    .table = table,
    .more = manual_more,
};

/* ---- measuring ---- */

enum { FORWARD, TRAINING, SHIFTED, KINDS };
static const char *const kinds[KINDS] = { "forward", "training", "shifted" };

/* Images per second and MB; kinds that were not measured are NaN. */
typedef struct figures {
    double rate[KINDS], memory[KINDS];
} figures;

static void measure(probe *b, int kind, double seconds, figures *y)
{
    if (kind == SHIFTED) classifier_random_shift(b->m, true);
    const probe_time t = probe_measure(b, kind != FORWARD, seconds);
    if (t.steps == 0) return;
    y->rate[kind] = (double)b->batch / t.seconds;
    y->memory[kind] = t.bytes / 1e6;
    printf("%-9s", kinds[kind]);
    if (!b->dry) printf(" %10.1f images/s  %9.2f ms a step", y->rate[kind], 1e3 * t.seconds);
    printf("  %8.1f MB", y->memory[kind]);
    if (!b->dry) printf("  (median of %d)", t.steps);
    printf("\n");
    fflush(stdout);
}

static bool load(probe *b, tp_file *F, bool resized, char *why, size_t size)
{
    const bool done =
        resized ? classifier_load_resized(b->P, b->m, F) : classifier_weights(b->P, b->m, F);
    if (!done) snprintf(why, size, "%s", tp_params_why(b->P));
    return done;
}

/* Only the windows of ViL have neighbours to choose from. */
static bool can_shift(const classifier_cfg *cfg, const char *preset, const variant *v, char *why,
                      size_t size)
{
    const tp_vil_cfg *vil = classifier_cfg_as(cfg, &tp_model_vil);
    if (vil && vil->kind == TP_VIL_WINDOW && vil->shift == 0) return true;
    snprintf(why, size,
             "--random-shift: %s%s%s has no windows that see all their neighbours; take a ViL such "
             "as vil-small-rpb, with mode=0",
             preset, *v->name ? " with " : "", v->name);
    return false;
}

/* The model with a change; F: published weights, or NULL. */
static bool open_variant(probe *b, const throughput_options *s, const variant *v, tp_file *F,
                         image_settings *model, char *why, size_t size)
{
    classifier_cfg cfg;
    bool done = image_preset(model, s->c.preset, -1, why, size);
    if (s->size > 0) model->size = s->size;
    model->train.machine = s->c.t.machine;
    model->train.batch = s->c.batch;
    model->train.recompute = s->recompute;
    model->set = *v->set ? (char *)(uintptr_t)v->set : NULL;
    done = done && image_model(model, s->classes, &cfg, why, size);
    if (done && F && !classifier_adopt(&cfg, F)) {
        snprintf(why, size, "%s", tp_file_why(F));
        done = false;
    }
    done = done && (!s->random_shift || can_shift(&cfg, s->c.preset, v, why, size)) &&
           probe_open(b, &cfg, model, s->dry, why, size) &&
           (!F || load(b, F, s->size > 0, why, size));
    if (!done) return false;
    b->cpu_time = s->clock == 1;
    printf("%s%s%s, %lld x %lld pixels, batch %lld, %lld parameters, %s%s\n", s->c.preset,
           *v->name ? " with " : "", v->name, (long long)cfg.size, (long long)cfg.size,
           (long long)b->batch, (long long)tp_params_count(b->P), tp_device_name(b->D),
           b->cpu_time ? ", CPU time" : "");
    return true;
}

static bool measure_variant(figures *y, const throughput_options *s, const variant *v, tp_file *F,
                            char *why, size_t size)
{
    image_settings model = { .train = tp_train_defaults(NULL) };
    probe b = { 0 };
    bool done = open_variant(&b, s, v, F, &model, why, size);
    for (int k = 0; k < KINDS; k++) {
        y->rate[k] = y->memory[k] = (double)NAN;
        if (done && (k != SHIFTED || s->random_shift)) measure(&b, k, s->seconds, y);
    }
    if (done) snprintf(why, size, "%s", tp_why(b.T));
    done = done && tp_ok(b.T);
    probe_close(&b);
    free(model.preset);
    return done;
}

/* ---- the picture ---- */

enum { BARS = VARIANTS * KINDS };

/* Bars of one quantity, rates or memory, for each variant and kind that was measured. */
static panel bars_of(const figures *y, const variant *v, int n, bool rates, panel_bar bar[BARS],
                     char text[BARS][2][200])
{
    int bars = 0;
    for (int k = 0; k < KINDS; k++)
        for (int i = 0; i < n; i++) {
            const double value = rates ? y[i].rate[k] : y[i].memory[k];
            if (isnan(value)) continue;
            snprintf(text[bars][0], sizeof text[bars][0], "%s%s%s", kinds[k],
                     *v[i].name ? ", " : "", v[i].name);
            snprintf(text[bars][1], sizeof text[bars][1], value < 100 ? "%.2f" : "%.0f", value);
            bar[bars] = (panel_bar){ text[bars][0], value, text[bars][1], COLOUR_PLAIN };
            bars++;
        }
    return (panel){ .kind = PANEL_BARS,
                    .across = rates ? "images per second" : "peak memory, MB",
                    .bars = { .n = bars, .at = bar } };
}

static bool draw(const throughput_options *s, const figures *y, const variant *v, int n, char *why,
                 size_t size)
{
    static panel_bar bar[2][BARS];
    static char text[2][BARS][2][200];
    char note[400], pixels[40] = "";
    const panel both[] = { bars_of(y, v, n, true, bar[0], text[0]),
                           bars_of(y, v, n, false, bar[1], text[1]) };
    if (s->size > 0) snprintf(pixels, sizeof pixels, ", %lld pixels", (long long)s->size);
    snprintf(note, sizeof note, "%.200s%s, batch of %lld, %s%s%s", s->c.preset, pixels,
             (long long)s->c.batch, s->c.t.machine.device, s->clock == 1 ? ", CPU time" : "",
             s->random_shift ? "; shifted: training steps in which a window sees one neighbour"
                             : "");
    const picture p = { s->dry ? "Memory of forward passes and training steps"
                               : "Speed and memory of forward passes and training steps",
                        note, 1, s->dry ? 1 : 2, s->dry ? both + 1 : both };
    return picture_draw(NULL, &p, s->picture, why, size);
}

static bool run(void *settings, char *why, size_t size)
{
    const throughput_options *s = settings;
    static variant v[VARIANTS];
    figures y[VARIANTS];
    tp_file *F = s->c.weights ? tp_file_open(s->c.weights) : NULL;
    const int n = variants_read(v, s->vary, s->set, why, size);
    bool done = n > 0;
    for (int i = 0; i < n && done; i++) done = measure_variant(&y[i], s, &v[i], F, why, size);
    tp_file_close(F);
    return done && (!s->picture || draw(s, y, v, n, why, size));
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
