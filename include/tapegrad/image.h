/* image.h - decoding images, and the pixel operations of the papers' training recipes, equal to
 * those of Pillow 9.4 bit for bit. Part of the data library; augment.h builds pipelines from
 * them. */
#ifndef TAPEGRAD_IMAGE_H
#define TAPEGRAD_IMAGE_H

#include <tapegrad/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An 8-bit RGB image. Initialise it to { 0 } and free it with tp_image_free. In between any
 * function may write an image of any size into it; memory is allocated only if the previous one was
 * smaller. A failure leaves it empty (0 x 0) with the reason in why, and functions that receive an
 * empty image fail for the same reason. Images share nothing, so each thread can use its own. */
typedef struct tp_image {
    int64_t width, height;
    uint8_t *rgb; /* [H,W,3] */
    size_t room;  /* capacity of rgb in bytes */
    /* TP_OK, or not the image's fault: TP_E_MEMORY; TP_E_IO: no descriptor, or a broken disk */
    tp_code shortage;
    char why[512];
} tp_image;

/* width x height pixels starting at column x, row y. */
typedef struct tp_box {
    int64_t x, y, width, height;
} tp_box;

/* Frees the pixels and leaves p empty. */
TP_API void tp_image_free(tp_image *p);
TP_API bool tp_image_ok(const tp_image *p); /* not empty */

/* Makes p an image of that size with undefined pixels, or a copy of another image. */
TP_API bool tp_image_new(tp_image *p, int64_t width, int64_t height);
TP_API bool tp_image_copy(tp_image *p, const tp_image *from);

/* ---- decoding ---- */

typedef struct tp_image_opts {
    int64_t max_pixels; /* larger images are refused before memory is allocated; 0: 100 million */
    int shrink;         /* decode JPEG at 1/2, 1/4 or 1/8 of its size (rounded up): faster; 0: 1 */
    /* decode only these pixels, which saves time; width 0: all. In coordinates of the stored image
     * at full size; with shrink it is rounded outwards */
    tp_box box;
    bool orient; /* rotate by the EXIF orientation after cropping; the papers' pipelines do not */
    bool strict; /* a truncated file is an error; otherwise what could be read is kept */
} tp_image_opts;

/* Decodes JPEG (baseline, progressive, arithmetic; grey, YCbCr, RGB, CMYK, YCCK) or PNG (any kind).
 * The format is detected from the magic bytes. Colour profiles and transparency are ignored; 16-bit
 * samples lose their lower 8 bits. o may be NULL. */
TP_API bool tp_image_decode(tp_image *p, const void *bytes, size_t n, const tp_image_opts *o);
/* Decodes a regular file of at most 1 GiB. */
TP_API bool tp_image_read(tp_image *p, const char *path, const tp_image_opts *o);

/* Reads only the size, for choosing a box. False if the bytes are not an image; tp_image_decode
 * gives the reason. */
TP_API bool tp_image_size(const void *bytes, size_t n, int64_t *width, int64_t *height);

/* Writes a PNG to a temporary file, syncs it and renames it to path. False with the reason in
 * p->why; the pixels are unchanged. */
TP_API bool tp_image_write(tp_image *p, const char *path);

/* ---- geometry ---- */

typedef enum tp_filter { TP_BICUBIC, TP_BILINEAR } tp_filter;

/* Resizes a box (NULL: all) to width x height with antialiasing. As if it were cropped first,
 * pixels outside the box have no influence. out and in must differ. */
TP_API bool tp_image_resize(tp_image *out, const tp_image *in, const tp_box *box, int64_t width,
                            int64_t height, tp_filter filter);

/* Resizes the whole image bilinearly without antialiasing, equal to OpenCV's INTER_LINEAR bit for
 * bit. out and in must differ. */
TP_API bool tp_image_resize_linear(tp_image *out, const tp_image *in, int64_t width,
                                   int64_t height);

/* Copies a box; the part outside the image is filled with a colour (NULL: black). */
TP_API bool tp_image_crop(tp_image *out, const tp_image *in, tp_box box, const uint8_t fill[3]);
/* The centred box of that size. */
TP_API tp_box tp_image_centre(const tp_image *in, int64_t width, int64_t height);

TP_API void tp_image_flip(tp_image *p); /* mirrors it horizontally, in place */

/* Affine map to an image of the same size: pixel (x, y) of out is sampled from in at (m[0] x + m[1]
 * y + m[2], m[3] x + m[4] y + m[5]), in coordinates of pixel corners, or fill outside.
 * tp_image_rotation gives the m of a rotation about the centre, in degrees counter-clockwise. */
TP_API bool tp_image_affine(tp_image *out, const tp_image *in, const double m[6], tp_filter filter,
                            const uint8_t fill[3]);
TP_API void tp_image_rotation(const tp_image *in, double degrees, double m[6]);

/* ---- the 15 operations of RandAugment ---- */

#define TP_PIXEL_OPS(X)                                                                            \
    X(AUTO_CONTRAST, "AutoContrast") /* each channel over the full range   */                      \
    X(EQUALIZE, "Equalize")          /* each channel's histogram flat      */                      \
    X(INVERT, "Invert")                                                                            \
    X(ROTATE, "Rotate")             /* degrees, counter-clockwise         */                       \
    X(POSTERIZE, "Posterize")       /* bits that are kept, 0 to 8         */                       \
    X(SOLARIZE, "Solarize")         /* inverts values at or above it        */                     \
    X(SOLARIZE_ADD, "SolarizeAdd")  /* added to values below 128          */                       \
    X(COLOR, "Color")               /* factor: 0 grey, 1 unchanged        */                       \
    X(CONTRAST, "Contrast")         /* factor: 0 the mean grey            */                       \
    X(BRIGHTNESS, "Brightness")     /* factor: 0 black                    */                       \
    X(SHARPNESS, "Sharpness")       /* factor: 0 smooth                   */                       \
    X(SHEAR_X, "ShearX")            /* columns per row                    */                       \
    X(SHEAR_Y, "ShearY")            /* rows per column                    */                       \
    X(TRANSLATE_X, "TranslateXRel") /* fraction of the width              */                       \
    X(TRANSLATE_Y, "TranslateYRel") /* fraction of the height */

typedef enum tp_pixel_op {
#define TP_PIXEL_OP_ENUM(name, text) TP_PIXEL_##name,
    TP_PIXEL_OPS(TP_PIXEL_OP_ENUM)
#undef TP_PIXEL_OP_ENUM
        TP_NPIXEL_OPS
} tp_pixel_op;

/* The name of an operation in the recipes: "AutoContrast". */
TP_API const char *tp_pixel_op_name(tp_pixel_op op);

/* Applies an operation to p. Geometric ones are bicubic and fill with `fill`. work is scratch,
 * which may swap its memory with p's. */
TP_API bool tp_image_apply(tp_image *p, tp_pixel_op op, double argument, const uint8_t fill[3],
                           tp_image *work);

/* ---- numbers ---- */

/* Writes (value / 255 - mean) / std in float32 to out [H,W,3]. */
TP_API void tp_image_floats(const tp_image *p, const float mean[3], const float std[3], float *out);

#ifdef __cplusplus
}
#endif
#endif
