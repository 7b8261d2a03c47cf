/* image.c - images as values: memory, errors, limits of their size. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inner.h"

enum { DEFAULT_PIXELS = 100000000, LARGEST_SIDE = 1 << 24 };

static bool fail(tp_image *p, bool shortage, const char *fmt, va_list ap)
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
    fail(p, false, fmt, ap);
    va_end(ap);
    return false;
}

bool tp__image_no_memory(tp_image *p, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fail(p, true, fmt, ap);
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
    p->shortage = false;
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
    return tp__image_fail(
        p,
        "%s: %llu x %llu pixels are more than the limit of %llu (max_pixels; --max-pixels of programs)",
        format, (unsigned long long)width, (unsigned long long)height, (unsigned long long)most);
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
