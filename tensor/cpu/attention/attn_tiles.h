/* attn_tiles.h - one tile of attention: logits, softmax, gradients.
 *
 *     logits    s = q k^T (+ q' pos^T by distance) + bias,  q = scale (query + r_w), q' with r_r
 *     forward   online softmax: a running maximum and sum per row; earlier results are rescaled
 *     backward  p = exp(s - lse), dp = dO v^T, ds = p (dp - rowsum(dO * O))
 *
 * The position logits of m queries and n keys have n + m - 1 distances. They are one dense product
 * T with the position rows in order of decreasing distance; key column c of row r is
 * T[r][m - 1 - r + c]. So T, read from its element m - 1 with a leading dimension one smaller, is
 * the tile of logits. The product with the keys is added in place, and no row is shifted. The price
 * is the corners of T, a share of m / (n + m), which belong to no key of the tile. */
#ifndef TP_ATTN_TILES_H
#define TP_ATTN_TILES_H

#include "tensor/cpu/attention/attn_keys.h"
#include "tensor/cpu/kit/sums.h"

static real slope_of(const attn *a, int64_t h)
{
    if (a->alibi) return (real)tp__alibi_slope((int)a->g.heads, (int)h);
    return a->slopes ? a->slopes[h] : 0;
}

/* Sets the m queries from i on, the slot-th tile of those of the task. */
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

/* Sets the keys to those packed ones that the queries see; false if there are none. */
static bool set_keys(const attn *a, tile *t)
{
    const int64_t first = tp__first_key(&a->g, t->i) - t->first;
    const int64_t end = tp__end_key(&a->g, t->i + t->m - 1) - t->first;
    const int64_t from = first > 0 ? first / a->step * a->step : 0;
    t->j = t->first + from;
    t->n = (end < t->count ? end : t->count) - from;
    return t->n > 0;
}

/* to[m][pad] = scale (queries + r), r [D] or NULL; with pairs the queries. */
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

/* Finishes the logits of row r with bias, slope and mask; keys that the row does not see get zero. */
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

/* The maximum of x and s[lo..hi). Separate lanes are used because compilers do not vectorise a
 * plain loop. */
static real max_of(const real *s, int64_t lo, int64_t hi, real x)
{
    enum { LANES = 32 };
    real top[LANES];
    int64_t c = lo;
    for (int l = 0; l < LANES; l++) top[l] = x;
    for (; c + LANES <= hi; c += LANES)
        for (int l = 0; l < LANES; l++) top[l] = s[c + l] > top[l] ? s[c + l] : top[l];
    for (; c < hi; c++) top[0] = s[c] > top[0] ? s[c] : top[0];
    for (int l = 1; l < LANES; l++) top[0] = top[l] > top[0] ? top[l] : top[0];
    return top[0];
}

/* Logits become exp(s - running maximum); sums and results of earlier tiles are rescaled to it. */
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

/* For columns lo <= c < hi: p = exp(s - lse), s becomes p (keep dp - delta) and dp becomes keep p;
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

/* The other buffer holds dp. s becomes ds, and dp becomes the probabilities after dropout. */
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
