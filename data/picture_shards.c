/* picture_shards.c - pictures in tar files (WebDataset), read in any order.
 *
 * Opening walks over the headers once and notes where those of pictures begin; reading starts at a
 * header again, so that libarchive understands whatever dialect of tar it is. */
#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pictures_inner.h"

/* A picture whose KEY.cls may follow it, or may have come before. */
typedef struct pending {
    char key[512];
    int64_t picture; /* offset of its header, -1: not seen yet */
    int32_t label;   /* -1: not seen yet                       */
} pending;

static struct archive *open_tar(const char *path, int64_t offset, int *fd)
{
    struct archive *a = archive_read_new();
    *fd = open(path, O_RDONLY | O_CLOEXEC);
    if (a && *fd >= 0 && lseek(*fd, (off_t)offset, SEEK_SET) == (off_t)offset &&
        archive_read_support_format_tar(a) == ARCHIVE_OK &&
        archive_read_open_fd(a, *fd, 1 << 16) == ARCHIVE_OK)
        return a;
    if (a) archive_read_free(a);
    if (*fd >= 0) close(*fd);
    return NULL;
}

/* KEY of "a/KEY.jpg" and the rest after the first dot of the last part; false: none. */
static bool split_name(const char *name, char *key, size_t size, const char **rest)
{
    const char *slash = strrchr(name, '/');
    const char *dot = strchr(slash ? slash : name, '.');
    if (!dot || (size_t)(dot - name) >= size) return false;
    memcpy(key, name, (size_t)(dot - name));
    key[dot - name] = '\0';
    *rest = dot + 1;
    return true;
}

/* No picture may be left without a label: a set would shrink in silence. */
static bool complete(tp_pictures *X, const char *path, const pending *p)
{
    return p->picture < 0 ||
           tp__pictures_fail(X,
                             "%s: the picture '%s' has no label: that is a number in a file %s.cls "
                             "beside it, or a folder of its class",
                             path, p->key, p->key);
}

/* Takes the pair if both halves are there. */
static void take(tp_pictures *X, size_t path, pending *p)
{
    if (p->picture < 0 || p->label < 0) return;
    tp__pictures_item(X, path, p->picture, p->label);
    p->picture = -1;
}

static int32_t read_label(struct archive *a)
{
    char text[32] = "", *end;
    const la_ssize_t n = archive_read_data(a, text, sizeof text - 1);
    const long label = n > 0 ? strtol(text, &end, 10) : -1;
    return n > 0 && end != text && label >= 0 && label < (1 << 24) ? (int32_t)label : -1;
}

/* "CLASS/PICTURE": the class becomes the label, numbered as they come until they are sorted. */
static int32_t folder_label(tp_pictures *X, const char *name)
{
    char class[512];
    const char *slash = strrchr(name, '/'), *from = name;
    if (!slash || (size_t)(slash - name) >= sizeof class) return -1;
    for (const char *s = name; s < slash; s++)
        if (*s == '/') from = s + 1;
    memcpy(class, from, (size_t)(slash - from));
    class[slash - from] = '\0';
    for (int k = X->classes - 1; k >= 0; k--)
        if (strcmp(X->text + X->class_at[k], class) == 0) return k;
    return tp__pictures_class(X, class) ? X->classes - 1 : -1;
}

/* All pictures of a tar file; numbered: they have KEY.cls. */
static void walk(tp_pictures *X, const char *path, bool *numbered, int32_t *largest)
{
    int fd;
    struct archive_entry *e;
    struct archive *a = open_tar(path, 0, &fd);
    if (!a) {
        tp__pictures_fail(X, "%s cannot be read", path);
        return;
    }
    const size_t at = tp__pictures_text(X, path);
    pending p = { .picture = -1, .label = -1 };
    int r;
    while (!X->why[0] && (r = archive_read_next_header(a, &e)) != ARCHIVE_EOF) {
        char key[sizeof p.key];
        const char *name = archive_entry_pathname(e), *rest;
        if (r < ARCHIVE_WARN) {
            tp__pictures_fail(X, "%s is damaged or cut off: %s", path, archive_error_string(a));
            break;
        }
        if (!name || archive_entry_filetype(e) != AE_IFREG ||
            !split_name(name, key, sizeof key, &rest))
            continue;
        if (strcmp(key, p.key) != 0) {
            if (!complete(X, path, &p)) break;
            p = (pending){ .picture = -1, .label = -1 };
            snprintf(p.key, sizeof p.key, "%s", key);
        }
        if (strcmp(rest, "cls") == 0) {
            p.label = read_label(a);
            *numbered = true;
            *largest = p.label > *largest ? p.label : *largest;
        } else if (tp__is_picture(name)) {
            p.picture = archive_read_header_position(a);
            if (!*numbered && strchr(name, '/')) p.label = folder_label(X, name);
        }
        take(X, at, &p);
    }
    complete(X, path, &p);
    archive_read_free(a);
    close(fd);
}

static const char *class_text;
static int by_class(const void *a, const void *b)
{
    return strcmp(class_text + *(const size_t *)a, class_text + *(const size_t *)b);
}

/* Sorts the classes that folders have named, and renumbers the labels. */
static void sort_classes(tp_pictures *X)
{
    size_t *former = malloc((size_t)X->classes * sizeof *former);
    int32_t *now = malloc((size_t)X->classes * sizeof *now);
    if (former && now) {
        memcpy(former, X->class_at, (size_t)X->classes * sizeof *former);
        class_text = X->text;
        qsort(X->class_at, (size_t)X->classes, sizeof *X->class_at, by_class);
        for (int k = 0; k < X->classes; k++) now[k] = tp__pictures_label(X, X->text + former[k]);
        for (int64_t i = 0; i < X->count; i++) X->item[i].label = now[X->item[i].label];
    } else {
        tp__pictures_fail(X, "pictures: out of memory");
    }
    free(former);
    free(now);
}

static void name_classes(tp_pictures *X, int32_t largest)
{
    char name[32];
    for (int32_t k = 0; k <= largest && !X->why[0]; k++) {
        snprintf(name, sizeof name, "class %d", k);
        tp__pictures_class(X, name);
    }
}

void tp__read_shards(tp_pictures *X, const char *folder, tp_part part)
{
    char below[PATH_MAX], path[PATH_MAX];
    char **names;
    bool numbered = false;
    int32_t largest = -1;
    tp__join(below, sizeof below, folder, part == TP_TRAIN ? "train" : "val");
    if (tp__is_folder(below)) folder = below;
    const int n = tp__entries(folder, false, &names);
    for (int i = 0; i < n; i++) {
        const char *dot = strrchr(names[i], '.');
        if (dot && strcmp(dot, ".tar") == 0)
            walk(X, tp__join(path, sizeof path, folder, names[i]), &numbered, &largest);
    }
    if (n >= 0) tp__entries_free(names, n);
    if (X->why[0]) return;
    if (numbered) {
        X->classes = 0;
        name_classes(X, largest);
    } else if (X->classes) {
        sort_classes(X);
    }
}

void *tp__shard_entry(const char *path, int64_t offset, size_t *n, char *why, size_t size)
{
    int fd;
    struct archive_entry *e;
    struct archive *a = open_tar(path, offset, &fd);
    void *bytes = NULL;
    *n = 0;
    struct stat st;
    if (a && fstat(fd, &st) == 0 && archive_read_next_header(a, &e) >= ARCHIVE_WARN &&
        archive_entry_size(e) > 0 && archive_entry_size(e) < st.st_size - offset) {
        *n = (size_t)archive_entry_size(e);
        bytes = malloc(*n);
        if (bytes && archive_read_data(a, bytes, *n) != (la_ssize_t)*n) {
            free(bytes);
            bytes = NULL;
        }
    }
    if (!bytes) snprintf(why, size, "cannot be read: is %s cut off, or changed since?", path);
    if (a) {
        archive_read_free(a);
        close(fd);
    }
    return bytes;
}
