/* coco_settings.c - the flags of `coco train`. Each row also defines how the setting is stored in checkpoints and
 * config.json. */
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
    TP_NUM("drop-path", S, drop_path, 0, 0.99, TP_SAVED,
           "Stochastic depth of the last block of the backbone; 0: none, and of a ResNet always."),
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
    TP_CHOICE("schedule", S, train.schedule, "constant|linear|cosine|step|onecycle|milestones",
              TP_SAVED,
              "Learning rate after the warm-up. milestones: multiplied by --drop at each of "
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
