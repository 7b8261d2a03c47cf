/* coco.c - builds sets of object annotations from what the readers find; access to them. */
#include "coco.h"
#include "kit.h"
#include "rle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TP_FAILS(tp_coco, no_memory, "annotations: out of memory", "coco: NULL was given in place of a set")

/* ---- building ---- */

void *tp__pool_add(tp_pool *p, size_t n, size_t size)
{
    if (!tp_reserve(&p->items, &p->room, p->count, n, size)) return NULL;
    void *added = (char *)p->items + p->count * size;
    p->count += n;
    return added;
}

tp_coco *tp__coco_new(const char *name)
{
    tp_coco *X = calloc(1, sizeof *X);
    if (X) snprintf(X->name, sizeof X->name, "%s", name);
    return X ? X : &no_memory;
}

void tp__coco_fail(tp_coco *X, const char *fmt, ...)
{
    va_list ap;
    if (X->why[0]) return;
    va_start(ap, fmt);
    vsnprintf(X->why, sizeof X->why, fmt, ap);
    va_end(ap);
}

/* Adds items to a pool of X; X fails if memory runs out. */
static void *add(tp_coco *X, tp_pool *p, size_t n, size_t size)
{
    void *added = X->why[0] ? NULL : tp__pool_add(p, n, size);
    if (!added) tp__coco_fail(X, "annotations: out of memory for %zu more bytes", n * size);
    return added;
}

static bool add_text(tp_coco *X, const char *text, size_t *at)
{
    const size_t n = strlen(text) + 1;
    char *to = add(X, &X->texts, n, 1);
    if (!to) return false;
    memcpy(to, text, n);
    *at = X->texts.count - n;
    return true;
}

bool tp__coco_image(tp_coco *X, int64_t id, int64_t height, int64_t width, const char *file)
{
    tp_coco_raw_image *image = add(X, &X->raw_images, 1, sizeof *image);
    if (!image) return false;
    *image = (tp_coco_raw_image){ .id = id, .height = height, .width = width };
    return add_text(X, file, &image->file);
}

bool tp__coco_category(tp_coco *X, int64_t id, const char *name)
{
    tp_coco_category *c = add(X, &X->categories, 1, sizeof *c);
    if (!c) return false;
    c->id = id;
    return add_text(X, name, &c->name);
}

tp_coco_raw *tp__coco_object(tp_coco *X)
{
    tp_coco_raw *r = add(X, &X->raws, 1, sizeof *r);
    if (r) *r = (tp_coco_raw){ .o.first = (int64_t)X->parts.count };
    return r;
}

tp_coco_part *tp__coco_part(tp_coco *X, tp_coco_object *o, tp_pool *pool, int64_t n, size_t size)
{
    tp_coco_part *part = add(X, &X->parts, 1, sizeof *part);
    if (!part || (n && !add(X, pool, (size_t)n, size))) return NULL;
    *part = (tp_coco_part){ .first = pool->count - (size_t)n, .n = n };
    o->parts++;
    return part;
}

/* ---- sorting ---- */

static int compare(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int by_category_id(const void *a, const void *b)
{
    return compare(((const tp_coco_category *)a)->id, ((const tp_coco_category *)b)->id);
}

static int by_number(const void *a, const void *b)
{
    return compare(*(const int64_t *)a, *(const int64_t *)b);
}

/* Pairs of an id and a position; equal ids are sorted by position. */
static int by_id(const void *a, const void *b)
{
    const int order = by_number(a, b);
    return order ? order : by_number((const int64_t *)a + 1, (const int64_t *)b + 1);
}

static void sort_categories(tp_coco *X)
{
    tp_coco_category *c = X->categories.items;
    if (X->categories.count) qsort(c, X->categories.count, sizeof *c, by_category_id);
    for (size_t i = 1; i < X->categories.count; i++)
        if (c[i].id == c[i - 1].id)
            tp__coco_fail(X, "%.400s: two categories have the id %lld", X->name,
                          (long long)c[i].id);
}

/* Builds the final images, and their positions by ascending id. */
static void place_images(tp_coco *X)
{
    const size_t n = X->raw_images.count;
    const tp_coco_raw_image *from = X->raw_images.items;
    int64_t *pair = malloc((n + 1) * 2 * sizeof *pair);
    X->image = calloc(n + 1, sizeof *X->image);
    X->by_id = malloc((n + 1) * sizeof *X->by_id);
    if (!pair || !X->image || !X->by_id) {
        tp__coco_fail(X, "annotations: out of memory for %zu images", n);
        free(pair);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        X->image[i] =
            (tp_coco_image){ .id = from[i].id, .height = from[i].height, .width = from[i].width };
        X->image[i].file = (const char *)X->texts.items + from[i].file;
        pair[2 * i] = from[i].id;
        pair[2 * i + 1] = (int64_t)i;
    }
    qsort(pair, n, 2 * sizeof *pair, by_id);
    for (size_t i = 0; i < n; i++) {
        X->by_id[i] = pair[2 * i + 1];
        if (pair[2 * i] == 0) tp_coco_tally_add(&X->noted, TP_COCO_IMAGE_ID_0, 0);
        if (i && pair[2 * i] == pair[2 * i - 2])
            tp__coco_fail(X, "%.400s: two images have the id %lld", X->name,
                          (long long)pair[2 * i]);
    }
    X->images = (int64_t)n;
    free(pair);
}

/* Fails X with a message naming the object. */
static void fail_object(tp_coco *X, tp_json_walk *w, const tp_coco_raw *r, const char *reason)
{
    if (w && !X->why[0])
        tp__json_fail(w, r->at, "annotation %lld (id %lld): %s", (long long)r->index,
                      (long long)r->o.id, reason);
    tp__coco_fail(X, "%.400s: annotation %lld: %s", X->name, (long long)r->o.id, reason);
}

static void refuse_equal_ids(tp_coco *X, tp_json_walk *w)
{
    const size_t n = X->raws.count;
    const tp_coco_raw *r = X->raws.items;
    int64_t *pair = malloc((n + 1) * 2 * sizeof *pair);
    if (!pair) {
        tp__coco_fail(X, "annotations: out of memory for %zu annotations", n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        pair[2 * i] = r[i].o.id;
        pair[2 * i + 1] = (int64_t)i;
    }
    qsort(pair, n, 2 * sizeof *pair, by_id);
    for (size_t i = 1; i < n && !X->why[0]; i++)
        if (pair[2 * i] == pair[2 * i - 2])
            fail_object(X, w, &r[pair[2 * i + 1]], "an earlier annotation has this id");
    free(pair);
}

static const tp_coco_part *part_at(const tp_coco *X, const tp_coco_object *o, int64_t k)
{
    return (const tp_coco_part *)X->parts.items + o->first + k;
}

static bool fits(const tp_coco_image *image, const tp_coco_part *mask)
{
    return image->height == 0 || (mask->height == image->height && mask->width == image->width);
}

/* Finds the image and the category of an object; false: drop the object. */
static bool resolve(tp_coco *X, tp_json_walk *w, tp_coco_raw *r)
{
    r->o.image = tp_coco_find_image(X, r->o.image);
    r->o.category = tp_coco_find_category(X, r->category);
    if (r->o.image < 0 || r->o.category < 0) {
        tp_coco_tally_add(
            &X->noted, r->o.image < 0 ? TP_COCO_UNKNOWN_IMAGE : TP_COCO_UNKNOWN_CATEGORY, r->o.id);
        return false;
    }
    if (r->o.id == 0) tp_coco_tally_add(&X->noted, TP_COCO_ID_0, 0);
    if (r->o.form == TP_COCO_RUNS && !fits(&X->image[r->o.image], part_at(X, &r->o, 0)))
        fail_object(X, w, r, "its mask has another size than its image");
    return true;
}

/* Groups objects by image, in file order within each. */
static void place_objects(tp_coco *X, tp_json_walk *w)
{
    tp_coco_raw *r = X->raws.items;
    X->object = malloc((X->raws.count + 1) * sizeof *X->object);
    if (!X->object) {
        tp__coco_fail(X, "annotations: out of memory for %zu annotations", X->raws.count);
        return;
    }
    for (size_t i = 0; i < X->raws.count; i++) {
        if (resolve(X, w, &r[i]))
            X->image[r[i].o.image].objects++;
        else
            r[i].o.image = -1;
    }
    for (int64_t i = 0; i < X->images; i++) {
        X->image[i].first = X->objects;
        X->objects += X->image[i].objects;
        X->image[i].objects = 0;
    }
    for (size_t i = 0; i < X->raws.count; i++) {
        if (r[i].o.image < 0) continue;
        tp_coco_image *image = &X->image[r[i].o.image];
        X->object[image->first + image->objects++] = r[i].o;
    }
}

static void release(tp_pool *p)
{
    free(p->items);
    *p = (tp_pool){ 0 };
}

void tp__coco_finish(tp_coco *X, tp_json_walk *w)
{
    if (!X->why[0]) sort_categories(X);
    if (!X->why[0]) place_images(X);
    if (!X->why[0]) refuse_equal_ids(X, w);
    if (!X->why[0]) place_objects(X, w);
    release(&X->raw_images);
    release(&X->raws);
    if (X->why[0]) X->images = X->objects = 0;
}

/* ---- access ---- */

void tp_coco_close(tp_coco *X)
{
    if (!X || X == &no_memory) return;
    tp_pool *pools[] = { &X->raw_images, &X->raws, &X->categories, &X->parts,
                         &X->numbers,    &X->runs, &X->texts };
    for (size_t i = 0; i < sizeof pools / sizeof *pools; i++) release(pools[i]);
    free(X->image);
    free(X->object);
    free(X->by_id);
    free(X);
}

int64_t tp_coco_images(const tp_coco *X)
{
    if (!X) return 0;
    return X->images;
}

int64_t tp_coco_objects(const tp_coco *X)
{
    if (!X) return 0;
    return X->objects;
}

int tp_coco_categories(const tp_coco *X)
{
    if (!X) return 0;
    return X->why[0] ? 0 : (int)X->categories.count;
}

int64_t tp_coco_dropped(const tp_coco *X)
{
    if (!X) return 0;
    return X->noted.count[TP_COCO_UNKNOWN_IMAGE] + X->noted.count[TP_COCO_UNKNOWN_CATEGORY];
}

const tp_coco_tally *tp_coco_noted(const tp_coco *X)
{
    if (!X) return NULL;
    return &X->noted;
}

const tp_coco_image *tp_coco_image_at(const tp_coco *X, int64_t i)
{
    if (!X) return NULL;
    return &X->image[i];
}

const tp_coco_object *tp_coco_object_at(const tp_coco *X, int64_t i)
{
    if (!X) return NULL;
    return &X->object[i];
}

static const tp_coco_category *category_at(const tp_coco *X, int category)
{
    return (const tp_coco_category *)X->categories.items + category;
}

int64_t tp_coco_category_id(const tp_coco *X, int category)
{
    if (!X) return 0;
    return category_at(X, category)->id;
}

const char *tp_coco_category_name(const tp_coco *X, int category)
{
    if (!X) return NULL;
    return (const char *)X->texts.items + category_at(X, category)->name;
}

int64_t tp_coco_find_image(const tp_coco *X, int64_t id)
{
    if (!X) return 0;
    int64_t from = 0, to = X->images;
    while (from < to) {
        const int64_t middle = from + (to - from) / 2;
        if (X->image[X->by_id[middle]].id < id)
            from = middle + 1;
        else
            to = middle;
    }
    return from < X->images && X->image[X->by_id[from]].id == id ? X->by_id[from] : -1;
}

int tp_coco_find_category(const tp_coco *X, int64_t id)
{
    if (!X) return 0;
    int from = 0, to = (int)X->categories.count;
    while (from < to) {
        const int middle = from + (to - from) / 2;
        if (category_at(X, middle)->id < id)
            from = middle + 1;
        else
            to = middle;
    }
    return from < (int)X->categories.count && category_at(X, from)->id == id ? from : -1;
}

size_t tp_coco_bytes(const tp_coco *X)
{
    if (!X) return 0;
    return sizeof *X + X->categories.room * sizeof(tp_coco_category) +
           X->parts.room * sizeof(tp_coco_part) + X->numbers.room * sizeof(double) +
           X->runs.room * sizeof(uint32_t) + X->texts.room +
           (size_t)(X->images + 1) * (sizeof *X->image + sizeof *X->by_id) +
           (size_t)(X->objects + tp_coco_dropped(X) + 1) * sizeof *X->object;
}

/* ---- what was left out ---- */

void tp_coco_tally_add(tp_coco_tally *t, tp_coco_reason reason, int64_t id)
{
    if (t && (unsigned)reason < TP_COCO_REASONS && t->count[reason]++ == 0) t->first[reason] = id;
}

int64_t tp_coco_tally_text(const tp_coco_tally *t, const char *what, char *text, size_t size)
{
    static const char *const texts[TP_COCO_LEFT_OUT] = {
        [TP_COCO_UNKNOWN_IMAGE] = "of an image that is not listed",
        [TP_COCO_UNKNOWN_CATEGORY] = "of a category that is not listed",
        [TP_COCO_CROWD] = "of a crowd",
        [TP_COCO_EMPTY_BOX] = "with a box of no or negative width or height",
        [TP_COCO_OUTSIDE] = "with a box outside the image",
        [TP_COCO_TINY] = "with a side below 1 or no area",
        [TP_COCO_NO_OUTLINE] = "without a mask",
        [TP_COCO_BAD_POLYGONS] = "with polygons of under 3 points or an odd number of coordinates",
        [TP_COCO_EMPTY_RUNS] = "with a mask without pixels",
        [TP_COCO_SMALL_IMAGE] = "of an image with a side below 32",
        [TP_COCO_CUT_POLYGONS] = "in part, for such polygons among others",
    };
    int64_t all = 0;
    size_t n = 0;
    if (text && size) text[0] = '\0';
    for (int r = 0; t && r < TP_COCO_LEFT_OUT; r++) {
        if (t->count[r] == 0) continue;
        if (text && n < size)
            n += (size_t)snprintf(text + n, size - n, "%s%lld %s (the first: %s %lld)",
                                  all ? ", " : "", (long long)t->count[r], texts[r], what,
                                  (long long)t->first[r]);
        all += t->count[r];
    }
    return all;
}

/* ---- masks ---- */

const double *tp_coco_polygon(const tp_coco *X, const tp_coco_object *o, int64_t k, int64_t *n)
{
    if (!X) return NULL;
    const tp_coco_part *part = part_at(X, o, k);
    *n = part->n;
    return part->n ? (const double *)X->numbers.items + part->first : NULL;
}

tp_rle tp_coco_runs(const tp_coco *X, const tp_coco_object *o)
{
    if (!X || !o) return (tp_rle){ 0 };
    const tp_coco_part *part = part_at(X, o, 0);
    return (tp_rle){ .height = part->height,
                     .width = part->width,
                     .runs = part->n,
                     .run = (uint32_t *)X->runs.items + part->first };
}

/* The union of the polygons. If the first list has 4 numbers, pycocotools takes all for boxes. */
static bool fill_polygons(const tp_coco *X, const tp_coco_object *o, tp_rle *r)
{
    const tp_coco_image *image = &X->image[o->image];
    const bool boxes = part_at(X, o, 0)->n == 4;
    tp_rle *part = calloc((size_t)o->parts, sizeof *part);
    bool done = part != NULL;
    for (int64_t k = 0; done && k < o->parts; k++) {
        int64_t n;
        const double *xy = tp_coco_polygon(X, o, k, &n);
        done = boxes && n == 4
                   ? tp_rle_from_box(&part[k], xy, image->height, image->width)
                   : tp_rle_from_polygon(&part[k], xy, n / 2, image->height, image->width);
    }
    done = done && tp_rle_merge(r, part, o->parts, false);
    for (int64_t k = 0; part && k < o->parts; k++) tp_rle_free(&part[k]);
    free(part);
    return done;
}

bool tp_coco_mask(const tp_coco *X, const tp_coco_object *o, tp_rle *r, char *why, size_t size)
{
    if (!X) {
        if (why) snprintf(why, size, "coco_mask: NULL was given in place of a set");
        return false;
    }
    const tp_coco_image *image = &X->image[o->image];
    *r = (tp_rle){ 0 };
    if (o->form == TP_COCO_NO_MASK || o->parts < 1) {
        snprintf(why, size, "%.400s: annotation %lld has no mask", X->name, (long long)o->id);
        return false;
    }
    if (o->form == TP_COCO_POLYGONS && image->height < 1) {
        snprintf(why, size, "%.400s: annotation %lld: the size of image %lld is not known", X->name,
                 (long long)o->id, (long long)image->id);
        return false;
    }
    const tp_rle runs = o->form == TP_COCO_RUNS ? tp_coco_runs(X, o) : (tp_rle){ 0 };
    if (runs.runs ? tp_rle_merge(r, &runs, 1, false) : fill_polygons(X, o, r)) return true;
    snprintf(why, size, "%.400s: annotation %lld: out of memory for its mask of %lld x %lld pixels",
             X->name, (long long)o->id, (long long)(runs.runs ? runs.width : image->width),
             (long long)(runs.runs ? runs.height : image->height));
    return false;
}
