/* write.c - writes images as PNG files. */
#include <stdio.h>
#include <stdlib.h>

#include <png.h>

#include <tapegrad/file.h>

#include "inner.h"

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
