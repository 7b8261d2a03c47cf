/* crop.c - crops, flips, and conversion of pixels to floats. */
#include <math.h>
#include <string.h>

#include "inner.h"

static void fill_pixels(uint8_t *to, int64_t n, const uint8_t fill[3])
{
    for (int64_t i = 0; i < n; i++) memcpy(to + i * TP_RGB, fill, TP_RGB);
}

bool tp_image_crop(tp_image *out, const tp_image *in, tp_box box, const uint8_t fill[3])
{
    if (!out) return false;
    static const uint8_t black[3] = { 0 };
    if (!tp_image_ok(in)) return tp__image_fail_as(out, in);
    if (!tp_image_new(out, box.width, box.height)) return false;
    if (!fill) fill = black;
    /* columns of out that are inside the image */
    const int64_t from = tp__clamp(-box.x, 0, box.width);
    const int64_t to = tp__clamp(in->width - box.x, from, box.width);
    for (int64_t y = 0; y < box.height; y++) {
        uint8_t *row = out->rgb + y * box.width * TP_RGB;
        const bool inside = box.y + y >= 0 && box.y + y < in->height;
        const int64_t left = inside ? from : box.width, right = inside ? to : box.width;
        fill_pixels(row, left, fill);
        if (right > left)
            memcpy(row + left * TP_RGB, in->rgb + ((box.y + y) * in->width + box.x + left) * TP_RGB,
                   (size_t)(right - left) * TP_RGB);
        fill_pixels(row + right * TP_RGB, box.width - right, fill);
    }
    return true;
}

/* Halves round to even; the odd pixel of padding goes to the end. */
static int64_t centre(int64_t have, int64_t want)
{
    return have < want ? -((want - have) / 2) : (int64_t)nearbyint((double)(have - want) / 2);
}

tp_box tp_image_centre(const tp_image *in, int64_t width, int64_t height)
{
    if (!in) return (tp_box){ 0 };
    return (tp_box){ centre(in->width, width), centre(in->height, height), width, height };
}

void tp_image_flip(tp_image *p)
{
    if (!p) return;
    for (int64_t y = 0; y < p->height; y++) {
        uint8_t *left = p->rgb + y * p->width * TP_RGB, *right = left + (p->width - 1) * TP_RGB;
        for (; left < right; left += TP_RGB, right -= TP_RGB) {
            uint8_t pixel[TP_RGB];
            memcpy(pixel, left, TP_RGB);
            memcpy(left, right, TP_RGB);
            memcpy(right, pixel, TP_RGB);
        }
    }
}

/* A table per channel maps the 256 values to floats. */
void tp_image_floats(const tp_image *p, const float mean[3], const float std[3], float *out)
{
    if (!p) return;
    float table[TP_RGB][256];
    for (int c = 0; c < TP_RGB; c++)
        for (int v = 0; v < 256; v++) table[c][v] = ((float)v / 255 - mean[c]) / std[c];
    const int64_t n = p->width * p->height;
    const uint8_t *from = p->rgb;
    for (int64_t i = 0; i < n; i++, from += TP_RGB, out += TP_RGB)
        for (int c = 0; c < TP_RGB; c++) out[c] = table[c][from[c]];
}
