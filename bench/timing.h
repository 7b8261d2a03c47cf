/* timing.h - the clock of the benchmarks, the median of what it measures, and the base of
 * "utilisation". */
#ifndef TIMING_H
#define TIMING_H

#include <time.h>

/* The program's clock: elapsed time (CLOCK_MONOTONIC, the default), or CPU time of all threads. */
extern clockid_t timer;

double now(void);                /* seconds                          */
double median(double *x, int n); /* sorts x, so that x[0] is least   */

/* FLOP/s of a 1024^3 f32 product of OpenBLAS, the best of 40. The rows are split over the threads,
 * which each call it single-threaded. Exits the program if it cannot get memory or threads. */
double blas_rate(int threads);

#endif
