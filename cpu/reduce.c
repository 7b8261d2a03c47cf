/* reduce.c - sum, mean, prod and logsumexp over any set of axes: sums are folds (fold.h), the
 * others reducers (reducer.h). */
#include <float.h>

#include "cpu/kit/fold.h"
#include "cpu/kit/real.h"
#include "cpu/kit/reducer.h"
#include "cpu/kit/sums.h"
#include "cpu/kit/vector.h"
#include "tensor/kernel.h"

#define GRAIN (4 * TP_BLOCK)

/* ---- sum and mean ---- */

static tp_code sum_fwd(const tp_call *c)
{
    const tp_view b = reduced(c);
    fold(c, &c->x[0], &b, c->x[0].data, NULL, c->y[0].data);
    return TP_OK;
}

/* Terms of one mean. */
static real terms(const tp_call *c)
{
    const int64_t results = c->y[0].numel, n = results ? c->x[0].numel / results : 1;
    return (real)n;
}

static void divide(const tp_call *c, int64_t begin, int64_t end)
{
    real *y = c->y[0].data;
    const real n = terms(c);
    for (int64_t i = begin; i < end; i++) y[i] /= n;
}

static tp_code mean_fwd(const tp_call *c)
{
    sum_fwd(c);
    tp__for(c, c->y[0].numel, GRAIN, divide);
    return TP_OK;
}

/* dx = k dy, repeated along the axis. */
TP_INLINE void spread(const tp_call *c, real k, int64_t begin, int64_t end)
{
    const tp_view b = reduced(c);
    const tp_bcast p = tp__bcast(&c->x[0], &b);
    for (tp_piece s = tp__piece(&p, begin, end); s.n > 0; tp__next(&p, &s, end)) {
        const real *restrict dy = (const real *)c->dy[0].data + s.b;
        real *restrict dx = (real *)c->dx[0].data + s.a;
        if (p.one) {
            const real g = k * dy[0];
            for (int64_t i = 0; i < s.n; i++) dx[i] = g;
        } else {
            for (int64_t i = 0; i < s.n; i++) dx[i] = k * dy[i];
        }
    }
}

static void sum_dx(const tp_call *c, int64_t begin, int64_t end)
{
    spread(c, 1, begin, end);
}

static void mean_dx(const tp_call *c, int64_t begin, int64_t end)
{
    spread(c, 1 / terms(c), begin, end);
}

static tp_code sum_bwd(const tp_call *c)
{
    if (c->dx[0].data) tp__for(c, c->dx[0].numel, GRAIN, sum_dx);
    return TP_OK;
}

static tp_code mean_bwd(const tp_call *c)
{
    if (c->dx[0].data) tp__for(c, c->dx[0].numel, GRAIN, mean_dx);
    return TP_OK;
}

/* ---- prod: the product of nonzero elements, rest 2^exponent, and a zero count ---- */

#define LEAST_NORMAL (sizeof(real) == sizeof(float) ? (real)FLT_MIN : (real)DBL_MIN)
#define MOST_FINITE  (sizeof(real) == sizeof(float) ? (real)FLT_MAX : (real)DBL_MAX)

static inline int is_settled(double rest)
{
    return (fabs(rest) > 0x1p-500) & (fabs(rest) < 0x1p500);
}

/* Brings *rest near 1 by powers of two, so that up to REDUCER_TERMS mantissas and any real can
 * multiply it. */
static inline void settle(double *rest, double *exponent)
{
    int e;
    if (is_settled(*rest) || !isfinite(*rest)) return;
    *rest = frexp(*rest, &e);
    *exponent += e;
}

/* Multiplies by n <= REDUCER_TERMS factors, `step` apart; in no order does a product leave the
 * range. */
static void product_of_all(const real *x, int64_t step, int64_t n, double *rest, double *zeros,
                           double *exponent)
{
    double all = 1, none = 0;
    int64_t sum = 0;
#pragma omp simd reduction(* : all) reduction(+ : none, sum)
    for (int64_t i = 0; i < n; i++) {
        const double v = (double)x[i * step];
        const bool tiny = fabs(v) < DBL_MIN;
        const double w = tiny ? v * 0x1p64 : v;
        uint64_t bits;
        memcpy(&bits, &w, sizeof bits);
        const int64_t e = (int64_t)(bits >> 52 & 2047);
        const bool whole = v == 0 || e == 2047; /* without a separate exponent */
        bits = (bits & ~(UINT64_C(2047) << 52)) | UINT64_C(1022) << 52;
        double m;
        memcpy(&m, &bits, sizeof m);
        all *= v == 0 ? 1 : whole ? v : m;
        none += v == 0 ? 1 : 0;
        sum += whole ? 0 : e - (tiny ? 1022 + 64 : 1022);
    }
    *rest *= all;
    *zeros += none;
    *exponent += (double)sum;
    settle(rest, exponent);
}

/* Do all products of some factors stay normal numbers? small: that of magnitudes below 1. One that
 * overflows stays infinite or becomes NaN. */
TP_INLINE int is_safe(real all, real small)
{
    return (small >= LEAST_NORMAL) & (r_abs(all) <= MOST_FINITE);
}

TP_INLINE real to_one(real x)
{
    return r_abs(x) < 1 ? r_abs(x) : 1;
}

/* Each factor waits for the one before, so four products run at once. *small: see is_safe. */
static real product(const real *x, int64_t n, real *small)
{
    const int64_t q = n / 4;
    real all = 1, all1 = 1, all2 = 1, all3 = 1, least = 1, least1 = 1;
#pragma omp simd reduction(* : all, all1, all2, all3, least, least1)
    for (int64_t i = 0; i < q; i++) {
        const real a = x[i], b = x[q + i], c = x[2 * q + i], d = x[3 * q + i];
        all *= a;
        all1 *= b;
        all2 *= c;
        all3 *= d;
        least *= to_one(a) * to_one(b);
        least1 *= to_one(c) * to_one(d);
    }
    for (int64_t i = 4 * q; i < n; i++) {
        all *= x[i];
        least *= to_one(x[i]);
    }
    *small = least * least1;
    return all * all1 * (all2 * all3);
}

static void prod_row(const tp_call *c, const void *p, int64_t n, int64_t at, double *s)
{
    const real *x = p;
    (void)c, (void)at;
    for (int64_t begin = 0; begin < n; begin += REDUCER_TERMS, x += REDUCER_TERMS) {
        const int64_t some = tp__least(REDUCER_TERMS, n - begin);
        real small;
        const real all = product(x, some, &small);
        if (is_safe(all, small)) {
            s[0] *= (double)all;
            settle(&s[0], &s[2]);
        } else {
            product_of_all(x, 1, some, &s[0], &s[1], &s[2]);
        }
    }
}

/* all[n] *= x, small[n] *= |x| where below 1 */
static void prod_times(real *restrict all, real *restrict small, const real *x, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        all[j] *= x[j];
        small[j] *= to_one(x[j]);
    }
}

static void prod_columns(const tp_call *c, const void *p, int64_t step, int64_t rows, int64_t n,
                         int64_t at, double *s)
{
    const real *x = p;
    real all[REDUCER_WIDTH], small[REDUCER_WIDTH];
    (void)c, (void)at;
    for (; rows > 0; rows -= REDUCER_ROWS, x += REDUCER_ROWS * step) {
        const int64_t some = tp__least(rows, REDUCER_ROWS);
        for (int64_t j = 0; j < n; j++) all[j] = small[j] = 1;
        for (int64_t d = 0; d < some; d++) prod_times(all, small, x + d * step, n);
        int safe = 1;
        for (int64_t j = 0; j < n; j++)
            safe &= is_safe(all[j], small[j]) & is_settled(s[j] * (double)all[j]);
        for (int64_t j = 0; safe && j < n; j++) s[j] *= (double)all[j];
        for (int64_t j = 0; !safe && j < n; j++) {
            if (is_safe(all[j], small[j])) {
                s[j] *= (double)all[j];
                settle(&s[j], &s[2 * n + j]);
            } else {
                product_of_all(x + j, step, some, &s[j], &s[n + j], &s[2 * n + j]);
            }
        }
    }
}

static void prod_join(double *s, const double *t, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        s[j] *= t[j];
        s[n + j] += t[n + j];
        s[2 * n + j] += t[2 * n + j];
        settle(&s[j], &s[2 * n + j]);
    }
}

/* v 2^e; past these exponents everything is 0 or infinite */
static inline double scaled(double v, double e)
{
    return ldexp(v, e > 9999 ? 9999 : e < -9999 ? -9999 : (int)e);
}

/* Stores the product; for backward the product of nonzero elements, the number of zeros, and an
 * exponent, 0 unless that product is not normal. */
static void prod_finish(const tp_call *c, const double *s, int64_t n, int64_t i)
{
    real *y = (real *)c->y[0].data + i, *rest = (real *)c->y[1].data + i;
    real *zeros = (real *)c->y[2].data + i, *exponent = (real *)c->y[3].data + i;
    for (int64_t j = 0; j < n; j++) {
        const real all = (real)scaled(s[j], s[2 * n + j]);
        const bool normal = r_abs(all) >= LEAST_NORMAL && r_abs(all) <= MOST_FINITE;
        int e = 0;
        y[j] = s[n + j] > 0 ? (real)(s[j] * 0) : all;
        rest[j] = normal ? all : (real)frexp(s[j], &e);
        zeros[j] = (real)s[n + j];
        exponent[j] = normal ? 0 : (real)(s[2 * n + j] + e);
    }
}

static const reducer of_factors = { 3,         { 1, 0, 0 }, prod_row, prod_columns,
                                    prod_join, prod_finish, NULL };

static tp_code prod_fwd(const tp_call *c)
{
    return reduce(c, &of_factors);
}

/* The product of the other elements times dy; g = dy times the product of nonzero elements. */
TP_INLINE real other_factors(real x, real g, real zeros)
{
    return x == 0 ? (zeros == 1 ? g : 0) : zeros == 0 ? g / x : 0;
}

/* Past this exponent g is 0 or infinite, and so is g / x, for any finite dy and x. */
#define FAR (sizeof(real) == sizeof(float) ? 600 : 4400)

/* g = dy rest 2^exponent, if it can be formed: see is_plain. */
TP_INLINE real all_factors(real dy, real rest, real exponent)
{
    const real power = exponent == 0 ? 1 : exponent < 0 ? 0 : (real)INFINITY;
    return dy == 0 ? 0 : dy * power * rest;
}

/* Can g be formed? It may be 0 if dy is. Without branches, which would prevent vectorisation. */
TP_INLINE int is_plain(real dy, real rest, real exponent)
{
    const real g = r_abs(dy * rest);
    const int normal = ((g >= LEAST_NORMAL) & (g <= MOST_FINITE)) | (dy == 0);
    const int finite = (r_abs(dy) <= MOST_FINITE) & (r_abs(rest) <= MOST_FINITE);
    return ((exponent == 0) & normal) | ((r_abs(exponent) > FAR) & finite);
}

/* The same if g = dy rest 2^exponent may not be normal. */
static real scaled_factors(real x, real dy, real rest, real zeros, real exponent)
{
    int ed, er, ex = 0;
    if (zeros > 1 || (zeros > 0 && x != 0)) return 0;
    double v = frexp((double)dy, &ed) * frexp((double)rest, &er);
    if (zeros == 0) v /= frexp((double)x, &ex);
    return (real)scaled(v, (double)exponent + (ed + er - ex));
}

static void prod_dx(const tp_call *c, int64_t begin, int64_t end)
{
    const tp_view b = reduced(c);
    const tp_bcast p = tp__bcast(&c->x[0], &b);
    for (tp_piece s = tp__piece(&p, begin, end); s.n > 0; tp__next(&p, &s, end)) {
        const real *restrict x = (const real *)c->x[0].data + s.a;
        const real *restrict rest = (const real *)c->y[1].data + s.b;
        const real *restrict zeros = (const real *)c->y[2].data + s.b;
        const real *restrict exponent = (const real *)c->y[3].data + s.b;
        const real *restrict dy = (const real *)c->dy[0].data + s.b;
        real *restrict dx = (real *)c->dx[0].data + s.a;
        const int64_t step = p.one ? 0 : 1, results = p.one ? 1 : s.n;
        int plain = 1;
        for (int64_t i = 0; i < results; i++) plain &= is_plain(dy[i], rest[i], exponent[i]);
        if (!plain) {
            for (int64_t i = 0, k = 0; i < s.n; i++, k += step)
                dx[i] = scaled_factors(x[i], dy[k], rest[k], zeros[k], exponent[k]);
        } else if (p.one) {
            const real g = all_factors(dy[0], rest[0], exponent[0]), z = zeros[0];
            for (int64_t i = 0; i < s.n; i++) dx[i] = other_factors(x[i], g, z);
        } else {
            for (int64_t i = 0; i < s.n; i++)
                dx[i] = other_factors(x[i], all_factors(dy[i], rest[i], exponent[i]), zeros[i]);
        }
    }
}

static tp_code prod_bwd(const tp_call *c)
{
    if (c->dx[0].data) tp__for(c, c->dx[0].numel, GRAIN, prod_dx);
    return TP_OK;
}

/* ---- logsumexp: log sum e^(x - m) + m, m the largest x, or 0 if that is infinite ---- */

static inline double shift(double most)
{
    return most - most == 0 ? most : 0;
}

/* The state: the largest x and its sum. */
static inline void add_exps(double *most, double *sum, double m, double s)
{
    const double both = m > *most ? m : *most;
    *sum = (*sum == 0 ? 0 : *sum * exp(shift(*most) - shift(both))) +
           (s == 0 ? 0 : s * exp(shift(m) - shift(both)));
    *most = both;
}

static void logsumexp_row(const tp_call *c, const void *p, int64_t n, int64_t at, double *s)
{
    const real *x = p;
    const real most = largest(x, n, -(real)INFINITY), m = (real)shift((double)most);
    double sum = 0.0;
    (void)c, (void)at;
    for (int64_t begin = 0; begin < n; begin += TP_BLOCK) {
        const int64_t end = begin + TP_BLOCK < n ? begin + TP_BLOCK : n;
        real part = 0;
#pragma omp simd reduction(+ : part)
        for (int64_t i = begin; i < end; i++) part += r_exp(x[i] - m);
        sum += (double)part;
    }
    if (s[1] == 0) {
        s[0] = (double)most;
        s[1] = sum;
    } else {
        add_exps(&s[0], &s[1], (double)most, sum);
    }
}

static void logsumexp_columns(const tp_call *c, const void *p, int64_t step, int64_t rows,
                              int64_t n, int64_t at, double *s)
{
    const real *x = p;
    real most[REDUCER_WIDTH], m[REDUCER_WIDTH], sum[REDUCER_WIDTH];
    (void)c, (void)at;
    for (; rows > 0; rows -= REDUCER_ROWS, x += REDUCER_ROWS * step) {
        const int64_t some = tp__least(rows, REDUCER_ROWS);
        for (int64_t j = 0; j < n; j++) most[j] = -(real)INFINITY;
        for (int64_t d = 0; d < some; d++)
            for (int64_t j = 0; j < n; j++)
                most[j] = x[d * step + j] > most[j] ? x[d * step + j] : most[j];
        for (int64_t j = 0; j < n; j++) m[j] = most[j] - most[j] == 0 ? most[j] : 0;
        memset(sum, 0, (size_t)n * sizeof *sum);
        for (int64_t d = 0; d < some; d++)
            for (int64_t j = 0; j < n; j++) sum[j] += r_exp(x[d * step + j] - m[j]);
        for (int64_t j = 0; j < n; j++) {
            if (s[n + j] == 0) {
                s[j] = (double)most[j];
                s[n + j] = (double)sum[j];
            } else {
                add_exps(&s[j], &s[n + j], (double)most[j], (double)sum[j]);
            }
        }
    }
}

static void logsumexp_join(double *s, const double *t, int64_t n)
{
    for (int64_t j = 0; j < n; j++) add_exps(&s[j], &s[n + j], t[j], t[n + j]);
}

static void logsumexp_finish(const tp_call *c, const double *s, int64_t n, int64_t i)
{
    real *y = (real *)c->y[0].data + i;
    for (int64_t j = 0; j < n; j++) y[j] = (real)shift(s[j]) + r_log((real)s[n + j]);
}

static const reducer of_exps = {
    2, { -INFINITY, 0 }, logsumexp_row, logsumexp_columns, logsumexp_join, logsumexp_finish, NULL
};

static tp_code logsumexp_fwd(const tp_call *c)
{
    return reduce(c, &of_exps);
}

/* dx = dy e^(x - y); if y is -infinity so is every x, and the gradient is 0. */
TP_INLINE real softmax_of(real x, real y)
{
    return r_exp(x - (y == -(real)INFINITY ? 0 : y));
}

static void logsumexp_dx(const tp_call *c, int64_t begin, int64_t end)
{
    const tp_view b = reduced(c);
    const tp_bcast p = tp__bcast(&c->x[0], &b);
    for (tp_piece s = tp__piece(&p, begin, end); s.n > 0; tp__next(&p, &s, end)) {
        const real *restrict x = (const real *)c->x[0].data + s.a;
        const real *restrict y = (const real *)c->y[0].data + s.b;
        const real *restrict dy = (const real *)c->dy[0].data + s.b;
        real *restrict dx = (real *)c->dx[0].data + s.a;
        if (p.one) {
            const real m = y[0], g = dy[0];
            for (int64_t i = 0; i < s.n; i++) dx[i] = g * softmax_of(x[i], m);
        } else {
            for (int64_t i = 0; i < s.n; i++) dx[i] = dy[i] * softmax_of(x[i], y[i]);
        }
    }
}

static tp_code logsumexp_bwd(const tp_call *c)
{
    if (c->dx[0].data) tp__for(c, c->dx[0].numel, GRAIN, logsumexp_dx);
    return TP_OK;
}

TP_CPU_KERNEL(sum_fwd)
TP_CPU_KERNEL(sum_bwd)
TP_CPU_KERNEL(mean_fwd)
TP_CPU_KERNEL(mean_bwd)
TP_CPU_KERNEL(prod_fwd)
TP_CPU_KERNEL(prod_bwd)
TP_CPU_KERNEL(logsumexp_fwd)
TP_CPU_KERNEL(logsumexp_bwd)
