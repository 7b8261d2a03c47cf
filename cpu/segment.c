/* segment.c - the maximum of the rows of each segment.
 *
 * Threads share the columns, and each goes through all rows in order, so that of equal values the
 * first wins whatever the number of threads. NaN wins over every number. */
#include <stdio.h>

#include "cpu/kit/real.h"
#include "tensor/geometry/index.h"
#include "tensor/kernel.h"

/* The elements of a row. */
static int64_t columns_of(const tp_view *x)
{
    int64_t n = 1;
    for (int d = 1; d < x->ndim; d++) n *= x->dim[d];
    return n;
}

static void columns(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const tp_call *c = ctx;
    const int64_t C = columns_of(&c->x[0]), rows = c->x[0].dim[0], n = c->y[0].dim[0];
    const real *x = c->x[0].data;
    real *y = c->y[0].data;
    int64_t *at = c->y[1].data;
    (void)thread;
    for (int64_t s = 0; s < n; s++)
        for (int64_t k = begin; k < end; k++) {
            y[s * C + k] = 0;
            at[s * C + k] = -1;
        }
    for (int64_t i = 0; i < rows; i++) {
        const int64_t to = tp__index(&c->x[1], i) * C;
        for (int64_t k = begin; k < end; k++) {
            const real v = x[i * C + k], most = y[to + k];
            const bool wins = at[to + k] < 0 || v > most || (v != v && most == most);
            y[to + k] = wins ? v : most;
            at[to + k] = wins ? i : at[to + k];
        }
    }
}

static tp_code segment_max_fwd(const tp_call *c)
{
    const int64_t n = c->y[0].dim[0], bad = tp__first_outside(&c->x[1], 0, n);
    const int64_t rows = c->x[0].dim[0];
    if (bad < 0) {
        tp__parallel(c->dev, columns_of(&c->x[0]), 1 + TP_BLOCK / (rows + n + 1), columns, c);
        return TP_OK;
    }
    snprintf(c->why, TP_WHY, "segment %lld at position %lld, but there are %lld segments",
             (long long)tp__index(&c->x[1], bad), (long long)bad, (long long)n);
    return TP_E_VALUE;
}

/* A row belongs to one segment, so no element of dx is written twice. */
static void put(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const tp_call *c = ctx;
    const int64_t C = columns_of(&c->dx[0]);
    const int64_t *at = c->y[1].data;
    const real *dy = c->dy[0].data;
    real *dx = c->dx[0].data;
    (void)thread;
    for (int64_t e = begin; e < end; e++)
        if (at[e] >= 0) dx[at[e] * C + e % C] = dy[e];
}

static tp_code segment_max_bwd(const tp_call *c)
{
    const tp_view *dx = &c->dx[0];
    if (!dx->data || dx->numel == 0) return TP_OK;
    memset(dx->data, 0, (size_t)dx->numel * sizeof(real));
    tp__parallel(c->dev, c->dy[0].numel, TP_BLOCK, put, c);
    return TP_OK;
}

TP_CPU_KERNEL(segment_max_fwd)
TP_CPU_KERNEL(segment_max_bwd)
