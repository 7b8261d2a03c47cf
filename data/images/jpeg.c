/* jpeg.c - decodes JPEG with libjpeg-turbo, configured as in Pillow: exact inverse DCT, smooth
 * upsampling; recompresses images.
 *
 * libjpeg reports errors by longjmp: everything to be released belongs to its object, the image or
 * the writer, and no local variable changes after setjmp. For a box only the rows and columns
 * around it are transformed, and nothing below it is read: a random crop takes about two thirds of
 * the time of the whole image. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

#include <tapegrad/file.h>

#include "inner.h"

/* Each scan visits the whole image, so a file of many empty scans would take minutes. Any image may
 * have FEW_SCANS, three times the number that encoders write; more may visit at most MOST_SCANNED
 * pixels. Below NARROW columns libjpeg upsamples differently, so narrower boxes are not cropped
 * while decoding. */
enum { MOST_SCANS = 200, FEW_SCANS = 32, EDGE = 2, NARROW = 64, CMYK = 4 };
static const int64_t MOST_SCANNED = 1000000000;

typedef struct reader {
    struct jpeg_decompress_struct d;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf escape;
    tp_image *p;
    bool strict;
    tp_box part; /* p's box in pixels of the shrunk image */
} reader;

/* Did libjpeg run out of memory, or reach the limit in the environment variable JPEGMEM? */
static bool no_memory(const struct jpeg_error_mgr *e)
{
    return e->msg_code == JERR_OUT_OF_MEMORY || e->msg_code == JERR_NO_BACKING_STORE;
}

static void leave(j_common_ptr c)
{
    reader *r = c->client_data;
    char text[JMSG_LENGTH_MAX];
    c->err->format_message(c, text);
    if (no_memory(c->err))
        tp__image_no_memory(r->p, "JPEG: out of memory");
    else
        tp__image_fail(r->p, "JPEG: %s", text);
    longjmp(r->escape, 1);
}

/* libjpeg recovers from some damage: missing data at the end become grey, unless strict. */
static void message(j_common_ptr c, int level)
{
    const reader *r = c->client_data;
    if (level < 0 && r->strict && c->err->msg_code == JWRN_JPEG_EOF) leave(c);
}

static void refuse(reader *r, const char *why)
{
    tp__image_fail(r->p, "JPEG: %s", why);
    longjmp(r->escape, 1);
}

static void count_scans(j_common_ptr c)
{
    reader *r = c->client_data;
    const int64_t pixels = (int64_t)r->d.image_width * r->d.image_height;
    const int scans = r->d.input_scan_number;
    if (scans > MOST_SCANS) refuse(r, "more than 200 scans");
    if (scans > FEW_SCANS && scans > MOST_SCANNED / pixels)
        refuse(r, "too many scans for an image of its size");
}

static void silent(j_common_ptr c)
{
    (void)c;
}

/* This function and all below may leave by longjmp. */
static void begin(reader *r, const uint8_t *bytes, size_t n)
{
    jpeg_create_decompress(&r->d);
    r->progress.progress_monitor = count_scans;
    r->d.progress = &r->progress;
    jpeg_mem_src(&r->d, bytes, (unsigned long)n);
}

static void prepare(reader *r, tp_image *p, bool strict)
{
    memset(r, 0, sizeof *r);
    r->p = p;
    r->strict = strict;
    r->d.err = jpeg_std_error(&r->errors);
    r->errors.error_exit = leave;
    r->errors.emit_message = message;
    r->errors.output_message = silent;
    r->d.client_data = r;
}

static int orientation_of(const struct jpeg_decompress_struct *d)
{
    static const char mark[] = "Exif\0"; /* with the NUL of the literal */
    for (jpeg_saved_marker_ptr m = d->marker_list; m; m = m->next)
        if (m->data_length > sizeof mark && memcmp(m->data, mark, sizeof mark) == 0)
            return tp__exif_orientation(m->data + sizeof mark, m->data_length - sizeof mark);
    return 1;
}

/* 255 (1 - c)(1 - k), rounded. Adobe files store 255 - c and 255 - k. */
static void from_cmyk(uint8_t *rgb, const uint8_t *cmyk, int64_t n, bool inverted)
{
    const int flip = inverted ? 0 : 255;
    for (int64_t i = 0; i < n; i++, rgb += TP_RGB, cmyk += CMYK)
        for (int c = 0; c < TP_RGB; c++)
            rgb[c] = (uint8_t)(((cmyk[c] ^ flip) * (cmyk[3] ^ flip) + 127) / 255);
}

/* Converts a box of the full image to pixels of the shrunk one, rounded outwards. */
static tp_box shrunk(tp_box b, int64_t by)
{
    const int64_t x = b.x / by, y = b.y / by;
    return (tp_box){ x, y, (b.x + b.width + by - 1) / by - x, (b.y + b.height + by - 1) / by - y };
}

static void choose_colours(reader *r)
{
    struct jpeg_decompress_struct *d = &r->d;
    if (d->num_components != 1 && d->num_components != 3 && d->num_components != CMYK)
        refuse(r, "the image has neither one, three nor four colour components");
    d->out_color_space = d->num_components == CMYK ? JCS_CMYK : JCS_RGB;
}

static void start(reader *r, const tp_image_opts *o, int *orientation)
{
    struct jpeg_decompress_struct *d = &r->d;
    tp_box box;
    const int64_t by = o->shrink > 1 ? o->shrink : 1;
    if (by != 1 && by != 2 && by != 4 && by != 8) refuse(r, "shrink must be 1, 2, 4 or 8");
    if (o->orient) jpeg_save_markers(d, JPEG_APP0 + 1, 0xffff);
    jpeg_read_header(d, TRUE);
    if (!tp__image_allowed(r->p, "JPEG", d->image_width, d->image_height, o->max_pixels) ||
        !tp__image_box(r->p, o, d->image_width, d->image_height, &box))
        longjmp(r->escape, 1);
    if (o->orient) *orientation = orientation_of(d);
    choose_colours(r);
    d->scale_num = 1;
    d->scale_denom = (unsigned)by;
    r->part = shrunk(box, by);
    if (!tp_image_new(r->p, r->part.width, r->part.height)) longjmp(r->escape, 1);
    jpeg_start_decompress(d);
}

/* Limits decoding to the columns of the box; *first is the first decoded column. */
static void narrow(reader *r, JDIMENSION *first)
{
    struct jpeg_decompress_struct *d = &r->d;
    const int64_t left = r->part.x - EDGE, right = r->part.x + r->part.width + EDGE;
    JDIMENSION width = (JDIMENSION)(right - left);
    *first = 0;
    if (left < 0 || right > d->output_width || width < NARROW) return;
    *first = (JDIMENSION)left;
    jpeg_crop_scanline(d, first, &width);
}

static void read_rows(reader *r)
{
    struct jpeg_decompress_struct *d = &r->d;
    tp_image *p = r->p;
    JDIMENSION first;
    narrow(r, &first);
    JSAMPARRAY line = d->mem->alloc_sarray((j_common_ptr)d, JPOOL_IMAGE,
                                           d->output_width * (unsigned)d->output_components, 1);
    const JSAMPLE *from = line[0] + (r->part.x - first) * d->output_components;
    const JDIMENSION skipped = (JDIMENSION)r->part.y;
    if (skipped > 0 && jpeg_skip_scanlines(d, skipped) != skipped)
        refuse(r, "rows above the box are missing");
    for (int64_t y = 0; y < p->height; y++) {
        uint8_t *to = p->rgb + y * p->width * TP_RGB;
        if (jpeg_read_scanlines(d, line, 1) != 1) refuse(r, "rows are missing");
        if (d->output_components == CMYK)
            from_cmyk(to, from, p->width, d->saw_Adobe_marker);
        else
            memcpy(to, from, (size_t)p->width * TP_RGB);
    }
}

bool tp__jpeg_decode(tp_image *p, const uint8_t *bytes, size_t n, const tp_image_opts *o,
                     int *orientation)
{
    reader r;
    prepare(&r, p, o->strict);
    if (setjmp(r.escape) == 0) {
        begin(&r, bytes, n);
        start(&r, o, orientation);
        read_rows(&r);
    }
    jpeg_destroy_decompress(&r.d);
    return tp_image_ok(p);
}

bool tp__jpeg_size(const uint8_t *bytes, size_t n, int64_t *width, int64_t *height)
{
    reader r;
    tp_image none = { 0 };
    prepare(&r, &none, false);
    if (setjmp(r.escape) == 0) {
        begin(&r, bytes, n);
        jpeg_read_header(&r.d, TRUE);
        *width = r.d.image_width;
        *height = r.d.image_height;
    }
    jpeg_destroy_decompress(&r.d);
    return !none.why[0];
}

/* ---- recompressing ---- */

typedef struct writer {
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    jmp_buf escape;
    struct jpeg_destination_mgr to;
    unsigned char *bytes; /* [size]; the image has n of them */
    size_t size, n;
    char why[JMSG_LENGTH_MAX];
} writer;

static void leave_writer(j_common_ptr c)
{
    writer *w = c->client_data;
    c->err->format_message(c, w->why);
    longjmp(w->escape, 1);
}

/* ---- destination of libjpeg: memory that belongs to the writer, even after an error ---- */

static void init_destination(j_compress_ptr c)
{
    writer *w = c->client_data;
    const size_t used = w->size;
    if (!tp_reserve(&w->bytes, &w->size, used, 1 << 12, 1)) ERREXIT1(c, JERR_OUT_OF_MEMORY, 0);
    w->to.next_output_byte = w->bytes + used;
    w->to.free_in_buffer = w->size - used;
}

/* libjpeg calls this when all bytes are used. */
static boolean empty_output_buffer(j_compress_ptr c)
{
    init_destination(c);
    return TRUE;
}

static void term_destination(j_compress_ptr c)
{
    writer *w = c->client_data;
    w->n = w->size - w->to.free_in_buffer;
}

/* ---- the image ---- */

/* May leave by longjmp. */
static void write_rows(writer *w, const tp_image *p, int quality)
{
    struct jpeg_compress_struct *c = &w->c;
    jpeg_create_compress(c);
    w->to.init_destination = init_destination;
    w->to.empty_output_buffer = empty_output_buffer;
    w->to.term_destination = term_destination;
    c->dest = &w->to;
    c->image_width = (JDIMENSION)p->width;
    c->image_height = (JDIMENSION)p->height;
    c->input_components = TP_RGB;
    c->in_color_space = JCS_RGB;
    jpeg_set_defaults(c);
    jpeg_set_quality(c, quality, TRUE);
    jpeg_start_compress(c, TRUE);
    while (c->next_scanline < c->image_height) {
        JSAMPROW row = p->rgb + (int64_t)c->next_scanline * p->width * TP_RGB;
        jpeg_write_scanlines(c, &row, 1);
    }
    jpeg_finish_compress(c);
}

bool tp__jpeg_recode(tp_image *p, int quality)
{
    writer w = { .n = 0 };
    w.c.err = jpeg_std_error(&w.errors);
    w.errors.error_exit = leave_writer;
    w.c.client_data = &w;
    if (setjmp(w.escape) == 0) write_rows(&w, p, quality);
    jpeg_destroy_compress(&w.c);
    const bool done = !w.why[0]              ? tp_image_decode(p, w.bytes, w.n, NULL)
                      : no_memory(&w.errors) ? tp__image_no_memory(p, "JPEG: out of memory")
                                             : tp__image_fail(p, "JPEG: %s", w.why);
    free(w.bytes);
    return done;
}
