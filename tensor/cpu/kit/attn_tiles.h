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

#include "tensor/cpu/kit/attn_scratch.h"
#include "tensor/cpu/kit/philox_words.h"
#include "tensor/cpu/kit/product.h"
#include "tensor/cpu/kit/real.h"
#include "tensor/cpu/kit/sums.h"
#include "tensor/kernel.h"

/* Types that depend on `real`; undefined again at the end of tensor/cpu/attention.c. */
#define attn attn
#define tile tile

typedef struct attn {
    tp_attn g;
    tp_attn_cut cut;
    tp_attn_scratch at;
    tp_rng rng;
    uint32_t drop_below; /* 0: no dropout */
    real scale, keep_scale;
    const real *q, *k, *v, *bias, *pos, *r_w, *r_r, *dout;
    const real *slopes; /* ALiBi's [H], or NULL */
    bool alibi;         /* the standard ones    */
    const uint8_t *mask;
    int64_t bias_batch; /* elements of bias for each batch row; 0: one bias for all */
    real *out, *lse;    /* written by forward, read by backward         */
    real *dq, *dk, *dv, *dbias, *dpos;
    real *dr;        /* [H][nq][2][D]: parts of the gradients of r_w and r_r */
    double *dslopes; /* [B][H][nk]: parts of the gradient of the slopes      */
    real *work;
    int64_t phase;
    /* Dropout takes element [B,H,drop_queries,drop_keys], row drop_first + b of B: those of the padded
     * documents if this is one of several. */
    int64_t drop_first, drop_queries, drop_keys;
} attn;

/* m queries from i and n keys from j of one head, with the scratch of the thread. */
typedef struct tile {
    int64_t b, h, i, m, j, n;
    real slope;     /* ALiBi's, of the head    */
    double dslope;  /* its gradient            */
    tp_words words; /* random words of dropout */
    real *scratch;
    real *s; /* logits, then probabilities; in backward, gradients of the logits */
    int64_t ld_s, ld;
} tile;

/* Offset of row r of the tile in q and in the result. */
static inline int64_t query_at(const attn *a, const tile *t, int64_t r)
{
    return (t->b * a->g.queries + t->i + r) * a->g.width + t->h * a->g.dim;
}

/* Offset of the tile's first key in k and v. */
static inline int64_t key_at(const attn *a, const tile *t)
{
    return (t->b * a->g.room + t->j) * a->g.kv_width + t->h / a->g.group * a->g.dim;
}

static real slope_of(const attn *a, int64_t h)
{
    if (a->alibi) return (real)tp__alibi_slope((int)a->g.heads, (int)h);
    return a->slopes ? a->slopes[h] : 0;
}

/* Sets the n keys from j and the address of their logits. */
static void set_keys(const attn *a, tile *t, int64_t j, int64_t n)
{
    const int64_t skew = a->g.positions ? 1 : 0;
    t->j = j;
    t->n = n;
    t->ld = a->at.ld;
    t->ld_s = t->ld - skew;
    t->s = t->scratch + a->at.scores + skew * (t->m - 1);
}

/* to[m][D] = scale (queries + r), r [D] or NULL */
static void load_queries(const attn *a, const tile *t, const real *r, real *to)
{
    const int64_t d = a->g.dim;
    for (int64_t i = 0; i < t->m; i++) {
        const real *q = a->q + query_at(a, t, i);
        for (int64_t x = 0; x < d; x++) to[i * d + x] = a->scale * (q[x] + (r ? r[x] : 0));
    }
}

static void begin_queries(const attn *a, const tile *t)
{
    const int64_t head = t->h * a->g.dim;
    load_queries(a, t, a->r_w ? a->r_w + head : NULL, t->scratch + a->at.q);
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

/* to[m][ld] = or += rows[m][D] x^T for the n rows of the tile in x, keys or values. */
static inline void times_keys(const attn *a, const tile *t, const real *rows, const real *x,
                              bool add, real *to, int64_t ld)
{
    const int64_t d = a->g.dim;
    multiply(&(tp_gemm_tile){ false, true, add, t->m, t->n, d, rows, x + key_at(a, t), to, d,
                              a->g.kv_width, ld, .work = t->scratch + a->at.gemm });
}

/* to[m][D] += s x for the n rows of the tile in x, s being the tile's scores. */
static inline void add_values(const attn *a, const tile *t, const real *x, real *to)
{
    const int64_t d = a->g.dim;
    multiply(&(tp_gemm_tile){ false, false, true, t->m, d, t->n, t->s, x + key_at(a, t), to,
                              t->ld_s, a->g.kv_width, d, .work = t->scratch + a->at.gemm });
}

static void logits(const attn *a, const tile *t)
{
    const tp_attn *g = &a->g;
    if (g->positions) {
        real *pos = t->scratch + a->at.pos;
        load_positions(a, t, pos);
        tp__gemm(REAL, false, true, t->m, t->n + t->m - 1, g->dim, 1.0, t->scratch + a->at.q_pos,
                 g->dim, pos, g->dim, 0.0, t->scratch + a->at.scores, t->ld);
    }
    times_keys(a, t, t->scratch + a->at.q, a->k, g->positions, t->s, t->ld_s);
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
    real *tops = t->scratch + a->at.row, *sums = tops + t->m, *out = t->scratch + a->at.out;
    for (int64_t r = 0; r < t->m; r++) {
        real *s = t->s + r * t->ld_s;
        int64_t lo, hi;
        seen(a, t, r, &lo, &hi);
        finish_row(a, t, r, lo, hi);
        const real top = max_of(s, lo, hi, tops[r]);
        const real base = top > -(real)INFINITY ? top : 0; /* no key seen yet: all terms are 0 */
        if (top > tops[r]) {
            const real fade = r_exp(tops[r] - top);
            for (int64_t x = 0; x < d; x++) out[r * d + x] *= fade;
            sums[r] *= fade;
            tops[r] = top;
        }
        for (int64_t c = lo; c < hi; c++) s[c] = r_exp(s[c] - base);
        sums[r] += sum_of(s + lo, hi - lo);
        const real *keep = keep_row(a, t, r, hi);
        if (keep)
            for (int64_t c = lo; c < hi; c++) s[c] *= keep[c];
    }
}

/* For columns lo <= c < hi: p = exp(s - lse), s becomes p (keep dp - delta) and dp becomes keep p;
 * keep is NULL without dropout. */
static inline void gradient_row(int64_t lo, int64_t hi, real lse, real delta,
                                const real *restrict keep, real *restrict s, real *restrict dp)
{
    if (!keep)
        for (int64_t c = lo; c < hi; c++) {
            const real p = r_exp(s[c] - lse);
            s[c] = p * (dp[c] - delta);
            dp[c] = p;
        }
    else
        for (int64_t c = lo; c < hi; c++) {
            const real p = r_exp(s[c] - lse);
            s[c] = p * (keep[c] * dp[c] - delta);
            dp[c] = keep[c] * p;
        }
}

/* The other buffer holds dp. s becomes ds, and dp becomes the probabilities after dropout. */
static void gradient_rows(const attn *a, tile *t)
{
    const tp_attn *g = &a->g;
    const int64_t row = (t->b * g->heads + t->h) * g->queries + t->i;
    const real *delta = t->scratch + a->at.row;
    for (int64_t r = 0; r < t->m; r++) {
        real *s = t->s + r * t->ld_s, *dp = t->scratch + a->at.other + r * t->ld;
        int64_t lo, hi;
        seen(a, t, r, &lo, &hi);
        finish_row(a, t, r, lo, hi);
        for (int64_t c = 0; c < lo; c++) dp[c] = 0;
        for (int64_t c = hi; c < t->n; c++) dp[c] = 0;
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
    }
}

#endif
