/* set.c - opens a set of labelled images: detects and reads its layout, and checks the result. Runs
 * images through an augmentation pipeline. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "inner.h"
#include "load.h"
#include "set.h"

static const struct {
    const char *name;
    const tp_layout_kind *kind;
} layouts[] = { { "auto", NULL },
#define ROW(name, word) { #word, &tp__layout_##word },
                TP_LAYOUTS(ROW)
#undef ROW
};

const char *tp_layout_name(tp_layout l)
{
    return layouts[l].name;
}

bool tp_layout_find(const char *name, tp_layout *l)
{
    if (!name) return false;
    for (int i = 0; i < TP_NLAYOUTS; i++)
        if (strcmp(layouts[i].name, name) == 0) {
            *l = (tp_layout)i;
            return true;
        }
    return false;
}

const tp_layout_kind *tp__layout_of(const tp_image_set *X)
{
    return X->source.draw ? NULL : layouts[X->layout].kind;
}

/* ---- detecting the layout ---- */

/* Detects the layout of a folder from its files. */
static tp_layout detect(tp_image_set *X, const char *folder)
{
    for (int rank = 1; rank < TP_NLAYOUTS; rank++)
        for (int i = 1; i < TP_NLAYOUTS; i++) {
            const tp_layout_kind *k = layouts[i].kind;
            if (k->rank == rank && k->seen(X, folder)) return (tp_layout)i;
        }
    return TP_LAYOUT_FOLDER;
}

/* Explains why a folder of no special layout has no images: they are one level too high, or the set
 * is one level further down. */
static void find_elsewhere(tp_image_set *X, const char *folder, char *where, size_t size)
{
    char path[1024];
    char **names;
    int n = tp__entries(X, folder, false, &names);
    for (int i = 0; i < n && !where[0]; i++)
        if (tp__is_image(names[i]))
            snprintf(where, size, "; it has images itself: move them into a folder for each class");
        else if (tp__is_packed(names[i]))
            snprintf(where, size, "; unpack %.300s, shards to .tar", names[i]);
    if (n >= 0) tp__names_free(names, n);
    n = tp__entries(X, folder, true, &names);
    for (int i = 0; i < n && !where[0]; i++) {
        const tp_layout l = detect(X, tp__join(path, sizeof path, folder, names[i]));
        if (l != TP_LAYOUT_FOLDER || tp__has(X, path, "train"))
            snprintf(where, size, "; but its folder '%s' looks like the layout '%s'", names[i],
                     tp_layout_name(l));
    }
    if (n >= 0) tp__names_free(names, n);
}

/* Can checkpoints store the name of a class, as a line of UTF-8? shown: the name for a message,
 * with unprintable bytes as \\xNN. */
static bool is_line(const char *name, char *shown, size_t size)
{
    bool line = tp_is_utf8(name);
    const bool text = line;
    size_t used = 0;
    for (; *name && used + 5 < size; name++) {
        const unsigned char c = (unsigned char)*name;
        const bool odd = c < 32 || c == 127 || (!text && c > 127);
        line = line && !odd;
        used += (size_t)snprintf(shown + used, size - used, odd ? "\\x%02x" : "%c", c);
    }
    return line && !strpbrk(name, "\n\r");
}

static void check_classes(tp_image_set *X, const char *folder)
{
    char shown[400];
    for (int k = 0; k < X->classes && !X->why[0]; k++)
        if (!is_line(X->text + X->class_at[k], shown, sizeof shown))
            tp__fail(X,
                     "%s: the name of the class '%s' is not a line of UTF-8 text: rename "
                     "its folder",
                     folder, shown);
}

static void check(tp_image_set *X, const char *folder, tp_layout seen)
{
    char where[400] = "";
    tp__image_set_note(X);
    if (!X->why[0] && X->count == 0 && X->held_back && X->of_both > 0) {
        tp__fail(X,
                 "%s: of %lld images none is for this part: nothing separates training from "
                 "validation, so every tenth image of a class is held back; give more images, or "
                 "make train/ and val/",
                 folder, (long long)X->of_both);
    } else if (!X->why[0] && X->count == 0) {
        if (seen == TP_LAYOUT_FOLDER) find_elsewhere(X, folder, where, sizeof where);
        tp__fail(X, "%s: no images (.jpg, .jpeg, .png) were found in the layout '%s'%s%s%s%s",
                 folder, tp_layout_name(X->layout),
                 X->layout == TP_LAYOUT_TEST ? ", which is CLASS/IMAGE" : "", where,
                 X->note[0] ? "; " : "", X->note);
    }
    if (!X->why[0] && X->classes < 2 && X->layout != TP_LAYOUT_TEST)
        tp__fail(X, "%s: all images are of the class '%s': at least two classes are needed", folder,
                 X->classes ? X->text + X->class_at[0] : "");
    check_classes(X, folder);
    const size_t n = strlen(X->why);
    if (n && seen != X->layout && (X->layout != TP_LAYOUT_TEST || seen != TP_LAYOUT_FOLDER))
        snprintf(X->why + n, sizeof X->why - n, "; it looks like the layout '%s'",
                 tp_layout_name(seen));
}

tp_image_set *tp_image_set_open(const char *folder, tp_layout layout, tp_part part)
{
    tp_image_set *X = tp__image_set_new();
    if (!tp_image_set_ok(X)) return X;
    errno = 0;
    if (!tp__is_folder(X, folder)) {
        const int error = errno;
        if (tp__is_file(X, folder))
            tp__fail(X, "%s is a file, not a folder of images: unpack archives first", folder);
        else
            tp__fail(X, "%s: the folder cannot be opened (%s); check the path", folder,
                     strerror(error ? error : ENOTDIR));
        return X;
    }
    const tp_layout seen = detect(X, folder);
    if (X->why[0]) return X;
    X->layout = layout == TP_LAYOUT_AUTO ? seen : layout;
    layouts[X->layout].kind->read(X, folder, part);
    check(X, folder, seen);
    return X;
}

/* ---- one image ---- */

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

/* Reads a file into memory that w reuses for the next image, because fresh memory took 2 % of the
 * time; frees large buffers. Sets errno on failure. */
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
    w->shortage = TP_OK;
    errno = 0;
    if (!kind)
        ok = prepare_drawn(X, i, a, w, e, out);
    else if (kind->prepare)
        ok = kind->prepare(X, i, a, w, e, out);
    else
        ok = prepare_file(X->text + X->item[i].path, a, w, e, out);
    const int error = w->shortage ? ENOMEM : errno;
    w->shortage = ok ? TP_OK : tp__shortage(error, w->why, sizeof w->why);
    return ok;
}
