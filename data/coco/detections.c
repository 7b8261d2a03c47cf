/* detections.c - lists of detections, COCO's results: reads, builds and writes them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/file.h>

#include "coco.h"
#include "kit.h"
#include "load.h"

struct tp_detections {
    char why[TP_COCO_WHY];
    const tp_coco *X;
    tp_pool all; /* tp_detection */
    tp_coco_tally noted;
    bool boxes; /* while reading: the first result has a box */
};

TP_FAILS(tp_detections, no_memory, "detections: out of memory",
         "detections: NULL was given in place of detections")

tp_detections *tp_detections_new(const tp_coco *X)
{
    if (!X) return NULL;
    tp_detections *R = calloc(1, sizeof *R);
    if (!R) return &no_memory;
    R->X = X;
    if (!tp_coco_ok(X)) snprintf(R->why, sizeof R->why, "%s", tp_coco_why(X));
    return R;
}

void tp_detections_close(tp_detections *R)
{
    if (!R || R == &no_memory) return;
    tp_detection *d = R->all.items;
    for (size_t i = 0; i < R->all.count; i++) tp_rle_free(&d[i].mask);
    free(d);
    free(R);
}

/* Adds d; R then owns its mask. */
static bool take(tp_detections *R, tp_detection *d)
{
    tp_detection *to = tp__pool_add(&R->all, 1, sizeof *to);
    if (to)
        *to = *d;
    else
        tp_rle_free(&d->mask);
    return to != NULL;
}

static bool is_finite(const tp_detection *d)
{
    return isfinite(d->score) && isfinite(d->area) && isfinite(d->box[0]) && isfinite(d->box[1]) &&
           isfinite(d->box[2]) && isfinite(d->box[3]);
}

void tp_detections_add(tp_detections *R, const tp_detection *d)
{
    if (!R) return;
    tp_detection copy = *d;
    if (R->why[0]) return;
    if (d->image < 0 || d->image >= tp_coco_images(R->X) || d->category < 0 ||
        d->category >= tp_coco_categories(R->X)) {
        snprintf(R->why, sizeof R->why, "detections: there is no image %lld or no category %d",
                 (long long)d->image, d->category);
        return;
    }
    if (!is_finite(d)) {
        snprintf(R->why, sizeof R->why,
                 "detections: one on image %lld has a score, a box or an area that is not finite: "
                 "score %g, box %g, %g, %g, %g, area %g",
                 (long long)d->image, d->score, d->box[0], d->box[1], d->box[2], d->box[3],
                 d->area);
        return;
    }
    if (copy.area == 0.0) copy.area = d->box[2] * d->box[3];
    copy.mask = (tp_rle){ 0 };
    if ((d->mask.runs && !tp_rle_merge(&copy.mask, &d->mask, 1, false)) || !take(R, &copy))
        snprintf(R->why, sizeof R->why, "detections: out of memory");
}

/* ---- reading ---- */

/* Reads mask, box and area of a result. */
static bool read_shape(const tp_detections *R, tp_json_item *i, tp_detection *d)
{
    const tp_coco_image *image = tp_coco_image_at(R->X, d->image);
    const json_t *s = json_object_get(i->value, "segmentation");
    const bool box = json_array_size(json_object_get(i->value, "bbox")) > 0;
    if (R->boxes || box) {
        if (!tp__item_numbers(i, "bbox", d->box, 4)) return false;
        d->area = d->box[2] * d->box[3];
    }
    if (s && !json_is_object(s) && !json_is_null(s) &&
        !(json_is_array(s) && json_array_size(s) == 0))
        return tp__item_fail(i, "'segmentation' of a result must be runs");
    if (!json_is_object(s))
        return R->boxes || tp__item_fail(i, "it has neither 'bbox' nor runs in 'segmentation'");
    if (!tp__item_mask(i, s, &d->mask)) return false;
    if (image->height && (d->mask.height != image->height || d->mask.width != image->width)) {
        tp_rle_free(&d->mask);
        return tp__item_fail(i, "its mask has another size than its image");
    }
    if (!R->boxes) d->area = (double)tp_rle_area(&d->mask);
    if (!R->boxes && !box) tp_rle_box(&d->mask, d->box);
    return true;
}

static bool read_result(void *env, tp_json_item *i)
{
    tp_detections *R = env;
    tp_detection d = { 0 };
    int64_t image = 0, category = 0;
    if (!tp__item_int(i, "image_id", false, &image) ||
        !tp__item_int(i, "category_id", false, &category) || !tp__item_number(i, "score", &d.score))
        return false;
    d.image = tp_coco_find_image(R->X, image);
    d.category = tp_coco_find_category(R->X, category);
    if (d.image < 0)
        return tp__item_fail(i, "the annotations have no image with the id %lld", (long long)image);
    if (i->index == 1) R->boxes = json_array_size(json_object_get(i->value, "bbox")) > 0;
    if (!read_shape(R, i, &d)) return false;
    if (d.category >= 0) return take(R, &d) || tp__item_fail(i, "out of memory");
    tp_coco_tally_add(&R->noted, TP_COCO_UNKNOWN_CATEGORY, i->index);
    tp_rle_free(&d.mask);
    return true;
}

tp_detections *tp_detections_from(const tp_coco *X, const char *bytes, size_t n, const char *name)
{
    if (!X) return NULL;
    tp_detections *R = tp_detections_new(X);
    if (R->why[0]) return R;
    tp_json_walk w = { .name = name,
                       .bytes = bytes,
                       .end = bytes + n,
                       .at = bytes,
                       .why = R->why,
                       .size = sizeof R->why };
    if (tp__json_begin(&w) && tp__json_array(&w, "result", read_result, R)) tp__json_end(&w);
    return R;
}

tp_detections *tp_detections_open(const tp_coco *X, const char *path)
{
    if (!X) return NULL;
    char why[TP_COCO_WHY / 2];
    tp_blob b;
    tp_detections *R;
    if (tp__blob_load(&b, path, 0, why, sizeof why)) {
        R = tp_detections_from(X, (const char *)b.bytes, b.size, path);
    } else {
        R = tp_detections_new(X);
        if (!R->why[0]) snprintf(R->why, sizeof R->why, "%.400s: %s", path, why);
    }
    tp__blob_free(&b);
    return R;
}

/* ---- access ---- */

int64_t tp_detections_count(const tp_detections *R)
{
    if (!R) return 0;
    return R->why[0] ? 0 : (int64_t)R->all.count;
}

int64_t tp_detections_dropped(const tp_detections *R)
{
    if (!R) return 0;
    return R->noted.count[TP_COCO_UNKNOWN_CATEGORY];
}

const tp_coco_tally *tp_detections_noted(const tp_detections *R)
{
    if (!R) return NULL;
    return &R->noted;
}

const tp_detection *tp_detections_at(const tp_detections *R, int64_t i)
{
    if (!R) return NULL;
    return (const tp_detection *)R->all.items + i;
}

const tp_coco *tp_detections_coco(const tp_detections *R)
{
    if (!R) return NULL;
    return R->X;
}

/* ---- writing ---- */

/* Appends a text of n bytes. */
static bool put(tp_pool *out, const char *text, size_t n)
{
    char *to = tp__pool_add(out, n, 1);
    if (to) memcpy(to, text, n);
    return to != NULL;
}

static bool put_number(tp_pool *out, const char *before, double x)
{
    char text[64];
    tp_number_write(text, sizeof text, x, 15);
    return put(out, before, strlen(before)) && put(out, text, strlen(text));
}

static bool put_mask(tp_pool *out, const tp_rle *mask)
{
    char head[100];
    const size_t n = tp_rle_string(mask, NULL, 0);
    char *text = malloc(n + 1);
    bool done = text != NULL;
    snprintf(head, sizeof head, ",\"segmentation\":{\"size\":[%lld,%lld],\"counts\":\"",
             (long long)mask->height, (long long)mask->width);
    if (done) tp_rle_string(mask, text, n + 1);
    done = done && put(out, head, strlen(head));
    for (size_t i = 0; done && i < n; i++)
        done = (text[i] != '\\' || put(out, "\\", 1)) && put(out, text + i, 1);
    free(text);
    return done && put(out, "\"}", 2);
}

static bool put_detection(tp_pool *out, const tp_coco *X, const tp_detection *d, bool first)
{
    char head[100];
    snprintf(head, sizeof head, "%s{\"image_id\":%lld,\"category_id\":%lld", first ? "" : ",\n",
             (long long)tp_coco_image_at(X, d->image)->id,
             (long long)tp_coco_category_id(X, d->category));
    bool done = put(out, head, strlen(head));
    for (int i = 0; i < 4; i++) done = done && put_number(out, i ? "," : ",\"bbox\":[", d->box[i]);
    done = done && put_number(out, "],\"score\":", d->score);
    if (d->mask.runs) done = done && put_mask(out, &d->mask);
    return done && put(out, "}", 1);
}

bool tp_detections_write(const tp_detections *R, const char *path, char *why, size_t size)
{
    if (!R) {
        if (why) snprintf(why, size, "detections_write: NULL was given in place of detections");
        return false;
    }
    tp_pool out = { 0 };
    bool done = put(&out, "[", 1);
    if (R->why[0]) {
        snprintf(why, size, "%s", R->why);
        free(out.items);
        return false;
    }
    for (size_t i = 0; done && i < R->all.count; i++)
        done = put_detection(&out, R->X, tp_detections_at(R, (int64_t)i), i == 0);
    if (done && put(&out, "]\n", 2))
        done = tp_file_replace(path, out.items, out.count, why, size);
    else
        snprintf(why, size, "%.400s: out of memory for the list of detections", path);
    free(out.items);
    return done;
}
