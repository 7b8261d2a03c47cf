/* loader_objects.c - which objects of an image a detector learns from, and their boxes and outlines in a view. */
#include <stdlib.h>

#include "loader.h"

/* As in detectron2: polygons need three points, and whole ones. */
static bool polygon_counts(int64_t n)
{
    return n >= 6 && n % 2 == 0;
}

static bool has_outline(const tp_coco *X, const tp_coco_object *a)
{
    for (int64_t k = 0; a->form == TP_COCO_POLYGONS && k < a->parts; k++) {
        int64_t n;
        tp_coco_polygon(X, a, k, &n);
        if (polygon_counts(n)) return true;
    }
    return false;
}

bool tp__object_counts(const tp_object_loader_opts *o, const tp_coco *X, const tp_coco_object *a)
{
    if (a->crowd) return false;
    if (o->profile == TP_MMDETECTION && (a->box[2] < 1 || a->box[3] < 1 || a->area <= 0))
        return false;
    /* detectron2 drops objects all of whose polygons are unusable even if no masks are wanted */
    return has_outline(X, a) || (!o->masks && (a->form != TP_COCO_POLYGONS || a->parts == 0));
}

/* The counts of an image's objects that matter: objects, polygons, numbers of vertices. */
static void count(const tp_object_loader_opts *o, const tp_coco *X, const tp_coco_image *image,
                  size_t n[3])
{
    n[0] = n[1] = n[2] = 0;
    for (int64_t i = 0; i < image->objects; i++) {
        const tp_coco_object *a = tp_coco_object_at(X, image->first + i);
        if (!tp__object_counts(o, X, a)) continue;
        n[0]++;
        for (int64_t k = 0; o->masks && k < a->parts; k++) {
            int64_t points;
            tp_coco_polygon(X, a, k, &points);
            n[1]++;
            n[2] += (size_t)points;
        }
    }
}

static bool reserve(tp_object_room *room, size_t bytes)
{
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
    for (int64_t k = 0; k < a->parts; k++) {
        int64_t n;
        const double *from = tp_coco_polygon(X, a, k, &n);
        if (!polygon_counts(n)) continue;
        tp_view_outline(v, from, n, xy + 2 * point[parts]);
        point[parts + 1] = point[parts] + n / 2;
        parts++;
    }
    return parts;
}

bool tp__objects_fill(const tp_object_loader_opts *o, const tp_coco *X, int64_t image,
                      const tp_object_view *v, tp_object_room *room)
{
    const tp_coco_image *at = tp_coco_image_at(X, image);
    size_t most[3];
    count(o, X, at, most);
    if (!reserve(room, most[0] * (sizeof(tp_corners) + sizeof(int64_t) + sizeof(int)) +
                           (most[1] + 2) * sizeof(int64_t) + most[2] * sizeof(double) + 64))
        return false;
    /* all but the last have elements of 8 bytes */
    tp_corners *box = room->memory;
    double *xy = (double *)(box + most[0]);
    int64_t *part = (int64_t *)(xy + most[2]), *point = part + most[0] + 1;
    int *category = (int *)(point + most[1] + 1);
    int64_t n = 0;
    part[0] = point[0] = 0;
    for (int64_t i = 0; i < at->objects; i++) {
        const tp_coco_object *a = tp_coco_object_at(X, at->first + i);
        if (!tp__object_counts(o, X, a)) continue;
        box[n] = tp_view_box(v, a->box);
        if (!tp_corners_exceed(box[n], 1e-5)) continue;
        category[n] = a->category;
        part[n + 1] = o->masks ? add_outline(X, a, v, part[n], point, xy) : 0;
        n++;
    }
    room->objects = (tp_objects){ .n = n, .box = box, .category = category };
    if (o->masks) {
        room->objects.part = part;
        room->objects.point = point;
        room->objects.xy = xy;
    }
    return true;
}
