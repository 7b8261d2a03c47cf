/* gemm_bf16.c - a tile of a matrix product of bf16 values.
 *
 * The instruction vdpbf16ps adds products of two pairs of bf16 numbers to a float, at twice the
 * rate of float multiply-adds. Sums stay in f32. Operands are stored as bf16, or as floats that are
 * rounded to nearest even, which changes nothing if they were bf16. The instruction takes pairs of
 * consecutive k: bf16 rows of A consist of them and are read in place; other operands are packed, B
 * in panels [pair][64], A in rows [pair]. As in gemm.c, whose blocks these are, the order of the
 * sum over k does not depend on the tile's rows and columns, rows may have arbitrary addresses, and
 * B may be packed beforehand.
 *
 * With AMX, gemm_amx.c multiplies a strip of 32 rows by each panel. It reads the same layouts.
 * Blocks are half as deep, so that a strip stays in L1 beside the panel, and whole steps of 32. */
#include "tensor/kernel.h"

#if defined(__AVX512BW__) && !defined(TP_BASELINE) && TP_REAL == 32
#include "cpu/kit/amx.h"
#include "cpu/kit/bf16_lanes.h"
#include "cpu/kit/gemm.h"
#include "cpu/kit/real.h"
#include "cpu/kit/transpose.h"
#include "cpu/kit/vector.h"
#include "tensor/geometry/whole.h"

#define ROWS    TP_GEMM_STRIP
#define VECTORS 4
#define PANEL   (VECTORS * BF16_LANES)
#define DEPTH   (2 * TP_GEMM_DEPTH)                             /* k of a block */
#define MOST    ((int64_t)(TP_GEMM_ROWS / (2 * sizeof(float)))) /* rows of A packed at a time */
#define PAD     ((int64_t)(TP_GEMM_PAD / sizeof(float)))
#define LINE    ((int64_t)64)
#define AHEAD   32   /* rows from the one being packed to the one being prefetched */
#define SHARED  2048 /* bytes; 32 rows of A multiples of it apart meet in half of the sets of L1 */

/* bf16: k in the low half, k + 1 in the high one. transpose() moves pairs as floats. */
typedef uint32_t __attribute__((may_alias)) pair;
typedef uint32_t __attribute__((may_alias, aligned(2))) any_pair; /* in a row of bf16 */

/* ---- packing ---- */

/* Element i of a row of bf16 or of floats. */
static inline const void *along(const void *row, bool bf16, int64_t i)
{
    return (const char *)row + (size_t)i * (bf16 ? sizeof(uint16_t) : sizeof(float));
}

/* n numbers with consecutive k -> (n + 1) / 2 pairs. */
BF16 static void pairs_along(const void *row, bool bf16, int64_t n, pair *to)
{
    const float *x = row;
    if (n == 0) return;
    if (bf16) {
        to[(n - 1) / 2] = 0; /* the last high half, if n is odd */
        memcpy(to, row, (size_t)n * sizeof(uint16_t));
        return;
    }
    for (int64_t i = 0; i < n; i += 2 * BF16_LANES) {
        const __m512 low = _mm512_maskz_loadu_ps(first(n - i), x + i);
        const __mmask16 rest = first(n - i - BF16_LANES);
        const __m512 high =
            rest ? _mm512_maskz_loadu_ps(rest, x + i + BF16_LANES) : _mm512_setzero_ps();
        const __m512i y = (__m512i)_mm512_cvtne2ps_pbh(high, low);
        _mm512_mask_storeu_epi32(to + i / 2, first((n - i + 1) / 2), y);
    }
}

/* The low halves of the lanes m: numbers from x on, a row of bf16 or of floats. */
BF16 static inline __m512i halves(const void *x, bool bf16, __mmask16 m)
{
    return _mm512_cvtepu16_epi32(bf16 ? _mm256_maskz_loadu_epi16(m, x)
                                      : (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(m, x)));
}

/* Pairs the n numbers of two rows; y is NULL if there is no second row. */
BF16 static void pairs_across(const void *x, const void *y, bool bf16, int64_t n, pair *to)
{
    for (int64_t i = 0; i < n; i += BF16_LANES) {
        const __mmask16 m = first(n - i);
        const __m512i a = halves(along(x, bf16, i), bf16, m);
        const __m512i b = y ? halves(along(y, bf16, i), bf16, m) : _mm512_setzero_si512();
        _mm512_mask_storeu_epi32(to + i, m, _mm512_or_si512(a, _mm512_slli_epi32(b, BF16_LANES)));
    }
}

/* Row k of B, from column j on; NULL if k is past the block, which ends before row `end`. */
static const void *row_of_b(const tp_gemm_tile *t, int64_t k, int64_t end, int64_t j)
{
    if (k >= end) return NULL;
    return t->ta && t->rows ? along(t->rows[k], t->b_bf16, j)
                            : along(t->b, t->b_bf16, k * t->ldb + j);
}

/* Packs `cols` columns of a transposed B, from row k and column j on. Pairs that are whole words of
 * memory are transposed directly; others in `room`. */
static void pack_turned(const tp_gemm_tile *t, int64_t k, int64_t j, int64_t depth, int64_t cols,
                        pair *to, pair *room)
{
    const int64_t pairs = (depth + 1) / 2;
    const void *from = along(t->b, t->b_bf16, j * t->ldb + k);
    if (t->b_bf16 && depth % 2 == 0 && t->ldb % 2 == 0 && (uintptr_t)from % sizeof(pair) == 0) {
        transpose(from, t->ldb / 2, cols, pairs, (real *)to, PANEL);
        return;
    }
    for (int64_t i = 0; i < cols; i++)
        pairs_along(along(from, t->b_bf16, i * t->ldb), t->b_bf16, depth, room + i * pairs);
    transpose((const real *)room, pairs, cols, pairs, (real *)to, PANEL);
}

/* Packs `cols` columns of rows k to end of B: a panel. It reads few cache lines of each row, so the
 * hardware does not prefetch those of the next one. */
static void pack_rows(const tp_gemm_tile *t, int64_t k, int64_t end, int64_t j, int64_t cols,
                      pair *to)
{
    const bool bf16 = t->b_bf16;
    const int64_t line = LINE / (int64_t)(bf16 ? sizeof(uint16_t) : sizeof(float));
    for (; k < end; k += 2, to += PANEL) {
        for (int64_t r = k + AHEAD; r < tp__least(end, k + AHEAD + 2); r++)
            for (int64_t i = 0; i < cols; i += line)
                __builtin_prefetch(along(row_of_b(t, r, end, j), bf16, i));
        pairs_across(row_of_b(t, k, end, j), row_of_b(t, k + 1, end, j), bf16, cols, to);
    }
}

/* Packs the block of B from row k and column j on; room: as large as a panel. */
static void pack_b(const tp_gemm_tile *t, int64_t k, int64_t j, int64_t depth, int64_t n, pair *to,
                   pair *room)
{
    const int64_t pairs = (depth + 1) / 2, end = k + depth;
    for (int64_t c = 0; c < n; c += PANEL, to += pairs * PANEL) {
        const int64_t cols = tp__least(n - c, PANEL);
        if (cols < PANEL) memset(to, 0, (size_t)(pairs * PANEL) * sizeof *to);
        if (t->tb)
            pack_turned(t, k, j + c, depth, cols, to, room);
        else
            pack_rows(t, k, end, j + c, cols, to);
    }
}

/* Packs m rows of op(A) from row i and column k on; room: for as many pairs. */
static void pack_a(const tp_gemm_tile *t, int64_t i, int64_t k, int64_t depth, int64_t m, pair *to,
                   pair *room)
{
    const int64_t pairs = (depth + 1) / 2, ld = pairs + PAD;
    const bool bf16 = t->a_bf16;
    for (int64_t r = i; !t->ta && r < i + m; r++, to += ld)
        pairs_along(t->rows ? along(t->rows[r], bf16, k) : along(t->a, bf16, r * t->lda + k), bf16,
                    depth, to);
    if (!t->ta) return;
    for (int64_t p = 0; p < pairs; p++) {
        const int64_t at = (k + 2 * p) * t->lda + i;
        pairs_across(along(t->a, bf16, at),
                     2 * p + 1 < depth ? along(t->a, bf16, at + t->lda) : NULL, bf16, m,
                     room + p * m);
    }
    transpose((const real *)room, m, pairs, m, (real *)to, ld);
}

/* ---- sums ---- */

typedef struct block {
    int64_t pairs, n, ldc;
    const pair *b;
    bool add;
    const char *a; /* rows of pairs, lda bytes apart */
    int64_t lda;
    const void *const *rows; /* or NULL; read from byte `from` on, instead of a */
    int64_t from;
} block;

/* The first n of ROWS rows of A from row i on. */
TP_INLINE void rows_at(const block *s, int64_t i, int n, const any_pair **to)
{
    TP_UNROLL
    for (int y = 0; y < ROWS; y++)
        if (y < n)
            to[y] = (const any_pair *)(s->rows ? (const char *)s->rows[i + y] + s->from
                                               : s->a + (i + y) * s->lda);
}

/* Computes `rows` rows of c, n vectors wide, the last with `last` columns; rows, n: constants. */
BF16 TP_INLINE void sum(const block *s, const any_pair *const *strip, const pair *b, float *c,
                        int64_t last, int rows, int n)
{
    __m512 sum[ROWS][VECTORS];
    const any_pair *a[ROWS];
    TP_UNROLL
    for (int y = 0; y < ROWS; y++) a[y] = strip[y < rows ? y : 0];
    TP_UNROLL
    for (int y = 0; y < ROWS; y++) {
        TP_UNROLL
        for (int x = 0; x < VECTORS; x++) sum[y][x] = _mm512_setzero_ps();
    }
    for (int64_t p = 0; p < s->pairs; p++) {
        __m512i line[VECTORS];
        TP_UNROLL
        for (int x = 0; x < VECTORS; x++)
            if (x < n) line[x] = _mm512_loadu_si512(b + p * PANEL + x * BF16_LANES);
        TP_UNROLL
        for (int y = 0; y < ROWS; y++) {
            if (y >= rows) continue;
            const __m512i of_a = _mm512_set1_epi32((int)a[y][p]);
            TP_UNROLL
            for (int x = 0; x < VECTORS; x++)
                if (x < n)
                    sum[y][x] = _mm512_dpbf16_ps(sum[y][x], (__m512bh)of_a, (__m512bh)line[x]);
        }
    }
    TP_UNROLL
    for (int y = 0; y < ROWS; y++) {
        TP_UNROLL
        for (int x = 0; x < VECTORS; x++) {
            if (y >= rows || x >= n) continue;
            const __mmask16 m = first(x == n - 1 ? last : BF16_LANES);
            float *to = c + y * s->ldc + x * BF16_LANES;
            const __m512 v =
                s->add ? _mm512_add_ps(sum[y][x], _mm512_maskz_loadu_ps(m, to)) : sum[y][x];
            _mm512_mask_storeu_ps(to, m, v);
        }
    }
}

/* Prefetches the next strip of A's share for the panel from column j on. */
TP_INLINE void fetch(const block *s, const any_pair *const *next, int64_t j)
{
    const int64_t bytes = s->pairs * (int64_t)sizeof(pair);
    const int64_t begin = j * bytes / s->n, end = (j + PANEL) * bytes / s->n;
    for (int64_t y = 0; y < ROWS; y++)
        for (int64_t k = begin; k < end; k += LINE) __builtin_prefetch((const char *)next[y] + k);
}

/* `rows` rows of c from row i on, a constant. more: another whole strip follows. */
BF16 TP_INLINE void strip(const block *s, int64_t i, float *c, int rows, bool more)
{
    const any_pair *a[ROWS], *next[ROWS];
    int64_t j = 0;
    c += i * s->ldc;
    rows_at(s, i, rows, a);
    if (more) rows_at(s, i + ROWS, ROWS, next);
    for (; j + PANEL <= s->n; j += PANEL) {
        if (more) fetch(s, next, j);
        sum(s, a, s->b + j * s->pairs, c + j, BF16_LANES, rows, VECTORS);
    }
    const pair *b = s->b + j * s->pairs;
    const int64_t rest = s->n - j;
    if (rest > 3 * BF16_LANES)
        sum(s, a, b, c + j, rest - 3 * BF16_LANES, rows, 4);
    else if (rest > 2 * BF16_LANES)
        sum(s, a, b, c + j, rest - 2 * BF16_LANES, rows, 3);
    else if (rest > BF16_LANES)
        sum(s, a, b, c + j, rest - BF16_LANES, rows, 2);
    else if (rest > 0)
        sum(s, a, b, c + j, rest, rows, 1);
}

BF16 static void strips(const block *s, int64_t m, float *c)
{
    int64_t i = 0;
    for (; i + ROWS <= m; i += ROWS) strip(s, i, c, ROWS, i + 2 * ROWS <= m);
    if (m - i >= 4) {
        strip(s, i, c, 4, false);
        i += 4;
    }
    if (m - i >= 2) {
        strip(s, i, c, 2, false);
        i += 2;
    }
    if (i < m) strip(s, i, c, 1, false);
}

/* Columns of a block; its rows of B: an even number, nearly equal in all. */
#define COLS ((int64_t)(TP_GEMM_COLS / sizeof(real)))

static int64_t blocks_of(const tp_gemm_tile *t) /* an empty sum has one of depth 0 */
{
    return tp__most(tp__ceil_div(t->k, t->amx ? TP_GEMM_DEPTH : DEPTH), 1);
}

static int64_t depth_of(const tp_gemm_tile *t)
{
    return tp__round_up(tp__ceil_div(t->k, blocks_of(t)), t->amx ? 2 * TILE_PAIRS : 2);
}

/* Pairs in the panels of a block. */
static int64_t panels_size(int64_t depth, int64_t n)
{
    return (depth + 1) / 2 * tp__round_up(n, PANEL);
}

/* Multiplies columns k .. k + depth of op(A) by a packed block of B. room: memory for rows of A. */
static void rows(const tp_gemm_tile *t, block *s, int64_t k, int64_t depth, float *c, pair *room)
{
    if (!t->ta && t->a_bf16 && depth % 2 == 0) {
        s->rows = t->rows;
        s->from = k * (int64_t)sizeof(uint16_t);
        s->lda = t->lda * (int64_t)sizeof(uint16_t);
        s->a = t->rows ? NULL : along(t->a, true, k);
        strips(s, t->m, c);
        return;
    }
    s->rows = NULL;
    s->a = (const char *)room;
    s->lda = (s->pairs + PAD) * (int64_t)sizeof(pair);
    for (int64_t i = 0; i < t->m; i += MOST) {
        const int64_t m = tp__least(t->m - i, MOST);
        pack_a(t, i, k, depth, m, room, room + MOST * (s->pairs + PAD));
        strips(s, m, c + i * t->ldc);
    }
}

/* The same by AMX. A is copied if it is not stored in whole steps, or if its rows would not stay in
 * L1 together. */
static void rows_amx(const tp_gemm_tile *t, const block *s, int64_t k, int64_t depth, float *c,
                     pair *room)
{
    const int64_t ld = s->pairs + PAD, bytes = t->lda * (int64_t)sizeof(uint16_t);
    const bool stored =
        !t->ta && !t->rows && t->a_bf16 && depth % (2 * TILE_PAIRS) == 0 && bytes % SHARED != 0;
    for (int64_t i = 0; i < t->m; i += TP_GEMM_AMX) {
        const int64_t m = tp__least(t->m - i, TP_GEMM_AMX);
        if (!stored) {
            pack_a(t, i, k, depth, m, room, room + MOST * ld);
            for (int64_t r = 0; r < m; r++) memset(room + r * ld + s->pairs, 0, PAD * sizeof *room);
        }
        tp_amx_product p = { .rows = m,
                             .pairs = s->pairs,
                             .a = stored ? along(t->a, true, i * t->lda + k) : room,
                             .lda = stored ? bytes : ld * (int64_t)sizeof *room,
                             .ldb = PANEL,
                             .ldc = t->ldc,
                             .add = s->add,
                             .padded = !stored };
        for (int64_t j = 0; j < s->n; j += PANEL) {
            p.cols = tp__least(s->n - j, PANEL);
            p.b = s->b + j * s->pairs;
            p.c = c + i * t->ldc + j;
            TP_KERNEL_FN(amx_multiply)(&p);
        }
    }
}

void TP_KERNEL_FN(gemm_tile_bf16)(const tp_gemm_tile *t);
void TP_KERNEL_FN(gemm_tile_bf16)(const tp_gemm_tile *t)
{
    const int64_t blocks = blocks_of(t), even = depth_of(t);
    const pair *panels = t->panels;
    if (t->amx) TP_KERNEL_FN(amx_begin)();
    for (int64_t j = 0; j < t->n; j += COLS)
        for (int64_t q = 0; q < blocks; q++) {
            const int64_t k = q * even, depth = tp__least(t->k - k, even);
            const int64_t n = tp__least(t->n - j, COLS), size = panels_size(depth, n);
            pair *b = t->work;
            block s = { .pairs = (depth + 1) / 2,
                        .n = n,
                        .ldc = t->ldc,
                        .b = panels ? panels : b,
                        .add = t->add || k > 0 };
            if (!panels) pack_b(t, k, j, depth, n, b, b + size);
            if (panels) panels += size;
            if (t->amx)
                rows_amx(t, &s, k, depth, (float *)t->c + j, b + size);
            else
                rows(t, &s, k, depth, (float *)t->c + j, b + size);
        }
    if (t->amx) TP_KERNEL_FN(amx_end)();
}

/* Returns the 64 pairs of rows k and k + 1 of B and columns from j on, multiples of 2 and of 64, in
 * the panels of all of B. Those of the next rows follow: *count pairs in total. */
uint32_t *TP_KERNEL_FN(gemm_pairs_bf16)(const tp_gemm_tile *t, int64_t k, int64_t j, void *panels,
                                        int64_t *count);
uint32_t *TP_KERNEL_FN(gemm_pairs_bf16)(const tp_gemm_tile *t, int64_t k, int64_t j, void *panels,
                                        int64_t *count)
{
    const int64_t even = depth_of(t), before = k / even * even;
    const int64_t first = j / COLS * COLS, n = tp__least(t->n - first, COLS);
    const int64_t pairs = (tp__least(t->k - before, even) + 1) / 2, at = (k - before) / 2;
    *count = pairs - at;
    return (uint32_t *)panels + first * ((t->k + 1) / 2) + panels_size(before, n) +
           (j - first) * pairs + at * PANEL;
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
