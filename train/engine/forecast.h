/* forecast.h - the memory of a run before it begins. */
#ifndef TP_FORECAST_H
#define TP_FORECAST_H

#include "trainer.h"

/* A step's memory in bytes; the parts add up to the peak. */
typedef struct tp_forecast {
    double weights, gradients, optimizer, averages, state, activations, peak;
    double ahead;   /* host memory: data in advance                                     */
    double process; /* with the program, its data, and memory that waits for reuse      */
} tp_forecast;

/* What the run will use if it recomputes so; r has settings and data, perhaps a device. False with
 * the reason in why. */
bool tp__run_forecast(const tp_trainer *r, int recompute, tp_forecast *m, char *why, size_t size);

/* A copy of the run's settings, whose texts stay the run's: to be freed; NULL: no memory. */
void *tp__run_settings_copy(const tp_trainer *r);

size_t tp__run_memory_resident(void);  /* of this process                                    */
size_t tp__run_memory_available(void); /* what the system can give without swapping; 0: unknown */

#endif
