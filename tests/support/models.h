/* models.h - what tests of image models measure: counts, memory, initial values, recomputation,
 * image sizes, refusals. */
#ifndef SUPPORT_MODELS_H
#define SUPPORT_MODELS_H

#include <tapegrad/model.h>

/* The configuration of that name; the test fails without one. */
tp_model_cfg models_preset(const char *name);

/* The same with that rate of drop path. */
tp_model_cfg models_dropping(const char *name, double rate);

/* Expects that the model declares n parameters. */
void models_expect_count(const tp_model_cfg *c, int64_t n);

/* Parameters and FLOPs of a row with that number of classes: multiply-adds, and with 5 per element
 * of LayerNorm, 2 per element of BatchNorm and what else the paper counts. 0: not compared. A NULL
 * name ends the rows. */
typedef struct models_costs {
    const char *name;
    int64_t classes, params;
    double macs, table;
} models_costs;
void models_expect_costs(const models_costs *rows);

/* The number of parameter tensors, without second names. */
int models_tensors(const tp_model_cfg *c);

/* Images of ramps and waves, no two pixels alike, [n,H,W,3]. */
tp_tensor models_images(tp_tape *T, int64_t n, int64_t H, int64_t W);

/* Expects that a recorded training step keeps the bytes that tp_model_cost says, within 3 %. Images
 * must be small, since allocations above 1 MiB are rounded up. */
void models_expect_memory(const char *name, const tp_model_cfg *c);

/* Expects equal bits of loss, gradients and buffers, and less memory, when blocks are recomputed;
 * and when attention is, if there is one. Trains two images with two threads. */
void models_expect_recomputation(const char *name, const tp_model_cfg *c, bool attention);

/* A parameter's values: mean and standard deviation. */
typedef struct models_moments {
    const char *name;
    double mean, deviation;
} models_moments;
/* Expects initial values within four standard errors of those rows (no name ends them). */
void models_expect_initial(const tp_model_cfg *c, const models_moments *rows);

/* Expects that every size gives finite logits and gradients; sizes end with 0. */
void models_expect_sizes(const char *name, const tp_model_cfg *c, const int64_t sizes[][2]);

/* Expects that images of these sizes are refused with that text (height 0 ends the rows), and those
 * that have channels first. */
typedef struct models_size {
    int64_t height, width;
    const char *message;
} models_size;
void models_expect_no_sizes(const char *name, const tp_model_cfg *c, const models_size *rows);

/* Expects that the configuration is refused with that text, by its check, its parameters and the
 * forward pass. */
void models_expect_refused(const tp_model_cfg *c, const char *text);

/* Expects that a possible configuration is refused with one member set to another value; a NULL
 * message ends the rows. */
typedef struct models_member {
    const char *message;
    size_t at;
    int64_t value;
    bool is_int;
} models_member;
void models_expect_impossible(const tp_model *model, const void *cfg, const models_member *rows);

/* Loads a file of the model for another image size into the parameters of m, declared in P. */
bool models_load(const tp_model *model, tp_params *P, const void *m, const char *path);

/* init and forward call the i-th function of a family with NULL in place of the module, and return
 * its name in messages, or NULL after the last. Expects that each fails with one message. */
void models_expect_null_refused(const char *(*init)(int i, tp_params *P),
                                const char *(*forward)(int i, tp_tape *T, tp_tensor x));

#endif
