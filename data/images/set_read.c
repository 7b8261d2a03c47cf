/* set_read.c - one image of a set through an augmentation pipeline. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inner.h"
#include "load.h"
#include "set.h"

enum { CIFAR_SIDE = 32, CIFAR_PLANE = CIFAR_SIDE * CIFAR_SIDE };

/* Reads a record of CIFAR-10: a label, then the planes of red, green and blue. */
static bool read_record(const char *path, int64_t offset, tp_image *p, char *why, size_t size)
{
    uint8_t record[1 + 3 * CIFAR_PLANE];
    int64_t bytes;
    const int fd = tp__open_file(path, &bytes, why, size);
    if (fd < 0) return false;
    const bool ok = tp_file_bytes(fd, offset, record, sizeof record) == sizeof record;
    const int error = ok ? 0 : errno;
    close(fd);
    errno = error;
    if (!ok) {
        snprintf(why, size, "%s: record at byte %lld cannot be read: %s", path, (long long)offset,
                 error ? strerror(error) : "the file became shorter");
        return false;
    }
    if (!tp_image_new(p, CIFAR_SIDE, CIFAR_SIDE)) {
        snprintf(why, size, "%s", p->why);
        return false;
    }
    for (int i = 0; i < CIFAR_PLANE; i++)
        for (int c = 0; c < 3; c++) p->rgb[3 * i + c] = record[1 + c * CIFAR_PLANE + i];
    return true;
}

static bool prepare_image(const tp_image_set *X, int64_t i, const tp_augment *a, tp_augment_work *w,
                          tp_example e, float *out)
{
    tp_image p = { 0 };
    bool ok;
    if (X->source.draw) {
        X->source.draw(X->source.env, i, &p);
        ok = tp_image_ok(&p);
        if (!ok) snprintf(w->why, sizeof w->why, "%s", p.why);
    } else {
        ok = read_record(X->text + X->item[i].path, X->item[i].offset, &p, w->why, sizeof w->why);
    }
    w->shortage = p.shortage;
    ok = ok && tp_augment_image(a, w, &p, e, out);
    tp_image_free(&p);
    return ok;
}

/* Reads a file into memory that w reuses for the next image, since fresh memory took 2 % of the
 * time; large buffers are freed. Sets errno on failure, as the functions below do. */
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

static bool prepare_entry(const tp_image_item *it, const char *path, const tp_augment *a,
                          tp_augment_work *w, tp_example e, float *out)
{
    size_t n;
    void *bytes = tp__shard_entry(path, it->offset, &n, w->why, sizeof w->why);
    const int error = errno;
    const bool ok = bytes && tp_augment_bytes(a, w, bytes, n, e, out);
    free(bytes);
    errno = error;
    return ok;
}

bool tp_image_set_prepare(const tp_image_set *X, int64_t i, const tp_augment *a, tp_augment_work *w,
                          tp_example e, float *out)
{
    if (!X) return false;
    const tp_image_item *it = &X->item[i];
    bool ok;
    w->shortage = false;
    errno = 0;
    if (X->source.draw || X->layout == TP_LAYOUT_CIFAR10)
        ok = prepare_image(X, i, a, w, e, out);
    else if (X->layout == TP_LAYOUT_SHARDS)
        ok = prepare_entry(it, X->text + it->path, a, w, e, out);
    else
        ok = prepare_file(X->text + it->path, a, w, e, out);
    w->shortage = !ok && tp__shortage(w->shortage ? ENOMEM : errno, w->why, sizeof w->why);
    return ok;
}
