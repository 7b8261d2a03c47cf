/* transpose.h - to[c][r] = from[r][c], one square of whole vectors at a time in registers.
 *
 * The rows of a square's first and second halves are interleaved log2(lanes) times. */
#ifndef TP_TRANSPOSE_H
#define TP_TRANSPOSE_H

#include "cpu/kit/real.h"
#include "cpu/kit/vector.h"

/* The two halves of a0 b0 a1 b1 ... */
#define TP_LOW_16(a, b)                                                                            \
    __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define TP_HIGH_16(a, b)                                                                           \
    __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define TP_LOW_8(a, b)  __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define TP_HIGH_8(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define TP_LOW_4(a, b)  __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define TP_HIGH_4(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#define TP_LOW_2(a, b)  __builtin_shufflevector(a, b, 0, 2)
#define TP_HIGH_2(a, b) __builtin_shufflevector(a, b, 1, 3)
#if TP_VECTOR * 8 / TP_REAL == 16
#define TP_LOW  TP_LOW_16
#define TP_HIGH TP_HIGH_16
#elif TP_VECTOR * 8 / TP_REAL == 8
#define TP_LOW  TP_LOW_8
#define TP_HIGH TP_HIGH_8
#elif TP_VECTOR * 8 / TP_REAL == 4
#define TP_LOW  TP_LOW_4
#define TP_HIGH TP_HIGH_4
#else
#define TP_LOW  TP_LOW_2
#define TP_HIGH TP_HIGH_2
#endif

/* Transposes a square whose row i begins at from + at[i], or at from + i ld if at is NULL. */
TP_INLINE void transpose_square(const real *from, const int64_t *at, int64_t ld, real *to,
                                int64_t ldt)
{
    enum { W = TP_VECTOR / sizeof(real) };
    vec x[W], y[W];
    TP_UNROLL
    for (int i = 0; i < W; i++) x[i] = vec_load(from + (at ? at[i] : i * ld));
    TP_UNROLL
    for (int s = 1; s < W; s *= 2) {
        TP_UNROLL
        for (int i = 0; i < W / 2; i++) {
            y[2 * i] = TP_LOW(x[i], x[i + W / 2]);
            y[2 * i + 1] = TP_HIGH(x[i], x[i + W / 2]);
        }
        TP_UNROLL
        for (int i = 0; i < W; i++) x[i] = y[i];
    }
    TP_UNROLL
    for (int i = 0; i < W; i++) vec_store(to + i * ldt, x[i]);
}

static inline void transpose(const real *from, int64_t ld, int64_t rows, int64_t cols, real *to,
                             int64_t ldt)
{
    const int64_t W = TP_VECTOR / (int64_t)sizeof(real);
    const int64_t whole_rows = rows / W * W, whole_cols = cols / W * W;
    for (int64_t r = 0; r < whole_rows; r += W)
        for (int64_t c = 0; c < whole_cols; c += W)
            transpose_square(from + r * ld + c, NULL, ld, to + c * ldt + r, ldt);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = r < whole_rows ? whole_cols : 0; c < cols; c++)
            to[c * ldt + r] = from[r * ld + c];
}

#endif
