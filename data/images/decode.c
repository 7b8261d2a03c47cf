/* decode.c - images from files: chooses the decoder, then applies the EXIF orientation.
 *
 * The format is detected from the first bytes, never from the name: published sets contain PNG
 * files named .JPEG. */
#include <string.h>

#include "inner.h"
#include "load.h"

typedef enum format { JPEG, PNG, NEITHER } format;

static format format_of(const uint8_t *b, size_t n)
{
    if (n >= 2 && b[0] == 0xff && b[1] == 0xd8) return JPEG;
    if (n >= 4 && memcmp(b, "\x89PNG", 4) == 0) return PNG;
    return NEITHER;
}

/* Orientations from 5 on transpose the image; then columns, rows or both are mirrored. */
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
    bool ok = false, shortage = false;
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
