/* rownorm.c - layer norm and RMS norm: normalises each row of X [rows,n] by its statistics.
 *
 *     m  = mean x, or 0 for RMS norm
 *     s  = (mean (x - m)^2 + eps)^-1/2
 *     h  = (x - m) s
 *     y  = h w + b
 *     dx = s (g - mean g - h mean(g h))     g = dy w; RMS norm: without mean g
 *     dw = sum over rows of dy h            db = sum over rows of dy
 *
 * Forward stores m and s of each row. A row is read from memory once and then twice from cache: the
 * two-pass variance avoids the cancellation of the one-pass formula. Rows whose squares leave the
 * range are scaled. dw and db are summed in fixed blocks of rows. Rows in bf16 are computed in f32,
 * in memory of the thread. */
#include "cpu/kit/real.h"
#include "cpu/kit/row_blocks.h"
#include "cpu/kit/statistics.h"
#include "cpu/kit/sums.h"
#include "tensor/geometry/norms.h"
#include "tensor/kernel.h"

typedef struct stats {
    real m, s;
} stats;

static stats stats_of(int64_t n, const real *x, real eps, bool centre)
{
    const real m = centre ? sum_of(x, n) / (real)n : 0;
    const real v = squares_about(m, x, n) / (real)n + eps;
    if (are_squares_exact(v)) return (stats){ m, 1 / r_sqrt(v) };
    const deviation d = deviation_of(x, n, centre);
    return (stats){ (real)d.mean, (real)(1 / hypot(d.root, sqrt((double)eps))) };
}

/* The rows of x, then those of v, as one numbering; v may be absent. */
typedef struct rows {
    const tp_view *of[2];
    int64_t first, count, n; /* rows of x and of both, elements of a row */
} rows;

/* Of two views; v: 0 if there is one. */
static rows rows_of(const tp_call *c, const tp_view *of, int x, int v)
{
    const tp_view *shape = &c->x[ROWNORM_X];
    const int64_t n = shape->dim[shape->ndim - 1], count = c->y[c->ny - 1].numel / 2;
    const int64_t first = v ? shape->numel / (n ? n : 1) : count;
    return (rows){ { &of[x], v ? &of[v] : NULL }, first, count, n };
}

/* v among the inputs, or 0. */
static int second(const tp_call *c)
{
    return c->nx > ROWNORM_V ? ROWNORM_V : 0;
}

/* The view of a row, and the element at which it begins. */
static const tp_view *find(const rows *x, int64_t r, int64_t *at)
{
    *at = (r < x->first ? r : r - x->first) * x->n;
    return x->of[r >= x->first];
}

/* A row in f32: in place or in `room`. NULL if its tensor is absent. */
static const real *row_of(const rows *x, int64_t r, real *room)
{
    int64_t at;
    const tp_view *v = find(x, r, &at);
    return v->data ? read_row(v, v->data, at, x->n, room) : NULL;
}

/* Where a row is computed, for `put`. NULL if its tensor is absent. */
static real *place_of(const rows *x, int64_t r, real *room)
{
    int64_t at;
    const tp_view *v = find(x, r, &at);
    return v->data ? row_at(v, v->data, at, room) : NULL;
}

static void put(const rows *x, int64_t r, const real *row)
{
    int64_t at;
    const tp_view *v = find(x, r, &at);
    put_row(v, v->data, at, x->n, row);
}

/* The rows in f32 that a thread needs for tensors in bf16: dy in backward only. */
enum { AS_X, AS_Y, AS_DY, AS_W, AS_B, ROOMS };

/* The numbers in c->work before them: partial sums of dw and db for each block of rows,
 * [blocks,2,n]. */
static int64_t sums_size(const tp_call *c)
{
    const bool params = !tp_absent(&c->x[1]) || (c->nx > 2 && !tp_absent(&c->x[2]));
    const int64_t n = c->x[0].dim[c->x[0].ndim - 1];
    return tp_is_backward(c) && params ? tp__row_blocks(c->y[c->ny - 1].dim[0]) * 2 * n : 0;
}

static real *rooms_of(const tp_call *c, int64_t n, int thread)
{
    return is_bf16(&c->x[0]) ? (real *)c->work + sums_size(c) + thread * ROOMS * n : NULL;
}

static real *room(real *rooms, int64_t n, int which)
{
    return rooms ? rooms + which * n : NULL;
}

/* A parameter in f32; NULL if it is absent. */
static const real *vector(const tp_call *c, int i, int64_t n, real *to)
{
    const tp_view *v = &c->x[i];
    return i < c->nx && v->data ? read_row(v, v->data, 0, n, to) : NULL;
}

/* One pass with both parameters, as usual in layer norm. */
static void rownorm_row(int64_t n, const real *x, stats t, const real *w, const real *b, real *y)
{
    if (w && b) {
        for (int64_t i = 0; i < n; i++) y[i] = (x[i] - t.m) * t.s * w[i] + b[i];
        return;
    }
    for (int64_t i = 0; i < n; i++) y[i] = (x[i] - t.m) * t.s;
    if (w)
        for (int64_t i = 0; i < n; i++) y[i] *= w[i];
    if (b)
        for (int64_t i = 0; i < n; i++) y[i] += b[i];
}

static void rownorm_rows(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const tp__rownorm_attr *at = c->attr;
    const rows from = rows_of(c, c->x, ROWNORM_X, second(c));
    const rows to = rows_of(c, c->y, 0, c->ny > 2);
    const int64_t n = from.n;
    real *rooms = rooms_of(c, n, thread);
    const real *w = vector(c, ROWNORM_W, n, room(rooms, n, AS_W));
    const real *b = vector(c, ROWNORM_B, n, room(rooms, n, AS_B));
    for (int64_t r = begin; r < end; r++) {
        const real *x = row_of(&from, r, room(rooms, n, AS_X));
        real *y = place_of(&to, r, room(rooms, n, AS_Y));
        const stats t = stats_of(n, x, (real)at->eps, at->centre);
        rownorm_row(n, x, t, w, b, y);
        put(&to, r, y);
        ((stats *)c->y[c->ny - 1].data)[r] = t;
    }
}

/* A task is rows of about 16 K elements. */
static tp_code rownorm_fwd(const tp_call *c)
{
    const int64_t n = c->x[0].dim[c->x[0].ndim - 1];
    tp__for_threads(c, c->y[c->ny - 1].numel / 2, 16384 / (n + 1), rownorm_rows);
    return TP_OK;
}

/* The sums of g and of g h over a row; weighted is a constant. */
TP_INLINE void grad_sums(int64_t n, const real *x, const real *w, const real *dy, stats t,
                         bool weighted, real *sum_g, real *sum_gh)
{
    vec g = { 0 }, gh = { 0 };
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const vec each = sums_term(dy, weighted ? w : NULL, 0, false, i);
        g += each;
        gh += each * ((vec_load(x + i) - t.m) * t.s);
    }
    *sum_g = sum_lanes(g);
    *sum_gh = sum_lanes(gh);
    for (; i < n; i++) {
        const real each = weighted ? dy[i] * w[i] : dy[i];
        *sum_g += each;
        *sum_gh += each * ((x[i] - t.m) * t.s);
    }
}

/* dx = or += s (g - mean_g - h mean_gh) for one row; weighted and add are constants. */
TP_INLINE void grad_row(int64_t n, const real *x, const real *w, const real *dy, stats t,
                        bool centre, bool weighted, bool add, real *dx)
{
    real sum_g, sum_gh;
    grad_sums(n, x, w, dy, t, weighted, &sum_g, &sum_gh);
    const real mean_g = centre ? sum_g / (real)n : 0, mean_gh = sum_gh / (real)n;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const real g = weighted ? dy[i] * w[i] : dy[i];
        const real d = t.s * (g - mean_g - (x[i] - t.m) * t.s * mean_gh);
        dx[i] = add ? dx[i] + d : d;
    }
}

static void rownorm_dx(int64_t n, const real *x, const real *w, const real *dy, stats t,
                       bool centre, bool add, real *dx)
{
    if (w && add)
        grad_row(n, x, w, dy, t, centre, true, true, dx);
    else if (w)
        grad_row(n, x, w, dy, t, centre, true, false, dx);
    else
        grad_row(n, x, w, dy, t, centre, false, add, dx);
}

/* Adds one row to the sums of dw and db. */
static void rownorm_dw_db(int64_t n, const real *x, const real *dy, stats t, real *dw, real *db)
{
    for (int64_t i = 0; i < n; i++) {
        dw[i] += dy[i] * ((x[i] - t.m) * t.s);
        db[i] += dy[i];
    }
}

static bool wants_params(const tp_call *c)
{
    return c->dx[1].data || (c->nx > 2 && c->dx[2].data);
}

static void rownorm_blocks(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const bool centre = ((const tp__rownorm_attr *)c->attr)->centre, params = wants_params(c);
    const rows from = rows_of(c, c->x, ROWNORM_X, second(c));
    const rows grad = rows_of(c, c->dy, 0, c->ny > 2);
    const rows to = rows_of(c, c->dx, ROWNORM_X, second(c));
    const int64_t n = from.n, size = tp__block_rows(from.count);
    real *rooms = rooms_of(c, n, thread);
    const real *w = vector(c, ROWNORM_W, n, room(rooms, n, AS_W));
    for (int64_t k = begin; k < end; k++) {
        real *part = (real *)c->work + (params ? k * 2 * n : 0);
        if (params) memset(part, 0, (size_t)(2 * n) * sizeof *part);
        for (int64_t r = k * size; r < from.count && r < (k + 1) * size; r++) {
            const real *x = row_of(&from, r, room(rooms, n, AS_X));
            const real *dy = row_of(&grad, r, room(rooms, n, AS_DY));
            const bool add = c->add >> (r < from.first ? ROWNORM_X : ROWNORM_V) & 1u;
            const stats t = ((const stats *)c->y[c->ny - 1].data)[r];
            real *dx = place_of(&to, r, room(rooms, n, AS_Y));
            if (params) rownorm_dw_db(n, x, dy, t, part, part + n);
            if (!dx) continue;
            if (add) (void)row_of(&to, r, dx);
            rownorm_dx(n, x, w, dy, t, centre, add, dx);
            put(&to, r, dx);
        }
    }
}

static tp_code rownorm_bwd(const tp_call *c)
{
    const int64_t n = c->x[0].dim[c->x[0].ndim - 1];
    const int64_t blocks = tp__row_blocks(c->y[c->ny - 1].numel / 2);
    const real *part = c->work;
    tp__for_threads(c, blocks, 1, rownorm_blocks);
    for (int i = ROWNORM_W; i <= ROWNORM_B && i < c->nx; i++, part += n)
        if (c->dx[i].data) tp__add_blocks_to(&c->dx[i], c->add >> i & 1u, n, part, blocks, 2 * n);
    return TP_OK;
}

static size_t rownorm_work(const tp_call *c)
{
    const int64_t n = c->x[0].dim[c->x[0].ndim - 1];
    const int64_t rooms = is_bf16(&c->x[0]) ? c->dev->threads * ROOMS * n : 0;
    return (size_t)(sums_size(c) + rooms) * sizeof(real);
}

TP_CPU_WORK(rownorm_work)
TP_CPU_KERNEL(rownorm_fwd)
TP_CPU_KERNEL(rownorm_bwd)
