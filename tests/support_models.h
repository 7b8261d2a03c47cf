/* support_models.h - what tests of image models measure: memory, initial values, recomputation. */
#ifndef SUPPORT_MODELS_H
#define SUPPORT_MODELS_H

#include <tapegrad/model.h>

/* The configuration of that name; the test fails without one. */
tp_model_cfg models_preset(const char *name);

/* Expects that the model declares n parameters. */
void models_expect_count(const tp_model_cfg *c, int64_t n);

/* Images of ramps and waves, no two pixels alike, [n,H,W,3]. */
tp_tensor models_images(tp_tape *T, int64_t n, int64_t H, int64_t W);

/* Expects that a recorded training step keeps the bytes that the closed form says, within 3 %. Images must
 * be small, since allocations above 1 MiB are rounded up. */
void models_expect_memory(const char *name, const tp_model_cfg *c);

/* Expects equal bits of loss, gradients and buffers, and less memory, when blocks are recomputed; and when
 * attention is, if there is one. Trains two images with two threads. */
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

/* Expects that the configuration is refused with that text, by its check and its parameters. */
void models_expect_refused(const tp_model_cfg *c, const char *text);

#endif
