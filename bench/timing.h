/* timing.h - the clock of the benchmarks, and the median of what it measures. */
#ifndef TIMING_H
#define TIMING_H

#include <time.h>

/* The program's clock: elapsed time (CLOCK_MONOTONIC, the default), or CPU time of all threads. */
extern clockid_t timer;

double now(void);                /* seconds                          */
double median(double *x, int n); /* sorts x, so that x[0] is least   */

#endif
