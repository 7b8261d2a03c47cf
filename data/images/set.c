/* set.c - sets of labelled images: what all layouts share, and which one a folder has. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "inner.h"
#include "load.h"
#include "set.h"

static const struct {
    const char *name;
    void (*read)(tp_image_set *X, const char *folder, tp_part part);
} layouts[] = {
    { "auto", NULL },
    { "folder", tp__read_folder },
    { "imagenet", tp__read_imagenet },
    { "ip102", tp__read_ip102 },
    { "food101", tp__read_food101 },
    { "miniimagenet", tp__read_mini_imagenet },
    { "cifar10", tp__read_cifar10 },
    { "shards", tp__read_shards },
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

static tp_image_set no_memory = { .why = "images: out of memory" };

const char *tp_layout_name(tp_layout l)
{
    return layouts[l].name;
}

bool tp_layout_find(const char *name, tp_layout *l)
{
    for (int i = 0; i < LAYOUTS; i++)
        if (strcmp(layouts[i].name, name) == 0) {
            *l = (tp_layout)i;
            return true;
        }
    return false;
}

/* ---- filling ---- */

bool tp__image_set_fail(tp_image_set *X, const char *fmt, ...)
{
    if (!X->why[0]) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(X->why, sizeof X->why, fmt, ap);
        va_end(ap);
    }
    return false;
}

size_t tp__image_set_text(tp_image_set *X, const char *s)
{
    const size_t n = strlen(s) + 1, at = X->used;
    while (X->text_room - X->used < n) {
        const size_t room = X->text_room ? 2 * X->text_room : 4096;
        char *more = realloc(X->text, room);
        if (!more) {
            tp__image_set_fail(X, "images: out of memory");
            return 0;
        }
        X->text = more;
        X->text_room = room;
    }
    memcpy(X->text + at, s, n);
    X->used += n;
    return at;
}

bool tp__image_set_class(tp_image_set *X, const char *name)
{
    if (X->classes == X->class_room) {
        const int room = X->class_room ? 2 * X->class_room : 128;
        size_t *more = realloc(X->class_at, (size_t)room * sizeof *more);
        if (!more) return tp__image_set_fail(X, "images: out of memory");
        X->class_at = more;
        X->class_room = room;
    }
    X->class_at[X->classes++] = tp__image_set_text(X, name);
    return X->why[0] == '\0';
}

bool tp__image_set_item(tp_image_set *X, size_t path, int64_t offset, int32_t label)
{
    if (X->count == X->room) {
        const int64_t room = X->room ? 2 * X->room : 1024;
        tp_image_item *more = realloc(X->item, (size_t)room * sizeof *more);
        if (!more) return tp__image_set_fail(X, "images: out of memory");
        X->item = more;
        X->room = room;
    }
    X->item[X->count++] = (tp_image_item){ path, offset, label };
    return X->why[0] == '\0';
}

int32_t tp__image_set_label(const tp_image_set *X, const char *name)
{
    int lo = 0, hi = X->classes - 1;
    while (lo <= hi) {
        const int mid = (lo + hi) / 2, order = strcmp(X->text + X->class_at[mid], name);
        if (order == 0) return mid;
        if (order < 0)
            lo = mid + 1;
        else
            hi = mid - 1;
    }
    return -1;
}

/* ---- files ---- */

enum { LARGEST_LIST = 1 << 28 }; /* bytes, unpacked: ImageNet's would be 50 MB */

const char *tp__join(char *buf, size_t size, const char *folder, const char *name)
{
    snprintf(buf, size, "%s/%s", folder, name);
    return buf;
}

/* What path is; 0: nothing. A set would be another one, or shrink, if errors counted as that. */
static mode_t mode_of(tp_image_set *X, const char *path)
{
    struct stat st;
    if (stat(path, &st) == 0) return st.st_mode;
    if (errno != ENOENT && errno != ENOTDIR && errno != ELOOP && errno != ENAMETOOLONG)
        tp__image_set_fail(X, "%s: cannot be looked at (%s)", path, strerror(errno));
    return 0;
}

bool tp__is_folder(tp_image_set *X, const char *path)
{
    return S_ISDIR(mode_of(X, path));
}

bool tp__is_file(tp_image_set *X, const char *path)
{
    return S_ISREG(mode_of(X, path));
}

bool tp__is_image(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && (strcasecmp(dot, ".jpg") == 0 || strcasecmp(dot, ".jpeg") == 0 ||
                   strcasecmp(dot, ".png") == 0);
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void tp__entries_free(char **names, int n)
{
    for (int i = 0; i < n; i++) free(names[i]);
    free(names);
}

/* Many file systems tell the kind of an entry without a look at it. */
static bool is_wanted(tp_image_set *X, const char *path, const struct dirent *e, bool folders)
{
    char full[PATH_MAX];
    if (e->d_name[0] == '.') return false;
#ifdef DT_DIR
    if (e->d_type == DT_DIR) return folders;
    if (e->d_type == DT_REG) return !folders;
#endif
    tp__join(full, sizeof full, path, e->d_name);
    return folders ? tp__is_folder(X, full) : tp__is_file(X, full);
}

static void cannot_list(tp_image_set *X, const char *folder)
{
    if (errno != ENOENT && errno != ENOTDIR)
        tp__image_set_fail(X, "%s: the folder cannot be read (%s)", folder, strerror(errno));
}

int tp__entries(tp_image_set *X, const char *path, bool folders, char ***names)
{
    char **list = NULL;
    int n = 0, room = 0;
    DIR *d = opendir(path);
    *names = NULL;
    if (!d) cannot_list(X, path);
    if (!d) return -1;
    bool whole = true;
    errno = 0;
    for (struct dirent *e; whole && (e = readdir(d)); errno = 0) {
        if (!is_wanted(X, path, e, folders)) continue;
        if (n == room) {
            room = room ? 2 * room : 64;
            char **more = realloc(list, (size_t)room * sizeof *more);
            whole = more != NULL;
            if (more) list = more;
        }
        if (whole) whole = (list[n] = strdup(e->d_name)) != NULL;
        n += whole;
    }
    whole = whole && errno == 0; /* readdir fails as it ends */
    if (!whole) cannot_list(X, path);
    whole = whole && !X->why[0];
    closedir(d);
    if (!whole) {
        tp__entries_free(list, n);
        return -1;
    }
    if (n) qsort(list, (size_t)n, sizeof *list, by_bytes);
    *names = list;
    return n;
}

bool tp__each_line(tp_image_set *X, const char *path,
                   bool (*f)(tp_image_set *X, char *line, void *env), void *env)
{
    char why[256], line[4096];
    tp_blob b = { 0 };
    bool ok = tp__blob_load(&b, path, LARGEST_LIST, why, sizeof why);
    if (!ok) tp__image_set_fail(X, "%s %s", path, why);
    if (ok && b.size == LARGEST_LIST) /* or it was cut off there */
        ok = tp__image_set_fail(X, "%s has %d bytes or more, too many for a list", path,
                                LARGEST_LIST);
    if (!ok) {
        tp__blob_free(&b);
        return false;
    }
    size_t n = 0;
    for (size_t i = 0; i <= b.size; i++) {
        const char c = i < b.size ? (char)b.bytes[i] : '\n';
        if (c != '\n') {
            if (n < sizeof line - 1 && c != '\r') line[n++] = c;
            continue;
        }
        line[n] = '\0';
        if (n && !f(X, line, env)) break;
        n = 0;
    }
    tp__blob_free(&b);
    return X->why[0] == '\0';
}

/* ---- opening ---- */

static bool has(tp_image_set *X, const char *folder, const char *name)
{
    char path[PATH_MAX];
    tp__join(path, sizeof path, folder, name);
    return tp__is_file(X, path) || tp__is_folder(X, path);
}

static bool has_shards(tp_image_set *X, const char *folder)
{
    char **names;
    bool found = false;
    const int n = tp__entries(X, folder, false, &names);
    for (int i = 0; i < n; i++) {
        const char *dot = strrchr(names[i], '.');
        found = found || (dot && strcmp(dot, ".tar") == 0);
    }
    if (n >= 0) tp__entries_free(names, n);
    return found;
}

/* What a folder looks like; most telling first. */
static tp_layout look(tp_image_set *X, const char *folder)
{
    char train[PATH_MAX];
    tp__join(train, sizeof train, folder, "train");
    if (has(X, folder, "data_batch_1.bin") || has(X, folder, "cifar-10-batches-bin"))
        return TP_LAYOUT_CIFAR10;
    if (has(X, folder, "meta/classes.txt") && has(X, folder, "images")) return TP_LAYOUT_FOOD101;
    if (has(X, folder, "train.txt") || has(X, folder, "ip102_v1.1")) return TP_LAYOUT_IP102;
    if (has(X, folder, "new_train.csv") || has(X, folder, "train.csv") ||
        has(X, folder, "train.csv.xz"))
        return TP_LAYOUT_MINI_IMAGENET;
    if (has_shards(X, folder) || has_shards(X, train)) return TP_LAYOUT_SHARDS;
    if (has(X, folder, "imagenet_2012_validation_synset_labels.txt")) return TP_LAYOUT_IMAGENET;
    return TP_LAYOUT_FOLDER;
}

/* Why a folder that looks like no other layout has no images: they lie a level too high, or the
 * set a level too low. */
static void find_elsewhere(tp_image_set *X, const char *folder, char *where, size_t size)
{
    char path[1024];
    char **names;
    int n = tp__entries(X, folder, false, &names);
    for (int i = 0; i < n && !where[0]; i++)
        if (tp__is_image(names[i]))
            snprintf(where, size, "; it has images itself, which belong in folders of classes");
    if (n >= 0) tp__entries_free(names, n);
    n = tp__entries(X, folder, true, &names);
    for (int i = 0; i < n && !where[0]; i++) {
        const tp_layout l = look(X, tp__join(path, sizeof path, folder, names[i]));
        if (l != TP_LAYOUT_FOLDER || has(X, path, "train"))
            snprintf(where, size, "; but '%s' in it looks like the layout '%s'", names[i],
                     tp_layout_name(l));
    }
    if (n >= 0) tp__entries_free(names, n);
}

/* A name that models can hold, which keep a list of lines; for a message the others' odd bytes are
 * written as \\xNN. */
static bool fit(const char *name, char *shown, size_t size)
{
    bool fit = tp_is_utf8(name);
    const bool text = fit;
    size_t used = 0;
    for (; *name && used + 5 < size; name++) {
        const unsigned char c = (unsigned char)*name;
        const bool odd = c < 32 || c == 127 || (!text && c > 127);
        fit = fit && !odd;
        used += (size_t)snprintf(shown + used, size - used, odd ? "\\x%02x" : "%c", c);
    }
    return fit && !strpbrk(name, "\n\r");
}

static void check_classes(tp_image_set *X, const char *folder)
{
    char shown[400];
    for (int k = 0; k < X->classes && !X->why[0]; k++)
        if (!fit(X->text + X->class_at[k], shown, sizeof shown))
            tp__image_set_fail(
                X,
                "%s: the class '%s' has a name that is no line of UTF-8 text: rename "
                "it",
                folder, shown);
}

static void check(tp_image_set *X, const char *folder, tp_layout seen)
{
    char where[400] = "";
    if (!X->why[0] && X->count == 0) {
        if (seen == TP_LAYOUT_FOLDER) find_elsewhere(X, folder, where, sizeof where);
        tp__image_set_fail(X, "%s: no images (.jpg, .jpeg, .png) were found in the layout '%s'%s",
                           folder, tp_layout_name(X->layout), where);
    }
    if (!X->why[0] && X->classes < 2)
        tp__image_set_fail(X, "%s: all images are of one class, '%s'; at least two are needed",
                           folder, X->classes ? X->text + X->class_at[0] : "");
    check_classes(X, folder);
    const size_t n = strlen(X->why);
    if (n && seen != X->layout)
        snprintf(X->why + n, sizeof X->why - n, "; it looks like the layout '%s'",
                 tp_layout_name(seen));
}

tp_image_set *tp_image_set_open(const char *folder, tp_layout layout, tp_part part)
{
    tp_image_set *X = calloc(1, sizeof *X);
    if (!X) return &no_memory;
    if (!tp__is_folder(X, folder)) {
        tp__image_set_fail(X, "%s %s", folder,
                           tp__is_file(X, folder)
                               ? "is a file; a folder of images is wanted (unpack archives)"
                               : strerror(errno));
        return X;
    }
    const tp_layout seen = look(X, folder);
    if (X->why[0]) return X;
    X->layout = layout == TP_LAYOUT_AUTO ? seen : layout;
    layouts[X->layout].read(X, folder, part);
    check(X, folder, seen);
    return X;
}

tp_image_set *tp_image_set_from(const tp_image_source *s)
{
    tp_image_set *X = calloc(1, sizeof *X);
    if (!X) return &no_memory;
    X->source = *s;
    for (int k = 0; k < s->classes; k++) tp__image_set_class(X, s->names[k]);
    for (int64_t i = 0; i < s->count; i++) tp__image_set_item(X, 0, i, s->label[i]);
    return X;
}

void tp_image_set_close(tp_image_set *X)
{
    if (!X || X == &no_memory) return;
    free(X->item);
    free(X->text);
    free(X->class_at);
    free(X);
}

/* ---- reading ---- */

bool tp_image_set_ok(const tp_image_set *X)
{
    return X->why[0] == '\0';
}

const char *tp_image_set_why(const tp_image_set *X)
{
    return X->why;
}

tp_layout tp_image_set_layout(const tp_image_set *X)
{
    return X->layout;
}

int64_t tp_image_set_count(const tp_image_set *X)
{
    return X->count;
}

int tp_image_set_classes(const tp_image_set *X)
{
    return X->classes;
}

const char *tp_image_set_class(const tp_image_set *X, int label)
{
    return label >= 0 && label < X->classes ? X->text + X->class_at[label] : "?";
}

int32_t tp_image_set_label(const tp_image_set *X, int64_t i)
{
    return X->item[i].label;
}

uint64_t tp_image_set_hash(const tp_image_set *X)
{
    uint64_t h = TP_HASH;
    for (int64_t i = 0; i < X->count; i++) {
        char buf[512];
        const char *name = tp_image_set_name(X, i, buf, sizeof buf), *base = strrchr(name, '/');
        for (const char *c = base ? base : name; *c; c++) h = tp_hash(h, (unsigned char)*c);
        h = tp_hash(h, (uint32_t)X->item[i].label);
    }
    return h;
}

const char *tp_image_set_name(const tp_image_set *X, int64_t i, char *buf, size_t size)
{
    const tp_image_item *it = &X->item[i];
    if (X->source.draw)
        snprintf(buf, size, "drawn image %lld", (long long)i);
    else if (it->offset)
        snprintf(buf, size, "%s, byte %lld", X->text + it->path, (long long)it->offset);
    else
        snprintf(buf, size, "%s", X->text + it->path);
    return buf;
}

enum { CIFAR_SIDE = 32, CIFAR_PLANE = CIFAR_SIDE * CIFAR_SIDE };

/* A record of CIFAR-10: a label, then the planes of red, green and blue. */
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
    if (!tp_image_new(p, CIFAR_SIDE, CIFAR_SIDE)) return false;
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
    ok = ok && tp_augment_image(a, w, &p, e, out);
    tp_image_free(&p);
    return ok;
}

/* A file into the memory that w keeps from image to image, unless it is much: fresh memory took
 * 2 % of the time. False with errno, as all that follows. */
static bool prepare_file(const char *path, const tp_augment *a, tp_augment_work *w, tp_example e,
                         float *out)
{
    enum { MUCH = 1 << 24 };
    tp_blob b = { .bytes = w->file, .room = w->file_room };
    const bool read = tp__blob_read(&b, path, TP_LARGEST_IMAGES, w->why, sizeof w->why);
    const bool ok = read && tp_augment_bytes(a, w, b.bytes, b.size, e, out);
    const int error = b.error;
    if (b.room > MUCH) tp__blob_free(&b);
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

/* Of errors that are no fault of the image: what to do. With other images in its place training
 * would be another one, and nothing would say so. */
static const char *advice(int error)
{
    switch (error) {
    case EMFILE:
    case ENFILE: return "close other files (ulimit -n)";
    case ENOMEM: return "give the process more memory";
    case EIO:
    case ESTALE: return "check the disk";
    default: return NULL;
    }
}

bool tp_image_set_prepare(const tp_image_set *X, int64_t i, const tp_augment *a, tp_augment_work *w,
                          tp_example e, float *out)
{
    const tp_image_item *it = &X->item[i];
    bool ok;
    errno = 0;
    if (X->source.draw || X->layout == TP_LAYOUT_CIFAR10)
        ok = prepare_image(X, i, a, w, e, out);
    else if (X->layout == TP_LAYOUT_SHARDS)
        ok = prepare_entry(it, X->text + it->path, a, w, e, out);
    else
        ok = prepare_file(X->text + it->path, a, w, e, out);
    const char *todo = ok ? NULL : advice(errno);
    const size_t n = strlen(w->why);
    w->shortage = todo != NULL;
    if (todo) snprintf(w->why + n, sizeof w->why - n, "; this is no fault of the image: %s", todo);
    return ok;
}
