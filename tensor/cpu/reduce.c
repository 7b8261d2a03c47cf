/* reduce.c - sum, mean, max, argmax and logsumexp over one axis or all.
 *
 * Sums are folds (fold.h). The others see x as [outer][dim][inner] and write [outer][inner]: with inner 1
 * one row at a time, else WIDTH columns side by side. NaN wins over every number. */
#include <tapegrad/ops.h>

#include "tensor/cpu/kit/fold.h"
#include "tensor/cpu/kit/largest.h"
#include "tensor/cpu/kit/real.h"
#include "tensor/geometry/broadcast.h"
#include "tensor/geometry/shape_ops.h"
#include "tensor/kernel.h"
#include "tensor/shape.h"

#define GRAIN (4 * TP_BLOCK)
#define WIDTH 256

typedef struct sizes {
    int64_t outer, dim, inner;
    int64_t strips, width; /* pieces of the inner axis, all but the last of `width` columns */
} sizes;

static inline sizes sizes_of(const tp_call *c)
{
    const tp_axis_attr *a = c->attr;
    const tp_view *x = &c->x[0];
    sizes s = { .outer = 1, .dim = x->numel, .inner = 1 };
    if (a->axis != TP_ALL)
        tp__axis_split(x, tp__axis(x->ndim, a->axis), &s.outer, &s.dim, &s.inner);
    s.width = s.inner < WIDTH ? s.inner : WIDTH;
    s.strips = (s.inner + WIDTH - 1) / WIDTH;
    return s;
}

/* One task of `body` is one strip of one outer index. */
static inline tp_code each_strip(const tp_call *c, tp_call_body body)
{
    const sizes s = sizes_of(c);
    tp__for(c, s.outer * s.strips, GRAIN / (s.dim * s.width + 1), body);
    return TP_OK;
}

/* The offsets of strip t in x and in the result, and its width. */
typedef struct strip {
    int64_t x, y, n;
} strip;

static inline strip strip_of(const sizes *s, int64_t t)
{
    const int64_t outer = t / s->strips, j = t % s->strips * WIDTH;
    const int64_t left = s->inner - j;
    return (strip){ outer * s->dim * s->inner + j, outer * s->inner + j,
                    left < WIDTH ? left : WIDTH };
}

static inline tp_view reduced(const tp_call *c)
{
    return tp__reduced(&c->x[0], ((const tp_axis_attr *)c->attr)->axis);
}

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

/* ---- max and argmax: the first of the largest ---- */

static int64_t row_argmax(const real *x, int64_t n)
{
    real most = x[0];
    int nan = 0;
#pragma omp simd reduction(max : most) reduction(| : nan)
    for (int64_t i = 0; i < n; i++) {
        most = x[i] > most ? x[i] : most;
        nan |= x[i] != x[i];
    }
    for (int64_t i = 0; i < n; i++)
        if (nan ? x[i] != x[i] : x[i] == most) return i;
    return 0; /* all are -infinity; the compiler's reductions start from the least finite number */
}

/* The same for n columns at once, rows of x `inner` apart. */
static void column_argmax(const real *x, const sizes *s, int64_t n, int64_t *at)
{
    real most[WIDTH];
    for (int64_t j = 0; j < n; j++) most[j] = x[j];
    for (int64_t j = 0; j < n; j++) at[j] = 0;
    for (int64_t d = 1; d < s->dim; d++) {
        const real *row = x + d * s->inner;
        for (int64_t j = 0; j < n; j++) {
            const real v = row[j];
            const bool take = (v > most[j]) | ((v != v) & (most[j] == most[j]));
            most[j] = take ? v : most[j];
            at[j] = take ? d : at[j];
        }
    }
}

/* argmax writes indices to y[0]; max values to y[0] and indices to y[1]. */
static void find(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const sizes s = sizes_of(c);
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        const strip k = strip_of(&s, t);
        const real *x = (const real *)c->x[0].data + k.x;
        int64_t *at = (int64_t *)c->y[c->ny - 1].data + k.y;
        if (s.inner == 1)
            at[0] = row_argmax(x, s.dim);
        else
            column_argmax(x, &s, k.n, at);
        if (c->ny == 1) continue;
        real *y = (real *)c->y[0].data + k.y;
        for (int64_t j = 0; j < k.n; j++) y[j] = x[at[j] * s.inner + j];
    }
}

static tp_code argmax_fwd(const tp_call *c)
{
    return each_strip(c, find);
}

static tp_code max_fwd(const tp_call *c)
{
    return each_strip(c, find);
}

static void max_dx(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const sizes s = sizes_of(c);
    const int64_t *at = c->y[1].data;
    const real *dy = c->dy[0].data;
    real *dx = c->dx[0].data;
    (void)thread;
    memset(dx + begin * s.dim * s.inner, 0, (size_t)((end - begin) * s.dim * s.inner) * sizeof *dx);
    for (int64_t o = begin; o < end; o++)
        for (int64_t j = 0; j < s.inner; j++) {
            const int64_t i = o * s.inner + j;
            dx[(o * s.dim + at[i]) * s.inner + j] = dy[i];
        }
}

static tp_code max_bwd(const tp_call *c)
{
    const sizes s = sizes_of(c);
    if (c->dx[0].data) tp__for(c, s.outer, GRAIN / (s.dim * s.inner + 1), max_dx);
    return TP_OK;
}

/* ---- logsumexp: log sum e^(x - m) + m with m the largest x, or 0 if that is infinite ---- */

static inline real shift(real most)
{
    return most - most == 0 ? most : 0;
}

static real row_logsumexp(const real *x, int64_t n)
{
    const real m = shift(largest(x, n, -(real)INFINITY));
    double sum = 0.0;
    for (int64_t begin = 0; begin < n; begin += TP_BLOCK) {
        const int64_t end = begin + TP_BLOCK < n ? begin + TP_BLOCK : n;
        real part = 0;
#pragma omp simd reduction(+ : part)
        for (int64_t i = begin; i < end; i++) part += r_exp(x[i] - m);
        sum += (double)part;
    }
    return m + r_log((real)sum);
}

static void column_logsumexp(const real *x, const sizes *s, int64_t n, real *restrict y)
{
    real most[WIDTH], sum[WIDTH] = { 0 };
    for (int64_t j = 0; j < n; j++) most[j] = -(real)INFINITY;
    for (int64_t d = 0; d < s->dim; d++) {
        const real *row = x + d * s->inner;
        for (int64_t j = 0; j < n; j++) most[j] = row[j] > most[j] ? row[j] : most[j];
    }
    for (int64_t j = 0; j < n; j++) most[j] = shift(most[j]);
    for (int64_t d = 0; d < s->dim; d++) {
        const real *row = x + d * s->inner;
        for (int64_t j = 0; j < n; j++) sum[j] += r_exp(row[j] - most[j]);
    }
    for (int64_t j = 0; j < n; j++) y[j] = most[j] + r_log(sum[j]);
}

static void logsumexp(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const sizes s = sizes_of(c);
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        const strip k = strip_of(&s, t);
        const real *x = (const real *)c->x[0].data + k.x;
        real *y = (real *)c->y[0].data + k.y;
        if (s.inner == 1)
            y[0] = row_logsumexp(x, s.dim);
        else
            column_logsumexp(x, &s, k.n, y);
    }
}

static tp_code logsumexp_fwd(const tp_call *c)
{
    return each_strip(c, logsumexp);
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
TP_CPU_KERNEL(max_fwd)
TP_CPU_KERNEL(max_bwd)
TP_CPU_KERNEL(argmax_fwd)
TP_CPU_KERNEL(logsumexp_fwd)
TP_CPU_KERNEL(logsumexp_bwd)
