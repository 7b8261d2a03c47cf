/* coco_plan.c - `coco plan`: counts the parameters, multiply-adds and memory of detectors in a dry
 * run. */
#include <stdio.h>
#include <string.h>
#include <tapegrad/detection/detector.h>
#include <tapegrad/train.h>

#include "coco_commands.h"
#include "coco_settings.h"

typedef struct plan_settings {
    tp_machine_settings machine;
    char *preset, *set;
    int profile;
    int64_t classes, height, width, batch;
} plan_settings;

#define S plan_settings

static const tp_option table[] = {
    TP_HEADING("MODEL AND IMAGES"),
    TP_STRING_OF("preset", S, preset, "NAME", tp_detector_known, 0,
                 "One detector; not given: all."),
    OPTION_COCO_SET(S, set, 0),
    TP_CHOICE("profile", S, profile, "d2|mm", 0, "Rules of detectron2 or of mmdetection."),
    TP_INT("classes", S, classes, 1, 10000, 0, "Categories."),
    TP_INT("height", S, height, 32, 4096, 0, "Height of the images, a multiple of 32."),
    TP_INT("width", S, width, 32, 4096, 0, "Width of the images, a multiple of 32."),
    TP_INT("batch", S, batch, 1, 1024, 0, "Images of a training step."),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_machine_options),
    { 0 },
};

static const char manual_more[] =
    "COLUMNS\n"
    "    params M     parameters in millions: backbone, pyramid, heads, all\n"
    "    GMAC         products and convolutions of one image; Mask R-CNN with all its proposals,\n"
    "                 but without masks, whose cost is that of the detections\n"
    "    GB           memory of inference and of a training step\n\n"
    "EXIT STATUS\n"
    "    0 success; 1 an error, such as an unknown preset; 2 a wrong command line\n\n"
    "EXAMPLES\n"
    "    coco plan --height 800 --width 1344\n"
    "    coco plan --preset retinanet-vil-tiny --set convs=2,dim=128\n";

static const tp_command manual = {
    .name = "coco plan",
    .summary = "lists parameters, multiply-adds and memory of detectors",
    .synopsis = "[--preset NAME] [flag ...]",
    .about =
        "Prints for each detector the millions of parameters of backbone, feature pyramid and "
        "heads, the billions of multiply-adds of one image, and the memory of inference on one "
        "image and of a training step with AdamW. Nothing is computed: a dry device counts. coco "
        "train --plan also measures the time of a run.",
    .table = table,
    .more = manual_more,
};

static double sum(const double x[TP_DETECTOR_PARTS])
{
    return x[TP_DETECTOR_BACKBONE] + x[TP_DETECTOR_PYRAMID] + x[TP_DETECTOR_HEADS];
}

static bool print_row(const plan_settings *s, const char *name, char *why, size_t size)
{
    tp_detector_cfg c;
    tp_detector_plan p;
    const tp_detector_plan_opts o = { .device = s->machine.device,
                                      .threads = (int)s->machine.threads,
                                      .dtype = (tp_dtype)s->machine.dtype,
                                      .size = { s->height, s->width },
                                      .batch = s->batch };
    if (!coco_detector(&c, name, s->set, s->classes, s->profile, why, size) ||
        !tp_detector_planned(&p, &c, &o, why, size))
        return false;
    printf("%-38s", name);
    for (int i = 0; i < TP_DETECTOR_PARTS; i++) printf(" %8.2f", p.params[i] * 1e-6);
    printf(" %8.2f ", sum(p.params) * 1e-6);
    for (int i = 0; i < TP_DETECTOR_PARTS; i++) printf(" %9.2f", p.macs[i] * 1e-9);
    printf(" %9.2f  %8.2f %8.2f\n", sum(p.macs) * 1e-9, (double)p.detect_bytes * 1e-9,
           (double)p.train_bytes * 1e-9);
    return true;
}

static bool run(void *settings, char *why, size_t size)
{
    const plan_settings *s = settings;
    tp_detector_cfg c;
    if (s->preset && !coco_detector(&c, s->preset, s->set, s->classes, s->profile, why, size))
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
    if (s->set && !s->preset)
        snprintf(why, size, "--set changes one detector: give --preset");
    else if (s->height % 32 != 0 || s->width % 32 != 0)
        snprintf(why, size, "--height %lld --width %lld: both must be multiples of 32",
                 (long long)s->height, (long long)s->width);
    else
        return true;
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
