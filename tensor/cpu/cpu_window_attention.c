/* cpu_window_attention.c - attention over maps; the geometry is in tensor/window.h.
 *
 * Forward: a task is a strip of chunks in a row of one head. It packs the keys and values that its
 * queries see (window_tiles.h) and takes up to 64 queries at a time: register kernels make their
 * logits, which stay in cache for a plain softmax, and the result. Backward: a task is a stripe of
 * rows of chunks of one head; it makes the probabilities again, adds four more products, and sums
 * the gradients of packed keys before they are added to the map's. Both go down the map strip by
 * strip: two thirds of the rows that a strip packs are in cache from the one above it. */
#ifndef real
#include "tensor/kernel.h"
#include "tensor/window.h"
#define TP_FILE "tensor/cpu/cpu_window_attention.c"
#include "tensor/cpu/cpu_each_real.h"
TP_CPU_KERNEL(window_attention_fwd)
TP_CPU_KERNEL(window_attention_bwd)
#else

#include "tensor/cpu/window_tiles.h"

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
    const int64_t pad = a->at.pad, ld = a->at.ld;
    real *s = t->scratch + a->at.scores, *out = t->scratch + a->at.out, sum[TP_WINDOW_QUERIES];
    real *lse = (real *)a->c->y[1].data + (t->b * a->g.heads + t->h) * a->g.cells;
    R(logits)(t, i, m);
    for (int64_t r = 0; r < m; r++) {
        real top;
        sum[r] = R(exponentials)(s + r * ld, t->padded, &top);
        lse[R(cell)(t, i + r)] = top + r_log(sum[r]);
    }
    R(sum_keys)(t, m, s, t->scratch + a->at.v, out);
    for (int64_t r = 0; r < m; r++) {
        real *y = R(slice)(t, &a->c->y[0], a->g.cells, R(cell)(t, i + r));
        R(scaled_row)(y, out + r * pad, a->g.dim, 1 / sum[r]);
    }
}

static void R(forward_tasks)(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const win *a = ctx;
    const tp_window *g = &a->g;
    for (int64_t task = begin; task < end; task++) {
        const int64_t cy = task % g->chunks[0], strip = task / g->chunks[0];
        const int64_t head = strip / g->strips, first = strip % g->strips * g->strip;
        win_chunk t = { .a = a,
                        .b = head / g->heads,
                        .h = head % g->heads,
                        .scratch = (real *)a->c->work + thread * a->at.total };
        R(set_strip)(&t, cy, first);
        for (int64_t cx = first; cx < tp__window_min(g->chunks[1], first + g->strip); cx++) {
            R(set_chunk)(&t, cy, cx);
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
    const int64_t tasks = a.g.batch * a.g.heads * a.g.strips * a.g.chunks[0];
    tp__parallel(c->dev, tasks, 1, R(forward_tasks), &a);
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
    real *bias = t->partial + 2 * g->extra * g->dim + g->rows;
    for (int64_t j = 0; j < g->global; j++) bias[j] += s[g->low + j];
    s += g->extra;
    for (int r = 0; g->rows && r < t->nrect; r++) {
        const int64_t n = t->rect[r].rows * t->rect[r].cols;
        R(add_row)(t->scratch + t->a->at.dtable + R(biases)(t, r, y, x), s, n);
        s += n;
    }
}

/* Gradients of the rows of a piece; its dO is copied. */
static void R(gradient_rows)(const win_chunk *t, int64_t i, int64_t m)
{
    const win *a = t->a;
    const int64_t d = a->g.dim, ld = a->at.ld, pad = a->at.pad;
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
        R(copy_row)(dout + r * pad, dy, d);
        delta[r] = sum;
    }
    R(times_keys)(t, m, dout, t->scratch + a->at.vt, dp);
    for (int64_t r = 0; r < m; r++) {
        for (int64_t j = t->n; j < t->padded; j++) dp[r * ld + j] = 0;
        R(gradient_row)(t->padded, lse[R(cell)(t, i + r)], delta[r], s + r * ld, dp + r * ld);
        R(bias_gradients)(t, i + r, s + r * ld);
    }
}

/* sums[key] += s^T x over the m queries of a piece. */
static void R(add_gradients)(const win_chunk *t, int64_t m, const real *s, const real *x,
                             real *sums)
{
    const tp_window_scratch *at = &t->a->at;
    const int64_t extra = t->a->g.extra;
    ls_product p = { .rows = t->n - extra,
                     .cols = at->pad,
                     .depth = m,
                     .a = s + extra,
                     .lda = at->ld,
                     .b = x,
                     .ldb = at->pad,
                     .c = sums + t->key * at->pad,
                     .ldc = at->pad };
    R(ls_add_t)(&p);
    p.rows = extra;
    p.a = s;
    p.c = sums;
    R(ls_add_t)(&p);
}

static void R(backward_piece)(const win_chunk *t, int64_t i, int64_t m)
{
    const win *a = t->a;
    const real *s = t->scratch + a->at.scores;
    real *dq = t->scratch + a->at.out;
    R(logits)(t, i, m);
    R(gradient_rows)(t, i, m);
    R(add_gradients)
    (t, m, t->scratch + a->at.other, t->scratch + a->at.dout, t->scratch + a->at.dv);
    R(add_gradients)(t, m, s, t->scratch + a->at.q, t->scratch + a->at.dk);
    if (!a->c->dx[WIN_Q].data) return;
    R(sum_keys)(t, m, s, t->scratch + a->at.k, dq);
    for (int64_t r = 0; r < m; r++) {
        const int64_t token = a->g.global + R(cell)(t, i + r);
        real *to = R(slice)(t, &a->c->dx[WIN_Q], a->g.tokens, token);
        R(scaled_row)(to, dq + r * a->at.pad, a->g.dim, a->scale);
    }
}

/* Adds the gradients of packed cells to the map's. */
static void R(scatter)(const win_chunk *t, const real *from, const tp_view *dx)
{
    const tp_window *g = &t->a->g;
    const int64_t pad = t->a->at.pad;
    if (!dx->data) return;
    from += t->a->at.front * pad;
    for (int r = 0; r < t->nrect; r++)
        for (int64_t j = 0; j < t->rect[r].cols; j++)
            for (int64_t i = 0; i < t->rect[r].rows; i++, from += pad) {
                const int64_t token = R(source)(g, &t->rect[r], i, j);
                if (token >= 0) R(add_row)(R(slice)(t, dx, g->tokens, token), from, g->dim);
            }
}

/* The strip from cx on, with the sums over its rectangles. */
static void R(backward_strip)(win_chunk *t, int64_t cy, int64_t cx)
{
    const tp_window *g = &t->a->g;
    const tp_window_scratch *at = &t->a->at;
    const size_t bytes = (size_t)((at->packed - at->front) * at->pad) * sizeof(real);
    const int64_t stop = tp__window_min(g->chunks[1], cx + g->strip);
    R(set_strip)(t, cy, cx);
    const win_chunk strip = *t;
    memset(t->scratch + at->dk + at->front * at->pad, 0, bytes);
    memset(t->scratch + at->dv + at->front * at->pad, 0, bytes);
    memset(t->scratch + at->dtable, 0, (size_t)at->tables * sizeof(real));
    for (; cx < stop; cx++) {
        R(set_chunk)(t, cy, cx);
        const int64_t queries = t->rows * t->cols;
        for (int64_t i = 0; i < queries; i += at->m)
            R(backward_piece)(t, i, tp__window_min(at->m, queries - i));
    }
    R(scatter)(&strip, t->scratch + at->dk, &t->a->c->dx[WIN_K]);
    R(scatter)(&strip, t->scratch + at->dv, &t->a->c->dx[WIN_V]);
    for (int r = 0; g->rows && r < t->nrect; r++) R(fold_tables)(t, &t->run[r]);
}

/* The extra keys' sums, of a whole task, to those that are added over tasks. */
static void R(store_extra)(const win_chunk *t, const real *from, real *to)
{
    const tp_window *g = &t->a->g;
    for (int64_t i = 0; i < g->extra; i++)
        R(copy_row)(to + i * g->dim, from + i * t->a->at.pad, g->dim);
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
        const tp_window_scratch *at = &a->at;
        real *dk = t.scratch + at->dk, *dv = t.scratch + at->dv;
        memset(t.partial, 0, (size_t)at->partial * sizeof(real));
        memset(dk, 0, (size_t)(at->front * at->pad) * sizeof(real));
        memset(dv, 0, (size_t)(at->front * at->pad) * sizeof(real));
        const int64_t stop = tp__window_stripe(g, stripe + 1);
        for (int64_t cx = 0; cx < g->chunks[1]; cx += g->strip)
            for (int64_t cy = tp__window_stripe(g, stripe); cy < stop; cy++)
                R(backward_strip)(&t, cy, cx);
        R(store_extra)(&t, dk, t.partial);
        R(store_extra)(&t, dv, t.partial + g->extra * g->dim);
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
            for (int64_t j = 0; table && j < g->rows; j++) table[j * g->heads + h] += from[j];
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

#endif
