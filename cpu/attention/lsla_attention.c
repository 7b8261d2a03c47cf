/* lsla_attention.c - light self-limited attention; lsla.h has the geometry.
 *
 * A task is a slice of the windows of one head; it expands the head's biases once. For each window
 * it works on matrices of keys by queries in cache: two products forward, five backward, with
 * elementwise passes over rows of whole vectors in between; the softmax runs along columns.
 * Products read and write tokens in place in the map, through a table of row offsets of a window;
 * only heads that are not whole vectors are copied. Columns past the window's queries are computed
 * from zeros and not read. Sums over windows (scale and tables) are computed per slice and added in
 * order, so bits do not depend on the number of threads. */
#include "cpu/attention/ls_products.h"
#include "cpu/kit/philox_words.h"
#include "cpu/kit/real.h"
#include "cpu/kit/take.h"
#include "cpu/kit/transpose.h"
#include "tensor/geometry/lsla.h"
#include "tensor/kernel.h"

/* ---- the scratch of a thread ---- */

/* Offsets of the parts of a thread's scratch, in elements. All matrices are [key][query], so that a
 * softmax runs down columns. Rows of `wide` queries are whole vectors, as are the `deep` columns of
 * tokens. */
typedef struct lsla_scratch {
    int64_t wide, deep;
    int64_t scale, inner, outer;    /* [n][wide]: scale and the head's tables, expanded */
    int64_t q, k, v, out;           /* [wide][deep]: copies of heads that are not whole vectors */
    int64_t qt;                     /* [deep][wide] */
    int64_t row;                    /* [wide] of int64_t */
    int64_t region, lse, sum;       /* [wide] */
    int64_t minus, plus;            /* [n][wide]: biases of a window with several regions */
    int64_t s, p;                   /* [wide][wide]: scores; probabilities */
    int64_t keep;                   /* [n][wide]: dropout factors, if any */
    int64_t dout, doutt, dp;        /* backward: [wide][deep]; [deep][wide]; gradient of p */
    int64_t dscale, dinner, douter; /* [n][wide]: sums of the task */
    int64_t total;
    int64_t partial; /* backward, per slice: gradients of the scale [n][n], two tables */
} lsla_scratch;

static lsla_scratch lsla_layout(const tp_lsla *g, bool backward, bool dropped)
{
    lsla_scratch w = { .wide = tp__round_up(g->n, 16), .deep = tp__round_up(g->dim, 16) };
    const int64_t square = w.wide * w.wide, tokens = w.wide * w.deep;
    w.scale = tp__take(&w.total, square);
    w.inner = tp__take(&w.total, square);
    w.outer = tp__take(&w.total, square);
    w.q = tp__take(&w.total, tokens);
    w.k = tp__take(&w.total, tokens);
    w.v = tp__take(&w.total, tokens);
    w.out = tp__take(&w.total, tokens);
    w.qt = tp__take(&w.total, tokens);
    w.row = tp__take(&w.total, 2 * w.wide);
    w.region = tp__take(&w.total, w.wide);
    w.lse = tp__take(&w.total, w.wide);
    w.sum = tp__take(&w.total, w.wide);
    w.minus = tp__take(&w.total, square);
    w.plus = tp__take(&w.total, square);
    w.s = tp__take(&w.total, square);
    w.p = tp__take(&w.total, square);
    w.keep = tp__take(&w.total, dropped ? square : 0);
    if (!backward) return w;
    w.dout = tp__take(&w.total, tokens);
    w.doutt = tp__take(&w.total, tokens);
    w.dp = tp__take(&w.total, square);
    w.dscale = tp__take(&w.total, square);
    w.dinner = tp__take(&w.total, square);
    w.douter = tp__take(&w.total, square);
    w.partial = tp__round_up(g->n * g->n + 2 * g->table, 16);
    return w;
}

/* ---- a call, and a window of it ---- */

typedef struct lsla {
    const tp_call *c;
    tp_lsla g;
    lsla_scratch at;
    real scale;       /* unless learned */
    bool in_place;    /* heads are whole vectors */
    bool outer_apart; /* mask_outer */
    tp_keeper drop;
} lsla;

/* A window of one head, with the thread's scratch. */
typedef struct lsla_win {
    const lsla *a;
    int64_t b, h, y, x; /* y, x: corner in the rolled map */
    bool mixed;         /* contains several regions */
    const real *q, *k, *v;
    int64_t *row; /* token i of q, k, v and all tensors of that shape begins at q + row[i] */
    real *scratch;
} lsla_win;

/* ---- tokens ---- */

/* The map index of token (r,c) of the window. */
static inline int64_t lsla_at(const lsla_win *t, int64_t r, int64_t c)
{
    const tp_lsla *g = &t->a->g;
    const int64_t y = t->y + r + g->shift, x = t->x + c + g->shift;
    return (y < g->size[0] ? y : y - g->size[0]) * g->size[1] +
           (x < g->size[1] ? x : x - g->size[1]);
}

/* The head's slice of the image's first token in x [B,N,C]. */
static inline real *lsla_head(const lsla_win *t, const tp_view *x)
{
    const tp_lsla *g = &t->a->g;
    return (real *)x->data + t->b * g->size[0] * g->size[1] * g->width + t->h * g->dim;
}

/* The head's slice of token (r,c) of the window. */
static inline real *lsla_slice(const lsla_win *t, const tp_view *x, int64_t r, int64_t c)
{
    return lsla_head(t, x) + lsla_at(t, r, c) * t->a->g.width;
}

TP_INLINE void lsla_copy(const real *from, real *to, int64_t d)
{
    int64_t i = 0;
    for (; i + LANES <= d; i += LANES) vec_store(to + i, vec_load(from + i));
    for (; i < d; i++) to[i] = from[i];
}

/* The window's tokens of x, addressed by t->row: x itself, or a copy at `copy`. */
static const real *lsla_read(const lsla_win *t, const tp_view *x, int64_t copy)
{
    const int64_t w = t->a->g.window, deep = t->a->at.deep;
    real *to = t->scratch + copy;
    if (t->a->in_place) return lsla_head(t, x);
    for (int64_t i = 0; i < t->a->g.n; i++)
        lsla_copy(lsla_slice(t, x, i / w, i % w), to + i * deep, t->a->g.dim);
    return to;
}

/* Computes the offsets of the window's tokens. */
static void lsla_set_rows(const lsla_win *t)
{
    const tp_lsla *g = &t->a->g;
    for (int64_t r = 0, i = 0; r < g->window; r++)
        for (int64_t c = 0; c < g->window; c++, i++)
            t->row[i] = t->a->in_place ? lsla_at(t, r, c) * g->width : i * t->a->at.deep;
}

/* to [deep][wide] = the window's tokens x, transposed. */
static void lsla_transpose(const lsla_win *t, const real *x, real *to)
{
    const int64_t n = t->a->g.n, dim = t->a->g.dim, wide = t->a->at.wide, whole = n / LANES * LANES;
    for (int64_t r = 0; r < whole; r += LANES)
        for (int64_t c = 0; c < dim; c += LANES)
            transpose_square(x + c, t->row + r, 0, to + c * wide + r, wide);
    for (int64_t r = whole; r < n; r++)
        for (int64_t c = 0; c < dim; c++) to[c * wide + r] = x[t->row[r] + c];
}

/* The log-sum-exps of the window's queries. */
static real *lsla_sums(const lsla_win *t)
{
    const tp_lsla *g = &t->a->g;
    return (real *)t->a->c->y[1].data + (t->b * g->heads + t->h) * g->size[0] * g->size[1];
}

/* ---- a head ---- */

/* to[b][a] = the head's bias of query a and key b; unchanged without a table. */
static void lsla_spread(const lsla_win *t, const tp_view *table, real *to)
{
    const tp_lsla *g = &t->a->g;
    const int64_t w = g->window, wide = t->a->at.wide;
    const real *from = table->data;
    if (!from) return;
    for (int64_t b = 0; b < g->n; b++)
        for (int64_t y = 0; y < w; y++) {
            const int64_t first = tp__lsla_place(g, y * w, b);
            for (int64_t x = 0; x < w; x++)
                to[b * wide + y * w + x] = from[(first + x) * g->heads + t->h];
        }
}

/* to[b][a] = the scale of query a and key b, zero past them. */
static void lsla_set_scale(const lsla_win *t, real *to)
{
    const int64_t n = t->a->g.n, wide = t->a->at.wide;
    const real *scale = t->a->c->x[LSLA_SCALE].data;
    for (int64_t b = 0; b < n; b++)
        for (int64_t a = 0; a < n; a++) to[b * wide + a] = scale ? scale[a * n + b] : t->a->scale;
}

/* Sets the values shared by all windows of a task; the rest is zero. */
static void lsla_set_head(lsla_win *t, int64_t h)
{
    const lsla *a = t->a;
    t->h = h;
    memset(t->scratch, 0, (size_t)a->at.total * sizeof(real));
    lsla_set_scale(t, t->scratch + a->at.scale);
    lsla_spread(t, &a->c->x[LSLA_INNER], t->scratch + a->at.inner);
    lsla_spread(t, &a->c->x[LSLA_OUTER], t->scratch + a->at.outer);
    t->row = (int64_t *)(t->scratch + a->at.row);
}

/* ---- a window ---- */

/* The biases of a window of several regions: between two regions the inner bias is lowered by 100
 * and, with mask_outer, the outer one removed. */
static void lsla_mask(const lsla_win *t)
{
    const lsla *a = t->a;
    const tp_lsla *g = &a->g;
    const int64_t w = g->window, wide = a->at.wide, n = g->n;
    const real unseen = a->outer_apart ? 0 : 1;
    real *restrict region = t->scratch + a->at.region;
    const real *restrict inner = t->scratch + a->at.inner;
    const real *restrict outer = t->scratch + a->at.outer;
    real *restrict minus = t->scratch + a->at.minus, *restrict plus = t->scratch + a->at.plus;
    for (int64_t i = 0; i < n; i++)
        region[i] = (real)tp__lsla_region(g, t->y + i / w, t->x + i % w);
    for (int64_t i = 0; i < n * wide; i += wide) {
        const real own = region[i / wide];
#pragma omp simd
        for (int64_t q = 0; q < wide; q++) {
            const bool same = region[q] == own;
            minus[i + q] = inner[i + q] - (same ? RC(0.0) : RC(100.0));
            plus[i + q] = outer[i + q] * (same ? RC(1.0) : unseen);
        }
    }
}

/* Draws the window's dropout factors. */
static void lsla_draw(const lsla_win *t)
{
    const lsla *a = t->a;
    const int64_t w = a->g.window;
    for (int64_t q = 0; q < a->g.n; q++) {
        const int64_t e = tp__lsla_row(&a->g, t->b, t->h, lsla_at(t, q / w, q % w));
        tp__draw_keep(&a->drop, e, a->g.n, a->at.wide, t->scratch + a->at.keep + q);
    }
}

/* Multiplies a matrix by the dropout factors. */
static void lsla_drop(const lsla_win *t, real *restrict m)
{
    const real *restrict keep = t->scratch + t->a->at.keep;
    for (int64_t i = 0; i < t->a->g.n * t->a->at.wide; i++) m[i] *= keep[i];
}

static const real *lsla_inner(const lsla_win *t)
{
    return t->scratch + (t->mixed ? t->a->at.minus : t->a->at.inner);
}

static const real *lsla_outer(const lsla_win *t)
{
    return t->scratch + (t->mixed ? t->a->at.plus : t->a->at.outer);
}

/* All rows of a product, none past the last; how is a constant. */
TP_INLINE void lsla_multiply(const ls_product *p, int how)
{
    int64_t i = 0;
    for (; i + LS_ROWS <= p->rows; i += LS_ROWS) ls_rows(p, i, LS_ROWS, how);
    if (p->rows - i >= 4) {
        ls_rows(p, i, 4, how);
        i += 4;
    }
    if (p->rows - i >= 2) {
        ls_rows(p, i, 2, how);
        i += 2;
    }
    if (i < p->rows) ls_rows(p, i, 1, how);
}

/* m [n][wide] = x y^T for the window's tokens x and y; yt: y transposed. */
static void lsla_scores(const lsla_win *t, const real *x, const real *yt, real *m)
{
    const int64_t wide = t->a->at.wide;
    const ls_product p = { .rows = t->a->g.n,
                           .cols = t->a->g.n,
                           .depth = t->a->g.dim,
                           .a = x,
                           .b = yt,
                           .ldb = wide,
                           .c = m,
                           .ldc = wide,
                           .at = t->row };
    lsla_multiply(&p, LS_A_AT);
}

/* c = a b and c = aT b with tokens b and c. */
static void lsla_sum(const ls_product *p)
{
    lsla_multiply(p, LS_B_AT | LS_C_AT);
}

static void lsla_sum_t(const ls_product *p)
{
    lsla_multiply(p, LS_TRANSPOSED | LS_B_AT | LS_C_AT);
}

/* Writes the window's tokens of y: sums of tokens x weighted by m [n][wide] or its transpose. */
static void lsla_write(const lsla_win *t, const real *m, const real *x, const tp_view *y,
                       void (*sum)(const ls_product *p))
{
    const lsla *a = t->a;
    const int64_t w = a->g.window;
    const real *out = t->scratch + a->at.out;
    const ls_product p = { .rows = a->g.n,
                           .cols = a->g.dim,
                           .depth = a->g.n,
                           .a = m,
                           .lda = a->at.wide,
                           .b = x,
                           .c = a->in_place ? lsla_head(t, y) : t->scratch + a->at.out,
                           .at = t->row };
    if (!y->data) return;
    sum(&p);
    for (int64_t i = 0; !a->in_place && i < a->g.n; i++)
        lsla_copy(out + i * a->at.deep, lsla_slice(t, y, i / w, i % w), a->g.dim);
}

/* Sets the window, finds its tokens of q, k and v, and computes the scores. */
static void lsla_set(lsla_win *t, int64_t b, int64_t row, int64_t col)
{
    const lsla *a = t->a;
    const tp_lsla *g = &a->g;
    const lsla_scratch *at = &a->at;
    real *m = t->scratch;
    t->b = b;
    t->y = row * g->window;
    t->x = col * g->window;
    t->mixed = g->shift > 0 && (row == g->down - 1 || col == g->across - 1);
    lsla_set_rows(t);
    t->q = lsla_read(t, &a->c->x[LSLA_Q], at->q);
    t->k = lsla_read(t, &a->c->x[LSLA_K], at->k);
    t->v = lsla_read(t, &a->c->x[LSLA_V], at->v);
    lsla_transpose(t, t->q, m + at->qt);
    lsla_scores(t, t->k, m + at->qt, m + at->s);
    if (t->mixed) lsla_mask(t);
    if (a->drop.below > 0) lsla_draw(t);
}

/* ---- forward ---- */

/* p = weights of the values; stores the log-sum-exps. */
static void lsla_softmax(const lsla_win *t)
{
    const lsla_scratch *at = &t->a->at;
    const int64_t n = t->a->g.n, w = t->a->g.window, wide = at->wide;
    const real *restrict s = t->scratch + at->s, *restrict scale = t->scratch + at->scale;
    const real *restrict inner = lsla_inner(t), *restrict outer = lsla_outer(t);
    real *restrict p = t->scratch + at->p, *restrict most = t->scratch + at->lse;
    real *restrict sum = t->scratch + at->sum;
#pragma omp simd
    for (int64_t q = 0; q < wide; q++) {
        most[q] = scale[q] * s[q] + inner[q];
        sum[q] = 0;
    }
    for (int64_t i = 0; i < n * wide; i += wide) {
#pragma omp simd
        for (int64_t q = 0; q < wide; q++) {
            p[i + q] = scale[i + q] * s[i + q] + inner[i + q];
            most[q] = p[i + q] > most[q] ? p[i + q] : most[q];
        }
    }
    for (int64_t i = 0; i < n * wide; i += wide) {
#pragma omp simd
        for (int64_t q = 0; q < wide; q++) {
            p[i + q] = r_exp(p[i + q] - most[q]);
            sum[q] += p[i + q];
        }
    }
#pragma omp simd
    for (int64_t q = 0; q < wide; q++) {
        most[q] += r_log(sum[q]);
        sum[q] = 1 / sum[q];
    }
    if (t->a->drop.below > 0) lsla_drop(t, p);
    for (int64_t i = 0; i < n * wide; i += wide)
#pragma omp simd
        for (int64_t q = 0; q < wide; q++) p[i + q] = p[i + q] * sum[q] + outer[i + q];
    real *lse = lsla_sums(t);
    for (int64_t r = 0; r < w; r++)
        for (int64_t c = 0; c < w; c++) lse[lsla_at(t, r, c)] = most[r * w + c];
}

static void lsla_forward(const lsla_win *t)
{
    lsla_softmax(t);
    lsla_write(t, t->scratch + t->a->at.p, t->v, &t->a->c->y[0], lsla_sum_t);
}

/* Calls f on the windows of slice `task % slices` of head `task / slices`, in order. */
static void lsla_walk(lsla_win *t, int64_t task, void (*f)(const lsla_win *t))
{
    const tp_lsla *g = &t->a->g;
    const int64_t rows = g->batch * g->down, slice = task % g->slices;
    lsla_set_head(t, task / g->slices);
    for (int64_t row = rows * slice / g->slices; row < rows * (slice + 1) / g->slices; row++)
        for (int64_t x = 0; x < g->across; x++) {
            lsla_set(t, row / g->down, row % g->down, x);
            f(t);
        }
}

static void lsla_forward_tasks(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const lsla *a = ctx;
    lsla_win t = { .a = a, .scratch = (real *)a->c->work + thread * a->at.total };
    for (int64_t task = begin; task < end; task++) lsla_walk(&t, task, lsla_forward);
}

static lsla lsla_prepare(const tp_call *c)
{
    const tp_lsla_attn_cfg *cfg = c->attr;
    const tp_lsla g = tp__lsla(c->x, cfg);
    const double scale = cfg->scale != 0 ? cfg->scale : g.dim ? 1 / sqrt((double)g.dim) : 1;
    return (lsla){ .c = c,
                   .g = g,
                   .at = lsla_layout(&g, tp_is_backward(c), cfg->dropout > 0),
                   .scale = (real)scale,
                   .in_place = g.dim * (int64_t)sizeof(real) % TP_VECTOR == 0,
                   .outer_apart = cfg->mask_outer,
                   .drop = tp__keeper(c, cfg->dropout) };
}

static tp_code lsla_attention_fwd(const tp_call *c)
{
    const lsla a = lsla_prepare(c);
    if (c->y[0].numel == 0) return TP_OK;
    tp__parallel(c->dev, a.g.heads * a.g.slices, 1, lsla_forward_tasks, &a);
    return TP_OK;
}

/* ---- backward ---- */

/* douter += dp, where the outer bias applies. */
static void lsla_outer_grad(const lsla_win *t)
{
    const lsla *a = t->a;
    const int64_t n = a->g.n, wide = a->at.wide;
    const real unseen = t->mixed && a->outer_apart ? 0 : 1;
    const real *restrict dp = t->scratch + a->at.dp, *restrict region = t->scratch + a->at.region;
    real *restrict douter = t->scratch + a->at.douter;
    for (int64_t i = 0; i < n * wide; i += wide) {
        const real own = region[i / wide];
#pragma omp simd
        for (int64_t q = 0; q < wide; q++)
            douter[i + q] += (region[q] == own ? RC(1.0) : unseen) * dp[i + q];
    }
}

/* dp: the gradient of the softmax. Adds the gradients of scale and inner bias to the task's sums; p
 * becomes the weights, s the gradient of the scores. dropped is a constant. */
TP_INLINE void lsla_softmax_grads(const lsla_win *t, bool dropped)
{
    const lsla_scratch *at = &t->a->at;
    const int64_t n = t->a->g.n, w = t->a->g.window, wide = at->wide;
    const real *restrict scale = t->scratch + at->scale, *restrict dp = t->scratch + at->dp;
    const real *restrict inner = lsla_inner(t), *restrict outer = lsla_outer(t);
    const real *restrict keep = t->scratch + at->keep;
    real *restrict p = t->scratch + at->p, *restrict s = t->scratch + at->s;
    real *restrict lse = t->scratch + at->lse, *restrict delta = t->scratch + at->sum;
    real *restrict dscale = t->scratch + at->dscale, *restrict dinner = t->scratch + at->dinner;
    const real *sums = lsla_sums(t);
    for (int64_t r = 0; r < w; r++)
        for (int64_t c = 0; c < w; c++) lse[r * w + c] = sums[lsla_at(t, r, c)];
#pragma omp simd
    for (int64_t q = 0; q < wide; q++) delta[q] = 0;
    for (int64_t i = 0; i < n * wide; i += wide) {
#pragma omp simd
        for (int64_t q = 0; q < wide; q++) {
            p[i + q] = r_exp(scale[i + q] * s[i + q] + inner[i + q] - lse[q]);
            delta[q] += p[i + q] * dp[i + q];
        }
    }
    for (int64_t i = 0; i < n * wide; i += wide) {
#pragma omp simd
        for (int64_t q = 0; q < wide; q++) {
            const real dz = p[i + q] * (dp[i + q] - delta[q]);
            dinner[i + q] += dz;
            dscale[i + q] += dz * s[i + q];
            s[i + q] = dz * scale[i + q];
            p[i + q] = (dropped ? keep[i + q] * p[i + q] : p[i + q]) + outer[i + q];
        }
    }
}

static void lsla_backward(const lsla_win *t)
{
    const lsla_scratch *at = &t->a->at;
    const tp_view *dx = t->a->c->dx;
    real *m = t->scratch;
    const real *dout = lsla_read(t, &t->a->c->dy[0], at->dout);
    lsla_transpose(t, dout, m + at->doutt);
    lsla_scores(t, t->v, m + at->doutt, m + at->dp);
    if (dx[LSLA_OUTER].data) lsla_outer_grad(t);
    if (t->a->drop.below > 0) {
        lsla_drop(t, m + at->dp);
        lsla_softmax_grads(t, true);
    } else {
        lsla_softmax_grads(t, false);
    }
    lsla_write(t, m + at->s, t->k, &dx[LSLA_Q], lsla_sum_t);
    lsla_write(t, m + at->s, t->q, &dx[LSLA_K], lsla_sum);
    lsla_write(t, m + at->p, dout, &dx[LSLA_V], lsla_sum);
}

/* Adds a head's matrix m [n][wide] to its rows of a table. */
static void lsla_fold(const lsla *k, const real *m, real *table)
{
    const tp_lsla *g = &k->g;
    const int64_t w = g->window;
    for (int64_t b = 0; b < g->n; b++)
        for (int64_t y = 0; y < w; y++) {
            const real *from = m + b * k->at.wide + y * w;
            real *to = table + tp__lsla_place(g, y * w, b);
            for (int64_t x = 0; x < w; x++) to[x] += from[x];
        }
}

/* The sums of slice i of head h: the scale's [n][n], then the tables'. */
static real *lsla_partial(const lsla *a, int64_t h, int64_t i)
{
    return (real *)a->c->work + a->c->dev->threads * a->at.total +
           (h * a->g.slices + i) * a->at.partial;
}

static void lsla_backward_tasks(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const lsla *a = ctx;
    const tp_lsla *g = &a->g;
    const int64_t n = g->n;
    lsla_win t = { .a = a, .scratch = (real *)a->c->work + thread * a->at.total };
    for (int64_t task = begin; task < end; task++) {
        real *partial = lsla_partial(a, task / g->slices, task % g->slices);
        const real *dscale = t.scratch + a->at.dscale;
        lsla_walk(&t, task, lsla_backward);
        for (int64_t b = 0; b < n; b++)
            memcpy(partial + b * n, dscale + b * a->at.wide, (size_t)n * sizeof(real));
        memset(partial + n * n, 0, (size_t)(2 * g->table) * sizeof(real));
        lsla_fold(a, t.scratch + a->at.dinner, partial + n * n);
        lsla_fold(a, t.scratch + a->at.douter, partial + n * n + g->table);
    }
}

/* Adds the slices, in order. */
static void lsla_add_slices(const lsla *a)
{
    const tp_lsla *g = &a->g;
    const int64_t n = g->n;
    real *scale = a->c->dx[LSLA_SCALE].data;
    for (int64_t h = 0; h < g->heads; h++)
        for (int64_t i = 0; i < g->slices; i++) {
            const real *from = lsla_partial(a, h, i);
            for (int64_t q = 0; scale && q < n; q++)
                for (int64_t k = 0; k < n; k++) scale[q * n + k] += from[k * n + q];
            from += n * n;
            for (int x = LSLA_INNER; x <= LSLA_OUTER; x++, from += g->table) {
                real *table = a->c->dx[x].data;
                for (int64_t j = 0; table && j < g->table; j++) table[j * g->heads + h] += from[j];
            }
        }
}

static tp_code lsla_attention_bwd(const tp_call *c)
{
    const lsla a = lsla_prepare(c);
    for (int i = LSLA_SCALE; i < LSLA_NX; i++)
        if (c->dx[i].data) memset(c->dx[i].data, 0, (size_t)c->dx[i].numel * sizeof(real));
    if (c->y[0].numel == 0) return TP_OK;
    tp__parallel(c->dev, a.g.heads * a.g.slices, 1, lsla_backward_tasks, &a);
    lsla_add_slices(&a);
    return TP_OK;
}

/* c->work: the scratch of each thread, then the partial sums of the slices of all heads. */
static size_t lsla_attention_work(const tp_call *c)
{
    const lsla a = lsla_prepare(c);
    return (size_t)(c->dev->threads * a.at.total + a.g.heads * a.g.slices * a.at.partial) *
           sizeof(real);
}

TP_CPU_WORK(lsla_attention_work)
TP_CPU_KERNEL(lsla_attention_fwd)
TP_CPU_KERNEL(lsla_attention_bwd)
