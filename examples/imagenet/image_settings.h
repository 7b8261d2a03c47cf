/* image_settings.h - everything that `imagenet train` can be told, and the presets and recipes that
 * fill it. */
#ifndef IMAGE_SETTINGS_H
#define IMAGE_SETTINGS_H

#include <options.h>
#include <tapegrad/pictures.h>

#include "classifier.h"

typedef enum image_recipe {
    RECIPE_PLAIN,
    RECIPE_SMALL,
    RECIPE_VIL,
    RECIPE_VIL_LS,
    RECIPE_VIL_21K,
    RECIPE_CVT,
    RECIPE_LSLA,
    RECIPE_FINETUNE
} image_recipe;
typedef enum image_optimizer {
    BY_ADAMW,
    BY_ADAMW_VIL, /* eps on the uncorrected root, decay of the updated parameter */
    BY_ADAM,
    BY_SGD,
    BY_QHM /* quasi-hyperbolic momentum */
} image_optimizer;
typedef enum image_schedule {
    RATE_CONSTANT,
    RATE_COSINE, /* begins after the warm-up                       */
    RATE_VIL,    /* begins with the run: the warm-up cuts it       */
    RATE_CVT,    /* the same, by epochs                            */
    RATE_LSLA    /* after the warm-up, one update late             */
} image_schedule;
typedef enum decay_groups { DECAY_ALL, DECAY_MATRICES, DECAY_VIL, DECAY_LSLA } decay_groups;
typedef enum new_head { HEAD_KEEP, HEAD_SLICE, HEAD_NEW } new_head;

typedef struct image_settings {
    common_settings c;
    bool overwrite, plan, strict, profile, check_finite, resize;
    char *preset, *init;
    int layout, recipe, head;
    int64_t shapes, size, workers;

    int64_t epochs, accumulation;
    int64_t redraw, redraw_growth;
    int schedule, optimizer, decay, recompute;
    double warmup, warmup_factor, lr_end;
    double weight_decay, beta1, beta2, eps, momentum, nu, clip, ema, drop_path, random_shift;

    int crop;
    double crop_ratio, eval_crop_ratio, area, flip, op_probability, magnitude, spread, jitter,
        erase;
    double mix, mixup, cutmix, cut, smoothing;
    int64_t ops, repeats;
    bool shrink;

    double time;
} image_settings;

/* What a row of the table means for checkpoints. */
enum {
    IMAGE_SAVED = 1, /* part of last.safetensors: a resumed run keeps it */
    IMAGE_FREE = 2   /* saved, but a resumed run may change it           */
};

extern const option image_options[];

/* Flags that say which pictures, of every subcommand that reads them; members of S. */
/* clang-format off */
#define OPTIONS_PICTURES(S, data_tag, layout_tag) \
    { "data", OPT_TEXT, data_tag, offsetof(S, c.data), 0, 0, "DIR", \
      "The folder of the pictures; without it the program draws shapes of ten kinds." }, \
    { "layout", OPT_CHOICE, layout_tag, offsetof(S, layout), 0, 0, \
      "auto|folder|imagenet|ip102|food101|miniimagenet|cifar10|shards", \
      "How the files lie below it; auto: what it looks like." }
/* clang-format on */

/* The preset's values, then those of recipe `which` (-1: the preset's own). False with the reason
 * in why if there is no such preset. s->preset is set. */
bool image_preset(image_settings *s, const char *name, int which, char *why, size_t size);

/* The presets that have a name of their own, beside the published ViL; NULL past the last. */
const char *image_preset_name(int i);

/* The rate for a batch of that many pictures: the recipe's, in proportion to its own batch. */
double image_lr(const image_settings *s);

/* The model of the preset with the settings' changes, for that many classes. */
bool image_model(const image_settings *s, int64_t classes, classifier_cfg *c, char *why,
                 size_t size);

/* Pipelines of training and of evaluation. */
tp_augment image_augment(const image_settings *s);
tp_augment image_eval_pipeline(int64_t size, double crop_ratio);

/* rates.c: the rate of the update after u, with U updates an epoch; what decays. */
double image_rate(const image_settings *s, int64_t u, int64_t U);
tp_factors image_factors(const char *name, tp_shape shape, void *settings);
tp_optim *image_new_optimizer(tp_params *P, image_settings *s); /* s must outlive it */

#endif
