/* resize_linear.c - bilinear resizing without antialiasing, bit-identical to OpenCV's INTER_LINEAR for 8 bits.
 *
 *     out = (1 - f) in[i] + f in[i + 1],  i + f = (o + 1/2) inputs / outputs - 1/2
 *
 * along columns, then along rows. Fractions are multiples of 2^-11. Sums along columns are exact; those along rows lose
 * 4 bits before and 16 after the product with a fraction. Halving both sides is the mean of four pixels. */
#include <math.h>
#include <stdlib.h>

#include "inner.h"

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

/* The taps of an axis. Beyond the first and the last input, columns take that input alone; rows keep their fraction, with
 * the same input twice, which rounds differently. NULL without memory. */
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

/* A row of the input, resized along its columns: exact sums [width * 3]. */
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

/* The two rows of an output are neighbours or one and the same: a row's place is its parity. They are kept for the next
 * output. */
static bool resize(tp_image *out, const tp_image *in)
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
    if (resize(out, in)) return true;
    return tp__image_no_memory(out, "out of memory to resize an image to %lld x %lld",
                               (long long)width, (long long)height);
}
