/* mask_targets.c - what the masks of sampled regions are to be: the object's part in the region, from its polygons or,
 * if it has runs and in mmdetection, from its pixels. */
#include <stdlib.h>
#include <string.h>
#include <tapegrad/detection/masks.h>

#include "inner.h"

/* The polygons of object i: their numbers of vertices, to be freed. NULL: T has failed. */
static int64_t *counts_of(tp_tape *T, const tp_objects *o, int64_t i, int64_t *polygons)
{
    *polygons = o->part[i + 1] - o->part[i];
    int64_t *count = tp__detection_alloc(T, *polygons, sizeof *count);
    for (int64_t k = 0; count && k < *polygons; k++)
        count[k] = o->point[o->part[i] + k + 1] - o->point[o->part[i] + k];
    return count;
}

/* The pixels of runs in an image, to be freed. NULL: out of memory. */
static uint8_t *decode(const tp_rle *r, const int64_t size[2])
{
    const bool fits = r->height == size[0] && r->width == size[1];
    uint8_t *pixels = fits ? malloc((size_t)(size[0] * size[1])) : NULL;
    if (pixels) tp_rle_pixels(r, pixels);
    return pixels;
}

/* The pixels of polygons in an image, to be freed. NULL: out of memory. */
static uint8_t *draw(const double *xy, const int64_t *count, int64_t polygons,
                     const int64_t size[2])
{
    const size_t n = (size_t)(size[0] * size[1]);
    uint8_t *pixels = calloc(n + 1, 1), *one = malloc(n + 1);
    bool done = pixels && one;
    for (int64_t k = 0; done && k < polygons; xy += 2 * count[k++]) {
        tp_rle r;
        done = tp_rle_from_polygon(&r, xy, count[k], size[0], size[1]);
        if (!done) break;
        tp_rle_pixels(&r, one);
        tp_rle_free(&r);
        for (size_t i = 0; i < n; i++) pixels[i] |= one[i];
    }
    free(one);
    if (done) return pixels;
    free(pixels);
    return NULL;
}

/* One target from pixels. */
static bool from_pixels(const uint8_t *pixels, const int64_t size[2], tp_corners box, int64_t side,
                        uint8_t *target)
{
    double *part = malloc((size_t)(side * side) * sizeof *part);
    if (part) tp_mask_target_from_pixels(pixels, size[0], size[1], box, side, part);
    for (int64_t i = 0; part && i < side * side; i++) target[i] = part[i] >= 0.5;
    free(part);
    return part != NULL;
}

/* The targets of those regions of image b whose object is i. */
static bool draw_object(tp_tape *T, const tp_mask_rcnn_cfg *c, const tp_detection_in *in, int64_t b,
                        int64_t i, const tp_regions *r, uint8_t *target)
{
    const tp_objects *o = &in->objects[b];
    const bool runs = o->mask && o->mask[i].runs > 0,
               by_pixels = runs || c->profile == TP_MMDETECTION;
    const int64_t side = 2 * c->mask.side;
    int64_t polygons;
    int64_t *count = counts_of(T, o, i, &polygons);
    if (!count) return false;
    const double *xy = o->xy + 2 * o->point[o->part[i]];
    uint8_t *pixels = runs        ? decode(&o->mask[i], in->size[b])
                      : by_pixels ? draw(xy, count, polygons, in->size[b])
                                  : NULL;
    bool done = !by_pixels || pixels;
    for (int64_t k = r->start[b]; done && k < r->start[b + 1]; k++) {
        if (r->object[k] != i) continue;
        uint8_t *to = target + k * side * side;
        done = by_pixels ? from_pixels(pixels, in->size[b], r->box[k], side, to)
                         : tp_mask_target(xy, count, polygons, r->box[k], side, to);
    }
    free(count);
    free(pixels);
    if (!done)
        tp_raise(T, TP_E_VALUE,
                 "Mask R-CNN: out of memory for the mask of object %lld of image %lld, or its runs "
                 "have another size than the image",
                 (long long)i, (long long)b);
    return done;
}

/* Copies the regions that have objects with outlines. */
static void choose(const tp_detection_in *in, const tp_regions *from, int64_t classes,
                   tp_regions *to)
{
    for (int64_t b = 0; b < from->images; b++) {
        for (int64_t i = from->start[b]; i < from->start[b + 1]; i++) {
            if (from->category[i] >= classes || !in->objects[b].part) continue;
            to->box[to->n] = from->box[i];
            to->category[to->n] = from->category[i];
            to->object[to->n++] = from->object[i];
        }
        to->start[b + 1] = to->n;
    }
}

bool tp__mask_targets(tp_tape *T, const tp_mask_rcnn_cfg *c, const tp_detection_in *in,
                      const tp_regions *sampled, tp_regions *regions, uint8_t **target)
{
    const int64_t side = 2 * c->mask.side;
    *target = NULL;
    if (!tp__regions_new(T, regions, sampled->images, sampled->n)) return false;
    choose(in, sampled, c->box.classes, regions);
    *target = tp__detection_alloc(T, regions->n * side * side, 1);
    bool done = *target != NULL;
    for (int64_t b = 0; done && b < regions->images; b++) {
        const bool any = regions->start[b + 1] > regions->start[b];
        for (int64_t i = 0; done && any && i < in->objects[b].n; i++)
            done = draw_object(T, c, in, b, i, regions, *target);
    }
    if (!done) {
        free(*target);
        tp_regions_free(regions);
    }
    return done;
}
