/* model_steps.h - training steps of any model of the table, for bench_models. */
#ifndef MODEL_STEPS_H
#define MODEL_STEPS_H

#include <tapegrad/model.h>
#include <time.h>

enum { MAX_STEPS = 1000 };

typedef struct setup {
    tp_model_cfg model;
    const char *name, *device; /* of the model, as it was asked for */
    tp_dtype dtype;
    int64_t tokens; /* TP_TOKENS: of a segment, after a cache of as many */
    int batch, steps, threads;
    bool graph, smoke, profile;
} setup;

static inline bool is_text(const setup *s)
{
    return s->model.model->input == TP_TOKENS;
}

bool on_cuda(const setup *s);

/* The one timer of the program: wall time, or processor time of all threads. */
extern clockid_t timer;
double now(void);
double median(double *x, int n); /* sorts x */

/* Takes s->steps on D after a few that warm up; seconds receives the time of each, which on CUDA is
 * a share of all of them: there the host is ahead, and waiting would not be training. With `ahead`,
 * each is queued behind maxima of it. False with the reason printed. */
bool take_steps(tp_device *D, const setup *s, tp_tensor ahead, double *seconds);

/* The peak that a dry device forecasts for the same steps, in MiB; 0 if they fail. */
double predicted_mb(const setup *s);

/* What the kernels of a step take by the GPU's clock, in steps of their own, since measuring takes
 * time too; each is queued behind other work, so that the GPU never waits for the host. */
double kernel_seconds(const setup *s);

/* model_decode.c: prints the median time of a token among 200 that follow 1K, 16K and 64K tokens of
 * context. Returns the exit status. */
int decode(const setup *s);

double process_peak_mb(void);

#endif
