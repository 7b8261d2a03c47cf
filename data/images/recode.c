/* recode.c - an image through JPEG and back. libjpeg reports errors by longjmp: what must be released belongs to
 * the writer, and no local variable changes after setjmp. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <jpeglib.h>

#include <jerror.h>

#include "inner.h"

typedef struct writer {
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    jmp_buf escape;
    struct jpeg_destination_mgr to;
    unsigned char *bytes; /* [size], of which n are the image */
    size_t size, n;
    char why[JMSG_LENGTH_MAX];
} writer;

static void leave(j_common_ptr c)
{
    writer *w = c->client_data;
    c->err->format_message(c, w->why);
    longjmp(w->escape, 1);
}

/* ---- where libjpeg writes: memory that belongs to the writer, also after an error ---- */

static void grow(j_compress_ptr c, size_t size)
{
    writer *w = c->client_data;
    unsigned char *p = realloc(w->bytes, size);
    if (!p) ERREXIT1(c, JERR_OUT_OF_MEMORY, 0);
    w->to.next_output_byte = p + w->size;
    w->to.free_in_buffer = size - w->size;
    w->bytes = p;
    w->size = size;
}

static void init_destination(j_compress_ptr c)
{
    grow(c, 1 << 12);
}

/* Called when all bytes are used. */
static boolean empty_output_buffer(j_compress_ptr c)
{
    grow(c, 2 * ((writer *)c->client_data)->size);
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
    w.errors.error_exit = leave;
    w.c.client_data = &w;
    if (setjmp(w.escape) == 0) write_rows(&w, p, quality);
    jpeg_destroy_compress(&w.c);
    const bool done = !w.why[0] ? tp_image_decode(p, w.bytes, w.n, NULL)
                      : tp__jpeg_no_memory(&w.errors)
                          ? tp__image_no_memory(p, "JPEG: out of memory")
                          : tp__image_fail(p, "JPEG: %s", w.why);
    free(w.bytes);
    return done;
}
