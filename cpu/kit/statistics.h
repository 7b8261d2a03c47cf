/* statistics.h - deviations whose squares may leave the range of real. */
#ifndef TP_STATISTICS_H
#define TP_STATISTICS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpu/kit/real.h"

/* A sum of squares outside these bounds has lost digits or overflowed. */
#define LEAST_SQUARES (sizeof(real) == sizeof(float) ? RC(0x1p-100) : (real)0x1p-900)
#define MOST_SQUARES  (sizeof(real) == sizeof(float) ? RC(0x1p+120) : (real)0x1p+1000)

TP_INLINE int are_squares_exact(real sum)
{
    return (sum >= LEAST_SQUARES) & (sum <= MOST_SQUARES);
}

/* 1 / sqrt(v); NaN, never 0, if the variance v overflowed: a norm would otherwise return zeros. */
TP_INLINE real inverse_root(real v)
{
    return v == (real)INFINITY ? (real)NAN : 1 / r_sqrt(v);
}

typedef struct deviation {
    double mean, root; /* root: sqrt(mean (x - mean)^2) */
} deviation;

/* The largest |x| of n numbers with stride `apart`; NaN if any is. */
static inline double largest_magnitude(const real *x, int64_t apart, int64_t n)
{
    real most = 0, nan = 0;
#pragma omp simd reduction(max : most) reduction(+ : nan)
    for (int64_t i = 0; i < n; i++) {
        const real v = r_abs(x[i * apart]);
        most = v > most ? v : most;
        nan += v == v ? 0 : 1;
    }
    return nan > 0 ? (double)NAN : (double)most;
}

/* Deviation of any row, scaled by its largest magnitude. Without centre the mean is 0. */
static inline deviation deviation_of(const real *x, int64_t n, bool centre)
{
    const double most = largest_magnitude(x, 1, n);
    double mean = 0, squares = 0;
    if (!(most > 0 && most < INFINITY)) return (deviation){ most - most, most - most };
    for (int64_t i = 0; centre && i < n; i++) mean += (double)x[i] / most / (double)n;
    for (int64_t i = 0; i < n; i++) {
        const double d = (double)x[i] / most - mean;
        squares += d * d;
    }
    return (deviation){ mean * most, sqrt(squares / (double)n) * most };
}

#endif
