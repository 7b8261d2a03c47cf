/* attn_keys.h - the products of a tile of attention with keys and values, and how these are packed.
 *
 * Transposed keys, and in backward values, are packed for the tiles of queries that share them, in panels of gemm.c or
 * as rows of pairs (pairs.h). The other operand of keys or values, zipped, is packed with pairs only: the kernels of
 * gemm.c read it in place. Gradients of keys and values are summed in scratch before they are added to the tensors.
 * Nothing is packed at the baseline, where OpenBLAS multiplies, nor with positions, whose tiles share no keys. */
#ifndef TP_ATTN_KEYS_H
#define TP_ATTN_KEYS_H

#include "tensor/cpu/attention/attn_tile.h"
#include "tensor/cpu/attention/pairs.h"
#include "tensor/cpu/kit/product.h"
#include "tensor/cpu/kit/transpose.h"

#ifndef TP_BASELINE
void TP_KERNEL_FN(gemm_pack)(const tp_gemm_tile *t, real *to);
#endif

/* A tile of queries begins at a key that is a multiple of this many after the first packed one. */
static inline int64_t keys_step(const tp_attn *g, bool pairs)
{
    if (pairs) return 2;
    const bool panels = OWN_PRODUCT && !g->positions && g->dim <= TP_GEMM_DEPTH;
    return panels ? TP_GEMM_PANEL / (int64_t)sizeof(float) : 1;
}

/* Rows of D numbers in scratch: how far apart they are. */
static inline int64_t row_length(const attn *a)
{
    return a->pairs ? a->at.pad / 2 : a->at.pad;
}

static inline int64_t pairs_of(int64_t n)
{
    return (n + 1) / 2;
}

/* The place of m zipped rows [m / 2][pad] after the rows of pairs that they are made of. */
static inline real *zipped(const attn *a, real *rows, int64_t m)
{
    return rows + pairs_of(m) * a->at.pad;
}

/* Rounds the n packed rows of x to pairs, from `rows` on, and transposes them. */
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
    TP_KERNEL_FN(gemm_pack)
    (&(tp_gemm_tile){ .tb = true,
                      .n = t->count,
                      .k = a->g.dim,
                      .b = x + key_at(a, t, t->first),
                      .ldb = a->g.kv_width },
     to);
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

/* to[m][ld] = or += rows[m][D] x^T for the n rows of the tile in x, keys or values, packed in xt. */
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
                       0);
        return;
    }
    multiply(&(tp_gemm_tile){
        false, true, add, t->m, t->n, d, rows, x + key_at(a, t, t->j), to, a->at.pad, a->g.kv_width,
        ld, .panels = a->step > 1 ? xt + from * d : NULL, .work = t->scratch + a->at.gemm });
}

/* to[m][D] += s x for the n rows of the tile in x, s being the tile's scores. */
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
                       LS_ADD);
        return;
    }
    multiply(&(tp_gemm_tile){ false, false, true, t->m, d, t->n, t->s, x + key_at(a, t, t->j), to,
                              t->ld_s, a->g.kv_width, pad, .work = t->scratch + a->at.gemm });
}

/* to[key] += s^T x over the tile's queries, x [m][D]; to: of the packed keys. Pairs are zipped before, s where it
 * lies. The PAIR_ROWS columns of s after the last are zero, since they belong to the next keys. */
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
    pairs_multiply(&p, LS_ADD | LS_TRANSPOSED);
#endif
}

/* Adds the sums of the packed keys to the tensor; NULL: not wanted. */
static inline void flush_gradients(const attn *a, const tile *t, const real *from, real *to)
{
    if (!to) return;
    to += key_at(a, t, t->first);
    for (int64_t i = 0; i < t->count; i++)
        for (int64_t x = 0; x < a->g.dim; x++) to[i * a->g.kv_width + x] += from[i * a->at.pad + x];
}

#endif
