/* loops.h - the loops over pixels that take the time. They are compiled for the baseline and
 * for AVX2, with the same bits, and the processor chooses. */
#ifndef TP_IMAGE_LOOPS_H
#define TP_IMAGE_LOOPS_H

#include "inner.h"

enum { TP_WEIGHT_BITS = 22 };

/* How one axis is resized: output o is made of n[o] inputs from first[o] on, with whole numbers of
 * 2^-22 as weights, so that sums are exact in 32 bits whatever their order. */
typedef struct tp_axis {
    int64_t outputs, most; /* most: taps of any output, and the distance of their weights */
    int64_t begin, end;    /* the inputs that all of them need                            */
    int32_t *first, *n, *weight;
} tp_axis;

/* Rows may be written up to TP_SLACK bytes beyond their end, and read so. */
typedef struct tp_loops {
    /* One row, resized along it. */
    void (*columns)(uint8_t *out, const uint8_t *in, const tp_axis *a);
    /* One row of n bytes: output o of rows that lie `stride` bytes apart. */
    void (*row)(uint8_t *out, const uint8_t *in, int64_t stride, int64_t n, const tp_axis *a,
                int64_t o);
    /* One row away from the border: n bytes blended with (1 1 1, 1 5 1, 1 1 1) / 13. */
    void (*sharpen)(uint8_t *out, const uint8_t *in, int64_t stride, int64_t n, float factor);
    /* n pixels in place, blended with their grey. */
    void (*colour)(uint8_t *rgb, int64_t n, float factor);
    /* tp_image_affine, without checks. */
    void (*affine)(tp_image *out, const tp_image *in, const double m[6], tp_filter filter,
                   const uint8_t fill[3]);
} tp_loops;

extern const tp_loops tp__loops_base, tp__loops_avx2; /* the latter on x86-64 only */
const tp_loops *tp__loops(void);                      /* what this processor runs  */

/* a + f (b - a) in float32, cut to a whole number of 0 to 255. */
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
