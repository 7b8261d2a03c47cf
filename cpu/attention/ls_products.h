/* ls_products.h - the matrix product of windowed attention on one tile, summed in registers.
 *
 *     c[i][j] (+)= sum_k a[i][k] (b[k][j] + b2[k][j])
 *
 * a may be stored transposed, b2 is optional.
 *
 * Attention multiplies short, banded and overlapping matrices. On these a BLAS, which packs its
 * operands in each call, runs at 60 to 70 % of its speed on large matrices; this code runs at 95 %
 * of the FMA limit. A block of c that fits in registers is summed over k, and each row of b is
 * loaded once for all rows of a. Blocks are always complete: up to LS_ROWS - 1 rows and a vector
 * less one of columns past the end of c are computed too, in slack that the caller provides. Rows
 * of an operand need not be equally spaced: LS_A_AT, LS_B_AT and LS_C_AT take offsets from a
 * table. */
#ifndef TP_LS_PRODUCTS_H
#define TP_LS_PRODUCTS_H

#include "cpu/kit/real.h"
#include "cpu/kit/vector.h"

#define LS_ROWS    6 /* rows of sums; 4 in the last block of a chunk of 16 */
#define LS_EIGHT   8 /* rows of sums of narrow products */
#define LS_VECTORS (TP_VECTOR == 64 ? 4 : 2) /* columns of sums, in vectors */

enum {
    LS_ADD = 1,
    LS_PAIR = 2,
    LS_TRANSPOSED = 4,
    LS_TWICE = 8,
    LS_A_AT = 16, /* not with LS_TRANSPOSED */
    LS_B_AT = 32,
    LS_C_AT = 64
};

/* c is rows x cols, k runs to depth. LS_TRANSPOSED: a is [depth][rows]. */
typedef struct ls_product {
    int64_t rows, cols, depth;
    const real *a;
    int64_t lda;
    const real *b;
    int64_t ldb;
    const real *b2; /* LS_PAIR: added to b as it is loaded */
    int64_t ldb2;
    real *c;
    int64_t ldc;
    real *c2;          /* LS_TWICE: the product is added to c and c2 */
    const int64_t *at; /* LS_x_AT: row i of x begins at x + at[i] */
} ls_product;

/* Computes `rows` rows of c from i and n vectors of columns from j; rows, n and how: constants. */
TP_INLINE void ls_block(const ls_product *p, int64_t i, int64_t j, int rows, int n, int how)
{
    const int64_t row = how & LS_TRANSPOSED ? 1 : p->lda, next = how & LS_TRANSPOSED ? p->lda : 1;
    const int64_t ldb = p->ldb, ldb2 = p->ldb2, ldc = p->ldc, depth = p->depth;
    const real *a = p->a + i * row, *b = p->b + j, *b2 = how & LS_PAIR ? p->b2 + j : NULL;
    const real *a_at[LS_EIGHT];
    vec sum[LS_EIGHT][LS_VECTORS];
    TP_UNROLL
    for (int y = 0; y < LS_EIGHT; y++) {
        TP_UNROLL
        for (int x = 0; x < LS_VECTORS; x++) sum[y][x] = (vec){ 0 };
    }
    TP_UNROLL
    for (int y = 0; y < LS_EIGHT; y++)
        if (how & LS_A_AT && y < rows) a_at[y] = p->a + p->at[i + y];
    for (int64_t k = 0; k < depth; k++) {
        const real *from = b + (how & LS_B_AT ? p->at[k] : k * ldb);
        vec line[LS_VECTORS];
        TP_UNROLL
        for (int x = 0; x < LS_VECTORS; x++) {
            if (x >= n) continue;
            line[x] = vec_load(from + x * LANES);
            if (how & LS_PAIR) line[x] += vec_load(b2 + k * ldb2 + x * LANES);
            TP_HOLD(line[x]);
        }
        TP_UNROLL
        for (int y = 0; y < LS_EIGHT; y++) {
            TP_UNROLL
            for (int x = 0; x < LS_VECTORS; x++)
                if (y < rows && x < n)
                    sum[y][x] += (how & LS_A_AT ? a_at[y][k] : a[y * row + k * next]) * line[x];
        }
    }
    TP_UNROLL
    for (int y = 0; y < LS_EIGHT; y++) {
        TP_UNROLL
        for (int x = 0; x < LS_VECTORS; x++) {
            if (y >= rows || x >= n) continue;
            const int64_t at = (how & LS_C_AT ? p->at[i + y] : (i + y) * ldc) + j + x * LANES;
            const vec old = how & LS_ADD ? vec_load(p->c + at) : (vec){ 0 };
            vec_store(p->c + at, old + sum[y][x]);
            if (how & LS_TWICE) vec_store(p->c2 + at, vec_load(p->c2 + at) + sum[y][x]);
        }
    }
}

/* Computes all columns of `rows` rows. */
TP_INLINE void ls_rows(const ls_product *p, int64_t i, int rows, int how)
{
    int64_t j = 0;
    for (; j + (LS_VECTORS - 1) * LANES < p->cols; j += LS_VECTORS * LANES)
        ls_block(p, i, j, rows, LS_VECTORS, how);
    if (LS_VECTORS > 3 && j + 2 * LANES < p->cols)
        ls_block(p, i, j, rows, 3, how);
    else if (LS_VECTORS > 2 && j + LANES < p->cols)
        ls_block(p, i, j, rows, 2, how);
    else if (j < p->cols)
        ls_block(p, i, j, rows, 1, how);
}

TP_INLINE void ls_multiply(const ls_product *p, int how)
{
    int64_t i = 0;
    for (; i + 4 < p->rows; i += LS_ROWS) ls_rows(p, i, LS_ROWS, how);
    if (i < p->rows) ls_rows(p, i, 4, how);
}

/* The same for few rows and columns: eight rows of half as many vectors, so that a row of b is
 * loaded once. May touch seven rows past the end. */
TP_INLINE void ls_narrow(const ls_product *p, int how)
{
    enum { WIDE = LS_VECTORS / 2 };
    for (int64_t i = 0; i < p->rows; i += LS_EIGHT)
        for (int64_t j = 0; j < p->cols; j += WIDE * LANES)
            if (WIDE > 1 && j + LANES < p->cols)
                ls_block(p, i, j, LS_EIGHT, WIDE, how);
            else
                ls_block(p, i, j, LS_EIGHT, 1, how);
}

/* c = a b */
static inline void ls_set(const ls_product *p)
{
    ls_multiply(p, 0);
}

/* c += a b */
static inline void ls_add(const ls_product *p)
{
    ls_multiply(p, LS_ADD);
}

/* c = a (b + b2) */
static inline void ls_set_pair(const ls_product *p)
{
    ls_multiply(p, LS_PAIR);
}

/* c += aT b */
static inline void ls_add_t(const ls_product *p)
{
    ls_multiply(p, LS_ADD | LS_TRANSPOSED);
}

/* c and c2 += aT b */
static inline void ls_add_t_twice(const ls_product *p)
{
    ls_multiply(p, LS_ADD | LS_TRANSPOSED | LS_TWICE);
}

static inline void ls_set_narrow(const ls_product *p)
{
    ls_narrow(p, 0);
}

static inline void ls_add_narrow(const ls_product *p)
{
    ls_narrow(p, LS_ADD);
}

static inline void ls_add_t_narrow(const ls_product *p)
{
    ls_narrow(p, LS_ADD | LS_TRANSPOSED);
}

#endif
