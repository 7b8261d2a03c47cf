/* set_shards.c - images in tar files (WebDataset), read in any order.
 *
 * Opening reads all headers once and records the offset of each image's header. Reading an image
 * starts at its header, so that libarchive handles every dialect of tar. */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "load.h"
#include "set.h"

/* The entries of one key, which are adjacent: images, and KEY.cls before, between or after them. */
typedef struct pending {
    char key[512];
    int64_t first; /* index in the set of its first image; the set's last image is its last */
    bool numbered; /* KEY.cls was found                                               */
    int32_t label; /* the number in it, or -1                                         */
} pending;

/* The kinds of labels found so far: a set must use numbers only, or folders only. */
typedef struct labels {
    bool numbered;
    int32_t largest;   /* largest number                          */
    int64_t of_folder; /* an image labelled by its folder, or -1 */
} labels;

/* The error of libarchive if memory or the disk failed; 0 if the archive itself is damaged. */
static int system_error(struct archive *a)
{
    const int error = archive_errno(a);
    return error == EIO || error == ESTALE || error == ENOMEM ? error : 0;
}

static struct archive *open_tar(const char *path, int64_t offset, int *fd, char *why, size_t size)
{
    int64_t bytes;
    *fd = tp__open_file(path, &bytes, why, size);
    if (*fd < 0) return NULL;
    struct archive *a = archive_read_new();
    if (a && lseek(*fd, (off_t)offset, SEEK_SET) == (off_t)offset &&
        archive_read_support_format_tar(a) == ARCHIVE_OK &&
        archive_read_open_fd(a, *fd, 1 << 16) == ARCHIVE_OK)
        return a;
    const int error = !a ? ENOMEM : archive_error_string(a) ? system_error(a) : errno;
    snprintf(why, size, "cannot be read: %s",
             a && archive_error_string(a) ? archive_error_string(a) : strerror(error));
    if (a) archive_read_free(a);
    close(*fd);
    errno = error;
    return NULL;
}

/* Splits "a/KEY.jpg" at the first dot of its last component; false if there is none. */
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

static int32_t read_label(struct archive *a)
{
    char text[32] = "", *end;
    const la_ssize_t n = archive_read_data(a, text, sizeof text - 1);
    const long label = n > 0 ? strtol(text, &end, 10) : -1;
    if (n <= 0 || end == text || end[strspn(end, " \t\r\n")]) return -1;
    return label >= 0 && label < (1 << 24) ? (int32_t)label : -1;
}

/* The label of "CLASS/IMAGE". Classes are numbered in the order of their appearance until they are
 * sorted. */
static int32_t folder_label(tp_image_set *X, const char *name)
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
    return tp__image_set_class(X, class) ? X->classes - 1 : -1;
}

/* Labels the images of a key after its last entry. An image without a label is an error: dropping
 * it would shrink the set silently. */
static bool finish(tp_image_set *X, const char *path, const pending *p, labels *L)
{
    if (p->numbered) L->numbered = true;
    if (p->label > L->largest) L->largest = p->label;
    for (int64_t i = p->first; i < X->count; i++) {
        tp_image_item *it = &X->item[i];
        if (p->numbered) it->label = p->label;
        if (!p->numbered && it->label >= 0) L->of_folder = i;
        if (it->label < 0)
            return tp__image_set_fail(X,
                                      "%s: the image '%s' has no label: add a file %s.cls with its "
                                      "number, or put it into a folder named after its class",
                                      path, p->key, p->key);
    }
    return true;
}

/* Adds one entry of a tar file. */
static void add(tp_image_set *X, struct archive *a, const char *path, size_t path_at,
                const char *name, pending *p, labels *L)
{
    char key[sizeof p->key];
    const char *rest;
    if (!split_name(name, key, sizeof key, &rest)) return;
    if (strcmp(key, p->key) != 0) {
        if (!finish(X, path, p, L)) return;
        *p = (pending){ .first = X->count, .label = -1 };
        snprintf(p->key, sizeof p->key, "%s", key);
    }
    if (strcmp(rest, "cls") == 0) {
        p->numbered = true;
        p->label = read_label(a);
    } else if (tp__is_image(name)) {
        tp__image_set_item(X, path_at, archive_read_header_position(a), folder_label(X, name));
    }
}

/* Adds all images of a tar file. */
static void walk(tp_image_set *X, const char *path, labels *L)
{
    int fd;
    char why[256];
    struct archive_entry *e;
    struct archive *a = open_tar(path, 0, &fd, why, sizeof why);
    if (!a) {
        tp__image_set_fail(X, "%s %s", path, why);
        return;
    }
    const size_t at = tp__image_set_text(X, path);
    pending p = { .first = X->count, .label = -1 };
    int r;
    while (!X->why[0] && (r = archive_read_next_header(a, &e)) != ARCHIVE_EOF) {
        const char *name = archive_entry_pathname(e);
        if (r < ARCHIVE_WARN)
            tp__image_set_fail(X, "%s is damaged or cut off: %s", path, archive_error_string(a));
        else if (name && archive_entry_filetype(e) == AE_IFREG)
            add(X, a, path, at, name, &p, L);
    }
    finish(X, path, &p, L);
    archive_read_free(a);
    close(fd);
}

/* Sorts the classes that folders have named, and renumbers the labels of the images. */
static void sort_classes(tp_image_set *X)
{
    size_t *former = malloc((size_t)X->classes * sizeof *former);
    int32_t *now = malloc((size_t)X->classes * sizeof *now);
    if (former && now) {
        memcpy(former, X->class_at, (size_t)X->classes * sizeof *former);
        tp__image_set_sort(X);
        for (int k = 0; k < X->classes; k++) now[k] = tp__image_set_label(X, X->text + former[k]);
        for (int64_t i = 0; i < X->count; i++) X->item[i].label = now[X->item[i].label];
    } else {
        tp__image_set_fail(X, "images: out of memory");
    }
    free(former);
    free(now);
}

static void name_classes(tp_image_set *X, int32_t largest)
{
    char name[32];
    for (int32_t k = 0; k <= largest && !X->why[0]; k++) {
        snprintf(name, sizeof name, "class %d", k);
        tp__image_set_class(X, name);
    }
}

void tp__read_shards(tp_image_set *X, const char *folder, tp_part part)
{
    char below[PATH_MAX], path[PATH_MAX];
    char **names;
    labels L = { .largest = -1, .of_folder = -1 };
    tp__join(below, sizeof below, folder, part == TP_TRAIN ? "train" : "val");
    if (tp__is_folder(X, below)) folder = below;
    const int n = tp__entries(X, folder, false, &names);
    for (int i = 0; i < n; i++)
        if (tp__is_shard(names[i])) walk(X, tp__join(path, sizeof path, folder, names[i]), &L);
    if (n >= 0) tp__entries_free(names, n);
    if (X->why[0]) return;
    if (L.numbered && L.of_folder >= 0) {
        char name[PATH_MAX];
        tp__image_set_fail(X,
                           "%s is labelled by its folder, other images by .cls files: use one way "
                           "for all images",
                           tp_image_set_name(X, L.of_folder, name, sizeof name));
    } else if (L.numbered) {
        X->classes = 0;
        name_classes(X, L.largest);
    } else if (X->classes) {
        sort_classes(X);
    }
}

/* NULL on failure, with errno if memory or the disk failed and 0 if the entry is damaged. */
static void *read_entry(struct archive *a, int64_t most, size_t *n)
{
    struct archive_entry *e;
    const bool found = archive_read_next_header(a, &e) >= ARCHIVE_WARN;
    errno = found ? 0 : system_error(a);
    if (!found || archive_entry_size(e) <= 0 || archive_entry_size(e) >= most) return NULL;
    *n = (size_t)archive_entry_size(e);
    void *bytes = malloc(*n);
    if (bytes && archive_read_data(a, bytes, *n) == (la_ssize_t)*n) return bytes;
    errno = bytes ? system_error(a) : ENOMEM;
    free(bytes);
    return NULL;
}

void *tp__shard_entry(const char *path, int64_t offset, size_t *n, char *why, size_t size)
{
    int fd;
    struct stat st;
    struct archive *a = open_tar(path, offset, &fd, why, size);
    *n = 0;
    if (!a) return NULL;
    void *bytes = fstat(fd, &st) == 0 ? read_entry(a, st.st_size - offset, n) : NULL;
    const int error = errno;
    if (!bytes && error == ENOMEM)
        snprintf(why, size, "out of memory for %zu bytes", *n);
    else if (!bytes && error)
        snprintf(why, size, "cannot be read: %s", strerror(error));
    else if (!bytes)
        snprintf(why, size, "cannot be read: %s was truncated or changed after it was opened",
                 path);
    archive_read_free(a);
    close(fd);
    errno = error;
    return bytes;
}
