/* image.c - images: memory, which decoder, EXIF orientation.
 *
 * A file is told by its first bytes, never by its name: sets of "JPEG" files hold PNG files. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inner.h"
#include "load.h"

enum { DEFAULT_PIXELS = 100000000, LARGEST_SIDE = 1 << 24 };

bool tp__image_fail(tp_image *p, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(p->why, sizeof p->why, fmt, ap);
    va_end(ap);
    p->width = p->height = 0;
    return false;
}

void tp_image_free(tp_image *p)
{
    free(p->rgb);
    *p = (tp_image){ 0 };
}

bool tp_image_ok(const tp_image *p)
{
    return p->width > 0;
}

bool tp_image_new(tp_image *p, int64_t width, int64_t height)
{
    if (width < 1 || height < 1 || width > LARGEST_SIDE || height > LARGEST_SIDE)
        return tp__image_fail(p, "an image of %lld x %lld pixels cannot be made", (long long)width,
                              (long long)height);
    const size_t bytes = (size_t)width * (size_t)height * TP_RGB + TP_SLACK;
    if (!p->rgb || bytes > p->room) {
        free(p->rgb);
        p->rgb = malloc(bytes);
        p->room = p->rgb ? bytes : 0;
        if (!p->rgb)
            return tp__image_fail(p, "out of memory for an image of %lld x %lld pixels",
                                  (long long)width, (long long)height);
        memset(p->rgb + bytes - TP_SLACK, 0, TP_SLACK);
    }
    p->width = width;
    p->height = height;
    p->why[0] = '\0';
    return true;
}

bool tp_image_copy(tp_image *p, const tp_image *from)
{
    if (!tp_image_ok(from)) return tp__image_fail(p, "%s", from->why);
    if (!tp_image_new(p, from->width, from->height)) return false;
    memcpy(p->rgb, from->rgb, (size_t)(p->width * p->height) * TP_RGB);
    return true;
}

bool tp__image_allowed(tp_image *p, const char *format, uint64_t width, uint64_t height,
                       int64_t max_pixels)
{
    const uint64_t most = max_pixels > 0 ? (uint64_t)max_pixels : DEFAULT_PIXELS;
    if (width > 0 && height > 0 && width <= most / height) return true;
    return tp__image_fail(p, "%s: %llu x %llu pixels are more than the limit of %llu (max_pixels)",
                          format, (unsigned long long)width, (unsigned long long)height,
                          (unsigned long long)most);
}

bool tp__image_box(tp_image *p, const tp_image_opts *o, int64_t width, int64_t height, tp_box *box)
{
    *box = o->box.width ? o->box : (tp_box){ 0, 0, width, height };
    if (box->x >= 0 && box->y >= 0 && box->width > 0 && box->height > 0 &&
        box->width <= width - box->x && box->height <= height - box->y)
        return true;
    return tp__image_fail(p,
                          "the box of %lld x %lld pixels from (%lld, "
                          "%lld) leaves the image, which is %lld x %lld",
                          (long long)box->width, (long long)box->height, (long long)box->x,
                          (long long)box->y, (long long)width, (long long)height);
}

/* ---- EXIF orientation ---- */

static uint32_t number(const uint8_t *at, int bytes, bool little)
{
    uint32_t x = 0;
    for (int i = 0; i < bytes; i++) x = x << 8 | at[little ? bytes - 1 - i : i];
    return x;
}

/* "II" or "MM", 42, offset of a directory: count, then entries of 12 bytes: tag, type, count,
 * value. */
int tp__exif_orientation(const uint8_t *tiff, size_t n)
{
    enum { ENTRY = 12, TAG = 0x112, SHORT = 3 };
    if (n < 8 || tiff[0] != tiff[1] || (tiff[0] != 'I' && tiff[0] != 'M')) return 1;
    const bool little = tiff[0] == 'I';
    const size_t directory = number(tiff + 4, 4, little);
    if (number(tiff + 2, 2, little) != 42 || directory > n - 2) return 1;
    const size_t entries = number(tiff + directory, 2, little);
    const uint8_t *e = tiff + directory + 2;
    for (size_t i = 0; i < entries && ENTRY <= (size_t)(tiff + n - e); i++, e += ENTRY) {
        const uint32_t value = number(e + 8, 2, little);
        if (number(e, 2, little) == TAG && number(e + 2, 2, little) == SHORT && value >= 1 &&
            value <= 8)
            return (int)value;
    }
    return 1;
}

/* Orientations 1 to 8 are a transposition (5 and above), then mirrored columns, rows or both. */
static bool orient(tp_image *p, int orientation)
{
    const bool turned = orientation >= 5;
    const bool right = orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
    const bool down = orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
    tp_image out = { 0 };
    if (orientation == 1) return true;
    if (!tp_image_new(&out, turned ? p->height : p->width, turned ? p->width : p->height))
        return tp__image_fail(p, "%s", out.why);
    for (int64_t y = 0; y < out.height; y++) {
        for (int64_t x = 0; x < out.width; x++) {
            const int64_t u = right ? out.width - 1 - x : x, v = down ? out.height - 1 - y : y;
            const int64_t from = turned ? u * p->width + v : v * p->width + u;
            memcpy(out.rgb + (y * out.width + x) * TP_RGB, p->rgb + from * TP_RGB, TP_RGB);
        }
    }
    tp_image_free(p);
    *p = out;
    return true;
}

/* ---- decoding ---- */

typedef enum format { JPEG, PNG, NEITHER } format;

static format format_of(const uint8_t *b, size_t n)
{
    if (n >= 2 && b[0] == 0xff && b[1] == 0xd8) return JPEG;
    if (n >= 4 && memcmp(b, "\x89PNG", 4) == 0) return PNG;
    return NEITHER;
}

bool tp_image_decode(tp_image *p, const void *bytes, size_t n, const tp_image_opts *o)
{
    static const tp_image_opts defaults = { 0 };
    const uint8_t *b = bytes;
    int orientation = 1;
    bool ok = false;
    if (!o) o = &defaults;
    p->width = p->height = 0;
    if (n == 0) return tp__image_fail(p, "the image is empty (0 bytes)");
    switch (format_of(b, n)) {
    case JPEG: ok = tp__jpeg_decode(p, b, n, o, &orientation); break;
    case PNG: ok = tp__png_decode(p, b, n, o, &orientation); break;
    case NEITHER:
        return tp__image_fail(p, "neither JPEG nor PNG: it begins with the byte %02x%s", b[0],
                              n < 4 ? " and is too short" : "");
    }
    return ok && orient(p, orientation);
}

bool tp_image_read(tp_image *p, const char *path, const tp_image_opts *o)
{
    tp_blob blob = { 0 };
    char why[sizeof p->why];
    bool ok = false;
    if (tp__blob_read(&blob, path, TP_LARGEST_IMAGES, why, sizeof why)) {
        ok = tp_image_decode(p, blob.bytes, blob.size, o);
        memcpy(why, p->why, sizeof why);
    }
    tp__blob_free(&blob);
    return ok || tp__image_fail(p, "image %.250s: %.240s", path, why);
}

bool tp_image_size(const void *bytes, size_t n, int64_t *width, int64_t *height)
{
    switch (format_of(bytes, n)) {
    case JPEG: return tp__jpeg_size(bytes, n, width, height);
    case PNG: return tp__png_size(bytes, n, width, height);
    case NEITHER: break;
    }
    return false;
}
