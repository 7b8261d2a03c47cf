/* blas_rate.h - the machine's own rate of matrix products, which "utilisation" is measured by. */
#ifndef BLAS_RATE_H
#define BLAS_RATE_H

#include <time.h>

/* FLOP/s of a 1024^3 f32 product by OpenBLAS, the best of 40: its rows are split over the threads,
 * each of which calls it single-threaded. Ends the program if memory or threads cannot be had. */
double blas_rate(int threads, clockid_t timer);

#endif
