/* model_views.h - the views of tp-models: the list of models, one model's parameters, its layers. */
#ifndef MODEL_VIEWS_H
#define MODEL_VIEWS_H

#include <jansson.h>
#include <stdbool.h>
#include <tapegrad/model.h>

#include "shape_text.h"

/* The library's own counts for a model. */
typedef struct model_facts {
    tp_model_cfg cfg;
    char input[64]; /* "224 x 224" */
    int64_t params;
    double flops;                /* of one forward pass, by fvcore's rule                       */
    double kept, kept_by_blocks; /* bytes saved by a training step: all, and recomputing blocks */
} model_facts;

/* The facts of a model, by any of its names. False with the reason in why. */
bool model_facts_of(model_facts *f, const char *name, tp_device *D, char *why, size_t size);

/* Each prints and returns the exit status. */
typedef struct list_opts {
    const char *prefix, *filter; /* NULL: any; filter: in the name, another name or the family */
    bool json;
} list_opts;
int model_list(const list_opts *o);

int model_params(const char *name);

typedef struct summary_opts {
    const char *name;
    int depth;       /* levels below the model             */
    bool fold, json; /* fold: one line for equal neighbours */
} summary_opts;
int model_summary(const summary_opts *o);

/* Prints and releases json; returns the exit status. */
int print_json(json_t *json);

/* A shape as a JSON list. */
json_t *shape_json(const tp_shape *s);

#endif
