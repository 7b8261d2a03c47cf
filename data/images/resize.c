/* resize.c - resizes images: antialiased, bit-identical to Pillow's, or bilinear without
 * antialiasing, bit-identical to OpenCV's INTER_LINEAR for 8 bits. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "loops.h"

/* ---- antialiased ----
 *
 *     out[o] = sum_k weight[o][k] in[first[o] + k]
 *
 * Columns are resized first, then rows; pixels have 8 bits between the passes. */

/* The part of an axis to compute: outputs from .. from + count - 1. */
typedef struct span {
    int64_t inputs, outputs, from, count;
} span;

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

/* Computes the weights of output o, which sum to 1; `real` is scratch for them as doubles. */
static void weigh(tp_axis *a, int64_t o, const span *s, tp_filter filter, double *real)
{
    const double scale = (double)s->inputs / (double)s->outputs;
    const double support = support_of(filter, scale), per_input = 1 / fmax(scale, 1);
    const double centre = ((double)(s->from + o) + 0.5) * scale;
    const double from = centre - support + 0.5, to = centre + support + 0.5;
    const int64_t first = from > 0 ? (int64_t)from : 0;
    const int64_t end = to < (double)s->inputs ? (int64_t)to : s->inputs;
    int32_t *weight = a->weight + o * a->most;
    double sum = 0;
    a->first[o] = (int32_t)first;
    a->n[o] = (int32_t)(end - first);
    if (o == 0) a->begin = first;
    a->end = end;
    for (int64_t i = first; i < end; i++) {
        const double x = ((double)i - centre + 0.5) * per_input;
        sum += real[i - first] = filter == TP_BICUBIC ? cubic(x) : triangle(x);
    }
    for (int64_t k = 0; k < end - first; k++) {
        const double w = real[k] / sum * (1 << TP_WEIGHT_BITS);
        weight[k] = (int32_t)(w < 0 ? w - 0.5 : w + 0.5);
    }
}

static bool plan(tp_axis *a, const span *s, tp_filter filter)
{
    const double scale = (double)s->inputs / (double)s->outputs;
    const int64_t n = s->count, most = 2 * (int64_t)ceil(support_of(filter, scale)) + 1;
    int32_t *memory = malloc((size_t)(n * (most + 2)) * sizeof *memory);
    double *real = calloc((size_t)most, sizeof *real);
    const bool ok = memory && real;
    *a = (tp_axis){
        .outputs = n, .most = most, .first = memory, .n = memory + n, .weight = memory + 2 * n
    };
    for (int64_t o = 0; ok && o < n; o++) weigh(a, o, s, filter, real);
    free(real);
    if (ok) return true;
    free(memory);
    *a = (tp_axis){ 0 };
    return false;
}

static void all_rows(tp_image *out, const uint8_t *in, int64_t stride, const tp_axis *down)
{
    const int64_t n = out->width * TP_RGB;
    for (int64_t y = 0; y < out->height; y++)
        tp__loops()->row(out->rgb + y * n, in, stride, n, down, y);
}

static void all_columns(uint8_t *out, const uint8_t *in, int64_t stride, int64_t height,
                        const tp_axis *across)
{
    for (int64_t y = 0; y < height; y++)
        tp__loops()->columns(out + y * across->outputs * TP_RGB, in + y * stride, across);
}

/* Resizes the columns of the rows needed, then the rows. */
static bool both(tp_image *out, const uint8_t *in, int64_t stride, const tp_axis *across,
                 const tp_axis *down)
{
    const int64_t packed = out->width * TP_RGB, height = down->end - down->begin;
    uint8_t *half = malloc((size_t)(packed * height) + TP_SLACK);
    tp_axis moved = *down;
    if (!half) return false;
    all_columns(half, in + down->begin * stride, stride, height, across);
    for (int64_t o = 0; o < moved.outputs; o++) moved.first[o] -= (int32_t)down->begin;
    all_rows(out, half, packed, &moved);
    free(half);
    return true;
}

/* Skips an axis whose size does not change. */
static bool resize(tp_image *out, const uint8_t *in, int64_t stride, const span *x, const span *y,
                   tp_filter filter)
{
    tp_axis across = { 0 }, down = { 0 };
    bool ok = plan(&across, x, filter) && plan(&down, y, filter);
    if (ok && x->inputs == x->outputs)
        all_rows(out, in + x->from * TP_RGB, stride, &down);
    else if (ok && y->inputs == y->outputs)
        all_columns(out->rgb, in + y->from * stride, stride, y->count, &across);
    else if (ok)
        ok = both(out, in, stride, &across, &down);
    free(across.first);
    free(down.first);
    return ok;
}

bool tp__image_resize(tp_image *out, const tp_image *in, tp_box b, int64_t width, int64_t height,
                      tp_box window, tp_filter filter)
{
    const int64_t stride = in->width * TP_RGB;
    const span x = { b.width, width, window.x, window.width };
    const span y = { b.height, height, window.y, window.height };
    if (b.width == width && b.height == height) {
        window.x += b.x;
        window.y += b.y;
        return tp_image_crop(out, in, window, NULL);
    }
    if (!tp_image_new(out, window.width, window.height)) return false;
    return resize(out, in->rgb + b.y * stride + b.x * TP_RGB, stride, &x, &y, filter) ||
           tp__image_no_memory(out, "out of memory to resize an image to %lld x %lld",
                               (long long)width, (long long)height);
}

bool tp_image_resize(tp_image *out, const tp_image *in, const tp_box *box, int64_t width,
                     int64_t height, tp_filter filter)
{
    if (!out) return false;
    const tp_image_opts o = { .box = box ? *box : (tp_box){ 0 } };
    tp_box b;
    if (!tp_image_ok(in)) return tp__image_fail_as(out, in);
    if (!tp__image_box(out, &o, in->width, in->height, &b)) return false;
    return tp__image_resize(out, in, b, width, height, (tp_box){ 0, 0, width, height }, filter);
}

/* ---- bilinear without antialiasing ----
 *
 *     out = (1 - f) in[i] + f in[i + 1],  i + f = (o + 1/2) inputs / outputs - 1/2
 *
 * along columns, then along rows. Fractions are multiples of 2^-11. Sums along columns are exact;
 * those along rows lose 4 bits before and 16 after the product with a fraction. Halving both sides
 * averages four pixels. */

enum { BITS = 11, ONE = 1 << BITS };

/* An output is weight[0] in[at[0]] + weight[1] in[at[1]]. */
typedef struct tap {
    int64_t at[2];
    int32_t weight[2];
} tap;

static int64_t inside(int64_t i, int64_t n)
{
    return i < 0 ? 0 : i < n ? i : n - 1;
}

/* Computes the taps of an axis. Beyond the first and last input, columns take only that input; rows
 * keep their fraction, with the same input twice, which rounds differently. NULL: out of memory. */
static tap *taps_of(int64_t inputs, int64_t outputs, bool columns)
{
    const double scale = 1 / ((double)outputs / (double)inputs);
    tap *t = malloc((size_t)outputs * sizeof *t);
    for (int64_t o = 0; t && o < outputs; o++) {
        const float at = (float)(((double)o + 0.5) * scale - 0.5);
        const int64_t i = (int64_t)floorf(at);
        const float f = columns && (i < 0 || i >= inputs - 1) ? 0 : at - (float)i;
        t[o] = (tap){ { inside(i, inputs), inside(i + 1, inputs) },
                      { (int32_t)lrintf((1 - f) * ONE), (int32_t)lrintf(f * ONE) } };
    }
    return t;
}

/* Resizes an input row along its columns: exact sums [width * 3]. */
static void resize_columns(int32_t *sum, const uint8_t *in, const tap *t, int64_t width)
{
    for (int64_t o = 0; o < width; o++, sum += TP_RGB) {
        const uint8_t *a = in + t[o].at[0] * TP_RGB, *b = in + t[o].at[1] * TP_RGB;
        for (int c = 0; c < TP_RGB; c++) sum[c] = a[c] * t[o].weight[0] + b[c] * t[o].weight[1];
    }
}

static void resize_rows(uint8_t *out, const int32_t *a, const int32_t *b, const int32_t weight[2],
                        int64_t n)
{
    const int32_t u = weight[0], v = weight[1];
    for (int64_t i = 0; i < n; i++)
        out[i] = (uint8_t)(((u * (a[i] >> 4) >> 16) + (v * (b[i] >> 4) >> 16) + 2) >> 2);
}

/* The two rows of an output are neighbours or the same: a row's parity is its place in `sum`. They
 * are kept for the next output. */
static bool bilinear(tp_image *out, const tp_image *in)
{
    const int64_t n = out->width * TP_RGB, stride = in->width * TP_RGB;
    tap *across = taps_of(in->width, out->width, true),
        *down = taps_of(in->height, out->height, false);
    int32_t *sum = calloc((size_t)(2 * n), sizeof *sum);
    int64_t held[2] = { -1, -1 };
    const bool done = across && down && sum;
    for (int64_t o = 0; done && o < out->height; o++) {
        const int64_t *at = down[o].at, first = (at[0] & 1) * n, second = (at[1] & 1) * n;
        for (int k = 0; k < 2; k++) {
            if (held[at[k] & 1] == at[k]) continue;
            held[at[k] & 1] = at[k];
            resize_columns(sum + (at[k] & 1) * n, in->rgb + at[k] * stride, across, out->width);
        }
        resize_rows(out->rgb + o * n, sum + first, sum + second, down[o].weight, n);
    }
    free(across);
    free(down);
    free(sum);
    return done;
}

static void halve(tp_image *out, const tp_image *in)
{
    const int64_t stride = in->width * TP_RGB;
    for (int64_t y = 0; y < out->height; y++)
        for (int64_t x = 0; x < out->width; x++) {
            const uint8_t *a = in->rgb + 2 * y * stride + 2 * x * TP_RGB, *b = a + stride;
            uint8_t *to = out->rgb + (y * out->width + x) * TP_RGB;
            for (int c = 0; c < TP_RGB; c++)
                to[c] = (uint8_t)((a[c] + a[c + TP_RGB] + b[c] + b[c + TP_RGB] + 2) >> 2);
        }
}

bool tp_image_resize_linear(tp_image *out, const tp_image *in, int64_t width, int64_t height)
{
    if (!out) return false;
    if (!tp_image_ok(in)) return tp__image_fail_as(out, in);
    if (in->width == width && in->height == height) return tp_image_copy(out, in);
    if (!tp_image_new(out, width, height)) return false;
    if (in->width == 2 * width && in->height == 2 * height) {
        halve(out, in);
        return true;
    }
    if (bilinear(out, in)) return true;
    return tp__image_no_memory(out, "out of memory to resize an image to %lld x %lld",
                               (long long)width, (long long)height);
}
