/* resize.c - antialiased resizing, bit-identical to Pillow's.
 *
 *     out[o] = sum_k weight[o][k] in[first[o] + k]
 *
 * Columns are resized first, then rows; pixels have 8 bits between the passes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "loops.h"

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

/* The weights of output o, which sum to 1; `real` is scratch for them as doubles. */
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

/* Resizes the columns of the rows that are needed, then the rows. */
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

/* Skips an axis that keeps its size. */
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
