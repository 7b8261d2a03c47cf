/* loader_objects.c - which objects of an image a detector learns from, and their boxes and outlines in a view. */
#include <stdlib.h>

#include "loader.h"

/* As in detectron2: polygons need three points, and whole ones. */
static bool polygon_counts(int64_t n)
{
    return n >= 6 && n % 2 == 0;
}

/* How many polygons of an object can be drawn. */
static int64_t polygons_of(const tp_coco *X, const tp_coco_object *a)
{
    int64_t usable = 0, n;
    for (int64_t k = 0; a->form == TP_COCO_POLYGONS && k < a->parts; k++) {
        tp_coco_polygon(X, a, k, &n);
        usable += polygon_counts(n);
    }
    return usable;
}

/* The box in a view: sides as in detectron2. */
static bool is_seen(const tp_object_view *v, const double box[4])
{
    return tp_corners_exceed(tp_view_box(v, box), 1e-5);
}

static bool is_outside(const tp_object_loader_opts *o, const tp_coco *X, const tp_coco_object *a)
{
    const tp_coco_image *i = tp_coco_image_at(X, a->image);
    const tp_object_view whole = { .from = { i->height, i->width },
                                   .to = { i->height, i->width },
                                   .profile = o->profile };
    return i->height > 0 && !is_seen(&whole, a->box);
}

tp_coco_reason tp__object_unfit(const tp_object_loader_opts *o, const tp_coco *X,
                                const tp_coco_object *a)
{
    const bool polygons = a->form == TP_COCO_POLYGONS && a->parts > 0;
    if (a->crowd) return TP_COCO_CROWD;
    if (a->box[2] <= 0 || a->box[3] <= 0) return TP_COCO_EMPTY_BOX;
    if (o->profile == TP_MMDETECTION && (a->box[2] < 1 || a->box[3] < 1 || a->area <= 0))
        return TP_COCO_TINY;
    if (is_outside(o, X, a)) return TP_COCO_OUTSIDE;
    /* detectron2 drops objects all of whose polygons are unusable even if no masks are wanted */
    if (polygons) return polygons_of(X, a) > 0 ? TP_COCO_REASONS : TP_COCO_BAD_POLYGONS;
    if (!o->masks) return TP_COCO_REASONS;
    if (a->form != TP_COCO_RUNS) return TP_COCO_NO_OUTLINE;
    const tp_rle runs = tp_coco_runs(X, a);
    return tp_rle_area(&runs) > 0 ? TP_COCO_REASONS : TP_COCO_EMPTY_RUNS;
}

bool tp__object_is_cut(const tp_object_loader_opts *o, const tp_coco *X, const tp_coco_object *a)
{
    return o->masks && a->form == TP_COCO_POLYGONS && polygons_of(X, a) < a->parts;
}

enum { OBJECTS, POLYGONS, NUMBERS, RUNS, COUNTS };

/* The counts of an image's objects that matter: objects, polygons and their numbers, objects with runs. */
static void count(const tp_object_loader_opts *o, const tp_coco *X, const tp_coco_image *image,
                  size_t n[COUNTS])
{
    for (int i = 0; i < COUNTS; i++) n[i] = 0;
    for (int64_t i = 0; i < image->objects; i++) {
        const tp_coco_object *a = tp_coco_object_at(X, image->first + i);
        if (tp__object_unfit(o, X, a) != TP_COCO_REASONS) continue;
        n[OBJECTS]++;
        n[RUNS] += o->masks && a->form == TP_COCO_RUNS;
        for (int64_t k = 0; o->masks && a->form == TP_COCO_POLYGONS && k < a->parts; k++) {
            int64_t numbers;
            tp_coco_polygon(X, a, k, &numbers);
            n[POLYGONS]++;
            n[NUMBERS] += (size_t)numbers;
        }
    }
}

static void free_masks(tp_object_room *room)
{
    for (int64_t i = 0; i < room->masks; i++) tp_rle_free(&room->mask[i]);
    free(room->mask);
    room->mask = NULL;
    room->masks = 0;
}

void tp__object_room_free(tp_object_room *room)
{
    free_masks(room);
    free(room->memory);
}

/* Makes room for arrays of that many bytes and, unless masks is 0, for that many masks. */
static bool reserve(tp_object_room *room, size_t bytes, size_t masks)
{
    free_masks(room);
    if (masks && !(room->mask = calloc(masks, sizeof *room->mask))) return false;
    room->masks = (int64_t)masks;
    if (bytes <= room->bytes) return true;
    void *more = realloc(room->memory, bytes);
    if (!more) return false;
    room->memory = more;
    room->bytes = bytes;
    return true;
}

/* Adds the outline of an object as the polygons that follow the first `parts`. Returns the number of all. */
static int64_t add_outline(const tp_coco *X, const tp_coco_object *a, const tp_object_view *v,
                           int64_t parts, int64_t *point, double *xy)
{
    for (int64_t k = 0; a->form == TP_COCO_POLYGONS && k < a->parts; k++) {
        int64_t n;
        const double *from = tp_coco_polygon(X, a, k, &n);
        if (!polygon_counts(n)) continue;
        tp_view_outline(v, from, n, xy + 2 * point[parts]);
        point[parts + 1] = point[parts] + n / 2;
        parts++;
    }
    return parts;
}

static bool add_mask(const tp_coco *X, const tp_coco_object *a, const tp_object_view *v, tp_rle *r)
{
    const tp_rle runs = tp_coco_runs(X, a);
    return tp_view_mask(v, &runs, r);
}

/* Runs of an image whose size was unknown may prove to be of another one. */
static bool fits(const tp_object_loader_opts *o, const tp_coco *X, const tp_coco_object *a,
                 const tp_object_view *v)
{
    if (!o->masks || a->form != TP_COCO_RUNS) return true;
    const tp_rle runs = tp_coco_runs(X, a);
    return runs.height == v->from[0] && runs.width == v->from[1];
}

bool tp__objects_fill(const tp_object_loader_opts *o, const tp_coco *X, int64_t image,
                      const tp_object_view *v, tp_object_room *room)
{
    const tp_coco_image *at = tp_coco_image_at(X, image);
    size_t most[COUNTS];
    count(o, X, at, most);
    if (!reserve(room,
                 most[OBJECTS] * (sizeof(tp_corners) + sizeof(int64_t) + sizeof(int)) +
                     (most[POLYGONS] + 2) * sizeof(int64_t) + most[NUMBERS] * sizeof(double) + 64,
                 most[RUNS] ? most[OBJECTS] : 0))
        return false;
    /* all but the last have elements of 8 bytes */
    tp_corners *box = room->memory;
    double *xy = (double *)(box + most[OBJECTS]);
    int64_t *part = (int64_t *)(xy + most[NUMBERS]), *point = part + most[OBJECTS] + 1;
    int *category = (int *)(point + most[POLYGONS] + 1);
    int64_t n = 0;
    part[0] = point[0] = room->unseen = 0;
    for (int64_t i = 0; i < at->objects; i++) {
        const tp_coco_object *a = tp_coco_object_at(X, at->first + i);
        if (tp__object_unfit(o, X, a) != TP_COCO_REASONS) continue;
        if (!is_seen(v, a->box) || !fits(o, X, a, v)) {
            room->unseen++;
            continue;
        }
        box[n] = tp_view_box(v, a->box);
        category[n] = a->category;
        part[n + 1] = o->masks ? add_outline(X, a, v, part[n], point, xy) : 0;
        if (o->masks && a->form == TP_COCO_RUNS && !add_mask(X, a, v, &room->mask[n])) return false;
        n++;
    }
    room->objects = (tp_objects){ .n = n, .box = box, .category = category };
    if (o->masks) {
        room->objects.part = part;
        room->objects.point = point;
        room->objects.xy = xy;
        room->objects.mask = room->mask;
    }
    return true;
}
