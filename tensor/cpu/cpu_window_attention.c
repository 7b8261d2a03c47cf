/* cpu_window_attention.c - attention over maps; the geometry is in tensor/window.h.
 *
 * Forward: a task is a row of chunks of one head. For each chunk it gathers the keys and values
 * that all its queries see, and takes up to 64 queries at a time: one product makes their logits,
 * which stay in cache for a plain softmax, another the result. Backward: a task is a stripe of rows
 * of chunks of one head; it makes the probabilities again, adds four more products, and adds the
 * gradients of the gathered keys to the map's. */
#ifndef real
#include "tensor/kernel.h"
#include "tensor/window.h"
#define TP_FILE "tensor/cpu/cpu_window_attention.c"
#include "tensor/cpu/cpu_each_real.h"
TP_CPU_KERNEL(window_attention_fwd)
TP_CPU_KERNEL(window_attention_bwd)
#else

#define win       R(win)
#define win_chunk R(win_chunk)

typedef struct win {
    const tp_call *c;
    tp_window g;
    tp_window_scratch at;
    real scale;
    int64_t phase;
} win;

/* A chunk of one head, with the scratch of the thread; n keys. */
typedef struct win_chunk {
    const win *a;
    int64_t b, h;
    int64_t y, x, rows, cols; /* its queries */
    int nrect;
    tp_rect rect[TP_WINDOW_RECTS];
    int64_t n;
    real *scratch;
    real *partial; /* backward: sums of the task */
} win_chunk;

/* The head's slice of a token of x [B,g+N,C], of y [B,N,C] (tokens = N), of low [B,r,C]. */
static inline real *R(slice)(const win_chunk *t, const tp_view *x, int64_t tokens, int64_t token)
{
    const tp_window *g = &t->a->g;
    return (real *)x->data + (t->b * tokens + token) * g->width + t->h * g->dim;
}

/* The token of cell (i,j) of a rectangle, or -1 if it lies outside the map. */
static inline int64_t R(source)(const tp_window *g, const tp_rect *r, int64_t i, int64_t j)
{
    const int64_t y = r->y + i + r->dy, x = r->x + j + r->dx;
    return y < g->size[0] && x < g->size[1] ? g->global + y * g->size[1] + x : -1;
}

/* to [n][D]: the low rows, the global ones, and the cells of the rectangles. */
static void R(gather)(const win_chunk *t, const tp_view *low, const tp_view *x, real *to)
{
    const tp_window *g = &t->a->g;
    const size_t bytes = (size_t)g->dim * sizeof(real);
    for (int64_t i = 0; i < g->low; i++, to += g->dim)
        memcpy(to, R(slice)(t, low, g->low, i), bytes);
    for (int64_t i = 0; i < g->global; i++, to += g->dim)
        memcpy(to, R(slice)(t, x, g->tokens, i), bytes);
    for (int r = 0; r < t->nrect; r++)
        for (int64_t i = 0; i < t->rect[r].rows; i++)
            for (int64_t j = 0; j < t->rect[r].cols; j++, to += g->dim) {
                const int64_t token = R(source)(g, &t->rect[r], i, j);
                if (token < 0)
                    memset(to, 0, bytes);
                else
                    memcpy(to, R(slice)(t, x, g->tokens, token), bytes);
            }
}

/* The head's column of the table, last row first: biases of neighbouring keys are then neighbours
 * in the order of the keys. */
static void R(load_table)(const win_chunk *t)
{
    const tp_window *g = &t->a->g;
    const real *from = t->a->c->x[WIN_TABLE].data;
    real *to = t->scratch + t->a->at.table;
    for (int64_t i = 0; i < g->rows; i++) to[i] = from[(g->rows - 1 - i) * g->heads + t->h];
}

static void R(set_chunk)(win_chunk *t, int64_t cy, int64_t cx)
{
    const tp_window *g = &t->a->g;
    t->y = cy * g->chunk[0];
    t->x = cx * g->chunk[1];
    t->rows = tp__window_min(g->chunk[0], g->size[0] - t->y);
    t->cols = tp__window_min(g->chunk[1], g->size[1] - t->x);
    t->nrect = tp__window_rects(g, cy, cx, t->rect);
    t->n = g->extra;
    for (int r = 0; r < t->nrect; r++) t->n += t->rect[r].rows * t->rect[r].cols;
    R(gather)(t, &t->a->c->x[WIN_LOW_K], &t->a->c->x[WIN_K], t->scratch + t->a->at.k);
    R(gather)(t, &t->a->c->x[WIN_LOW_V], &t->a->c->x[WIN_V], t->scratch + t->a->at.v);
}

/* The cell of query i of the chunk, as a number of the map. */
static inline int64_t R(cell)(const win_chunk *t, int64_t i)
{
    return (t->y + i / t->cols) * t->a->g.size[1] + t->x + i % t->cols;
}

/* ---- one row of logits ---- */

/* Where in the reversed table the biases of query (y,x) and the first key of row i of a rectangle
 * are. */
static inline int64_t R(table_at)(const tp_window *g, const tp_rect *r, int64_t i, int64_t y,
                                  int64_t x)
{
    return g->rows - 1 - ((y - r->y - i + g->reach[0]) * g->stride + x - r->x + g->reach[1]);
}

/* Hides what is too far from query (y,x). */
static void R(hide_far)(const tp_window *g, const tp_rect *r, int64_t y, int64_t x, real *s)
{
    const int64_t first = tp__window_min(r->cols, tp__window_max(0, x - g->halo[1] - r->x));
    const int64_t end = tp__window_min(r->cols, x + g->halo[1] + 1 - r->x);
    for (int64_t i = 0; i < r->rows; i++, s += r->cols) {
        const int64_t away = y - r->y - i;
        const bool near = away <= g->halo[0] && -away <= g->halo[0];
        for (int64_t j = 0; j < r->cols; j++)
            if (!near || j < first || j >= end) s[j] = -(real)INFINITY;
    }
}

/* Adds the biases of query i of the chunk to its logits s. */
static void R(finish_logits)(const win_chunk *t, int64_t i, real *s)
{
    const tp_window *g = &t->a->g;
    const int64_t y = t->y + i / t->cols, x = t->x + i % t->cols;
    const real *bias = t->a->c->x[WIN_GLOBAL_BIAS].data, *table = t->scratch + t->a->at.table;
    for (int64_t j = 0; bias && j < g->global; j++) s[g->low + j] += bias[t->h * g->global + j];
    s += g->extra;
    for (int r = 0; r < t->nrect; r++) {
        const tp_rect *rect = &t->rect[r];
        for (int64_t k = 0; g->rows && k < rect->rows; k++) {
            const real *from = table + R(table_at)(g, rect, k, y, x);
            real *to = s + k * rect->cols;
            for (int64_t j = 0; j < rect->cols; j++) to[j] += from[j];
        }
        if (g->exact) R(hide_far)(g, rect, y, x, s);
        s += rect->rows * rect->cols;
    }
}

/* Logits of the m queries from i of the chunk; their scaled queries are kept. */
static void R(logits)(const win_chunk *t, int64_t i, int64_t m)
{
    const win *a = t->a;
    const int64_t d = a->g.dim;
    real *q = t->scratch + a->at.q, *s = t->scratch + a->at.scores;
    for (int64_t r = 0; r < m; r++) {
        const real *from =
            R(slice)(t, &a->c->x[WIN_Q], a->g.tokens, a->g.global + R(cell)(t, i + r));
        for (int64_t x = 0; x < d; x++) q[r * d + x] = a->scale * from[x];
    }
    tp__gemm(REAL, false, true, m, t->n, d, 1.0, q, d, t->scratch + a->at.k, d, 0.0, s, a->at.ld);
    for (int64_t r = 0; r < m; r++) R(finish_logits)(t, i + r, s + r * a->at.ld);
}

/* ---- forward ---- */

/* s[n] becomes exp(s - maximum); returns the sum, *top the maximum. */
static real R(exponentials)(real *s, int64_t n, real *top)
{
    real most = s[0], sum = 0;
#pragma omp simd reduction(max : most)
    for (int64_t j = 0; j < n; j++) most = s[j] > most ? s[j] : most;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; j++) {
        s[j] = r_exp(s[j] - most);
        sum += s[j];
    }
    *top = most;
    return sum;
}

static void R(forward_piece)(const win_chunk *t, int64_t i, int64_t m)
{
    const win *a = t->a;
    const int64_t d = a->g.dim, ld = a->at.ld;
    real *s = t->scratch + a->at.scores, *out = t->scratch + a->at.out, sum[TP_WINDOW_QUERIES];
    real *lse = (real *)a->c->y[1].data + (t->b * a->g.heads + t->h) * a->g.cells;
    R(logits)(t, i, m);
    for (int64_t r = 0; r < m; r++) {
        real top;
        sum[r] = R(exponentials)(s + r * ld, t->n, &top);
        lse[R(cell)(t, i + r)] = top + r_log(sum[r]);
    }
    tp__gemm(REAL, false, false, m, d, t->n, 1.0, s, ld, t->scratch + a->at.v, d, 0.0, out, d);
    for (int64_t r = 0; r < m; r++) {
        real *y = R(slice)(t, &a->c->y[0], a->g.cells, R(cell)(t, i + r));
        const real k = 1 / sum[r];
        for (int64_t x = 0; x < d; x++) y[x] = k * out[r * d + x];
    }
}

static void R(forward_tasks)(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const win *a = ctx;
    const tp_window *g = &a->g;
    for (int64_t task = begin; task < end; task++) {
        const int64_t head = task / g->chunks[0];
        win_chunk t = { .a = a,
                        .b = head / g->heads,
                        .h = head % g->heads,
                        .scratch = (real *)a->c->work + thread * a->at.total };
        R(load_table)(&t);
        for (int64_t cx = 0; cx < g->chunks[1]; cx++) {
            R(set_chunk)(&t, task % g->chunks[0], cx);
            const int64_t queries = t.rows * t.cols;
            for (int64_t i = 0; i < queries; i += a->at.m)
                R(forward_piece)(&t, i, tp__window_min(a->at.m, queries - i));
        }
    }
}

static win R(prepare)(const tp_call *c, bool backward)
{
    const tp_window_cfg *cfg = c->attr;
    const tp_window g = tp__window(c->x, cfg);
    const double scale = cfg->scale != 0 ? cfg->scale : g.dim ? 1 / sqrt((double)g.dim) : 1;
    return (win){ .c = c, .g = g, .at = tp__window_layout(&g, backward), .scale = (real)scale };
}

static tp_code R(window_attention_fwd)(const tp_call *c)
{
    const win a = R(prepare)(c, false);
    if (c->y[0].numel == 0) return TP_OK;
    tp__parallel(c->dev, a.g.batch * a.g.heads * a.g.chunks[0], 1, R(forward_tasks), &a);
    return TP_OK;
}

/* ---- backward ---- */

/* From logits s and gradients dp of the probabilities of one query: s becomes the logits' gradient,
 * dp the probabilities. */
static void R(gradient_row)(int64_t n, real lse, real delta, real *restrict s, real *restrict dp)
{
    for (int64_t j = 0; j < n; j++) {
        const real p = r_exp(s[j] - lse);
        s[j] = p * (dp[j] - delta);
        dp[j] = p;
    }
}

/* Adds the gradients s of the logits of query i to those of the biases. */
static void R(bias_gradients)(const win_chunk *t, int64_t i, const real *s)
{
    const tp_window *g = &t->a->g;
    const int64_t y = t->y + i / t->cols, x = t->x + i % t->cols;
    real *table = t->partial + 2 * g->extra * g->dim, *bias = table + g->rows;
    for (int64_t j = 0; j < g->global; j++) bias[j] += s[g->low + j];
    s += g->extra;
    for (int r = 0; g->rows && r < t->nrect; r++)
        for (int64_t k = 0; k < t->rect[r].rows; k++, s += t->rect[r].cols) {
            real *to = table + R(table_at)(g, &t->rect[r], k, y, x);
            for (int64_t j = 0; j < t->rect[r].cols; j++) to[j] += s[j];
        }
}

/* Gradients of the rows of a piece; its dO is copied. */
static void R(gradient_rows)(const win_chunk *t, int64_t i, int64_t m)
{
    const win *a = t->a;
    const int64_t d = a->g.dim, ld = a->at.ld;
    const real *lse = (const real *)a->c->y[1].data + (t->b * a->g.heads + t->h) * a->g.cells;
    real *s = t->scratch + a->at.scores, *dp = t->scratch + a->at.other;
    real *dout = t->scratch + a->at.dout, delta[TP_WINDOW_QUERIES];
    for (int64_t r = 0; r < m; r++) {
        const int64_t cell = R(cell)(t, i + r);
        const real *dy = R(slice)(t, &a->c->dy[0], a->g.cells, cell);
        const real *y = R(slice)(t, &a->c->y[0], a->g.cells, cell);
        real sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t x = 0; x < d; x++) sum += dy[x] * y[x];
        memcpy(dout + r * d, dy, (size_t)d * sizeof(real));
        delta[r] = sum;
    }
    tp__gemm(REAL, false, true, m, t->n, d, 1.0, dout, d, t->scratch + a->at.v, d, 0.0, dp, ld);
    for (int64_t r = 0; r < m; r++) {
        R(gradient_row)(t->n, lse[R(cell)(t, i + r)], delta[r], s + r * ld, dp + r * ld);
        R(bias_gradients)(t, i + r, s + r * ld);
    }
}

static void R(backward_piece)(const win_chunk *t, int64_t i, int64_t m)
{
    const win *a = t->a;
    const int64_t d = a->g.dim, ld = a->at.ld;
    const real *q = t->scratch + a->at.q, *dout = t->scratch + a->at.dout;
    const real *s = t->scratch + a->at.scores, *p = t->scratch + a->at.other;
    real *dq = t->scratch + a->at.out;
    R(logits)(t, i, m);
    R(gradient_rows)(t, i, m);
    tp__gemm(REAL, true, false, t->n, d, m, 1.0, p, ld, dout, d, 1.0, t->scratch + a->at.dv, d);
    tp__gemm(REAL, true, false, t->n, d, m, 1.0, s, ld, q, d, 1.0, t->scratch + a->at.dk, d);
    if (!a->c->dx[WIN_Q].data) return;
    tp__gemm(REAL, false, false, m, d, t->n, a->scale, s, ld, t->scratch + a->at.k, d, 0.0, dq, d);
    for (int64_t r = 0; r < m; r++)
        memcpy(R(slice)(t, &a->c->dx[WIN_Q], a->g.tokens, a->g.global + R(cell)(t, i + r)),
               dq + r * d, (size_t)d * sizeof(real));
}

/* Adds the gradients of gathered rows to the map's and, of low and global rows, to the task's. */
static void R(scatter)(const win_chunk *t, const real *from, real *extra, const tp_view *dx)
{
    const tp_window *g = &t->a->g;
    for (int64_t i = 0; i < g->extra * g->dim; i++) extra[i] += from[i];
    from += g->extra * g->dim;
    for (int r = 0; dx->data && r < t->nrect; r++)
        for (int64_t i = 0; i < t->rect[r].rows; i++)
            for (int64_t j = 0; j < t->rect[r].cols; j++, from += g->dim) {
                const int64_t token = R(source)(g, &t->rect[r], i, j);
                if (token < 0) continue;
                real *to = R(slice)(t, dx, g->tokens, token);
                for (int64_t x = 0; x < g->dim; x++) to[x] += from[x];
            }
}

static void R(backward_chunk)(win_chunk *t, int64_t cy, int64_t cx)
{
    const win *a = t->a;
    real *dk = t->scratch + a->at.dk, *dv = t->scratch + a->at.dv;
    R(set_chunk)(t, cy, cx);
    const int64_t queries = t->rows * t->cols;
    memset(dk, 0, (size_t)(t->n * a->g.dim) * sizeof(real));
    memset(dv, 0, (size_t)(t->n * a->g.dim) * sizeof(real));
    for (int64_t i = 0; i < queries; i += a->at.m)
        R(backward_piece)(t, i, tp__window_min(a->at.m, queries - i));
    R(scatter)(t, dk, t->partial, &a->c->dx[WIN_K]);
    R(scatter)(t, dv, t->partial + a->g.extra * a->g.dim, &a->c->dx[WIN_V]);
}

/* The sums of stripe `task` (of all heads). */
static real *R(partial)(const win *a, int64_t task)
{
    return (real *)a->c->work + a->c->dev->threads * a->at.total + task * a->at.partial;
}

static void R(backward_tasks)(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const win *a = ctx;
    const tp_window *g = &a->g;
    for (int64_t task = begin; task < end; task++) {
        const int64_t head = task / g->stripes, stripe = task % g->stripes;
        if (tp__window_phase(g, stripe) != a->phase) continue;
        win_chunk t = { .a = a,
                        .b = head / g->heads,
                        .h = head % g->heads,
                        .scratch = (real *)a->c->work + thread * a->at.total,
                        .partial = R(partial)(a, task) };
        R(load_table)(&t);
        memset(t.partial, 0, (size_t)a->at.partial * sizeof(real));
        const int64_t stop = tp__window_min(g->chunks[0], (stripe + 1) * g->stripe);
        for (int64_t cy = stripe * g->stripe; cy < stop; cy++)
            for (int64_t cx = 0; cx < g->chunks[1]; cx++) R(backward_chunk)(&t, cy, cx);
    }
}

/* Adds the stripes' sums of low and global rows of one head of one batch row. */
static void R(sum_rows)(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const win *a = ctx;
    const tp_window *g = &a->g;
    (void)thread;
    for (int64_t i = begin * g->stripes; i < end * g->stripes; i++) {
        const win_chunk t = { .a = a,
                              .b = i / g->stripes / g->heads,
                              .h = i / g->stripes % g->heads };
        const real *from = R(partial)(a, i);
        for (int v = 0; v < 2; v++)
            for (int64_t j = 0; j < g->extra; j++, from += g->dim) {
                const tp_view *dx = &a->c->dx[j < g->low ? WIN_LOW_K + v : WIN_K + v];
                if (!dx->data) continue;
                real *to = j < g->low ? R(slice)(&t, dx, g->low, j)
                                      : R(slice)(&t, dx, g->tokens, j - g->low);
                for (int64_t x = 0; x < g->dim; x++) to[x] += from[x];
            }
    }
}

/* Adds the sums of one head's biases over batch and stripes. */
static void R(sum_biases)(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const win *a = ctx;
    const tp_window *g = &a->g;
    real *table = a->c->dx[WIN_TABLE].data, *bias = a->c->dx[WIN_GLOBAL_BIAS].data;
    (void)thread;
    for (int64_t h = begin; h < end; h++)
        for (int64_t i = 0; i < g->batch * g->stripes; i++) {
            const int64_t task = (i / g->stripes * g->heads + h) * g->stripes + i % g->stripes;
            const real *from = R(partial)(a, task) + 2 * g->extra * g->dim;
            for (int64_t j = 0; table && j < g->rows; j++)
                table[(g->rows - 1 - j) * g->heads + h] += from[j];
            from += g->rows;
            for (int64_t j = 0; bias && j < g->global; j++) bias[h * g->global + j] += from[j];
        }
}

static void R(zero)(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const tp_view *x = ctx;
    (void)thread;
    memset((real *)x->data + begin, 0, (size_t)(end - begin) * sizeof(real));
}

static tp_code R(window_attention_bwd)(const tp_call *c)
{
    win a = R(prepare)(c, true);
    const tp_window *g = &a.g;
    for (int i = 0; i < c->nx; i++)
        if (c->dx[i].data) tp__parallel(c->dev, c->dx[i].numel, 1 << 18, R(zero), &c->dx[i]);
    if (c->y[0].numel == 0) return TP_OK;
    for (a.phase = 0; a.phase < g->phases; a.phase++)
        tp__parallel(c->dev, g->batch * g->heads * g->stripes, 1, R(backward_tasks), &a);
    tp__parallel(c->dev, g->batch * g->heads, 1, R(sum_rows), &a);
    tp__parallel(c->dev, g->heads, 1, R(sum_biases), &a);
    return TP_OK;
}

#undef win
#undef win_chunk
#endif
