/* scale.h - time and memory of a training step by the length of its documents. */
#ifndef SCALE_H
#define SCALE_H

#include <tapegrad/train.h>

#include "lra_settings.h"

/* One training step of an encoder on noise without padding: forward, backward, update. */
typedef struct scale_step {
    double seconds; /* the median; NaN: not measured */
    double bytes;   /* peak of the device            */
} scale_step;

typedef struct scale_opts {
    const tp_machine_settings *machine;
    int task;
    int64_t batch;
    double seconds; /* of measuring; 0: only the memory, on a dry device */
    bool cpu_time;  /* processor time in place of time                   */
} scale_opts;

/* Measures. False with the reason in why; an attention that a length does not fit is no failure: both are then
 * NaN. */
bool scale_measure(scale_step *y, const char *attention, int64_t length, const scale_opts *o,
                   char *why, size_t size);

/* Draws the memory of a step, batch 1, for 1024 to 65536 tokens. */
bool scale_draw_memory(int task, int n, const char *const *attention, const tp_machine_settings *m,
                       const char *path, char *why, size_t size);

#endif
