/* cpu_lsla_attention.c - light self-limited attention; the geometry is in tensor/lsla.h.
 *
 * A task is a slice of the windows of one head. For each window it gathers the head's rows of q, k
 * and v, n x D each, and works on n x n matrices in cache: two products forward, five backward.
 * Sums over windows (scale and tables) are made for each slice and added in order, so that bits do
 * not depend on the number of threads. */
#ifndef real
#include "tensor/kernel.h"
#include "tensor/lsla.h"
#define TP_FILE "tensor/cpu/cpu_lsla_attention.c"
#include "tensor/cpu/cpu_each_real.h"
TP_CPU_KERNEL(lsla_attention_fwd)
TP_CPU_KERNEL(lsla_attention_bwd)
#else

#define lsla     R(lsla)
#define lsla_win R(lsla_win)

typedef struct lsla {
    const tp_call *c;
    tp_lsla g;
    tp_lsla_scratch at;
    real scale; /* without a learned one */
} lsla;

/* A window of one head, with the scratch of the thread. */
typedef struct lsla_win {
    const lsla *a;
    int64_t b, h, y, x; /* where it begins in the rolled map */
    bool mixed;         /* it holds several regions          */
    real *scratch;
} lsla_win;

/* Token i of the window, as a number of the map. */
static inline int64_t R(lsla_at)(const lsla_win *t, int64_t i)
{
    const tp_lsla *g = &t->a->g;
    return tp__lsla_token(g, t->y + i / g->window, t->x + i % g->window);
}

/* The head's slice of token i of the window in x [B,N,C]. */
static inline real *R(lsla_slice)(const lsla_win *t, const tp_view *x, int64_t i)
{
    const tp_lsla *g = &t->a->g;
    const int64_t token = t->b * g->size[0] * g->size[1] + R(lsla_at)(t, i);
    return (real *)x->data + token * g->width + t->h * g->dim;
}

static void R(lsla_gather)(const lsla_win *t, const tp_view *x, real *to)
{
    const int64_t d = t->a->g.dim;
    for (int64_t i = 0; i < t->a->g.n; i++)
        memcpy(to + i * d, R(lsla_slice)(t, x, i), (size_t)d * sizeof(real));
}

static void R(lsla_scatter)(const lsla_win *t, const real *from, const tp_view *x)
{
    const int64_t d = t->a->g.dim;
    for (int64_t i = 0; i < t->a->g.n; i++)
        memcpy(R(lsla_slice)(t, x, i), from + i * d, (size_t)d * sizeof(real));
}

/* to[a][b] = the head's bias of query a and key b; zero without a table. */
static void R(lsla_spread)(const lsla_win *t, const tp_view *table, real *to)
{
    const tp_lsla *g = &t->a->g;
    const int64_t w = g->window;
    const real *from = table->data;
    for (int64_t a = 0; a < g->n; a++)
        for (int64_t y = 0; y < w; y++) {
            const int64_t first = tp__lsla_place(g, a, y * w);
            for (int64_t x = 0; x < w; x++) *to++ = from ? from[(first - x) * g->heads + t->h] : 0;
        }
}

static void R(lsla_set_head)(lsla_win *t, int64_t h)
{
    t->h = h;
    R(lsla_spread)(t, &t->a->c->x[LSLA_INNER], t->scratch + t->a->at.inner);
    R(lsla_spread)(t, &t->a->c->x[LSLA_OUTER], t->scratch + t->a->at.outer);
}

/* Sets the window, and loads its rows of q, k and v. */
static void R(lsla_set)(lsla_win *t, int64_t b, int64_t row, int64_t col)
{
    const tp_lsla *g = &t->a->g;
    t->b = b;
    t->y = row * g->window;
    t->x = col * g->window;
    t->mixed = g->shift > 0 && (row == g->down - 1 || col == g->across - 1);
    R(lsla_gather)(t, &t->a->c->x[LSLA_Q], t->scratch + t->a->at.q);
    R(lsla_gather)(t, &t->a->c->x[LSLA_K], t->scratch + t->a->at.k);
    R(lsla_gather)(t, &t->a->c->x[LSLA_V], t->scratch + t->a->at.v);
}

static inline int R(lsla_region)(const lsla_win *t, int64_t i)
{
    const tp_lsla *g = &t->a->g;
    return tp__lsla_region(g, t->y + i / g->window, t->x + i % g->window);
}

/* Adds `what` to m[a][b] where query a must not see key b. */
static void R(lsla_mask)(const lsla_win *t, int64_t a, real what, real *m)
{
    for (int64_t b = 0; t->mixed && b < t->a->g.n; b++)
        if (R(lsla_region)(t, a) != R(lsla_region)(t, b)) m[b] += what;
}

/* s = q k^T, kept for the gradient of the scale; p = logits. */
static void R(lsla_logits)(const lsla_win *t)
{
    const lsla *a = t->a;
    const int64_t n = a->g.n, d = a->g.dim;
    real *s = t->scratch + a->at.s, *p = t->scratch + a->at.p;
    const real *scale = a->c->x[LSLA_SCALE].data, *inner = t->scratch + a->at.inner;
    tp__gemm(REAL, false, true, n, n, d, 1.0, t->scratch + a->at.q, d, t->scratch + a->at.k, d, 0.0,
             s, n);
    if (scale)
        for (int64_t i = 0; i < n * n; i++) p[i] = scale[i] * s[i] + inner[i];
    else
        for (int64_t i = 0; i < n * n; i++) p[i] = a->scale * s[i] + inner[i];
    for (int64_t i = 0; i < n; i++) R(lsla_mask)(t, i, -100, p + i * n);
}

/* ---- forward ---- */

/* p: logits become probabilities; returns the log-sum-exp. */
static real R(lsla_softmax)(int64_t n, real *p)
{
    real most = p[0], sum = 0;
#pragma omp simd reduction(max : most)
    for (int64_t j = 0; j < n; j++) most = p[j] > most ? p[j] : most;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; j++) {
        p[j] = r_exp(p[j] - most);
        sum += p[j];
    }
    const real k = 1 / sum;
    for (int64_t j = 0; j < n; j++) p[j] *= k;
    return most + r_log(sum);
}

/* Adds the outer bias to the probabilities p of query a. */
static void R(lsla_outer)(const lsla_win *t, int64_t a, real *p)
{
    const tp_lsla *g = &t->a->g;
    const bool masked = t->mixed && ((const tp_lsla_cfg *)t->a->c->attr)->mask_outer;
    const real *outer = t->scratch + t->a->at.outer + a * g->n;
    for (int64_t b = 0; b < g->n; b++)
        if (!masked || R(lsla_region)(t, a) == R(lsla_region)(t, b)) p[b] += outer[b];
}

static void R(lsla_forward)(const lsla_win *t)
{
    const lsla *a = t->a;
    const int64_t n = a->g.n, d = a->g.dim;
    real *p = t->scratch + a->at.p, *out = t->scratch + a->at.out;
    real *lse = (real *)a->c->y[1].data + (t->b * a->g.heads + t->h) * a->g.size[0] * a->g.size[1];
    R(lsla_logits)(t);
    for (int64_t i = 0; i < n; i++) {
        lse[R(lsla_at)(t, i)] = R(lsla_softmax)(n, p + i * n);
        R(lsla_outer)(t, i, p + i * n);
    }
    tp__gemm(REAL, false, false, n, d, n, 1.0, p, n, t->scratch + a->at.v, d, 0.0, out, d);
    R(lsla_scatter)(t, out, &a->c->y[0]);
}

/* The windows of slice `task % slices` of head `task / slices`, one after the other. */
static void R(lsla_walk)(lsla_win *t, int64_t task, void (*f)(const lsla_win *t))
{
    const tp_lsla *g = &t->a->g;
    const int64_t rows = g->batch * g->down, slice = task % g->slices;
    R(lsla_set_head)(t, task / g->slices);
    for (int64_t row = rows * slice / g->slices; row < rows * (slice + 1) / g->slices; row++)
        for (int64_t x = 0; x < g->across; x++) {
            R(lsla_set)(t, row / g->down, row % g->down, x);
            f(t);
        }
}

static void R(lsla_forward_tasks)(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const lsla *a = ctx;
    lsla_win t = { .a = a, .scratch = (real *)a->c->work + thread * a->at.total };
    for (int64_t task = begin; task < end; task++) R(lsla_walk)(&t, task, R(lsla_forward));
}

static lsla R(lsla_prepare)(const tp_call *c, bool backward)
{
    const tp_lsla_cfg *cfg = c->attr;
    const tp_lsla g = tp__lsla(c->x, cfg);
    const double scale = cfg->scale != 0 ? cfg->scale : g.dim ? 1 / sqrt((double)g.dim) : 1;
    return (lsla){ .c = c, .g = g, .at = tp__lsla_layout(&g, backward), .scale = (real)scale };
}

static tp_code R(lsla_attention_fwd)(const tp_call *c)
{
    const lsla a = R(lsla_prepare)(c, false);
    if (c->y[0].numel == 0) return TP_OK;
    tp__parallel(c->dev, a.g.heads * a.g.slices, 1, R(lsla_forward_tasks), &a);
    return TP_OK;
}

/* ---- backward ---- */

/* Of query a: p are its logits and dp the gradient of its weights. Gradients of scale and biases
 * are added to the task's sums; p becomes the weights, s the gradient of the scores. */
static void R(lsla_gradient_row)(const lsla_win *t, int64_t a, real lse, real *p, real *s, real *dp)
{
    const lsla *k = t->a;
    const int64_t n = k->g.n;
    const real *scale = k->c->x[LSLA_SCALE].data;
    real *dscale = t->scratch + k->at.dscale + a * n, *dinner = t->scratch + k->at.dinner + a * n;
    real *douter = t->scratch + k->at.douter + a * n, delta = 0;
#pragma omp simd reduction(+ : delta)
    for (int64_t b = 0; b < n; b++) {
        p[b] = r_exp(p[b] - lse);
        delta += p[b] * dp[b];
    }
    const bool masked = t->mixed && ((const tp_lsla_cfg *)k->c->attr)->mask_outer;
    for (int64_t b = 0; b < n; b++)
        if (!masked || R(lsla_region)(t, a) == R(lsla_region)(t, b)) douter[b] += dp[b];
    for (int64_t b = 0; b < n; b++) {
        const real dz = p[b] * (dp[b] - delta);
        dinner[b] += dz;
        dscale[b] += dz * s[b];
        s[b] = dz * (scale ? scale[a * n + b] : k->scale);
    }
    R(lsla_outer)(t, a, p);
}

/* x = f(gradients) of a window, if it is wanted. */
static void R(lsla_product)(const lsla_win *t, int i, bool transposed, const real *m, const real *x)
{
    const lsla *a = t->a;
    const int64_t n = a->g.n, d = a->g.dim;
    real *out = t->scratch + a->at.out;
    if (!a->c->dx[i].data) return;
    tp__gemm(REAL, transposed, false, n, d, n, 1.0, m, n, x, d, 0.0, out, d);
    R(lsla_scatter)(t, out, &a->c->dx[i]);
}

static void R(lsla_backward)(const lsla_win *t)
{
    const lsla *a = t->a;
    const int64_t n = a->g.n, d = a->g.dim;
    real *p = t->scratch + a->at.p, *s = t->scratch + a->at.s, *dp = t->scratch + a->at.dp;
    real *dout = t->scratch + a->at.dout;
    const real *lse =
        (real *)a->c->y[1].data + (t->b * a->g.heads + t->h) * a->g.size[0] * a->g.size[1];
    R(lsla_gather)(t, &a->c->dy[0], dout);
    R(lsla_logits)(t);
    tp__gemm(REAL, false, true, n, n, d, 1.0, dout, d, t->scratch + a->at.v, d, 0.0, dp, n);
    for (int64_t i = 0; i < n; i++)
        R(lsla_gradient_row)(t, i, lse[R(lsla_at)(t, i)], p + i * n, s + i * n, dp + i * n);
    R(lsla_product)(t, LSLA_Q, false, s, t->scratch + a->at.k);
    R(lsla_product)(t, LSLA_K, true, s, t->scratch + a->at.q);
    R(lsla_product)(t, LSLA_V, true, p, dout);
}

/* Adds matrix m of a head to its rows of a table. */
static void R(lsla_fold)(const tp_lsla *g, const real *m, real *table)
{
    const int64_t w = g->window;
    for (int64_t a = 0; a < g->n; a++)
        for (int64_t y = 0; y < w; y++, m += w) {
            real *to = table + tp__lsla_place(g, a, y * w);
            for (int64_t x = 0; x < w; x++) to[-x] += m[x];
        }
}

/* The sums of slice i of head h: of the scale [n][n], then of the tables. */
static real *R(lsla_partial)(const lsla *a, int64_t h, int64_t i)
{
    return (real *)a->c->work + a->c->dev->threads * a->at.total +
           (h * a->g.slices + i) * a->at.partial;
}

static void R(lsla_backward_tasks)(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const lsla *a = ctx;
    const tp_lsla *g = &a->g;
    const int64_t square = g->n * g->n;
    lsla_win t = { .a = a, .scratch = (real *)a->c->work + thread * a->at.total };
    real *const sums[] = { t.scratch + a->at.dscale, t.scratch + a->at.dinner,
                           t.scratch + a->at.douter };
    for (int64_t task = begin; task < end; task++) {
        real *partial = R(lsla_partial)(a, task / g->slices, task % g->slices);
        for (int i = 0; i < 3; i++) memset(sums[i], 0, (size_t)square * sizeof(real));
        R(lsla_walk)(&t, task, R(lsla_backward));
        memcpy(partial, sums[0], (size_t)square * sizeof(real));
        memset(partial + square, 0, (size_t)(2 * g->table) * sizeof(real));
        R(lsla_fold)(g, sums[1], partial + square);
        R(lsla_fold)(g, sums[2], partial + square + g->table);
    }
}

/* Sums of the slices, in order. */
static void R(lsla_sum)(const lsla *a)
{
    const tp_lsla *g = &a->g;
    real *scale = a->c->dx[LSLA_SCALE].data;
    for (int64_t h = 0; h < g->heads; h++)
        for (int64_t i = 0; i < g->slices; i++) {
            const real *from = R(lsla_partial)(a, h, i);
            for (int64_t j = 0; scale && j < g->n * g->n; j++) scale[j] += from[j];
            from += g->n * g->n;
            for (int x = LSLA_INNER; x <= LSLA_OUTER; x++, from += g->table) {
                real *table = a->c->dx[x].data;
                for (int64_t j = 0; table && j < g->table; j++) table[j * g->heads + h] += from[j];
            }
        }
}

static tp_code R(lsla_attention_bwd)(const tp_call *c)
{
    const lsla a = R(lsla_prepare)(c, true);
    for (int i = LSLA_SCALE; i < LSLA_NX; i++)
        if (c->dx[i].data) memset(c->dx[i].data, 0, (size_t)c->dx[i].numel * sizeof(real));
    if (c->y[0].numel == 0) return TP_OK;
    tp__parallel(c->dev, a.g.heads * a.g.slices, 1, R(lsla_backward_tasks), &a);
    R(lsla_sum)(&a);
    return TP_OK;
}

#undef lsla
#undef lsla_win
#endif
