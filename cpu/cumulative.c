/* cumulative.c - running sums and products along an axis, and their gradients.
 *
 *     cumsum     s = s + x_i              y_i = s
 *     its dx     s = s + dy_i             dx_i = s                         from the end
 *     cumprod    s = x_i s                y_i = s
 *     its dx     s = x_i (dy_i + s)       dx_i = y_(i-1) (dy_i + s)        from the end
 *
 * Lanes of products that leave the range on the way are recomputed with exponents. The last formula
 * never divides: it is exact where elements are 0, and linear in the length. s is a double.
 *
 * Each step waits for the one before, so several tiles advance together: WIDTH if adjacent,
 * otherwise so few that their lines share a set of the L1 cache (8 ways) even if rows and tensors
 * are multiples of a page apart. If there are few lanes, they are cut into tiles: a first pass
 * finds s -> b + a s of each tile, and the second begins with the s that reaches it. */
#include <float.h>

#include "cpu/kit/real.h"
#include "cpu/kit/vector.h"
#include "tensor/geometry/scan.h"
#include "tensor/kernel.h"

enum { MAX_CHAINS = 4, WIDTH = 64, TILE = 1024, GRAIN = 1 << 15, SPAN = 64 };

typedef enum kind { SUM, PRODUCT, PRODUCT_GRAD } kind;

/* v 2^e, v near 1 */
typedef struct wide {
    double v;
    int64_t e;
} wide;

typedef struct scan {
    tp_scan g;
    const real *x, *y, *dy; /* SUM reads only x */
    real *to;
    double *a, *b; /* of each tile, [outer * tiles * inner]; NULL: uncut */
    bool totals;   /* the first pass */
    wide *kept;    /* PRODUCT_GRAD: dim / SPAN + 1 per thread */
} scan;

/* Tiles that are not adjacent: a step accesses a line of two tensors for each, or of four. */
TP_INLINE int chains(kind k)
{
    return k == PRODUCT_GRAD ? 2 : MAX_CHAINS;
}

/* n tiles that advance together; their elements begin at at[k] or, if adjacent, at at[0] + k. */
typedef struct group {
    int n;
    int64_t at[MAX_CHAINS];
    double a[WIDTH], b[WIDTH];
} group;

/* Runs steps begin .. end of each tile. edge: PRODUCT_GRAD's last elements, with none before. */
TP_INLINE void advance(const scan *s, group *g, int n, bool adjacent, int64_t begin, int64_t end,
                       kind k, bool totals, bool edge)
{
    const int64_t inner = s->g.inner, step = s->g.back ? -inner : inner;
    const real *restrict x = s->x, *restrict y = s->y, *restrict dy = s->dy;
    real *restrict to = s->to;
    double *restrict a = g->a, *restrict b = g->b;
    for (int64_t d = begin; d < end; d++)
        for (int j = 0; j < n; j++) {
            const int64_t i = (adjacent ? g->at[0] + j : g->at[j]) + d * step;
            if (k == PRODUCT_GRAD) {
                const double sum = (double)dy[i] + b[j];
                if (!totals) to[i] = (real)(edge ? sum : (double)y[i - inner] * sum);
                if (totals) a[j] *= (double)x[i];
                b[j] = (double)x[i] * sum;
            } else {
                b[j] = k == SUM ? b[j] + (double)x[i] : b[j] * (double)x[i];
                if (!totals) to[i] = (real)b[j];
            }
        }
}

/* Tiles from `number` on: those of an adjacent group have equal lengths. */
TP_INLINE void run(const scan *s, int64_t number, int n, bool adjacent, kind k, bool totals)
{
    group g = { .n = n };
    int64_t least = s->g.tile;
    tp_scan_part p[MAX_CHAINS];
    for (int j = 0; j < (adjacent ? 1 : n); j++) {
        p[j] = tp__scan_part(&s->g, number + j);
        g.at[j] = p[j].at;
        if (k == PRODUCT_GRAD && p[j].last && !totals) p[j].steps--; /* the edge */
        least = p[j].steps < least ? p[j].steps : least;
    }
    for (int j = 0; j < n; j++) {
        g.a[j] = 1;
        g.b[j] = !totals && s->b ? s->b[number + j] : k == PRODUCT ? 1 : 0;
    }
    if (adjacent || n < chains(k))
        advance(s, &g, n, adjacent, 0, least, k, totals, false);
    else
        advance(s, &g, chains(k), false, 0, least, k, totals, false);
    if (adjacent && k == PRODUCT_GRAD && p[0].last && !totals)
        advance(s, &g, n, true, least, least + 1, k, totals, true);
    for (int j = 0; !adjacent && j < n; j++) {
        group one = { .n = 1, .at = { g.at[j] }, .a = { g.a[j] }, .b = { g.b[j] } };
        advance(s, &one, 1, true, least, p[j].steps, k, totals, false);
        if (k == PRODUCT_GRAD && p[j].last && !totals)
            advance(s, &one, 1, true, p[j].steps, p[j].steps + 1, k, totals, true);
        g.a[j] = one.a[0];
        g.b[j] = one.b[0];
    }
    for (int j = 0; totals && j < n; j++) {
        s->a[number + j] = g.a[j];
        s->b[number + j] = g.b[j];
    }
}

/* Groups of a pass: chains(k) tiles each, or WIDTH adjacent lanes of one tile. */
static bool is_wide(const scan *s)
{
    return s->g.inner >= 4 * MAX_CHAINS;
}

static int64_t pieces(const scan *s)
{
    return (s->g.inner + WIDTH - 1) / WIDTH;
}

static int64_t groups(const scan *s, kind k)
{
    const int64_t rows = s->g.outer * s->g.tiles;
    return is_wide(s) ? rows * pieces(s) : (rows * s->g.inner + chains(k) - 1) / chains(k);
}

TP_INLINE void run_groups(const scan *s, int64_t begin, int64_t end, kind k, bool totals)
{
    const int64_t tiles = s->g.outer * s->g.tiles * s->g.inner, parts = pieces(s);
    for (int64_t i = begin; i < end; i++) {
        if (is_wide(s)) {
            const int64_t row = i / parts, j = (i - row * parts) * WIDTH, rest = s->g.inner - j;
            run(s, row * s->g.inner + j, (int)(rest < WIDTH ? rest : WIDTH), true, k, totals);
        } else {
            const int64_t first = i * chains(k), rest = tiles - first;
            run(s, first, (int)(rest < chains(k) ? rest : chains(k)), false, k, totals);
        }
    }
}

#define RANGE(name, k)                                                                             \
    static void name(const void *ctx, int64_t begin, int64_t end, int thread)                      \
    {                                                                                              \
        const scan *s = ctx;                                                                       \
        (void)thread;                                                                              \
        if (s->totals)                                                                             \
            run_groups(s, begin, end, k, true);                                                    \
        else                                                                                       \
            run_groups(s, begin, end, k, false);                                                   \
    }
RANGE(sum_range, SUM)
RANGE(product_range, PRODUCT)
RANGE(product_grad_range, PRODUCT_GRAD)

/* Replaces each tile's b by the s that reaches it. */
static void carry(const scan *s, kind k)
{
    const int64_t tiles = s->g.tiles, inner = s->g.inner;
    for (int64_t lane = 0; lane < s->g.outer * inner; lane++) {
        double at = k == PRODUCT ? 1 : 0;
        for (int64_t t = 0; t < tiles; t++) {
            const int64_t i = (lane / inner * tiles + t) * inner + lane % inner;
            const double b = s->b[i];
            s->b[i] = at;
            at = k == SUM ? at + b : k == PRODUCT ? at * b : b + s->a[i] * at;
        }
    }
}

/* ---- lanes that leave the range ---- */

/* Within this power of two of 1, either way, v stays unchanged. */
#define NEAR 0x1p100

/* 2^e, e from -1022 to 1023 */
static inline double power(int64_t e)
{
    const uint64_t bits = (uint64_t)(1023 + e) << 52;
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static inline wide wide_of(double v, int64_t e)
{
    int more = 0;
    if (fabs(v) > 1 / NEAR && fabs(v) < NEAR) return (wide){ v, e };
    if (isfinite(v)) v = frexp(v, &more);
    return (wide){ v, v == 0 ? 0 : e + more };
}

/* a x: multiplies the mantissas, which cannot leave the range, and adds the exponents. */
static inline wide wide_times(wide a, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const int64_t e = (int64_t)(bits >> 52 & 2047);
    if (e == 0 || e == 2047) { /* 0, subnormal, infinite, NaN */
        const wide b = wide_of(x, 0);
        return wide_of(a.v * b.v, a.e + b.e);
    }
    bits = (bits & ~(UINT64_C(2047) << 52)) | UINT64_C(1023) << 52;
    memcpy(&x, &bits, sizeof x);
    return wide_of(a.v * x, a.e + e - 1023);
}

static wide wide_sum(wide a, wide b)
{
    if (a.v == 0 || b.v == 0) return a.v == 0 ? b : a;
    const wide large = a.e < b.e ? b : a, small = a.e < b.e ? a : b;
    const int64_t apart = large.e - small.e;
    const double k = apart < 300 ? power(-apart) : isfinite(small.v) ? 0 : 1;
    return wide_of(large.v + small.v * k, large.e);
}

static inline real narrow(wide a)
{
    if (a.e > -800 && a.e < 800) return (real)(a.v * power(a.e));
    return (real)ldexp(a.v, a.e > 9999 ? 9999 : a.e < -9999 ? -9999 : (int)a.e);
}

/* y of a lane of n elements, `step` apart. */
static void lane_product(const real *x, real *y, int64_t n, int64_t step)
{
    wide p = wide_of(1, 0);
    for (int64_t i = 0; i < n; i++) {
        p = wide_times(p, (double)x[i * step]);
        y[i * step] = narrow(p);
    }
}

/* Its dx = y_(i-1) (dy_i + s), s = x_i (dy_i + s) from the end. Keeps the product before every
 * SPAN-th element, and recomputes those of each span from it. */
static void lane_gradient(const real *x, const real *dy, real *dx, int64_t n, int64_t step,
                          wide *kept)
{
    wide p = wide_of(1, 0), s = { 0, 0 }, before[SPAN];
    for (int64_t i = 0; i < n; i++) {
        if (i % SPAN == 0) kept[i / SPAN] = p;
        p = wide_times(p, (double)x[i * step]);
    }
    for (int64_t k = (n - 1) / SPAN; k >= 0; k--) {
        const int64_t from = k * SPAN, m = n - from < SPAN ? n - from : SPAN;
        before[0] = kept[k];
        for (int64_t i = 1; i < m; i++)
            before[i] = wide_times(before[i - 1], (double)x[(from + i - 1) * step]);
        for (int64_t i = m - 1; i >= 0; i--) {
            const int64_t at = (from + i) * step;
            const wide sum = wide_sum(wide_of((double)dy[at], 0), s);
            dx[at] = narrow(wide_of(before[i].v * sum.v, before[i].e + sum.e));
            s = wide_times(sum, (double)x[at]);
        }
    }
}

static bool is_normal(double v)
{
    return fabs(v) >= DBL_MIN && fabs(v) <= DBL_MAX;
}

/* Do the products of a lane of f32 stay normal f64 numbers until a factor is 0? */
static bool fits_doubles(const real *x, int64_t n, int64_t step)
{
    double p = 1;
    for (int64_t i = 0; i < n; i++) {
        p *= (double)x[i * step];
        if (!is_normal(p)) return x[i * step] == 0;
    }
    return true;
}

/* lane_gradient in f64. False: a product or a sum left its range. */
static bool gradient_in_doubles(const real *x, const real *dy, real *dx, int64_t n, int64_t step,
                                wide *kept)
{
    double p = 1, s = 0, before[SPAN];
    for (int64_t i = 0; i < n; i++) {
        if (i % SPAN == 0) kept[i / SPAN].v = p;
        p *= (double)x[i * step];
        if (!is_normal(p) && !(p == 0 && (x[i * step] == 0 || kept[i / SPAN].v == 0))) return false;
    }
    for (int64_t k = (n - 1) / SPAN; k >= 0; k--) {
        const int64_t from = k * SPAN, m = n - from < SPAN ? n - from : SPAN;
        before[0] = kept[k].v;
        for (int64_t i = 1; i < m; i++)
            before[i] = before[i - 1] * (double)x[(from + i - 1) * step];
        for (int64_t i = m - 1; i >= 0; i--) {
            const int64_t at = (from + i) * step;
            const double sum = (double)dy[at] + s;
            dx[at] = (real)(before[i] * sum);
            s = (double)x[at] * sum;
            if (!is_normal(s) && !(s == 0 && (x[at] == 0 || sum == 0))) return false;
        }
    }
    return true;
}

/* Finds which of n <= WIDTH adjacent lanes have a product, from number `first` on, that left the
 * normal numbers before a factor was 0. */
static void find_odd(const scan *s, int64_t first, int64_t at, int n, bool odd[WIDTH])
{
    const real least = sizeof(real) == sizeof(float) ? (real)FLT_MIN : (real)DBL_MIN;
    const real most = sizeof(real) == sizeof(float) ? (real)FLT_MAX : (real)DBL_MAX;
    int zero[WIDTH] = { 0 }, found[WIDTH] = { 0 };
    at += first * s->g.inner;
    for (int64_t d = first; d < s->g.dim; d++, at += s->g.inner)
        for (int j = 0; j < n; j++) {
            const real y = r_abs(s->y[at + j]);
            zero[j] |= s->x[at + j] == 0;
            found[j] |= !((y >= least && y <= most) | ((y == 0) & zero[j]));
        }
    for (int j = 0; j < n; j++) odd[j] = found[j];
}

/* The same for one lane of adjacent elements; most have no odd element. */
static bool is_odd(const scan *s, int64_t first, int64_t at)
{
    const real least = sizeof(real) == sizeof(float) ? (real)FLT_MIN : (real)DBL_MIN;
    const real most = sizeof(real) == sizeof(float) ? (real)FLT_MAX : (real)DBL_MAX;
    const real *y = s->y + at;
    unsigned all = 1;
    bool odd[WIDTH];
#pragma omp simd reduction(& : all)
    for (int64_t d = first; d < s->g.dim; d++)
        all &= (r_abs(y[d]) >= least) & (r_abs(y[d]) <= most);
    if (all) return false;
    find_odd(s, first, at, 1, odd);
    return odd[0];
}

/* Recomputes lanes that left the range, in groups of up to WIDTH adjacent lanes. */
static void mend_range(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const scan *s = ctx;
    const int64_t inner = s->g.inner, dim = s->g.dim, parts = pieces(s);
    const bool single = sizeof(real) == sizeof(float);
    wide *kept = s->kept ? s->kept + thread * (dim / SPAN + 1) : NULL;
    for (int64_t i = begin; i < end; i++) {
        const int64_t row = i / parts, j = (i - row * parts) * WIDTH, at = row * dim * inner + j;
        const int n = inner - j < WIDTH ? (int)(inner - j) : WIDTH;
        bool odd[WIDTH];
        /* What left the range of f64 stays 0 or infinite. */
        const int64_t first = kept ? 0 : dim - 1;
        if (inner == 1)
            odd[0] = is_odd(s, first, at);
        else
            find_odd(s, first, at, n, odd);
        for (int k = 0; k < n; k++) {
            const real *x = s->x + at + k, *dy = kept ? s->dy + at + k : NULL;
            real *to = s->to + at + k;
            if (!odd[k]) continue;
            if (kept && !(single && gradient_in_doubles(x, dy, to, dim, inner, kept)))
                lane_gradient(x, dy, to, dim, inner, kept);
            if (!kept && !(single && s->g.tiles == 1 && fits_doubles(x, dim, inner)))
                lane_product(x, to, dim, inner);
        }
    }
}

/* Lanes that suffice for all threads are not cut. */
static tp_scan scan_of(const tp_call *c)
{
    tp_scan g = tp__scan(c, TILE);
    return g.outer * g.inner >= 64 ? tp__scan(c, INT64_MAX) : g;
}

/* Bytes of a and b. */
static size_t tile_bytes(const tp_scan *g)
{
    return g->tiles > 1 ? (size_t)(2 * g->outer * g->tiles * g->inner) * sizeof(double) : 0;
}

static tp_code scan_all(const tp_call *c, kind k, const real *x, const real *y, const real *dy,
                        real *to)
{
    typedef void (*scan_range)(const void *ctx, int64_t begin, int64_t end, int thread);
    static const scan_range range[] = { sum_range, product_range, product_grad_range };
    scan s = { .g = scan_of(c), .x = x, .y = y, .dy = dy, .to = to };
    const int64_t numel = s.g.outer * s.g.dim * s.g.inner;
    if (!to || numel == 0) return TP_OK;
    const int64_t n = groups(&s, k), grain = 1 + GRAIN / (1 + numel / n);
    if (s.g.tiles > 1) {
        s.a = c->work;
        s.b = s.a + s.g.outer * s.g.tiles * s.g.inner;
        s.totals = true;
        tp__parallel(c->dev, n, grain, range[k], &s);
        carry(&s, k);
        s.totals = false;
    }
    tp__parallel(c->dev, n, grain, range[k], &s);
    if (k == SUM) return TP_OK;
    if (k == PRODUCT) s.y = to;
    if (k == PRODUCT_GRAD) s.kept = (wide *)((char *)c->work + tile_bytes(&s.g));
    tp__parallel(c->dev, s.g.outer * pieces(&s), 1 + GRAIN / (1 + s.g.dim * WIDTH), mend_range, &s);
    return TP_OK;
}

static tp_code cumsum_fwd(const tp_call *c)
{
    return scan_all(c, SUM, c->x[0].data, NULL, NULL, c->y[0].data);
}

static tp_code cumsum_bwd(const tp_call *c)
{
    return scan_all(c, SUM, c->dy[0].data, NULL, NULL, c->dx[0].data);
}

static tp_code cumprod_fwd(const tp_call *c)
{
    return scan_all(c, PRODUCT, c->x[0].data, NULL, NULL, c->y[0].data);
}

static tp_code cumprod_bwd(const tp_call *c)
{
    return scan_all(c, PRODUCT_GRAD, c->x[0].data, c->y[0].data, c->dy[0].data, c->dx[0].data);
}

static size_t cumulative_work(const tp_call *c)
{
    const tp_scan g = scan_of(c);
    const size_t kept = (size_t)c->dev->threads * (size_t)(g.dim / SPAN + 1) * sizeof(wide);
    return tile_bytes(&g) + (tp_is_backward(c) ? kept : 0);
}

TP_CPU_WORK(cumulative_work)
TP_CPU_KERNEL(cumsum_fwd)
TP_CPU_KERNEL(cumsum_bwd)
TP_CPU_KERNEL(cumprod_fwd)
TP_CPU_KERNEL(cumprod_bwd)
