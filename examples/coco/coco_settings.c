/* coco_settings.c - the flags, recipes, model and learning rate of `coco train`. A table row also
 * defines how its setting is stored in checkpoints and config.json. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/vil.h>

#include "coco_settings.h"

#define S coco_settings

const tp_option coco_options[] = {
    TP_HEADING("DATA"),
    OPTION_COCO_PATH(S, d, TP_FREE),
    OPTIONS_COCO_DATA(S, d),
    OPTIONS_COCO_SCENES(S, d),
    TP_FLAG(
        "strict", S, strict, TP_FREE,
        "Stop at an image that is missing or cannot be read; off: report it, train on the next one "
        "in its place, and validate without it."),
    TP_INT("workers", S, workers, 1, 64, 0, "Threads that read and resize images."),
    TP_HEADING("MODEL"),
    TP_STRING_OF("preset", S, preset, "NAME", tp_detector_known, TP_WEIGHTS,
                 "retinanet-BACKBONE or mask-rcnn-BACKBONE; see BACKBONES below."),
    OPTION_COCO_SET(S, set, TP_WEIGHTS),
    TP_CHOICE("profile", S, profile, "d2|mm", TP_WEIGHTS,
              "Rules where published libraries differ: d2: detectron2; mm: mmdetection 2.11."),
    TP_STRING(
        "weights", S, weights, "FILE", 0,
        "Start the backbone from the weights of a classifier: a checkpoint of this library or "
        "published weights. Position tables are resized."),
    TP_NUM(
        "drop-path", S, drop_path, 0, 0.99, TP_SAVED,
        "Stochastic depth of the last block of the backbone; 0: none, and of a ResNet always. 1x "
        "and 3x have the published rate of each detector of ViL's paper, and its learning rate "
        "(8e-5 for ViL-Base)."),
    TP_INT("redraw", S, redraw, 0, TP_BIG, TP_SAVED,
           "Updates after which the random features of a Performer are drawn again; 0: never. "
           "They are also drawn at the start, unless --weights gives them."),
    TP_ROWS(tp_recompute_options),
    TP_HEADING("RUN"),
    TP_ROWS(tp_run_options),
    TP_HEADING("IMAGES"),
    TP_CHOICE(
        "recipe", S, recipe, "scenes|1x|3x", TP_SAVED,
        "Sets everything under IMAGES and TRAINING, and the preset; flags override it. scenes: "
        "for drawn scenes. 1x: retinanet-vil-tiny, 90000 updates of 16 images of one size. 3x: "
        "270000 updates with random sizes."),
    TP_STRING("sizes", S, sizes, "N,N,...", TP_SAVED,
              "Shorter sides of training images in pixels, one of which is drawn for each image."),
    TP_INT("size", S, size, 32, 4096, TP_SAVED, "Shorter side of images in validation."),
    TP_INT("longest", S, longest, 32, 4096, TP_SAVED,
           "The longer side is at most this; the shorter one is then smaller."),
    TP_FLAG("mirror", S, mirror, TP_SAVED, "Mirror half of the training images."),
    TP_HEADING("TRAINING"),
    TP_INT(
        "steps", S, train.steps, 1, TP_BIG, TP_FREE,
        "Updates of the whole run, over which the schedule extends; a recipe's warm-up scales with "
        "them."),
    TP_INT("epochs", S, train.epochs, 0, 1000000, TP_SAVED,
           "End after this many passes over the images if that is before --steps; the schedule "
           "still extends over --steps. 0: --steps ends the run."),
    TP_INT("batch", S, train.batch, 1, 4096, TP_SAVED, "Batch size, in images."),
    TP_NUM("warmup", S, train.warmup, 0, TP_BIG, TP_SAVED,
           "Updates over which the learning rate rises."),
    TP_NUM("warmup-factor", S, warmup_factor, 0, 1, TP_SAVED,
           "milestones: fraction of the learning rate at which the warm-up starts."),
    TP_CHOICE("schedule", S, train.schedule,
              "constant|linear|cosine|step|onecycle|plateau|milestones", TP_SAVED,
              "Learning rate after the warm-up. plateau: drops where validations find nothing "
              "better. milestones: multiplied by --drop at each of "
              "--milestones."),
    TP_STRING("milestones", S, milestones, "N,N,...", TP_SAVED,
              "Updates after which the rate drops; not given: 2/3 and 8/9 of --steps."),
    TP_NUM("drop", S, drop, 0, 1, TP_SAVED, "Factor of the learning rate at a milestone."),
    TP_ROWS(tp_length_options),
    TP_ROWS(tp_rate_options),
    TP_ROWS(tp_optimizer_options),
    TP_HEADING("REPORTS AND CHECKPOINTS"),
    TP_ROWS(tp_report_options),
    TP_HEADING("MACHINE"),
    /* Not tp_device_options: --graph cannot capture steps that depend on the data. */
    TP_ROWS(tp_machine_options),
    TP_ROWS(tp_inspection_options),
    { 0 },
};

/* ---- recipes ---- */

/* A Vision Longformer has no batch norm and learns more from many small batches: after 4800 scenes,
 * at equal processor time, RetinaNet's loss is 0.94 with batches of 16 and 0.77 with 8. */
static const struct recipe {
    int which;
    const tp_model *backbone; /* NULL: any */
    const char *preset, *sizes;
    int64_t size, longest, steps, batch;
    double warmup, lr;
    int schedule;
} recipes[] = {
    { COCO_SCENES, &tp_model_vil, "retinanet-vil-mini", "128", 128, 128, 6000, 8, 200, 1e-3,
      TP_RATE_COSINE },
    { COCO_SCENES, NULL, "retinanet-resnet-mini", "128", 128, 128, 1500, 16, 50, 2e-3,
      TP_RATE_COSINE },
    { COCO_1X, NULL, "retinanet-vil-tiny", "800", 800, 1333, 90000, 16, 1000, 1e-4,
      RATE_MILESTONES },
    { COCO_3X, NULL, "retinanet-vil-tiny", "640,672,704,736,768,800", 800, 1333, 270000, 16, 1000,
      1e-4, RATE_MILESTONES },
};

/* The rates of ViL's published detectors: appendix B, Table 10, of its paper, as its configurations
 * resolve it. */
static const struct rates {
    const char *preset;
    double drop_path[2]; /* 1x, 3x */
    double lr;
} published[] = {
    { "retinanet-vil-tiny", { 0.05, 0.1 }, 1e-4 },
    { "retinanet-vil-small", { 0.1, 0.2 }, 1e-4 },
    { "retinanet-vil-medium", { 0.2, 0.3 }, 1e-4 },
    { "retinanet-vil-base", { 0.3, 0.3 }, 8e-5 },
    { "mask-rcnn-vil-tiny", { 0.05, 0.1 }, 1e-4 },
    { "mask-rcnn-vil-small", { 0.2, 0.2 }, 1e-4 },
    { "mask-rcnn-vil-medium", { 0.2, 0.3 }, 1e-4 },
    { "mask-rcnn-vil-base", { 0.3, 0.3 }, 8e-5 },
    { "mask-rcnn-vil-small-ape", { 0.1, 0.1 }, 1e-4 },
    { "mask-rcnn-vil-small-partial", { 0.1, 0.1 }, 1e-4 },
    { "mask-rcnn-vil-small-global", { 0.1, 0.1 }, 1e-4 },
    { "mask-rcnn-vil-small-partial-global", { 0.1, 0.1 }, 1e-4 },
    { "mask-rcnn-vil-small-sra64", { 0.1, 0.1 }, 1e-4 },
    { "mask-rcnn-vil-small-sra32", { 0.1, 0.1 }, 1e-4 },
    { "mask-rcnn-vil-small-partial-sra32", { 0.1, 0.1 }, 1e-4 },
    { "mask-rcnn-vil-small-performer", { 0.1, 0.1 }, 1e-4 },
    { "mask-rcnn-vil-small-partial-performer", { 0.05, 0.05 }, 1e-4 },
};

static void take_rates(coco_settings *s, int which, const char *preset)
{
    if (which == COCO_SCENES) return;
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        if (strcmp(preset, published[i].preset) != 0) continue;
        s->drop_path = published[i].drop_path[which == COCO_3X];
        s->train.lr = published[i].lr;
    }
}

/* The first row of a recipe that fits the preset's backbone; preset may be NULL. */
static const struct recipe *recipe_of(int which, const char *preset)
{
    tp_detector_cfg c;
    char why[200];
    const bool known = preset && tp_detector_preset(&c, preset, 1, TP_DETECTRON2, why, sizeof why);
    const tp_model *backbone = known ? tp_detector_parts_of(&c).backbone->model.model : NULL;
    const struct recipe *r = recipes;
    while (r->which != which || (r->backbone && r->backbone != backbone)) r++;
    return r;
}

static void take_recipe(coco_settings *s, const struct recipe *r)
{
    s->recipe = r->which;
    s->preset = strdup(r->preset);
    s->sizes = strdup(r->sizes);
    s->size = r->size;
    s->longest = r->longest;
    s->mirror = true;
    s->train.steps = r->steps;
    s->train.epochs = 0;
    s->train.batch = r->batch;
    s->train.warmup = r->warmup;
    s->train.lr = r->lr;
    s->train.schedule = r->schedule;
    tp_train_set(&s->train, "weight_decay", 0.05);
    s->train.clip = 1;
    s->warmup_factor = 0.01;
    s->drop = 0.1;
    s->redraw = 1000;
    s->train.log_every = r->which == COCO_SCENES ? 25 : 50;
    s->train.eval_every = r->which == COCO_SCENES ? 2 : 1;
    s->workers = r->which == COCO_SCENES ? 1 : 2;
}

/* Scales the warm-up with the run's length. */
static void take_steps(coco_settings *s, int64_t steps)
{
    s->train.warmup = round(s->train.warmup * (double)steps / (double)s->train.steps);
    s->train.steps = steps;
}

bool coco_settings_of(void *settings, const void *asked, const tp_given_flags *given, char *why,
                      size_t size)
{
    coco_settings *s = settings;
    const coco_settings *a = asked;
    int which = COCO_SCENES;
    if (a && tp_was_given(given, "recipe"))
        which = a->recipe;
    else if (a && !coco_data_drawn(&a->d))
        which = COCO_1X;
    *s = (coco_settings){ .train = tp_train_defaults("runs/coco") };
    coco_data_defaults(&s->d);
    const char *preset = a && tp_was_given(given, "preset") ? a->preset : NULL;
    take_recipe(s, recipe_of(which, preset));
    if (s->preset) take_rates(s, which, preset ? preset : s->preset);
    if (a && tp_was_given(given, "steps")) take_steps(s, a->train.steps);
    if (s->preset && s->sizes) return true;
    snprintf(why, size, "out of memory");
    return false;
}

/* ---- lists of numbers ---- */

int coco_numbers(const char *text, const char *flag, int64_t *x, int most, char *why, size_t size)
{
    int n = 0;
    for (const char *at = text; at;) {
        char *end;
        const long long value = strtoll(at, &end, 10);
        if (end == at || value < 1 || value > 1000000000000 || (*end && *end != ',') || n == most) {
            snprintf(why, size, "--%s: '%.100s' is not a list of at most %d whole numbers above 0",
                     flag, text, most);
            return 0;
        }
        x[n++] = value;
        at = *end ? end + 1 : NULL;
    }
    return n;
}

/* ---- model and data ---- */

bool coco_detector(tp_detector_cfg *c, const char *preset, const char *set, int64_t classes,
                   int profile, char *why, size_t size)
{
    static const char *const set_by[TP_COMMON_KINDS] = {
        [TP_COMMON_OUTPUTS] = "the categories of the images",
        [TP_COMMON_DROP_PATH] = "--drop-path of coco train",
        [TP_COMMON_RECOMPUTE] = "--recompute",
    };
    char reason[512];
    if (!tp_detector_preset(c, preset, classes, (tp_detection_profile)profile, why, size))
        return false;
    if (!set || tp_detector_change(c, set, set_by, reason, sizeof reason)) return true;
    snprintf(why, size, "--set: %s", reason);
    return false;
}

bool coco_model(const coco_settings *s, int64_t classes, tp_detector_cfg *c, char *why, size_t size)
{
    if (!coco_detector(c, s->preset, s->set, classes, s->profile, why, size)) return false;
    tp_backbone_set(tp_detector_parts_of(c).backbone, s->drop_path,
                    (tp_recompute)s->train.recompute);
    return tp_detector_check(c, why, size);
}

bool coco_loader_opts(const coco_settings *s, tp_object_loader_opts *o, char *why, size_t size)
{
    *o = (tp_object_loader_opts){ .batch = s->train.batch,
                                  .seed = (uint64_t)s->train.seed,
                                  .train = true,
                                  .most = s->longest,
                                  .no_mirror = !s->mirror,
                                  .profile = (tp_detection_profile)s->profile,
                                  .threads = (int)s->workers };
    o->sizes = coco_numbers(s->sizes, "sizes", o->size, TP_OBJECT_SIZES, why, size);
    for (int i = 0; i < o->sizes; i++)
        if (o->size[i] < 32 || o->size[i] > 4096) {
            snprintf(why, size, "--sizes: %lld is not from 32 to 4096", (long long)o->size[i]);
            return false;
        }
    return o->sizes > 0;
}

/* ---- the learning rate ---- */

static int milestones_of(const coco_settings *s, int64_t *at, char *why, size_t size)
{
    if (s->milestones)
        return coco_numbers(s->milestones, "milestones", at, COCO_MILESTONES, why, size);
    at[0] = s->train.steps * 2 / 3;
    at[1] = s->train.steps * 8 / 9;
    return 2;
}

bool coco_rate_check(const coco_settings *s, char *why, size_t size)
{
    int64_t at[COCO_MILESTONES];
    const int n = milestones_of(s, at, why, size);
    for (int i = 1; i < n; i++)
        if (at[i] < at[i - 1]) {
            snprintf(why, size, "--milestones: %lld follows %lld; list them in ascending order",
                     (long long)at[i], (long long)at[i - 1]);
            return false;
        }
    if (n > 0 && s->train.warmup > (double)s->train.steps) {
        snprintf(why, size, "--warmup %g is longer than the run of --steps %lld", s->train.warmup,
                 (long long)s->train.steps);
        return false;
    }
    return n > 0;
}

double coco_rate(const coco_settings *s, int64_t u)
{
    const tp_train_settings *o = &s->train;
    int64_t at[COCO_MILESTONES];
    char why[200];
    if (o->schedule != RATE_MILESTONES) return tp_train_rate(o, u, o->steps);
    const int n = milestones_of(s, at, why, sizeof why);
    return tp_lr_milestones(u, (int64_t)o->warmup, s->warmup_factor, at, n, s->drop, o->lr);
}

bool coco_steps_shape(const coco_settings *s)
{
    return s->train.schedule != TP_RATE_CONSTANT && s->train.schedule != TP_RATE_STEP &&
           s->train.schedule != TP_RATE_PLATEAU &&
           !(s->train.schedule == RATE_MILESTONES && s->milestones);
}
