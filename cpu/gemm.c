/* gemm.c - a tile of a matrix product, summed in registers.
 *
 * B is packed in blocks of TP_GEMM_DEPTH rows by TP_GEMM_COLS bytes, into panels [k][SUM_COLS] that
 * stay in L2. Each strip of SUM_ROWS rows of A is multiplied by all panels of the block while the
 * strip is in L1. A is read in place, since the kernel reads single elements of it; a transposed A
 * is first transposed into rows of k. A^T B of narrow matrices, such as the gradient of a small
 * linear layer's weights, reads both in place: packing them would cost a sixth of the product. The
 * order of the sum over k does not depend on the tile's rows and columns, so a product has the same
 * bits however it is split. A B that many tiles need can be packed once. The rows may have
 * arbitrary addresses, as in convolutions.
 *
 * Only the wide instruction sets use this code. At the baseline OpenBLAS is faster, because it
 * detects the processor itself. */
#include "tensor/kernel.h"

#ifndef TP_BASELINE
#include "cpu/checked.h"
#include "cpu/kit/gemm.h"
#include "cpu/kit/real.h"
#include "cpu/kit/transpose.h"
#include "cpu/kit/vector.h"
#include "tensor/geometry/whole.h"

#define SUM_ROWS    TP_GEMM_STRIP
#define SUM_VECTORS (TP_VECTOR / 16) /* vectors per row of sums: 4 of 64 bytes, 2 of 32 */
#define ROWS_AHEAD  8                /* rows of B prefetched ahead of the copy */
#define NARROW      1024             /* bytes of rows of A^T and B read in place */
_Static_assert(TP_GEMM_PANEL % (SUM_VECTORS * TP_VECTOR) == 0, "tp__gemm_scratch has no room");
_Static_assert(TP_GEMM_COLS % TP_GEMM_PANEL == 0, "blocks must be whole panels");

#define SUM_COLS (SUM_VECTORS * LANES)
#define LINE     ((int64_t)(64 / sizeof(real))) /* elements in a cache line */

/* ---- packing ---- */

/* Row k of B, from column j on. */
static inline const real *row_of_b(const tp_gemm_tile *t, int64_t k, int64_t j)
{
    return (t->ta && t->rows ? (const real *)t->rows[k] : (const real *)t->b + k * t->ldb) + j;
}

/* Packs the block of B from row k and column j on into panels, zero-padded to a whole vector. Each
 * row of B is copied to all panels before the next row: long sequential reads are faster. */
static void pack(const tp_gemm_tile *t, int64_t k, int64_t j, int64_t depth, int64_t n, real *to)
{
    const int64_t whole = (n + LANES - 1) / LANES * LANES;
    if (n < whole) {
        real *last = to + n / SUM_COLS * SUM_COLS * depth + (whole - LANES) % SUM_COLS;
        for (int64_t i = 0; i < depth; i++) *(vec *)(last + i * SUM_COLS) = (vec){ 0 };
    }
    for (int64_t i = 0; i < n && t->tb; i += SUM_COLS)
        transpose((const real *)t->b + (j + i) * t->ldb + k, t->ldb, tp__least(n - i, SUM_COLS),
                  depth, to + i * depth, SUM_COLS);
    for (int64_t l = 0; l < depth && !t->tb; l++) {
        const real *row = row_of_b(t, k + l, j);
        const real *ahead = row_of_b(t, k + l + tp__least(ROWS_AHEAD, depth - 1 - l), j);
        real *at = to + l * SUM_COLS;
        int64_t i = 0;
        for (int64_t x = 0; x < n; x += LINE) __builtin_prefetch(ahead + x);
        for (; i + SUM_COLS <= n; i += SUM_COLS, at += depth * SUM_COLS)
            memcpy(at, row + i, SUM_COLS * sizeof *at);
        if (i < n) memcpy(at, row + i, (size_t)(n - i) * sizeof *at);
    }
}

/* ---- sums ---- */

/* The data shared by all strips of a block. */
typedef struct block {
    int64_t n, depth, lda, ldc;
    const real *a;
    const void *const *rows; /* or NULL; read from element `first` on, instead of a */
    int64_t first;
    const real *b; /* panels, or B itself with row length ldb */
    int64_t ldb;
    bool add;
} block;

/* The first n of SUM_ROWS rows of A from row i on. */
TP_INLINE void strip_at(const block *s, int64_t i, int n, const real **to)
{
    TP_UNROLL
    for (int y = 0; y < SUM_ROWS; y++)
        if (y < n)
            to[y] = s->rows ? (const real *)s->rows[i + y] + s->first : s->a + (i + y) * s->lda;
}

/* Stores the first n lanes of v. */
TP_INLINE void put(real *to, vec v, int64_t n, bool add)
{
    if (n < LANES) {
        for (int64_t i = 0; i < n; i++) to[i] = add ? to[i] + v[i] : v[i];
        return;
    }
    if (add) v += vec_load(to);
    vec_store(to, v);
}

/* Computes `rows` rows of c, n vectors wide, the last with `last` columns; rows, n and narrow are
 * constants. narrow: the strip is stored transposed from strip[0] on, and B is not packed. */
TP_INLINE void sum(const block *s, const real *const *strip, const real *b, real *c, int64_t last,
                   int rows, int n, bool narrow)
{
    const int64_t ldc = s->ldc, depth = s->depth, lda = s->lda, ldb = narrow ? s->ldb : SUM_COLS;
    const real *a[SUM_ROWS];
    vec sum[SUM_ROWS][SUM_VECTORS];
    TP_UNROLL
    for (int y = 0; y < SUM_ROWS; y++) {
        TP_UNROLL
        for (int x = 0; x < SUM_VECTORS; x++) sum[y][x] = (vec){ 0 };
    }
    TP_UNROLL
    for (int y = 0; y < SUM_ROWS; y++) a[y] = y < rows && !narrow ? strip[y] : strip[0];
    TP_UNROLL
    for (int y = 0; y < SUM_ROWS; y++) { /* C is fetched during the sums */
        TP_UNROLL
        for (int x = 0; x < SUM_VECTORS; x++)
            if (y < rows && x < n) __builtin_prefetch(c + y * ldc + x * LANES, 1);
    }
    for (int64_t k = 0; k < depth; k++) {
        vec line[SUM_VECTORS];
        TP_UNROLL
        for (int x = 0; x < SUM_VECTORS; x++) {
            if (x >= n) continue;
            line[x] = vec_load(b + k * ldb + x * LANES);
            TP_HOLD(line[x]);
        }
        TP_UNROLL
        for (int y = 0; y < SUM_ROWS; y++) {
            TP_UNROLL
            for (int x = 0; x < SUM_VECTORS; x++)
                if (y < rows && x < n)
                    sum[y][x] += (narrow ? a[0][k * lda + y] : a[y][k]) * line[x];
        }
    }
    TP_UNROLL
    for (int y = 0; y < SUM_ROWS; y++) {
        TP_UNROLL
        for (int x = 0; x < SUM_VECTORS; x++)
            if (y < rows && x < n)
                put(c + y * ldc + x * LANES, sum[y][x], x == n - 1 ? last : LANES, s->add);
    }
}

/* Prefetches the next strip of A's share for the panel from column j on, so that the whole strip is
 * in cache when it is needed. Each of its rows is on another page and too short for hardware
 * prefetching. */
TP_INLINE void fetch(const block *s, const real *const *next, int64_t j)
{
    const int64_t begin = j * s->depth / s->n, end = (j + SUM_COLS) * s->depth / s->n;
    for (int64_t y = 0; y < SUM_ROWS; y++)
        for (int64_t k = begin; k < end; k += LINE) __builtin_prefetch(next[y] + k);
}

/* Computes `rows` rows of c from row i on; rows, narrow: constants. more: a whole strip follows. */
TP_INLINE void strip(const block *s, int64_t i, real *c, int rows, bool more, bool narrow)
{
    const real *a[SUM_ROWS] = { s->a + i }, *next[SUM_ROWS];
    const int64_t step = narrow ? 1 : s->depth; /* from a column of B to the next */
    int64_t j = 0;
    c += i * s->ldc;
    if (!narrow) strip_at(s, i, rows, a);
    if (more) strip_at(s, i + SUM_ROWS, SUM_ROWS, next);
    for (; j + SUM_COLS <= s->n; j += SUM_COLS) {
        if (more) fetch(s, next, j);
        sum(s, a, s->b + j * step, c + j, LANES, rows, SUM_VECTORS, narrow);
    }
    const real *b = s->b + j * step;
    const int64_t rest = s->n - j;
    if (SUM_VECTORS > 2 && rest > 3 * LANES)
        sum(s, a, b, c + j, rest - 3 * LANES, rows, 4, narrow);
    else if (SUM_VECTORS > 2 && rest > 2 * LANES)
        sum(s, a, b, c + j, rest - 2 * LANES, rows, 3, narrow);
    else if (rest > LANES)
        sum(s, a, b, c + j, rest - LANES, rows, 2, narrow);
    else if (rest > 0)
        sum(s, a, b, c + j, rest, rows, 1, narrow);
}

TP_INLINE void all_strips(const block *s, int64_t m, real *c, bool narrow)
{
    int64_t i = 0;
    for (; i + SUM_ROWS <= m; i += SUM_ROWS)
        strip(s, i, c, SUM_ROWS, !narrow && i + 2 * SUM_ROWS <= m, narrow);
    if (m - i >= 4) {
        strip(s, i, c, 4, false, narrow);
        i += 4;
    }
    if (m - i >= 2) {
        strip(s, i, c, 2, false, narrow);
        i += 2;
    }
    if (i < m) strip(s, i, c, 1, false, narrow);
}

TP_CHECKED_BEFORE static void unchecked_strips(const block *s, int64_t m, real *c)
{
    all_strips(s, m, c, false);
}

static void check_ranges(const block *s, int64_t m, real *c)
{
    const int64_t whole = (s->n - 1) / SUM_COLS * SUM_COLS, rest = s->n - whole;
    const int64_t last = (s->depth - 1) * SUM_COLS + (rest + LANES - 1) / LANES * LANES;
    if (s->depth > 0) TP_CHECK_READ(s->b, (size_t)(whole * s->depth + last) * sizeof(real));
    for (int64_t i = 0; i < m; i++) {
        const real *a;
        strip_at(s, i, 1, &a);
        TP_CHECK_READ(a, (size_t)s->depth * sizeof(real));
        TP_CHECK_WRITE(c + i * s->ldc, (size_t)s->n * sizeof(real));
    }
}

static void strips(const block *s, int64_t m, real *c)
{
    check_ranges(s, m, c);
    unchecked_strips(s, m, c);
}

static void narrow_strips(const block *s, int64_t m, real *c)
{
    all_strips(s, m, c, true);
}

static bool is_narrow(const tp_gemm_tile *t)
{
    const int64_t most = NARROW / (int64_t)sizeof(real);
    return t->ta && !t->tb && !t->rows && !t->panels && t->lda <= most && t->ldb <= most &&
           t->n % LANES == 0;
}

/* Multiplies the columns of op(A) from k on by one packed block of B. transposed: memory for the
 * rows of a transposed A. */
static void rows(const tp_gemm_tile *t, block *s, int64_t k, real *c, real *transposed)
{
    const real *a = t->a;
    if (!t->ta) {
        s->a = t->rows ? NULL : a + k;
        s->lda = t->lda;
        s->rows = t->rows;
        strips(s, t->m, c);
        return;
    }
    const int64_t most = (int64_t)(TP_GEMM_ROWS / sizeof(real));
    s->a = transposed;
    s->lda = s->depth + (int64_t)(TP_GEMM_PAD / sizeof(real));
    for (int64_t i = 0; i < t->m; i += most) {
        const int64_t m = tp__least(t->m - i, most);
        transpose(a + k * t->lda + i, t->lda, s->depth, m, transposed, s->lda);
        strips(s, m, c + i * t->ldc);
    }
}

static int64_t panels_size(int64_t depth, int64_t n)
{
    return depth * ((n + SUM_COLS - 1) / SUM_COLS * SUM_COLS);
}

/* The number of blocks, which have equal depth. An empty sum has one of depth 0. */
static int64_t blocks_of(const tp_gemm_tile *t)
{
    return t->k > 0 ? (t->k + TP_GEMM_DEPTH - 1) / TP_GEMM_DEPTH : 1;
}

void TP_KERNEL_FN(gemm_tile)(const tp_gemm_tile *t);
void TP_KERNEL_FN(gemm_tile)(const tp_gemm_tile *t)
{
    const int64_t cols = (int64_t)(TP_GEMM_COLS / sizeof(real)), blocks = blocks_of(t);
    const int64_t depth = (t->k + blocks - 1) / blocks;
    const real *panels = t->panels;
    for (int64_t j = 0; j < t->n; j += cols)
        for (int64_t q = 0; q < blocks; q++) {
            const int64_t k = q * depth;
            block s = { .n = tp__least(t->n - j, cols),
                        .depth = tp__least(t->k - k, depth),
                        .ldc = t->ldc,
                        .first = k,
                        .b = panels ? panels : t->work,
                        .add = t->add || q > 0 };
            const int64_t size = panels_size(s.depth, s.n);
            if (is_narrow(t)) {
                s.a = (const real *)t->a + k * t->lda;
                s.lda = t->lda;
                s.b = (const real *)t->b + k * t->ldb + j;
                s.ldb = t->ldb;
                narrow_strips(&s, t->m, (real *)t->c + j);
                continue;
            }
            if (!panels) pack(t, k, j, s.depth, s.n, t->work);
            if (panels) panels += size;
            rows(t, &s, k, (real *)t->c + j, (real *)t->work + size);
        }
}

void TP_KERNEL_FN(gemm_pack)(const tp_gemm_tile *t, real *to);
void TP_KERNEL_FN(gemm_pack)(const tp_gemm_tile *t, real *to)
{
    const int64_t cols = (int64_t)(TP_GEMM_COLS / sizeof(real)), blocks = blocks_of(t);
    const int64_t depth = (t->k + blocks - 1) / blocks;
    for (int64_t j = 0; j < t->n; j += cols)
        for (int64_t q = 0; q < blocks; q++) {
            const int64_t k = q * depth, n = tp__least(t->n - j, cols),
                          rows = tp__least(t->k - k, depth);
            pack(t, k, j, rows, n, to);
            to += panels_size(rows, n);
        }
}

#endif
