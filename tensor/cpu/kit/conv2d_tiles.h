/* conv2d_tiles.h - convolutions as matrix products, tile by tile: tiles of positions, gathering.
 *
 *     Y = X' W' + b     dX = dY' W''     dW = dY^T X'
 *
 * Row i of X' (im2col) holds the inputs under the taps of output i; dY' is the same for each input
 * (tensor/geometry/conv2d.h). Neither is stored as a whole: a task computes some columns of a tile
 * of rows. If the inputs under a row of taps are contiguous in the image, the product reads them in
 * place, and only lines that cross an edge are gathered. Otherwise all lines are gathered into L2.
 * The baseline always gathers, because OpenBLAS computes its products. */
#ifndef TP_CONV2D_TILES_H
#define TP_CONV2D_TILES_H

#include "tensor/cpu/kit/conv2d_cut.h"
#include "tensor/cpu/kit/product.h"
#include "tensor/cpu/kit/real.h"
#include "tensor/kernel.h"

/* Positions of a tile: images, rows and columns from `first` on. */
typedef struct tile {
    int64_t first[3], size[3], positions;
} tile;

static inline tile tile_of(const tp__conv2d_pass *p, const tp__conv2d_cut *t, int64_t i)
{
    const int64_t most[3] = { p->batch, p->axis[0].count, p->axis[1].count };
    const int64_t step[3] = { t->images, t->rows, t->cols };
    tile a = { .positions = 1 };
    for (int k = 2; k >= 0; k--) {
        a.first[k] = i % t->tiles[k] * step[k];
        a.size[k] = most[k] - a.first[k] < step[k] ? most[k] - a.first[k] : step[k];
        a.positions *= a.size[k];
        i /= t->tiles[k];
    }
    return a;
}

/* Offset in the result of the position (image, row, column) of a pass. */
static inline int64_t made_at(const tp__conv2d_pass *p, int64_t image, int64_t row, int64_t col)
{
    const tp__conv2d_span *h = &p->axis[0], *w = &p->axis[1];
    const int64_t at = (image * h->to + h->at + row * h->step) * w->to + w->at + col * w->step;
    return at * p->groups * p->to;
}

/* Fewest multiply-adds that a task should have. */
#define MIN_WORK 1.0e6

static inline int64_t grain_of(double work)
{
    return work < MIN_WORK ? (int64_t)(MIN_WORK / (work + 1.0)) : 1;
}

/* ---- products in bf16 ---- */

#if defined(__AVX512BW__) && !defined(TP_BASELINE) && TP_REAL == 32
void TP_KERNEL_FN(gemm_tile_bf16)(const tp_gemm_tile *t);
#endif

static inline void multiply_in(bool bf16, const tp_gemm_tile *t)
{
    (void)bf16;
#if defined(__AVX512BW__) && !defined(TP_BASELINE) && TP_REAL == 32
    if (bf16) {
        TP_KERNEL_FN(gemm_tile_bf16)(t);
        return;
    }
#endif
    multiply(t);
}

/* Does gemm_bf16.c compute the products of a pass? The shapes decide, so that all tiles and any number of
 * threads give the same bits. */
static inline bool in_bf16(const tp_call *c, const tp__conv2d_pass *p, const tp__conv2d_cut *t)
{
    return tp__gemm_takes_bf16(c->dev, product_dtype(c), t->positions, tp__least(p->to, t->width),
                               t->depth);
}

/* ---- gathering ---- */

/* Gathers the inputs under a row of taps: `taps` pieces of n channels, `hop` positions apart, from
 * position `at` of a row of the image. */
static inline void gather_line(const tp__conv2d_pass *p, const real *row, int64_t at, real *to)
{
    const tp__conv2d_span *w = &p->axis[1];
    const int64_t n = p->from, pitch = p->groups * n, step = w->hop * pitch;
    int64_t t = 0, end = w->taps;
    for (; t < end && at + t * w->hop < 0; t++) memset(to + t * n, 0, (size_t)n * sizeof *to);
    for (; end > t && at + (end - 1) * w->hop >= w->size; end--)
        memset(to + (end - 1) * n, 0, (size_t)n * sizeof *to);
    if (t == end) return;
    row += at * pitch + t * step;
    if (step == n)
        memcpy(to + t * n, row, (size_t)((end - t) * n) * sizeof *to);
    else
        for (; t < end; t++, row += step) memcpy(to + t * n, row, (size_t)n * sizeof *to);
}

/* Gathers the inputs under rows of taps [first, last) for the positions of a tile:
 * [positions][taps][channels]. at: for a single row of taps, gets the address of each position's
 * inputs, which stay in the image if they are contiguous. */
static inline void gather_tile(const tp__conv2d_pass *p, const tile *a, int64_t first, int64_t last,
                               const real *from, real *to, const void **at)
{
    const tp__conv2d_span *h = &p->axis[0], *w = &p->axis[1];
    const int64_t line = w->taps * p->from, step = p->groups * p->from, pitch = w->size * step;
    if (line == 0) return; /* without channels the map may be missing too */
    for (int64_t b = a->first[0]; b < a->first[0] + a->size[0]; b++)
        for (int64_t j = a->first[1]; j < a->first[1] + a->size[1]; j++)
            for (int64_t i = a->first[2]; i < a->first[2] + a->size[2]; i++)
                for (int64_t t = first; t < last; t++, to += line) {
                    const int64_t row = h->from + j * h->move + t * h->hop;
                    const int64_t col = w->from + i * w->move;
                    if (at) *at++ = to;
                    if (row < 0 || row >= h->size) {
                        memset(to, 0, (size_t)line * sizeof *to);
                        continue;
                    }
                    const real *image_row = from + (b * h->size + row) * pitch;
                    if (at && col >= 0 && col + w->taps <= w->size)
                        at[-1] = image_row + col * step;
                    else
                        gather_line(p, image_row, col, to);
                }
}

#endif
