/* image.c - images as values: memory, errors, size limits; crops, flips, conversion to floats. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inner.h"

enum { DEFAULT_PIXELS = 100000000, LARGEST_SIDE = 1 << 24 };

static bool fail(tp_image *p, tp_code shortage, const char *fmt, va_list ap)
{
    vsnprintf(p->why, sizeof p->why, fmt, ap);
    p->width = p->height = 0;
    p->shortage = shortage;
    return false;
}

bool tp__image_fail(tp_image *p, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fail(p, TP_OK, fmt, ap);
    va_end(ap);
    return false;
}

bool tp__image_no_memory(tp_image *p, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fail(p, TP_E_MEMORY, fmt, ap);
    va_end(ap);
    return false;
}

bool tp__image_fail_as(tp_image *p, const tp_image *from)
{
    tp__image_fail(p, "%s", from->why);
    p->shortage = from->shortage;
    return false;
}

void tp_image_free(tp_image *p)
{
    if (!p) return;
    free(p->rgb);
    *p = (tp_image){ 0 };
}

bool tp_image_ok(const tp_image *p)
{
    if (!p) return false;
    return p->width > 0;
}

bool tp_image_new(tp_image *p, int64_t width, int64_t height)
{
    if (!p) return false;
    if (width < 1 || height < 1 || width > LARGEST_SIDE || height > LARGEST_SIDE)
        return tp__image_fail(p, "an image cannot have %lld x %lld pixels", (long long)width,
                              (long long)height);
    const size_t bytes = (size_t)width * (size_t)height * TP_RGB + TP_SLACK;
    if (!p->rgb || bytes > p->room) {
        free(p->rgb);
        p->rgb = malloc(bytes);
        p->room = p->rgb ? bytes : 0;
        if (!p->rgb)
            return tp__image_no_memory(p, "out of memory for an image of %lld x %lld pixels",
                                       (long long)width, (long long)height);
        memset(p->rgb + bytes - TP_SLACK, 0, TP_SLACK);
    }
    p->width = width;
    p->height = height;
    p->shortage = TP_OK;
    p->why[0] = '\0';
    return true;
}

bool tp_image_copy(tp_image *p, const tp_image *from)
{
    if (!p) return false;
    if (!tp_image_ok(from)) return tp__image_fail_as(p, from);
    if (!tp_image_new(p, from->width, from->height)) return false;
    memcpy(p->rgb, from->rgb, (size_t)(p->width * p->height) * TP_RGB);
    return true;
}

bool tp__image_allowed(tp_image *p, const char *format, uint64_t width, uint64_t height,
                       int64_t max_pixels)
{
    const uint64_t most = max_pixels > 0 ? (uint64_t)max_pixels : DEFAULT_PIXELS;
    if (width > 0 && height > 0 && width <= most / height) return true;
    return tp__image_fail(p,
                          "%s: %llu x %llu pixels are more than the limit of %llu "
                          "(max_pixels; --max-pixels of programs)",
                          format, (unsigned long long)width, (unsigned long long)height,
                          (unsigned long long)most);
}

bool tp__image_box(tp_image *p, const tp_image_opts *o, int64_t width, int64_t height, tp_box *box)
{
    *box = o->box.width ? o->box : (tp_box){ 0, 0, width, height };
    if (box->x >= 0 && box->y >= 0 && box->width > 0 && box->height > 0 &&
        box->width <= width - box->x && box->height <= height - box->y)
        return true;
    return tp__image_fail(
        p,
        "the box of %lld x %lld pixels at (%lld, %lld) is not inside the image of "
        "%lld x %lld",
        (long long)box->width, (long long)box->height, (long long)box->x, (long long)box->y,
        (long long)width, (long long)height);
}

/* ---- pixels ---- */

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

/* Halves round to even; the odd padding pixel goes to the end. */
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
