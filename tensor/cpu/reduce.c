/* reduce.c - sum, mean, prod and logsumexp over any set of axes: sums are folds (fold.h), the others
 * reducers (reducer.h). */
#include "tensor/cpu/kit/fold.h"
#include "tensor/cpu/kit/largest.h"
#include "tensor/cpu/kit/real.h"
#include "tensor/cpu/kit/reducer.h"
#include "tensor/cpu/kit/vector.h"
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

static void divide(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    real *y = c->y[0].data;
    const real n = terms(c);
    (void)thread;
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

static void sum_dx(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    spread(c, 1, begin, end);
}

static void mean_dx(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    (void)thread;
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

/* ---- prod: the product, that of the elements other than 0, and the number of zeros ---- */

/* The product of n factors from x on, `step` elements apart, that are not 0; adds their zeros. */
static real prod_rest(const real *x, int64_t step, int64_t n, double *zeros)
{
    real rest = 1, none = 0;
    for (int64_t i = 0; i < n; i++) {
        rest *= x[i * step] == 0 ? 1 : x[i * step];
        none += x[i * step] == 0 ? 1 : 0;
    }
    *zeros += (double)none;
    return rest;
}

/* Each factor waits for the one before, so four products of vectors are formed at once. none: is one 0? */
static real product(const real *x, int64_t n, int *none)
{
    const int64_t q = n / 4;
    real all = 1, all1 = 1, all2 = 1, all3 = 1;
    int zero = 0, zero1 = 0;
#pragma omp simd reduction(* : all, all1, all2, all3) reduction(| : zero, zero1)
    for (int64_t i = 0; i < q; i++) {
        const real a = x[i], b = x[q + i], c = x[2 * q + i], d = x[3 * q + i];
        all *= a;
        all1 *= b;
        all2 *= c;
        all3 *= d;
        zero |= (a == 0) | (b == 0);
        zero1 |= (c == 0) | (d == 0);
    }
    for (int64_t i = 4 * q; i < n; i++) {
        all *= x[i];
        zero |= x[i] == 0;
    }
    *none = zero | zero1;
    return all * all1 * (all2 * all3);
}

static void prod_row(const tp_call *c, const void *p, int64_t n, int64_t at, double *s)
{
    const real *x = p;
    (void)c, (void)at;
    for (int64_t begin = 0; begin < n; begin += REDUCER_TERMS, x += REDUCER_TERMS) {
        const int64_t some = tp__least(REDUCER_TERMS, n - begin);
        int none;
        const real all = product(x, some, &none);
        s[0] *= (double)all;
        s[1] *= (double)(none ? prod_rest(x, 1, some, &s[2]) : all);
    }
}

/* all[n] *= x; returns whether a factor is 0. */
static int prod_times(real *restrict all, const real *x, int64_t n)
{
    int none = 0;
#pragma omp simd reduction(| : none)
    for (int64_t j = 0; j < n; j++) {
        all[j] *= x[j];
        none |= x[j] == 0;
    }
    return none;
}

static void prod_columns(const tp_call *c, const void *p, int64_t step, int64_t rows, int64_t n,
                         int64_t at, double *s)
{
    const real *x = p;
    real all[REDUCER_WIDTH];
    (void)c, (void)at;
    for (; rows > 0; rows -= REDUCER_ROWS, x += REDUCER_ROWS * step) {
        const int64_t some = tp__least(rows, REDUCER_ROWS);
        int none = 0;
        for (int64_t j = 0; j < n; j++) all[j] = 1;
        for (int64_t d = 0; d < some; d++) none |= prod_times(all, x + d * step, n);
        for (int64_t j = 0; j < n; j++) {
            s[j] *= (double)all[j];
            s[n + j] *= (double)(none ? prod_rest(x + j, step, some, &s[2 * n + j]) : all[j]);
        }
    }
}

static void prod_join(double *s, const double *t, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        s[j] *= t[j];
        s[n + j] *= t[n + j];
        s[2 * n + j] += t[2 * n + j];
    }
}

static void prod_finish(const tp_call *c, const double *s, int64_t n, int64_t i)
{
    for (int k = 0; k < 3; k++) {
        real *y = (real *)c->y[k].data + i;
        for (int64_t j = 0; j < n; j++) y[j] = (real)s[k * n + j];
    }
}

static const reducer of_factors = { 3,         { 1, 1, 0 }, prod_row, prod_columns,
                                    prod_join, prod_finish, NULL };

static tp_code prod_fwd(const tp_call *c)
{
    return reduce(c, &of_factors);
}

/* The product of the other elements times dy; g = dy times the product of those that are not 0. */
TP_INLINE real other_factors(real x, real g, real zeros)
{
    return x == 0 ? (zeros == 1 ? g : 0) : zeros == 0 ? g / x : 0;
}

static void prod_dx(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const tp_view b = reduced(c);
    const tp_bcast p = tp__bcast(&c->x[0], &b);
    (void)thread;
    for (tp_piece s = tp__piece(&p, begin, end); s.n > 0; tp__next(&p, &s, end)) {
        const real *restrict x = (const real *)c->x[0].data + s.a;
        const real *restrict rest = (const real *)c->y[1].data + s.b;
        const real *restrict zeros = (const real *)c->y[2].data + s.b;
        const real *restrict dy = (const real *)c->dy[0].data + s.b;
        real *restrict dx = (real *)c->dx[0].data + s.a;
        if (p.one) {
            const real g = dy[0] * rest[0], z = zeros[0];
            for (int64_t i = 0; i < s.n; i++) dx[i] = other_factors(x[i], g, z);
        } else {
            for (int64_t i = 0; i < s.n; i++)
                dx[i] = other_factors(x[i], dy[i] * rest[i], zeros[i]);
        }
    }
}

static tp_code prod_bwd(const tp_call *c)
{
    if (c->dx[0].data) tp__for(c, c->dx[0].numel, GRAIN, prod_dx);
    return TP_OK;
}

/* ---- logsumexp: log sum e^(x - m) + m with m the largest x, or 0 if that is infinite ---- */

static inline double shift(double most)
{
    return most - most == 0 ? most : 0;
}

/* The state: the largest x, and the sum for it. */
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

/* dx = dy e^(x - y); where y is -infinity so is every x, and the gradient is 0. */
TP_INLINE real softmax_of(real x, real y)
{
    return r_exp(x - (y == -(real)INFINITY ? 0 : y));
}

static void logsumexp_dx(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const tp_view b = reduced(c);
    const tp_bcast p = tp__bcast(&c->x[0], &b);
    (void)thread;
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
