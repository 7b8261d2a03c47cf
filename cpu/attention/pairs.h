/* pairs.h - products of tiles of attention in bf16: operands in pairs, kernels in pair_products.c.
 *
 * A pair is two bf16 numbers with consecutive k in the room of a float: vdpbf16ps adds the products of two pairs to a
 * float, twice the rate of multiply-adds. A row of numbers that a sum runs along, rounded to bf16, is a row of pairs;
 * rows that a sum runs across are zipped two by two. A transposed operand is a transpose of rows of pairs, which
 * transpose.h moves as floats. Products are ls_products whose depth, lda and ldb count pairs; sums stay in f32.
 *
 * Only AVX-512 has the instruction, and only floats that were bf16 before are multiplied this way: `pairs_suit`. */
#ifndef TP_PAIRS_H
#define TP_PAIRS_H

#include "cpu/attention/ls_products.h"
#include "cpu/kit/real.h"
#include "tensor/kernel.h"

enum {
    PAIR_ROWS = 12,  /* a product may read and write up to PAIR_ROWS - 1 rows after the end */
    PAIR_LEAST = 16, /* least sum that pays                                                 */
};

#if defined(__AVX512BW__) && !defined(TP_BASELINE) && TP_REAL == 32

/* Do the products of the call, with sums over heads of `dim`, take pairs? */
static inline bool pairs_suit(const tp_call *c, int64_t dim)
{
    return c->real == TP_BF16 && dim >= PAIR_LEAST && __builtin_cpu_supports("avx512bf16");
}

/* k x[n], rounded to bf16: (n + 1) / 2 pairs, the last filled up with 0. `to` may be x. */
#define pairs_along TP_KERNEL_FN(pairs_along)
void pairs_along(const real *x, int64_t n, real k, real *to);

/* Pairs of the n numbers of two rows of bf16; y may be NULL: zeros. `to` may be x. */
#define pairs_zip TP_KERNEL_FN(pairs_zip)
void pairs_zip(const real *x, const real *y, int64_t n, real *to);

/* The product with `how` of LS_ADD and LS_TRANSPOSED: a is [depth][rows]. Columns up to a vector less one, and
 * PAIR_ROWS - 1 rows beyond the end of c are computed, too. */
#define pairs_multiply TP_KERNEL_FN(pairs_multiply)
void pairs_multiply(const ls_product *p, int how);

#else /* no call takes pairs, and none of these is ever reached */

static inline bool pairs_suit(const tp_call *c, int64_t dim)
{
    (void)c, (void)dim;
    return false;
}

static inline void pairs_along(const real *x, int64_t n, real k, real *to)
{
    (void)x, (void)n, (void)k, (void)to;
}

static inline void pairs_zip(const real *x, const real *y, int64_t n, real *to)
{
    (void)x, (void)y, (void)n, (void)to;
}

static inline void pairs_multiply(const ls_product *p, int how)
{
    (void)p, (void)how;
}

#endif

/* Zips n rows of bf16, ld pairs apart, two by two to rows of `cols` pairs, ldt apart. */
static inline void pairs_zip_rows(const real *rows, int64_t n, int64_t ld, int64_t cols, real *to,
                                  int64_t ldt)
{
    for (int64_t i = 0; i < n; i += 2, rows += 2 * ld, to += ldt)
        pairs_zip(rows, i + 1 < n ? rows + ld : NULL, cols, to);
}

#endif
