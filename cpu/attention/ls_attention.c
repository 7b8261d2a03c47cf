/* ls_attention.c - long-short attention: one softmax over a sliding window and chunk vectors.
 *
 *     a_win(t, delta) = (qs + r_w) K[Wc + t - delta] + (qs + r_r) Rw[delta]        qs = q / sqrt(D)
 *     a_vec(t, v)     = qs (Kc[v] + Rc[rho])
 *     out(t)          = softmax over both, times the values
 *
 * A task is one head of one batch row, or a stripe of its queries; it packs its operands and
 * processes the queries in tiles. A tile's scores, in whole rows, stay in cache, so a plain
 * two-pass softmax suffices. Only the band and the visible vectors are multiplied; ls_tiles.h
 * explains the
 * order of the tables. Backward recomputes the scores from the log-sum-exp. Tasks share no result:
 * contributions of several tasks are partial sums, added in order, so the number of threads does
 * not matter. A query that sees no key (possible without a window) gives zeros. */
#include "cpu/attention/ls_products.h"
#include "cpu/attention/ls_tiles.h"
#include "cpu/kit/real.h"
#include "tensor/kernel.h"

/* ---- forward ---- */

/* o = p V over the vectors and the band. */
static void ls_values(const ls_task *k, const tp__ls_tile *t)
{
    const tp__ls_dims *g = k->g;
    for (int64_t i = 0; i < t->n; i += LS_ROWS) {
        const int64_t rows = tp__least(LS_ROWS, t->n - i), first = tp__ls_first_col(g, t, i);
        ls_product p = { .rows = rows,
                         .cols = g->pad,
                         .depth = tp__ls_end_vec(g, t->t0 + i + rows - 1) - g->first_vec,
                         .a = k->sc + i * k->a->ld_cmp + g->first_vec,
                         .lda = k->a->ld_cmp,
                         .b = k->vc + g->first_vec * g->pad,
                         .ldb = g->pad,
                         .c = k->o + i * g->pad,
                         .ldc = g->pad };
        ls_set(&p);
        p.depth = tp__ls_band(t, i, rows, first);
        p.a = k->s + i * k->a->ld_s + first;
        p.lda = k->a->ld_s;
        p.b = k->v + (t->base + first - k->row0) * g->pad;
        ls_add(&p);
    }
}

static void ls_forward_tile(const ls_task *k, const tp__ls_tile *t)
{
    const tp__ls_dims *g = k->g;
    real *lse = (real *)k->c->y[1].data + (k->b * g->H + k->h) * g->N + t->t0, sum[LS_TILE];
    ls_queries(k, t);
    ls_scores(k, t);
    for (int64_t i = 0; i < t->n; i++) {
        const ls_span s = ls_band_row(k, t, i, k->s, -INFINITY);
        const ls_span sc = ls_vec_row(k, t, i, k->sc, -INFINITY);
        const real most = largest(s.x, s.n, largest(sc.x, sc.n, -INFINITY));
        sum[i] = ls_exp(s, most) + ls_exp(sc, most);
        lse[i] = sum[i] > 0 ? most + r_log(sum[i]) : 0; /* 0: no visible key */
        ls_drop(s, ls_keep_band(k, t, i, s));
        ls_drop(sc, ls_keep_vec(k, t, i, sc));
    }
    ls_values(k, t);
    for (int64_t i = 0; i < t->n; i++) {
        const real *o = k->o + i * g->pad, f = sum[i] > 0 ? RC(1.0) / sum[i] : 0;
        real *y = ls_at(k, &k->c->y[0], t->t0 + i);
        for (int64_t d = 0; d < g->D; d++) y[d] = f * o[d];
    }
}

static void ls_forward(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const tp__ls_dims g = tp__ls_geometry(c->x, c->attr);
    const tp__ls_scratch a = tp__ls_layout(&g, false);
    for (int64_t index = begin; index < end; index++) {
        const ls_task k = ls_task_at(c, &g, &a, index, thread);
        ls_pack(&k);
        if (g.w > 0) ls_pack_rows(&k, ls_at(&k, &c->x[LS_V_WIN], k.row0), k.rows, k.v);
        if (g.nc > 0) ls_pack_rows(&k, ls_at(&k, &c->x[LS_V_CMP], 0), g.nc, k.vc);
        for (int64_t t0 = k.begin; t0 < k.end; t0 += LS_TILE) {
            const tp__ls_tile t = tp__ls_tile_at(&g, t0, k.end);
            ls_forward_tile(&k, &t);
        }
    }
}

static tp_code ls_attention_fwd(const tp_call *c)
{
    if (c->y[0].numel == 0) return TP_OK;
    const tp__ls_dims g = tp__ls_geometry(c->x, c->attr);
    tp__for_threads(c, g.B * g.H * g.stripes, 1, ls_forward);
    return TP_OK;
}

/* ---- backward ---- */

/* ds = dO V^T over band and vectors. */
static void ls_probability_grad(const ls_task *k, const tp__ls_tile *t)
{
    const tp__ls_dims *g = k->g;
    const ls_product p = { .rows = t->n,
                           .cols = t->vecs - g->first_vec,
                           .depth = g->D,
                           .a = k->o,
                           .lda = g->pad,
                           .b = k->vct + g->first_vec,
                           .ldb = k->a->ld_cmp,
                           .c = k->dsc + g->first_vec,
                           .ldc = k->a->ld_cmp };
    ls_band_scores(k, t, k->o, k->vt, k->ds, ls_set);
    ls_set(&p);
}

/* Turns scores into probabilities, and the gradients of those into gradients of the scores. */
static void ls_softmax_grad(const ls_task *k, const tp__ls_tile *t)
{
    const tp__ls_dims *g = k->g;
    const real *lse = (real *)k->c->y[1].data + (k->b * g->H + k->h) * g->N + t->t0;
    for (int64_t i = 0; i < t->n; i++) {
        const ls_span s = ls_band_row(k, t, i, k->s, -INFINITY);
        const ls_span sc = ls_vec_row(k, t, i, k->sc, -INFINITY);
        const real *o = k->o + i * g->pad, *y = ls_at(k, &k->c->y[0], t->t0 + i);
        const real delta = dot_of(o, y, g->D);
        const ls_span ds = ls_band_row(k, t, i, k->ds, 0), dsc = ls_vec_row(k, t, i, k->dsc, 0);
        ls_row_grad(s, ds, lse[i], delta, ls_keep_band(k, t, i, s));
        ls_row_grad(sc, dsc, lse[i], delta, ls_keep_vec(k, t, i, sc));
    }
}

/* grad[key] += sum_i p[i][key] x[i] over the band, for LS_ROWS keys at a time and the queries that
 * see any of them. */
static void ls_band_grad(const ls_task *k, const tp__ls_tile *t, const real *p, const real *x,
                         real *grad)
{
    const tp__ls_dims *g = k->g;
    for (int64_t c = tp__ls_first_col(g, t, 0); c < t->cols; c += LS_ROWS) {
        const int64_t from = tp__most(0, c - t->reach + 1), to = tp__least(t->n, c + LS_ROWS);
        const ls_product q = { .rows = LS_ROWS,
                               .cols = g->pad,
                               .depth = to - from,
                               .a = p + from * k->a->ld_s + c,
                               .lda = k->a->ld_s,
                               .b = x + from * g->pad,
                               .ldb = g->pad,
                               .c = grad + (t->base + c - k->row0) * g->pad,
                               .ldc = g->pad };
        ls_add_t(&q);
    }
}

/* Gradients of window keys, values and table, and of chunk values. */
static void ls_sum_grads(const ls_task *k, const tp__ls_tile *t)
{
    const tp__ls_dims *g = k->g;
    ls_band_grad(k, t, k->s, k->o, k->dv);
    ls_band_grad(k, t, k->ds, k->qw, k->dk);
    ls_product p = { .rows = t->reach,
                     .cols = g->pad,
                     .depth = t->n,
                     .a = k->ds,
                     .lda = k->a->ld_s + 1,
                     .b = k->qr,
                     .ldb = g->pad,
                     .c = k->drw + (g->span - t->reach) * g->pad,
                     .ldc = g->pad };
    ls_add_t(&p);
    p.rows = t->vecs - g->first_vec;
    p.a = k->sc + g->first_vec;
    p.lda = k->a->ld_cmp;
    p.b = k->o;
    p.c = k->dvc + g->first_vec * g->pad;
    ls_add_t(&p);
}

/* Chunk part: one product adds to keys and table, another computes dq from their sum. */
static void ls_chunk_grads(const ls_task *k, const tp__ls_tile *t)
{
    const tp__ls_dims *g = k->g;
    for (int64_t i = 0, next; i < t->n; i = next) {
        const int64_t end = tp__ls_end_vec(g, t->t0 + i), from = g->first_vec * g->pad;
        const int64_t shift = (g->nc - end) * g->pad;
        next = tp__ls_chunk_end(g, t, i);
        ls_product p = { .rows = end - g->first_vec,
                         .cols = g->pad,
                         .depth = next - i,
                         .a = k->dsc + i * k->a->ld_cmp + g->first_vec,
                         .lda = k->a->ld_cmp,
                         .b = k->qs + i * g->pad,
                         .ldb = g->pad,
                         .c = k->dkc + from,
                         .c2 = k->drc + shift + from,
                         .ldc = g->pad };
        ls_add_t_twice(&p);
        p.rows = next - i;
        p.depth = end - g->first_vec;
        p.b = k->kc + from;
        p.b2 = k->rc + shift + from;
        p.ldb2 = g->pad;
        p.c = k->dqs + i * g->pad;
        ls_set_pair(&p);
    }
}

/* dqw = ds K, dqr = ds Rw. */
static void ls_query_grads(const ls_task *k, const tp__ls_tile *t)
{
    const tp__ls_dims *g = k->g;
    for (int64_t i = 0; i < t->n; i += LS_ROWS) {
        const int64_t rows = tp__least(LS_ROWS, t->n - i), first = tp__ls_first_col(g, t, i);
        const int64_t reach = tp__ls_reach(g, t->t0 + i, rows);
        ls_product p = { .rows = rows,
                         .cols = g->pad,
                         .depth = tp__ls_band(t, i, rows, first),
                         .a = k->ds + i * k->a->ld_s + first,
                         .lda = k->a->ld_s,
                         .b = k->k + (t->base + first - k->row0) * g->pad,
                         .ldb = g->pad,
                         .c = k->dqw + i * g->pad,
                         .ldc = g->pad };
        ls_set(&p);
        p.depth = reach;
        p.a = k->ds + i * (k->a->ld_s + 1) + t->reach - reach;
        p.lda = k->a->ld_s + 1;
        p.b = k->rw + (g->span - reach) * g->pad;
        p.c = k->dqr + i * g->pad;
        ls_set(&p);
    }
}

/* Stores dq and the gradients of the biases; dq's content and position parts are still separate. */
static void ls_store_queries(const ls_task *k, const tp__ls_tile *t)
{
    const int64_t D = k->g->D, pad = k->g->pad;
    const tp_view *dq = &k->c->dx[LS_Q];
    const real scale = ls_scale(D);
    for (int64_t i = 0; i < t->n; i++) {
        const real *s = k->dqs + i * pad, *w = k->dqw + i * pad, *r = k->dqr + i * pad;
        ls_add_row(k->dr_w, w, D);
        ls_add_row(k->dr_r, r, D);
        if (!dq->data) continue;
        real *to = ls_at(k, dq, t->t0 + i);
        for (int64_t d = 0; d < D; d++) to[d] = scale * (s[d] + w[d] + r[d]);
    }
}

static void ls_backward_tile(const ls_task *k, const tp__ls_tile *t)
{
    const int64_t D = k->g->D, pad = k->g->pad;
    for (int64_t i = 0; i < t->n; i++)
        ls_copy_row(k->o + i * pad, ls_at(k, &k->c->dy[0], t->t0 + i), D, pad);
    ls_queries(k, t);
    ls_scores(k, t);
    ls_probability_grad(k, t);
    ls_softmax_grad(k, t);
    ls_sum_grads(k, t);
    ls_chunk_grads(k, t);
    ls_query_grads(k, t);
    ls_store_queries(k, t);
}

/* Stores the stripe's sums; rows before its own (except in the first stripe) are added later. */
static void ls_store_rows(const ls_task *k, const tp_view *dx, const real *sum, real *head)
{
    const tp__ls_dims *g = k->g;
    const int64_t own = k->begin == 0 ? 0 : g->Wc + k->begin;
    if (!dx->data) return;
    for (int64_t row = own; row < k->row0; row++)
        memset(ls_at(k, dx, row), 0, (size_t)g->D * sizeof(real));
    if (own > k->row0) memcpy(head, sum, (size_t)((own - k->row0) * g->pad) * sizeof(real));
    for (int64_t row = tp__most(own, k->row0); row < g->Wc + k->end; row++)
        memcpy(ls_at(k, dx, row), sum + (row - k->row0) * g->pad, (size_t)g->D * sizeof(real));
}

static void ls_backward(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const tp__ls_dims g = tp__ls_geometry(c->x, c->attr);
    const tp__ls_scratch a = tp__ls_layout(&g, true);
    for (int64_t index = begin; index < end; index++) {
        const ls_task k = ls_task_at(c, &g, &a, index, thread);
        ls_pack(&k);
        if (g.w > 0) {
            const real *v = ls_at(&k, &c->x[LS_V_WIN], k.row0);
            ls_pack_rows(&k, ls_at(&k, &c->x[LS_K_WIN], k.row0), k.rows, k.k);
            transpose(v, g.width, k.rows, g.D, k.vt, a.ld_win);
        }
        if (g.nc > 0) {
            ls_pack_rows(&k, ls_at(&k, &c->x[LS_K_CMP], 0), g.nc, k.kc);
            transpose(ls_at(&k, &c->x[LS_V_CMP], 0), g.width, g.nc, g.D, k.vct, a.ld_cmp);
        }
        memset(k.dk, 0, (size_t)(k.rows * g.pad) * sizeof(real));
        memset(k.dv, 0, (size_t)(k.rows * g.pad) * sizeof(real));
        memset(k.head_k, 0, (size_t)a.partial * sizeof(real));
        for (int64_t t0 = k.begin; t0 < k.end; t0 += LS_TILE) {
            const tp__ls_tile t = tp__ls_tile_at(&g, t0, k.end);
            ls_backward_tile(&k, &t);
        }
        ls_store_rows(&k, &c->dx[LS_K_WIN], k.dk, k.head_k);
        ls_store_rows(&k, &c->dx[LS_V_WIN], k.dv, k.head_v);
    }
}

/* ---- sums over tasks ---- */

/* dx = 0. Like the next two functions, does nothing if the gradient is unwanted. */
static void ls_zero_rows(const ls_task *k, const tp_view *dx)
{
    for (int64_t row = 0; dx->data && row < ls_count(k, dx); row++)
        memset(ls_at(k, dx, row), 0, (size_t)k->g->D * sizeof(real));
}

static void ls_add_rows(const ls_task *k, const tp_view *dx, int64_t row, int64_t rows,
                        const real *from)
{
    for (int64_t i = 0; dx->data && i < rows; i++)
        ls_add_row(ls_at(k, dx, row + i), from + i * k->g->pad, k->g->D);
}

/* Reverses ls_pack_table: clamped distances share a row. */
static void ls_add_table(const ls_task *k, const tp_view *dx, int64_t rows, int64_t clamp,
                         const real *from)
{
    for (int64_t i = 0; i < rows; i++)
        ls_add_rows(k, dx, tp__least(rows - 1 - i, clamp), 1, from + i * k->g->pad);
}

/* Adds keys and values seen by several stripes, for one head of one batch row. */
static void ls_sum_stripes(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const tp__ls_dims g = tp__ls_geometry(c->x, c->attr);
    const tp__ls_scratch a = tp__ls_layout(&g, true);
    for (int64_t index = begin * g.stripes; index < end * g.stripes; index++) {
        const ls_task k = ls_task_at(c, &g, &a, index, thread);
        const int64_t rows = g.Wc + k.begin - k.row0;
        if (k.begin == 0) {
            ls_zero_rows(&k, &c->dx[LS_K_CMP]);
            ls_zero_rows(&k, &c->dx[LS_V_CMP]);
        } else {
            ls_add_rows(&k, &c->dx[LS_K_WIN], k.row0, rows, k.head_k);
            ls_add_rows(&k, &c->dx[LS_V_WIN], k.row0, rows, k.head_v);
        }
        ls_add_rows(&k, &c->dx[LS_K_CMP], 0, g.nc, k.dkc);
        ls_add_rows(&k, &c->dx[LS_V_CMP], 0, g.nc, k.dvc);
    }
}

/* Adds one head's tables and biases, which all batch rows share. */
static void ls_sum_batch(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    const tp__ls_dims g = tp__ls_geometry(c->x, c->attr);
    const tp__ls_scratch a = tp__ls_layout(&g, true);
    for (int64_t h = begin; h < end; h++)
        for (int64_t i = 0; i < g.B * g.stripes; i++) {
            const int64_t index = (i / g.stripes * g.H + h) * g.stripes + i % g.stripes;
            const ls_task k = ls_task_at(c, &g, &a, index, thread);
            if (i == 0)
                for (int x = LS_POS_WIN; x < LS_NX; x++) ls_zero_rows(&k, &c->dx[x]);
            ls_add_table(&k, &c->dx[LS_POS_WIN], g.span, g.clamp, k.drw);
            ls_add_table(&k, &c->dx[LS_POS_CMP], g.nc, g.chunk_clamp, k.drc);
            ls_add_rows(&k, &c->dx[LS_R_W], 0, 1, k.dr_w);
            ls_add_rows(&k, &c->dx[LS_R_R], 0, 1, k.dr_r);
        }
}

static tp_code ls_attention_bwd(const tp_call *c)
{
    if (c->y[0].numel == 0) {
        for (int i = 0; i < LS_NX; i++)
            if (c->dx[i].data) memset(c->dx[i].data, 0, (size_t)c->dx[i].numel * sizeof(real));
        return TP_OK;
    }
    const tp__ls_dims g = tp__ls_geometry(c->x, c->attr);
    tp__for_threads(c, g.B * g.H * g.stripes, 1, ls_backward);
    tp__for_threads(c, g.B * g.H, 1, ls_sum_stripes);
    tp__for_threads(c, g.H, 1, ls_sum_batch);
    return TP_OK;
}

/* c->work: the scratch of each thread, then the partial sums of all tasks. */
static size_t ls_attention_work(const tp_call *c)
{
    if (c->y[0].numel == 0) return 0;
    const tp__ls_dims g = tp__ls_geometry(c->x, c->attr);
    const tp__ls_scratch a = tp__ls_layout(&g, tp_is_backward(c));
    return (size_t)(c->dev->threads * a.total + g.B * g.H * g.stripes * a.partial) * sizeof(real);
}

TP_CPU_WORK(ls_attention_work)
TP_CPU_KERNEL(ls_attention_fwd)
TP_CPU_KERNEL(ls_attention_bwd)
