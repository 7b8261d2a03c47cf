/* set_items.c - the images and classes of a set, and what it leaves out; layouts add them. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "set.h"

TP_FAILS(tp_image_set, no_set, "images: out of memory",
         "image_set: NULL was given in place of a set")

/* ---- adding ---- */

size_t tp__image_set_text(tp_image_set *X, const char *s)
{
    const size_t n = strlen(s) + 1, at = X->used;
    if (!tp_reserve(&X->text, &X->text_room, at, n, 1)) {
        tp__fail(X, "images: out of memory");
        return 0;
    }
    memcpy(X->text + at, s, n);
    X->used += n;
    return at;
}

bool tp__image_set_class(tp_image_set *X, const char *name)
{
    if (!tp_reserve(&X->class_at, &X->class_room, (size_t)X->classes, 1, sizeof *X->class_at))
        return tp__fail(X, "images: out of memory");
    X->class_at[X->classes++] = tp__image_set_text(X, name);
    return X->why[0] == '\0';
}

bool tp__image_set_item(tp_image_set *X, size_t path, int64_t offset, int32_t label)
{
    if (!tp_reserve(&X->item, &X->room, (size_t)X->count, 1, sizeof *X->item))
        return tp__fail(X, "images: out of memory");
    X->item[X->count++] = (tp_image_item){ path, offset, label };
    return X->why[0] == '\0';
}

bool tp__image_set_sort(tp_image_set *X)
{
    const size_t n = (size_t)X->classes;
    size_t kept = 0;
    const char **name = malloc((n + 1) * sizeof *name);
    if (!name) return tp__fail(X, "images: out of memory");
    X->numbers = n > 0;
    for (size_t k = 0; k < n; k++) {
        name[k] = X->text + X->class_at[k];
        X->numbers = X->numbers && tp__is_whole(name[k]);
    }
    qsort(name, n, sizeof *name, X->numbers ? tp__by_value : tp__by_bytes);
    for (size_t k = 0; k < n; k++)
        if (k == 0 || strcmp(name[k - 1], name[k]) != 0)
            X->class_at[kept++] = (size_t)(name[k] - X->text);
    X->classes = (int)kept;
    free(name);
    return true;
}

int32_t tp__image_set_label(const tp_image_set *X, const char *name)
{
    int lo = 0, hi = X->classes - 1;
    if (X->numbers && !tp__is_whole(name)) return -1;
    while (lo <= hi) {
        const int mid = (lo + hi) / 2;
        const char *at = X->text + X->class_at[mid];
        const int order = X->numbers ? tp__by_value(&at, &name) : strcmp(at, name);
        if (order == 0) return mid;
        if (order < 0)
            lo = mid + 1;
        else
            hi = mid - 1;
    }
    return -1;
}

/* ---- opening and closing ---- */

tp_image_set *tp__image_set_new(void)
{
    tp_image_set *X = calloc(1, sizeof *X);
    return X ? X : &no_set;
}

tp_image_set *tp_image_set_from(const tp_image_source *s)
{
    if (!s) return NULL;
    tp_image_set *X = tp__image_set_new();
    if (X == &no_set) return X;
    X->source = *s;
    for (int k = 0; k < s->classes; k++) tp__image_set_class(X, s->names[k]);
    for (int64_t i = 0; i < s->count; i++) tp__image_set_item(X, 0, i, s->label[i]);
    return X;
}

void tp_image_set_thin(tp_image_set *X, int64_t most)
{
    if (!X) return;
    const int64_t n = X->count;
    if (X == &no_set || X->source.draw || most < 1 || most >= n) return;
    for (int64_t i = 0; i < most; i++)
        X->item[i] = X->item[(int64_t)((double)i * (double)n / (double)most)];
    X->count = most;
}

void tp_image_set_close(tp_image_set *X)
{
    if (!X || X == &no_set) return;
    free(X->item);
    free(X->text);
    free(X->class_at);
    free(X);
}

/* ---- queries ---- */

const char *tp_image_set_note(const tp_image_set *X)
{
    return X->note;
}

tp_layout tp_image_set_layout(const tp_image_set *X)
{
    if (!X) return (tp_layout){ 0 };
    return X->layout;
}

int64_t tp_image_set_count(const tp_image_set *X)
{
    return X ? X->count : 0;
}

int tp_image_set_classes(const tp_image_set *X)
{
    return X ? X->classes : 0;
}

const char *tp_image_set_class(const tp_image_set *X, int label)
{
    if (!X) return NULL;
    return label >= 0 && label < X->classes ? X->text + X->class_at[label] : "?";
}

int32_t tp_image_set_label(const tp_image_set *X, int64_t i)
{
    return X ? X->item[i].label : 0;
}

uint64_t tp_image_set_hash(const tp_image_set *X)
{
    if (!X) return 0;
    uint64_t h = TP_HASH;
    for (int64_t i = 0; i < X->count; i++) {
        char buf[512];
        const char *name = tp_image_set_name(X, i, buf, sizeof buf), *base = strrchr(name, '/');
        h = tp_hash_text(h, base ? base : name);
        h = tp_hash(h, (uint32_t)X->item[i].label);
    }
    return h;
}

const char *tp_image_set_name(const tp_image_set *X, int64_t i, char *buf, size_t size)
{
    if (!X) return NULL;
    const tp_image_item *it = &X->item[i];
    if (X->source.draw)
        snprintf(buf, size, "drawn image %lld", (long long)i);
    else if (it->offset)
        snprintf(buf, size, "%s, byte %lld", X->text + it->path, (long long)it->offset);
    else
        snprintf(buf, size, "%s", X->text + it->path);
    return buf;
}

/* ---- what was left out ---- */

enum { NAMED = 3 };

void tp__image_set_left(tp_image_set *X, tp_left_kind kind, const char *fmt, ...)
{
    char name[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    tp_left *l = &X->left[kind];
    const size_t n = strlen(l->names);
    if (l->count++ >= NAMED) return;
    snprintf(l->names + n, sizeof l->names - n, "%s%.150s", n ? ", " : "", name);
}

void tp__image_set_note(tp_image_set *X)
{
    static const struct {
        const char *one, *many;
    } kinds[TP_NLEFT] = {
        [TP_LEFT_FILE] = { "file that is neither .jpg, .jpeg nor .png",
                           "files that are neither .jpg, .jpeg nor .png" },
        [TP_LEFT_EMPTY] = { "folder without images, which is no class",
                            "folders without images, which are no classes" },
        [TP_LEFT_LOOSE] = { "image outside the folders of classes",
                            "images outside the folders of classes" },
        [TP_LEFT_DEEP] = { "folder inside a class", "folders inside classes" },
        [TP_LEFT_LINK] = { "link to a folder that contains it",
                           "links to folders that contain them" },
        [TP_LEFT_BESIDE] = { "folder beside those of the parts",
                             "folders beside those of the parts" },
        [TP_LEFT_PACKED] = { "packed shard; unpack it to .tar",
                             "packed shards; unpack them to .tar" },
        [TP_LEFT_NO_PART] = { "shard not named as a part", "shards not named as a part" },
        [TP_LEFT_SECOND] = { "image that is not the first KEY.jpg, KEY.jpeg or KEY.png of its key",
                             "images that are not the first KEY.jpg, KEY.jpeg or KEY.png of their "
                             "keys" },
        [TP_LEFT_KEY] = { "key of a shard without an image KEY.jpg, KEY.jpeg or KEY.png",
                          "keys of shards without an image KEY.jpg, KEY.jpeg or KEY.png" },
        [TP_LEFT_LINKED] = { "link in a shard", "links in shards" },
    };
    size_t n = 0;
    for (int k = 0; k < TP_NLEFT && n < sizeof X->note; k++) {
        const tp_left *l = &X->left[k];
        if (l->count == 0) continue;
        n += (size_t)snprintf(X->note + n, sizeof X->note - n, "%s%lld %s (%s%s)",
                              n ? "; " : "left out: ", (long long)l->count,
                              l->count == 1 ? kinds[k].one : kinds[k].many, l->names,
                              l->count > NAMED ? ", ..." : "");
    }
}
