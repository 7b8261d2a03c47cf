/* forecast.h - predicts the memory of a run before it begins. */
#ifndef TP_FORECAST_H
#define TP_FORECAST_H

#include <stdbool.h>
#include <stddef.h>

typedef struct tp_trainer tp_trainer;

/* A step's memory in bytes; the parts add up to the peak. */
typedef struct tp_forecast {
    double weights, gradients, optimizer, averages, state, activations, peak;
    double other;   /* weights of the program's other models                             */
    double ahead;   /* host memory: prefetched data                                      */
    double process; /* all of the process: also its code, its data and cached memory     */
} tp_forecast;

/* Predicts the memory of the run with this value of --recompute; r has settings and data, and may
 * have a device. False with the reason in why. */
bool tp__run_forecast(const tp_trainer *r, int recompute, tp_forecast *m, char *why, size_t size);

/* A shallow copy of the run's settings: the caller frees it, its strings remain the run's. NULL if
 * out of memory. */
void *tp__run_settings_copy(const tp_trainer *r);

size_t tp__run_memory_resident(void);  /* bytes, of this process                        */
size_t tp__run_memory_peak(void);      /* the most that it has been                     */
size_t tp__run_memory_available(void); /* bytes available without swapping; 0: unknown  */
size_t tp__run_memory_installed(void); /* of the machine; 0: unknown                    */

#endif
