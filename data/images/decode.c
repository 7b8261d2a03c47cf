/* decode.c - reads images: chooses the decoder and applies the EXIF orientation. Writes PNG files.
 *
 * The first bytes decide the format, never the name: published sets have PNG files named .JPEG. */
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tapegrad/file.h>

#include "inner.h"
#include "load.h"

/* ---- orientation ---- */

/* EXIF data are a TIFF structure: "II" (little-endian) or "MM", 42, the offset of a directory. The
 * directory is a count and entries of 12 bytes: tag, type, count, value. */
static uint32_t number(const uint8_t *at, int bytes, bool little)
{
    uint32_t x = 0;
    for (int i = 0; i < bytes; i++) x = x << 8 | at[little ? bytes - 1 - i : i];
    return x;
}

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

/* ---- reading ---- */

typedef enum format { JPEG, PNG, NEITHER } format;

static format format_of(const uint8_t *b, size_t n)
{
    if (n >= 2 && b[0] == 0xff && b[1] == 0xd8) return JPEG;
    if (n >= 4 && memcmp(b, "\x89PNG", 4) == 0) return PNG;
    return NEITHER;
}

/* Transposes the image for orientations from 5 on, then mirrors columns, rows or both. */
static bool orient(tp_image *p, int orientation)
{
    const bool transposed = orientation >= 5;
    const bool right = orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
    const bool down = orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
    tp_image out = { 0 };
    if (orientation == 1) return true;
    if (!tp_image_new(&out, transposed ? p->height : p->width, transposed ? p->width : p->height))
        return tp__image_fail_as(p, &out);
    for (int64_t y = 0; y < out.height; y++) {
        for (int64_t x = 0; x < out.width; x++) {
            const int64_t u = right ? out.width - 1 - x : x, v = down ? out.height - 1 - y : y;
            const int64_t from = transposed ? u * p->width + v : v * p->width + u;
            memcpy(out.rgb + (y * out.width + x) * TP_RGB, p->rgb + from * TP_RGB, TP_RGB);
        }
    }
    tp_image_free(p);
    *p = out;
    return true;
}

bool tp_image_decode(tp_image *p, const void *bytes, size_t n, const tp_image_opts *o)
{
    if (!p) return false;
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
    if (!p) return false;
    tp_blob blob = { 0 };
    char why[sizeof p->why];
    bool ok = false;
    tp_code shortage = TP_OK;
    if (tp__blob_read(&blob, path, TP_LARGEST_IMAGES, why, sizeof why)) {
        ok = tp_image_decode(p, blob.bytes, blob.size, o);
        memcpy(why, p->why, sizeof why);
        shortage = p->shortage;
    } else {
        shortage = tp__shortage(blob.error, why, sizeof why);
    }
    tp__blob_free(&blob);
    if (ok) return true;
    tp__image_fail(p, "image %.250s: %.240s", path, why);
    p->shortage = shortage;
    return false;
}

bool tp_image_size(const void *bytes, size_t n, int64_t *width, int64_t *height)
{
    if (!bytes) return false;
    switch (format_of(bytes, n)) {
    case JPEG: return tp__jpeg_size(bytes, n, width, height);
    case PNG: return tp__png_size(bytes, n, width, height);
    case NEITHER: break;
    }
    return false;
}

/* ---- writing ---- */

static bool refuse(tp_image *p, const char *path, const char *why)
{
    snprintf(p->why, sizeof p->why, "%.250s cannot be written: %.200s", path, why);
    return false;
}

bool tp_image_write(tp_image *p, const char *path)
{
    if (!p) return false;
    if (!tp_image_ok(p)) return tp__image_fail(p, "an empty image cannot be written");
    png_image image = { .version = PNG_IMAGE_VERSION,
                        .width = (png_uint_32)p->width,
                        .height = (png_uint_32)p->height,
                        .format = PNG_FORMAT_RGB };
    png_alloc_size_t n = PNG_IMAGE_PNG_SIZE_MAX(image);
    void *bytes = malloc(n);
    bool ok = false;
    if (!bytes)
        refuse(p, path, "out of memory");
    else if (!png_image_write_to_memory(&image, bytes, &n, 0, p->rgb, 0, NULL))
        refuse(p, path, image.message);
    else
        ok = tp_file_replace(path, bytes, n, p->why, sizeof p->why);
    free(bytes);
    return ok;
}
