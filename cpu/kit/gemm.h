/* gemm.h - the tile of a matrix product that one thread computes with the kernels of gemm.c, and
 * the memory for its packed operands. */
#ifndef TP_GEMM_H
#define TP_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tapegrad/device.h>

enum {
    TP_GEMM_STRIP = 6,   /* rows summed at a time */
    TP_GEMM_AMX = 32,    /* by AMX: two tiles of 16 */
    TP_GEMM_DEPTH = 384, /* k of a block: longer sums accumulate in C; vdpbf16ps: twice that */
    TP_GEMM_COLS = 1024, /* bytes of a row of a block of B; its 384 KB stay in L2 */
    TP_GEMM_TILE = 516,  /* most rows of a thread's tile: whole strips */
    TP_GEMM_WIDE = 256,  /* k of a block of bf16 numbers widened to f32 */
    TP_GEMM_ROWS = 384,  /* bytes of a column of a block of a transposed A */
    TP_GEMM_PANEL = 256, /* rows of a block are rounded up to multiples of it, in bytes */
    TP_GEMM_PAD = 64     /* bytes between rows of A^T: rows 4 KB apart share a cache set */
};

/* C[m,n] = or += op(A) op(B), row-major. Any size may be 0. */
typedef struct tp_gemm_tile {
    bool ta, tb, add;
    int64_t m, n, k;
    const void *a, *b;
    void *c;
    int64_t lda, ldb, ldc;
    const void *const
        *rows;           /* or NULL; row addresses of A instead of a, or of B if ta and not tb */
    const void *panels;  /* or NULL; B already packed, instead of b */
    void *work;          /* tp__gemm_scratch bytes, 64-byte aligned */
    bool a_bf16, b_bf16; /* gemm_bf16.c only: A, B are stored as bf16 */
    bool amx;            /* gemm_bf16.c only: multiplies by the tiles of AMX */
} tp_gemm_tile;

/* Most elements in the panels of a B with k rows and n columns. */
static inline int64_t tp__gemm_panels(tp_dtype dtype, int64_t k, int64_t n)
{
    const int64_t cols = TP_GEMM_PANEL / (int64_t)tp_dtype_size(dtype);
    return k * ((n + cols - 1) / cols * cols);
}

/* Bytes that a thread needs in addition for operands stored as bf16: the f32 sums of a tile, whose
 * rows are whole panels, and blocks of A and B widened to f32 on processors without bf16
 * instructions. */
static inline size_t tp__gemm_tile_sums(int64_t size)
{
    const size_t most = TP_GEMM_COLS / sizeof(float);
    const size_t cols = (size_t)tp__gemm_panels(TP_F32, 1, size);
    return TP_GEMM_TILE * (cols < most ? cols : most) * sizeof(float);
}

static inline size_t tp__gemm_widened(int64_t size)
{
    const size_t cols = TP_GEMM_COLS / sizeof(float);
    const size_t n = size < (int64_t)cols ? (size_t)(size + 15) / 16 * 16 : cols;
    return (TP_GEMM_TILE + n) * TP_GEMM_WIDE * sizeof(float);
}

/* Bytes that one thread needs for products with at most `size` columns and `size` terms per sum.
 * dtype: of the stored operands. */
static inline size_t tp__gemm_scratch(tp_dtype dtype, int64_t size)
{
    if (dtype == TP_BF16)
        return tp__gemm_scratch(TP_F32, size) + tp__gemm_tile_sums(size) + tp__gemm_widened(size);
    const size_t bytes = tp_dtype_size(dtype);
    const size_t depth = size < TP_GEMM_DEPTH ? (size_t)size : (size_t)TP_GEMM_DEPTH;
    const size_t row = ((size_t)size * bytes + TP_GEMM_PANEL - 1) / TP_GEMM_PANEL * TP_GEMM_PANEL;
    const size_t a = TP_GEMM_ROWS / bytes * (depth * bytes + TP_GEMM_PAD);
    return (depth * (row < TP_GEMM_COLS ? row : (size_t)TP_GEMM_COLS) + a + 63) / 64 * 64;
}

/* Does gemm_bf16.c compute a product of this size on D? dtype: TP_BF16 if they were bf16. */
bool tp__gemm_takes_bf16(const tp_device *D, tp_dtype dtype, int64_t m, int64_t n, int64_t k);
/* The same for operands stored as bf16: nothing is rounded, so smaller products pay. */
bool tp__gemm_has_bf16(const tp_device *D);

#endif
