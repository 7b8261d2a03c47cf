/* batchnorm.c - normalises each channel of X [rows,C] by its column's statistics, or running ones.
 *
 *     h = (x - m) s     y = h w + b     s = (var + eps)^-1/2
 *     training:  dx = w s (dy - mean dy - h mean(dy h))       eval:  dx = w s dy
 *     dw = sum dy h     db = sum dy
 *
 * Columns are reduced in fixed blocks of rows: a block's mean and squared deviations while it is in
 * cache, then merged in order (Chan, Golub, LeVeque 1979), without cancellation. Where processes
 * share the batch (tensor/together.h), the statistics and the means of backward are those of all
 * rows; dw and db stay this process's. Hidden outputs: m and s, [C] each. Values in bf16 are
 * computed in f32, in pieces of ROOM channels. */
#include <stdio.h>

#include "cpu/kit/real.h"
#include "cpu/kit/row_blocks.h"
#include "cpu/kit/statistics.h"
#include "cpu/kit/stored.h"
#include "tensor/geometry/norms.h"
#include "tensor/geometry/whole.h"
#include "tensor/kernel.h"

/* Inputs x, w, b, mean, var, batches; hidden outputs 1 and 2 are m and s. */
static int64_t channels(const tp_call *c)
{
    return c->x[3].dim[0];
}

static int64_t bn_rows(const tp_call *c)
{
    const int64_t C = channels(c);
    return C > 0 ? c->x[0].numel / C : 0;
}

/* n elements of a view from `at` on, in f32: in place or in `room`. NULL if it is absent. */
static const real *values(const tp_view *v, int64_t at, int64_t n, real *room)
{
    return v->data ? read_row(v, v->data, at, n, room) : NULL;
}

/* ---- the processes that share the batch ---- */

static size_t bn_own_work(const tp_call *c)
{
    return (size_t)((tp__row_blocks(bn_rows(c)) + 1) * 2 * channels(c)) * sizeof(real);
}

/* Where c->work has 1 + 2 C numbers for the exchange. */
static size_t bn_numbers_at(const tp_call *c)
{
    return (bn_own_work(c) + 63) / 64 * 64;
}

static double *bn_numbers(const tp_call *c)
{
    return (double *)(void *)((char *)c->work + bn_numbers_at(c));
}

static tp_code bn_alone(const tp_call *c)
{
    snprintf(c->why, TP_WHY, "batch norm: the statistics of the other processes did not come");
    return TP_E_IO;
}

/* The moments of *rows become those of all processes' rows. */
static bool bn_join_moments(const tp_call *c, double *rows, real *m, real *v)
{
    const int64_t C = channels(c);
    double *x = bn_numbers(c);
    x[0] = *rows;
    for (int64_t i = 0; i < C; i++) {
        x[1 + i] = (double)m[i];
        x[1 + C + i] = (double)v[i];
    }
    if (!tp__together_moments(&c->dev->together, C, x)) return false;
    *rows = x[0];
    for (int64_t i = 0; i < C; i++) {
        m[i] = (real)x[1 + i];
        v[i] = (real)x[1 + C + i];
    }
    return true;
}

/* The sums [2,C] of *rows become those of all processes' rows. */
static bool bn_join_sums(const tp_call *c, double *rows, real *sums)
{
    const int64_t n = 2 * channels(c);
    double *x = bn_numbers(c);
    x[0] = *rows;
    for (int64_t i = 0; i < n; i++) x[1 + i] = (double)sums[i];
    if (!tp__together_sum(&c->dev->together, 1 + n, x)) return false;
    *rows = x[0];
    for (int64_t i = 0; i < n; i++) sums[i] = (real)x[1 + i];
    return true;
}

/* ---- forward ---- */

/* Mean and squared deviations of n channels from j on, over rows first .. end. */
static void bn_moments(const tp_call *c, int64_t first, int64_t end, int64_t j, int64_t n, real *m,
                       real *v)
{
    const int64_t C = channels(c);
    real room[ROOM];
    for (int64_t r = first; r < end; r++) {
        const real *x = values(&c->x[0], r * C + j, n, room);
        for (int64_t i = 0; i < n; i++) m[i] += x[i];
    }
    for (int64_t i = 0; i < n; i++) m[i] /= (real)(end - first);
    for (int64_t r = first; r < end; r++) {
        const real *x = values(&c->x[0], r * C + j, n, room);
        for (int64_t i = 0; i < n; i++) v[i] += (x[i] - m[i]) * (x[i] - m[i]);
    }
}

/* c->work in forward: mean and squared deviations of each block of rows, [blocks,2,C]. */
static void bn_stat_blocks(const tp_call *c, int64_t begin, int64_t end)
{
    const int64_t C = channels(c), rows = bn_rows(c), size = tp__block_rows(rows);
    for (int64_t k = begin; k < end; k++) {
        const int64_t first = k * size, last = tp__least(rows, first + size);
        real *m = (real *)c->work + k * 2 * C, *v = m + C;
        memset(m, 0, (size_t)(2 * C) * sizeof *m);
        for (int64_t j = 0; j < C; j += ROOM)
            bn_moments(c, first, last, j, tp__least(C - j, ROOM), m + j, v + j);
    }
}

/* Mean m and sum of squared deviations v of all rows. */
static void bn_merge_blocks(const tp_call *c, real *m, real *v)
{
    const int64_t C = channels(c), rows = bn_rows(c), size = tp__block_rows(rows);
    memset(m, 0, (size_t)C * sizeof *m);
    memset(v, 0, (size_t)C * sizeof *v);
    for (int64_t done = 0; done < rows; done += size) {
        const real *mk = (const real *)c->work + done / size * 2 * C, *vk = mk + C;
        const real n = (real)(rows - done < size ? rows - done : size),
                   share = n / ((real)done + n);
        for (int64_t i = 0; i < C; i++) {
            const real d = mk[i] - m[i];
            m[i] += d * share;
            v[i] += vk[i] + d * d * share * (real)done;
        }
    }
}

/* Computes the batch's statistics. Updates the running ones, with unbiased variance, and the count
 * of batches. */
static bool bn_batch_stats(const tp_call *c, real *m, real *var)
{
    const int64_t C = channels(c);
    double rows = (double)bn_rows(c);
    const real keep = (real)(1.0 - ((const tp__batchnorm_attr *)c->attr)->momentum);
    real *mean = c->x[3].data, *running = c->x[4].data;
    tp__for(c, tp__row_blocks(bn_rows(c)), 1, bn_stat_blocks);
    bn_merge_blocks(c, m, var);
    if (c->dev->together.ranks > 1 && !bn_join_moments(c, &rows, m, var)) return false;
    if (c->x[5].data && rows > 1 && !c->replay) ++*(int64_t *)c->x[5].data;
    for (int64_t i = 0; i < C && rows > 1; i++) {
        const real squares = var[i], unbiased = squares / (real)(rows - 1);
        var[i] = squares / (real)rows;
        if (c->replay) continue;
        mean[i] = keep * mean[i] + (1 - keep) * m[i];
        running[i] = keep * running[i] + (1 - keep) * unbiased;
    }
    return true;
}

/* n elements y = (x - m) s w + b; w and b may be NULL. */
static void bn_row(int64_t n, const real *x, const real *m, const real *s, const real *w,
                   const real *b, real *y)
{
    if (w && b) { /* the common case */
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[i] = (x[i] - m[i]) * s[i] * w[i] + b[i];
        return;
    }
    for (int64_t i = 0; i < n; i++) y[i] = (x[i] - m[i]) * s[i];
    if (w)
        for (int64_t i = 0; i < n; i++) y[i] *= w[i];
    if (b)
        for (int64_t i = 0; i < n; i++) y[i] += b[i];
}

static void bn_normalise(const tp_call *c, int64_t begin, int64_t end)
{
    const int64_t C = channels(c);
    const real *m = c->y[1].data, *s = c->y[2].data;
    real as_w[ROOM], as_b[ROOM], as_x[ROOM], as_y[ROOM];
    for (int64_t j = 0; j < C; j += ROOM) {
        const int64_t n = tp__least(C - j, ROOM);
        const real *w = values(&c->x[1], j, n, as_w), *b = values(&c->x[2], j, n, as_b);
        for (int64_t at = begin * C + j; at < end * C; at += C) {
            real *y = row_at(&c->y[0], c->y[0].data, at, as_y);
            bn_row(n, values(&c->x[0], at, n, as_x), m + j, s + j, w, b, y);
            put_row(&c->y[0], c->y[0].data, at, n, y);
        }
    }
}

static tp_code batchnorm_fwd(const tp_call *c)
{
    const int64_t C = channels(c);
    const real eps = (real)((const tp__batchnorm_attr *)c->attr)->eps;
    real *m = c->y[1].data, *s = c->y[2].data;
    if (C == 0) return TP_OK;
    if (c->train) {
        if (!bn_batch_stats(c, m, s)) return bn_alone(c);
    } else {
        memcpy(m, c->x[3].data, (size_t)C * sizeof *m);
        memcpy(s, c->x[4].data, (size_t)C * sizeof *s);
    }
    for (int64_t i = 0; i < C; i++) s[i] = inverse_root(s[i] + eps);
    tp__for(c, bn_rows(c), 16384 / (C + 1), bn_normalise);
    return TP_OK;
}

/* ---- backward ---- */

/* c->work in backward: the sums of dy h and dy, [2,C], then those of each block, [blocks,2,C]. */
static void bn_sum_blocks(const tp_call *c, int64_t begin, int64_t end)
{
    const int64_t C = channels(c), rows = bn_rows(c), size = tp__block_rows(rows);
    const real *m = c->y[1].data, *s = c->y[2].data;
    real as_x[ROOM], as_dy[ROOM];
    for (int64_t k = begin; k < end; k++) {
        real *dw = (real *)c->work + (k + 1) * 2 * C, *db = dw + C;
        memset(dw, 0, (size_t)(2 * C) * sizeof *dw);
        for (int64_t r = k * size; r < tp__least(rows, (k + 1) * size); r++)
            for (int64_t j = 0; j < C; j += ROOM) {
                const int64_t n = tp__least(C - j, ROOM);
                const real *x = values(&c->x[0], r * C + j, n, as_x);
                const real *dy = values(&c->dy[0], r * C + j, n, as_dy);
                for (int64_t i = 0; i < n; i++) {
                    dw[j + i] += dy[i] * ((x[i] - m[j + i]) * s[j + i]);
                    db[j + i] += dy[i];
                }
            }
    }
}

/* n elements dx from channel j on. c->work now holds the means of dy h and dy, or zeros in eval. */
static void bn_dx_row(const tp_call *c, int64_t j, int64_t n, const real *x, const real *dy,
                      const real *w, real *dx)
{
    const real *m = (const real *)c->y[1].data + j, *s = (const real *)c->y[2].data + j;
    const real *mean_dyh = (const real *)c->work + j, *mean_dy = mean_dyh + channels(c);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const real d = s[i] * (dy[i] - mean_dy[i] - (x[i] - m[i]) * s[i] * mean_dyh[i]);
        dx[i] = w ? d * w[i] : d;
    }
}

static void bn_dx(const tp_call *c, int64_t begin, int64_t end)
{
    const int64_t C = channels(c);
    real as_w[ROOM], as_x[ROOM], as_dy[ROOM], as_dx[ROOM];
    for (int64_t j = 0; j < C; j += ROOM) {
        const int64_t n = tp__least(C - j, ROOM);
        const real *w = values(&c->x[1], j, n, as_w);
        for (int64_t at = begin * C + j; at < end * C; at += C) {
            real *dx = row_at(&c->dx[0], c->dx[0].data, at, as_dx);
            bn_dx_row(c, j, n, values(&c->x[0], at, n, as_x), values(&c->dy[0], at, n, as_dy), w,
                      dx);
            put_row(&c->dx[0], c->dx[0].data, at, n, dx);
        }
    }
}

static tp_code batchnorm_bwd(const tp_call *c)
{
    const int64_t C = channels(c), rows = bn_rows(c), blocks = tp__row_blocks(rows);
    double all_rows = (double)rows;
    real *sums = c->work;
    if (C == 0) return TP_OK;
    tp__for(c, blocks, 1, bn_sum_blocks);
    tp__add_blocks(sums, false, 2 * C, sums + 2 * C, blocks, 2 * C);
    for (int i = 1; i <= 2; i++)
        if (c->dx[i].data) tp__add_blocks_to(&c->dx[i], false, C, sums + (i - 1) * C, 1, C);
    if (c->train && c->dev->together.ranks > 1 && !bn_join_sums(c, &all_rows, sums))
        return bn_alone(c);
    const real scale = c->train && all_rows > 0 ? 1 / (real)all_rows : 0;
    for (int64_t i = 0; i < 2 * C; i++) sums[i] *= scale;
    if (c->dx[0].data) tp__for(c, rows, 16384 / (C + 1), bn_dx);
    return TP_OK;
}

static size_t batchnorm_work(const tp_call *c)
{
    if (!tp_is_backward(c) && !c->train) return 0;
    if (c->dev->together.ranks <= 1) return bn_own_work(c);
    return bn_numbers_at(c) + (size_t)(1 + 2 * channels(c)) * sizeof(double);
}

TP_CPU_WORK(batchnorm_work)
TP_CPU_KERNEL(batchnorm_fwd)
TP_CPU_KERNEL(batchnorm_bwd)
