/* pairs.h - products of attention tiles in bf16: operands in pairs, kernels in pair_products.c.
 *
 * A pair is two bf16 numbers with consecutive k in the space of a float: vdpbf16ps adds the
 * products of two pairs to a float, at twice the rate of multiply-adds. A row that a sum runs
 * along, rounded to bf16, is a row of pairs; rows that a sum runs across are zipped in twos. A
 * transposed operand is the transpose of rows of pairs, which transpose.h moves as floats. Products
 * are ls_products whose depth, lda and ldb count pairs; sums stay in f32.
 *
 * Only AVX-512 has the instruction, and it is only used for floats that were bf16: `pairs_suit`. */
#ifndef TP_PAIRS_H
#define TP_PAIRS_H

#include "cpu/attention/ls_products.h"
#include "cpu/kit/real.h"
#include "tensor/kernel.h"

enum {
    PAIR_ROWS = 12,  /* products may touch up to PAIR_ROWS - 1 rows past the end */
    PAIR_LEAST = 16, /* least sum that pays */
};

#if defined(__AVX512BW__) && !defined(TP_BASELINE) && TP_REAL == 32

/* Should the call's products, with sums over heads of `dim`, use pairs? */
static inline bool pairs_suit(const tp_call *c, int64_t dim)
{
    return c->real == TP_BF16 && dim >= PAIR_LEAST && __builtin_cpu_supports("avx512bf16");
}

/* Rounds k x[n] to bf16: (n + 1) / 2 pairs, the last padded with 0. `to` may be x. */
#define pairs_along TP_KERNEL_FN(pairs_along)
void pairs_along(const real *x, int64_t n, real k, real *to);

/* Pairs the n numbers of two rows of bf16; y NULL: zeros. `to` may be x. */
#define pairs_zip TP_KERNEL_FN(pairs_zip)
void pairs_zip(const real *x, const real *y, int64_t n, real *to);

/* The product with `how` of LS_ADD and LS_TRANSPOSED: a is [depth][rows]. Also writes columns up to
 * a vector less one, and PAIR_ROWS - 1 rows, past the end of c. */
#define pairs_multiply TP_KERNEL_FN(pairs_multiply)
void pairs_multiply(const ls_product *p, int how);

#else /* no call uses pairs, and none of these is ever reached */

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

/* Zips n rows of bf16, ld pairs apart, in twos to rows of `cols` pairs, ldt apart. */
static inline void pairs_zip_rows(const real *rows, int64_t n, int64_t ld, int64_t cols, real *to,
                                  int64_t ldt)
{
    for (int64_t i = 0; i < n; i += 2, rows += 2 * ld, to += ldt)
        pairs_zip(rows, i + 1 < n ? rows + ld : NULL, cols, to);
}

#endif
