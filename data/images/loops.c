/* loops.c - resizing, blending and affine maps of pixels, compiled at the baseline and with -mavx2.
 *
 * A pixel is a vector of four bytes: all four are written; the next pixel overwrites the fourth.
 * Both builds give the same bits: resizing adds integers, and everything else performs the same
 * operations in the same order. */
#include "loops.h"

#include <math.h>
#include <string.h>

#ifndef TP_ISA
#define TP_ISA base
#endif
#define TP_JOIN_(a, b) a##b
#define TP_JOIN(a, b)  TP_JOIN_(a, b)

enum { HALF = 1 << (TP_WEIGHT_BITS - 1), LANES = 16 };

typedef int32_t i4 __attribute__((vector_size(16)));
typedef double d4 __attribute__((vector_size(32)));

#if defined(__AVX2__)
#include <immintrin.h>

static inline i4 load(const uint8_t *pixel)
{
    int bytes;
    memcpy(&bytes, pixel, sizeof bytes);
    return (i4)_mm_cvtepu8_epi32(_mm_cvtsi32_si128(bytes));
}

/* Clips to 0 ... 255. */
static inline void store(uint8_t *out, i4 v)
{
    const __m128i words = _mm_packs_epi32((__m128i)v, (__m128i)v);
    const int bytes = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
    memcpy(out, &bytes, sizeof bytes);
}

static void row(uint8_t *out, const uint8_t *in, int64_t stride, int64_t n, const tp_axis *a,
                int64_t o)
{
    const int32_t *weight = a->weight + o * a->most;
    const int32_t taps = a->n[o];
    in += a->first[o] * stride;
    for (int64_t i = 0; i < n; i += LANES) {
        __m256i left = _mm256_set1_epi32(HALF), right = left;
        const uint8_t *p = in + i;
        for (int32_t k = 0; k < taps; k++, p += stride) {
            const __m256i w = _mm256_set1_epi32(weight[k]);
            const __m256i low = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
            const __m256i high = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(p + 8)));
            left = _mm256_add_epi32(left, _mm256_mullo_epi32(low, w));
            right = _mm256_add_epi32(right, _mm256_mullo_epi32(high, w));
        }
        left = _mm256_srai_epi32(left, TP_WEIGHT_BITS);
        right = _mm256_srai_epi32(right, TP_WEIGHT_BITS);
        const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(left, right), 0xd8);
        const __m128i bytes =
            _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
        _mm_storeu_si128((__m128i *)(out + i), bytes);
    }
}

#else

static inline i4 load(const uint8_t *pixel)
{
    return (i4){ pixel[0], pixel[1], pixel[2], pixel[3] };
}

static inline uint8_t clip(int32_t x)
{
    return (uint8_t)(x < 0 ? 0 : x > 255 ? 255 : x);
}

static inline void store(uint8_t *out, i4 v)
{
    for (int c = 0; c < 4; c++) out[c] = clip(v[c]);
}

static void row(uint8_t *out, const uint8_t *in, int64_t stride, int64_t n, const tp_axis *a,
                int64_t o)
{
    const int32_t *weight = a->weight + o * a->most;
    const int32_t taps = a->n[o];
    in += a->first[o] * stride;
    for (int64_t i = 0; i < n; i += LANES) {
        int32_t sum[LANES];
        const uint8_t *p = in + i;
        for (int c = 0; c < LANES; c++) sum[c] = HALF;
        for (int32_t k = 0; k < taps; k++, p += stride)
            for (int c = 0; c < LANES; c++) sum[c] += p[c] * weight[k];
        for (int c = 0; c < LANES; c++) out[i + c] = clip(sum[c] >> TP_WEIGHT_BITS);
    }
}

#endif

static void columns(uint8_t *out, const uint8_t *in, const tp_axis *a)
{
    const int32_t *weight = a->weight;
    for (int64_t o = 0; o < a->outputs; o++, out += TP_RGB, weight += a->most) {
        const uint8_t *p = in + (int64_t)a->first[o] * TP_RGB;
        const int32_t n = a->n[o];
        i4 sum = { HALF, HALF, HALF, HALF };
        for (int32_t k = 0; k < n; k++) sum += load(p + (int64_t)k * TP_RGB) * weight[k];
        store(out, sum >> TP_WEIGHT_BITS);
    }
}

/* ---- blends ---- */

/* A sum of 13 pixels is never halfway between two multiples of 13: any rounding mode will do. */
static void sharpen(uint8_t *out, const uint8_t *in, int64_t stride, int64_t n, float factor)
{
    const uint8_t *above = in - stride, *below = in + stride;
    for (int64_t i = 0; i < n; i++) {
        const int64_t left = i - TP_RGB, right = i + TP_RGB;
        const int ring = above[left] + above[i] + above[right] + in[left] + in[right] +
                         below[left] + below[i] + below[right];
        const uint16_t twice = (uint16_t)(2 * (ring + 5 * in[i]) + 13);
        out[i] = tp__blend(twice / 26, in[i], factor);
    }
}

static void colour(uint8_t *rgb, int64_t n, float factor)
{
    for (int64_t i = 0; i < n; i++, rgb += TP_RGB) {
        const int grey = tp__grey(rgb);
        for (int c = 0; c < TP_RGB; c++) rgb[c] = tp__blend(grey, rgb[c], factor);
    }
}

/* ---- affine maps ----
 *
 * The cubic has a = -1, unlike that for resizing. Columns outside repeat the border. The first row
 * is clamped; a later row outside repeats the result of the row before it. With a fraction of 0 the
 * cubic is exactly its second value, so translations and shears along one axis need one row or
 * column. */

/* Macros, because the baseline has no calling convention for vectors of four doubles. */
#define REAL(pixel) __builtin_convertvector(load(pixel), d4)
/* Interpolates between b and c. */
#define CUBIC(a, b, c, d, t)                                                                       \
    ((b) +                                                                                         \
     (t) * (((c) - (a)) + (t) * ((2 * ((a) - (b)) + (c) - (d)) + (t) * (-(a) + (b) - (c) + (d)))))

/* Interpolates four pixels of a row; x[] are offsets in bytes. */
static inline void across(d4 *out, const uint8_t *line, const int64_t x[4], double t)
{
    if (t == 0) {
        *out = REAL(line + x[1]);
        return;
    }
    const d4 a = REAL(line + x[0]), b = REAL(line + x[1]), c = REAL(line + x[2]);
    const d4 d = REAL(line + x[3]);
    *out = CUBIC(a, b, c, d, t);
}

/* Interpolates at (u, v), in coordinates of pixel centres. */
static inline void bicubic(uint8_t *out, const tp_image *in, double u, double v)
{
    const double left = floor(u), top = floor(v), t = u - left;
    const int64_t x0 = (int64_t)left - 1, y0 = (int64_t)top - 1, stride = in->width * TP_RGB;
    int64_t x[4];
    d4 r[4], result;
    for (int i = 0; i < 4; i++) x[i] = tp__clamp(x0 + i, 0, in->width - 1) * TP_RGB;
    if (v == top) {
        across(&result, in->rgb + tp__clamp(y0 + 1, 0, in->height - 1) * stride, x, t);
    } else {
        across(&r[0], in->rgb + tp__clamp(y0, 0, in->height - 1) * stride, x, t);
        for (int i = 1; i < 4; i++) {
            if (y0 + i >= 0 && y0 + i < in->height)
                across(&r[i], in->rgb + (y0 + i) * stride, x, t);
            else
                r[i] = r[i - 1];
        }
        result = CUBIC(r[0], r[1], r[2], r[3], v - top);
    }
    store(out, __builtin_convertvector(result, i4));
}

static inline void bilinear(uint8_t *out, const tp_image *in, double u, double v)
{
    const double left = floor(u), top = floor(v);
    const int64_t stride = in->width * TP_RGB, y = (int64_t)top;
    const int64_t x0 = tp__clamp((int64_t)left, 0, in->width - 1) * TP_RGB;
    const int64_t x1 = tp__clamp((int64_t)left + 1, 0, in->width - 1) * TP_RGB;
    const uint8_t *upper = in->rgb + tp__clamp(y, 0, in->height - 1) * stride;
    const uint8_t *lower = y + 1 < in->height ? in->rgb + (y + 1) * stride : upper;
    const d4 a = REAL(upper + x0), c = REAL(lower + x0);
    const d4 b = a + (REAL(upper + x1) - a) * (u - left);
    const d4 d = c + (REAL(lower + x1) - c) * (u - left);
    store(out, __builtin_convertvector(b + (d - b) * (v - top), i4));
}

static void affine(tp_image *out, const tp_image *in, const double m[6], tp_filter filter,
                   const uint8_t fill[3])
{
    const double width = (double)in->width, height = (double)in->height;
    uint8_t *to = out->rgb;
    for (int64_t y = 0; y < out->height; y++) {
        const double v = (double)y + 0.5;
        for (int64_t x = 0; x < out->width; x++, to += TP_RGB) {
            const double u = (double)x + 0.5;
            const double at = m[0] * u + m[1] * v + m[2], down = m[3] * u + m[4] * v + m[5];
            if (!(at >= 0 && at < width && down >= 0 && down < height))
                memcpy(to, fill, TP_RGB);
            else if (filter == TP_BICUBIC)
                bicubic(to, in, at - 0.5, down - 0.5);
            else
                bilinear(to, in, at - 0.5, down - 0.5);
        }
    }
}

const tp_loops TP_JOIN(tp__loops_, TP_ISA) = { columns, row, sharpen, colour, affine };

#if defined(TP_ISA_DISPATCH)
const tp_loops *tp__loops(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) return &tp__loops_avx2;
#endif
    return &tp__loops_base;
}
#endif
