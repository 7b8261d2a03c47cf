/* image_affine.c - pictures turned, sheared and moved, equal to Pillow's bit for bit.
 *
 * The cubic has a = -1, unlike that of resizing. A pixel is a vector of four doubles, of which
 * three count. Columns outside repeat the border; of the rows the first is clamped, and a later one
 * outside repeats the result of the row before it. Where a fraction is 0 the cubic is its second
 * value, exactly: moves and shears along one axis need no more than one row or column. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image_inner.h"

typedef uint8_t b4 __attribute__((vector_size(4)));
typedef int32_t i4 __attribute__((vector_size(16)));
typedef double d4 __attribute__((vector_size(32)));

static inline __attribute__((always_inline)) void load(d4 *v, const uint8_t *pixel)
{
    b4 bytes;
    memcpy(&bytes, pixel, sizeof bytes);
    *v = __builtin_convertvector(__builtin_convertvector(bytes, i4), d4);
}

/* Between v[1] and v[2]. */
static inline __attribute__((always_inline)) void cubic(d4 *out, const d4 v[4], double t)
{
    const d4 p2 = v[2] - v[0], p3 = 2 * (v[0] - v[1]) + v[2] - v[3];
    const d4 p4 = -v[0] + v[1] - v[2] + v[3];
    *out = v[1] + t * (p2 + t * (p3 + t * p4));
}

static inline __attribute__((always_inline)) int64_t clamp(int64_t x, int64_t top)
{
    return x < 0 ? 0 : x > top ? top : x;
}

/* Four columns of a row, x[] in bytes. */
static inline __attribute__((always_inline)) void across(d4 *out, const uint8_t *row,
                                                         const int64_t x[4], double t)
{
    d4 v[4];
    if (t == 0) {
        load(out, row + x[1]);
        return;
    }
    for (int i = 0; i < 4; i++) load(&v[i], row + x[i]);
    cubic(out, v, t);
}

/* out is clipped and cut to whole numbers. */
static inline __attribute__((always_inline)) void store(uint8_t *to, const d4 *v)
{
    i4 whole = __builtin_convertvector(*v, i4);
    whole &= ~(whole >> 31);
    const i4 over = whole > 255;
    whole = (whole & ~over) | (over & 255);
    const b4 bytes = __builtin_convertvector(whole, b4);
    memcpy(to, &bytes, sizeof bytes);
}

/* The value at (u, v), in the coordinates of pixel centres. */
static inline __attribute__((always_inline)) void bicubic(uint8_t *to, const tp_image *in, double u,
                                                          double v)
{
    const double left = floor(u), top = floor(v);
    const int64_t x0 = (int64_t)left - 1, y0 = (int64_t)top - 1, stride = in->width * TP_RGB;
    int64_t x[4];
    d4 line[4], result;
    for (int i = 0; i < 4; i++) x[i] = clamp(x0 + i, in->width - 1) * TP_RGB;
    if (v == top) {
        across(&result, in->rgb + clamp(y0 + 1, in->height - 1) * stride, x, u - left);
    } else {
        across(&line[0], in->rgb + clamp(y0, in->height - 1) * stride, x, u - left);
        for (int i = 1; i < 4; i++)
            if (y0 + i >= 0 && y0 + i < in->height)
                across(&line[i], in->rgb + (y0 + i) * stride, x, u - left);
            else
                line[i] = line[i - 1];
        cubic(&result, line, v - top);
    }
    store(to, &result);
}

static inline __attribute__((always_inline)) void bilinear(uint8_t *to, const tp_image *in,
                                                           double u, double v)
{
    const double left = floor(u), top = floor(v);
    const int64_t stride = in->width * TP_RGB, y = (int64_t)top;
    const int64_t x0 = clamp((int64_t)left, in->width - 1) * TP_RGB;
    const int64_t x1 = clamp((int64_t)left + 1, in->width - 1) * TP_RGB;
    const uint8_t *upper = in->rgb + clamp(y, in->height - 1) * stride;
    const uint8_t *lower = y + 1 < in->height ? in->rgb + (y + 1) * stride : upper;
    d4 a, b, c, d, result;
    load(&a, upper + x0);
    load(&b, upper + x1);
    load(&c, lower + x0);
    load(&d, lower + x1);
    a += (b - a) * (u - left);
    c += (d - c) * (u - left);
    result = a + (c - a) * (v - top);
    store(to, &result);
}

/* Each pixel is written with a fourth byte, which the next pixel overwrites. */
TP_BODY transform_body(tp_image *out, const tp_image *in, const double m[6], tp_filter filter,
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
TP_WIDE(transform,
        (tp_image * out, const tp_image *in, const double m[6], tp_filter filter,
         const uint8_t fill[3]),
        (out, in, m, filter, fill))

bool tp_image_affine(tp_image *out, const tp_image *in, const double m[6], tp_filter filter,
                     const uint8_t fill[3])
{
    if (!tp_image_ok(in)) return tp__image_fail(out, "%s", in->why);
    if (!tp_image_new(out, in->width, in->height)) return false;
    transform(out, in, m, filter, fill);
    return true;
}

/* To 15 decimals, exactly as printing and reading it again. */
static double rounded(double x)
{
    char text[32];
    snprintf(text, sizeof text, "%.15f", x);
    return strtod(text, NULL);
}

void tp_image_rotation(const tp_image *in, double degrees, double m[6])
{
    const double turn = fmod(degrees, 360), pi = 3.141592653589793;
    const double angle = -((turn < 0 ? turn + 360 : turn) * (pi / 180));
    const double x = (double)in->width / 2, y = (double)in->height / 2;
    const double c = rounded(cos(angle)), s = rounded(sin(angle)), d = rounded(-sin(angle));
    const double turned[6] = { c, s, c * -x + s * -y + x, d, c, d * -x + c * -y + y };
    memcpy(m, turned, sizeof turned);
}
