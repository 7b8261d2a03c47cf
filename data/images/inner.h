/* inner.h - functions shared within the image layer. */
#ifndef TP_IMAGE_INNER_H
#define TP_IMAGE_INNER_H

#include <tapegrad/image.h>

/* Clamps x to the bounds. */
static inline int64_t tp__clamp(int64_t x, int64_t least, int64_t most)
{
    return x < least ? least : x > most ? most : x;
}

enum { TP_RGB = 3 };

/* Bytes after the pixels of every image, so that the last pixel can be read and written as four
 * bytes, and the end of the last row as a whole vector. */
enum { TP_SLACK = 16 };

/* The largest file to decode, in bytes. */
enum { TP_LARGEST_IMAGES = 1 << 30 };

/* Empties p and stores the reason; returns false. */
bool tp__image_fail(tp_image *p, const char *fmt, ...) TP_PRINTF(2, 3);
/* The same when out of memory: also sets shortage. The reason should begin with "out of memory". */
bool tp__image_no_memory(tp_image *p, const char *fmt, ...) TP_PRINTF(2, 3);
/* Fails p for the same reason as another image. */
bool tp__image_fail_as(tp_image *p, const tp_image *from);

/* Is an image of this size within the limit (0: the default)? If not, p fails; the message names
 * the format. */
bool tp__image_allowed(tp_image *p, const char *format, uint64_t width, uint64_t height,
                       int64_t max_pixels);

/* The decoders. p is empty on entry. orientation: set to 1 to 8 by the EXIF data if o->orient, else
 * unchanged. */
bool tp__jpeg_decode(tp_image *p, const uint8_t *bytes, size_t n, const tp_image_opts *o,
                     int *orientation);
bool tp__jpeg_size(const uint8_t *bytes, size_t n, int64_t *width, int64_t *height);
bool tp__png_decode(tp_image *p, const uint8_t *bytes, size_t n, const tp_image_opts *o,
                    int *orientation);
bool tp__png_size(const uint8_t *bytes, size_t n, int64_t *width, int64_t *height);

/* Returns the orientation in EXIF data, a TIFF structure, or 1. */
int tp__exif_orientation(const uint8_t *tiff, size_t n);

/* Stores the box of o, or the whole image if o has none. p fails if the box is not inside an image
 * of this size. */
bool tp__image_box(tp_image *p, const tp_image_opts *o, int64_t width, int64_t height, tp_box *box);

/* Computes a window of the result of tp_image_resize. in is not empty; box and window are inside
 * their images. */
bool tp__image_resize(tp_image *out, const tp_image *in, tp_box box, int64_t width, int64_t height,
                      tp_box window, tp_filter filter);

/* Compresses an image to JPEG and decodes it. */
bool tp__jpeg_recode(tp_image *p, int quality);

/* Rounds to the nearest of 0 ... 255, halves up. */
static inline uint8_t tp__image_byte(double x)
{
    return (uint8_t)(x <= 0 ? 0 : x >= 255 ? 255 : ((int)(2 * x) + 1) / 2);
}

#endif
