/* gemm_amx.c - products of pairs of bf16 numbers by the tiles of AMX (amx.h).
 *
 * Blocks of c, 2 x 2 tiles, are summed over all pairs: a step of 16 pairs loads two tiles of a and
 * two of b for four multiplications, which take longer than the loads. Both operands are read in
 * place. Where a step would read past them, or a is stored transposed, rows of a are first copied,
 * padded with zeros; so are the last rows of b, and tiles that c does not fill. The order of a sum
 * depends on k alone, so a product has the same bits however it is cut, but not those of vdpbf16ps.
 *
 * A thread configures its tiles when its part of a loop begins and releases them at its end
 * (amx_begin, amx_end), so nothing between ops costs more. */
#include "tensor/kernel.h"

#if defined(__AVX512BW__) && !defined(TP_BASELINE) && TP_REAL == 32
#include "cpu/kit/amx.h"
#include "cpu/kit/bf16_lanes.h"
#include "cpu/kit/transpose.h"
#include "tensor/geometry/whole.h"

enum {
    SIDE = 2, /* tiles of a block of c, across and down */
    ROWS = SIDE * TILE_ROWS,
    COLS = SIDE * TILE_COLS,
    DEEP = 192,             /* most pairs of rows of a copied at a time */
    LD = DEEP + TILE_PAIRS, /* rows of an odd number of cache lines do not share sets */
};

/* Memory for copies. */
typedef struct room {
    uint32_t a[ROWS][LD];
    uint32_t b[TILE_PAIRS][COLS];
    float c[SIDE * SIDE][TILE_ROWS][TILE_COLS];
} room;

/* A tile of c: where it is summed, and its part that c has. */
typedef struct place {
    float *c, *at;
    int64_t ldc, ld, rows, cols;
} place;

/* ---- copies ---- */

/* Copies pairs k .. k + n of m rows of a from row i on, padded with zeros to whole tiles. */
static void copy_a(const tp_amx_product *p, int64_t i, int64_t m, int64_t k, int64_t n, room *to)
{
    const int64_t whole = tp__round_up(n, TILE_PAIRS);
    if (p->turned) {
        const real *from = (const real *)((const char *)p->a + k * p->lda) + i;
        transpose(from, p->lda / (int64_t)sizeof(real), n, m, (real *)(void *)to->a, LD);
    }
    for (int64_t r = 0; r < m; r++) {
        uint32_t *row = to->a[r];
        if (!p->turned)
            memcpy(row, (const char *)p->a + (i + r) * p->lda + k * 4, (size_t)n * sizeof *row);
        memset(row + n, 0, (size_t)(whole - n) * sizeof *row);
    }
    for (int64_t r = m; r < tp__round_up(m, TILE_ROWS); r++)
        memset(to->a[r], 0, (size_t)whole * sizeof **to->a);
}

/* Copies n < 16 rows of pairs, COLS or the first half, and pads them with zero rows. */
static void copy_b(const uint32_t *b, int64_t ldb, int64_t n, int tiles, room *to)
{
    const size_t bytes = (size_t)tiles * TILE_LINE;
    for (int64_t k = 0; k < TILE_PAIRS; k++)
        if (k < n)
            memcpy(to->b[k], b + k * ldb, bytes);
        else
            memset(to->b[k], 0, bytes);
}

/* Tile n of the block at c; rows, cols: those of p->c from there on. */
TILES static place place_of(const tp_amx_product *p, float *c, int64_t rows, int64_t cols, bool add,
                            int n, room *r)
{
    const int64_t y = n / SIDE * TILE_ROWS, x = n % SIDE * TILE_COLS;
    c += y * p->ldc + x;
    place t = {
        c, c, p->ldc, p->ldc, tp__least(rows - y, TILE_ROWS), tp__least(cols - x, TILE_COLS)
    };
    if (t.rows == TILE_ROWS && t.cols == TILE_COLS) return t;
    t.at = r->c[n][0];
    t.ld = TILE_COLS;
    for (int64_t k = 0; k < t.rows && add; k++)
        _mm512_store_ps(t.at + k * t.ld, _mm512_maskz_loadu_ps(first(t.cols), c + k * t.ldc));
    return t;
}

TILES static void put_back(const place *t)
{
    for (int64_t y = 0; y < t->rows && t->at != t->c; y++)
        _mm512_mask_storeu_ps(t->c + y * t->ldc, first(t->cols), _mm512_load_ps(t->at + y * t->ld));
}

/* ---- sums ---- */

/* Adds 16 pairs to tiles 0 .. 3 of c; lda, ldb: bytes; rows, cols: of tiles, constants. */
TILES TP_INLINE void step(const char *a, int64_t lda, const char *b, int64_t ldb, int rows,
                          int cols)
{
    const char *below = a + TILE_ROWS * lda, *beside = b + TILE_LINE;
    tile_load(4, a, lda);
    tile_load(6, b, ldb);
    tile_multiply(0, 4, 6);
    if (cols == SIDE) {
        tile_load(7, beside, ldb);
        tile_multiply(1, 4, 7);
    }
    if (rows == SIDE) {
        tile_load(5, below, lda);
        tile_multiply(2, 5, 6);
    }
    if (rows == SIDE && cols == SIDE) tile_multiply(3, 5, 7);
}

/* Tile n of a block of `rows` by `cols` tiles, if it has one: clears or loads it, and stores it. */
#define HAS(n)   ((n) / SIDE < rows && (n) % SIDE < cols)
#define BYTES(n) ((int64_t)sizeof(float) * t[n].ld)
#define ENTER(n)                                                                                   \
    do {                                                                                           \
        if (HAS(n) && add) tile_load(n, t[n].at, BYTES(n));                                        \
        if (HAS(n) && !add) tile_zero(n);                                                          \
    } while (0)
#define LEAVE(n)                                                                                   \
    do {                                                                                           \
        if (HAS(n)) tile_store(n, t[n].at, BYTES(n));                                              \
    } while (0)

/* The rows of a that are multiplied now, and the range of pairs. */
typedef struct strip {
    const char *a;
    int64_t lda, i, k, pairs;
} strip;

/* A block of c from column j on; rows, cols: of tiles, constants. */
TILES TP_INLINE void block(const tp_amx_product *p, const strip *s, int64_t j, room *r, int rows,
                           int cols)
{
    const bool add = p->add || s->k > 0;
    const int64_t ldb = p->ldb * (int64_t)sizeof *p->b;
    const int64_t whole = s->pairs / TILE_PAIRS, rest = s->pairs % TILE_PAIRS;
    const char *a = s->a, *b = (const char *)(p->b + s->k * p->ldb + j);
    float *c = p->c + s->i * p->ldc + j;
    place t[SIDE * SIDE];
    TP_UNROLL
    for (int n = 0; n < SIDE * SIDE; n++)
        if (HAS(n)) t[n] = place_of(p, c, p->rows - s->i, p->cols - j, add, n, r);
    ENTER(0);
    ENTER(1);
    ENTER(2);
    ENTER(3);
    for (int64_t k = 0; k < whole; k++, a += TILE_LINE, b += TILE_PAIRS * ldb)
        step(a, s->lda, b, ldb, rows, cols);
    if (rest > 0) {
        copy_b((const uint32_t *)(const void *)b, p->ldb, rest, cols, r);
        step(a, s->lda, (const char *)r->b, sizeof r->b[0], rows, cols);
    }
    LEAVE(0);
    LEAVE(1);
    LEAVE(2);
    LEAVE(3);
    TP_UNROLL
    for (int n = 0; n < SIDE * SIDE; n++)
        if (HAS(n)) put_back(&t[n]);
}

TILES TP_INLINE void columns(const tp_amx_product *p, const strip *s, room *r, int rows)
{
    int64_t j = 0;
    for (; j + TILE_COLS < p->cols; j += COLS) block(p, s, j, r, rows, SIDE);
    if (j < p->cols) block(p, s, j, r, rows, 1);
}

/* Are m rows of a read in place? */
static bool in_place(const tp_amx_product *p, int64_t m)
{
    return p->padded || (!p->turned && m % TILE_ROWS == 0 && p->pairs % TILE_PAIRS == 0);
}

/* The calling thread has configured its tiles. */
TILES void TP_KERNEL_FN(amx_multiply)(const tp_amx_product *p)
{
    _Alignas(64) room r;
    for (int64_t i = 0; i < p->rows; i += ROWS) {
        const int64_t m = tp__least(p->rows - i, ROWS);
        const bool whole = in_place(p, m);
        for (int64_t k = 0, n; k == 0 || k < p->pairs; k += n) { /* an empty sum is one, too */
            n = whole ? tp__most(p->pairs, 1) : DEEP;
            strip s = { (const char *)p->a + i * p->lda, p->lda, i, k, tp__least(p->pairs - k, n) };
            if (!whole) {
                copy_a(p, i, m, k, s.pairs, &r);
                s.a = (const char *)r.a;
                s.lda = sizeof r.a[0];
            }
            if (m > TILE_ROWS)
                columns(p, &s, &r, SIDE);
            else
                columns(p, &s, &r, 1);
        }
    }
}

TILES void TP_KERNEL_FN(amx_begin)(void)
{
    tiles_begin();
}

TILES void TP_KERNEL_FN(amx_end)(void)
{
    tiles_end();
}

#endif
