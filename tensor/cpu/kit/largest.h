/* largest.h - the largest number of a row. */
#ifndef TP_LARGEST_H
#define TP_LARGEST_H

#include "tensor/cpu/kit/real.h"
#include <float.h>
#include <stdint.h>

/* The largest of `most` and x[n]. The reduction starts from -infinity with gcc and from -FLT_MAX
 * with clang. If the result may be that start, a plain loop computes it again. */
static inline real largest(const real *x, int64_t n, real most)
{
    const real first = most;
    const real least = (real)(sizeof(real) == sizeof(float) ? -(double)FLT_MAX : -DBL_MAX);
#pragma omp simd reduction(max : most)
    for (int64_t j = 0; j < n; j++) most = x[j] > most ? x[j] : most;
    if (most > least) return most;
    most = first;
    for (int64_t j = 0; j < n; j++) most = x[j] > most ? x[j] : most;
    return most;
}

#endif
