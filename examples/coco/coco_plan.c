/* coco_plan.c - `coco plan`: parameters, multiply-adds and memory of detectors, without running them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/detection/detector.h>
#include <tapegrad/observe.h>
#include <tapegrad/train.h>

#include "coco_commands.h"

typedef struct plan_settings {
    tp_machine_settings machine;
    char *preset;
    int profile;
    int64_t classes, height, width, batch;
} plan_settings;

#define S plan_settings

static const tp_option table[] = {
    TP_HEADING("MODEL AND IMAGES"),
    TP_STRING_OF("preset", S, preset, "NAME", tp_detector_known, 0,
                 "One detector; not given: all."),
    TP_CHOICE("profile", S, profile, "d2|mm", 0, "Rules of detectron2 or of mmdetection."),
    TP_INT("classes", S, classes, 1, 10000, 0, "Categories."),
    TP_INT("height", S, height, 32, 4096, 0, "Height of the images, a multiple of 32."),
    TP_INT("width", S, width, 32, 4096, 0, "Width of the images, a multiple of 32."),
    TP_INT("batch", S, batch, 1, 1024, 0, "Images of a training step."),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_machine_options),
    { 0 },
};

static const tp_command manual = {
    .name = "coco plan",
    .summary = "lists parameters, multiply-adds and memory of detectors",
    .synopsis = "[--preset NAME] [flag ...]",
    .about =
        "Prints for each detector the millions of parameters of backbone, feature pyramid and heads, the "
        "billions of multiply-adds of one image, and the memory of inference on one image and of a training step "
        "with AdamW. Nothing is computed: a dry device counts. coco train --plan also measures the "
        "time of a run.",
    .table = table,
    .more =
        "COLUMNS\n"
        "    params M     parameters in millions: backbone, pyramid, heads, all\n"
        "    GMAC         products and convolutions of one image; Mask R-CNN with all its proposals,\n"
        "                 but without masks, whose cost is that of the detections\n"
        "    GB           memory of inference and of a training step\n\n"
        "EXIT STATUS\n"
        "    0 success; 1 an error, such as an unknown preset; 2 a wrong command line\n\n"
        "EXAMPLES\n"
        "    coco plan --height 800 --width 1344\n",
};

enum { BACKBONE, PYRAMID, HEADS, PARTS };

static int part_of(const char *path)
{
    if (strncmp(path, "backbone.bottom_up", 18) == 0) return BACKBONE;
    return strncmp(path, "backbone", 8) == 0 ? PYRAMID : HEADS;
}

/* A dry model with a batch of images. */
typedef struct world {
    tp_device *D;
    tp_params *P;
    tp_tape *T;
    tp_detector m;
    double macs[PARTS], params[PARTS];
} world;

static bool open_world(world *w, const plan_settings *s, const tp_detector_cfg *c, bool train)
{
    const tp_dtype dtype = (tp_dtype)s->machine.dtype;
    *w = (world){ 0 };
    w->D = tp_device_open(s->machine.device,
                          &(tp_device_opts){ .threads = (int)s->machine.threads, .dry = true });
    w->P = tp_params_new(w->D, &(tp_params_opts){ .dtype = dtype == TP_F64 ? TP_F64 : TP_F32 });
    w->T = tp_tape_new(w->D, &(tp_tape_opts){ .compute = dtype, .train = train });
    if (!train) tp_record(w->T, false);
    tp_detector_init(w->P, &w->m, "", c);
    return tp_params_ok(w->P);
}

static void close_world(world *w)
{
    tp_tape_free(w->T);
    tp_params_free(w->P);
    tp_device_close(w->D);
}

static void count_macs(void *env, tp_tape *T, const tp_seen *seen)
{
    world *w = env;
    (void)T;
    w->macs[part_of(seen->path)] += tp_seen_macs(seen);
}

static void count_params(world *w)
{
    for (tp_param_info it = { 0 }; tp_next_param(w->P, &it);)
        if (!it.buffer && !it.alias_of) w->params[part_of(it.name)] += (double)tp_numel(it.tensor);
}

static tp_tensor images_of(world *w, const plan_settings *s, int64_t batch)
{
    return tp_full(w->T, tp_compute_dtype(w->T), TP_SHAPE(batch, s->height, s->width, 3), 0);
}

static double peak_gb(const world *w)
{
    return (double)tp_device_stats(w->D).peak_bytes * 1e-9;
}

/* Detection in one image: multiply-adds, parameters and memory. */
static bool infer(world *w, const plan_settings *s, char *why, size_t size)
{
    const int64_t sides[1][2] = { { s->height, s->width } };
    tp_detected found = { 0 };
    tp_observe(w->T, count_macs, w);
    const tp_detection_in in = { .images = images_of(w, s, 1), .size = sides };
    const bool done = tp_detector_detect(w->T, &w->m, &in, &found);
    if (!done) snprintf(why, size, "%s", tp_why(w->T));
    tp_detected_free(&found);
    count_params(w);
    return done;
}

/* Two updates with one object in each image; the optimiser's memory is there from the first on. */
static bool train(world *w, const plan_settings *s, const tp_detector_cfg *c, char *why,
                  size_t size)
{
    const double side = 0.25 * (double)(s->height < s->width ? s->height : s->width);
    const tp_corners box = { 0, 0, side, side };
    const int category = 0;
    const int64_t part[2] = { 0, 1 }, point[2] = { 0, 4 };
    const double xy[8] = { 0, 0, side, 0, side, side, 0, side };
    const bool masks = tp_detector_has_masks(c);
    const tp_objects one = {
        1, &box, &category, masks ? part : NULL, masks ? point : NULL, masks ? xy : NULL
    };
    tp_objects *objects = malloc((size_t)s->batch * sizeof *objects);
    int64_t(*sides)[2] = malloc((size_t)s->batch * sizeof *sides);
    tp_optim *O = tp_adamw_new(w->P, NULL);
    tp_random r = tp_random_stream(1, "plan", 0, 0);
    for (int64_t i = 0; objects && sides && i < s->batch; i++) {
        objects[i] = one;
        sides[i][0] = s->height;
        sides[i][1] = s->width;
    }
    for (int k = 0; objects && sides && k < 2; k++) {
        tp_reset(w->T);
        const tp_detection_in in = { .images = images_of(w, s, s->batch),
                                     .size = (const int64_t(*)[2])sides,
                                     .objects = objects,
                                     .random = &r };
        tp_backward(w->T, tp_detector_losses(w->T, &w->m, &in).total);
        tp_clip_grad_norm(w->P, 1);
        tp_step(O, 1e-4);
    }
    const bool done = objects && sides && tp_ok(w->T) && tp_optim_ok(O);
    if (!done)
        snprintf(why, size, "%s",
                 !objects || !sides ? "out of memory"
                 : !tp_ok(w->T)     ? tp_why(w->T)
                                    : tp_optim_why(O));
    tp_optim_free(O);
    free(objects);
    free(sides);
    return done;
}

static double sum(const double x[PARTS])
{
    return x[BACKBONE] + x[PYRAMID] + x[HEADS];
}

static bool print_row(const plan_settings *s, const char *name, char *why, size_t size)
{
    tp_detector_cfg c;
    world a, b;
    if (!tp_detector_preset(&c, name, s->classes, (tp_detection_profile)s->profile, why, size))
        return false;
    bool done = open_world(&a, s, &c, false);
    if (!done) snprintf(why, size, "%s", tp_params_why(a.P));
    done = done && infer(&a, s, why, size);
    const double inference = peak_gb(&a);
    double training = 0;
    if (done) {
        done = open_world(&b, s, &c, true);
        if (!done) snprintf(why, size, "%s", tp_params_why(b.P));
        done = done && train(&b, s, &c, why, size);
        training = peak_gb(&b);
        close_world(&b);
    }
    if (done)
        printf("%-38s %8.2f %8.2f %8.2f %8.2f  %9.2f %9.2f %9.2f %9.2f  %8.2f %8.2f\n", name,
               a.params[BACKBONE] * 1e-6, a.params[PYRAMID] * 1e-6, a.params[HEADS] * 1e-6,
               sum(a.params) * 1e-6, a.macs[BACKBONE] * 1e-9, a.macs[PYRAMID] * 1e-9,
               a.macs[HEADS] * 1e-9, sum(a.macs) * 1e-9, inference, training);
    close_world(&a);
    return done;
}

static bool run(void *settings, char *why, size_t size)
{
    const plan_settings *s = settings;
    tp_detector_cfg c;
    if (s->preset &&
        !tp_detector_preset(&c, s->preset, s->classes, (tp_detection_profile)s->profile, why, size))
        return false;
    printf("images of %lld x %lld, training with batches of %lld, %lld categories\n\n",
           (long long)s->height, (long long)s->width, (long long)s->batch, (long long)s->classes);
    printf("%-38s %8s %8s %8s %8s  %9s %9s %9s %9s  %8s %8s\n", "", "params M", "", "", "", "GMAC",
           "", "", "", "GB", "");
    printf("%-38s %8s %8s %8s %8s  %9s %9s %9s %9s  %8s %8s\n", "detector", "backbone", "pyramid",
           "heads", "all", "backbone", "pyramid", "heads", "all", "infer", "train");
    if (s->preset) return print_row(s, s->preset, why, size);
    for (int i = 0; tp_detector_known(i); i++)
        if (!print_row(s, tp_detector_known(i), why, size)) return false;
    return true;
}

static bool check(const void *settings, char *why, size_t size)
{
    const plan_settings *s = settings;
    if (s->height % 32 == 0 && s->width % 32 == 0) return true;
    snprintf(why, size, "--height %lld --width %lld: both must be multiples of 32",
             (long long)s->height, (long long)s->width);
    return false;
}

int coco_plan_main(int argc, char **argv)
{
    tp_command command = manual;
    plan_settings s = { .machine = { .device = strdup("cpu") },
                        .classes = 80,
                        .height = 800,
                        .width = 1344,
                        .batch = 2 };
    command.check = check;
    return tp_command_main(&command, argc, argv, &s, run);
}
