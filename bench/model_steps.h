/* model_steps.h - training steps of any model of the table, for bench_models. */
#ifndef MODEL_STEPS_H
#define MODEL_STEPS_H

#include <tapegrad/model.h>

enum { MAX_STEPS = 1000 };

typedef struct setup {
    tp_model_cfg model;
    const char *name, *device; /* name: of the model, as given */
    tp_dtype dtype;
    int64_t tokens; /* TP_TOKENS: of a segment, with a cache of the same length;
                       TP_DOCUMENTS: of each document; 0: images              */
    int batch, steps, threads;
    bool graph, smoke, profile, clip; /* clip: the norm of the gradients to 1 */
    void (*mark)(void); /* called just before the measured steps and after them; may be NULL */
} setup;

static inline bool is_text(const setup *s)
{
    return s->model.model->input != TP_IMAGES;
}

/* Does every token have a target, as in a language model? */
static inline bool is_lm(const setup *s)
{
    return s->model.model->input == TP_TOKENS;
}

bool on_cuda(const setup *s);

/* Takes s->steps on D after a few warm-up steps; seconds receives the time of each. On CUDA this is
 * the mean time, because the host runs ahead as in training. With `ahead`, each step is queued
 * behind maxima over that tensor. On failure prints the reason and returns false. */
bool take_steps(tp_device *D, const setup *s, tp_tensor ahead, double *seconds);

/* The peak that a dry device predicts for the same steps, in MiB; 0 if they fail. */
double predicted_mb(const setup *s);

/* The time of a step's kernels by the GPU's clock, measured in separate steps because measuring
 * takes time; each step is queued behind other work, so that the GPU never waits for the host. */
double kernel_seconds(const setup *s);

/* Prints the median time per token over 200 tokens after contexts of 1K, 16K and 64K.
 * Returns the exit status. */
int decode(const setup *s);

/* Multiply-adds of logits, for each text, that the step does without. */
double skipped_macs(const setup *s);

double process_peak_mb(void);

#endif
