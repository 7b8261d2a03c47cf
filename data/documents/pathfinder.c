/* pathfinder.c - the images of Pathfinder: PNG files, and lists that are texts despite .npy names.
 *
 * The lists are read first. Then the examples are shuffled and divided, and only the images of the
 * part are read, in the order of the folder or archive. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/file.h>
#include <tapegrad/image.h>
#include <tapegrad/random.h>

#include "documents.h"

enum { MOST_PIXELS = 1 << 14, LONGEST_NAME = 1024 };
static const size_t largest = (size_t)1 << 26;

typedef struct item {
    char *name;         /* of the image, below the folder or in the archive */
    int64_t list, line; /* where it is listed                               */
    int64_t place;      /* in the part                                      */
    int32_t label;
    bool read, empty;
} item;

typedef struct reader {
    tp_documents *X;
    const char *path, *level;
    item *item; /* [count]: sorted by list and line, then by name */
    int64_t count;
    size_t room;
    int64_t *order;   /* [count]: shuffled */
    int64_t first, n; /* the part within it; later `item` holds only the part */
    uint8_t *pixels;  /* [n,size] */
    int64_t width, height;
    tp_image image;
} reader;

/* ---- lists ---- */

/* Returns the length of the name before metadata/NUMBER.npy, a list of the level; else -1. */
static int before_list(const reader *r, const char *name)
{
    char tail[128];
    const char *slash = strrchr(name, '/');
    const size_t n = strlen(name);
    if (!slash || n < 4 || strcmp(name + n - 4, ".npy") != 0) return -1;
    if (strncmp(name, "metadata/", 9) == 0 && slash == name + 8) return 0;
    const int k = snprintf(tail, sizeof tail, "%s/metadata", r->level);
    if (k >= (int)sizeof tail || slash - name < k || strncmp(slash - k, tail, (size_t)k) != 0)
        return -1;
    if (slash - name > k && slash[-k - 1] != '/') return -1;
    return (int)(slash - name) - 8;
}

static bool wants_list(void *env, const char *name)
{
    return before_list(env, name) >= 0;
}

/* Lists are never below imgs. */
static bool enters_lists(void *env, const char *name)
{
    (void)env;
    return !tp__tail(name, "imgs");
}

/* Splits a line at blanks; returns the number of words, at most `most`. */
static int words_of(char *line, char **word, int most)
{
    int n = 0;
    for (char *at = line; n < most;) {
        at += strspn(at, " \t");
        if (!*at) break;
        word[n++] = at;
        at += strcspn(at, " \t");
        if (*at) *at++ = '\0';
    }
    return n;
}

/* Names come from files: they must not lead out of the folder. */
static bool is_below(const char *name)
{
    return name[0] != '/' && !strstr(name, "..");
}

static bool append(reader *r, item it, const char *prefix, int before, const char *folder,
                   const char *file)
{
    char name[3 * LONGEST_NAME];
    snprintf(name, sizeof name, "%.*s%s/%s", before, prefix, folder, file);
    if (!tp_reserve(&r->item, &r->room, (size_t)r->count, 1, sizeof *r->item)) return false;
    it.name = strdup(name);
    if (it.name) r->item[r->count++] = it;
    return it.name != NULL;
}

static bool add_line(reader *r, const char *name, int64_t list, const tp_lines *L)
{
    char line[LONGEST_NAME], *word[4], *end = line;
    snprintf(line, sizeof line, "%.*s", (int)(L->n < LONGEST_NAME ? L->n : LONGEST_NAME - 1),
             L->at);
    const int words = words_of(line, word, 4);
    const double label = words == 4 ? tp_number_read(word[3], &end) : -1;
    if (words < 4 || *end || (label != 0 && label != 1) || !is_below(word[0]) || !is_below(word[1]))
        return tp__fail(r->X,
                        "%.400s/%.300s: line %lld is not a folder, a file, a number and "
                        "the label 0 or 1",
                        r->path, name, (long long)L->number);
    const item it = { .list = list, .line = L->number, .place = -1, .label = (int32_t)label };
    return append(r, it, name, before_list(r, name), word[0], word[1]) ||
           tp__fail(r->X, "%.700s: out of memory for the list of images", r->path);
}

static bool take_list(void *env, const char *name, const uint8_t *bytes, size_t n)
{
    reader *r = env;
    tp_lines L = { .next = (const char *)bytes, .end = (const char *)bytes + n };
    const int64_t list = strtol(strrchr(name, '/') + 1, NULL, 10);
    if (n > 6 && memcmp(bytes, "\x93NUMPY", 6) == 0)
        return tp__fail(r->X,
                        "%.400s/%.300s is an array of NumPy; the lists of Pathfinder are texts",
                        r->path, name);
    while (!r->X->why[0] && tp__next_line(&L)) add_line(r, name, list, &L);
    return !r->X->why[0];
}

static int by_line(const void *a, const void *b)
{
    const item *x = a, *y = b;
    if (x->list != y->list) return x->list < y->list ? -1 : 1;
    if (x->line != y->line) return x->line < y->line ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const item *)a)->name, ((const item *)b)->name);
}

/* ---- the part ---- */

/* Keeps the items of the part, each with its place; sorts them by name. */
static void choose(reader *r, tp_part part, const tp_documents_opts *o)
{
    const int64_t n = r->count, cut[] = { 0, n * 8 / 10, n * 9 / 10, n };
    tp_random stream = tp_random_stream(o->split, "pathfinder", 0, 0);
    int64_t *order = calloc((size_t)n, sizeof *order), kept = 0;
    if (!order) {
        tp__fail(r->X, "%.700s: out of memory to shuffle the images", r->path);
        return;
    }
    qsort(r->item, (size_t)n, sizeof *r->item, by_name);
    for (int64_t i = 1; i < n; i++) /* it could be in two parts */
        if (strcmp(r->item[i - 1].name, r->item[i].name) == 0)
            tp__fail(r->X, "%.400s: %.500s is listed twice", r->path, r->item[i].name);
    qsort(r->item, (size_t)n, sizeof *r->item, by_line);
    for (int64_t i = 0; i < n; i++) {
        const int64_t j = tp_random_below(&stream, i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    r->n = cut[part + 1] - cut[part];
    if (o->limit > 0 && r->n > o->limit) r->n = o->limit;
    for (int64_t i = 0; i < r->n; i++) r->item[order[cut[part] + i]].place = i;
    free(order);
    for (int64_t i = 0; i < n; i++) {
        if (r->item[i].place >= 0)
            r->item[kept++] = r->item[i];
        else
            free(r->item[i].name);
    }
    r->count = kept;
    qsort(r->item, (size_t)kept, sizeof *r->item, by_name);
}

/* ---- images ---- */

static item *find(const reader *r, const char *name)
{
    const item key = { .name = (char *)name };
    return r->count ? bsearch(&key, r->item, (size_t)r->count, sizeof key, by_name) : NULL;
}

static bool wants_image(void *env, const char *name)
{
    return find(env, name) != NULL;
}

static bool enters_images(void *env, const char *name)
{
    const reader *r = env;
    const char *file = strrchr(name, '/');
    file = file ? file + 1 : name;
    return strcmp(file, "metadata") != 0 &&
           (strncmp(file, "curv_", 5) != 0 || strcmp(file, r->level) == 0);
}

/* Makes room for all images once the first gives their size. */
static bool sized(reader *r, const char *name)
{
    const tp_image *p = &r->image;
    if (!r->pixels) {
        r->width = p->width;
        r->height = p->height;
        r->pixels = malloc((size_t)(r->n * p->width * p->height));
        if (!r->pixels)
            return tp__fail(r->X, "%.700s: out of memory for %lld images", r->path,
                            (long long)r->n);
    }
    if (p->width == r->width && p->height == r->height) return true;
    return tp__fail(r->X, "%.400s/%.400s has %lld x %lld pixels, others %lld x %lld", r->path, name,
                    (long long)p->width, (long long)p->height, (long long)r->width,
                    (long long)r->height);
}

static bool take_image(void *env, const char *name, const uint8_t *bytes, size_t n)
{
    const tp_image_opts decode = { .max_pixels = MOST_PIXELS, .strict = true };
    int64_t width, height;
    reader *r = env;
    item *it = find(r, name);
    it->read = true;
    it->empty = n == 0;
    if (it->empty) return true;
    if (tp_image_size(bytes, n, &width, &height) && width > MOST_PIXELS / height)
        return tp__fail(r->X, "%.400s/%.300s has %lld x %lld pixels; at most %d are read", r->path,
                        name, (long long)width, (long long)height, MOST_PIXELS);
    if (!tp_image_decode(&r->image, bytes, n, &decode))
        return tp__fail(r->X, "%.400s/%.300s: %.200s", r->path, name, r->image.why);
    if (!sized(r, name)) return false;
    const int64_t size = r->width * r->height;
    uint8_t *to = r->pixels + it->place * size;
    for (int64_t i = 0; i < size; i++) {
        const uint8_t *rgb = r->image.rgb + 3 * i;
        if (rgb[0] != rgb[1] || rgb[0] != rgb[2])
            return tp__fail(r->X, "%.400s/%.400s is not grey", r->path, name);
        to[i] = rgb[0];
    }
    return true;
}

static int by_place(const void *a, const void *b)
{
    const item *x = a, *y = b;
    return x->place < y->place ? -1 : x->place > y->place;
}

static void add_all(reader *r, const tp_documents_opts *o)
{
    const int64_t size = r->width * r->height;
    int64_t skipped = 0;
    const char *first = "";
    qsort(r->item, (size_t)r->count, sizeof *r->item, by_place);
    for (int64_t i = 0; !r->X->why[0] && i < r->count; i++) {
        const item *it = &r->item[i];
        if (!it->read)
            tp__fail(r->X, "%.400s: %.400s is listed but not there", r->path, it->name);
        else if (it->empty && skipped++ == 0)
            first = it->name;
        else if (!it->empty)
            tp__documents_pixels(r->X, r->pixels + i * size, size, it->label, o);
    }
    if (skipped)
        snprintf(r->X->note, sizeof r->X->note, "skipped %lld empty file%s: %.150s%s",
                 (long long)skipped, skipped == 1 ? "" : "s", first, skipped == 1 ? "" : " ...");
    if (r->X->count == 0)
        tp__fail(r->X, "%.700s: the %lld images of this part are empty or too few", r->path,
                 (long long)r->count);
}

tp_documents *tp_documents_pathfinder(const char *path, tp_part part, const tp_documents_opts *o)
{
    if (!path) path = "";
    static const tp_documents_opts defaults = { 0 };
    if (!o) o = &defaults;
    tp_documents *X = tp_documents_new(1, 2);
    reader r = { .X = X, .path = path, .level = o->level ? o->level : "curv_contour_length_14" };
    const tp_tree lists = { .wants = wants_list,
                            .take = take_list,
                            .enters = enters_lists,
                            .env = &r,
                            .most = largest,
                            .why = X->why,
                            .size = sizeof X->why },
                  images = { .wants = wants_image,
                             .take = take_image,
                             .enters = enters_images,
                             .env = &r,
                             .most = largest,
                             .why = X->why,
                             .size = sizeof X->why };
    tp__documents_from(X, path);
    if (o->damage != TP_DAMAGE_NONE) tp__fail(X, "documents: images cannot be damaged");
    if (tp_documents_ok(X) && tp__tree_visit(path, &lists)) {
        if (r.count == 0)
            tp__fail(X, "%.600s contains no lists %.100s/metadata/NUMBER.npy", path, r.level);
        else
            choose(&r, part, o);
    }
    if (tp_documents_ok(X) && tp__tree_visit(path, &images)) add_all(&r, o);
    for (int64_t i = 0; i < r.count; i++) free(r.item[i].name);
    free(r.item);
    free(r.pixels);
    tp_image_free(&r.image);
    return X;
}
