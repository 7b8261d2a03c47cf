/* support_models.h - expectations that image models of the table share. Rows end with a NULL name. */
#ifndef SUPPORT_MODELS_H
#define SUPPORT_MODELS_H

#include <tapegrad/model.h>

/* Parameters and FLOPs of a row with that number of classes: multiply-adds, and with 5 per element of
 * LayerNorm, 2 per element of BatchNorm and what else the paper counts. 0: not compared. */
typedef struct model_count {
    const char *name;
    int64_t classes, params;
    double macs, table;
} model_count;
void expect_counts(const model_count *rows);

/* The number of parameter tensors, without second names. */
int parameter_tensors(const char *name);

/* The bytes that a recorded forward pass of one image holds are those of the closed form, up to a
 * share of them. Sizes should be powers of 2, because the allocator rounds others up. */
void expect_activations(const char *name, tp_recompute recompute, double share);

/* Mean and standard deviation of a parameter. */
typedef struct initial_value {
    const char *name;
    double mean, deviation;
} initial_value;
void expect_initial_values(const char *name, const initial_value *rows);

/* Loss and gradients of a training step with stochastic depth are bit-identical with recomputation. */
void expect_equal_recomputation(const char *name);

/* Runs the row's model on images of other sizes; message: part of the reason for a refusal. Height 0
 * ends the rows. */
typedef struct image_case {
    int64_t height, width;
    const char *message;
} image_case;
void expect_image_sizes(const char *name, const image_case *rows);

/* One member of a possible configuration, set to another value: part of the check's message. */
typedef struct impossible {
    const char *message;
    size_t at;
    int64_t value;
    bool is_int;
} impossible;
void expect_impossible(const tp_model *model, const void *cfg, const impossible *rows);

/* init and forward call the i-th function of a family with NULL in place of the module, and return its
 * name in messages, or NULL after the last. Each fails with one message. */
void expect_null_refused(const char *(*init)(int i, tp_params *P),
                         const char *(*forward)(int i, tp_tape *T, tp_tensor x));

#endif
