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

#include "tensor/cpu/conv/conv2d_cut.h"
#include "tensor/cpu/kit/product.h"
#include "tensor/cpu/kit/real.h"
#include "tensor/cpu/kit/stored.h"
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

/* ---- types ---- */

static inline tp__conv2d_types types_of(const tp_call *c)
{
    const bool bf16 = stored_dtype(c) == TP_BF16, has = bf16 && tp__gemm_has_bf16(c->dev);
    return (tp__conv2d_types){ has ? TP_BF16 : REAL, bf16 && !has };
}

#if defined(__AVX512BW__) && !defined(TP_BASELINE) && TP_REAL == 32
void TP_KERNEL_FN(gemm_tile_bf16)(const tp_gemm_tile *t);
#endif

/* The product of operands of y.dtype. */
static inline void multiply_in(tp__conv2d_types y, tp_gemm_tile *t)
{
    (void)y;
#if defined(__AVX512BW__) && !defined(TP_BASELINE) && TP_REAL == 32
    if (y.dtype == TP_BF16) {
        t->a_bf16 = t->b_bf16 = true;
        TP_KERNEL_FN(gemm_tile_bf16)(t);
        return;
    }
#endif
    multiply(t);
}

/* Are inputs that are contiguous in the image read in place? */
static inline bool in_place(tp__conv2d_types y, const tp__conv2d_cut *t)
{
    return OWN_PRODUCT && t->direct && !y.widens;
}

/* ---- gathering ---- */

/* What is gathered: elements of the image of `stored` bytes, as elements of `size` bytes; they differ if bf16
 * is widened. */
typedef struct gathering {
    size_t stored, size;
} gathering;

static inline gathering gathering_of(tp__conv2d_types y)
{
    return (gathering){ y.widens ? sizeof(uint16_t) : tp__conv2d_size(y), tp__conv2d_size(y) };
}

static inline void copy_inputs(gathering e, const char *from, int64_t n, char *to)
{
    if (e.stored == e.size) {
        memcpy(to, from, (size_t)n * e.size);
        return;
    }
    const uint16_t *x = (const uint16_t *)(const void *)from;
    real *y = (real *)(void *)to;
    for (int64_t i = 0; i < n; i++) y[i] = (real)tp__from_bf16(x[i]);
}

/* Gathers the inputs under a row of taps: `taps` pieces of n channels, `hop` positions apart, from
 * position `at` of a row of the image. */
static inline void gather_line(const tp__conv2d_pass *p, gathering e, const char *row, int64_t at,
                               char *to)
{
    const tp__conv2d_span *w = &p->axis[1];
    const int64_t n = p->from, pitch = p->groups * n, step = w->hop * pitch;
    const size_t piece = (size_t)n * e.size;
    int64_t t = 0, end = w->taps;
    for (; t < end && at + t * w->hop < 0; t++) memset(to + (size_t)t * piece, 0, piece);
    for (; end > t && at + (end - 1) * w->hop >= w->size; end--)
        memset(to + (size_t)(end - 1) * piece, 0, piece);
    if (t == end) return;
    row += (at * pitch + t * step) * (int64_t)e.stored;
    if (step == n)
        copy_inputs(e, row, (end - t) * n, to + (size_t)t * piece);
    else
        for (; t < end; t++, row += (size_t)step * e.stored)
            copy_inputs(e, row, n, to + (size_t)t * piece);
}

/* Gathers the inputs under rows of taps [first, last) for the positions of a tile, from a group's first channel on:
 * [positions][taps][channels]. at: for a single row of taps, gets the address of each position's
 * inputs, which stay in the image if they are contiguous. */
static inline void gather_tile(const tp__conv2d_pass *p, const tile *a, int64_t first, int64_t last,
                               gathering e, const char *from, char *to, const void **at)
{
    const tp__conv2d_span *h = &p->axis[0], *w = &p->axis[1];
    const int64_t line = w->taps * p->from, step = p->groups * p->from, pitch = w->size * step;
    const size_t bytes = (size_t)line * e.size;
    if (line == 0) return; /* without channels the map may be missing too */
    for (int64_t b = a->first[0]; b < a->first[0] + a->size[0]; b++)
        for (int64_t j = a->first[1]; j < a->first[1] + a->size[1]; j++)
            for (int64_t i = a->first[2]; i < a->first[2] + a->size[2]; i++)
                for (int64_t t = first; t < last; t++, to += bytes) {
                    const int64_t row = h->from + j * h->move + t * h->hop;
                    const int64_t col = w->from + i * w->move;
                    if (at) *at++ = to;
                    if (row < 0 || row >= h->size) {
                        memset(to, 0, bytes);
                        continue;
                    }
                    const char *image_row = from + (b * h->size + row) * pitch * (int64_t)e.stored;
                    if (at && col >= 0 && col + w->taps <= w->size)
                        at[-1] = image_row + col * step * (int64_t)e.stored;
                    else
                        gather_line(p, e, image_row, col, to);
                }
}

#endif
