/* moments.c - var, std and norms over any set of axes (reducer.h).
 *
 * Variances are summed about the mean of their block's terms, and blocks are joined by
 *
 *     M = M_a + M_b + (mean_a - mean_b)^2 n_a n_b / (n_a + n_b)
 *
 * (Chan, Golub, LeVeque 1979), so a large mean cancels only within a block, before anything is
 * squared. */
#include "cpu/kit/real.h"
#include "cpu/kit/reducer.h"
#include "cpu/kit/statistics.h"
#include "cpu/kit/sums.h"
#include "cpu/kit/vector.h"
#include "tensor/kernel.h"

#define GRAIN (4 * TP_BLOCK)

static inline double option(const tp_call *c)
{
    return ((const tp_reduce_attr *)c->attr)->k;
}

/* ---- var and std: the state is n, mean, M ---- */

/* Adds b's terms; `step` doubles separate a's numbers. */
static inline void add_moments(double *a, int64_t step, double n, double mean, double M)
{
    const double all = a[0] + n, d = mean - a[step];
    if (n == 0) return;
    a[2 * step] += M + d * d * (a[0] * n / all);
    a[step] += d * (n / all);
    a[0] = all;
}

/* The same for n terms with stride `apart`, whose squares leave the range of real. */
static void add_terms(double *s, int64_t step, const real *x, int64_t apart, int64_t n)
{
    double mean = 0, M = 0, off = 0;
    bool any = false;
    for (int64_t i = 0; i < n; i++) mean += (double)x[i * apart] / (double)n;
    for (int64_t i = 0; i < n; i++) {
        const double d = (double)x[i * apart] - mean;
        any |= d != 0;
        off += d / (double)n;
        M += d * d;
    }
    /* In f64 the squares may vanish: a deviation must not become 0. */
    if (any && M < 0x1p-1000) M = NAN;
    add_moments(s, step, (double)n, mean + off, M - off * off * (double)n);
}

static void var_row(const tp_call *c, const void *p, int64_t n, int64_t at, double *s)
{
    const real *x = p;
    (void)c, (void)at;
    for (int64_t begin = 0; begin < n; begin += REDUCER_TERMS) {
        const int64_t end = tp__least(begin + REDUCER_TERMS, n);
        const double terms = (double)(end - begin);
        const real mean = sum_of(x + begin, end - begin) / (real)(end - begin);
        real first = 0, second = 0;
#pragma omp simd reduction(+ : first, second)
        for (int64_t i = begin; i < end; i++) {
            const real d = x[i] - mean;
            first += d; /* not 0, because mean is rounded */
            second += d * d;
        }
        if (!are_squares_exact(second)) {
            add_terms(s, 1, x + begin, 1, end - begin);
            continue;
        }
        const double off = (double)first / terms;
        add_moments(s, 1, terms, (double)mean + off, (double)second - off * (double)first);
    }
}

static void var_columns(const tp_call *c, const void *p, int64_t step, int64_t rows, int64_t n,
                        int64_t at, double *s)
{
    const real *x = p;
    real mean[REDUCER_WIDTH], first[REDUCER_WIDTH], second[REDUCER_WIDTH];
    (void)c, (void)at;
    for (; rows > 0; rows -= REDUCER_ROWS, x += REDUCER_ROWS * step) {
        const int64_t some = tp__least(rows, REDUCER_ROWS);
        const real terms = (real)some;
        for (int64_t j = 0; j < n; j++) mean[j] = first[j] = second[j] = 0;
        for (int64_t d = 0; d < some; d++)
            for (int64_t j = 0; j < n; j++) mean[j] += x[d * step + j];
        for (int64_t j = 0; j < n; j++) mean[j] /= terms;
        for (int64_t d = 0; d < some; d++)
            for (int64_t j = 0; j < n; j++) {
                const real v = x[d * step + j] - mean[j];
                first[j] += v;
                second[j] += v * v;
            }
        int plain = 1;
        for (int64_t j = 0; j < n; j++) plain &= are_squares_exact(second[j]);
        for (int64_t j = 0; j < n; j++) {
            if (!plain && !are_squares_exact(second[j])) {
                add_terms(s + j, n, x + j, step, some);
                continue;
            }
            const double off = (double)(first[j] / terms);
            add_moments(s + j, n, (double)terms, (double)mean[j] + off,
                        (double)second[j] - off * (double)first[j]);
        }
    }
}

static void var_join(double *s, const double *t, int64_t n)
{
    for (int64_t j = 0; j < n; j++) add_moments(s + j, n, t[j], t[n + j], t[2 * n + j]);
}

/* n - correction, at least 0 */
static inline double freedom(double n, double correction)
{
    return n > correction ? n - correction : 0;
}

static void store(const tp_call *c, const double *s, int64_t n, int64_t i, bool root)
{
    real *y = (real *)c->y[0].data + i, *mean = (real *)c->y[1].data + i;
    for (int64_t j = 0; j < n; j++) {
        const double var = s[2 * n + j] / freedom(s[j], option(c));
        y[j] = (real)(root ? sqrt(var) : var);
        mean[j] = (real)s[n + j];
    }
}

static void var_finish(const tp_call *c, const double *s, int64_t n, int64_t i)
{
    store(c, s, n, i, false);
}

static void std_finish(const tp_call *c, const double *s, int64_t n, int64_t i)
{
    store(c, s, n, i, true);
}

static const reducer of_var = { 3, { 0 }, var_row, var_columns, var_join, var_finish, NULL };
static const reducer of_std = { 3, { 0 }, var_row, var_columns, var_join, std_finish, NULL };

/* With a negative correction an empty input would not give 0 / 0. */
static tp_code moments(const tp_call *c, const reducer *r)
{
    if (c->x[0].numel > 0) return reduce(c, r);
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < c->y[0].numel; i++) ((real *)c->y[k].data)[i] = (real)NAN;
    return TP_OK;
}

static tp_code var_fwd(const tp_call *c)
{
    return moments(c, &of_var);
}

static tp_code std_fwd(const tp_call *c)
{
    return moments(c, &of_std);
}

/* dx = k (x - mean): var has k = 2 dy / (n - correction), std k = dy / (y (n - correction)). */
TP_INLINE void moments_dx(const tp_call *c, int64_t begin, int64_t end, bool root)
{
    const tp_view b = reduced(c);
    const tp_bcast p = tp__bcast(&c->x[0], &b);
    const int64_t results = c->dy[0].numel;
    const double terms = (double)(c->x[0].numel / (results ? results : 1));
    const real scale = (real)((root ? 1 : 2) / freedom(terms, option(c)));
    for (tp_piece s = tp__piece(&p, begin, end); s.n > 0; tp__next(&p, &s, end)) {
        const real *restrict x = (const real *)c->x[0].data + s.a;
        const real *restrict mean = (const real *)c->y[1].data + s.b;
        const real *restrict dy = (const real *)c->dy[0].data + s.b;
        const real *restrict y = root ? (const real *)c->y[0].data + s.b : dy;
        real *restrict dx = (real *)c->dx[0].data + s.a;
        if (p.one) {
            const real k = root ? (y[0] == 0 ? 0 : scale * dy[0] / y[0]) : scale * dy[0],
                       m = mean[0];
            for (int64_t i = 0; i < s.n; i++) dx[i] = k * (x[i] - m);
        } else {
            for (int64_t i = 0; i < s.n; i++) {
                const real k = root ? (y[i] == 0 ? 0 : scale * dy[i] / y[i]) : scale * dy[i];
                dx[i] = k * (x[i] - mean[i]);
            }
        }
    }
}

static void var_dx(const tp_call *c, int64_t begin, int64_t end)
{
    moments_dx(c, begin, end, false);
}

static void std_dx(const tp_call *c, int64_t begin, int64_t end)
{
    moments_dx(c, begin, end, true);
}

static tp_code var_bwd(const tp_call *c)
{
    if (c->dx[0].data) tp__for(c, c->dx[0].numel, GRAIN, var_dx);
    return TP_OK;
}

static tp_code std_bwd(const tp_call *c)
{
    if (c->dx[0].data) tp__for(c, c->dx[0].numel, GRAIN, std_dx);
    return TP_OK;
}

/* ---- norms ---- */

/* The state is the sum of (|x| / scale)^p, the scale (1 unless powers leave the range) and p; or
 * the largest |x| and its count. */

enum { ZERO, ONE, TWO, GENERAL };

#if TP_REAL == 64
#define r_power pow
#else
/* v >= 0 */
TP_INLINE float r_power(float v, float p)
{
    return r_exp(p * r_log(v));
}
#endif

TP_INLINE real term(real x, int kind, real p)
{
    const real v = r_abs(x);
    return kind == ZERO ? (real)(x != 0) : kind == ONE ? v : kind == TWO ? x * x : r_power(v, p);
}

/* Adds the sum of other terms to a state, whose numbers are `step` doubles apart. p matters if a
 * scale is not 1. */
static inline void add_powers(double *s, int64_t step, double sum, double scale, double p)
{
    if (p > 0) s[2 * step] = p;
    p = s[2 * step];
    if (sum == 0) return;
    if (s[0] == 0 || s[step] == scale) {
        s[0] += sum;
        s[step] = scale;
        return;
    }
    const double most = s[step] > scale ? s[step] : scale;
    s[0] = s[0] * pow(s[step] / most, p) + sum * pow(scale / most, p);
    s[step] = most;
}

/* Adds n terms with stride `apart`, whose powers leave the range of real. */
static void add_scaled(double *s, int64_t step, const real *x, int64_t apart, int64_t n, double p)
{
    const double most = largest_magnitude(x, apart, n);
    double sum = 0;
    if (most == 0) return;
    for (int64_t i = 0; i < n; i++) sum += pow(fabs((double)x[i * apart]) / most, p);
    if (most < INFINITY)
        add_powers(s, step, sum, most, p);
    else
        s[0] += most; /* infinite, or NaN */
}

TP_INLINE void norm_row(const real *x, int64_t n, double *s, int kind, real p, double power)
{
    for (int64_t begin = 0; begin < n; begin += REDUCER_TERMS) {
        const int64_t end = tp__least(begin + REDUCER_TERMS, n);
        real sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = begin; i < end; i++) sum += term(x[i], kind, p);
        if (kind < TWO || (are_squares_exact(sum) && s[1] == 1))
            s[0] += (double)sum;
        else if (are_squares_exact(sum))
            add_powers(s, 1, (double)sum, 1, power);
        else
            add_scaled(s, 1, x + begin, 1, end - begin, power);
    }
}

TP_INLINE void norm_columns(const real *x, int64_t step, int64_t rows, int64_t n, double *s,
                            int kind, real p, double power)
{
    real sum[REDUCER_WIDTH];
    for (; rows > 0; rows -= REDUCER_ROWS, x += REDUCER_ROWS * step) {
        memset(sum, 0, (size_t)n * sizeof *sum);
        for (int64_t d = 0; d < tp__least(rows, REDUCER_ROWS); d++)
            for (int64_t j = 0; j < n; j++) sum[j] += term(x[d * step + j], kind, p);
        int plain = 1;
        for (int64_t j = 0; kind >= TWO && j < n; j++)
            plain &= are_squares_exact(sum[j]) & (s[n + j] == 1);
        for (int64_t j = 0; plain && j < n; j++) s[j] += (double)sum[j];
        for (int64_t j = 0; !plain && j < n; j++)
            if (are_squares_exact(sum[j]))
                add_powers(s + j, n, (double)sum[j], 1, power);
            else
                add_scaled(s + j, n, x + j, step, tp__least(rows, REDUCER_ROWS), power);
    }
}

static inline int kind_of(double p)
{
    return p == 0 ? ZERO : p == 1 ? ONE : p == 2 ? TWO : GENERAL;
}

static void power_row(const tp_call *c, const void *x, int64_t n, int64_t at, double *s)
{
    const double p = option(c);
    (void)at;
    switch (kind_of(p)) {
    case ZERO: norm_row(x, n, s, ZERO, 0, p); break;
    case ONE: norm_row(x, n, s, ONE, 0, p); break;
    case TWO: norm_row(x, n, s, TWO, 0, p); break;
    default: norm_row(x, n, s, GENERAL, (real)p, p); break;
    }
}

static void power_columns(const tp_call *c, const void *x, int64_t step, int64_t rows, int64_t n,
                          int64_t at, double *s)
{
    const double p = option(c);
    (void)at;
    switch (kind_of(p)) {
    case ZERO: norm_columns(x, step, rows, n, s, ZERO, 0, p); break;
    case ONE: norm_columns(x, step, rows, n, s, ONE, 0, p); break;
    case TWO: norm_columns(x, step, rows, n, s, TWO, 0, p); break;
    default: norm_columns(x, step, rows, n, s, GENERAL, (real)p, p); break;
    }
}

static void power_join(double *s, const double *t, int64_t n)
{
    for (int64_t j = 0; j < n; j++) add_powers(s + j, n, t[j], t[n + j], t[2 * n + j]);
}

static void power_finish(const tp_call *c, const double *s, int64_t n, int64_t i)
{
    real *y = (real *)c->y[0].data + i;
    const double p = option(c);
    for (int64_t j = 0; j < n; j++)
        y[j] =
            (real)(p == 0 || p == 1 ? s[j] : s[n + j] * (p == 2 ? sqrt(s[j]) : pow(s[j], 1 / p)));
}

/* count elements have magnitude v. */
static inline void add_largest(double *s, int64_t step, double v, double count)
{
    if (v > s[0] || (v != v && s[0] == s[0])) {
        s[0] = v;
        s[step] = count;
    } else if (v == s[0]) {
        s[step] += count;
    }
}

static void largest_row(const tp_call *c, const void *p, int64_t n, int64_t at, double *s)
{
    const real *x = p;
    real most = 0, count = 0;
    int nan = 0;
    (void)c, (void)at;
#pragma omp simd reduction(max : most) reduction(| : nan)
    for (int64_t i = 0; i < n; i++) {
        most = r_abs(x[i]) > most ? r_abs(x[i]) : most;
        nan |= x[i] != x[i];
    }
    if (!nan && (double)most < s[0]) return;
#pragma omp simd reduction(+ : count)
    for (int64_t i = 0; i < n; i++) count += r_abs(x[i]) == most ? 1 : 0;
    add_largest(s, 1, nan ? (double)NAN : (double)most, (double)count);
}

static void largest_columns(const tp_call *c, const void *p, int64_t step, int64_t rows, int64_t n,
                            int64_t at, double *s)
{
    const real *x = p;
    real most[REDUCER_WIDTH], count[REDUCER_WIDTH];
    (void)c, (void)at;
    for (; rows > 0; rows -= REDUCER_ROWS, x += REDUCER_ROWS * step) {
        for (int64_t j = 0; j < n; j++) most[j] = count[j] = 0;
        for (int64_t d = 0; d < tp__least(rows, REDUCER_ROWS); d++)
            for (int64_t j = 0; j < n; j++) {
                const real v = r_abs(x[d * step + j]);
                const bool take = (v > most[j]) | (v != v);
                count[j] = take ? 1 : count[j] + (v == most[j] ? 1 : 0);
                most[j] = take ? v : most[j];
            }
        for (int64_t j = 0; j < n; j++) add_largest(s + j, n, (double)most[j], (double)count[j]);
    }
}

static void largest_join(double *s, const double *t, int64_t n)
{
    for (int64_t j = 0; j < n; j++) add_largest(s + j, n, t[j], t[n + j]);
}

static void largest_finish(const tp_call *c, const double *s, int64_t n, int64_t i)
{
    for (int k = 0; k < 2; k++)
        for (int64_t j = 0; j < n; j++) ((real *)c->y[k].data)[i + j] = (real)s[k * n + j];
}

static const reducer of_powers = { 3,          { 0, 1, 0 },  power_row, power_columns,
                                   power_join, power_finish, NULL };
static const reducer of_magnitudes = {
    2, { 0 }, largest_row, largest_columns, largest_join, largest_finish, NULL
};

static tp_code norm_fwd(const tp_call *c)
{
    return reduce(c, isinf(option(c)) ? &of_magnitudes : &of_powers);
}

TP_INLINE real sign(real x)
{
    return (real)((x > 0) - (x < 0));
}

/* dx = dy sign(x) (|x| / y)^(p - 1); ties: the number of elements of the largest magnitude. */
TP_INLINE real norm_term(real x, real y, real ties, real dy, int kind, real p)
{
    switch (kind) {
    case ZERO: return 0;
    case ONE: return dy * sign(x);
    case TWO: return y == 0 ? 0 : dy / y * x;
    case GENERAL: return x == 0 || y == 0 ? 0 : dy * sign(x) * r_power(r_abs(x) / y, p - 1);
    default: return r_abs(x) == y ? dy / ties * sign(x) : 0;
    }
}

TP_INLINE void norm_dx(const tp_call *c, int64_t begin, int64_t end, int kind)
{
    const tp_view b = reduced(c);
    const tp_bcast p = tp__bcast(&c->x[0], &b);
    const real power = (real)option(c);
    for (tp_piece s = tp__piece(&p, begin, end); s.n > 0; tp__next(&p, &s, end)) {
        const real *restrict x = (const real *)c->x[0].data + s.a;
        const real *restrict y = (const real *)c->y[0].data + s.b;
        const real *restrict ties = kind > GENERAL ? (const real *)c->y[1].data + s.b : y;
        const real *restrict dy = (const real *)c->dy[0].data + s.b;
        real *restrict dx = (real *)c->dx[0].data + s.a;
        if (p.one) {
            const real v = y[0], t = ties[0], g = dy[0];
            for (int64_t i = 0; i < s.n; i++) dx[i] = norm_term(x[i], v, t, g, kind, power);
        } else {
            for (int64_t i = 0; i < s.n; i++)
                dx[i] = norm_term(x[i], y[i], ties[i], dy[i], kind, power);
        }
    }
}

static void norm_dx_range(const tp_call *c, int64_t begin, int64_t end)
{
    const double p = option(c);
    switch (isinf(p) ? GENERAL + 1 : kind_of(p)) {
    case ZERO: norm_dx(c, begin, end, ZERO); break;
    case ONE: norm_dx(c, begin, end, ONE); break;
    case TWO: norm_dx(c, begin, end, TWO); break;
    case GENERAL: norm_dx(c, begin, end, GENERAL); break;
    default: norm_dx(c, begin, end, GENERAL + 1); break;
    }
}

static tp_code norm_bwd(const tp_call *c)
{
    if (c->dx[0].data) tp__for(c, c->dx[0].numel, GRAIN, norm_dx_range);
    return TP_OK;
}

TP_CPU_KERNEL(var_fwd)
TP_CPU_KERNEL(var_bwd)
TP_CPU_KERNEL(std_fwd)
TP_CPU_KERNEL(std_bwd)
TP_CPU_KERNEL(norm_fwd)
TP_CPU_KERNEL(norm_bwd)
