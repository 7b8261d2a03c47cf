/* pair_products.c - products of attention tiles whose operands are pairs of bf16 numbers (pairs.h),
 * summed in registers.
 *
 * Blocks of c, 6 rows by 4 vectors or 12 by 2, are summed over all pairs. The columns are the outer
 * loop, so that a panel of b stays in L1 while short sums pass over the rows of a. Both operands
 * are read in place. gemm_amx.c does the same by the tiles of AMX. */
#include "tensor/kernel.h"

#if defined(__AVX512BW__) && !defined(TP_BASELINE) && TP_REAL == 32
#include "cpu/attention/pairs.h"
#include "cpu/kit/amx.h"
#include "cpu/kit/bf16_lanes.h"

#define VECTORS 4

BF16 void pairs_along(const real *x, int64_t n, real k, real *to)
{
    const __m512 scale = _mm512_set1_ps(k);
    int64_t i = 0;
    for (; i + 2 * BF16_LANES <= n; i += 2 * BF16_LANES) {
        const __m512 low = _mm512_mul_ps(scale, _mm512_loadu_ps(x + i));
        const __m512 high = _mm512_mul_ps(scale, _mm512_loadu_ps(x + i + BF16_LANES));
        _mm512_storeu_si512(to + i / 2, (__m512i)_mm512_cvtne2ps_pbh(high, low));
    }
    if (i == n) return;
    const __m512 low = _mm512_mul_ps(scale, _mm512_maskz_loadu_ps(first(n - i), x + i));
    const __mmask16 rest = first(n - i - BF16_LANES);
    const __m512 high = _mm512_mul_ps(scale, _mm512_maskz_loadu_ps(rest, x + i + BF16_LANES));
    const __m512i y = (__m512i)_mm512_cvtne2ps_pbh(high, low);
    _mm512_mask_storeu_epi32(to + i / 2, first((n - i + 1) / 2), y);
}

/* Backwards, so that x is read before its second half is overwritten. */
BF16 void pairs_zip(const real *x, const real *y, int64_t n, real *to)
{
    const uint16_t *low = (const void *)x, *high = (const void *)y;
    for (int64_t i = (n - 1) / BF16_LANES * BF16_LANES; i >= 0 && n > 0; i -= BF16_LANES) {
        const __mmask16 m = first(n - i);
        const __m512i a = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, low + i));
        const __m512i b = high ? _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, high + i))
                               : _mm512_setzero_si512();
        _mm512_mask_storeu_epi32(to + i, m, _mm512_or_si512(a, _mm512_slli_epi32(b, BF16_LANES)));
    }
}

/* Computes `rows` rows of c from i and n vectors of columns from j; rows, n and how: constants. */
BF16 TP_INLINE void block(const ls_product *p, int64_t i, int64_t j, int rows, int n, int how)
{
    const int64_t row = how & LS_TRANSPOSED ? 1 : p->lda, next = how & LS_TRANSPOSED ? p->lda : 1;
    const int64_t ldb = p->ldb, ldc = p->ldc, depth = p->depth;
    const real *a = p->a + i * row, *b = p->b + j;
    real *c = p->c + i * ldc + j;
    __m512 sum[PAIR_ROWS][VECTORS];
    TP_UNROLL
    for (int y = 0; y < PAIR_ROWS; y++) {
        TP_UNROLL
        for (int x = 0; x < VECTORS; x++) sum[y][x] = _mm512_setzero_ps();
    }
    for (int64_t k = 0; k < depth; k++) {
        __m512i line[VECTORS];
        TP_UNROLL
        for (int x = 0; x < VECTORS; x++)
            if (x < n) line[x] = _mm512_loadu_si512(b + k * ldb + x * BF16_LANES);
        TP_UNROLL
        for (int y = 0; y < PAIR_ROWS; y++) {
            if (y >= rows) continue;
            const __m512i of_a = (__m512i)_mm512_set1_ps(a[y * row + k * next]);
            TP_UNROLL
            for (int x = 0; x < VECTORS; x++)
                if (x < n)
                    sum[y][x] = _mm512_dpbf16_ps(sum[y][x], (__m512bh)of_a, (__m512bh)line[x]);
        }
    }
    TP_UNROLL
    for (int y = 0; y < PAIR_ROWS; y++) {
        TP_UNROLL
        for (int x = 0; x < VECTORS; x++) {
            if (y >= rows || x >= n) continue;
            real *to = c + y * ldc + x * BF16_LANES;
            _mm512_storeu_ps(to, how & LS_ADD ? _mm512_add_ps(_mm512_loadu_ps(to), sum[y][x])
                                              : sum[y][x]);
        }
    }
}

/* Computes all rows of n vectors of columns from j, `most` at a time. */
BF16 TP_INLINE void columns(const ls_product *p, int64_t j, int most, int n, int how)
{
    int64_t i = 0;
    for (; i + most <= p->rows; i += most) block(p, i, j, most, n, how);
    const int64_t rest = p->rows - i;
    if (rest > 8)
        block(p, i, j, 12, n > 2 ? 2 : n, how);
    else if (rest > 4)
        block(p, i, j, most < 8 ? 6 : 8, n, how);
    else if (rest > 0)
        block(p, i, j, 4, n, how);
}

BF16 TP_INLINE void multiply(const ls_product *p, int how)
{
    int64_t j = 0;
    for (; j + 3 * BF16_LANES < p->cols; j += VECTORS * BF16_LANES) columns(p, j, 6, 4, how);
    const int64_t rest = p->cols - j;
    if (rest > 2 * BF16_LANES)
        columns(p, j, 6, 3, how);
    else if (rest > BF16_LANES)
        columns(p, j, 12, 2, how);
    else if (rest > 0)
        columns(p, j, 12, 1, how);
}

static void multiply_tiles(const ls_product *p, int how)
{
    const tp_amx_product tiles = { .rows = p->rows,
                                   .cols = p->cols,
                                   .pairs = p->depth,
                                   .a = p->a,
                                   .lda = p->lda * (int64_t)sizeof *p->a,
                                   .b = (const void *)p->b,
                                   .ldb = p->ldb,
                                   .c = p->c,
                                   .ldc = p->ldc,
                                   .add = how & LS_ADD,
                                   .turned = how & LS_TRANSPOSED };
    TP_KERNEL_FN(amx_multiply)(&tiles);
}

BF16 void pairs_multiply(const ls_product *p, int how)
{
    if (how & PAIRS_AMX) {
        multiply_tiles(p, how);
        return;
    }
    switch (how & (LS_ADD | LS_TRANSPOSED)) {
    case 0: multiply(p, 0); break;
    case LS_ADD: multiply(p, LS_ADD); break;
    case LS_TRANSPOSED: multiply(p, LS_TRANSPOSED); break;
    default: multiply(p, LS_ADD | LS_TRANSPOSED); break;
    }
}

#endif
