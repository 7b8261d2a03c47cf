/* image_resize.c - antialiased resizing, equal to Pillow's bit for bit.
 *
 *     out[o] = sum_k weight[o][k] in[first[o] + k]      columns first, then rows, 8 bits in between
 *
 * Weights are whole numbers of 2^-22, so that sums are exact in 32 bits whatever their order. A
 * pixel is summed as a vector of four bytes, rows sixteen bytes at a time. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "image_inner.h"

enum { BITS = 22, HALF = 1 << (BITS - 1), LANES = 16 };

typedef uint8_t b4 __attribute__((vector_size(4)));
typedef int32_t i4 __attribute__((vector_size(16)));
typedef uint8_t b16 __attribute__((vector_size(LANES)));
typedef int32_t i16 __attribute__((vector_size(4 * LANES)));

/* How one axis is resized: output o is made of n[o] inputs from first[o] on. */
typedef struct axis {
    int64_t outputs, most; /* most: taps of any output */
    int32_t *first, *n, *weight;
} axis;

static double cubic(double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

static double triangle(double x)
{
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

static double support_of(tp_filter filter, double scale)
{
    return (filter == TP_BICUBIC ? 2 : 1) * fmax(scale, 1);
}

static int64_t most_taps(tp_filter filter, int64_t inputs, int64_t outputs)
{
    const double scale = (double)inputs / (double)outputs;
    return 2 * (int64_t)ceil(support_of(filter, scale)) + 1;
}

/* The weights of output o, which sum to 1, in `real` first. */
static void weigh(axis *a, int64_t o, tp_filter filter, int64_t inputs, double *real)
{
    const double scale = (double)inputs / (double)a->outputs;
    const double support = support_of(filter, scale), centre = ((double)o + 0.5) * scale;
    const double per_input = 1 / fmax(scale, 1);
    const double from = centre - support + 0.5, to = centre + support + 0.5;
    const int64_t first = from > 0 ? (int64_t)from : 0;
    const int64_t end = to < (double)inputs ? (int64_t)to : inputs;
    int32_t *weight = a->weight + o * a->most;
    double sum = 0;
    a->first[o] = (int32_t)first;
    a->n[o] = (int32_t)(end - first);
    for (int64_t i = first; i < end; i++) {
        const double x = ((double)i - centre + 0.5) * per_input;
        sum += real[i - first] = filter == TP_BICUBIC ? cubic(x) : triangle(x);
    }
    for (int64_t k = 0; k < end - first; k++) {
        const double w = real[k] / sum * (1 << BITS);
        weight[k] = (int32_t)(w < 0 ? w - 0.5 : w + 0.5);
    }
}

static bool plan(axis *a, tp_filter filter, int64_t inputs, int64_t outputs)
{
    const int64_t most = most_taps(filter, inputs, outputs);
    int32_t *memory = malloc((size_t)(outputs * (most + 2)) * sizeof *memory);
    double *real = calloc((size_t)most, sizeof *real);
    const bool ok = memory && real;
    *a = (axis){ outputs, most, memory, memory + outputs, memory + 2 * outputs };
    for (int64_t o = 0; ok && o < outputs; o++) weigh(a, o, filter, inputs, real);
    free(real);
    if (!ok) free(memory);
    return ok;
}

/* One row: each pixel is written with a fourth byte, which the next pixel overwrites. */
TP_BODY columns_body(uint8_t *out, const uint8_t *in, const axis *a)
{
    const int32_t *weight = a->weight;
    for (int64_t o = 0; o < a->outputs; o++, out += TP_RGB, weight += a->most) {
        const uint8_t *p = in + (int64_t)a->first[o] * TP_RGB;
        const int32_t n = a->n[o];
        i4 sum = { HALF, HALF, HALF, HALF };
        b4 pixel;
        for (int32_t k = 0; k < n; k++, p += TP_RGB) {
            memcpy(&pixel, p, sizeof pixel);
            sum += __builtin_convertvector(pixel, i4) * weight[k];
        }
        sum >>= BITS;
        sum &= ~(sum >> 31);
        const i4 over = sum > 255;
        sum = (sum & ~over) | (over & 255);
        pixel = __builtin_convertvector(sum, b4);
        memcpy(out, &pixel, sizeof pixel);
    }
}
TP_WIDE(columns, (uint8_t * out, const uint8_t *in, const axis *a), (out, in, a))

/* One row of n bytes out of rows that lie `stride` apart; writes whole vectors. */
TP_BODY row_body(uint8_t *out, const uint8_t *in, int64_t stride, int64_t n, const axis *a,
                 int64_t o)
{
    const int32_t *weight = a->weight + o * a->most;
    const int32_t taps = a->n[o];
    in += a->first[o] * stride;
    for (int64_t i = 0; i < n; i += LANES) {
        const uint8_t *p = in + i;
        i16 sum = { 0 };
        b16 bytes;
        for (int32_t k = 0; k < taps; k++, p += stride) {
            memcpy(&bytes, p, sizeof bytes);
            sum += __builtin_convertvector(bytes, i16) * weight[k];
        }
        sum = (sum + HALF) >> BITS;
        sum &= ~(sum >> 31);
        const i16 over = sum > 255;
        sum = (sum & ~over) | (over & 255);
        bytes = __builtin_convertvector(sum, b16);
        memcpy(out + i, &bytes, sizeof bytes);
    }
}
TP_WIDE(row,
        (uint8_t * out, const uint8_t *in, int64_t stride, int64_t n, const axis *a, int64_t o),
        (out, in, stride, n, a, o))

static bool rows(tp_image *out, const uint8_t *in, int64_t stride, int64_t inputs, tp_filter filter)
{
    axis a;
    const int64_t n = out->width * TP_RGB;
    if (!plan(&a, filter, inputs, out->height)) return false;
    for (int64_t y = 0; y < out->height; y++) row(out->rgb + y * n, in, stride, n, &a, y);
    free(a.first);
    return true;
}

/* `height` rows into packed ones. */
static bool all_columns(uint8_t *out, int64_t width, const uint8_t *in, int64_t stride,
                        const tp_box *box, tp_filter filter)
{
    axis a;
    if (!plan(&a, filter, box->width, width)) return false;
    for (int64_t y = 0; y < box->height; y++)
        columns(out + y * width * TP_RGB, in + y * stride, &a);
    free(a.first);
    return true;
}

static bool both(tp_image *out, const uint8_t *in, int64_t stride, const tp_box *box,
                 tp_filter filter)
{
    const int64_t packed = out->width * TP_RGB;
    uint8_t *half = malloc((size_t)(packed * box->height) + TP_SLACK);
    const bool ok = half && all_columns(half, out->width, in, stride, box, filter) &&
                    rows(out, half, packed, box->height, filter);
    free(half);
    return ok;
}

bool tp_image_resize(tp_image *out, const tp_image *in, const tp_box *box, int64_t width,
                     int64_t height, tp_filter filter)
{
    const tp_box all = { 0, 0, in->width, in->height };
    bool ok = true;
    if (!tp_image_ok(in)) return tp__image_fail(out, "%s", in->why);
    const tp_image_opts o = { .box = box ? *box : all };
    tp_box b;
    if (!tp__image_box(out, &o, in->width, in->height, &b)) return false;
    if (b.width == width && b.height == height) return tp_image_crop(out, in, b, NULL);
    if (!tp_image_new(out, width, height)) return false;
    const int64_t stride = in->width * TP_RGB;
    const uint8_t *from = in->rgb + b.y * stride + b.x * TP_RGB;
    if (b.height == height)
        ok = all_columns(out->rgb, width, from, stride, &b, filter);
    else if (b.width == width)
        ok = rows(out, from, stride, b.height, filter);
    else
        ok = both(out, from, stride, &b, filter);
    return ok || tp__image_fail(out, "out of memory to resize a picture to %lld x %lld",
                                (long long)width, (long long)height);
}
