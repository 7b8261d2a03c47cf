/* coco_match.c - matches detections with objects, image by image and category by category.
 *
 * In descending order of scores, each detection takes the object with the largest intersection over
 * union (IoU) among those not taken; of equal ones, the last. Objects that do not count (crowds, or
 * of another size) come last: a detection that takes one is neither right nor wrong. A crowd can be
 * taken by any number of detections. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coco_eval.h"
#include "kit.h"
#include "rle.h"

/* An object or a detection, with its image and category. */
typedef struct entry {
    int64_t image;    /* position by ascending id */
    int32_t k;        /* category, or 0 */
    int32_t category; /* orders the entries if k is 0 for all */
    int64_t index;    /* in the annotations, or in the list of detections */
} entry;

/* One image and category. */
typedef struct cell {
    const tp_coco_object **object; /* [G] */
    const tp_detection **dt;       /* [D], by descending score */
    int64_t G, D;
    size_t roomy_G, roomy_D, roomy_iou;
    tp_rle *object_mask, *dt_mask; /* owned masks, or { 0 } */
    double (*object_box)[4], (*dt_box)[4];
    double *iou;           /* [D,G] */
    int64_t *order;        /* [G], those that count first */
    bool *ignored, *taken; /* [G], in that order */
} cell;

static const double areas[TP_COCO_AREAS][2] = {
    { 0.0, 1e10 }, { 0.0, 1024.0 }, { 1024.0, 9216.0 }, { 9216.0, 1e10 }
};

double tp_coco_threshold(int t)
{
    enum { LAST = TP_COCO_THRESHOLDS - 1 };
    static const double from = 0.5, to = 0.95;
    return t == LAST ? to : from + t * ((to - from) / LAST);
}

static bool out_of_memory(tp_coco_eval *E)
{
    if (!E->why[0]) snprintf(E->why, sizeof E->why, "evaluation: out of memory");
    return false;
}

/* ---- grouping ---- */

static int compare(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int by_cell(const void *x, const void *y)
{
    const entry *a = x, *b = y;
    if (a->k != b->k) return compare(a->k, b->k);
    if (a->image != b->image) return compare(a->image, b->image);
    if (a->category != b->category) return compare(a->category, b->category);
    return compare(a->index, b->index);
}

/* Returns the position of each image by ascending id; NULL: out of memory. */
static int64_t *places_of(const tp_coco *X)
{
    const int64_t n = tp_coco_images(X);
    int64_t *place = malloc(((size_t)n + 1) * sizeof *place);
    for (int64_t i = 0; place && i < n; i++) place[X->by_id[i]] = i;
    return place;
}

/* Sorts R's detections or, if R is NULL, X's objects; takes only images that count. */
static entry *entries_of(const tp_coco_eval *E, const tp_coco *X, const tp_detections *R,
                         const int64_t *place, int64_t *n)
{
    const int64_t all = R ? tp_detections_count(R) : tp_coco_objects(X);
    entry *e = malloc(((size_t)all + 1) * sizeof *e);
    *n = 0;
    for (int64_t i = 0; e && i < all; i++) {
        const tp_detection *d = R ? tp_detections_at(R, i) : NULL;
        const tp_coco_object *o = R ? NULL : tp_coco_object_at(X, i);
        const int64_t image = R ? d->image : o->image;
        const int32_t category = R ? d->category : o->category;
        if (E->o.left_out && E->o.left_out[image]) continue;
        e[(*n)++] = (entry){ .image = place[image],
                             .k = E->o.one_class ? 0 : category,
                             .category = category,
                             .index = i };
    }
    if (e) qsort(e, (size_t)*n, sizeof *e, by_cell);
    return e;
}

/* ---- one image and category ---- */

static void release_masks(cell *c)
{
    for (int64_t i = 0; i < c->G && c->object_mask; i++) tp_rle_free(&c->object_mask[i]);
    for (int64_t i = 0; i < c->D && c->dt_mask; i++) tp_rle_free(&c->dt_mask[i]);
}

static void release(cell *c)
{
    void *all[] = { c->object, c->dt,  c->object_mask, c->dt_mask, c->object_box,
                    c->dt_box, c->iou, c->order,       c->ignored, c->taken };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

/* Makes room for n elements. Arrays that share `room` grow together; the last gets its address. */
static bool grow(void *array, size_t room, int64_t n, size_t size)
{
    return tp_reserve(array, &room, 0, (size_t)n, size);
}

/* Makes room for G objects and D detections. */
static bool reserve(cell *c, int64_t G, int64_t D)
{
    const size_t g = c->roomy_G, d = c->roomy_D;
    return grow(&c->object_mask, g, G, sizeof *c->object_mask) &&
           grow(&c->object_box, g, G, sizeof *c->object_box) &&
           grow(&c->order, g, G, sizeof *c->order) && grow(&c->ignored, g, G, sizeof *c->ignored) &&
           grow(&c->taken, g, G, sizeof *c->taken) &&
           tp_reserve(&c->object, &c->roomy_G, 0, (size_t)G, sizeof *c->object) &&
           grow(&c->dt_mask, d, D, sizeof *c->dt_mask) &&
           grow(&c->dt_box, d, D, sizeof *c->dt_box) &&
           tp_reserve(&c->dt, &c->roomy_D, 0, (size_t)D, sizeof *c->dt);
}

/* Scores are finite: tp_detections accepts no others. */
static int by_score(const void *x, const void *y)
{
    const tp_detection *a = *(const tp_detection *const *)x, *b = *(const tp_detection *const *)y;
    if (a->score != b->score) return a->score < b->score ? 1 : -1;
    if (a->category != b->category) return compare(a->category, b->category);
    return (a > b) - (a < b); /* the order of the file */
}

/* Makes the masks of the cell and their boxes. */
static bool make_masks(tp_coco_eval *E, const tp_coco *X, cell *c)
{
    bool done = true;
    for (int64_t i = 0; i < c->G; i++) c->object_mask[i] = (tp_rle){ 0 };
    for (int64_t i = 0; i < c->D; i++) c->dt_mask[i] = (tp_rle){ 0 };
    for (int64_t i = 0; done && i < c->G; i++) {
        done = tp_coco_mask(X, c->object[i], &c->object_mask[i], E->why, sizeof E->why);
        tp_rle_box(&c->object_mask[i], c->object_box[i]);
    }
    for (int64_t i = 0; done && i < c->D; i++) {
        const tp_detection *d = c->dt[i];
        const tp_coco_image *image = tp_coco_image_at(X, d->image);
        if (!d->mask.runs && image->height < 1) {
            snprintf(E->why, sizeof E->why,
                     "evaluation: a detection without a mask: the size of image %lld is not known",
                     (long long)image->id);
            done = false;
        } else if (!d->mask.runs &&
                   !tp_rle_from_box(&c->dt_mask[i], d->box, image->height, image->width)) {
            snprintf(E->why, sizeof E->why,
                     "evaluation: out of memory for the mask of a detection on image %lld",
                     (long long)image->id);
            done = false;
        }
        tp_rle_box(d->mask.runs ? &d->mask : &c->dt_mask[i], c->dt_box[i]);
    }
    return done;
}

static bool overlaps(tp_coco_eval *E, const tp_coco *X, cell *c)
{
    const bool masks = E->o.kind == TP_COCO_MASKS;
    if (masks && !make_masks(E, X, c)) return false;
    if (!tp_reserve(&c->iou, &c->roomy_iou, 0, (size_t)(c->G * c->D), sizeof *c->iou))
        return out_of_memory(E);
    for (int64_t i = 0; i < c->D; i++) {
        const tp_detection *d = c->dt[i];
        for (int64_t j = 0; j < c->G; j++) {
            const tp_coco_object *o = c->object[j];
            double *iou = &c->iou[i * c->G + j];
            if (masks)
                *iou = tp__rle_iou_of(d->mask.runs ? &d->mask : &c->dt_mask[i], c->dt_box[i],
                                      &c->object_mask[j], c->object_box[j], o->crowd);
            else
                tp_box_iou_xywh(&d->box, 1, &o->box, 1, &o->crowd, iou);
        }
    }
    return true;
}

/* The area that decides whether a detection is small, medium or large. */
static double area_of(const tp_coco_eval *E, const tp_detection *d)
{
    return E->o.kind == TP_COCO_MASKS && !E->o.box_areas && d->mask.runs
               ? (double)tp_rle_area(&d->mask)
               : d->area;
}

static bool outside(double area, int a)
{
    return area < areas[a][0] || area > areas[a][1];
}

/* Orders the objects for size a, those that count first. Returns the number that count. */
static int64_t order_objects(cell *c, int a)
{
    int64_t counting = 0, n = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t j = 0; j < c->G; j++) {
            const tp_coco_object *o = c->object[j];
            const bool ignored = o->crowd || o->ignore || outside(o->area, a);
            if (ignored != (pass == 1)) continue;
            c->order[n] = j;
            c->ignored[n++] = ignored;
            counting += !ignored;
        }
    return counting;
}

/* Returns the position in c->order of the object that detection i takes, or -1. */
static int64_t best_object(const cell *c, int64_t i, double threshold)
{
    double best = threshold < 1.0 - 1e-10 ? threshold : 1.0 - 1e-10;
    int64_t m = -1;
    for (int64_t n = 0; n < c->G; n++) {
        const int64_t j = c->order[n];
        if (c->taken[n] && !c->object[j]->crowd) continue;
        if (m >= 0 && !c->ignored[m] && c->ignored[n]) break;
        const double iou = c->iou[i * c->G + j];
        if (iou < best) continue;
        best = iou;
        m = n;
    }
    return m;
}

/* A match with an object of id 0 counts as none: pycocotools stores ids and tests them for 0. */
static void match(cell *c, tp_coco_found *found, const bool *out, int a)
{
    for (int t = 0; t < TP_COCO_THRESHOLDS; t++) {
        const uint16_t bit = (uint16_t)(1 << t);
        memset(c->taken, 0, (size_t)c->G * sizeof *c->taken);
        for (int64_t i = 0; i < c->D; i++) {
            const int64_t m = best_object(c, i, tp_coco_threshold(t));
            const bool matched = m >= 0 && c->object[c->order[m]]->id != 0;
            if (m >= 0) c->taken[m] = true;
            if (matched) found[i].matched[a] |= bit;
            if ((m >= 0 && c->ignored[m]) || (!matched && out[i])) found[i].ignored[a] |= bit;
        }
    }
}

static bool match_cell(tp_coco_eval *E, const tp_coco *X, cell *c, tp_coco_class *of)
{
    const int most = E->o.most[TP_COCO_LIMITS - 1];
    bool *out = NULL;
    if (c->D) qsort(c->dt, (size_t)c->D, sizeof *c->dt, by_score);
    if (c->D > most) c->D = most;
    tp_coco_found *found = tp__pool_add(&E->found, (size_t)c->D, sizeof *found);
    if (c->D) out = malloc((size_t)c->D * sizeof *out);
    if (c->D && (!found || !out)) {
        free(out);
        return out_of_memory(E);
    }
    for (int64_t i = 0; i < c->D; i++)
        found[i] = (tp_coco_found){ .score = c->dt[i]->score, .rank = (int32_t)i };
    const bool done = c->D == 0 || c->G == 0 || overlaps(E, X, c);
    for (int a = 0; done && a < TP_COCO_AREAS; a++) {
        of->objects[a] += order_objects(c, a);
        for (int64_t i = 0; out && i < c->D; i++) out[i] = outside(area_of(E, c->dt[i]), a);
        match(c, found, out, a);
    }
    if (E->o.kind == TP_COCO_MASKS && c->D && c->G) release_masks(c);
    free(out);
    return done;
}

/* ---- all cells ---- */

/* Takes the entries of one image and category from *e on. */
static bool gather(const tp_detections *R, cell *c, const entry **object, const entry *objects_end,
                   const entry **dt, const entry *dt_end, int32_t k, int64_t image)
{
    const entry *g = *object, *d = *dt;
    while (g < objects_end && g->k == k && g->image == image) g++;
    while (d < dt_end && d->k == k && d->image == image) d++;
    c->G = g - *object;
    c->D = d - *dt;
    if (!reserve(c, c->G, c->D)) return false;
    for (int64_t i = 0; i < c->G; i++)
        c->object[i] = tp_coco_object_at(tp_detections_coco(R), (*object)[i].index);
    for (int64_t i = 0; i < c->D; i++) c->dt[i] = tp_detections_at(R, (*dt)[i].index);
    *object = g;
    *dt = d;
    return true;
}

/* Returns the image of the next entry of category k in either list; -1: there is none. */
static int64_t next_image(const entry *g, const entry *g_end, const entry *d, const entry *d_end,
                          int32_t k)
{
    const int64_t a = g < g_end && g->k == k ? g->image : INT64_MAX,
                  b = d < d_end && d->k == k ? d->image : INT64_MAX;
    const int64_t first = a < b ? a : b;
    return first == INT64_MAX ? -1 : first;
}

/* Scores are finite. Ties stay in the order of the images. */
static int by_found_score(const void *x, const void *y)
{
    const tp_coco_found *a = *(const tp_coco_found *const *)x,
                        *b = *(const tp_coco_found *const *)y;
    if (a->score != b->score) return a->score < b->score ? 1 : -1;
    return (a > b) - (a < b);
}

/* Sorts the detections of a category by descending score. */
static bool sort_found(tp_coco_found *found, size_t n)
{
    const tp_coco_found **order = malloc((n + 1) * sizeof *order);
    tp_coco_found *sorted = malloc((n + 1) * sizeof *sorted);
    const bool done = order && sorted;
    for (size_t i = 0; done && i < n; i++) order[i] = &found[i];
    if (done && n) qsort(order, n, sizeof *order, by_found_score);
    for (size_t i = 0; done && i < n; i++) sorted[i] = *order[i];
    if (done && n) memcpy(found, sorted, n * sizeof *sorted);
    free(order);
    free(sorted);
    return done;
}

static bool match_all(tp_coco_eval *E, const tp_detections *R, const entry *g, const entry *g_end,
                      const entry *d, const entry *d_end)
{
    const tp_coco *X = tp_detections_coco(R);
    cell c = { 0 };
    bool done = true;
    for (int32_t k = 0; done && k < E->classes; k++) {
        tp_coco_class *of = &E->of[k];
        of->first = E->found.count;
        for (int64_t image; done && (image = next_image(g, g_end, d, d_end, k)) >= 0;)
            done = gather(R, &c, &g, g_end, &d, d_end, k, image) ? match_cell(E, X, &c, of)
                                                                 : out_of_memory(E);
        of->n = (int64_t)(E->found.count - of->first);
        if (done && of->n > 0)
            done = sort_found((tp_coco_found *)E->found.items + of->first, (size_t)of->n) ||
                   out_of_memory(E);
    }
    release(&c);
    return done;
}

bool tp__coco_match(tp_coco_eval *E, const tp_detections *R)
{
    const tp_coco *X = tp_detections_coco(R);
    int64_t objects = 0, found = 0;
    int64_t *place = places_of(X);
    entry *g = place ? entries_of(E, X, NULL, place, &objects) : NULL;
    entry *d = g ? entries_of(E, X, R, place, &found) : NULL;
    const bool done = d ? match_all(E, R, g, g + objects, d, d + found) : out_of_memory(E);
    free(place);
    free(g);
    free(d);
    return done;
}
