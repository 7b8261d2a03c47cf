/* inner.h - what the files of the image layer share. */
#ifndef TP_IMAGE_INNER_H
#define TP_IMAGE_INNER_H

#include <tapegrad/image.h>

enum { TP_RGB = 3 };

/* Bytes behind the pixels of every image: the last one may be read and written as four bytes, the
 * end of the last row as a whole vector. */
enum { TP_SLACK = 16 };

/* Bytes of a file that is decoded at all. */
enum { TP_LARGEST_IMAGES = 1 << 30 };

/* Empties p with a reason; returns false. */
bool tp__image_fail(tp_image *p, const char *fmt, ...) TP_PRINTF(2, 3);

/* Whether an image of that size is within the limit (0: the default); fails p with the name of the
 * format if not. */
bool tp__image_allowed(tp_image *p, const char *format, uint64_t width, uint64_t height,
                       int64_t max_pixels);

/* The decoders. p is empty on entry; the box of o lies in the image if it is given (width not 0).
 * orientation: 1 to 8 of the EXIF data if o->orient, else untouched. */
bool tp__jpeg_decode(tp_image *p, const uint8_t *bytes, size_t n, const tp_image_opts *o,
                     int *orientation);
bool tp__jpeg_size(const uint8_t *bytes, size_t n, int64_t *width, int64_t *height);
bool tp__png_decode(tp_image *p, const uint8_t *bytes, size_t n, const tp_image_opts *o,
                    int *orientation);
bool tp__png_size(const uint8_t *bytes, size_t n, int64_t *width, int64_t *height);

/* Of a TIFF structure, which EXIF data are; 1 if they do not say. */
int tp__exif_orientation(const uint8_t *tiff, size_t n);

/* Fails p if the box of o does not lie in an image of that size; all of it if there is none. */
bool tp__image_box(tp_image *p, const tp_image_opts *o, int64_t width, int64_t height, tp_box *box);

/* tp_image_resize, but only a window of its result; in is not empty, box and window lie inside. */
bool tp__image_resize(tp_image *out, const tp_image *in, tp_box box, int64_t width, int64_t height,
                      tp_box window, tp_filter filter);

#endif
