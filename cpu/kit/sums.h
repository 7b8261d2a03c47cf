/* sums.h - sums over a row, and its largest number.
 *
 * Sums use four vectors, since each addition waits for the one before. Only n sets their order. */
#ifndef TP_SUMS_H
#define TP_SUMS_H

#include "cpu/kit/real.h"
#include "cpu/kit/vector.h"

#include <float.h>
#include <stdbool.h>
#include <string.h>

/* Vector v with lanes i and i ^ s exchanged; the constant s is 0 if it is not a lane. */
#define SUMS_2(s, i)  (i) ^ (s), ((i) + 1) ^ (s)
#define SUMS_4(s, i)  SUMS_2(s, i), SUMS_2(s, (i) + 2)
#define SUMS_8(s, i)  SUMS_4(s, i), SUMS_4(s, (i) + 4)
#define SUMS_16(s, i) SUMS_8(s, i), SUMS_8(s, (i) + 8)
#if TP_VECTOR * 8 / TP_REAL == 16
#define SUMS_SWAP(v, s) __builtin_shufflevector(v, v, SUMS_16(s, 0))
#elif TP_VECTOR * 8 / TP_REAL == 8
#define SUMS_SWAP(v, s) __builtin_shufflevector(v, v, SUMS_8((s) % 8, 0))
#elif TP_VECTOR * 8 / TP_REAL == 4
#define SUMS_SWAP(v, s) __builtin_shufflevector(v, v, SUMS_4((s) % 4, 0))
#else
#define SUMS_SWAP(v, s) __builtin_shufflevector(v, v, SUMS_2((s) % 2, 0))
#endif

/* Sums the lanes as a tree. A simd reduction adds them in sequence, which takes as long as the rest
 * of a short row. */
TP_INLINE real sum_lanes(vec v)
{
    if (LANES > 8) v += SUMS_SWAP(v, 8);
    if (LANES > 4) v += SUMS_SWAP(v, 4);
    if (LANES > 2) v += SUMS_SWAP(v, 2);
    v += SUMS_SWAP(v, 1);
    return v[0];
}

/* The terms of sum_terms from element i on. */
TP_INLINE vec sums_term(const real *x, const real *w, real m, bool square, int64_t i)
{
    const vec v = vec_load(x + i);
    return square ? (v - m) * (v - m) : w ? v * vec_load(w + i) : v;
}

/* Sums x[i], x[i] w[i], or (x[i] - m)^2; square, and whether w is NULL, are constants. */
TP_INLINE real sum_terms(const real *x, const real *w, real m, bool square, int64_t n)
{
    vec s[4] = { { 0 } };
    int64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        TP_UNROLL
        for (int k = 0; k < 4; k++) s[k] += sums_term(x, w, m, square, i + k * LANES);
    }
    for (; i + LANES <= n; i += LANES) s[0] += sums_term(x, w, m, square, i);
    real sum = sum_lanes((s[0] + s[1]) + (s[2] + s[3]));
    for (; i < n; i++) sum += square ? (x[i] - m) * (x[i] - m) : w ? x[i] * w[i] : x[i];
    return sum;
}

static inline real sum_of(const real *x, int64_t n)
{
    return sum_terms(x, NULL, 0, false, n);
}

static inline real dot_of(const real *x, const real *w, int64_t n)
{
    return sum_terms(x, w, 0, false, n);
}

/* Sums (x[i] - m)^2. */
static inline real squares_about(real m, const real *x, int64_t n)
{
    return sum_terms(x, NULL, m, true, n);
}

/* The largest of `most` and x[n]. The reduction starts from -infinity with gcc and from -FLT_MAX
 * with clang. If the result may be that start, a plain loop recomputes it. */
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
