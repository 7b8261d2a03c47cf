/* probe.h - training and evaluation steps on noise, to measure a model or to count its memory. */
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
    tp_ema *ema; /* NULL without */
    classifier *m;
    float *x; /* [batch,size,size,3] */
    int32_t *y;
    int64_t batch;
    bool cpu_time; /* probe_measure: time of the process on processors, not of the day */
} probe;

/* The model with the settings' batch, machine, optimiser and averages; s must outlive it. dry: it
 * counts memory and computes nothing. False with the reason in why; close in either case. */
bool probe_open(probe *b, const classifier_cfg *cfg, image_settings *s, bool dry, char *why,
                size_t size);
void probe_close(probe *b);

/* Seconds of one step: forward, and in training backward and an update. Errors: tp_why(b->T). */
double probe_step(probe *b, bool training);

/* Steps for so many seconds, after one that does not count. */
typedef struct probe_time {
    double seconds; /* of the median step                         */
    double bytes;   /* of the device, at most                     */
    int steps;      /* measured; 0: the tape has failed, see probe_step */
} probe_time;
probe_time probe_measure(probe *b, bool training, double seconds);

#endif
