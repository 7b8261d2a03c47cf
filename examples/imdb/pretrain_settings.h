/* pretrain_settings.h - the settings of `imdb pretrain`, and the recipes that fill them. */
#ifndef PRETRAIN_SETTINGS_H
#define PRETRAIN_SETTINGS_H

#include "text_run.h"

typedef enum pretrain_recipe {
    PRETRAIN_ROBERTA,
    PRETRAIN_LONGFORMER,
    PRETRAIN_NOTEBOOK,
    PRETRAIN_MINI,
    PRETRAIN_RECIPES
} pretrain_recipe;

typedef struct pretrain_settings {
    text_settings base;   /* first */
    char *data, *cache;   /* data: paths, separated by commas */
    int documents, masks; /* tp_document_end; MASKS_... */
    int64_t sequence, limit, eval_sequences;
    double held_out, mask_rate;
} pretrain_settings;

enum { MASKS_INDEPENDENT, MASKS_EXACT };

extern const tp_option pretrain_options[];

/* Sets all values of a recipe; large: for a model of that size. */
void pretrain_take_recipe(pretrain_settings *s, pretrain_recipe recipe, bool large);

/* A tp_training's settings_of. */
bool pretrain_settings_of(void *settings, const void *asked, const tp_given_flags *given, char *why,
                          size_t size);

#endif
