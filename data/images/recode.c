/* recode.c - an image through JPEG and back. libjpeg reports errors by longjmp: what must be released belongs to
 * the writer, and no local variable changes after setjmp. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <jpeglib.h>

#include "inner.h"

typedef struct writer {
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    jmp_buf escape;
    unsigned char *bytes;
    unsigned long n;
    char why[JMSG_LENGTH_MAX];
} writer;

static void leave(j_common_ptr c)
{
    writer *w = c->client_data;
    c->err->format_message(c, w->why);
    longjmp(w->escape, 1);
}

/* May leave by longjmp. */
static void write_rows(writer *w, const tp_image *p, int quality)
{
    struct jpeg_compress_struct *c = &w->c;
    jpeg_create_compress(c);
    jpeg_mem_dest(c, &w->bytes, &w->n);
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
    const bool done =
        w.why[0] ? tp__image_fail(p, "JPEG: %s", w.why) : tp_image_decode(p, w.bytes, w.n, NULL);
    free(w.bytes);
    return done;
}
