/* coco_json.c - reads COCO's file of instances: { "images": [...], "annotations": [...],
 * "categories": [...] }. The order is free; other members are skipped. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coco.h"
#include "load.h"

enum { NAME = 400 };

/* ---- segmentations ---- */

static bool counts_of(tp_json_item *i, const json_t *list, int64_t h, int64_t w, tp_rle *r)
{
    char why[200];
    const size_t n = json_array_size(list);
    int64_t *count = malloc((n + 1) * sizeof *count);
    bool done = true;
    if (!count) return tp__item_fail(i, "out of memory for a mask");
    for (size_t k = 0; done && k < n; k++) {
        const json_t *c = json_array_get(list, k);
        count[k] = json_integer_value(c);
        if (!json_is_integer(c))
            done = tp__item_fail(i, "'counts' of 'segmentation' has values other than integers");
    }
    if (done && !tp_rle_from_counts(r, count, (int64_t)n, h, w, why, sizeof why))
        done = tp__item_fail(i, "'segmentation': %s", why);
    free(count);
    return done;
}

bool tp__item_mask(tp_json_item *i, const json_t *segmentation, tp_rle *r)
{
    char why[200];
    const json_t *size = json_object_get(segmentation, "size"),
                 *counts = json_object_get(segmentation, "counts");
    const json_t *h = json_array_get(size, 0), *w = json_array_get(size, 1);
    *r = (tp_rle){ 0 };
    if (json_array_size(size) != 2 || !json_is_integer(h) || !json_is_integer(w))
        return tp__item_fail(i, "'size' of 'segmentation' is not a height and a width");
    if (json_is_array(counts))
        return counts_of(i, counts, json_integer_value(h), json_integer_value(w), r);
    if (!json_is_string(counts))
        return tp__item_fail(i, "'counts' of 'segmentation' is neither a text nor a list");
    return tp_rle_from_string(r, json_string_value(counts), json_string_length(counts),
                              json_integer_value(h), json_integer_value(w), why, sizeof why) ||
           tp__item_fail(i, "'segmentation': %s", why);
}

static bool read_runs(tp_coco *X, tp_json_item *i, const json_t *segmentation, tp_coco_object *o)
{
    tp_rle r;
    if (!tp__item_mask(i, segmentation, &r)) return false;
    tp_coco_part *part = tp__coco_part(X, o, &X->runs, r.runs, sizeof *r.run);
    if (part && r.run) {
        memcpy((uint32_t *)X->runs.items + part->first, r.run, (size_t)r.runs * sizeof *r.run);
        part->height = r.height;
        part->width = r.width;
        o->form = TP_COCO_RUNS;
        if (!json_is_number(json_object_get(i->value, "area"))) o->area = (double)tp_rle_area(&r);
    }
    tp_rle_free(&r);
    return part != NULL;
}

static bool read_polygons(tp_coco *X, tp_json_item *i, const json_t *list, tp_coco_object *o)
{
    for (size_t k = 0; k < json_array_size(list); k++) {
        const json_t *polygon = json_array_get(list, k);
        const size_t n = json_array_size(polygon);
        if (!json_is_array(polygon))
            return tp__item_fail(i, "polygon %zu of 'segmentation' is not a list", k + 1);
        tp_coco_part *part = tp__coco_part(X, o, &X->numbers, (int64_t)n, sizeof(double));
        if (!part) return false;
        double *to = n ? (double *)X->numbers.items + part->first : NULL;
        for (size_t j = 0; j < n; j++) {
            const json_t *x = json_array_get(polygon, j);
            if (!json_is_number(x))
                return tp__item_fail(
                    i, "polygon %zu of 'segmentation' has values other than numbers", k + 1);
            to[j] = json_number_value(x);
        }
    }
    o->form = TP_COCO_POLYGONS;
    return true;
}

/* ---- elements ---- */

/* The area of runs replaces that of the box later. */
static bool read_area(tp_coco *X, tp_json_item *i, tp_coco_object *o)
{
    const json_t *area = json_object_get(i->value, "area");
    if (area && !json_is_null(area)) return tp__item_number(i, "area", &o->area);
    o->area = o->box[2] * o->box[3];
    tp_coco_tally_add(&X->noted, TP_COCO_WITHOUT_AREA, o->id);
    return true;
}

static bool read_annotation(void *env, tp_json_item *i)
{
    tp_coco *X = env;
    const json_t *s = json_object_get(i->value, "segmentation");
    tp_coco_raw *r = tp__coco_object(X);
    if (!r) return false;
    r->index = i->index;
    r->at = i->at;
    if (!tp__item_int(i, "id", false, &r->o.id) ||
        !tp__item_int(i, "image_id", false, &r->o.image) ||
        !tp__item_int(i, "category_id", false, &r->category) ||
        !tp__item_numbers(i, "bbox", r->o.box, 4) || !tp__item_flag(i, "iscrowd", &r->o.crowd) ||
        !read_area(X, i, &r->o))
        return false;
    if (json_is_object(s)) return read_runs(X, i, s, &r->o);
    if (json_array_size(s)) return read_polygons(X, i, s, &r->o);
    return !s || json_is_null(s) || json_is_array(s) ||
           tp__item_fail(i, "'segmentation' is neither polygons nor runs");
}

static bool read_image(void *env, tp_json_item *i)
{
    int64_t id = 0, h = 0, w = 0;
    if (!tp__item_int(i, "id", false, &id) || !tp__item_int(i, "height", true, &h) ||
        !tp__item_int(i, "width", true, &w))
        return false;
    if (h < 0 || w < 0 || (h > 0) != (w > 0) || (w > 0 && h > TP_RLE_PIXELS / w))
        return tp__item_fail(i, "an image of %lld x %lld pixels is not possible", (long long)h,
                             (long long)w);
    return tp__coco_image(env, id, h, w, tp__item_text(i, "file_name"));
}

static bool read_category(void *env, tp_json_item *i)
{
    int64_t id = 0;
    return tp__item_int(i, "id", false, &id) &&
           tp__coco_category(env, id, tp__item_text(i, "name"));
}

/* ---- the file ---- */

typedef struct file {
    tp_coco *X;
    bool images, annotations, categories; /* seen */
} file;

static bool read_member(void *env, tp_json_walk *w, const char *key)
{
    file *f = env;
    const struct {
        const char *name, *kind;
        bool (*each)(void *env, tp_json_item *i);
        bool *seen;
    } lists[] = {
        { "images", "image", read_image, &f->images },
        { "annotations", "annotation", read_annotation, &f->annotations },
        { "categories", "category", read_category, &f->categories },
    };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        if (strcmp(key, lists[i].name) != 0) continue;
        if (*lists[i].seen) return tp__json_fail(w, w->at, "'%s' occurs twice", key);
        *lists[i].seen = true;
        return tp__json_array(w, lists[i].kind, lists[i].each, f->X);
    }
    return tp__json_skip(w);
}

/* Reads the members in the order of the file; an annotation may refer to later ones. */
static tp_coco *read_bytes(tp_coco *X, const char *bytes, size_t n, const char *name)
{
    char why[TP_COCO_WHY] = "";
    file f = { .X = X };
    tp_json_walk w = {
        .name = name, .bytes = bytes, .end = bytes + n, .at = bytes, .why = why, .size = sizeof why
    };
    if (tp__json_begin(&w) && tp__json_object(&w, read_member, &f) && tp__json_end(&w) &&
        !(f.images && f.annotations && f.categories))
        tp__json_fail(&w, w.end, "'%s' is missing",
                      !f.images        ? "images"
                      : !f.annotations ? "annotations"
                                       : "categories");
    if (!why[0]) tp__coco_finish(X, &w);
    if (why[0]) snprintf(X->why, sizeof X->why, "%s", why);
    if (X->why[0]) X->images = X->objects = 0;
    return X;
}

tp_coco *tp_coco_from(const char *bytes, size_t n, const char *name)
{
    if (!bytes) n = 0;
    tp_coco *X = tp__coco_new(name);
    return tp_coco_ok(X) ? read_bytes(X, bytes, n, name) : X;
}

tp_coco *tp_coco_open(const char *path)
{
    char why[TP_COCO_WHY / 2];
    tp_blob b = { 0 };
    tp_coco *X = tp__coco_new(path);
    if (!tp_coco_ok(X)) return X;
    if (tp__blob_load(&b, path, 0, why, sizeof why))
        read_bytes(X, (const char *)b.bytes, b.size, path);
    else
        tp__coco_fail(X, "%.*s: %s", NAME, path, why);
    tp__blob_free(&b);
    return X;
}
