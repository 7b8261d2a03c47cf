/* loops.h - the pixel loops that take most of the time, compiled for the baseline and for AVX2 with
 * the same bits. */
#ifndef TP_IMAGE_LOOPS_H
#define TP_IMAGE_LOOPS_H

#include "inner.h"

enum { TP_WEIGHT_BITS = 22 };

/* How to resize one axis: output o is a weighted sum of n[o] inputs from first[o] on. Weights are
 * multiples of 2^-22, so that sums are exact in 32 bits in any order. */
typedef struct tp_axis {
    int64_t outputs, most; /* most: largest n[o], and the stride of the weights */
    int64_t begin, end;    /* range of inputs that the outputs need             */
    int32_t *first, *n, *weight;
} tp_axis;

/* Rows may be read and written up to TP_SLACK bytes beyond their end. */
typedef struct tp_loops {
    /* Resizes one row along its columns. */
    void (*columns)(uint8_t *out, const uint8_t *in, const tp_axis *a);
    /* Computes one row of n bytes: output o of input rows `stride` bytes apart. */
    void (*row)(uint8_t *out, const uint8_t *in, int64_t stride, int64_t n, const tp_axis *a,
                int64_t o);
    /* Blends n bytes of an inner row with their smoothing (1 1 1, 1 5 1, 1 1 1) / 13. */
    void (*sharpen)(uint8_t *out, const uint8_t *in, int64_t stride, int64_t n, float factor);
    /* Blends n pixels with their grey, in place. */
    void (*colour)(uint8_t *rgb, int64_t n, float factor);
    /* tp_image_affine, without checks. */
    void (*affine)(tp_image *out, const tp_image *in, const double m[6], tp_filter filter,
                   const uint8_t fill[3]);
} tp_loops;

extern const tp_loops tp__loops_base, tp__loops_avx2; /* the latter on x86-64 only */
const tp_loops *tp__loops(void);                      /* for this processor */

/* Returns a + f (b - a) in float32, clamped to 0 ... 255 and truncated. */
static inline uint8_t tp__blend(int a, int b, float f)
{
    const float x = (float)a + f * (float)(b - a);
    return (uint8_t)(int)(x <= 0 ? 0 : x >= 255 ? 255 : x);
}

static inline int tp__grey(const uint8_t *v)
{
    return (19595 * v[0] + 38470 * v[1] + 7471 * v[2] + (1 << 15)) >> 16;
}

#endif
