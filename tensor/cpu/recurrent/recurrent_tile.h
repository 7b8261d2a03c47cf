/* recurrent_tile.h - the product of one time step: a few rows of h (or of gradients) times a weight matrix
 * that was packed once for all steps.
 *
 * The matrix is packed in panels of up to 4 vectors of columns, [depth][vectors]. A tile, at most
 * ROWS_OF(vectors) rows by one panel, is summed in registers, over the whole depth in order, so its bits
 * do not depend on the other rows. A panel is read from the outer caches once per step and then meets all rows.
 * Rows are divided into tiles of nearly equal height: 8 rows are 4 and 4, not 6 and 2, because the short tile
 * would wait for the panel. */
#ifndef TP_RECURRENT_TILE_H
#define TP_RECURRENT_TILE_H

#include "tensor/cpu/kit/real.h"
#include "tensor/cpu/kit/transpose.h"
#include "tensor/cpu/kit/vector.h"
#include "tensor/geometry/whole.h"

/* 24 sums in 32 registers, 12 in 16. */
#define SUMS             (TP_VECTOR == 64 ? 24 : 12)
#define ROWS_OF(vectors) (SUMS / (vectors))
#define LANES            ((int64_t)(TP_VECTOR / sizeof(real)))
enum { MOST_ROWS = 8, MOST_VECTORS = 4 };

typedef real vec __attribute__((vector_size(TP_VECTOR)));

/* The sums of a tile, [row][vector][lane]. */
typedef struct tile {
    real at[MOST_ROWS * MOST_VECTORS * TP_VECTOR / sizeof(real)] __attribute__((aligned(64)));
} tile;

/* to = a b for `rows` rows, `step` apart, and n vectors; both are constants. */
TP_INLINE void sum_tile(const real *a, int64_t step, const real *b, int64_t depth, tile *to,
                        int rows, int n)
{
    const real *row[MOST_ROWS];
    vec sum[MOST_ROWS][MOST_VECTORS];
    TP_UNROLL
    for (int y = 0; y < MOST_ROWS; y++) {
        row[y] = a + (y < rows ? y : 0) * step;
        TP_UNROLL
        for (int x = 0; x < MOST_VECTORS; x++) sum[y][x] = (vec){ 0 };
    }
    for (int64_t k = 0; k < depth; k++, b += n * LANES) {
        vec line[MOST_VECTORS];
        TP_UNROLL
        for (int x = 0; x < MOST_VECTORS; x++) {
            if (x >= n) continue;
            line[x] = *(const vec *)(b + x * LANES);
            TP_HOLD(line[x]);
        }
        TP_UNROLL
        for (int y = 0; y < MOST_ROWS; y++) TP_UNROLL
        for (int x = 0; x < MOST_VECTORS; x++)
            if (y < rows && x < n) sum[y][x] += row[y][k] * line[x];
    }
    TP_UNROLL
    for (int y = 0; y < MOST_ROWS; y++) TP_UNROLL
    for (int x = 0; x < MOST_VECTORS; x++)
        if (y < rows && x < n) *(vec *)(to->at + (y * n + x) * LANES) = sum[y][x];
}

/* n is a constant, 3 or 4; 1 <= rows <= ROWS_OF(n). */
TP_INLINE void product_tile(const real *a, int64_t step, const real *b, int64_t depth, tile *to,
                            int64_t rows, int n)
{
    switch (rows) {
    case 1: sum_tile(a, step, b, depth, to, 1, n); break;
    case 2: sum_tile(a, step, b, depth, to, 2, n); break;
    case 3: sum_tile(a, step, b, depth, to, 3, n); break;
#if TP_VECTOR == 64
    case 4: sum_tile(a, step, b, depth, to, 4, n); break;
    case 5: sum_tile(a, step, b, depth, to, 5, n); break;
    case 6: sum_tile(a, step, b, depth, to, 6, n); break;
    case 7:
        if (n == 3) sum_tile(a, step, b, depth, to, 7, n);
        break;
    default:
        if (n == 3) sum_tile(a, step, b, depth, to, 8, n);
#else
    default:
        if (n == 3) sum_tile(a, step, b, depth, to, 4, n);
#endif
    }
}

/* The height of the next tile when `rows` rows are left. */
TP_INLINE int64_t tile_rows(int64_t rows, int n)
{
    return tp__ceil_div(rows, tp__ceil_div(rows, ROWS_OF(n)));
}

/* ---- packing ---- */

/* Elements of panels of n vectors over `cols` columns. */
static inline int64_t panels_size(int64_t depth, int64_t cols, int64_t n)
{
    return tp__ceil_div(cols, n * LANES) * n * LANES * depth;
}

/* w [gates*H,H]: the panel of units j .. j + LANES, [k][gate][unit] = w[gate * H + unit][k]. */
static inline void pack_gates(const real *w, int64_t H, int64_t gates, int64_t j, real *to)
{
    const int64_t n = tp__least(H - j, LANES);
    if (n < LANES) memset(to, 0, (size_t)(H * gates * LANES) * sizeof *to);
    for (int64_t g = 0; g < gates; g++)
        transpose(w + (g * H + j) * H, H, n, H, to + g * LANES, gates * LANES);
}

/* w [depth,H]: the panel of columns j .. j + 4 LANES. */
static inline void pack_columns(const real *w, int64_t H, int64_t depth, int64_t j, real *to)
{
    const int64_t width = MOST_VECTORS * LANES, n = tp__least(H - j, width);
    for (int64_t k = 0; k < depth; k++) {
        memcpy(to + k * width, w + k * H + j, (size_t)n * sizeof *to);
        if (n < width) memset(to + k * width + n, 0, (size_t)(width - n) * sizeof *to);
    }
}

#endif
