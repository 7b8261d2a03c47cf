/* pairs.h - products of attention tiles in bf16: operands in pairs, kernels in pair_products.c.
 *
 * A pair is two bf16 numbers with consecutive k in the space of a float: vdpbf16ps adds the
 * products of two pairs to a float, at twice the rate of multiply-adds. A row that a sum runs
 * along, rounded to bf16, is a row of pairs; rows that a sum runs across are zipped in twos. A
 * transposed operand is the transpose of rows of pairs, which transpose.h moves as floats. Products
 * are ls_products whose depth, lda and ldb count pairs; sums stay in f32.
 *
 * Only AVX-512 has the instruction, and it is only used for floats that were bf16: `pairs_suit`.
 * AMX multiplies the same layouts (gemm_amx.c). Relative positions, long-short attention and light
 * self-limited attention multiply in f32: their operands are not pairs. */
#ifndef TP_PAIRS_H
#define TP_PAIRS_H

#include "cpu/attention/ls_products.h"
#include "cpu/kit/real.h"
#include "tensor/kernel.h"

enum {
    PAIR_ROWS = 12,  /* products may touch up to PAIR_ROWS - 1 rows past the end */
    PAIR_LEAST = 16, /* least sum that pays */
    /* beside LS_ADD and the others: how pairs are multiplied, by vdpbf16ps or tiles of AMX */
    PAIRS_DOT = 128,
    PAIRS_AMX = 256,
};

#if defined(__AVX512BW__) && !defined(TP_BASELINE) && TP_REAL == 32

/* How the call's products, with sums over heads of `dim`, use pairs: 0, PAIRS_DOT or PAIRS_AMX. */
static inline int pairs_suit(const tp_call *c, int64_t dim)
{
    if (c->real != TP_BF16 || dim < PAIR_LEAST || !__builtin_cpu_supports("avx512bf16")) return 0;
    return c->dev->amx ? PAIRS_AMX : PAIRS_DOT;
}

void TP_KERNEL_FN(amx_begin)(void);
void TP_KERNEL_FN(amx_end)(void);

/* A thread calls pairs_begin before the first product of a task and pairs_end after the last. */
static inline void pairs_begin(int pairs)
{
    if (pairs == PAIRS_AMX) TP_KERNEL_FN(amx_begin)();
}

static inline void pairs_end(int pairs)
{
    if (pairs == PAIRS_AMX) TP_KERNEL_FN(amx_end)();
}

/* Rounds k x[n] to bf16: (n + 1) / 2 pairs, the last padded with 0. `to` may be x. */
#define pairs_along TP_KERNEL_FN(pairs_along)
void pairs_along(const real *x, int64_t n, real k, real *to);

/* Pairs the n numbers of two rows of bf16; y NULL: zeros. `to` may be x. */
#define pairs_zip TP_KERNEL_FN(pairs_zip)
void pairs_zip(const real *x, const real *y, int64_t n, real *to);

/* The product with `how` of LS_ADD, LS_TRANSPOSED (a is [depth][rows]), and PAIRS_DOT or PAIRS_AMX.
 * May write columns up to a vector less one, and PAIR_ROWS - 1 rows, past the end of c. */
#define pairs_multiply TP_KERNEL_FN(pairs_multiply)
void pairs_multiply(const ls_product *p, int how);

#else /* no call uses pairs, and none of these is ever reached */

static inline int pairs_suit(const tp_call *c, int64_t dim)
{
    (void)c, (void)dim;
    return 0;
}

static inline void pairs_begin(int pairs)
{
    (void)pairs;
}

static inline void pairs_end(int pairs)
{
    (void)pairs;
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
