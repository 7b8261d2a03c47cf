/* extreme.c - max, min and their indices over any set of axes (reducer.h).
 *
 * The minimum of x is minus the maximum of -x. NaN wins over every number; of equal numbers the
 * first wins. A state is the number and its term's index, -1 if none yet. */
#include <float.h>

#include "cpu/kit/real.h"
#include "cpu/kit/reducer.h"
#include "cpu/kit/vector.h"
#include "tensor/kernel.h"

#define GRAIN (4 * TP_BLOCK)

/* An index within some rows, as wide as a number so that both fill equal lanes. */
#if TP_REAL == 64
typedef int64_t lane;
#else
typedef int32_t lane;
#endif
enum { ROWS = 1 << 30 };

/* t, whose index is not -1, follows s. */
static inline bool beats(double t, double s, double at)
{
    return at < 0 || t > s || (t != t && s == s);
}

/* Index of the first largest of n >= 1 numbers, by a plain loop; NaN is larger than all. */
TP_INLINE int64_t plain_first_largest(const real *x, int64_t n, bool least)
{
    int64_t at = 0;
    for (int64_t i = 1; i < n; i++) {
        const bool more = least ? x[i] < x[at] : x[i] > x[at];
        if (x[at] == x[at] && (more || x[i] != x[i])) at = i;
    }
    return at;
}

/* The same by vectors: the maximum block by block, then its index in its first block. */
TP_INLINE int64_t first_largest(const real *x, int64_t n, bool least)
{
    enum { BLOCK = 256 };
    real largest = 0;
    int64_t from = 0;
    for (int64_t b = 0; b < n; b += BLOCK) {
        const int64_t end = tp__least(b + BLOCK, n);
        real most = least ? -x[b] : x[b];
        int nan = 0;
#pragma omp simd reduction(max : most) reduction(| : nan)
        for (int64_t i = b; i < end; i++) {
            const real v = least ? -x[i] : x[i];
            most = v > most ? v : most;
            nan |= v != v;
        }
        if (nan) return b + plain_first_largest(x + b, end - b, least);
        if (b > 0 && !(most > largest)) continue;
        largest = most;
        from = b;
    }
    const real wanted = least ? -largest : largest;
    const lane some = (lane)tp__least(BLOCK, n - from);
    lane at = BLOCK;
#pragma omp simd reduction(min : at)
    for (lane i = 0; i < some; i++) {
        const lane found = x[from + i] == wanted ? i : BLOCK;
        at = found < at ? found : at;
    }
    /* clang's reductions start from the least finite number and miss -infinity */
    return at < BLOCK ? from + at : plain_first_largest(x, n, least);
}

TP_INLINE void row(const real *x, int64_t n, int64_t at, double *s, bool least)
{
    const int64_t i = first_largest(x, n, least);
    const double v = (double)(least ? -x[i] : x[i]);
    if (!beats(v, s[0], s[1])) return;
    s[0] = v;
    s[1] = (double)(at + i);
}

TP_INLINE void some_columns(const real *x, int64_t step, int64_t rows, int64_t n, int64_t at,
                            double *s, bool least)
{
    real most[REDUCER_WIDTH];
    lane found[REDUCER_WIDTH];
    for (int64_t j = 0; j < n; j++) most[j] = least ? -x[j] : x[j];
    memset(found, 0, (size_t)n * sizeof *found);
    for (int64_t d = 1; d < rows; d++) {
        const real *from = x + d * step;
        for (int64_t j = 0; j < n; j++) {
            const real v = least ? -from[j] : from[j];
            const bool take = !(v <= most[j]) & (most[j] == most[j]);
            most[j] = take ? v : most[j];
            found[j] = take ? (lane)d : found[j];
        }
    }
    for (int64_t j = 0; j < n; j++) {
        if (!beats((double)most[j], s[j], s[n + j])) continue;
        s[j] = (double)most[j];
        s[n + j] = (double)(at + found[j]);
    }
}

TP_INLINE void columns(const real *x, int64_t step, int64_t rows, int64_t n, int64_t at, double *s,
                       bool least)
{
    for (int64_t d = 0; d < rows; d += ROWS)
        some_columns(x + d * step, step, tp__least(ROWS, rows - d), n, at + d, s, least);
}

/* argmax and argmin have only indices. */
TP_INLINE void whole_rows(const tp_call *c, const real *x, int64_t rows, int64_t n, int64_t i,
                          bool least)
{
    int64_t *at = (int64_t *)c->y[c->ny - 1].data + i;
    real *y = c->ny == 1 ? NULL : (real *)c->y[0].data + i;
    for (int64_t r = 0; r < rows; r++, x += n) {
        at[r] = first_largest(x, n, least);
        if (y) y[r] = x[at[r]];
    }
}

static void max_rows(const tp_call *c, const void *x, int64_t rows, int64_t n, int64_t i)
{
    whole_rows(c, x, rows, n, i, false);
}

static void min_rows(const tp_call *c, const void *x, int64_t rows, int64_t n, int64_t i)
{
    whole_rows(c, x, rows, n, i, true);
}

static void max_row(const tp_call *c, const void *x, int64_t n, int64_t at, double *s)
{
    (void)c;
    row(x, n, at, s, false);
}

static void min_row(const tp_call *c, const void *x, int64_t n, int64_t at, double *s)
{
    (void)c;
    row(x, n, at, s, true);
}

static void max_columns(const tp_call *c, const void *x, int64_t step, int64_t rows, int64_t n,
                        int64_t at, double *s)
{
    (void)c;
    columns(x, step, rows, n, at, s, false);
}

static void min_columns(const tp_call *c, const void *x, int64_t step, int64_t rows, int64_t n,
                        int64_t at, double *s)
{
    (void)c;
    columns(x, step, rows, n, at, s, true);
}

static void join(double *s, const double *t, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        if (t[n + j] < 0 || !beats(t[j], s[j], s[n + j])) continue;
        s[j] = t[j];
        s[n + j] = t[n + j];
    }
}

static inline void store(const tp_call *c, const double *s, int64_t n, int64_t i, double sign)
{
    int64_t *at = (int64_t *)c->y[c->ny - 1].data + i;
    for (int64_t j = 0; j < n; j++) at[j] = (int64_t)s[n + j];
    if (c->ny == 1) return;
    real *y = (real *)c->y[0].data + i;
    for (int64_t j = 0; j < n; j++) y[j] = (real)(sign * s[j]);
}

static void max_finish(const tp_call *c, const double *s, int64_t n, int64_t i)
{
    store(c, s, n, i, 1);
}

static void min_finish(const tp_call *c, const double *s, int64_t n, int64_t i)
{
    store(c, s, n, i, -1);
}

static const reducer largest_of = {
    2, { 0, -1 }, max_row, max_columns, join, max_finish, max_rows
};
static const reducer smallest_of = {
    2, { 0, -1 }, min_row, min_columns, join, min_finish, min_rows
};

static tp_code max_fwd(const tp_call *c)
{
    return reduce(c, &largest_of);
}

static tp_code argmax_fwd(const tp_call *c)
{
    return reduce(c, &largest_of);
}

static tp_code min_fwd(const tp_call *c)
{
    return reduce(c, &smallest_of);
}

static tp_code argmin_fwd(const tp_call *c)
{
    return reduce(c, &smallest_of);
}

/* ---- backward: dy goes to the elements at the indices ---- */

/* Rows [begin, end) of results: n results each, or one. */
static void scatter(const tp_call *c, const tp_bcast *p, int64_t begin, int64_t end)
{
    const int64_t *at = c->y[1].data, n = p->one ? 1 : p->n;
    const real *dy = c->dy[0].data;
    real *dx = c->dx[0].data;
    for (int64_t r = begin; r < end; r++) {
        const int64_t kept = tp__axes_at(&p->kept, r);
        for (int64_t i = r * n; i < r * n + n; i++) {
            const int64_t again = p->one ? at[i] / p->n : at[i];
            const int64_t rest = p->one ? at[i] - again * p->n : i - r * n;
            dx[kept + tp__axes_at(&p->again, again) + rest] = dy[i];
        }
    }
}

static inline tp_bcast meeting(const tp_call *c)
{
    const tp_view b = reduced(c);
    return tp__bcast(&c->x[0], &b);
}

static void clear_dx(const tp_call *c, int64_t begin, int64_t end)
{
    memset((real *)c->dx[0].data + begin, 0, (size_t)(end - begin) * sizeof(real));
}

static void scatter_dx(const tp_call *c, int64_t begin, int64_t end)
{
    const tp_bcast p = meeting(c);
    scatter(c, &p, begin, end);
}

/* Rows of results with contiguous elements of x: each range is cleared while it is in cache. */
static void slabs_dx(const tp_call *c, int64_t begin, int64_t end)
{
    const tp_bcast p = meeting(c);
    const int64_t size = p.n * p.again.count;
    clear_dx(c, begin * size, end * size);
    scatter(c, &p, begin, end);
}

static tp_code max_bwd(const tp_call *c)
{
    const tp_bcast p = meeting(c);
    if (!c->dx[0].data || c->dx[0].numel == 0) return TP_OK;
    if (p.kept.n <= 1 && (p.kept.n == 0 || p.kept.stride[0] == p.n * p.again.count)) {
        tp__for(c, p.kept.count, GRAIN / (p.n * p.again.count + 1), slabs_dx);
    } else {
        tp__for(c, c->dx[0].numel, GRAIN, clear_dx);
        tp__for(c, p.kept.count, GRAIN / (p.n * p.again.count + 1), scatter_dx);
    }
    return TP_OK;
}

TP_CPU_KERNEL(max_fwd)
TP_CPU_KERNEL(max_bwd)
TP_CPU_KERNEL(min_fwd)
TP_CPU_KERNEL(argmax_fwd)
TP_CPU_KERNEL(argmin_fwd)
