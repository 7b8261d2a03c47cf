/* ls_tiles.h - long-short attention on the CPU: tiles of queries, a thread's scratch, packing, and
 * scores of a tile.
 *
 * Distances fall as the indices of keys and vectors rise, so both position tables are packed in
 * reverse: packed row x of the window table is distance span - 1 - x, of the chunk table
 * rho = nc - 1 - x. Table rows and keys then have the same order, and neither needs a shift:
 *
 *     window   key row base + u + i of query t0 + i   <->  packed row span - U + u
 *     chunks   vector v of a query in chunk m         <->  packed row nc - (Cc + m) r + v
 *
 * A tile has up to LS_TILE queries. Its window scores are S[i][c], c = key row - base. Query i's
 * band ends before column U + i. Read with leading dimension ld + 1, all bands of S form one dense
 * matrix whose U columns are table rows. Without a window (w = 0) U is 0 and all bands are empty;
 * with rank 0 there are no vectors. */
#ifndef TP_LS_TILES_H
#define TP_LS_TILES_H

#include "cpu/attention/ls_products.h"
#include "cpu/kit/philox_words.h"
#include "cpu/kit/real.h"
#include "cpu/kit/sums.h"
#include "cpu/kit/take.h"
#include "cpu/kit/transpose.h"
#include "tensor/geometry/ls_attention.h"
#include "tensor/kernel.h"

#define LS_SLACK 16 /* rows and columns past the end that register kernels may touch */

/* ---- tiles ---- */

/* Queries t0 .. t0+n-1. Column c of the scores is window row base + c. */
typedef struct tp__ls_tile {
    int64_t t0, n, base;
    int64_t reach;      /* most window rows any query sees; query i's end at column reach + i */
    int64_t cols, vecs; /* ends of the columns and vectors that the last query sees */
} tp__ls_tile;

/* Most window rows that any of `rows` queries from t sees. */
static inline int64_t tp__ls_reach(const tp__ls_dims *g, int64_t t, int64_t rows)
{
    int64_t most = 0;
    for (; rows > 0; rows--, t++) most = tp__most(most, g->Wc + t + 1 - tp__ls_first_row(g, t));
    return most;
}

static inline tp__ls_tile tp__ls_tile_at(const tp__ls_dims *g, int64_t t0, int64_t end)
{
    const int64_t n = tp__least(LS_TILE, end - t0), reach = tp__ls_reach(g, t0, n);
    return (tp__ls_tile){ .t0 = t0,
                          .n = n,
                          .base = g->Wc + t0 + 1 - reach,
                          .reach = reach,
                          .cols = reach ? reach + n - 1 : 0,
                          .vecs = tp__ls_end_vec(g, t0 + n - 1) };
}

/* The first column that query i sees. */
static inline int64_t tp__ls_first_col(const tp__ls_dims *g, const tp__ls_tile *t, int64_t i)
{
    return tp__ls_first_row(g, t->t0 + i) - t->base;
}

/* The number of columns from `first` on that `rows` queries from i see. */
static inline int64_t tp__ls_band(const tp__ls_tile *t, int64_t i, int64_t rows, int64_t first)
{
    return t->reach ? t->reach + i + rows - 1 - first : 0;
}

/* The end of the queries in the chunk of query i. */
static inline int64_t tp__ls_chunk_end(const tp__ls_dims *g, const tp__ls_tile *t, int64_t i)
{
    return tp__least(t->n, ((t->t0 + i) / g->l + 1) * g->l - t->t0);
}

/* ---- scratch ---- */

/* Arrays of a thread: name, rows, elements per row. A final t means transposed. */
#define LS_AREAS(X)                                                                                \
    X(kt, g->D, ld_win)  /* keys of the window */                                                  \
    X(v, win, pad)       /* values of the window */                                                \
    X(kct, g->D, ld_cmp) /* chunk vectors */                                                       \
    X(vc, cmp, pad)                                                                                \
    X(rw, pos, pad) /* window table, reversed */                                                   \
    X(rwt, g->D, ld_pos)                                                                           \
    X(rc, cmp, pad) /* chunk table, reversed */                                                    \
    X(rct, g->D, ld_cmp)                                                                           \
    X(s, tile, ld_s)          /* window scores, then probabilities */                              \
    X(sc, tile, ld_cmp)       /* chunk scores, then probabilities */                               \
    X(qs, tile, pad)          /* scaled queries */                                                 \
    X(qw, tile, pad)          /* queries with content bias */                                      \
    X(qr, tile, pad)          /* queries with position bias */                                     \
    X(o, tile, pad)           /* output; in backward its gradient */                               \
    X(keep, dropped, ld_keep) /* dropout factors of a row */
#define LS_BACKWARD_AREAS(X)                                                                       \
    X(k, win, pad)                                                                                 \
    X(vt, g->D, ld_win)                                                                            \
    X(kc, cmp, pad)                                                                                \
    X(vct, g->D, ld_cmp)                                                                           \
    X(ds, tile, ld_s)                                                                              \
    X(dsc, tile, ld_cmp)                                                                           \
    X(dqs, tile, pad)                                                                              \
    X(dqw, tile, pad)                                                                              \
    X(dqr, tile, pad)                                                                              \
    X(dk, win, pad) /* sums over the tiles of the stripe */                                        \
    X(dv, win, pad)

/* Partial sums of a backward task; they are summed over tasks afterwards. */
#define LS_PARTIAL_AREAS(X)                                                                        \
    X(head_k, head, pad) /* window rows before the stripe's own */                                 \
    X(head_v, head, pad)                                                                           \
    X(dkc, cmp, pad)                                                                               \
    X(dvc, cmp, pad)                                                                               \
    X(drw, pos, pad) /* tables, reversed */                                                        \
    X(drc, cmp, pad)                                                                               \
    X(dr_w, 1, pad) /* biases */                                                                   \
    X(dr_r, 1, pad)

/* Offsets and leading dimensions, in elements. */
typedef struct tp__ls_scratch {
    int64_t ld_win, ld_cmp, ld_pos, ld_s;
    int64_t total, partial; /* elements of a thread and of a task */
#define X(name, rows, ld) int64_t name;
    LS_AREAS(X)
    LS_BACKWARD_AREAS(X)
    LS_PARTIAL_AREAS(X)
#undef X
} tp__ls_scratch;

/* An odd multiple of LS_ALIGN, so that a column's rows fall into different cache sets. */
static inline int64_t tp__ls_ld(int64_t n)
{
    return ((n + LS_SLACK + LS_ALIGN - 1) / LS_ALIGN | 1) * LS_ALIGN;
}

static inline tp__ls_scratch tp__ls_layout(const tp__ls_dims *g, bool backward)
{
    const int64_t keys = g->w ? g->Wc + g->N : 0, rows = tp__least(keys, g->stripe + g->span);
    const int64_t ld_win = tp__ls_ld(rows), ld_cmp = tp__ls_ld(g->nc), ld_pos = tp__ls_ld(g->span);
    const int64_t ld_s = tp__ls_ld(tp__least(keys, g->span) + LS_TILE), pad = g->pad;
    const int64_t win = rows + LS_SLACK, cmp = g->nc + LS_SLACK, pos = g->span + LS_SLACK;
    const int64_t tile = LS_TILE + LS_SLACK, dropped = g->dropped, ld_keep = tp__most(ld_s, ld_cmp);
    const int64_t head = g->stripes > 1 ? tp__least(keys, g->span) : 0;
    tp__ls_scratch a = { .ld_win = ld_win, .ld_cmp = ld_cmp, .ld_pos = ld_pos, .ld_s = ld_s };
#define X(name, rows, ld) a.name = tp__take(&a.total, (rows) * (ld));
    LS_AREAS(X)
    if (!backward) return a;
    LS_BACKWARD_AREAS(X)
#undef X
#define X(name, rows, ld) a.name = tp__take(&a.partial, (rows) * (ld));
    LS_PARTIAL_AREAS(X)
#undef X
    return a;
}

/* ---- a task ---- */

typedef struct ls_task {
    const tp_call *c;
    const tp__ls_dims *g;
    const tp__ls_scratch *a;
    tp_keeper drop;
    int64_t b, h, begin, end; /* batch row, head, queries */
    int64_t row0, rows;       /* window row of packed row 0, packed rows */
#define X(name, rows, ld) real *name;
    LS_AREAS(X)
    LS_BACKWARD_AREAS(X)
    LS_PARTIAL_AREAS(X)
#undef X
} ls_task;

/* Task `index` with the memory of a thread and, in backward, its partial sums. */
static ls_task ls_task_at(const tp_call *c, const tp__ls_dims *g, const tp__ls_scratch *a,
                          int64_t index, int64_t thread)
{
    const int64_t s = index % g->stripes, head = index / g->stripes;
    real *own = (real *)c->work + thread * a->total;
    real *partial = (real *)c->work + c->dev->threads * a->total + index * a->partial;
    const tp__ls_attr *attr = c->attr;
    ls_task k = { .c = c, .g = g, .a = a, .b = head / g->H, .h = head % g->H };
    k.drop = tp__keeper(c, attr->dropout);
    k.begin = s * g->stripe;
    k.end = tp__least(g->N, k.begin + g->stripe);
    k.row0 = tp__ls_first_row(g, k.begin);
    k.rows = g->w ? g->Wc + k.end - k.row0 : 0;
#define X(name, rows, ld) k.name = own + a->name;
    LS_AREAS(X)
    LS_BACKWARD_AREAS(X)
#undef X
#define X(name, rows, ld) k.name = partial + a->name;
    LS_PARTIAL_AREAS(X)
#undef X
    return k;
}

/* The task's head in row `row` of its batch row, in a view [B,rows,width]. All batch rows share the
 * tables [rows,width] and the biases, which are one row of any shape. */
static real *ls_at(const ls_task *k, const tp_view *v, int64_t row)
{
    const int64_t rows = v->ndim == 3 ? k->b * v->dim[1] + row : row;
    return (real *)v->data + rows * k->g->width + k->h * k->g->D;
}

static int64_t ls_count(const ls_task *k, const tp_view *v)
{
    return v->ndim == 3 ? v->dim[1] : v->numel / k->g->width;
}

/* to += from */
static void ls_add_row(real *restrict to, const real *restrict from, int64_t D)
{
    for (int64_t d = 0; d < D; d++) to[d] += from[d];
}

/* ---- packing ---- */

static void ls_copy_row(real *to, const real *from, int64_t D, int64_t pad)
{
    memcpy(to, from, (size_t)D * sizeof *to);
    for (int64_t d = D; d < pad; d++) to[d] = 0;
}

static void ls_pack_rows(const ls_task *k, const real *from, int64_t rows, real *to)
{
    const int64_t pad = k->g->pad;
    for (int64_t i = 0; i < rows; i++)
        ls_copy_row(to + i * pad, from + i * k->g->width, k->g->D, pad);
}

/* Rows of a position table from the largest distance down to 0. */
static void ls_pack_table(const ls_task *k, const tp_view *table, int64_t rows, int64_t clamp,
                          real *to)
{
    for (int64_t i = 0; i < rows; i++) {
        const real *row = ls_at(k, table, tp__least(rows - 1 - i, clamp));
        ls_copy_row(to + i * k->g->pad, row, k->g->D, k->g->pad);
    }
}

/* Packs the operands of forward and backward. */
static void ls_pack(const ls_task *k)
{
    const tp__ls_dims *g = k->g;
    const tp_view *x = k->c->x;
    if (g->w > 0) {
        const real *keys = ls_at(k, &x[LS_K_WIN], k->row0);
        transpose(keys, g->width, k->rows, g->D, k->kt, k->a->ld_win);
        ls_pack_table(k, &x[LS_POS_WIN], g->span, g->clamp, k->rw);
        transpose(k->rw, g->pad, g->span, g->D, k->rwt, k->a->ld_pos);
    }
    if (g->nc == 0) return;
    transpose(ls_at(k, &x[LS_K_CMP], 0), g->width, g->nc, g->D, k->kct, k->a->ld_cmp);
    ls_pack_table(k, &x[LS_POS_CMP], g->nc, g->chunk_clamp, k->rc);
    transpose(k->rc, g->pad, g->nc, g->D, k->rct, k->a->ld_cmp);
}

static real ls_scale(int64_t D)
{
    return RC(1.0) / r_sqrt((real)D);
}

/* qs = scale q, qw = qs + r_w, qr = qs + r_r; without a window there are no biases, only qs. */
static void ls_query(int64_t D, real scale, const real *restrict q, const real *restrict r_w,
                     const real *restrict r_r, real *restrict qs, real *restrict qw,
                     real *restrict qr)
{
    if (!r_w) {
        for (int64_t d = 0; d < D; d++) qs[d] = scale * q[d];
        return;
    }
    for (int64_t d = 0; d < D; d++) {
        qs[d] = scale * q[d];
        qw[d] = scale * q[d] + r_w[d];
        qr[d] = scale * q[d] + r_r[d];
    }
}

/* Loads the tile's queries: scaled, and with content and position bias. */
static void ls_queries(const ls_task *k, const tp__ls_tile *t)
{
    const int64_t D = k->g->D, pad = k->g->pad;
    const tp_view *x = k->c->x;
    const bool biased = k->g->w > 0;
    const real *r_w = biased ? ls_at(k, &x[LS_R_W], 0) : NULL;
    const real *r_r = biased ? ls_at(k, &x[LS_R_R], 0) : NULL;
    const real scale = ls_scale(D);
    for (int64_t i = 0, at = 0; i < t->n; i++, at += pad) {
        const real *q = ls_at(k, &x[LS_Q], t->t0 + i);
        ls_query(D, scale, q, r_w, r_r, k->qs + at, k->qw + at, k->qr + at);
    }
}

/* ---- scores ---- */

/* s = or += a K^T over the band, as `product` decides. ls_pack has packed K. */
static void ls_band_scores(const ls_task *k, const tp__ls_tile *t, const real *a, const real *kt,
                           real *s, void (*product)(const ls_product *))
{
    const tp__ls_dims *g = k->g;
    for (int64_t i = 0; i < t->n; i += LS_ROWS) {
        const int64_t rows = tp__least(LS_ROWS, t->n - i), first = tp__ls_first_col(g, t, i);
        const ls_product p = { .rows = rows,
                               .cols = tp__ls_band(t, i, rows, first),
                               .depth = g->D,
                               .a = a + i * g->pad,
                               .lda = g->pad,
                               .b = kt + t->base + first - k->row0,
                               .ldb = k->a->ld_win,
                               .c = s + i * k->a->ld_s + first,
                               .ldc = k->a->ld_s };
        product(&p);
    }
}

/* s = (qs + r_r) Rw^T, written along the diagonals. */
static void ls_position_scores(const ls_task *k, const tp__ls_tile *t)
{
    const tp__ls_dims *g = k->g;
    for (int64_t i = 0; i < t->n; i += LS_ROWS) {
        const int64_t rows = tp__least(LS_ROWS, t->n - i);
        const int64_t reach = tp__ls_reach(g, t->t0 + i, rows), ld = k->a->ld_s + 1;
        const ls_product p = { .rows = rows,
                               .cols = reach,
                               .depth = g->D,
                               .a = k->qr + i * g->pad,
                               .lda = g->pad,
                               .b = k->rwt + g->span - reach,
                               .ldb = k->a->ld_pos,
                               .c = k->s + i * ld + t->reach - reach,
                               .ldc = ld };
        ls_set(&p);
    }
}

/* sc = qs (Kc + Rc)^T: a chunk's queries share their part of the table. A chunk's product also
 * writes rows of the next chunk, which overwrites them. */
static void ls_chunk_scores(const ls_task *k, const tp__ls_tile *t)
{
    const tp__ls_dims *g = k->g;
    const int64_t from = g->first_vec, ld = k->a->ld_cmp;
    for (int64_t i = 0, next; i < t->n; i = next) {
        const int64_t end = tp__ls_end_vec(g, t->t0 + i);
        next = tp__ls_chunk_end(g, t, i);
        const ls_product p = { .rows = next - i,
                               .cols = end - from,
                               .depth = g->D,
                               .a = k->qs + i * g->pad,
                               .lda = g->pad,
                               .b = k->kct + from,
                               .ldb = ld,
                               .b2 = k->rct + g->nc - end + from,
                               .ldb2 = ld,
                               .c = k->sc + i * ld + from,
                               .ldc = ld };
        ls_set_pair(&p);
    }
}

static void ls_scores(const ls_task *k, const tp__ls_tile *t)
{
    ls_position_scores(k, t);
    ls_band_scores(k, t, k->qw, k->kt, k->s, ls_add);
    ls_chunk_scores(k, t);
}

/* ---- rows of scores ---- */

/* The part of a row of scores that a query sees. n is a multiple of LS_ALIGN. */
typedef struct ls_span {
    real *x;
    int64_t n;
} ls_span;

/* Columns [first, end) of a row. Sets the rest of the last vector to `rest`, other columns that
 * products may read to 0. */
static ls_span ls_trim(real *row, int64_t first, int64_t end, int64_t cols, real rest)
{
    const int64_t n = tp__round_up(end - first, LS_ALIGN), stop = cols + LS_SLACK;
    for (int64_t j = 0; j < first; j++) row[j] = 0;
    for (int64_t j = end; j < first + n; j++) row[j] = rest;
    for (int64_t j = first + n; j < stop; j++) row[j] = 0;
    return (ls_span){ row + first, n };
}

static ls_span ls_band_row(const ls_task *k, const tp__ls_tile *t, int64_t i, real *s, real rest)
{
    return ls_trim(s + i * k->a->ld_s, tp__ls_first_col(k->g, t, i), t->reach + i, t->cols, rest);
}

static ls_span ls_vec_row(const ls_task *k, const tp__ls_tile *t, int64_t i, real *s, real rest)
{
    const int64_t from = k->g->first_vec;
    return ls_trim(s + i * k->a->ld_cmp + from, 0, tp__ls_end_vec(k->g, t->t0 + i) - from,
                   t->vecs - from, rest);
}

/* s = exp(s - shift); returns the sum. */
static real ls_exp(ls_span s, real shift)
{
    for (int64_t j = 0; j < s.n; j++) s.x[j] = r_exp_low(s.x[j] - shift);
    return sum_of(s.x, s.n);
}

/* The dropout factors of n keys of query t (vectors, then window rows) from `key` on; NULL without
 * dropout. */
static const real *ls_keep(const ls_task *k, int64_t t, int64_t key, int64_t n)
{
    if (k->drop.below == 0) return NULL;
    tp__draw_keep(&k->drop, tp__ls_row(k->g, k->b, k->h, t) + key, n, 1, k->keep);
    return k->keep;
}

/* The same for a row of the tile's band, and its vectors. */
static const real *ls_keep_band(const ls_task *k, const tp__ls_tile *t, int64_t i, ls_span s)
{
    const int64_t row = t->base + tp__ls_first_col(k->g, t, i);
    return ls_keep(k, t->t0 + i, k->g->nc + row, s.n);
}

static const real *ls_keep_vec(const ls_task *k, const tp__ls_tile *t, int64_t i, ls_span s)
{
    return ls_keep(k, t->t0 + i, k->g->first_vec, s.n);
}

static void ls_drop(ls_span s, const real *restrict keep)
{
    for (int64_t j = 0; keep && j < s.n; j++) s.x[j] *= keep[j];
}

/* Turns scores into probabilities p = exp(s - lse) after dropout, and their gradients into those of
 * the scores. */
static void ls_row_grad(ls_span s, ls_span ds, real lse, real delta, const real *restrict keep)
{
    real *restrict p = s.x, *restrict dp = ds.x;
    if (!keep)
        for (int64_t j = 0; j < s.n; j++) {
            p[j] = r_exp_low(p[j] - lse);
            dp[j] = p[j] * (dp[j] - delta);
        }
    else
        for (int64_t j = 0; j < s.n; j++) {
            const real each = r_exp_low(p[j] - lse);
            p[j] = keep[j] * each;
            dp[j] = each * (keep[j] * dp[j] - delta);
        }
}

#endif
