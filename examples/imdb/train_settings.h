/* train_settings.h - the settings of `imdb train`, and the recipes that fill them. */
#ifndef TRAIN_SETTINGS_H
#define TRAIN_SETTINGS_H

#include "text_data.h"
#include "text_run.h"
#include "text_score.h"

typedef enum train_recipe {
    TRAIN_ROBERTA,
    TRAIN_LONGFORMER,
    TRAIN_MINI,
    TRAIN_RECIPES
} train_recipe;

typedef struct train_settings {
    text_settings base; /* first */
    text_data d;
    int packed;                          /* 0 or 1 */
    int64_t bucket, passes, valid_every; /* valid_every: updates; 0: of a pass, -1: at the end */
    double smoothing;
} train_settings;

extern const tp_option text_train_options[];

/* Sets all values of a recipe. */
void train_take_recipe(train_settings *s, train_recipe recipe);

/* How its batches are made. */
text_batching train_batching(const train_settings *s);

/* A tp_training's settings_of. */
bool train_settings_of(void *settings, const void *asked, const tp_given_flags *given, char *why,
                       size_t size);

#endif
