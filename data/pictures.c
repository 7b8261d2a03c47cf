/* pictures.c - sets of labelled pictures: what all layouts share, and which one a folder has. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "load.h"
#include "pictures_inner.h"

static const struct {
    const char *name;
    void (*read)(tp_pictures *X, const char *folder, tp_part part);
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

static tp_pictures no_memory = { .why = "pictures: out of memory" };

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

bool tp__pictures_fail(tp_pictures *X, const char *fmt, ...)
{
    if (!X->why[0]) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(X->why, sizeof X->why, fmt, ap);
        va_end(ap);
    }
    return false;
}

size_t tp__pictures_text(tp_pictures *X, const char *s)
{
    const size_t n = strlen(s) + 1, at = X->used;
    while (X->text_room - X->used < n) {
        const size_t room = X->text_room ? 2 * X->text_room : 4096;
        char *more = realloc(X->text, room);
        if (!more) {
            tp__pictures_fail(X, "pictures: out of memory");
            return 0;
        }
        X->text = more;
        X->text_room = room;
    }
    memcpy(X->text + at, s, n);
    X->used += n;
    return at;
}

bool tp__pictures_class(tp_pictures *X, const char *name)
{
    if (X->classes == X->class_room) {
        const int room = X->class_room ? 2 * X->class_room : 128;
        size_t *more = realloc(X->class_at, (size_t)room * sizeof *more);
        if (!more) return tp__pictures_fail(X, "pictures: out of memory");
        X->class_at = more;
        X->class_room = room;
    }
    X->class_at[X->classes++] = tp__pictures_text(X, name);
    return X->why[0] == '\0';
}

bool tp__pictures_item(tp_pictures *X, size_t path, int64_t offset, int32_t label)
{
    if (X->count == X->room) {
        const int64_t room = X->room ? 2 * X->room : 1024;
        tp_picture_item *more = realloc(X->item, (size_t)room * sizeof *more);
        if (!more) return tp__pictures_fail(X, "pictures: out of memory");
        X->item = more;
        X->room = room;
    }
    X->item[X->count++] = (tp_picture_item){ path, offset, label };
    return X->why[0] == '\0';
}

int32_t tp__pictures_label(const tp_pictures *X, const char *name)
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

const char *tp__join(char *buf, size_t size, const char *folder, const char *name)
{
    snprintf(buf, size, "%s/%s", folder, name);
    return buf;
}

bool tp__is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool tp__is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

bool tp__is_picture(const char *name)
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
static bool is_wanted(const char *path, const struct dirent *e, bool folders)
{
    char full[PATH_MAX];
    if (e->d_name[0] == '.') return false;
#ifdef DT_DIR
    if (e->d_type == DT_DIR) return folders;
    if (e->d_type == DT_REG) return !folders;
#endif
    tp__join(full, sizeof full, path, e->d_name);
    return folders ? tp__is_folder(full) : tp__is_file(full);
}

int tp__entries(const char *path, bool folders, char ***names)
{
    char **list = NULL;
    int n = 0, room = 0;
    DIR *d = opendir(path);
    *names = NULL;
    if (!d) return -1;
    for (struct dirent *e; (e = readdir(d));) {
        if (!is_wanted(path, e, folders)) continue;
        if (n == room) {
            room = room ? 2 * room : 64;
            char **more = realloc(list, (size_t)room * sizeof *more);
            if (!more) break;
            list = more;
        }
        if (!(list[n] = strdup(e->d_name))) break;
        n++;
    }
    closedir(d);
    if (n) qsort(list, (size_t)n, sizeof *list, by_bytes);
    *names = list;
    return n;
}

bool tp__each_line(tp_pictures *X, const char *path,
                   bool (*f)(tp_pictures *X, char *line, void *env), void *env)
{
    char why[256], line[4096];
    tp_blob b = { 0 };
    if (!tp__blob_load(&b, path, 0, why, sizeof why)) {
        tp__blob_free(&b);
        return tp__pictures_fail(X, "%s %s", path, why);
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

static bool has(const char *folder, const char *name)
{
    char path[PATH_MAX];
    tp__join(path, sizeof path, folder, name);
    return tp__is_file(path) || tp__is_folder(path);
}

static bool has_shards(const char *folder)
{
    char **names;
    bool found = false;
    const int n = tp__entries(folder, false, &names);
    for (int i = 0; i < n; i++) {
        const char *dot = strrchr(names[i], '.');
        found = found || (dot && strcmp(dot, ".tar") == 0);
    }
    if (n >= 0) tp__entries_free(names, n);
    return found;
}

/* What a folder looks like; most telling first. */
static tp_layout look(const char *folder)
{
    char train[PATH_MAX];
    tp__join(train, sizeof train, folder, "train");
    if (has(folder, "data_batch_1.bin") || has(folder, "cifar-10-batches-bin"))
        return TP_LAYOUT_CIFAR10;
    if (has(folder, "meta/classes.txt") && has(folder, "images")) return TP_LAYOUT_FOOD101;
    if (has(folder, "train.txt") || has(folder, "ip102_v1.1")) return TP_LAYOUT_IP102;
    if (has(folder, "new_train.csv") || has(folder, "train.csv") || has(folder, "train.csv.xz"))
        return TP_LAYOUT_MINI_IMAGENET;
    if (has_shards(folder) || has_shards(train)) return TP_LAYOUT_SHARDS;
    if (has(folder, "imagenet_2012_validation_synset_labels.txt")) return TP_LAYOUT_IMAGENET;
    return TP_LAYOUT_FOLDER;
}

/* Why a folder that looks like no other layout has no pictures: they lie a level too high, or the
 * set a level too low. */
static void find_elsewhere(const char *folder, char *where, size_t size)
{
    char path[1024];
    char **names;
    int n = tp__entries(folder, false, &names);
    for (int i = 0; i < n && !where[0]; i++)
        if (tp__is_picture(names[i]))
            snprintf(where, size, "; it has pictures itself, which belong in folders of classes");
    if (n >= 0) tp__entries_free(names, n);
    n = tp__entries(folder, true, &names);
    for (int i = 0; i < n && !where[0]; i++) {
        const tp_layout l = look(tp__join(path, sizeof path, folder, names[i]));
        if (l != TP_LAYOUT_FOLDER || has(path, "train"))
            snprintf(where, size, "; but '%s' in it looks like the layout '%s'", names[i],
                     tp_layout_name(l));
    }
    if (n >= 0) tp__entries_free(names, n);
}

static void check(tp_pictures *X, const char *folder, tp_layout seen)
{
    char where[400] = "";
    if (!X->why[0] && X->count == 0) {
        if (seen == TP_LAYOUT_FOLDER) find_elsewhere(folder, where, sizeof where);
        tp__pictures_fail(X, "%s: no pictures (.jpg, .jpeg, .png) were found in the layout '%s'%s",
                          folder, tp_layout_name(X->layout), where);
    }
    if (!X->why[0] && X->classes < 2)
        tp__pictures_fail(X, "%s: all pictures are of one class, '%s'; at least two are needed",
                          folder, X->classes ? X->text + X->class_at[0] : "");
    const size_t n = strlen(X->why);
    if (n && seen != X->layout)
        snprintf(X->why + n, sizeof X->why - n, "; it looks like the layout '%s'",
                 tp_layout_name(seen));
}

tp_pictures *tp_pictures_open(const char *folder, tp_layout layout, tp_part part)
{
    tp_pictures *X = calloc(1, sizeof *X);
    if (!X) return &no_memory;
    if (!tp__is_folder(folder)) {
        tp__pictures_fail(X, "%s %s", folder,
                          tp__is_file(folder)
                              ? "is a file; a folder of pictures is wanted (unpack archives)"
                              : strerror(errno));
        return X;
    }
    const tp_layout seen = look(folder);
    X->layout = layout == TP_LAYOUT_AUTO ? seen : layout;
    layouts[X->layout].read(X, folder, part);
    check(X, folder, seen);
    return X;
}

tp_pictures *tp_pictures_from(const tp_picture_source *s)
{
    tp_pictures *X = calloc(1, sizeof *X);
    if (!X) return &no_memory;
    X->source = *s;
    for (int k = 0; k < s->classes; k++) tp__pictures_class(X, s->names[k]);
    for (int64_t i = 0; i < s->count; i++) tp__pictures_item(X, 0, i, s->label[i]);
    return X;
}

void tp_pictures_close(tp_pictures *X)
{
    if (!X || X == &no_memory) return;
    free(X->item);
    free(X->text);
    free(X->class_at);
    free(X);
}

/* ---- reading ---- */

bool tp_pictures_ok(const tp_pictures *X)
{
    return X->why[0] == '\0';
}

const char *tp_pictures_why(const tp_pictures *X)
{
    return X->why;
}

tp_layout tp_pictures_layout(const tp_pictures *X)
{
    return X->layout;
}

int64_t tp_pictures_count(const tp_pictures *X)
{
    return X->count;
}

int tp_pictures_classes(const tp_pictures *X)
{
    return X->classes;
}

const char *tp_pictures_class(const tp_pictures *X, int label)
{
    return label >= 0 && label < X->classes ? X->text + X->class_at[label] : "?";
}

int32_t tp_pictures_label(const tp_pictures *X, int64_t i)
{
    return X->item[i].label;
}

uint64_t tp_pictures_hash(const tp_pictures *X)
{
    uint64_t h = TP_HASH;
    for (int64_t i = 0; i < X->count; i++) {
        char buf[512];
        const char *name = tp_pictures_name(X, i, buf, sizeof buf), *base = strrchr(name, '/');
        for (const char *c = base ? base : name; *c; c++) h = tp_hash(h, (unsigned char)*c);
        h = tp_hash(h, (uint32_t)X->item[i].label);
    }
    return h;
}

const char *tp_pictures_name(const tp_pictures *X, int64_t i, char *buf, size_t size)
{
    const tp_picture_item *it = &X->item[i];
    if (X->source.draw)
        snprintf(buf, size, "drawn picture %lld", (long long)i);
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
    FILE *f = fopen(path, "rb");
    const bool ok =
        f && fseek(f, (long)offset, SEEK_SET) == 0 && fread(record, sizeof record, 1, f) == 1;
    if (f) fclose(f);
    if (!ok) {
        snprintf(why, size, "%s: record at byte %lld cannot be read", path, (long long)offset);
        return false;
    }
    if (!tp_image_new(p, CIFAR_SIDE, CIFAR_SIDE)) return false;
    for (int i = 0; i < CIFAR_PLANE; i++)
        for (int c = 0; c < 3; c++) p->rgb[3 * i + c] = record[1 + c * CIFAR_PLANE + i];
    return true;
}

static bool prepare_image(const tp_pictures *X, int64_t i, const tp_augment *a, tp_augment_work *w,
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

bool tp_pictures_prepare(const tp_pictures *X, int64_t i, const tp_augment *a, tp_augment_work *w,
                         tp_example e, float *out)
{
    const tp_picture_item *it = &X->item[i];
    const char *path = X->source.draw ? "" : X->text + it->path;
    if (X->source.draw || X->layout == TP_LAYOUT_CIFAR10) return prepare_image(X, i, a, w, e, out);
    if (X->layout == TP_LAYOUT_SHARDS) {
        size_t n;
        void *bytes = tp__shard_entry(path, it->offset, &n, w->why, sizeof w->why);
        const bool ok = bytes && tp_augment_bytes(a, w, bytes, n, e, out);
        free(bytes);
        return ok;
    }
    tp_blob b = { 0 };
    const bool ok = tp__blob_load(&b, path, 0, w->why, sizeof w->why) &&
                    tp_augment_bytes(a, w, b.bytes, b.size, e, out);
    tp__blob_free(&b);
    return ok;
}
