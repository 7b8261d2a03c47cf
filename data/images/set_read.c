/* set_read.c - one image of a set through an augmentation pipeline. */
#include <errno.h>
#include <stdio.h>

#include "inner.h"
#include "load.h"
#include "set.h"

static bool prepare_drawn(const tp_image_set *X, int64_t i, const tp_augment *a, tp_augment_work *w,
                          tp_example e, float *out)
{
    tp_image p = { 0 };
    X->source.draw(X->source.env, i, &p);
    const bool drawn = tp_image_ok(&p);
    if (!drawn) snprintf(w->why, sizeof w->why, "%s", p.why);
    w->shortage = p.shortage;
    const bool ok = drawn && tp_augment_image(a, w, &p, e, out);
    tp_image_free(&p);
    return ok;
}

/* Reads a file into memory that w reuses for the next image, since fresh memory took 2 % of the
 * time; large buffers are freed. Sets errno on failure. */
static bool prepare_file(const char *path, const tp_augment *a, tp_augment_work *w, tp_example e,
                         float *out)
{
    enum { LARGE = 1 << 24 };
    tp_blob b = { .bytes = w->file, .room = w->file_room };
    const bool read = tp__blob_read(&b, path, TP_LARGEST_IMAGES, w->why, sizeof w->why);
    const bool ok = read && tp_augment_bytes(a, w, b.bytes, b.size, e, out);
    const int error = b.error;
    if (b.room > LARGE) tp__blob_free(&b);
    w->file = b.bytes;
    w->file_room = b.room;
    errno = error;
    return ok;
}

bool tp_image_set_prepare(const tp_image_set *X, int64_t i, const tp_augment *a, tp_augment_work *w,
                          tp_example e, float *out)
{
    if (!X) return false;
    const tp_layout_kind *kind = tp__layout_of(X);
    bool ok;
    w->shortage = false;
    errno = 0;
    if (!kind)
        ok = prepare_drawn(X, i, a, w, e, out);
    else if (kind->prepare)
        ok = kind->prepare(X, i, a, w, e, out);
    else
        ok = prepare_file(X->text + X->item[i].path, a, w, e, out);
    w->shortage = !ok && tp__shortage(w->shortage ? ENOMEM : errno, w->why, sizeof w->why);
    return ok;
}
