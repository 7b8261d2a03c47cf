/* forecast.h - the memory of a run before it begins, and short runs to measure. */
#ifndef FORECAST_H
#define FORECAST_H

#include "trainer.h"

/* A step's memory in bytes; the parts add up to the peak. */
typedef struct forecast {
    size_t weights, gradients, optimizer, averages, caches, activations, peak;
    size_t process; /* with the program, its text, and memory that waits for reuse */
} forecast;

/* What the run of t will use if it recomputes so. t has settings and text, perhaps a device. False
 * with the reason in why. */
bool forecast_memory(const trainer *t, int recompute, forecast *m, char *why, size_t size);

size_t resident_now(void);     /* memory of this process, bytes                            */
size_t memory_available(void); /* what the system can give without swapping; 0: unknown */

/* A run on the text of t, with settings of its own, on a device of its own. False with the reason
 * in r->why; end it in either case. Text and settings stay another's. */
bool part_begin(trainer *r, const trainer *t, const settings *s, bool dry);
void part_end(trainer *r);

#endif
