/* coco_settings.h - the settings of `coco train`, and the recipes that fill them. */
#ifndef COCO_SETTINGS_H
#define COCO_SETTINGS_H

#include <tapegrad/detection/detector.h>
#include <tapegrad/train.h>

#include "coco_data.h"

typedef enum coco_recipe { COCO_SCENES, COCO_1X, COCO_3X } coco_recipe;
enum { RATE_MILESTONES = TP_RATE_PLATEAU + 1 }; /* for --schedule: detectron2's */
enum { COCO_MILESTONES = 8 };

typedef struct coco_settings {
    tp_train_settings train; /* first: the engine's */
    coco_data d;
    char *preset, *set, *weights;
    int profile, recipe;
    char *sizes;     /* shorter sides of training images, comma-separated */
    int64_t size;    /* of evaluation images */
    int64_t longest; /* limit of the longer side */
    bool mirror;
    double drop_path;
    int64_t redraw;
    char *milestones; /* comma-separated updates; NULL: 2/3 and 8/9 of --steps */
    double warmup_factor, drop;
    int64_t workers;
    bool strict;
} coco_settings;

extern const tp_option coco_options[];

/* A tp_training's settings_of. */
bool coco_settings_of(void *settings, const void *asked, const tp_given_flags *given, char *why,
                      size_t size);

/* Parses comma-separated numbers >= 1. Returns their count; 0 with the reason in why. */
int coco_numbers(const char *text, const char *flag, int64_t *x, int most, char *why, size_t size);

#define OPTION_COCO_SET(S, at, tag)                                                                \
    TP_STRING("set", S, at, "KEY=VALUE,...", tag,                                                  \
              "Changes members of the detector, as convs=2,dim=128, and of its backbone, as "      \
              "backbone.layers=1,1,2,1; an item without = continues the value before it. "         \
              "tp-models --members NAME lists them.")

/* Builds a preset's configuration; set may be NULL. False with the reason in why. */
bool coco_detector(tp_detector_cfg *c, const char *preset, const char *set, int64_t classes,
                   int profile, char *why, size_t size);
/* Builds the model for this many categories. */
bool coco_model(const coco_settings *s, int64_t classes, tp_detector_cfg *c, char *why,
                size_t size);
/* The training loader's options. */
bool coco_loader_opts(const coco_settings *s, tp_object_loader_opts *o, char *why, size_t size);

/* The learning rate of the update after u completed ones. */
double coco_rate(const coco_settings *s, int64_t u);
/* False with the reason in why if the milestones are not ascending numbers. */
bool coco_rate_check(const coco_settings *s, char *why, size_t size);
/* Does its learning rate depend on --steps? */
bool coco_steps_shape(const coco_settings *s);

#endif
