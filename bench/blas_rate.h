/* blas_rate.h - the machine's own rate of matrix products, the base of "utilisation". */
#ifndef BLAS_RATE_H
#define BLAS_RATE_H

/* FLOP/s of a 1024^3 f32 product of OpenBLAS, the best of 40. The rows are split over the threads,
 * which each call it single-threaded. Exits the program if it cannot get memory or threads. */
double blas_rate(int threads);

#endif
