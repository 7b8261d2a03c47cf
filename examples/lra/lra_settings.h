/* lra_settings.h - the settings of `lra train`, and the presets and recipes that fill them. */
#ifndef LRA_SETTINGS_H
#define LRA_SETTINGS_H

#include <tapegrad/train.h>

#include "encoder.h"
#include "task_data.h"

typedef enum lra_recipe { RECIPE_CODE, RECIPE_PAPER } lra_recipe;
enum { RATE_CYCLE = TP_RATE_ONECYCLE + 1 }; /* of --schedule: the official code's */

typedef struct lra_settings {
    tp_train_settings train; /* first: the engine's */
    task_data d;
    char *preset; /* "lra-TASK-ATTENTION"; NULL: not given */
    char *set;    /* changes of members; NULL: none         */
    int attention, recipe;
    bool fixed_lr;
    int64_t bucket;
    int packed; /* 0 or 1 */
    int64_t layers, dim, heads, hidden, rank, window, conv;
    int pooling; /* tp_lra_pooling */
    double dropout;
} lra_settings;

extern const tp_option lra_options[];

/* Every preset's name; NULL past the last. */
const char *lra_preset_known(int i);

/* Fills the settings for a task, an attention and a recipe. steps: the updates asked for; 0: the recipe's.
 * False with the reason in why. */
bool lra_start(lra_settings *s, int task, int attention, lra_recipe recipe, int64_t steps,
               char *why, size_t size);

/* A tp_training's settings_of. */
bool lra_settings_of(void *settings, const void *asked, const tp_given_flags *given, char *why,
                     size_t size);

/* The model of the preset with the changes of s. */
bool lra_model(const lra_settings *s, tp_lra_cfg *c, char *why, size_t size);

/* How its batches are made. */
encoder_batching lra_batching(const lra_settings *s);

/* Do the updates of the whole run shape its learning rate? */
bool lra_steps_shape(const lra_settings *s);

/* Learning rate and first moment's decay of the update that follows u completed ones. */
double lra_rate(const lra_settings *s, int64_t u);
double lra_beta1(const lra_settings *s, int64_t u);

#endif
