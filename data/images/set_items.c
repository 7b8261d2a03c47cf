/* set_items.c - the images and classes of a set: layouts add them, all other code reads them. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "set.h"

static tp_image_set no_memory = { .why = "images: out of memory" };

/* ---- adding ---- */

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

/* A number without leading zeros, and its digits. */
static const char *digits_of(const char *name, size_t *n)
{
    while (name[0] == '0' && name[1]) name++;
    *n = strlen(name);
    return name;
}

static bool is_number(const char *name)
{
    const size_t n = strspn(name, "0123456789");
    return n > 0 && !name[n];
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int by_value(const void *a, const void *b)
{
    size_t n, m;
    const char *x = digits_of(*(const char *const *)a, &n),
               *y = digits_of(*(const char *const *)b, &m);
    const int order = n != m ? (n < m ? -1 : 1) : memcmp(x, y, n);
    return order ? order : by_bytes(a, b);
}

bool tp__image_set_sort(tp_image_set *X)
{
    const size_t n = (size_t)X->classes;
    size_t kept = 0;
    const char **name = malloc((n + 1) * sizeof *name);
    if (!name) return tp__image_set_fail(X, "images: out of memory");
    X->numbers = n > 0;
    for (size_t k = 0; k < n; k++) {
        name[k] = X->text + X->class_at[k];
        X->numbers = X->numbers && is_number(name[k]);
    }
    qsort(name, n, sizeof *name, X->numbers ? by_value : by_bytes);
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
    if (X->numbers && !is_number(name)) return -1;
    while (lo <= hi) {
        const int mid = (lo + hi) / 2;
        const char *at = X->text + X->class_at[mid];
        const int order = X->numbers ? by_value(&at, &name) : strcmp(at, name);
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
    return X ? X : &no_memory;
}

tp_image_set *tp_image_set_from(const tp_image_source *s)
{
    if (!s) return NULL;
    tp_image_set *X = tp__image_set_new();
    if (X == &no_memory) return X;
    X->source = *s;
    for (int k = 0; k < s->classes; k++) tp__image_set_class(X, s->names[k]);
    for (int64_t i = 0; i < s->count; i++) tp__image_set_item(X, 0, i, s->label[i]);
    return X;
}

void tp_image_set_thin(tp_image_set *X, int64_t most)
{
    if (!X) return;
    const int64_t n = X->count;
    if (X == &no_memory || X->source.draw || most < 1 || most >= n) return;
    for (int64_t i = 0; i < most; i++)
        X->item[i] = X->item[(int64_t)((double)i * (double)n / (double)most)];
    X->count = most;
}

void tp_image_set_close(tp_image_set *X)
{
    if (!X || X == &no_memory) return;
    free(X->item);
    free(X->text);
    free(X->class_at);
    free(X);
}

/* ---- queries ---- */

bool tp_image_set_ok(const tp_image_set *X)
{
    if (!X) return false;
    return X->why[0] == '\0';
}

const char *tp_image_set_why(const tp_image_set *X)
{
    if (!X) return "image_set: NULL was given in place of a set";
    return X->why;
}

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
    if (!X) return 0;
    return X->count;
}

int tp_image_set_classes(const tp_image_set *X)
{
    if (!X) return 0;
    return X->classes;
}

const char *tp_image_set_class(const tp_image_set *X, int label)
{
    if (!X) return NULL;
    return label >= 0 && label < X->classes ? X->text + X->class_at[label] : "?";
}

int32_t tp_image_set_label(const tp_image_set *X, int64_t i)
{
    if (!X) return 0;
    return X->item[i].label;
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
