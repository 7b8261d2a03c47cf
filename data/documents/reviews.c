/* reviews.c - film reviews (IMDb) as bytes: PART/neg/NAME.txt and PART/pos/NAME.txt.
 *
 * An archive has its files in any order, so they are collected first and then sorted. */
#include <stdlib.h>
#include <string.h>
#include <tapegrad/file.h>

#include "documents.h"

enum { LONGEST = 4000, CLASSES = 2 };
static const size_t largest = (size_t)1 << 20, largest_set = (size_t)1 << 32;

typedef struct review {
    size_t name, at, n; /* offsets into bytes */
    int32_t label;
} review;

typedef struct reader {
    tp_documents *X;
    const char *part;
    review *item;
    size_t count, room;
    uint8_t *bytes; /* names, zero-terminated, and texts */
    size_t used, bytes_room;
} reader;

/* Returns the label of .../PART/neg/NAME.txt or .../PART/pos/NAME.txt; -1 for other files. */
static int32_t label_of(const reader *r, const char *name)
{
    static const char *const classes[CLASSES] = { "neg", "pos" };
    char folder[16];
    const char *slash = strrchr(name, '/');
    const size_t length = strlen(name), part = strlen(r->part), tail = part + 4; /* PART/neg */
    if (!slash || length < 4 || strcmp(name + length - 4, ".txt") != 0) return -1;
    if (slash[1] == '.' || (size_t)(slash - name) < tail) return -1;
    const char *from = slash - tail;
    if (from > name && from[-1] != '/') return -1;
    memcpy(folder, from, tail);
    folder[tail] = '\0';
    if (memcmp(folder, r->part, part) != 0 || folder[part] != '/') return -1;
    for (int k = 0; k < CLASSES; k++)
        if (strcmp(folder + part + 1, classes[k]) == 0) return k;
    return -1;
}

static bool wants(void *env, const char *name)
{
    return label_of(env, name) >= 0;
}

/* Skips unlabelled reviews and those of the other part. */
static bool enters(void *env, const char *name)
{
    const reader *r = env;
    const char *other = strcmp(r->part, "train") == 0 ? "test" : "train";
    return !tp__tail(name, "unsup") && !tp__tail(name, other);
}

static bool append(reader *r, const void *bytes, size_t n)
{
    if (r->used + n > largest_set) return false;
    if (!tp_reserve(&r->bytes, &r->bytes_room, r->used, n, 1)) return false;
    if (n) memcpy(r->bytes + r->used, bytes, n);
    r->used += n;
    return true;
}

static bool take(void *env, const char *name, const uint8_t *bytes, size_t n)
{
    reader *r = env;
    const char *text = (const char *)bytes;
    char why[200];
    if (!tp_skip_bom(&text, &n, why, sizeof why))
        return tp__fail(r->X, "reviews: %.400s %s", name, why);
    bool fits = tp_reserve(&r->item, &r->room, r->count, 1, sizeof *r->item);
    const char *file = strrchr(name, '/') + 1;
    review it = { .name = r->used, .n = n, .label = label_of(r, name) };
    fits = fits && append(r, file, strlen(file) + 1);
    it.at = r->used;
    fits = fits && append(r, text, n);
    if (fits)
        r->item[r->count++] = it;
    else
        tp__fail(r->X, "reviews: out of memory, or above 4 GiB, after %zu reviews", r->count);
    return fits;
}

/* All that qsort passes to the comparison. */
typedef struct sorted {
    const char *name;
    const review *is;
} sorted;

static int by_label_and_name(const void *a, const void *b)
{
    const sorted *x = a, *y = b;
    return x->is->label != y->is->label ? x->is->label - y->is->label : strcmp(x->name, y->name);
}

static void add_all(reader *r, const tp_documents_opts *o, const char *path)
{
    const int64_t longest = o->longest > 0 ? o->longest : LONGEST;
    int64_t left[CLASSES] = { INT64_MAX, INT64_MAX }, count[CLASSES] = { 0 };
    sorted *order = malloc((r->count + 1) * sizeof *order);
    if (!order) {
        tp__fail(r->X, "reviews: out of memory to sort %zu reviews", r->count);
        return;
    }
    if (o->limit > 0) left[0] = o->limit / 2;
    if (o->limit > 0) left[1] = o->limit - left[0];
    for (size_t i = 0; i < r->count; i++) {
        order[i] = (sorted){ (const char *)r->bytes + r->item[i].name, &r->item[i] };
        count[r->item[i].label]++;
    }
    qsort(order, r->count, sizeof *order, by_label_and_name);
    for (int k = 0; k < CLASSES; k++)
        if (count[k] == 0)
            tp__fail(r->X, "%.700s contains no reviews %s/%s/NAME.txt", path, r->part,
                     k ? "pos" : "neg");
    for (size_t i = 0; !r->X->why[0] && i < r->count; i++) {
        const review *it = order[i].is;
        if (left[it->label]-- <= 0) continue;
        tp__documents_text(r->X, 0, r->bytes + it->at, it->n, longest, o);
        tp__documents_label(r->X, it->label);
    }
    free(order);
}

tp_documents *tp_documents_reviews(const char *path, tp_part part, const tp_documents_opts *o)
{
    if (!path) path = "";
    static const tp_documents_opts defaults = { 0 };
    tp_documents *X = tp_documents_new(1, CLASSES);
    reader r = { .X = X, .part = part == TP_TRAIN ? "train" : "test" };
    const tp_tree tree = { .wants = wants,
                           .take = take,
                           .enters = enters,
                           .env = &r,
                           .most = largest,
                           .why = X->why,
                           .size = sizeof X->why };
    tp__documents_from(X, path);
    if (!o) o = &defaults;
    if (tp_documents_ok(X) && tp__documents_damage(X, part, o) && tp__tree_visit(path, &tree))
        add_all(&r, o, path);
    free(r.item);
    free(r.bytes);
    return X;
}
