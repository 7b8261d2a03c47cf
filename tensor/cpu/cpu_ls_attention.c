/* cpu_ls_attention.c - long-short attention: one softmax over a sliding window and chunk vectors.
 *
 *     a_win(t, delta) = (qs + r_w) K[Wc + t - delta] + (qs + r_r) Rw[delta]        qs = q / sqrt(D)
 *     a_vec(t, v)     = qs (Kc[v] + Rc[rho])
 *     out(t)          = softmax over both, times the values
 *
 * A task is one head of one batch row, or a stripe of its queries; it packs what it reads and walks
 * the queries in tiles. A tile's scores, a whole row of them at a time, stay in cache, so a plain
 * two-pass softmax does. Only the band and the visible vectors are multiplied; geometry and the
 * tables' order are explained in tensor/ls_attention.h. Backward makes the scores again from the
 * log-sum-exp. Tasks share no result: what several of them contribute to is left in partial sums
 * and added in order, so that the number of threads does not matter. */
#ifndef real

#include "tensor/kernel.h"
#include "tensor/ls_attention.h"

/* Queries t0 .. t0+n-1. Column c of the scores is window row base + c. */
typedef struct ls_tile {
    int64_t t0, n, base;
    int64_t reach; /* the most window rows that a query sees; query i's end at column reach + i */
    int64_t cols, vecs; /* ends of what the last query sees */
} ls_tile;

/* The most window rows seen by one of `rows` queries from t. */
static int64_t ls_reach(const tp__ls_dims *g, int64_t t, int64_t rows)
{
    int64_t most = 0;
    for (; rows > 0; rows--, t++) most = tp__ls_max(most, g->Wc + t + 1 - tp__ls_first_row(g, t));
    return most;
}

static ls_tile ls_tile_at(const tp__ls_dims *g, int64_t t0, int64_t end)
{
    const int64_t n = tp__ls_min(LS_TILE, end - t0), reach = ls_reach(g, t0, n);
    return (ls_tile){ .t0 = t0,
                      .n = n,
                      .base = g->Wc + t0 + 1 - reach,
                      .reach = reach,
                      .cols = reach + n - 1,
                      .vecs = tp__ls_end_vec(g, t0 + n - 1) };
}

/* The first column that query i sees. */
static int64_t ls_first_col(const tp__ls_dims *g, const ls_tile *t, int64_t i)
{
    return tp__ls_first_row(g, t->t0 + i) - t->base;
}

/* The end of the queries that belong to the chunk of query i. */
static int64_t ls_chunk_end(const tp__ls_dims *g, const ls_tile *t, int64_t i)
{
    return tp__ls_min(t->n, ((t->t0 + i) / g->l + 1) * g->l - t->t0);
}

#define TP_FILE "tensor/cpu/cpu_ls_attention.c"
#include "tensor/cpu/cpu_each_real.h"

TP_CPU_KERNEL(ls_attention_fwd)
TP_CPU_KERNEL(ls_attention_bwd)

#else

#include "tensor/cpu/ls_products.h"

/* ---- a task -------------------------------------------------------------------------------- */

typedef struct R(ls_task) {
    const tp_call *c;
    const tp__ls_dims *g;
    const tp__ls_scratch *a;
    int64_t b, h, begin, end; /* batch row, head, queries */
    int64_t row0;             /* window row of packed row 0 */
#define X(name, rows, ld) real *name;
    LS_AREAS(X)
    LS_BACKWARD_AREAS(X)
    LS_PARTIAL_AREAS(X)
#undef X
} R(ls_task);

/* Task `index` with the memory of a thread and, in backward, partial sums of its own. */
static R(ls_task) R(ls_task_at)(const tp_call *c, const tp__ls_dims *g, const tp__ls_scratch *a,
                                int64_t index, int64_t thread)
{
    const int64_t s = index % g->stripes, head = index / g->stripes;
    real *own = (real *)c->work + thread * a->total;
    real *partial = (real *)c->work + c->dev->threads * a->total + index * a->partial;
    R(ls_task) k = { .c = c, .g = g, .a = a, .b = head / g->H, .h = head % g->H };
    k.begin = s * g->stripe;
    k.end = tp__ls_min(g->N, k.begin + g->stripe);
    k.row0 = tp__ls_first_row(g, k.begin);
#define X(name, rows, ld) k.name = own + a->name;
    LS_AREAS(X)
    LS_BACKWARD_AREAS(X)
#undef X
#define X(name, rows, ld) k.name = partial + a->name;
    LS_PARTIAL_AREAS(X)
#undef X
    return k;
}

/* Row `row` of the task's head in a view [B,rows,width], or [rows,width] for all batch rows. */
static real *R(ls_at)(const R(ls_task) * k, const tp_view *v, int64_t row)
{
    const int64_t rows = v->ndim == 3 ? k->b * v->dim[1] + row : row;
    return (real *)v->data + rows * k->g->width + k->h * k->g->D;
}

/* ---- packing ------------------------------------------------------------------------------- */

static void R(ls_copy_row)(real *to, const real *from, int64_t D, int64_t pad)
{
    memcpy(to, from, (size_t)D * sizeof *to);
    for (int64_t d = D; d < pad; d++) to[d] = 0;
}

static void R(ls_pack_rows)(const R(ls_task) * k, const real *from, int64_t rows, real *to)
{
    const int64_t pad = k->g->pad;
    for (int64_t i = 0; i < rows; i++)
        R(ls_copy_row)(to + i * pad, from + i * k->g->width, k->g->D, pad);
}

/* Rows of a position table from the largest distance down to 0. */
static void R(ls_pack_table)(const R(ls_task) * k, const tp_view *table, int64_t rows,
                             int64_t clamp, real *to)
{
    const int64_t pad = k->g->pad;
    for (int64_t i = 0; i < rows; i++) R(ls_copy_row)
    (to + i * pad, R(ls_at)(k, table, tp__ls_min(rows - 1 - i, clamp)), k->g->D, pad);
}

/* to[d][i] = from[i][d]; from has a leading dimension of `width`. Four rows at a time: twice as
 * fast. */
static void R(ls_transpose)(const real *restrict from, int64_t width, int64_t rows, int64_t D,
                            real *restrict to, int64_t ld)
{
    int64_t i = 0;
    for (; i + 4 <= rows; i += 4)
        for (int64_t d = 0; d < D; d++) {
            const real *f = from + i * width + d;
            const real a = f[0], b = f[width], c = f[2 * width], e = f[3 * width];
            real *t = to + d * ld + i;
            t[0] = a;
            t[1] = b;
            t[2] = c;
            t[3] = e;
        }
    for (; i < rows; i++)
        for (int64_t d = 0; d < D; d++) to[d * ld + i] = from[i * width + d];
}

/* What both directions read. */
static void R(ls_pack)(const R(ls_task) * k)
{
    const tp__ls_dims *g = k->g;
    const tp_view *x = k->c->x;
    const int64_t rows = g->Wc + k->end - k->row0;
    R(ls_transpose)(R(ls_at)(k, &x[LS_K_WIN], k->row0), g->width, rows, g->D, k->kt, k->a->ld_win);
    R(ls_pack_table)(k, &x[LS_POS_WIN], g->span, g->clamp, k->rw);
    R(ls_transpose)(k->rw, g->pad, g->span, g->D, k->rwt, k->a->ld_pos);
    if (g->nc == 0) return;
    R(ls_transpose)(R(ls_at)(k, &x[LS_K_CMP], 0), g->width, g->nc, g->D, k->kct, k->a->ld_cmp);
    R(ls_pack_table)(k, &x[LS_POS_CMP], g->nc, g->chunk_clamp, k->rc);
    R(ls_transpose)(k->rc, g->pad, g->nc, g->D, k->rct, k->a->ld_cmp);
}

/* qs = scale q, qw = qs + r_w, qr = qs + r_r. */
static void R(ls_query)(int64_t D, real scale, const real *restrict q, const real *restrict r_w,
                        const real *restrict r_r, real *restrict qs, real *restrict qw,
                        real *restrict qr)
{
    for (int64_t d = 0; d < D; d++) {
        qs[d] = scale * q[d];
        qw[d] = scale * q[d] + r_w[d];
        qr[d] = scale * q[d] + r_r[d];
    }
}

/* The tile's queries: scaled, and with the content and the position bias. */
static void R(ls_queries)(const R(ls_task) * k, const ls_tile *t)
{
    const int64_t D = k->g->D, pad = k->g->pad;
    const real *r_w = (const real *)k->c->x[LS_R_W].data + k->h * D;
    const real *r_r = (const real *)k->c->x[LS_R_R].data + k->h * D;
    for (int64_t i = 0; i < t->n; i++) R(ls_query)
    (D, RC(1.0) / r_sqrt((real)D), R(ls_at)(k, &k->c->x[LS_Q], t->t0 + i), r_w, r_r,
     k->qs + i * pad, k->qw + i * pad, k->qr + i * pad);
}

/* ---- scores -------------------------------------------------------------------------------- */

/* s += a K^T over the band; K as packed by ls_transpose. */
static void R(ls_band_scores)(const R(ls_task) * k, const ls_tile *t, const real *a, const real *kt,
                              real *s, void (*product)(const R(ls_product) *))
{
    const tp__ls_dims *g = k->g;
    for (int64_t i = 0; i < t->n; i += LS_ROWS) {
        const int64_t rows = tp__ls_min(LS_ROWS, t->n - i), first = ls_first_col(g, t, i);
        product(&(R(ls_product)){ .rows = rows,
                                  .cols = t->reach + i + rows - 1 - first,
                                  .depth = g->D,
                                  .a = a + i * g->pad,
                                  .lda = g->pad,
                                  .b = kt + t->base + first - k->row0,
                                  .ldb = k->a->ld_win,
                                  .c = s + i * k->a->ld_s + first,
                                  .ldc = k->a->ld_s });
    }
}

/* s = (qs + r_r) Rw^T, written along the diagonals. */
static void R(ls_position_scores)(const R(ls_task) * k, const ls_tile *t)
{
    const tp__ls_dims *g = k->g;
    for (int64_t i = 0; i < t->n; i += LS_ROWS) {
        const int64_t rows = tp__ls_min(LS_ROWS, t->n - i), reach = ls_reach(g, t->t0 + i, rows);
        R(ls_set)
        (&(R(ls_product)){ .rows = rows,
                           .cols = reach,
                           .depth = g->D,
                           .a = k->qr + i * g->pad,
                           .lda = g->pad,
                           .b = k->rwt + g->span - reach,
                           .ldb = k->a->ld_pos,
                           .c = k->s + i * (k->a->ld_s + 1) + t->reach - reach,
                           .ldc = k->a->ld_s + 1 });
    }
}

/* sc = qs (Kc + Rc)^T: the queries of a chunk share their part of the table. A group writes rows of
 * the next one too, which then overwrites them. */
static void R(ls_chunk_scores)(const R(ls_task) * k, const ls_tile *t)
{
    const tp__ls_dims *g = k->g;
    for (int64_t i = 0, next; i < t->n; i = next) {
        const int64_t end = tp__ls_end_vec(g, t->t0 + i);
        next = ls_chunk_end(g, t, i);
        R(ls_set_pair)
        (&(R(ls_product)){ .rows = next - i,
                           .cols = end - g->first_vec,
                           .depth = g->D,
                           .a = k->qs + i * g->pad,
                           .lda = g->pad,
                           .b = k->kct + g->first_vec,
                           .ldb = k->a->ld_cmp,
                           .b2 = k->rct + g->nc - end + g->first_vec,
                           .ldb2 = k->a->ld_cmp,
                           .c = k->sc + i * k->a->ld_cmp + g->first_vec,
                           .ldc = k->a->ld_cmp });
    }
}

static void R(ls_scores)(const R(ls_task) * k, const ls_tile *t)
{
    R(ls_position_scores)(k, t);
    R(ls_band_scores)(k, t, k->qw, k->kt, k->s, R(ls_add));
    R(ls_chunk_scores)(k, t);
}

/* ---- rows of scores ------------------------------------------------------------------------ */

/* What query i sees of a row: [at, at + n), n rounded up to LS_ALIGN so that loops have no rest. */
typedef struct R(ls_span) {
    real *x;
    int64_t n;
} R(ls_span);

/* Columns [first, end) of a row of s. The rest of the last vector is set to `rest`, all other
 * columns that products may read to 0. */
static R(ls_span) R(ls_trim)(real *row, int64_t first, int64_t end, int64_t cols, real rest)
{
    const int64_t n = tp__ls_up(end - first, LS_ALIGN), stop = cols + LS_SLACK;
    for (int64_t j = 0; j < first; j++) row[j] = 0;
    for (int64_t j = end; j < first + n; j++) row[j] = rest;
    for (int64_t j = first + n; j < stop; j++) row[j] = 0;
    return (R(ls_span)){ row + first, n };
}

static R(ls_span)
    R(ls_band_row)(const R(ls_task) * k, const ls_tile *t, int64_t i, real *s, real rest)
{
    return R(ls_trim)(s + i * k->a->ld_s, ls_first_col(k->g, t, i), t->reach + i, t->cols, rest);
}

static R(ls_span)
    R(ls_vec_row)(const R(ls_task) * k, const ls_tile *t, int64_t i, real *s, real rest)
{
    const int64_t from = k->g->first_vec;
    return R(ls_trim)(s + i * k->a->ld_cmp + from, 0, tp__ls_end_vec(k->g, t->t0 + i) - from,
                      t->vecs - from, rest);
}

static real R(ls_largest)(R(ls_span) s, real most)
{
#pragma omp simd reduction(max : most)
    for (int64_t j = 0; j < s.n; j++) most = s.x[j] > most ? s.x[j] : most;
    return most;
}

/* s = exp(s - shift); returns the sum. */
static real R(ls_exp)(R(ls_span) s, real shift)
{
    real sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < s.n; j++) sum += s.x[j] = r_exp(s.x[j] - shift);
    return sum;
}

/* Turns scores to probabilities p = exp(s - lse), and gradients of p to those of the scores. */
static void R(ls_row_grad)(R(ls_span) s, R(ls_span) ds, real lse, real delta)
{
    real *restrict p = s.x, *restrict dp = ds.x;
    for (int64_t j = 0; j < s.n; j++) {
        p[j] = r_exp(p[j] - lse);
        dp[j] = p[j] * (dp[j] - delta);
    }
}

/* ---- forward ------------------------------------------------------------------------------- */

/* o = p V over the band (added) and over the vectors. */
static void R(ls_values)(const R(ls_task) * k, const ls_tile *t)
{
    const tp__ls_dims *g = k->g;
    for (int64_t i = 0; i < t->n; i += LS_ROWS) {
        const int64_t rows = tp__ls_min(LS_ROWS, t->n - i), first = ls_first_col(g, t, i);
        R(ls_product)
        p = { .rows = rows,
              .cols = g->pad,
              .depth = tp__ls_end_vec(g, t->t0 + i + rows - 1) - g->first_vec,
              .a = k->sc + i * k->a->ld_cmp + g->first_vec,
              .lda = k->a->ld_cmp,
              .b = k->vc + g->first_vec * g->pad,
              .ldb = g->pad,
              .c = k->o + i * g->pad,
              .ldc = g->pad };
        R(ls_set)(&p);
        p.depth = t->reach + i + rows - 1 - first;
        p.a = k->s + i * k->a->ld_s + first;
        p.lda = k->a->ld_s;
        p.b = k->v + (t->base + first - k->row0) * g->pad;
        R(ls_add)(&p);
    }
}

static void R(ls_forward_tile)(const R(ls_task) * k, const ls_tile *t)
{
    const tp__ls_dims *g = k->g;
    real *lse = (real *)k->c->y[1].data + (k->b * g->H + k->h) * g->N + t->t0, sum[LS_TILE];
    R(ls_queries)(k, t);
    R(ls_scores)(k, t);
    for (int64_t i = 0; i < t->n; i++) {
        const R(ls_span) s = R(ls_band_row)(k, t, i, k->s, -INFINITY);
        const R(ls_span) sc = R(ls_vec_row)(k, t, i, k->sc, -INFINITY);
        const real most = R(ls_largest)(s, R(ls_largest)(sc, -INFINITY));
        sum[i] = R(ls_exp)(s, most) + R(ls_exp)(sc, most);
        lse[i] = most + r_log(sum[i]);
    }
    R(ls_values)(k, t);
    for (int64_t i = 0; i < t->n; i++) {
        const real *o = k->o + i * g->pad, f = RC(1.0) / sum[i];
        real *y = R(ls_at)(k, &k->c->y[0], t->t0 + i);
        for (int64_t d = 0; d < g->D; d++) y[d] = f * o[d];
    }
}

static void R(ls_forward)(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const tp__ls_dims g = tp__ls_geometry(c->x, c->attr);
    const tp__ls_scratch a = tp__ls_layout(&g, false);
    for (int64_t index = begin; index < end; index++) {
        const R(ls_task) k = R(ls_task_at)(c, &g, &a, index, thread);
        R(ls_pack)(&k);
        R(ls_pack_rows)(&k, R(ls_at)(&k, &c->x[LS_V_WIN], k.row0), g.Wc + k.end - k.row0, k.v);
        if (g.nc > 0) R(ls_pack_rows)(&k, R(ls_at)(&k, &c->x[LS_V_CMP], 0), g.nc, k.vc);
        for (int64_t t0 = k.begin; t0 < k.end; t0 += LS_TILE) {
            const ls_tile t = ls_tile_at(&g, t0, k.end);
            R(ls_forward_tile)(&k, &t);
        }
    }
}

static tp_code R(ls_attention_fwd)(const tp_call *c)
{
    if (c->y[0].numel == 0) return TP_OK;
    const tp__ls_dims g = tp__ls_geometry(c->x, c->attr);
    tp__for(c, g.B * g.H * g.stripes, 1, R(ls_forward));
    return TP_OK;
}

/* ---- backward ------------------------------------------------------------------------------ */

/* ds = dO V^T over band and vectors. */
static void R(ls_probability_grad)(const R(ls_task) * k, const ls_tile *t)
{
    const tp__ls_dims *g = k->g;
    R(ls_band_scores)(k, t, k->o, k->vt, k->ds, R(ls_set));
    R(ls_set)
    (&(R(ls_product)){ .rows = t->n,
                       .cols = t->vecs - g->first_vec,
                       .depth = g->D,
                       .a = k->o,
                       .lda = g->pad,
                       .b = k->vct + g->first_vec,
                       .ldb = k->a->ld_cmp,
                       .c = k->dsc + g->first_vec,
                       .ldc = k->a->ld_cmp });
}

/* grad[key] += sum_i p[i][key] x[i] over the band, for LS_ROWS keys at a time and the queries that
 * see one of them. */
static void R(ls_band_grad)(const R(ls_task) * k, const ls_tile *t, const real *p, const real *x,
                            real *grad)
{
    const tp__ls_dims *g = k->g;
    for (int64_t c = ls_first_col(g, t, 0); c < t->cols; c += LS_ROWS) {
        const int64_t from = tp__ls_max(0, c - t->reach + 1), to = tp__ls_min(t->n, c + LS_ROWS);
        R(ls_add_t)
        (&(R(ls_product)){ .rows = LS_ROWS,
                           .cols = g->pad,
                           .depth = to - from,
                           .a = p + from * k->a->ld_s + c,
                           .lda = k->a->ld_s,
                           .b = x + from * g->pad,
                           .ldb = g->pad,
                           .c = grad + (t->base + c - k->row0) * g->pad,
                           .ldc = g->pad });
    }
}

/* Gradients of window keys, values and table, and of the chunk values. */
static void R(ls_sum_grads)(const R(ls_task) * k, const ls_tile *t)
{
    const tp__ls_dims *g = k->g;
    R(ls_band_grad)(k, t, k->s, k->o, k->dv);
    R(ls_band_grad)(k, t, k->ds, k->qw, k->dk);
    R(ls_product)
    p = { .rows = t->reach,
          .cols = g->pad,
          .depth = t->n,
          .a = k->ds,
          .lda = k->a->ld_s + 1,
          .b = k->qr,
          .ldb = g->pad,
          .c = k->drw + (g->span - t->reach) * g->pad,
          .ldc = g->pad };
    R(ls_add_t)(&p);
    p.rows = t->vecs - g->first_vec;
    p.a = k->sc + g->first_vec;
    p.lda = k->a->ld_cmp;
    p.b = k->o;
    p.c = k->dvc + g->first_vec * g->pad;
    R(ls_add_t)(&p);
}

/* Chunk part: one product adds to both keys and table, another gives dq from their sum. */
static void R(ls_chunk_grads)(const R(ls_task) * k, const ls_tile *t)
{
    const tp__ls_dims *g = k->g;
    for (int64_t i = 0, next; i < t->n; i = next) {
        const int64_t end = tp__ls_end_vec(g, t->t0 + i), from = g->first_vec * g->pad;
        const int64_t shift = (g->nc - end) * g->pad;
        next = ls_chunk_end(g, t, i);
        R(ls_product)
        p = { .rows = end - g->first_vec,
              .cols = g->pad,
              .depth = next - i,
              .a = k->dsc + i * k->a->ld_cmp + g->first_vec,
              .lda = k->a->ld_cmp,
              .b = k->qs + i * g->pad,
              .ldb = g->pad,
              .c = k->dkc + from,
              .c2 = k->drc + shift + from,
              .ldc = g->pad };
        R(ls_add_t_twice)(&p);
        p.rows = next - i;
        p.depth = end - g->first_vec;
        p.b = k->kc + from;
        p.b2 = k->rc + shift + from;
        p.ldb2 = g->pad;
        p.c = k->dqs + i * g->pad;
        R(ls_set_pair)(&p);
    }
}

/* dqw = ds K, dqr = ds Rw. */
static void R(ls_query_grads)(const R(ls_task) * k, const ls_tile *t)
{
    const tp__ls_dims *g = k->g;
    for (int64_t i = 0; i < t->n; i += LS_ROWS) {
        const int64_t rows = tp__ls_min(LS_ROWS, t->n - i), first = ls_first_col(g, t, i);
        const int64_t reach = ls_reach(g, t->t0 + i, rows);
        R(ls_product)
        p = { .rows = rows,
              .cols = g->pad,
              .depth = t->reach + i + rows - 1 - first,
              .a = k->ds + i * k->a->ld_s + first,
              .lda = k->a->ld_s,
              .b = k->k + (t->base + first - k->row0) * g->pad,
              .ldb = g->pad,
              .c = k->dqw + i * g->pad,
              .ldc = g->pad };
        R(ls_set)(&p);
        p.depth = reach;
        p.a = k->ds + i * (k->a->ld_s + 1) + t->reach - reach;
        p.lda = k->a->ld_s + 1;
        p.b = k->rw + (g->span - reach) * g->pad;
        p.c = k->dqr + i * g->pad;
        R(ls_set)(&p);
    }
}

static void R(ls_backward_tile)(const R(ls_task) * k, const ls_tile *t)
{
    const tp__ls_dims *g = k->g;
    const real *lse = (real *)k->c->y[1].data + (k->b * g->H + k->h) * g->N + t->t0;
    const real scale = RC(1.0) / r_sqrt((real)g->D);
    real *dq = k->c->dx[LS_Q].data;
    for (int64_t i = 0; i < t->n; i++)
        R(ls_copy_row)(k->o + i * g->pad, R(ls_at)(k, &k->c->dy[0], t->t0 + i), g->D, g->pad);
    R(ls_queries)(k, t);
    R(ls_scores)(k, t);
    R(ls_probability_grad)(k, t);
    for (int64_t i = 0; i < t->n; i++) {
        const real *o = k->o + i * g->pad, *y = R(ls_at)(k, &k->c->y[0], t->t0 + i);
        real delta = 0;
#pragma omp simd reduction(+ : delta)
        for (int64_t d = 0; d < g->D; d++) delta += o[d] * y[d];
        R(ls_row_grad)
        (R(ls_band_row)(k, t, i, k->s, -INFINITY), R(ls_band_row)(k, t, i, k->ds, 0), lse[i],
         delta);
        R(ls_row_grad)
        (R(ls_vec_row)(k, t, i, k->sc, -INFINITY), R(ls_vec_row)(k, t, i, k->dsc, 0), lse[i],
         delta);
    }
    R(ls_sum_grads)(k, t);
    R(ls_chunk_grads)(k, t);
    R(ls_query_grads)(k, t);
    for (int64_t i = 0; i < t->n; i++) {
        const real *s = k->dqs + i * g->pad, *w = k->dqw + i * g->pad, *r = k->dqr + i * g->pad;
        for (int64_t d = 0; d < g->D; d++) {
            k->dr_w[d] += w[d];
            k->dr_r[d] += r[d];
        }
        if (!dq) continue;
        real *to = R(ls_at)(k, &k->c->dx[LS_Q], t->t0 + i);
        for (int64_t d = 0; d < g->D; d++) to[d] = scale * (s[d] + w[d] + r[d]);
    }
}

/* Sums of the stripe: rows before its own (but for the first stripe) are left to be added later. */
static void R(ls_store_rows)(const R(ls_task) * k, const tp_view *dx, const real *sum, real *head)
{
    const tp__ls_dims *g = k->g;
    const int64_t own = k->begin == 0 ? 0 : g->Wc + k->begin;
    if (!dx->data) return;
    for (int64_t row = own; row < k->row0; row++)
        memset(R(ls_at)(k, dx, row), 0, (size_t)g->D * sizeof(real));
    if (own > k->row0) memcpy(head, sum, (size_t)((own - k->row0) * g->pad) * sizeof(real));
    for (int64_t row = tp__ls_max(own, k->row0); row < g->Wc + k->end; row++)
        memcpy(R(ls_at)(k, dx, row), sum + (row - k->row0) * g->pad, (size_t)g->D * sizeof(real));
}

static void R(ls_backward)(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const tp__ls_dims g = tp__ls_geometry(c->x, c->attr);
    const tp__ls_scratch a = tp__ls_layout(&g, true);
    for (int64_t index = begin; index < end; index++) {
        const R(ls_task) k = R(ls_task_at)(c, &g, &a, index, thread);
        const int64_t rows = g.Wc + k.end - k.row0;
        R(ls_pack)(&k);
        R(ls_pack_rows)(&k, R(ls_at)(&k, &c->x[LS_K_WIN], k.row0), rows, k.k);
        R(ls_transpose)(R(ls_at)(&k, &c->x[LS_V_WIN], k.row0), g.width, rows, g.D, k.vt, a.ld_win);
        if (g.nc > 0) {
            R(ls_pack_rows)(&k, R(ls_at)(&k, &c->x[LS_K_CMP], 0), g.nc, k.kc);
            R(ls_transpose)(R(ls_at)(&k, &c->x[LS_V_CMP], 0), g.width, g.nc, g.D, k.vct, a.ld_cmp);
        }
        memset(k.dk, 0, (size_t)(rows * g.pad) * sizeof(real));
        memset(k.dv, 0, (size_t)(rows * g.pad) * sizeof(real));
        memset(k.head_k, 0, (size_t)a.partial * sizeof(real));
        for (int64_t t0 = k.begin; t0 < k.end; t0 += LS_TILE) {
            const ls_tile t = ls_tile_at(&g, t0, k.end);
            R(ls_backward_tile)(&k, &t);
        }
        R(ls_store_rows)(&k, &c->dx[LS_K_WIN], k.dk, k.head_k);
        R(ls_store_rows)(&k, &c->dx[LS_V_WIN], k.dv, k.head_v);
    }
}

/* ---- sums over tasks ----------------------------------------------------------------------- */

static void R(ls_zero_rows)(const R(ls_task) * k, const tp_view *dx)
{
    for (int64_t row = 0; row < dx->dim[dx->ndim - 2]; row++)
        memset(R(ls_at)(k, dx, row), 0, (size_t)k->g->D * sizeof(real));
}

static void R(ls_add_row)(const R(ls_task) * k, real *to, const real *from)
{
    for (int64_t d = 0; d < k->g->D; d++) to[d] += from[d];
}

static void R(ls_add_rows)(const R(ls_task) * k, const tp_view *dx, int64_t row, int64_t rows,
                           const real *from)
{
    for (int64_t i = 0; i < rows; i++)
        R(ls_add_row)(k, R(ls_at)(k, dx, row + i), from + i * k->g->pad);
}

/* The reverse of ls_pack_table: clamped distances share a row. */
static void R(ls_add_table)(const R(ls_task) * k, const tp_view *dx, int64_t rows, int64_t clamp,
                            const real *from)
{
    for (int64_t i = 0; i < rows; i++)
        R(ls_add_row)(k, R(ls_at)(k, dx, tp__ls_min(rows - 1 - i, clamp)), from + i * k->g->pad);
}

/* Of one head of one batch row: keys and values that several stripes have seen. */
static void R(ls_sum_stripes)(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const tp__ls_dims g = tp__ls_geometry(c->x, c->attr);
    const tp__ls_scratch a = tp__ls_layout(&g, true);
    const tp_view *dx = c->dx;
    for (int64_t index = begin * g.stripes; index < end * g.stripes; index++) {
        const R(ls_task) k = R(ls_task_at)(c, &g, &a, index, thread);
        const int64_t rows = g.Wc + k.begin - k.row0;
        if (k.begin == 0) {
            if (dx[LS_K_CMP].data) R(ls_zero_rows)(&k, &dx[LS_K_CMP]);
            if (dx[LS_V_CMP].data) R(ls_zero_rows)(&k, &dx[LS_V_CMP]);
        } else {
            if (dx[LS_K_WIN].data) R(ls_add_rows)(&k, &dx[LS_K_WIN], k.row0, rows, k.head_k);
            if (dx[LS_V_WIN].data) R(ls_add_rows)(&k, &dx[LS_V_WIN], k.row0, rows, k.head_v);
        }
        if (dx[LS_K_CMP].data) R(ls_add_rows)(&k, &dx[LS_K_CMP], 0, g.nc, k.dkc);
        if (dx[LS_V_CMP].data) R(ls_add_rows)(&k, &dx[LS_V_CMP], 0, g.nc, k.dvc);
    }
}

/* Of one head: tables and biases, which all batch rows share. */
static void R(ls_sum_batch)(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const tp__ls_dims g = tp__ls_geometry(c->x, c->attr);
    const tp__ls_scratch a = tp__ls_layout(&g, true);
    const tp_view *win = &c->dx[LS_POS_WIN], *cmp = &c->dx[LS_POS_CMP];
    real *dr_w = c->dx[LS_R_W].data, *dr_r = c->dx[LS_R_R].data;
    for (int64_t h = begin; h < end; h++)
        for (int64_t i = 0; i < g.B * g.stripes; i++) {
            const int64_t index = (i / g.stripes * g.H + h) * g.stripes + i % g.stripes;
            const R(ls_task) k = R(ls_task_at)(c, &g, &a, index, thread);
            if (i == 0) {
                if (win->data) R(ls_zero_rows)(&k, win);
                if (cmp->data) R(ls_zero_rows)(&k, cmp);
                if (dr_w) memset(dr_w + h * g.D, 0, (size_t)g.D * sizeof *dr_w);
                if (dr_r) memset(dr_r + h * g.D, 0, (size_t)g.D * sizeof *dr_r);
            }
            if (win->data) R(ls_add_table)(&k, win, g.span, g.clamp, k.drw);
            if (cmp->data) R(ls_add_table)(&k, cmp, g.nc, g.chunk_clamp, k.drc);
            if (dr_w) R(ls_add_row)(&k, dr_w + h * g.D, k.dr_w);
            if (dr_r) R(ls_add_row)(&k, dr_r + h * g.D, k.dr_r);
        }
}

static tp_code R(ls_attention_bwd)(const tp_call *c)
{
    if (c->y[0].numel == 0) {
        for (int i = 0; i < LS_NX; i++)
            if (c->dx[i].data) memset(c->dx[i].data, 0, (size_t)c->dx[i].numel * sizeof(real));
        return TP_OK;
    }
    const tp__ls_dims g = tp__ls_geometry(c->x, c->attr);
    tp__for(c, g.B * g.H * g.stripes, 1, R(ls_backward));
    tp__for(c, g.B * g.H, 1, R(ls_sum_stripes));
    tp__for(c, g.H, 1, R(ls_sum_batch));
    return TP_OK;
}

#endif
