/* embedding.c - y[i] = scale table[id[i]], rows of C elements.
 *
 * Backward adds rows of dy to rows of the table's gradient, several to one where an id occurs more than
 * once. It is split by columns: every thread goes through all ids in order, so sums do not depend on
 * the number of threads and no two threads write the same element. */
#include <stdio.h>

#include "tensor/cpu/kit/real.h"
#include "tensor/geometry/index.h"
#include "tensor/kernel.h"

static real scale_of(const tp_call *c)
{
    const double *scale = c->attr;
    return (real)*scale;
}

static void embedding_rows(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const int64_t C = c->x[0].dim[1];
    const real scale = scale_of(c);
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const real *restrict row = (const real *)c->x[0].data + tp__index(&c->x[1], i) * C;
        real *restrict y = (real *)c->y[0].data + i * C;
        for (int64_t j = 0; j < C; j++) y[j] = scale * row[j];
    }
}

static tp_code embedding_fwd(const tp_call *c)
{
    const tp_view *ids = &c->x[1];
    const int64_t V = c->x[0].dim[0], C = c->x[0].dim[1], bad = tp__first_outside(ids, 0, V);

    if (bad >= 0) {
        snprintf(c->why, TP_WHY, "id %lld at position %lld, but the table has %lld rows",
                 (long long)tp__index(ids, bad), (long long)bad, (long long)V);
        return TP_E_VALUE;
    }
    tp__for(c, ids->numel, 1 + 4 * TP_BLOCK / (C + 1), embedding_rows);
    return TP_OK;
}

static void embedding_columns(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const tp_view *ids = &c->x[1];
    const int64_t V = c->x[0].dim[0], C = c->x[0].dim[1];
    const real scale = scale_of(c), *dy = c->dy[0].data;
    real *table = c->dx[0].data;
    (void)thread;
    if (!(c->add & 1u))
        for (int64_t v = 0; v < V; v++)
            memset(table + v * C + begin, 0, (size_t)(end - begin) * sizeof *table);
    for (int64_t i = 0; i < ids->numel; i++) {
        real *restrict row = table + tp__index(ids, i) * C;
        const real *restrict g = dy + i * C;
        for (int64_t j = begin; j < end; j++) row[j] += scale * g[j];
    }
}

static tp_code embedding_bwd(const tp_call *c)
{
    if (c->dx[0].data) tp__for(c, c->x[0].dim[1], 64, embedding_columns);
    return TP_OK;
}

TP_CPU_KERNEL(embedding_fwd)
TP_CPU_KERNEL(embedding_bwd)
