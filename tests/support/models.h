/* models.h - checks of image models: counts, memory, initial values, recomputation, image sizes,
 * refusals. */
#ifndef SUPPORT_MODELS_H
#define SUPPORT_MODELS_H

#include <tapegrad/model.h>

/* The configuration of that name; the test fails without one. */
tp_model_cfg models_preset(const char *name);

/* The same with this drop path rate. */
tp_model_cfg models_dropping(const char *name, double rate);

/* Expects that the model declares n parameters. */
void models_expect_count(const tp_model_cfg *c, int64_t n);

/* Parameters and FLOPs with that number of classes: multiply-adds, and with 5 per element of
 * LayerNorm, 2 per element of BatchNorm and the paper's other terms. 0: not compared. A NULL name
 * ends the rows. */
typedef struct models_costs {
    const char *name;
    int64_t classes, params;
    double macs, table;
} models_costs;
void models_expect_costs(const models_costs *rows);

/* The number of parameter tensors, without second names. */
int models_tensors(const tp_model_cfg *c);

/* Images of ramps and waves, all pixels distinct, [n,H,W,3]. */
tp_tensor models_images(tp_tape *T, int64_t n, int64_t H, int64_t W);

/* Expects that a recorded training step keeps the bytes of tp_model_cost within 3 %. Images must be
 * small, since allocations above 1 MiB are rounded up. */
void models_expect_memory(const char *name, const tp_model_cfg *c);

/* Expects bitwise equal loss, gradients and buffers, and less memory, when blocks (and attention,
 * if any) are recomputed. Trains two images with two threads. */
void models_expect_recomputation(const char *name, const tp_model_cfg *c, bool attention);

/* The mean and standard deviation of a parameter. */
typedef struct models_moments {
    const char *name;
    double mean, deviation;
} models_moments;
/* Expects initial values within four standard errors of rows (a NULL name ends them). */
void models_expect_initial(const tp_model_cfg *c, const models_moments *rows);

/* Expects finite logits and gradients at every size; size 0 ends the list. */
void models_expect_sizes(const char *name, const tp_model_cfg *c, const int64_t sizes[][2]);

/* Expects that images of these sizes, and images with channels first, are refused with that text.
 * Height 0 ends the rows. */
typedef struct models_size {
    int64_t height, width;
    const char *message;
} models_size;
void models_expect_no_sizes(const char *name, const tp_model_cfg *c, const models_size *rows);

/* Expects that the check, the parameters and the forward pass refuse the configuration with that
 * text. */
void models_expect_refused(const tp_model_cfg *c, const char *text);

/* Expects that a valid configuration is refused with one member changed; a NULL message ends the
 * rows. */
typedef struct models_member {
    const char *message;
    size_t at;
    int64_t value;
    bool is_int;
} models_member;
void models_expect_impossible(const tp_model *model, const void *cfg, const models_member *rows);

/* Loads a file for another image size into the parameters of m, declared in P. */
bool models_load(const tp_model *model, tp_params *P, const void *m, const char *path);

/* init and forward call the i-th function of a family with NULL in place of the module, and return
 * its name in messages, or NULL after the last. Expects that each fails with one message. */
void models_expect_null_refused(const char *(*init)(int i, tp_params *P),
                                const char *(*forward)(int i, tp_tape *T, tp_tensor x));

#endif
