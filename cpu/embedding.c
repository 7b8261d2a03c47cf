/* embedding.c - rows of a tensor by index: embedding, y[i] = scale table[id[i]], index_select and
 * index_add along an axis of x [outer,size,inner], whose rows are [inner].
 *
 * Rows may be added to more than once. Adding is split by columns, of all outer * inner: every
 * thread processes all indices in order, so sums do not depend on the number of threads and no two
 * threads write the same element. */
#include <stdio.h>

#include "cpu/kit/real.h"
#include "tensor/geometry/index.h"
#include "tensor/kernel.h"
#include "tensor/shape.h"

typedef struct rows {
    const tp_view *index; /* [n] */
    int64_t outer, n, size, inner;
    real scale;
    int64_t pad; /* adding skips this row; -1: none */
} rows;

static rows rows_of_table(const tp_call *c)
{
    const tp_view *table = &c->x[0], *ids = &c->x[1];
    const tp_embedding_attr *a = c->attr;
    return (rows){ ids, 1, ids->numel, table->dim[0], table->dim[1], (real)a->scale, a->pad };
}

static rows rows_along(const tp_call *c)
{
    const tp_view *x = &c->x[0], *index = &c->x[1];
    const int axis = tp__axis(x->ndim, *(const int *)c->attr);
    rows r = { index, 1, index->numel, x->dim[axis], 1, 1, -1 };
    for (int d = 0; d < x->ndim; d++)
        if (d != axis) *(d < axis ? &r.outer : &r.inner) *= x->dim[d];
    return r;
}

typedef struct job {
    rows r;
    const real *from, *start;
    real *to;
} job;

/* ---- reading ---- */

/* Rows of one element: y[i] = scale from[index[i]] for n indices from `first` on. */
static void take_elements(const rows *r, int64_t first, int64_t n, const real *restrict from,
                          real *restrict y)
{
    const int32_t *narrow = (const int32_t *)r->index->data + first;
    const int64_t *wide = (const int64_t *)r->index->data + first;
    if (r->index->dtype == TP_I32)
        for (int64_t i = 0; i < n; i++) y[i] = r->scale * from[narrow[i]];
    else
        for (int64_t i = 0; i < n; i++) y[i] = r->scale * from[wide[i]];
}

/* to [outer,n,inner] = scale from[:,index], rows [begin, end) of outer * n. */
static void take_rows(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const job *j = ctx;
    const rows *r = &j->r;
    (void)thread;
    while (begin < end) {
        const int64_t o = begin / r->n, i = begin % r->n, rest = r->n - i;
        const int64_t n = rest < end - begin ? rest : end - begin;
        const real *from = j->from + o * r->size * r->inner;
        real *restrict y = j->to + begin * r->inner;
        if (r->inner == 1) take_elements(r, i, n, from, y);
        for (int64_t e = 0; r->inner > 1 && e < n; e++, y += r->inner) {
            const real *restrict row = from + tp__index(r->index, i + e) * r->inner;
            for (int64_t k = 0; k < r->inner; k++) y[k] = r->scale * row[k];
        }
        begin += n;
    }
}

static void take(const tp_call *c, rows r, const void *from, void *to)
{
    const job j = { .r = r, .from = from, .to = to };
    tp__parallel(c->dev, r.outer * r.n, 1 + 4 * TP_BLOCK / (r.inner + 1), take_rows, &j);
}

/* ---- adding ---- */

/* Columns [k, end) of one of the outer: sets `to` to `start`, or zeros. */
static void begin_columns(const job *j, int64_t o, int64_t k, int64_t end)
{
    const rows *r = &j->r;
    const bool whole = k == 0 && end == r->inner;
    const int64_t lines = whole ? 1 : r->size, n = whole ? r->size * r->inner : end - k;
    int64_t at = o * r->size * r->inner + k;
    for (int64_t v = 0; n > 0 && v < lines; v++, at += r->inner) {
        if (j->start)
            memcpy(j->to + at, j->start + at, (size_t)n * sizeof *j->to);
        else
            memset(j->to + at, 0, (size_t)n * sizeof *j->to);
    }
}

/* Rows of one element: to[index[i]] += scale g[i]; there is no padding id. */
static void add_elements(const rows *r, const real *restrict g, real *restrict to)
{
    const int32_t *narrow = r->index->data;
    const int64_t *wide = r->index->data;
    if (r->index->dtype == TP_I32)
        for (int64_t i = 0; i < r->n; i++) to[narrow[i]] += r->scale * g[i];
    else
        for (int64_t i = 0; i < r->n; i++) to[wide[i]] += r->scale * g[i];
}

/* to[:,index] += scale from [outer,n,inner], columns [begin, end) of outer * inner. */
static void add_columns(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const job *j = ctx;
    const rows *r = &j->r;
    (void)thread;
    while (begin < end) {
        const int64_t o = begin / r->inner, k = begin % r->inner, most = k + end - begin;
        const int64_t last = most < r->inner ? most : r->inner;
        if (j->start != j->to) begin_columns(j, o, k, last);
        const real *restrict g = j->from + o * r->n * r->inner;
        real *to = j->to + o * r->size * r->inner;
        const bool single = r->inner == 1 && r->pad < 0;
        if (single) add_elements(r, g, to);
        for (int64_t i = 0; !single && i < r->n; i++, g += r->inner) {
            const int64_t id = tp__index(r->index, i);
            if (id == r->pad) continue;
            real *restrict row = to + id * r->inner;
            for (int64_t e = k; e < last; e++) row[e] += r->scale * g[e];
        }
        begin += last - k;
    }
}

/* start: what is added to, perhaps `to` itself; NULL: zeros. */
static void add(const tp_call *c, rows r, const void *from, const void *start, void *to)
{
    const job j = { r, from, start, to };
    const int64_t outer = 1 + TP_BLOCK / (r.n * r.inner + 1);
    tp__parallel(c->dev, r.outer * r.inner, r.inner < 64 ? outer * r.inner : 64, add_columns, &j);
}

/* ---- the ops ---- */

static tp_code embedding_fwd(const tp_call *c)
{
    const rows r = rows_of_table(c);
    const int64_t bad = tp__first_outside(r.index, 0, r.size);

    if (bad >= 0) {
        snprintf(c->why, TP_WHY, "id %lld at position %lld, but the table has %lld rows",
                 (long long)tp__index(r.index, bad), (long long)bad, (long long)r.size);
        return TP_E_VALUE;
    }
    take(c, r, c->x[0].data, c->y[0].data);
    return TP_OK;
}

static tp_code embedding_bwd(const tp_call *c)
{
    void *to = c->dx[0].data;
    if (to) add(c, rows_of_table(c), c->dy[0].data, c->add & 1u ? to : NULL, to);
    return TP_OK;
}

static tp_code check_index(const tp_call *c, const rows *r)
{
    const int64_t bad = tp__first_outside(r->index, 0, r->size);
    if (bad < 0) return TP_OK;
    snprintf(c->why, TP_WHY, "index %lld at position %lld, but axis %d has size %lld",
             (long long)tp__index(r->index, bad), (long long)bad,
             tp__axis(c->x[0].ndim, *(const int *)c->attr), (long long)r->size);
    return TP_E_VALUE;
}

static tp_code index_select_fwd(const tp_call *c)
{
    const rows r = rows_along(c);
    const tp_code code = check_index(c, &r);
    if (code == TP_OK) take(c, r, c->x[0].data, c->y[0].data);
    return code;
}

static tp_code index_select_bwd(const tp_call *c)
{
    void *to = c->dx[0].data;
    if (to) add(c, rows_along(c), c->dy[0].data, c->add & 1u ? to : NULL, to);
    return TP_OK;
}

static tp_code index_add_fwd(const tp_call *c)
{
    const rows r = rows_along(c);
    const tp_code code = check_index(c, &r);
    if (code == TP_OK) add(c, r, c->x[2].data, c->x[0].data, c->y[0].data);
    return code;
}

static tp_code index_add_bwd(const tp_call *c)
{
    if (c->dx[2].data) take(c, rows_along(c), c->dy[0].data, c->dx[2].data);
    return TP_OK;
}

TP_CPU_KERNEL(embedding_fwd)
TP_CPU_KERNEL(embedding_bwd)
TP_CPU_KERNEL(index_select_fwd)
TP_CPU_KERNEL(index_select_bwd)
TP_CPU_KERNEL(index_add_fwd)
TP_CPU_KERNEL(index_add_bwd)
