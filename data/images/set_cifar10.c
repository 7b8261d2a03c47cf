/* set_cifar10.c - the layout of CIFAR-10's binary version: records of a label and three planes. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "load.h"
#include "set.h"

enum { SIDE = 32, PLANE = SIDE * SIDE, RECORD = 1 + 3 * PLANE };

static void read_batch(tp_image_set *X, const char *path)
{
    int64_t bytes;
    char why[256];
    const int fd = tp__open_file(path, &bytes, why, sizeof why);
    if (fd < 0)
        tp__fail(X, "%s %s", path, why);
    else if (bytes % RECORD != 0)
        tp__fail(X, "%s is not made of records of %d bytes", path, RECORD);
    const size_t at = tp__image_set_text(X, path);
    for (int64_t i = 0; i < bytes / RECORD && !X->why[0]; i++) {
        uint8_t label;
        if (tp_read_bytes(fd, i * RECORD, &label, 1) != 1)
            tp__fail(X, "%s: record %lld cannot be read", path, (long long)i);
        else if (label >= X->classes)
            tp__fail(X, "%s: record %lld has the label %d; there are %d classes", path,
                     (long long)i, label, X->classes);
        else
            tp__image_set_item(X, at, i * RECORD, label);
    }
    if (fd >= 0) close(fd);
}

static void read_cifar10(tp_image_set *X, const char *folder, tp_part part)
{
    char below[PATH_MAX], path[PATH_MAX], test[PATH_MAX], name[32];
    tp__join(below, sizeof below, folder, "cifar-10-batches-bin");
    if (tp__is_folder(X, below)) folder = below;
    tp__each_line(X, tp__join(path, sizeof path, folder, "batches.meta.txt"), tp__class_line, NULL);
    if (part != TP_TRAIN) read_batch(X, tp__join(path, sizeof path, folder, "test_batch.bin"));
    for (int i = 1; part == TP_TRAIN && i <= 5; i++) {
        snprintf(name, sizeof name, "data_batch_%d.bin", i);
        if (!tp__is_file(X, tp__join(path, sizeof path, folder, name))) continue;
        if (tp__same_file(path, tp__join(test, sizeof test, folder, "test_batch.bin")))
            tp__image_set_shared(X, path, test, "file");
        read_batch(X, path);
    }
}

/* Reads a record: a label, then the planes of red, green and blue. */
static bool read_record(const char *path, int64_t offset, tp_image *p, char *why, size_t size)
{
    uint8_t record[RECORD];
    int64_t bytes;
    const int fd = tp__open_file(path, &bytes, why, size);
    if (fd < 0) return false;
    const bool ok = tp_read_bytes(fd, offset, record, sizeof record) == sizeof record;
    const int error = ok ? 0 : errno;
    close(fd);
    errno = error;
    if (!ok) {
        snprintf(why, size, "%s: record at byte %lld cannot be read: %s", path, (long long)offset,
                 error ? strerror(error) : "the file became shorter");
        return false;
    }
    if (!tp_image_new(p, SIDE, SIDE)) {
        snprintf(why, size, "%s", p->why);
        return false;
    }
    for (int i = 0; i < PLANE; i++)
        for (int c = 0; c < 3; c++) p->rgb[3 * i + c] = record[1 + c * PLANE + i];
    return true;
}

static bool prepare(const tp_image_set *X, int64_t i, const tp_augment *a, tp_augment_work *w,
                    tp_example e, float *out)
{
    const tp_image_item *it = &X->item[i];
    tp_image p = { 0 };
    const bool read = read_record(X->text + it->path, it->offset, &p, w->why, sizeof w->why);
    w->shortage = p.shortage;
    const bool ok = read && tp_augment_image(a, w, &p, e, out);
    tp_image_free(&p);
    return ok;
}

static bool is_cifar10(tp_image_set *X, const char *folder)
{
    return tp__has(X, folder, "data_batch_1.bin") || tp__has(X, folder, "cifar-10-batches-bin");
}

const tp_layout_kind tp__layout_cifar10 = {
    .read = read_cifar10, .seen = is_cifar10, .rank = 1, .prepare = prepare
};
