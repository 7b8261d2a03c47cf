/* gemm_bf16.c - a tile of a matrix product of bf16 values, which are held as floats.
 *
 * The instruction vdpbf16ps adds products of two pairs of bf16 numbers to a float: twice the rate of a multiply-add of
 * floats. Operands are rounded to nearest even, which changes nothing if they were bf16 before; sums stay in f32. Both
 * matrices are packed as pairs of consecutive k: B in panels [pair][64], A in rows [pair]. The order of the sum over k
 * does not depend on the tile's rows and columns, as in gemm.c, whose blocks these are; the rows may have arbitrary
 * addresses and B may be packed before, as there. */
#include "tensor/kernel.h"

#if defined(__AVX512BW__) && !defined(TP_BASELINE) && TP_REAL == 32
#include <immintrin.h>

#include "tensor/cpu/kit/gemm.h"
#include "tensor/cpu/kit/real.h"
#include "tensor/cpu/kit/transpose.h"
#include "tensor/cpu/kit/vector.h"
#include "tensor/geometry/whole.h"

#define BF16    __attribute__((target("avx512bf16")))
#define ROWS    TP_GEMM_STRIP
#define LANES   16
#define VECTORS 4
#define PANEL   (VECTORS * LANES)
#define MOST    ((int64_t)(TP_GEMM_ROWS / sizeof(float))) /* rows of A packed at a time */
#define PAD     ((int64_t)(TP_GEMM_PAD / sizeof(float)))

/* Of bf16: k in the lower half, k + 1 in the upper one. transpose() moves pairs as floats. */
typedef uint32_t __attribute__((may_alias)) pair;

/* ---- packing ---- */

BF16 static inline __mmask16 first(int64_t n)
{
    return (__mmask16)(n >= LANES ? 0xffff : n > 0 ? (1u << n) - 1 : 0);
}

/* n numbers with consecutive k -> (n + 1) / 2 pairs. */
BF16 static void pairs_along(const float *x, int64_t n, pair *to)
{
    for (int64_t i = 0; i < n; i += 2 * LANES) {
        const __m512 low = _mm512_maskz_loadu_ps(first(n - i), x + i);
        const __mmask16 rest = first(n - i - LANES);
        const __m512 high = rest ? _mm512_maskz_loadu_ps(rest, x + i + LANES) : _mm512_setzero_ps();
        const __m512i y = (__m512i)_mm512_cvtne2ps_pbh(high, low);
        _mm512_mask_storeu_epi32(to + i / 2, first((n - i + 1) / 2), y);
    }
}

/* Pairs of the n numbers of two rows; y is NULL if there is no second row. */
BF16 static void pairs_across(const float *x, const float *y, int64_t n, pair *to)
{
    for (int64_t i = 0; i < n; i += LANES) {
        const __mmask16 m = first(n - i);
        const __m512 low = _mm512_maskz_loadu_ps(m, x + i);
        const __m512 high = y ? _mm512_maskz_loadu_ps(m, y + i) : _mm512_setzero_ps();
        const __m512i a = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(low));
        const __m512i b = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(high));
        _mm512_mask_storeu_epi32(to + i, m, _mm512_or_si512(a, _mm512_slli_epi32(b, LANES)));
    }
}

/* Row k of B, from column j on; NULL if k is beyond the block, which ends before row `end`. */
static const float *row_of_b(const tp_gemm_tile *t, int64_t k, int64_t end, int64_t j)
{
    if (k >= end) return NULL;
    return (t->ta && t->rows ? (const float *)t->rows[k] : (const float *)t->b + k * t->ldb) + j;
}

/* Packs the block of B from row k and column j on; room: as large as a panel. */
static void pack_b(const tp_gemm_tile *t, int64_t k, int64_t j, int64_t depth, int64_t n, pair *to,
                   pair *room)
{
    const int64_t pairs = (depth + 1) / 2, end = k + depth;
    for (int64_t c = 0; c < n; c += PANEL, to += pairs * PANEL) {
        const int64_t cols = tp__least(n - c, PANEL);
        if (cols < PANEL) memset(to, 0, (size_t)(pairs * PANEL) * sizeof *to);
        for (int64_t i = 0; t->tb && i < cols; i++)
            pairs_along((const float *)t->b + (j + c + i) * t->ldb + k, depth, room + i * pairs);
        if (t->tb) transpose((const real *)room, pairs, cols, pairs, (real *)to, PANEL);
        for (int64_t p = 0; !t->tb && p < pairs; p++)
            pairs_across(row_of_b(t, k + 2 * p, end, j + c), row_of_b(t, k + 2 * p + 1, end, j + c),
                         cols, to + p * PANEL);
    }
}

/* Packs m rows of op(A) from row i and column k on; room: for as many pairs. */
static void pack_a(const tp_gemm_tile *t, int64_t i, int64_t k, int64_t depth, int64_t m, pair *to,
                   pair *room)
{
    const int64_t pairs = (depth + 1) / 2, ld = pairs + PAD;
    const float *a = t->a;
    for (int64_t r = i; !t->ta && r < i + m; r++, to += ld)
        pairs_along((t->rows ? (const float *)t->rows[r] : a + r * t->lda) + k, depth, to);
    if (!t->ta) return;
    for (int64_t p = 0; p < pairs; p++) {
        const float *row = a + (k + 2 * p) * t->lda + i;
        pairs_across(row, 2 * p + 1 < depth ? row + t->lda : NULL, m, room + p * m);
    }
    transpose((const real *)room, m, pairs, m, (real *)to, ld);
}

/* ---- sums ---- */

typedef struct block {
    int64_t pairs, n, lda, ldc;
    const pair *b;
    bool add;
} block;

/* Computes `rows` rows of c, n vectors wide, the last with `last` columns; rows and n are constants. */
/* clang-format off */
BF16 TP_INLINE void sum(const block *s, const pair *a, const pair *b, float *c, int64_t last, int rows, int n)
{
    __m512 sum[ROWS][VECTORS];
    TP_UNROLL
    for (int y = 0; y < ROWS; y++)
        TP_UNROLL
        for (int x = 0; x < VECTORS; x++) sum[y][x] = _mm512_setzero_ps();
    for (int64_t p = 0; p < s->pairs; p++) {
        __m512i line[VECTORS];
        TP_UNROLL
        for (int x = 0; x < VECTORS; x++)
            if (x < n) line[x] = _mm512_loadu_si512(b + p * PANEL + x * LANES);
        TP_UNROLL
        for (int y = 0; y < ROWS; y++) {
            if (y >= rows) continue;
            const __m512i of_a = _mm512_set1_epi32((int)a[y * s->lda + p]);
            TP_UNROLL
            for (int x = 0; x < VECTORS; x++)
                if (x < n) sum[y][x] = _mm512_dpbf16_ps(sum[y][x], (__m512bh)of_a, (__m512bh)line[x]);
        }
    }
    TP_UNROLL
    for (int y = 0; y < ROWS; y++)
        TP_UNROLL
        for (int x = 0; x < VECTORS; x++) {
            if (y >= rows || x >= n) continue;
            const __mmask16 m = first(x == n - 1 ? last : LANES);
            float *to = c + y * s->ldc + x * LANES;
            const __m512 v = s->add ? _mm512_add_ps(sum[y][x], _mm512_maskz_loadu_ps(m, to)) : sum[y][x];
            _mm512_mask_storeu_ps(to, m, v);
        }
}
/* clang-format on */

/* `rows` rows of c, a constant. */
BF16 TP_INLINE void strip(const block *s, const pair *a, float *c, int rows)
{
    int64_t j = 0;
    for (; j + PANEL <= s->n; j += PANEL)
        sum(s, a, s->b + j * s->pairs, c + j, LANES, rows, VECTORS);
    const pair *b = s->b + j * s->pairs;
    const int64_t rest = s->n - j;
    if (rest > 3 * LANES)
        sum(s, a, b, c + j, rest - 3 * LANES, rows, 4);
    else if (rest > 2 * LANES)
        sum(s, a, b, c + j, rest - 2 * LANES, rows, 3);
    else if (rest > LANES)
        sum(s, a, b, c + j, rest - LANES, rows, 2);
    else if (rest > 0)
        sum(s, a, b, c + j, rest, rows, 1);
}

BF16 static void strips(const block *s, const pair *a, int64_t m, float *c)
{
    int64_t i = 0;
    for (; i + ROWS <= m; i += ROWS) strip(s, a + i * s->lda, c + i * s->ldc, ROWS);
    if (m - i >= 4) {
        strip(s, a + i * s->lda, c + i * s->ldc, 4);
        i += 4;
    }
    if (m - i >= 2) {
        strip(s, a + i * s->lda, c + i * s->ldc, 2);
        i += 2;
    }
    if (i < m) strip(s, a + i * s->lda, c + i * s->ldc, 1);
}

/* Columns of a block; rows of B in a block: an even number, and about the same in all. */
#define COLS ((int64_t)(TP_GEMM_COLS / sizeof(real)))

static int64_t depth_of(const tp_gemm_tile *t)
{
    const int64_t blocks = tp__most(tp__ceil_div(t->k, TP_GEMM_DEPTH), 1);
    return tp__round_up(tp__ceil_div(t->k, blocks), 2);
}

/* Pairs in the panels of a block. */
static int64_t panels_size(int64_t depth, int64_t n)
{
    return (depth + 1) / 2 * tp__round_up(n, PANEL);
}

void TP_KERNEL_FN(gemm_tile_bf16)(const tp_gemm_tile *t);
void TP_KERNEL_FN(gemm_tile_bf16)(const tp_gemm_tile *t)
{
    const int64_t even = depth_of(t);
    const pair *panels = t->panels;
    for (int64_t j = 0; j < t->n; j += COLS)
        for (int64_t k = 0; k < t->k; k += even) {
            const int64_t depth = tp__least(t->k - k, even), pairs = (depth + 1) / 2;
            const int64_t n = tp__least(t->n - j, COLS), size = panels_size(depth, n);
            pair *b = t->work, *a = b + size, *room = a + MOST * (pairs + PAD);
            const block s = { .pairs = pairs,
                              .n = n,
                              .lda = pairs + PAD,
                              .ldc = t->ldc,
                              .b = panels ? panels : b,
                              .add = t->add || k > 0 };
            if (!panels) pack_b(t, k, j, depth, n, b, a);
            if (panels) panels += size;
            for (int64_t i = 0; i < t->m; i += MOST) {
                const int64_t m = tp__least(t->m - i, MOST);
                pack_a(t, i, k, depth, m, a, room);
                strips(&s, a, m, (float *)t->c + i * t->ldc + j);
            }
        }
}

/* Packs all of B, not transposed, into panels for gemm_tile_bf16. */
void TP_KERNEL_FN(gemm_pack_bf16)(const tp_gemm_tile *t, real *to);
void TP_KERNEL_FN(gemm_pack_bf16)(const tp_gemm_tile *t, real *to)
{
    const int64_t even = depth_of(t);
    pair *at = (pair *)to;
    for (int64_t j = 0; j < t->n; j += COLS)
        for (int64_t k = 0; k < t->k; k += even) {
            const int64_t depth = tp__least(t->k - k, even), n = tp__least(t->n - j, COLS);
            pack_b(t, k, j, depth, n, at, NULL);
            at += panels_size(depth, n);
        }
}

#endif
