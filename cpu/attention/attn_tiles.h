/* attn_tiles.h - attention on the CPU: how a call is split, a thread's scratch, work on a tile.
 *
 *     logits    s = q k^T (+ q' pos^T by distance) + bias,  q = scale (query + r_w), q' with r_r
 *     forward   online softmax: a running maximum and sum per row; earlier results are rescaled
 *     backward  p = exp(s - lse), dp = dO v^T, ds = p (dp - rowsum(dO * O))
 *
 * Tiles of 128 queries by 512 keys fit in a 512 KB L2 cache (in backward, two of them in 1 MB), and
 * are large enough for matrix products at nearly full rate. With relative positions they have 64
 * queries: more would waste more of the product with the positions. Scratch does not grow with the
 * number of queries or keys.
 *
 * Backward is split into equally long stripes of queries and of keys. They are placed so that the
 * causal diagonal runs through their corners: keys are shifted by `pad`, query i is at
 * i + S - N + pad, and S - N + pad is a multiple of the stripe. The pairs (query stripe I, key
 * stripe J) with I + J equal to c modulo `phases` form phase c. No two pairs of a phase share a
 * query or a key, so they run in parallel and write dq, dk and dv without partial sums. With
 * relative positions the phases do not wrap around. Then the values of I - J in a phase differ by
 * two or more, and no two pairs share a distance either. The split depends only on shapes, so
 * results do not depend on the number of threads. */
#ifndef TP_ATTN_TILES_H
#define TP_ATTN_TILES_H

#include "cpu/attention/pairs.h"
#include "cpu/kit/gemm.h"
#include "cpu/kit/philox_words.h"
#include "cpu/kit/product.h"
#include "cpu/kit/real.h"
#include "cpu/kit/sums.h"
#include "cpu/kit/take.h"
#include "cpu/kit/transpose.h"
#include "tensor/geometry/attn.h"
#include "tensor/kernel.h"

/* ---- the split, and the scratch of a thread ---- */

enum {
    TP_ATTN_QUERIES = 128,
    TP_ATTN_REL_QUERIES = 64,
    TP_ATTN_KEYS = 512,
    TP_ATTN_GROUP = 4,  /* most tiles of queries that share packed keys */
    TP_ATTN_SLACK = 16, /* rows and columns past the end that products may touch */
    TP_ATTN_STRIPE = 256,
    TP_ATTN_TASKS = 16
};

typedef struct tp_attn_cut {
    int64_t m, n;           /* queries and keys of a tile */
    int64_t group;          /* forward: tiles of queries per task */
    int64_t stripe, pad;    /* backward: rows of a stripe; shift of the keys */
    int64_t nq, nk, phases; /* backward: stripes of queries and keys; forward: 0 */
} tp_attn_cut;

/* Chooses stripes that give a phase about TP_ATTN_TASKS pairs, with at least TP_ATTN_STRIPE keys
 * each. */
static inline tp_attn_cut tp__attn_cut(const tp_attn *a, bool backward)
{
    const int64_t groups = a->heads / a->group * (a->shared ? 1 : a->batch);
    const int64_t most = a->queries > a->keys ? a->queries : a->keys;
    const int64_t parts = groups > 0 && groups < TP_ATTN_TASKS ? TP_ATTN_TASKS / groups : 1;
    const int64_t part = TP_ATTN_STRIPE * parts;
    const int64_t rows = a->positions ? TP_ATTN_REL_QUERIES : TP_ATTN_QUERIES;
    tp_attn_cut c = { .m = a->queries < rows ? a->queries : rows,
                      .n = a->keys < TP_ATTN_KEYS ? a->keys : TP_ATTN_KEYS };
    const int64_t tiles = c.m > 0 ? (a->queries + c.m - 1) / c.m : 1;
    const int64_t share = groups * a->group * tiles / TP_ATTN_TASKS; /* leaves enough tasks */
    c.group = a->positions || share < 1 ? 1 : share < TP_ATTN_GROUP ? share : TP_ATTN_GROUP;
    if (!backward) return c;
    c.group = 1;
    c.stripe = TP_ATTN_STRIPE * (most > 0 ? (most + part - 1) / part : 1);
    c.pad = (c.stripe - a->ahead % c.stripe) % c.stripe;
    c.nq = (a->queries + c.stripe - 1) / c.stripe;
    c.nk = (a->keys + c.pad + c.stripe - 1) / c.stripe;
    c.phases = a->positions ? c.nq + c.nk - 1 : c.nq > c.nk ? c.nq : c.nk;
    return c;
}

/* Offsets of the parts of a thread's scratch, in elements. m, n: queries and keys of a tile. */
typedef struct tp_attn_scratch {
    int64_t ld;           /* row length of scores: an odd multiple of 16 spreads cache sets */
    int64_t pad, rows;    /* row length of tiles [rows][pad]; [m][D] of them are used */
    int64_t scores;       /* [rows][ld]: logits, probabilities; backward: their gradients */
    int64_t other;        /* [rows][ld]: backward: gradients of the probabilities */
    int64_t q, q_pos;     /* [rows][pad]: scaled queries; with positions, with r_w and r_r */
    int64_t out, out_pos; /* [rows][pad]: result; backward: query gradient from keys, positions */
    int64_t dout;         /* [rows][pad]: backward: gradient of the result */
    int64_t row;          /* [2][m]: running maximum and sum; backward: lse, rowsum(dO * O) */
    int64_t keep;         /* [n]: dropout factors of a row */
    int64_t gemm;         /* packed operands of a product */
    int64_t kt, vt;       /* packed keys; backward: values */
    int64_t x;            /* pairs only: zipped values, backward: keys */
    int64_t dk, dv;       /* [n + slack][pad]: backward: gradients of the packed keys */
    int64_t pos, dpos;    /* [n + m][D]: positions by decreasing distance, their gradients */
    int64_t total;
} tp_attn_scratch;

static inline int64_t tp__attn_side(int64_t m, int64_t n, int64_t d)
{
    const int64_t most = m > n ? m : n;
    return most > d ? most : d;
}

static inline tp_attn_scratch tp__attn_scratch(const tp_attn *a, const tp_attn_cut *c,
                                               bool backward)
{
    const int64_t m = c->m, n = c->n, d = a->dim, pad = (d + 15) / 16 * 16;
    tp_attn_scratch w = { .ld = (n + (a->positions ? m : 0) + TP_ATTN_SLACK + 15) / 16 * 16 };
    if (w.ld / 16 % 2 == 0) w.ld += 16;
    w.pad = pad;
    w.rows = m + TP_ATTN_SLACK;
    const int64_t rows = c->group * w.rows * pad;
    const int64_t panels = tp__gemm_panels(TP_F32, d, n) + w.ld + TP_ATTN_SLACK;
    w.scores = tp__take(&w.total, w.rows * w.ld + TP_ATTN_SLACK);
    w.q = tp__take(&w.total, rows);
    w.out = tp__take(&w.total, rows);
    w.row = tp__take(&w.total, c->group * 2 * m);
    w.keep = tp__take(&w.total, n);
    w.gemm = tp__take(&w.total,
                      (int64_t)(tp__gemm_scratch(TP_F32, tp__attn_side(m, n, d)) / sizeof(float)));
    w.kt = tp__take(&w.total, panels);
    w.x = tp__take(&w.total, (n + TP_ATTN_SLACK) * pad);
    if (a->positions) {
        w.q_pos = tp__take(&w.total, rows);
        w.pos = tp__take(&w.total, (n + m) * d);
    }
    if (backward) {
        w.other = tp__take(&w.total, w.rows * w.ld + TP_ATTN_SLACK);
        w.dout = tp__take(&w.total, rows);
        w.vt = tp__take(&w.total, panels);
        w.dk = tp__take(&w.total, (n + TP_ATTN_SLACK) * pad);
        w.dv = tp__take(&w.total, (n + TP_ATTN_SLACK) * pad);
    }
    if (backward && a->positions) {
        w.out_pos = tp__take(&w.total, rows);
        w.dpos = tp__take(&w.total, (n + m) * d);
    }
    return w;
}

/* ---- a call, and a tile of it ---- */

typedef struct attn {
    tp_attn g;
    tp_attn_cut cut;
    tp_attn_scratch at;
    tp_rng rng;
    uint32_t drop_below; /* 0: no dropout */
    int pairs;           /* products in bf16: pairs.h */
    int64_t step;        /* tiles begin at multiples of it in packed keys; 1: not packed */
    /* Of queries and their gradients; with pairs, of logits and theirs: keeps bf16 exact. */
    real scale;
    real keep_scale;
    const real *q, *k, *v, *bias, *pos, *r_w, *r_r, *dout;
    const real *slopes; /* ALiBi's [H], or NULL */
    bool alibi;         /* the standard ones */
    const uint8_t *mask;
    int64_t bias_batch; /* elements of bias per batch row; 0: one for all */
    real *out, *lse;    /* written by forward, read by backward */
    real *dq, *dk, *dv, *dbias, *dpos;
    real *dr;        /* [H][nq][2][D]: parts of the gradients of r_w and r_r */
    double *dslopes; /* [B][H][nk]: parts of the gradient of the slopes */
    real *work;
    int64_t phase;
    /* Dropout takes element [B,H,drop_queries,drop_keys], row drop_first + b of B: those of the
     * padded documents if this is one of several. */
    int64_t drop_first, drop_queries, drop_keys;
} attn;

/* m queries from i and n keys from j of one head, with the thread's scratch. The keys are some of
 * the `count` packed ones from `first` on. */
typedef struct tile {
    int64_t b, h, i, m, j, n, first, count;
    real slope;     /* ALiBi's, of the head */
    double dslope;  /* its gradient */
    tp_words words; /* random words of dropout */
    real *scratch;
    real *q, *out, *row; /* of these queries, see tp_attn_scratch */
    real *s;             /* logits, then probabilities; backward: gradients of the logits */
    int64_t ld_s, ld;
} tile;

/* Offset of row r of the tile in q and in the result. */
static inline int64_t query_at(const attn *a, const tile *t, int64_t r)
{
    return (t->b * a->g.queries + t->i + r) * a->g.width + t->h * a->g.dim;
}

/* Offset of key j in k and v. */
static inline int64_t key_at(const attn *a, const tile *t, int64_t j)
{
    return (t->b * a->g.room + j) * a->g.kv_width + t->h / a->g.group * a->g.dim;
}

/* ---- products with keys and values ----
 *
 * Transposed keys, and in backward values, are packed once for all tiles of queries that share
 * them: a group of tiles in forward, a stripe in backward. They are packed in panels of gemm.c or
 * as rows of pairs (pairs.h). The zipped other operand, keys or values, is packed with pairs only:
 * the kernels of gemm.c read it in place. Gradients of keys and values are summed in scratch before
 * they are added to the tensors. Nothing is packed at the baseline, where OpenBLAS multiplies, nor
 * with positions, whose tiles share no keys. */

#ifndef TP_BASELINE
void TP_KERNEL_FN(gemm_pack)(const tp_gemm_tile *t, real *to);
#endif

/* Tiles of queries begin at a multiple of this many keys after the first packed one. */
static inline int64_t keys_step(const tp_attn *g, bool pairs)
{
    if (pairs) return 2;
    const bool panels = OWN_PRODUCT && !g->positions && g->dim <= TP_GEMM_DEPTH;
    return panels ? TP_GEMM_PANEL / (int64_t)sizeof(float) : 1;
}

/* Row length of rows of D numbers in scratch. */
static inline int64_t row_length(const attn *a)
{
    return a->pairs ? a->at.pad / 2 : a->at.pad;
}

static inline int64_t pairs_of(int64_t n)
{
    return (n + 1) / 2;
}

/* Where m zipped rows [m / 2][pad] lie, after the rows of pairs they are made of. */
static inline real *zipped(const attn *a, real *rows, int64_t m)
{
    return rows + pairs_of(m) * a->at.pad;
}

/* Rounds the n packed rows of x to pairs in `rows`, and transposes them. */
static void pack_pairs(const attn *a, const tile *t, const real *x, real *rows, real *to)
{
    const real *from = x + key_at(a, t, t->first);
    for (int64_t i = 0; i < t->count; i++)
        pairs_along(from + i * a->g.kv_width, a->g.dim, 1, rows + i * row_length(a));
    if (to) transpose(rows, row_length(a), t->count, pairs_of(a->g.dim), to, a->at.ld);
}

/* Packs the transpose of the packed rows of x into panels. */
static inline void pack_panels(const attn *a, const tile *t, const real *x, real *to)
{
#ifdef TP_BASELINE
    (void)a, (void)t, (void)x, (void)to;
#else
    const tp_gemm_tile rows = { .tb = true,
                                .n = t->count,
                                .k = a->g.dim,
                                .b = x + key_at(a, t, t->first),
                                .ldb = a->g.kv_width };
    TP_KERNEL_FN(gemm_pack)(&rows, to);
#endif
}

/* Packs `count` keys from `first` on. */
static void pack_keys(const attn *a, const tile *t, bool backward)
{
    real *kt = t->scratch + a->at.kt, *vt = t->scratch + a->at.vt, *x = t->scratch + a->at.x;
    if (a->pairs) {
        real *rows = zipped(a, x, t->count);
        if (backward) pack_pairs(a, t, a->v, rows, vt);
        pack_pairs(a, t, a->k, rows, kt);
        if (!backward) pack_pairs(a, t, a->v, rows, NULL);
        pairs_zip_rows(rows, t->count, row_length(a), a->g.dim, x, a->at.pad);
    } else if (a->step > 1) {
        pack_panels(a, t, a->k, kt);
        if (backward) pack_panels(a, t, a->v, vt);
    }
}

/* to[m][ld] = or += rows[m][D] x^T for the tile's n rows of x, keys or values, packed in xt. */
static inline void times_keys(const attn *a, const tile *t, const real *rows, const real *x,
                              const real *xt, bool add, real *to, int64_t ld)
{
    const int64_t d = a->g.dim, from = t->j - t->first;
    if (a->pairs) {
        pairs_multiply(&(ls_product){ .rows = t->m,
                                      .cols = t->n,
                                      .depth = pairs_of(d),
                                      .a = rows,
                                      .lda = row_length(a),
                                      .b = xt + from,
                                      .ldb = a->at.ld,
                                      .c = to,
                                      .ldc = ld },
                       a->pairs);
        return;
    }
    multiply(&(tp_gemm_tile){
        false, true, add, t->m, t->n, d, rows, x + key_at(a, t, t->j), to, a->at.pad, a->g.kv_width,
        ld, .panels = a->step > 1 ? xt + from * d : NULL, .work = t->scratch + a->at.gemm });
}

/* to[m][D] += s x for the tile's n rows of x; s: the tile's scores. */
static inline void add_values(const attn *a, const tile *t, const real *x, real *to)
{
    const int64_t d = a->g.dim, pad = a->at.pad;
    if (a->pairs) {
        pairs_multiply(&(ls_product){ .rows = t->m,
                                      .cols = pad,
                                      .depth = pairs_of(t->n),
                                      .a = t->s,
                                      .lda = t->ld_s,
                                      .b = t->scratch + a->at.x + (t->j - t->first) / 2 * pad,
                                      .ldb = pad,
                                      .c = to,
                                      .ldc = pad },
                       LS_ADD | a->pairs);
        return;
    }
    multiply(&(tp_gemm_tile){ false, false, true, t->m, d, t->n, t->s, x + key_at(a, t, t->j), to,
                              t->ld_s, a->g.kv_width, pad, .work = t->scratch + a->at.gemm });
}

/* to[key] += s^T x over the tile's queries, x [m][D]; to: of the packed keys. Pairs are zipped
 * first, s in place. The PAIR_ROWS columns after the end of s are zero, since they belong to the
 * next keys. */
static inline void add_gradients(const attn *a, const tile *t, real *s, int64_t ld, real *x,
                                 real *to)
{
    const int64_t pad = a->at.pad;
    to += (t->j - t->first) * pad;
#ifdef TP_BASELINE
    tp__gemm(REAL, true, false, t->n, a->g.dim, t->m, 1.0, s, ld, x, pad, 1.0, to, pad);
#else
    ls_product p = { .rows = t->n,
                     .cols = pad,
                     .depth = t->m,
                     .a = s,
                     .lda = ld,
                     .b = x,
                     .ldb = pad,
                     .c = to,
                     .ldc = pad };
    if (!a->pairs) {
        ls_add_t(&p);
        return;
    }
    pairs_zip_rows(x, t->m, row_length(a), a->g.dim, zipped(a, x, t->m), pad);
    pairs_zip_rows(s, t->m, ld, t->n + PAIR_ROWS, s, 2 * ld);
    p.depth = pairs_of(t->m);
    p.lda = 2 * ld;
    p.b = zipped(a, x, t->m);
    pairs_multiply(&p, LS_ADD | LS_TRANSPOSED | a->pairs);
#endif
}

/* Adds the packed keys' sums to the tensor, unless it is NULL. */
static inline void flush_gradients(const attn *a, const tile *t, const real *from, real *to)
{
    if (!to) return;
    to += key_at(a, t, t->first);
    for (int64_t i = 0; i < t->count; i++)
        for (int64_t x = 0; x < a->g.dim; x++) to[i * a->g.kv_width + x] += from[i * a->at.pad + x];
}

/* ---- queries, positions and logits ----
 *
 * The position logits of m queries and n keys have n + m - 1 distances. They are one dense product
 * T with the position rows in order of decreasing distance; key column c of row r is
 * T[r][m - 1 - r + c]. So T, read from its element m - 1 with a leading dimension one smaller, is
 * the tile of logits. The product with the keys is added in place, and no row is shifted. The cost
 * is the corners of T, a share of m / (n + m), which match no key of the tile. */

static real slope_of(const attn *a, int64_t h)
{
    if (a->alibi) return (real)tp__alibi_slope((int)a->g.heads, (int)h);
    return a->slopes ? a->slopes[h] : 0;
}

/* Sets the m queries from i on, tile number `slot` of the task. */
static void set_queries(const attn *a, tile *t, int64_t i, int64_t m, int64_t slot)
{
    const int64_t skew = a->g.positions ? 1 : 0, rows = slot * a->at.rows * a->at.pad;
    t->i = i;
    t->m = m;
    t->q = t->scratch + a->at.q + rows;
    t->out = t->scratch + a->at.out + rows;
    t->row = t->scratch + a->at.row + slot * 2 * a->cut.m;
    t->ld = a->at.ld;
    t->ld_s = t->ld - skew;
    t->s = t->scratch + a->at.scores + skew * (m - 1);
}

/* Sets the packed keys that the queries see; false if there are none. */
static bool set_keys(const attn *a, tile *t)
{
    const int64_t first = tp__first_key(&a->g, t->i) - t->first;
    const int64_t end = tp__end_key(&a->g, t->i + t->m - 1) - t->first;
    const int64_t from = first > 0 ? first / a->step * a->step : 0;
    t->j = t->first + from;
    t->n = (end < t->count ? end : t->count) - from;
    return t->n > 0;
}

/* to[m][pad] = scale (queries + r), r [D] or NULL; scale 1 with pairs. */
static void load_queries(const attn *a, const tile *t, const real *r, real *to)
{
    const int64_t d = a->g.dim;
    for (int64_t i = 0; i < t->m; i++, to += row_length(a)) {
        const real *q = a->q + query_at(a, t, i);
        if (a->pairs)
            pairs_along(q, d, 1, to);
        else
            for (int64_t x = 0; x < d; x++) to[x] = a->scale * (q[x] + (r ? r[x] : 0));
    }
}

static void begin_queries(const attn *a, const tile *t)
{
    const int64_t head = t->h * a->g.dim;
    load_queries(a, t, a->r_w ? a->r_w + head : NULL, t->q);
    if (a->g.positions) load_queries(a, t, a->r_r + head, t->scratch + a->at.q_pos);
}

/* The largest distance of the tile, between its last query and its first key. */
static inline int64_t top_distance(const attn *a, const tile *t)
{
    return t->i + t->m - 1 + a->g.ahead - t->j;
}

/* Position rows of the tile, largest distance first; rows of keys ahead of a query are zero. */
static void load_positions(const attn *a, const tile *t, real *to)
{
    const int64_t d = a->g.dim, top = top_distance(a, t);
    for (int64_t x = 0; x < t->n + t->m - 1; x++)
        if (x <= top)
            memcpy(to + x * d, a->pos + (top - x) * a->g.width + t->h * d,
                   (size_t)d * sizeof(real));
        else
            memset(to + x * d, 0, (size_t)d * sizeof(real));
}

static void logits(const attn *a, const tile *t)
{
    const tp_attn *g = &a->g;
    if (g->positions) {
        real *pos = t->scratch + a->at.pos;
        load_positions(a, t, pos);
        tp__gemm(REAL, false, true, t->m, t->n + t->m - 1, g->dim, 1.0, t->scratch + a->at.q_pos,
                 a->at.pad, pos, g->dim, 0.0, t->scratch + a->at.scores, t->ld);
    }
    times_keys(a, t, t->q, a->k, t->scratch + a->at.kt, g->positions, t->s, t->ld_s);
}

/* The columns lo <= c < hi of the tile that query row r sees. */
static inline void seen(const attn *a, const tile *t, int64_t r, int64_t *lo, int64_t *hi)
{
    const int64_t first = tp__first_key(&a->g, t->i + r) - t->j;
    const int64_t end = tp__end_key(&a->g, t->i + r) - t->j;
    *hi = end < 0 ? 0 : end < t->n ? end : t->n;
    *lo = first < 0 ? 0 : first < *hi ? first : *hi;
}

/* Offset of row r of the tile in the bias. */
static inline int64_t bias_at(const attn *a, const tile *t, int64_t r)
{
    return t->b * a->bias_batch + (t->h * a->g.queries + t->i + r) * a->g.keys + t->j;
}

/* The distance of query row r from the first key of the tile, negative for keys ahead. */
static inline real distance_at(const attn *a, const tile *t, int64_t r)
{
    return (real)(t->i + r + a->g.ahead - t->j);
}

/* Finishes the logits of row r with bias, slope and mask; keys the row does not see get zero. */
static void finish_row(const attn *a, const tile *t, int64_t r, int64_t lo, int64_t hi)
{
    const tp_attn *g = &a->g;
    real *s = t->s + r * t->ld_s;
    for (int64_t c = 0; c < lo; c++) s[c] = 0;
    for (int64_t c = hi; c < t->n; c++) s[c] = 0;
    for (int64_t c = lo; a->pairs && c < hi; c++) s[c] *= a->scale;
    if (a->bias) {
        const real *bias = a->bias + bias_at(a, t, r);
        for (int64_t c = lo; c < hi; c++) s[c] += bias[c];
    }
    if (t->slope != 0) {
        const real from = distance_at(a, t, r), slope = t->slope;
        for (int64_t c = lo; c < hi; c++) s[c] -= slope * r_abs(from - (real)(int32_t)c);
    }
    if (a->mask) {
        const uint8_t *mask = a->mask + t->b * g->keys + t->j;
        for (int64_t c = lo; c < hi; c++) s[c] = mask[c] ? s[c] : -(real)INFINITY;
    }
}

/* Dropout factors 0 or 1/(1-p) of the first n columns of row r; NULL without dropout. */
static const real *keep_row(const attn *a, tile *t, int64_t r, int64_t n)
{
    const tp_attn *g = &a->g;
    const int64_t row = (a->drop_first + t->b) * g->heads + t->h;
    const int64_t query = row * a->drop_queries + t->i + r;
    const uint32_t below = a->drop_below;
    const real scale = a->keep_scale;
    real *keep = t->scratch + a->at.keep;
    if (below == 0) return NULL;
    for (int64_t c = 0, step; c < n; c += step) {
        step = n - c;
        const uint32_t *w = tp__words_at(&t->words, query * a->drop_keys + t->j + c, &step);
        for (int64_t x = 0; x < step; x++) keep[c + x] = w[x] < below ? 0 : scale;
    }
    return keep;
}

/* The maximum of x and s[lo..hi). Separate lanes: compilers do not vectorise a plain loop. */
static real max_of(const real *s, int64_t lo, int64_t hi, real x)
{
    enum { AT_ONCE = 32 };
    real top[AT_ONCE];
    int64_t c = lo;
    for (int l = 0; l < AT_ONCE; l++) top[l] = x;
    for (; c + AT_ONCE <= hi; c += AT_ONCE)
        for (int l = 0; l < AT_ONCE; l++) top[l] = s[c + l] > top[l] ? s[c + l] : top[l];
    for (; c < hi; c++) top[0] = s[c] > top[0] ? s[c] : top[0];
    for (int l = 1; l < AT_ONCE; l++) top[0] = top[l] > top[0] ? top[l] : top[0];
    return top[0];
}

/* Replaces logits by exp(s - running maximum); rescales sums and results of earlier tiles. */
static void softmax_rows(const attn *a, tile *t)
{
    const int64_t d = a->g.dim;
    real *tops = t->row, *sums = tops + a->cut.m;
    for (int64_t r = 0; r < t->m; r++) {
        real *s = t->s + r * t->ld_s;
        int64_t lo, hi;
        seen(a, t, r, &lo, &hi);
        finish_row(a, t, r, lo, hi);
        const real top = max_of(s, lo, hi, tops[r]);
        const real base = top > -(real)INFINITY ? top : 0; /* no key seen yet: all terms are 0 */
        if (top > tops[r]) {
            const real fade = r_exp_low(tops[r] - top);
            real *out = t->out + r * a->at.pad;
            for (int64_t x = 0; x < d; x++) out[x] *= fade;
            sums[r] *= fade;
            tops[r] = top;
        }
        for (int64_t c = lo; c < hi; c++) s[c] = r_exp_low(s[c] - base);
        sums[r] += sum_of(s + lo, hi - lo);
        const real *keep = keep_row(a, t, r, hi);
        if (keep)
            for (int64_t c = lo; c < hi; c++) s[c] *= keep[c];
        if (a->pairs) pairs_along(s, t->n, 1, s);
    }
}

/* For columns lo <= c < hi: p = exp(s - lse), s becomes p (keep dp - delta) and dp becomes keep p.
 * keep is NULL without dropout. */
static inline void gradient_row(int64_t lo, int64_t hi, real lse, real delta,
                                const real *restrict keep, real *restrict s, real *restrict dp)
{
    if (!keep)
        for (int64_t c = lo; c < hi; c++) {
            const real p = r_exp_low(s[c] - lse);
            s[c] = p * (dp[c] - delta);
            dp[c] = p;
        }
    else
        for (int64_t c = lo; c < hi; c++) {
            const real p = r_exp_low(s[c] - lse);
            s[c] = p * (keep[c] * dp[c] - delta);
            dp[c] = keep[c] * p;
        }
}

/* Turns s into ds, and dp in the other buffer into the probabilities after dropout. */
static void gradient_rows(const attn *a, tile *t)
{
    const tp_attn *g = &a->g;
    const int64_t row = (t->b * g->heads + t->h) * g->queries + t->i;
    const real *delta = t->row;
    for (int64_t r = 0; r < t->m; r++) {
        real *s = t->s + r * t->ld_s, *dp = t->scratch + a->at.other + r * t->ld;
        int64_t lo, hi;
        seen(a, t, r, &lo, &hi);
        finish_row(a, t, r, lo, hi);
        for (int64_t c = 0; c < lo; c++) dp[c] = 0;
        for (int64_t c = hi; c < t->n + PAIR_ROWS; c++) dp[c] = 0; /* gradients of other keys */
        for (int64_t c = t->n; c < t->n + PAIR_ROWS; c++) s[c] = 0;
        gradient_row(lo, hi, a->lse[row + r], delta[r], keep_row(a, t, r, hi), s, dp);
        if (a->dbias) {
            real *dbias = a->dbias + bias_at(a, t, r);
            for (int64_t c = lo; c < hi; c++) dbias[c] += s[c];
        }
        if (a->dslopes) {
            const real from = distance_at(a, t, r);
            real sum = 0;
#pragma omp simd reduction(+ : sum)
            for (int64_t c = lo; c < hi; c++) sum += s[c] * r_abs(from - (real)(int32_t)c);
            t->dslope -= (double)sum;
        }
        if (!a->pairs) continue;
        pairs_along(s, t->n + PAIR_ROWS, a->scale, s);
        pairs_along(dp, t->n + PAIR_ROWS, 1, dp);
    }
}

#endif
