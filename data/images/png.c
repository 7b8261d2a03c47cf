/* png.c - decodes PNG of any kind to 8-bit RGB with libpng.
 *
 * libpng reports errors by longjmp; as in jpeg.c, no local variable changes after setjmp. Rows read
 * before an error are kept unless strict; the rest is black. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>

#include "inner.h"

enum { LARGEST_CHUNK = 1 << 23 };

typedef struct reader {
    png_structp png;
    png_infop info;
    const uint8_t *bytes;
    size_t left;
    uint8_t *scratch; /* an interlaced image, or one row */
    tp_image *p;
    tp_box box;
    size_t most; /* largest allowed allocation */
    bool rows;   /* reading of rows has begun */
    bool no_memory;
    jmp_buf escape;
    char why[200];
} reader;

static void leave(png_structp png, png_const_charp text)
{
    reader *r = png_get_error_ptr(png);
    snprintf(r->why, sizeof r->why, "%s", text);
    longjmp(r->escape, 1);
}

static void silent(png_structp png, png_const_charp text)
{
    (void)png;
    (void)text;
}

static void take(png_structp png, png_bytep to, size_t n)
{
    reader *r = png_get_io_ptr(png);
    if (n > r->left) png_error(png, "the file is cut off");
    memcpy(to, r->bytes, n);
    r->bytes += n;
    r->left -= n;
}

/* Limits allocations: libpng allocates any length that a chunk claims, whatever its own limits. */
static png_voidp give(png_structp png, png_alloc_size_t n)
{
    reader *r = png_get_mem_ptr(png);
    if (n > r->most) return NULL;
    void *memory = malloc(n);
    if (!memory) r->no_memory = true;
    return memory;
}

static void give_back(png_structp png, png_voidp memory)
{
    (void)png;
    free(memory);
}

static bool prepare(reader *r, tp_image *p, const uint8_t *bytes, size_t n)
{
    memset(r, 0, sizeof *r);
    r->p = p;
    r->bytes = bytes;
    r->left = n;
    r->most = LARGEST_CHUNK;
    r->png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, r, leave, silent, r, give, give_back);
    r->info = r->png ? png_create_info_struct(r->png) : NULL;
    if (r->info) return true;
    png_destroy_read_struct(&r->png, NULL, NULL);
    return tp__image_no_memory(p, "PNG: out of memory");
}

static void finish(reader *r)
{
    png_destroy_read_struct(&r->png, &r->info, NULL);
    free(r->scratch);
}

/* This function and all below may leave by longjmp. */
static void read_header(reader *r)
{
    png_set_read_fn(r->png, r, take);
    png_set_user_limits(r->png, PNG_UINT_31_MAX, PNG_UINT_31_MAX); /* max_pixels decides */
    png_set_chunk_malloc_max(r->png, LARGEST_CHUNK);
    png_read_info(r->png, r->info);
}

static int orientation_of(const reader *r)
{
    png_bytep exif = NULL;
    png_uint_32 n = 0;
    return png_get_eXIf_1(r->png, r->info, &n, &exif) ? tp__exif_orientation(exif, n) : 1;
}

static void as_rgb(reader *r)
{
    const int colour = png_get_color_type(r->png, r->info);
    if (colour == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(r->png);
    if (colour == PNG_COLOR_TYPE_GRAY && png_get_bit_depth(r->png, r->info) < 8)
        png_set_expand_gray_1_2_4_to_8(r->png);
    png_set_strip_16(r->png);
    png_set_strip_alpha(r->png);
    if (!(colour & PNG_COLOR_MASK_COLOR)) png_set_gray_to_rgb(r->png);
}

static void start(reader *r, const tp_image_opts *o, int *orientation)
{
    read_header(r);
    const png_uint_32 width = png_get_image_width(r->png, r->info);
    const png_uint_32 height = png_get_image_height(r->png, r->info);
    if (!tp__image_allowed(r->p, "PNG", width, height, o->max_pixels) ||
        !tp__image_box(r->p, o, width, height, &r->box))
        longjmp(r->escape, 1);
    if (o->orient) *orientation = orientation_of(r);
    as_rgb(r);
    r->most = SIZE_MAX; /* for rows, which max_pixels limits */
    const bool whole = png_set_interlace_handling(r->png) > 1;
    png_read_update_info(r->png, r->info);
    if (png_get_rowbytes(r->png, r->info) != (size_t)width * TP_RGB)
        png_error(r->png, "the format of its pixels is unknown");
    r->scratch = calloc((size_t)width * (whole ? height : 1), TP_RGB);
    if (!r->scratch) {
        r->no_memory = true;
        longjmp(r->escape, 1);
    }
    if (!tp_image_new(r->p, r->box.width, r->box.height)) longjmp(r->escape, 1);
    memset(r->p->rgb, 0, (size_t)(r->box.width * r->box.height) * TP_RGB);
    r->rows = true;
}

static void keep_row(reader *r, const uint8_t *row, int64_t y)
{
    const tp_box *b = &r->box;
    if (y >= b->y && y < b->y + b->height)
        memcpy(r->p->rgb + (y - b->y) * b->width * TP_RGB, row + b->x * TP_RGB,
               (size_t)b->width * TP_RGB);
}

/* Reads the seven passes of an interlaced image; each adds pixels to the rows. */
static void read_passes(reader *r, int passes)
{
    const int64_t width = png_get_image_width(r->png, r->info) * (int64_t)TP_RGB;
    const int64_t height = png_get_image_height(r->png, r->info);
    for (int pass = 0; pass < passes; pass++)
        for (int64_t y = 0; y < height; y++) {
            png_read_row(r->png, r->scratch + y * width, NULL);
            keep_row(r, r->scratch + y * width, y);
        }
}

static void read_rows(reader *r)
{
    const int passes = png_set_interlace_handling(r->png);
    if (passes > 1) {
        read_passes(r, passes);
        return;
    }
    for (int64_t y = 0; y < r->box.y + r->box.height; y++) {
        png_read_row(r->png, r->scratch, NULL);
        keep_row(r, r->scratch, y);
    }
}

bool tp__png_decode(tp_image *p, const uint8_t *bytes, size_t n, const tp_image_opts *o,
                    int *orientation)
{
    reader r;
    if (!prepare(&r, p, bytes, n)) return false;
    if (setjmp(r.escape) == 0) {
        start(&r, o, orientation);
        read_rows(&r);
    }
    if (r.no_memory) /* libpng continues without some parts of a file, such as its orientation */
        tp__image_no_memory(p, "PNG: out of memory");
    else if (r.why[0] && (!r.rows || o->strict))
        tp__image_fail(p, "PNG: %s", r.why);
    finish(&r);
    return tp_image_ok(p);
}

bool tp__png_size(const uint8_t *bytes, size_t n, int64_t *width, int64_t *height)
{
    reader r;
    tp_image none = { 0 };
    if (!prepare(&r, &none, bytes, n)) return false;
    if (setjmp(r.escape) == 0) {
        read_header(&r);
        *width = png_get_image_width(r.png, r.info);
        *height = png_get_image_height(r.png, r.info);
    }
    finish(&r);
    return !r.why[0];
}
