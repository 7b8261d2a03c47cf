/* fragments.h - the kernels of fragments.cu, which work on matrices of floats. */
#ifndef FRAGMENTS_H
#define FRAGMENTS_H

#include <tapegrad/op.h>

typedef enum fragment {
    SKEW,       /* x [16,40] -> y [16,24]: y[i][c] = x[i][16 + c - i]   */
    UNSKEW,     /* x [16,40] -> y [16,24]: y[i][u] = x[i][u + i]        */
    LEAN,       /* x [24,8] -> y [16,8]: y[i][c] = x[16 + c - i][c]     */
    TRANSPOSED, /* x [16,16] -> y [16,16]: y = x^T through ldmatrix     */
    TILES,      /* x: A, B [12,40] -> y: Z = A B^T [16,16] through tiles padded
                   with zeros to 64 columns, then Z B [16,64]             */
    SHUFFLES,   /* y [5,32]: x of lane + 3, lane - 5, a ballot, any, all */
    DROPS       /* x: a, b -> y [6,16,64]: 1 if dropout at rate 1/2 drops an element. Elements
                   (r, c) are a + b r + c for 7 and 4 tiles of columns, then a + b c + r for 4 and
                   2, a + b c + 15 - r for 2 and 8                                              */
} fragment;

#ifdef __cplusplus
extern "C"
#endif
    tp_code
    fragments_run(const tp_call *c, fragment what);

#endif
