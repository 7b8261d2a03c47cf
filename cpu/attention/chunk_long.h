/* chunk_long.h - the dynamic projection of long chunks, such as whole sequences and packed
 * documents, by tiles of rows.
 *
 * A task is a part of the rows of a chunk with all heads; a document has as many parts as the
 * longest one. Forward makes one pass over its tiles: weights relative to the largest scores so
 * far, their sums, and the weighted sums of the values, rescaled when a larger score appears. The
 * parts are joined in order; their number depends only on shapes.
 *
 * Backward finds each part's largest scores and sums likewise, then makes a second pass:
 *
 *     g = x dy^T,   dx = p dy,   dz = p (g - delta),   delta = sum_s p g = y dy of each column */
#ifndef TP_CHUNK_LONG_H
#define TP_CHUNK_LONG_H

#include "cpu/attention/ls_products.h"
#include "cpu/kit/take.h"
#include "cpu/kit/transpose.h"
#include "tensor/geometry/chunk_project.h"
#include "tensor/geometry/whole.h"
#include "tensor/kernel.h"

enum {
    LONG_TILE = 64,  /* rows of a tile */
    LONG_SLACK = 16, /* slack rows and columns of products */
    LONG_PART = 256, /* fewest rows of a part */
    LONG_TASKS = 64
};

/* Sizes, and offsets in a thread's scratch, in elements. Heads have R columns, r rounded up, and
 * rows of `pad` elements. */
typedef struct long_cut {
    int64_t l, r, R, D, H, C, pad, chunks, parts, span, values; /* values: 1 or 2 */
    bool whole;                                                 /* D is whole vectors */
    int64_t p, g, x;                /* [tile][H][R] twice, [tile][pad] */
    int64_t scale;                  /* [H][R] */
    int64_t dy, dy_t, delta;        /* backward: [values][H][r][pad], [values][H][D][R], [H][R] */
    int64_t top, sum, acc;          /* in a part's sums: [H][R] twice, [values][H][r][pad] */
    int64_t total, partial, joined; /* joined: [H][R] twice per chunk */
} long_cut;

typedef struct long_part {
    const tp_call *c;
    long_cut z;
    int64_t chunk, row, begin, end; /* row: the chunk's first row; rows of the chunk */
    real *scratch, *sums;
    const uint8_t *mask;
} long_part;

static bool is_long(const tp_call *c)
{
    return ((const tp__chunk_attr *)c->attr)->chunk >= LONG_TILE && c->x[CHUNK_X].numel > 0;
}

static int64_t long_up(int64_t n)
{
    return tp__ceil_div(n, LONG_SLACK) * LONG_SLACK;
}

static long_cut cut_long(const tp_call *c)
{
    const tp__chunk_attr *a = c->attr;
    const tp_view *x = &c->x[CHUNK_X];
    long_cut z = { .l = a->chunk, .r = a->rank, .H = a->heads, .values = c->ny };
    z.C = x->dim[x->ndim - 1];
    z.D = z.C / z.H;
    z.R = long_up(z.r);
    z.pad = long_up(z.D);
    z.whole = z.D % (TP_VECTOR / (int64_t)sizeof(real)) == 0;
    z.chunks = tp__chunks(c->x, c->nx, a).n;
    z.parts = tp__least(tp__ceil_div(LONG_TASKS, z.chunks), tp__ceil_div(z.l, LONG_PART));
    z.span = tp__ceil_div(tp__ceil_div(z.l, z.parts), LONG_TILE) * LONG_TILE;
    z.parts = tp__ceil_div(z.l, z.span);
    const int64_t n = z.H * z.R, rows = z.values * z.H * (z.r + LONG_SLACK) * z.pad;
    const int64_t tile = LONG_TILE + LONG_SLACK;
    z.p = tp__take(&z.total, tile * n);
    z.x = tp__take(&z.total, tile * z.pad);
    z.scale = tp__take(&z.total, n);
    z.top = tp__take(&z.partial, n);
    z.sum = tp__take(&z.partial, n);
    if (!tp_is_backward(c)) {
        z.acc = tp__take(&z.partial, rows);
        return z;
    }
    z.g = tp__take(&z.total, tile * n);
    z.dy = tp__take(&z.total, rows);
    z.dy_t = tp__take(&z.total, z.values * z.H * z.D * z.R);
    z.delta = tp__take(&z.total, n);
    z.joined = z.chunks * 2 * n;
    return z;
}

/* c->work: the scratch of each thread, the parts' sums, the joined sums. */
static size_t long_work(const tp_call *c)
{
    const long_cut z = cut_long(c);
    return (size_t)(c->dev->threads * z.total + z.chunks * z.parts * z.partial + z.joined) *
           sizeof(real);
}

static real *long_sums(const tp_call *c, const long_cut *z, int64_t chunk, int64_t part)
{
    return (real *)c->work + c->dev->threads * z->total + (chunk * z->parts + part) * z->partial;
}

static real *long_joined(const tp_call *c, const long_cut *z, int64_t chunk)
{
    return long_sums(c, z, z->chunks, 0) + chunk * 2 * z->H * z->R;
}

static long_part part_of(const tp_call *c, const long_cut *z, int64_t task, int thread)
{
    const int64_t chunk = task / z->parts, begin = task % z->parts * z->span;
    const tp_packing chunks = tp__chunks(c->x, c->nx, c->attr);
    const tp_rows rows = tp__document(&chunks, chunk);
    const uint8_t *mask = c->x[CHUNK_MASK].data;
    return (long_part){ .c = c,
                        .z = *z,
                        .chunk = chunk,
                        .row = rows.first,
                        .begin = begin,
                        .end = tp__least(begin + z->span, rows.count),
                        .scratch = (real *)c->work + thread * z->total,
                        .sums = long_sums(c, z, chunk, task % z->parts),
                        .mask = mask ? mask + rows.first : NULL };
}

/* Finds the next tile [*s, *e) of visible rows from *e on; false: none. */
static bool next_tile(const long_part *t, int64_t *s, int64_t *e)
{
    int64_t i = *e;
    while (i < t->end && t->mask && !t->mask[i]) i++;
    *s = i;
    const int64_t stop = tp__least(i + LONG_TILE, t->end);
    while (i < stop && (!t->mask || t->mask[i])) i++;
    *e = i;
    return *s < *e;
}

/* Row s of the chunk in x [...,width]. */
static real *long_row(const long_part *t, const tp_view *x, int64_t s)
{
    return (real *)x->data + (t->row + s) * x->dim[x->ndim - 1];
}

/* Row j of head h in a result. */
static real *long_result(const long_part *t, const tp_view *y, int64_t h, int64_t j)
{
    return (real *)y->data + (t->chunk * t->z.r + j) * t->z.C + h * t->z.D;
}

/* ---- weights ---- */

static void raise_row(int64_t n, const real *restrict z, real *restrict top)
{
    for (int64_t k = 0; k < n; k++) top[k] = z[k] > top[k] ? z[k] : top[k];
}

static void exponential_row(int64_t n, const real *restrict z, const real *restrict top,
                            real *restrict p, real *restrict sum)
{
    for (int64_t k = 0; k < n; k++) p[k] = r_exp(z[k] - top[k]);
    for (int64_t k = 0; k < n; k++) sum[k] += p[k];
}

/* Raises the largest scores by those of rows s to e. Returns whether any rose; `scale` gets the
 * factors for the sums so far. */
static bool raise_tops(const long_part *t, int64_t s, int64_t e)
{
    const long_cut *z = &t->z;
    real *top = t->sums + z->top, *scale = t->scratch + z->scale;
    bool rose = false;
    memcpy(scale, top, (size_t)(z->H * z->R) * sizeof *scale);
    for (; s < e; s++)
        for (int64_t h = 0; h < z->H; h++)
            raise_row(z->r, long_row(t, &t->c->x[CHUNK_SCORES], s) + h * z->r, top + h * z->R);
    for (int64_t h = 0; h < z->H; h++)
        for (int64_t k = h * z->R; k < h * z->R + z->r; k++) {
            rose |= top[k] > scale[k];
            scale[k] = top[k] > scale[k] ? r_exp(scale[k] - top[k]) : 1;
        }
    return rose;
}

/* p [tile][H][R] = e^(z - top) of rows s to e, which are added to `sum`. */
static void exponential_rows(const long_part *t, int64_t s, int64_t e, const real *top, real *sum)
{
    const long_cut *z = &t->z;
    real *p = t->scratch + z->p;
    for (; s < e; s++, p += z->H * z->R)
        for (int64_t h = 0; h < z->H; h++)
            exponential_row(z->r, long_row(t, &t->c->x[CHUNK_SCORES], s) + h * z->r, top + h * z->R,
                            p + h * z->R, sum + h * z->R);
}

static void begin_sums(const long_part *t)
{
    const long_cut *z = &t->z;
    memset(t->sums, 0, (size_t)z->partial * sizeof *t->sums);
    for (int64_t k = 0; k < z->H * z->R; k++) t->sums[z->top + k] = -(real)INFINITY;
}

/* Returns n rows from s on of head h of x for a product: in place, or padded. */
static const real *long_rows(const long_part *t, const tp_view *x, int64_t h, int64_t s, int64_t n,
                             int64_t *ld)
{
    const long_cut *z = &t->z;
    const real *from = long_row(t, x, s) + h * z->D;
    real *to = t->scratch + z->x;
    *ld = z->C;
    if (z->whole && n == LONG_TILE) return from;
    *ld = z->pad;
    for (int64_t i = 0; i < n; i++)
        memcpy(to + i * z->pad, from + i * z->C, (size_t)z->D * sizeof *to);
    return to;
}

/* ---- forward ---- */

static real *long_acc(const long_cut *z, real *sums, int64_t i, int64_t h)
{
    return sums + z->acc + (i * z->H + h) * (z->r + LONG_SLACK) * z->pad;
}

static void rescale(const long_part *t)
{
    const long_cut *z = &t->z;
    const real *scale = t->scratch + z->scale;
    for (int64_t k = 0; k < z->H * z->R; k++) t->sums[z->sum + k] *= scale[k];
    for (int64_t i = 0; i < z->values; i++)
        for (int64_t h = 0; h < z->H; h++)
            for (int64_t j = 0; j < z->r; j++) {
                real *row = long_acc(z, t->sums, i, h) + j * z->pad;
                for (int64_t d = 0; d < z->D; d++) row[d] *= scale[h * z->R + j];
            }
}

static void long_forward_tile(const long_part *t, int64_t s, int64_t e)
{
    const long_cut *z = &t->z;
    if (raise_tops(t, s, e)) rescale(t);
    exponential_rows(t, s, e, t->sums + z->top, t->sums + z->sum);
    for (int64_t i = 0; i < z->values; i++)
        for (int64_t h = 0; h < z->H; h++) {
            ls_product p = { .rows = z->r,
                             .cols = z->D,
                             .depth = e - s,
                             .a = t->scratch + z->p + h * z->R,
                             .lda = z->H * z->R,
                             .c = long_acc(z, t->sums, i, h),
                             .ldc = z->pad };
            p.b = long_rows(t, &t->c->x[tp__chunk_values((int)i)], h, s, e - s, &p.ldb);
            ls_add_t(&p);
        }
}

static void long_forward_tasks(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const long_cut z = cut_long(c);
    for (int64_t task = begin; task < end; task++) {
        const long_part t = part_of(c, &z, task, thread);
        begin_sums(&t);
        for (int64_t s, e = t.begin; next_tile(&t, &s, &e);) long_forward_tile(&t, s, e);
    }
}

/* A column's largest score over all parts; *sum: the sum of its exponentials. */
static real join_column(const tp_call *c, const long_cut *z, int64_t chunk, int64_t k, real *sum)
{
    real top = -(real)INFINITY;
    for (int64_t p = 0; p < z->parts; p++) {
        const real each = long_sums(c, z, chunk, p)[z->top + k];
        top = each > top ? each : top;
    }
    *sum = 0;
    for (int64_t p = 0; p < z->parts; p++) {
        const real *from = long_sums(c, z, chunk, p);
        if (from[z->sum + k] != 0) *sum += from[z->sum + k] * r_exp(from[z->top + k] - top);
    }
    return top;
}

/* A task is one head of one chunk. */
static void long_join_tasks(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const long_cut z = cut_long(c);
    for (int64_t task = begin; task < end; task++) {
        const int64_t chunk = task / z.H, h = task % z.H;
        const long_part t = part_of(c, &z, chunk * z.parts, thread);
        for (int64_t j = 0; j < z.r; j++) {
            const int64_t k = h * z.R + j;
            real sum, top = join_column(c, &z, chunk, k, &sum);
            for (int64_t i = 0; i < z.values; i++) {
                real *y = long_result(&t, &c->y[i], h, j);
                memset(y, 0, (size_t)z.D * sizeof *y);
                for (int64_t p = 0; p < z.parts && sum != 0; p++) {
                    real *from = long_sums(c, &z, chunk, p);
                    const real *row = long_acc(&z, from, i, h) + j * z.pad;
                    const real by = from[z.sum + k] != 0 ? r_exp(from[z.top + k] - top) / sum : 0;
                    for (int64_t d = 0; d < z.D; d++) y[d] += by * row[d];
                }
            }
        }
    }
}

static tp_code long_forward(const tp_call *c)
{
    const long_cut z = cut_long(c);
    tp__for_threads(c, z.chunks * z.parts, 1, long_forward_tasks);
    tp__for_threads(c, z.chunks * z.H, 1, long_join_tasks);
    return TP_OK;
}

/* ---- backward ---- */

static void long_sum_tasks(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const long_cut z = cut_long(c);
    for (int64_t task = begin; task < end; task++) {
        const long_part t = part_of(c, &z, task, thread);
        begin_sums(&t);
        for (int64_t s, e = t.begin; next_tile(&t, &s, &e);) {
            if (raise_tops(&t, s, e))
                for (int64_t k = 0; k < z.H * z.R; k++) t.sums[z.sum + k] *= t.scratch[z.scale + k];
            exponential_rows(&t, s, e, t.sums + z.top, t.sums + z.sum);
        }
    }
}

/* The largest score of each column of a chunk, and 1 / sum. */
static void long_join_sums(const tp_call *c, int64_t begin, int64_t end)
{
    const long_cut z = cut_long(c);
    for (int64_t chunk = begin; chunk < end; chunk++) {
        real *to = long_joined(c, &z, chunk), *sums = to + z.H * z.R;
        for (int64_t k = 0; k < z.H * z.R; k++) {
            to[k] = join_column(c, &z, chunk, k, &sums[k]);
            sums[k] = sums[k] != 0 ? 1 / sums[k] : 0;
        }
    }
}

/* Packs dy as rows and columns per head, and computes delta. */
static void pack_gradients(const long_part *t)
{
    const long_cut *z = &t->z;
    real *delta = t->scratch + z->delta;
    memset(delta, 0, (size_t)(z->H * z->R) * sizeof *delta);
    for (int64_t i = 0; i < z->values; i++)
        for (int64_t h = 0; h < z->H; h++) {
            real *rows = t->scratch + z->dy + (i * z->H + h) * (z->r + LONG_SLACK) * z->pad;
            for (int64_t j = 0; j < z->r; j++) {
                const real *dy = long_result(t, &t->c->dy[i], h, j);
                const real *y = long_result(t, &t->c->y[i], h, j);
                memcpy(rows + j * z->pad, dy, (size_t)z->D * sizeof *rows);
                real sum = 0;
#pragma omp simd reduction(+ : sum)
                for (int64_t d = 0; d < z->D; d++) sum += y[d] * dy[d];
                delta[h * z->R + j] += sum;
            }
            transpose(rows, z->pad, z->r, z->D, t->scratch + z->dy_t + (i * z->H + h) * z->D * z->R,
                      z->R);
        }
}

/* p = weights of rows s to e. */
static void long_weights(const long_part *t, int64_t s, int64_t e)
{
    const long_cut *z = &t->z;
    const int64_t n = z->H * z->R;
    const real *top = long_joined(t->c, z, t->chunk), *by = top + n;
    real *p = t->scratch + z->p;
    for (; s < e; s++, p += n)
        for (int64_t h = 0; h < z->H; h++) {
            const real *score = long_row(t, &t->c->x[CHUNK_SCORES], s) + h * z->r;
            real *restrict to = p + h * z->R;
            for (int64_t j = 0; j < z->r; j++)
                to[j] = r_exp(score[j] - top[h * z->R + j]) * by[h * z->R + j];
        }
}

/* g (+)= x dy^T and dx = p dy, of one head and one tensor of values. */
static void long_products(const long_part *t, int64_t i, int64_t h, int64_t s, int64_t n)
{
    const long_cut *z = &t->z;
    const int64_t at = i * z->H + h;
    const tp_view *dx = &t->c->dx[tp__chunk_values((int)i)];
    ls_product p = { .rows = n,
                     .cols = z->r,
                     .depth = z->D,
                     .b = t->scratch + z->dy_t + at * z->D * z->R,
                     .ldb = z->R,
                     .c = t->scratch + z->g + h * z->R,
                     .ldc = z->H * z->R };
    p.a = long_rows(t, &t->c->x[tp__chunk_values((int)i)], h, s, n, &p.lda);
    if (i > 0)
        ls_add(&p);
    else
        ls_set(&p);
    if (!dx->data) return;
    const bool direct = z->whole && n == LONG_TILE;
    real *to = long_row(t, dx, s) + h * z->D;
    p = (ls_product){ .rows = n,
                      .cols = z->D,
                      .depth = z->r,
                      .a = t->scratch + z->p + h * z->R,
                      .lda = z->H * z->R,
                      .b = t->scratch + z->dy + at * (z->r + LONG_SLACK) * z->pad,
                      .ldb = z->pad,
                      .c = direct ? to : t->scratch + z->x,
                      .ldc = direct ? z->C : z->pad };
    ls_set(&p);
    for (int64_t j = 0; j < n && !direct; j++)
        memcpy(to + j * z->C, t->scratch + z->x + j * z->pad, (size_t)z->D * sizeof *to);
}

static void long_backward_tile(const long_part *t, int64_t s, int64_t e)
{
    const long_cut *z = &t->z;
    const tp_view *dz = &t->c->dx[CHUNK_SCORES];
    const real *delta = t->scratch + z->delta;
    long_weights(t, s, e);
    for (int64_t i = 0; i < z->values; i++)
        for (int64_t h = 0; h < z->H; h++) long_products(t, i, h, s, e - s);
    const real *p = t->scratch + z->p, *g = t->scratch + z->g;
    for (int64_t n = z->H * z->R; dz->data && s < e; s++, p += n, g += n)
        for (int64_t h = 0; h < z->H; h++) {
            real *restrict to = long_row(t, dz, s) + h * z->r;
            for (int64_t j = 0, k = h * z->R; j < z->r; j++, k++) to[j] = p[k] * (g[k] - delta[k]);
        }
}

/* Clears the gradients of the hidden rows s to e. */
static void clear_rows(const long_part *t, int64_t s, int64_t e)
{
    for (int i = 0; i < t->c->nx; i++) {
        const tp_view *dx = &t->c->dx[i];
        if (dx->data && s < e)
            memset(long_row(t, dx, s), 0, (size_t)((e - s) * dx->dim[dx->ndim - 1]) * sizeof(real));
    }
}

static void long_backward_tasks(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const long_cut z = cut_long(c);
    for (int64_t task = begin; task < end; task++) {
        const long_part t = part_of(c, &z, task, thread);
        int64_t s, e = t.begin, done = t.begin;
        pack_gradients(&t);
        while (next_tile(&t, &s, &e)) {
            clear_rows(&t, done, s);
            long_backward_tile(&t, s, e);
            done = e;
        }
        clear_rows(&t, done, t.end);
    }
}

static tp_code long_backward(const tp_call *c)
{
    const long_cut z = cut_long(c);
    tp__for_threads(c, z.chunks * z.parts, 1, long_sum_tasks);
    tp__for(c, z.chunks, 1, long_join_sums);
    tp__for_threads(c, z.chunks * z.parts, 1, long_backward_tasks);
    return TP_OK;
}

#endif
