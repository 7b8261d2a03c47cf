/* probe.h - training and evaluation steps on noise, to measure a model's time and memory. */
#ifndef PROBE_H
#define PROBE_H

#include <tapegrad/tapegrad.h>

#include "classifier.h"
#include "image_settings.h"

typedef struct probe {
    tp_device *D;
    tp_params *P;
    tp_tape *T;
    tp_optim *O;
    tp_ema *ema; /* NULL: no averages */
    classifier *m;
    float *x; /* [batch,size,size,3] */
    int32_t *y;
    int64_t batch;
    bool dry;      /* probe_measure only counts memory */
    bool cpu_time; /* probe_measure: process CPU time instead of elapsed time */
} probe;

/* Builds cfg with batch, machine, optimiser and averages of s, which must outlive b. dry: on a
 * device that does not compute. False with the reason in why; close in either case. */
bool probe_open(probe *b, const classifier_cfg *cfg, image_settings *s, bool dry, char *why,
                size_t size);
void probe_close(probe *b);

/* Seconds of one step: forward; in training also backward and update. Errors: tp_why(b->T). */
double probe_step(probe *b, bool training);

/* Runs steps for `seconds`, after an uncounted one; if b is dry, two that compute nothing. */
typedef struct probe_time {
    double seconds; /* the median step's; dry: NaN */
    double bytes;   /* peak device memory */
    int steps;      /* measured; 0: the tape failed, see tp_why */
} probe_time;
probe_time probe_measure(probe *b, bool training, double seconds);

#endif
