/* image_settings.h - the settings of `imagenet train`, with presets and recipes. */
#ifndef IMAGE_SETTINGS_H
#define IMAGE_SETTINGS_H

#include <tapegrad/image_set.h>
#include <tapegrad/train.h>

#include "classifier.h"

typedef enum image_recipe {
    RECIPE_PLAIN,
    RECIPE_SMALL,
    RECIPE_VIL,
    RECIPE_VIL_LS,
    RECIPE_VIL_21K,
    RECIPE_CVT,
    RECIPE_LSLA,
    RECIPE_FINETUNE,
    RECIPE_DEIT,
    RECIPE_PVT,
    RECIPE_RESNET,
    RECIPE_DEIT_384,
    RECIPE_VIT,
    RECIPE_VIT_384,
    RECIPE_SWIN,
    RECIPE_CSWIN,
    RECIPE_COAT,
    RECIPE_MPVIT
} image_recipe;
typedef enum image_schedule {
    RATE_CONSTANT,
    RATE_COSINE, /* starts after the warm-up */
    RATE_VIL,    /* starts with the run; the warm-up covers its start */
    RATE_CVT,    /* the same, constant in an epoch */
    RATE_LSLA,   /* starts after the warm-up, one update late */
    RATE_LINEAR, /* this and the next two: the engine's */
    RATE_STEP,
    RATE_ONECYCLE,
    RATE_RESNET, /* a tenth after each third of the epochs */
    RATE_PLATEAU /* the engine's */
} image_schedule;
typedef enum decay_groups {
    DECAY_ALL,
    DECAY_MATRICES,
    DECAY_VIL,
    DECAY_LSLA,
    DECAY_DEIT
} decay_groups;
typedef enum new_head { HEAD_KEEP, HEAD_SLICE, HEAD_NEW } new_head;
typedef enum distillation { DISTILL_NONE, DISTILL_HARD, DISTILL_SOFT } distillation;

typedef struct image_settings {
    tp_train_settings train; /* first: the engine's; warmup counts epochs */
    char *data, *preset, *set;
    bool strict, resize;
    int64_t max_pixels;
    int layout, recipe, head, validate; /* validate: 0 valid, 1 test; see image_validation */
    int64_t shapes, size, workers;

    int64_t redraw, redraw_growth;
    int schedule, decay; /* image_schedule, decay_groups */
    double warmup_factor, layer_decay, dropout, drop_path, random_shift;
    int64_t warmup_steps, schedule_steps; /* 0: use train.warmup, train.epochs */

    char *teacher, *teacher_preset;
    int distill; /* distillation */
    double distill_alpha, distill_tau;

    int crop, filter; /* tp_crop, tp_filter */
    double crop_ratio, eval_crop_ratio, area, flip, op_probability, magnitude, spread, jitter,
        erase;
    double mix, mixup, cutmix, cut, smoothing;
    bool balance;
    int64_t ops, repeats;
    bool shrink;
} image_settings;

extern const tp_option image_options[];

/* First member of the settings of every command that runs a trained model. */
typedef struct image_common {
    tp_trained_settings t;
    char *weights, *preset; /* a published file and its model; or NULL */
    char *data;
    int64_t batch, seed, max_pixels;
} image_common;

/* Rows that select the images; at: S's member for the folder. */
#define OPTIONS_IMAGES(S, at, data_tag, layout_tag)                                                \
    TP_STRING("data", S, at, "DIR", data_tag,                                                      \
              "The folder of the images. If not given, the program draws shapes of ten kinds."),   \
        TP_CHOICE("layout", S, layout, TP_LAYOUT_WORDS, layout_tag,                                \
                  "Layout of the files in that folder; auto: detected from its contents.")
#define OPTION_MAX_PIXELS(S, at, tag)                                                              \
    TP_INT("max-pixels", S, at, 0, INT64_C(1) << 48, tag,                                          \
           "Images of more pixels are not read, for they may take all memory; 0: 100 million.")
#define OPTION_SET(S, at, tag)                                                                     \
    TP_STRING("set", S, at, "KEY=VALUE,...", tag,                                                  \
              "Changes members of the model, as depths=1,2,8,1,mlp_ratio=4; an item without = "    \
              "continues the value before it. tp-models --members NAME lists them.")

/* Sets the values of a preset, then of recipe `which` (-1: the preset's), and s->preset. False with
 * the reason in why if there is no such preset. */
bool image_preset(image_settings *s, const char *name, int which, char *why, size_t size);

/* Name of small image model i, for a first run; NULL past the last. */
const char *image_preset_name(int i);

/* Name i of the image models, alternative names last; NULL past the last. Valid until the next
 * call. */
const char *image_preset_known(int i);

/* The name of the row for a preset, which may be an alias; an unknown name is returned. */
const char *image_preset_row(const char *name);

/* image_recipes.c: sets a recipe's values for s->preset. */
void image_take_recipe(image_settings *s, image_recipe name);
/* The recipe's learning rate, scaled from its batch to s's, and its final one, which some recipes
 * scale too. */
double image_lr(const image_settings *s);
double image_lr_end(const image_settings *s);

/* The preset's model with s's changes, for `classes` classes. */
bool image_model(const image_settings *s, int64_t classes, classifier_cfg *c, char *why,
                 size_t size);

/* The part of the images on which a run validates. */
tp_part image_validation(const image_settings *s);

/* The training and evaluation pipelines. */
tp_augment image_augment(const image_settings *s);
tp_augment image_eval_pipeline(int64_t size, double crop_ratio);

/* rates.c: the learning rate of the update after u, with U updates per epoch; weight decay
 * factors. */
double image_rate(const image_settings *s, int64_t u, int64_t U);
tp_factors image_factors(const char *name, tp_shape shape, const image_settings *s);
tp_optim *image_new_optimizer(tp_params *P, const image_settings *s);

/* Sets the defaults common to all presets, then a preset's (which: see image_preset). */
bool image_start(image_settings *s, const char *preset, int which, char *why, size_t size);

#endif
