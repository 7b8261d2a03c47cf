/* linear_attention.c - attention by sums of features, in tiles of 64 rows.
 *
 * A tile of features [64][M] is computed where it is used: for the sums over keys, for the results
 * of queries, and in backward once more for each. Sums over rows are cut into parts by shape only,
 * one task each, and added in order. Products of tiles are tp__gemm's; the rest is M exponentials
 * per row. */
#include "tensor/geometry/linear_attention.h"

#include "cpu/kit/real.h"
#include "cpu/kit/sums.h"
#include "cpu/kit/take.h"
#include "tensor/kernel.h"

enum { ROWS = 64, TASKS = 32 };

/* Queries, or keys. */
typedef struct side {
    int64_t n;
    const real *x;
    const uint8_t *mask; /* of keys; NULL: no padding */
    real *shift;         /* [B,H,n]: subtracted from exponents */
    real *dx;
} side;

/* Offsets of the parts of a thread's scratch, in elements. */
typedef struct pieces {
    int64_t x, phi, ext, dphi, out; /* [64][D], [64][M], [64][E], [64][M], [64][E] */
    int64_t total;
} pieces;

typedef struct lin {
    tp_lin g;
    tp_features kind;
    pieces at;
    side q, k;
    const real *v, *projection, *dy;
    real *y, *sums, *dsums, *denominator, *dv; /* sums, dsums [B,H,M,E] */
    real *partial, *work;
    int64_t parts; /* of the sums of this pass */
} lin;

/* m rows from i of one head. */
typedef struct tile {
    const side *of;
    int64_t b, h, i, m;
    real *scratch;
} tile;

static pieces pieces_of(const tp_lin *g)
{
    pieces w = { 0 };
    w.x = tp__take(&w.total, ROWS * g->dim);
    w.phi = tp__take(&w.total, ROWS * g->features);
    w.ext = tp__take(&w.total, ROWS * g->columns);
    w.dphi = tp__take(&w.total, ROWS * g->features);
    w.out = tp__take(&w.total, ROWS * g->columns);
    return w;
}

static int64_t head_of(const lin *a, const tile *t)
{
    return t->b * a->g.heads + t->h;
}

/* Row r of the tile in [B,n,H*D]. */
static int64_t row_at(const lin *a, const tile *t, int64_t r)
{
    return (t->b * t->of->n + t->i + r) * a->g.width + t->h * a->g.dim;
}

static bool is_real(const tile *t, int64_t r)
{
    return !t->of->mask || t->of->mask[t->b * t->of->n + t->i + r];
}

static real *shift_at(const lin *a, const tile *t)
{
    return t->of->shift + head_of(a, t) * t->of->n + t->i;
}

/* ---- features ---- */

/* x [m][D] = scaled rows, zeros for padding; phi [m][M] = their products with the projection. */
static void project(const lin *a, const tile *t)
{
    const int64_t D = a->g.dim, M = a->g.features;
    const real scale = (real)a->g.scale;
    real *x = t->scratch + a->at.x;
    for (int64_t r = 0; r < t->m; r++) {
        const real *from = t->of->x + row_at(a, t, r);
        if (is_real(t, r))
            for (int64_t d = 0; d < D; d++) x[r * D + d] = scale * from[d];
        else
            memset(x + r * D, 0, (size_t)D * sizeof *x);
    }
    if (a->projection)
        tp__gemm(REAL, false, true, t->m, M, D, 1.0, x, D, a->projection, D, 0.0,
                 t->scratch + a->at.phi, M);
}

/* shift = |x|^2 / 2 of each row, most = its largest product. */
static void find_shifts(const lin *a, const tile *t, real *most)
{
    const int64_t D = a->g.dim, M = a->g.features;
    const real *x = t->scratch + a->at.x, *u = t->scratch + a->at.phi;
    real *shift = shift_at(a, t);
    for (int64_t r = 0; r < t->m; r++) {
        real sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t d = 0; d < D; d++) sum += x[r * D + d] * x[r * D + d];
        shift[r] = sum / 2;
        most[r] = largest(u + r * M, M, u[r * M]);
    }
}

/* Turns products into features. */
static void finish(const lin *a, const tile *t)
{
    const int64_t M = a->g.features;
    const real *x = t->scratch + a->at.x, eps = (real)a->g.eps;
    real *phi = t->scratch + a->at.phi;
    for (int64_t r = 0; r < t->m; r++, phi += M, x += M) {
        if (a->kind == TP_FEATURES_POSITIVE) {
            const real shift = shift_at(a, t)[r];
            for (int64_t f = 0; f < M; f++) phi[f] = r_exp(phi[f] - shift) + eps;
        } else if (a->kind == TP_FEATURES_RELU) {
            for (int64_t f = 0; f < M; f++) phi[f] = (phi[f] < 0 ? 0 : phi[f]) + eps;
        } else if (is_real(t, r)) {
            for (int64_t f = 0; f < M; f++) phi[f] = r_exp(x[f] > 0 ? 0 : x[f]);
            for (int64_t f = 0; f < M; f++) phi[f] += x[f] > 0 ? x[f] : 0;
        } else {
            memset(phi, 0, (size_t)M * sizeof *phi);
        }
    }
}

static void features(const lin *a, const tile *t)
{
    project(a, t);
    finish(a, t);
}

/* x [m][D] = the gradient of the rows from dphi [m][M], which becomes that of the products. */
static void features_back(const lin *a, const tile *t)
{
    const int64_t D = a->g.dim, M = a->g.features;
    const real *phi = t->scratch + a->at.phi, eps = (real)a->g.eps;
    real *dphi = t->scratch + a->at.dphi, *x = t->scratch + a->at.x;
    real sums[ROWS];
    for (int64_t r = 0; r < t->m; r++) {
        real *du = dphi + r * M, sum = 0;
        const real *of = phi + r * M;
        if (a->kind == TP_FEATURES_POSITIVE)
            for (int64_t f = 0; f < M; f++) du[f] *= of[f] - eps;
        else if (a->kind == TP_FEATURES_RELU)
            for (int64_t f = 0; f < M; f++) du[f] = of[f] > eps ? du[f] : 0;
        else
            for (int64_t f = 0; f < M; f++) du[f] *= of[f] > 1 ? 1 : of[f];
#pragma omp simd reduction(+ : sum)
        for (int64_t f = 0; f < M; f++) sum += du[f];
        sums[r] = a->kind == TP_FEATURES_POSITIVE ? sum : 0;
    }
    if (!a->projection) {
        memcpy(x, dphi, (size_t)(t->m * D) * sizeof *x);
        return;
    }
    for (int64_t r = 0; r < t->m; r++)
        for (int64_t d = 0; d < D; d++) x[r * D + d] *= -sums[r];
    tp__gemm(REAL, false, false, t->m, D, M, 1.0, dphi, M, a->projection, D, 1.0, x, D);
}

/* ---- the other rows of a tile ---- */

/* ext [m][E] = values of the tile's keys, zeros for padding, and a last column of ones. */
static void load_values(const lin *a, const tile *t)
{
    const int64_t D = a->g.dim, E = a->g.columns;
    real *ext = t->scratch + a->at.ext;
    for (int64_t r = 0; r < t->m; r++, ext += E) {
        const real *v = a->v + row_at(a, t, r);
        if (is_real(t, r))
            memcpy(ext, v, (size_t)D * sizeof *ext);
        else
            memset(ext, 0, (size_t)D * sizeof *ext);
        if (E > D) ext[D] = 1;
    }
}

/* ext [m][E] = gradients of phi(q) sums: dy / denominator, and -(dy y) / denominator. */
static void load_gradients(const lin *a, const tile *t)
{
    const int64_t D = a->g.dim, E = a->g.columns;
    const real *denominator = a->denominator + head_of(a, t) * t->of->n + t->i;
    real *ext = t->scratch + a->at.ext;
    for (int64_t r = 0; r < t->m; r++, ext += E) {
        const real *dy = a->dy + row_at(a, t, r), *y = a->y + row_at(a, t, r);
        const real by = E == D ? (real)a->g.factor : denominator[r] > 0 ? 1 / denominator[r] : 0;
        real dot = 0;
        for (int64_t d = 0; d < D; d++) ext[d] = by * dy[d];
        if (E == D) continue;
#pragma omp simd reduction(+ : dot)
        for (int64_t d = 0; d < D; d++) dot += dy[d] * y[d];
        ext[D] = -by * dot;
    }
}

/* ---- passes ---- */

/* Calls f on the tiles of part `part` of `parts` of a head. */
typedef void (*each_tile)(const lin *a, const tile *t);
static void walk(const lin *a, const side *of, int64_t head, int64_t part, int64_t parts,
                 real *scratch, each_tile f)
{
    const int64_t step = tp__lin_part(of->n, parts);
    const int64_t stop = (part + 1) * step < of->n ? (part + 1) * step : of->n;
    tile t = { .of = of, .b = head / a->g.heads, .h = head % a->g.heads, .scratch = scratch };
    for (t.i = part * step; t.i < stop; t.i += ROWS) {
        t.m = stop - t.i < ROWS ? stop - t.i : ROWS;
        f(a, &t);
    }
}

/* Adds phi^T ext to the sums of the part. */
static void add_products(const lin *a, const tile *t)
{
    const int64_t M = a->g.features, E = a->g.columns;
    const int64_t part = t->i / tp__lin_part(t->of->n, a->parts);
    tp__gemm(REAL, true, false, M, E, t->m, 1.0, t->scratch + a->at.phi, M, t->scratch + a->at.ext,
             E, 1.0, a->partial + (head_of(a, t) * a->parts + part) * M * E, E);
}

static void key_maxima(const lin *a, const tile *t)
{
    real most[ROWS];
    project(a, t);
    find_shifts(a, t, most);
    for (int64_t r = 1; r < t->m; r++) most[0] = most[r] > most[0] ? most[r] : most[0];
    real *to = a->partial + head_of(a, t) * a->parts + t->i / tp__lin_part(t->of->n, a->parts);
    *to = most[0] > *to ? most[0] : *to;
}

static void key_sums(const lin *a, const tile *t)
{
    features(a, t);
    load_values(a, t);
    add_products(a, t);
}

static void query_results(const lin *a, const tile *t)
{
    const int64_t D = a->g.dim, E = a->g.columns, M = a->g.features;
    real *out = t->scratch + a->at.out, most[ROWS];
    project(a, t);
    if (a->kind == TP_FEATURES_POSITIVE) {
        find_shifts(a, t, most);
        for (int64_t r = 0; r < t->m; r++) shift_at(a, t)[r] += most[r];
    }
    finish(a, t);
    tp__gemm(REAL, false, false, t->m, E, M, 1.0, t->scratch + a->at.phi, M,
             a->sums + head_of(a, t) * M * E, E, 0.0, out, E);
    for (int64_t r = 0; r < t->m; r++, out += E) {
        real *y = a->y + row_at(a, t, r), by = (real)a->g.factor;
        if (E > D) {
            a->denominator[head_of(a, t) * t->of->n + t->i + r] = out[D];
            by = out[D] > 0 ? 1 / out[D] : 0;
        }
        for (int64_t d = 0; d < D; d++) y[d] = by * out[d];
    }
}

/* Stores the gradient of the tile's rows in dx; that of the features is ext sums^T. */
static void row_gradients(const lin *a, const tile *t, const real *sums)
{
    const int64_t D = a->g.dim, E = a->g.columns, M = a->g.features;
    const real *x = t->scratch + a->at.x;
    if (!t->of->dx) return;
    tp__gemm(REAL, false, true, t->m, M, E, 1.0, t->scratch + a->at.ext, E,
             sums + head_of(a, t) * M * E, E, 0.0, t->scratch + a->at.dphi, M);
    features_back(a, t);
    for (int64_t r = 0; r < t->m; r++) {
        real *dx = t->of->dx + row_at(a, t, r);
        const real by = is_real(t, r) ? (real)a->g.scale : 0;
        for (int64_t d = 0; d < D; d++) dx[d] = by * x[r * D + d];
    }
}

static void query_gradients(const lin *a, const tile *t)
{
    features(a, t);
    load_gradients(a, t);
    if (a->dsums) add_products(a, t);
    row_gradients(a, t, a->sums);
}

static void key_gradients(const lin *a, const tile *t)
{
    const int64_t D = a->g.dim, E = a->g.columns, M = a->g.features;
    real *out = t->scratch + a->at.out;
    features(a, t);
    if (a->dv) {
        tp__gemm(REAL, false, false, t->m, E, M, 1.0, t->scratch + a->at.phi, M,
                 a->dsums + head_of(a, t) * M * E, E, 0.0, out, E);
        for (int64_t r = 0; r < t->m; r++) {
            const real by = is_real(t, r) ? 1 : 0;
            for (int64_t d = 0; d < D; d++) a->dv[row_at(a, t, r) + d] = by * out[r * E + d];
        }
    }
    load_values(a, t);
    row_gradients(a, t, a->dsums);
}

/* A pass: every part of every head; if nothing is summed, every tile. */
typedef struct pass {
    const lin *a;
    const side *of;
    each_tile f;
    int64_t parts;
} pass;

static void pass_tasks(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const pass *p = ctx;
    real *scratch = p->a->work + thread * p->a->at.total;
    for (int64_t x = begin; x < end; x++)
        walk(p->a, p->of, x / p->parts, x % p->parts, p->parts, scratch, p->f);
}

static void run_pass(const tp_call *c, const lin *a, const side *of, each_tile f, int64_t parts)
{
    const pass p = { a, of, f, parts };
    tp__parallel(c->dev, a->g.batch * a->g.heads * parts, 1, pass_tasks, &p);
}

static int64_t tiles_of(const side *s)
{
    return s->n > 0 ? (s->n + ROWS - 1) / ROWS : 1;
}

/* to [heads][n] = the sums of partial [heads][parts][n]. */
typedef struct joining {
    const lin *a;
    real *to;
    int64_t n;
} joining;

static void join_tasks(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const joining *j = ctx;
    const int64_t n = j->n, parts = j->a->parts;
    (void)thread;
    for (int64_t h = begin; h < end; h++) {
        const real *from = j->a->partial + h * parts * n;
        real *to = j->to + h * n;
        memcpy(to, from, (size_t)n * sizeof *to);
        for (int64_t p = 1; p < parts; p++)
            for (int64_t e = 0; e < n; e++) to[e] += from[p * n + e];
    }
}

/* Runs a pass that adds to a->partial over the parts of a side, and joins them. */
static void run_sums(const tp_call *c, lin *a, const side *of, each_tile f, real *to)
{
    const int64_t heads = a->g.batch * a->g.heads, n = a->g.features * a->g.columns;
    a->parts = tp__lin_parts(&a->g, of->n, TASKS);
    memset(a->partial, 0, (size_t)(heads * a->parts * n) * sizeof *a->partial);
    run_pass(c, a, of, f, a->parts);
    if (to) tp__parallel(c->dev, heads, 1, join_tasks, &(joining){ a, to, n });
}

/* Adds the largest product of each head to the shifts of its keys. */
static void find_key_shifts(const tp_call *c, lin *a)
{
    const int64_t heads = a->g.batch * a->g.heads;
    a->parts = tp__lin_parts(&a->g, a->k.n, TASKS);
    for (int64_t i = 0; i < heads * a->parts; i++) a->partial[i] = -(real)INFINITY;
    run_pass(c, a, &a->k, key_maxima, a->parts);
    for (int64_t h = 0; h < heads; h++) {
        const real *parts = a->partial + h * a->parts, most = largest(parts, a->parts, parts[0]);
        for (int64_t i = 0; i < a->k.n; i++) a->k.shift[h * a->k.n + i] += most;
    }
}

/* ---- calls ---- */

/* c->work: partial sums, in backward dsums, then the scratch of each thread. */
static int64_t room_for_parts(const lin *a)
{
    const int64_t q = tp__lin_parts(&a->g, a->q.n, TASKS), k = tp__lin_parts(&a->g, a->k.n, TASKS);
    const int64_t n = a->g.features * a->g.columns;
    return a->g.batch * a->g.heads * (q > k ? q : k) * (n > 0 ? n : 1);
}

static int64_t room_for_sums(const tp_call *c, const lin *a)
{
    return tp_is_backward(c) ? a->g.batch * a->g.heads * a->g.features * a->g.columns : 0;
}

static lin prepare(const tp_call *c)
{
    const tp_linear_attn_cfg *cfg = c->attr;
    const tp_lin g = tp__lin(c->x, cfg);
    real *rows = c->y[LIN_ROWS].data;
    lin a = { .g = g,
              .kind = cfg->features,
              .at = pieces_of(&g),
              .q = { .n = g.queries, .x = c->x[LIN_Q].data },
              .k = { .n = g.keys, .x = c->x[LIN_K].data, .mask = c->x[LIN_MASK].data },
              .v = c->x[LIN_V].data,
              .projection = c->x[LIN_PROJECTION].data,
              .y = c->y[LIN_Y].data,
              .sums = c->y[LIN_SUMS].data,
              .partial = c->work };
    if (!rows || !c->work) return a;
    a.denominator = rows + tp__lin_rows(&g, LIN_DENOMINATOR);
    a.q.shift = rows + tp__lin_rows(&g, LIN_OF_QUERY);
    a.k.shift = rows + tp__lin_rows(&g, LIN_OF_KEY);
    a.work = a.partial + room_for_parts(&a) + room_for_sums(c, &a);
    return a;
}

static tp_code linear_attention_fwd(const tp_call *c)
{
    lin a = prepare(c);
    if (a.g.batch == 0 || a.g.width == 0) return TP_OK;
    if (a.kind == TP_FEATURES_POSITIVE) find_key_shifts(c, &a);
    run_sums(c, &a, &a.k, key_sums, a.sums);
    run_pass(c, &a, &a.q, query_results, tiles_of(&a.q));
    return TP_OK;
}

static tp_code linear_attention_bwd(const tp_call *c)
{
    lin a = prepare(c);
    if (a.g.batch == 0 || a.g.width == 0) return TP_OK;
    a.dy = c->dy[LIN_Y].data;
    a.q.dx = c->dx[LIN_Q].data;
    a.k.dx = c->dx[LIN_K].data;
    a.dv = c->dx[LIN_V].data;
    if (a.k.dx || a.dv) a.dsums = a.partial + room_for_parts(&a);
    if (a.q.dx || a.dsums) run_sums(c, &a, &a.q, query_gradients, a.dsums);
    if (a.dsums) run_pass(c, &a, &a.k, key_gradients, tiles_of(&a.k));
    return TP_OK;
}

static size_t linear_attention_work(const tp_call *c)
{
    const lin a = prepare(c);
    return (size_t)(room_for_parts(&a) + room_for_sums(c, &a) + c->dev->threads * a.at.total) *
           sizeof(real);
}

TP_CPU_WORK(linear_attention_work)
TP_CPU_KERNEL(linear_attention_fwd)
TP_CPU_KERNEL(linear_attention_bwd)
