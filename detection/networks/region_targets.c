/* region_targets.c - training targets of Mask R-CNN's heads: sampled proposals and their masks. A
 * mask is the object's part in the region, from its polygons or, if it has runs and in mmdetection,
 * from its pixels. */
#include <stdlib.h>
#include <string.h>
#include <tapegrad/detection/masks.h>

#include "inner.h"

/* ---- regions ---- */

bool tp__regions_new(tp_tape *T, tp_regions *r, int64_t images, int64_t n)
{
    *r = (tp_regions){ .images = images };
    r->start = tp__detection_alloc(T, images + 1, sizeof *r->start);
    r->box = tp__detection_alloc(T, n, sizeof *r->box);
    r->score = tp__detection_alloc(T, n, sizeof *r->score);
    r->category = tp__detection_alloc(T, n, sizeof *r->category);
    r->object = tp__detection_alloc(T, n, sizeof *r->object);
    if (r->start && r->box && r->score && r->category && r->object) return true;
    tp_regions_free(r);
    return false;
}

void tp_regions_free(tp_regions *r)
{
    if (!r) return;
    free(r->start);
    free(r->box);
    free(r->score);
    free(r->category);
    free(r->object);
    *r = (tp_regions){ 0 };
}

/* ---- samples ---- */

/* Memory for one image with n candidates. */
typedef struct scratch {
    int64_t n;
    tp_corners *box;
    double *iou;
    int64_t *match, *index;
    int *label;
} scratch;

static void release(scratch *s)
{
    free(s->box);
    free(s->iou);
    free(s->match);
    free(s->index);
    free(s->label);
}

static bool reserve(tp_tape *T, scratch *s, int64_t n, int64_t objects, int64_t samples)
{
    *s = (scratch){ .n = n };
    s->box = tp__detection_alloc(T, n, sizeof *s->box);
    s->iou = tp__detection_alloc(T, n * objects, sizeof *s->iou);
    s->match = tp__detection_alloc(T, n, sizeof *s->match);
    s->index = tp__detection_alloc(T, samples, sizeof *s->index);
    s->label = tp__detection_alloc(T, n, sizeof *s->label);
    return s->box && s->iou && s->match && s->index && s->label;
}

/* Samples the candidates of an image and appends them to `to`. */
static bool sample(tp_tape *T, const tp_mask_rcnn_cfg *c, const tp_detection_in *in,
                   const tp_objects *o, scratch *s, tp_regions *to)
{
    const int background = (int)c->box.classes;
    const tp_box_sampler sampler = { c->samples, c->positive, in->sampling, { NULL, NULL } };
    int64_t positive;
    tp_corners_iou_all(o->box, o->n, s->box, s->n, s->iou);
    tp_match(&c->matcher, s->iou, o->n, s->n, s->match, s->label);
    for (int64_t i = 0; i < s->n; i++)
        s->label[i] = s->label[i] == 1   ? o->category[s->match[i]]
                      : s->label[i] == 0 ? background
                                         : -1;
    const int64_t n =
        tp_sample_boxes(&sampler, s->label, s->n, background, in->random, s->index, &positive);
    for (int64_t i = 0; i < n; i++, to->n++) {
        to->box[to->n] = s->box[s->index[i]];
        to->category[to->n] = s->label[s->index[i]];
        to->object[to->n] = o->n ? s->match[s->index[i]] : -1;
    }
    if (n < 0) tp_raise(T, TP_E_MEMORY, "Mask R-CNN: no memory to sample regions");
    return n >= 0;
}

bool tp__regions_sample(tp_tape *T, const tp_mask_rcnn_cfg *c, const tp_detection_in *in,
                        const tp_regions *proposals, tp_regions *sampled)
{
    bool done = tp__regions_new(T, sampled, proposals->images, proposals->images * c->samples);
    for (int64_t b = 0; done && b < proposals->images; b++) {
        const tp_objects *o = &in->objects[b];
        const int64_t n = proposals->start[b + 1] - proposals->start[b];
        scratch s;
        done = reserve(T, &s, n + (c->append ? o->n : 0), o->n, c->samples);
        if (done) {
            if (n) memcpy(s.box, proposals->box + proposals->start[b], (size_t)n * sizeof *s.box);
            if (s.n > n) memcpy(s.box + n, o->box, (size_t)o->n * sizeof *s.box);
            done = sample(T, c, in, o, &s, sampled);
        }
        release(&s);
        if (done) sampled->start[b + 1] = sampled->n;
    }
    if (!done) tp_regions_free(sampled);
    return done;
}

/* ---- masks ---- */

/* Counts the vertices of each polygon of object i; free the counts. NULL: T has failed. */
static int64_t *counts_of(tp_tape *T, const tp_objects *o, int64_t i, int64_t *polygons)
{
    *polygons = o->part[i + 1] - o->part[i];
    int64_t *count = tp__detection_alloc(T, *polygons, sizeof *count);
    for (int64_t k = 0; count && k < *polygons; k++)
        count[k] = o->point[o->part[i] + k + 1] - o->point[o->part[i] + k];
    return count;
}

/* Decodes runs to pixels, to be freed. NULL: out of memory or another size. */
static uint8_t *decode(const tp_rle *r, const int64_t size[2])
{
    const bool fits = r->height == size[0] && r->width == size[1];
    uint8_t *pixels = fits ? malloc((size_t)(size[0] * size[1])) : NULL;
    if (pixels) tp_rle_pixels(r, pixels);
    return pixels;
}

/* Draws polygons to the pixels of an image, to be freed. NULL: out of memory. */
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

/* Makes a target from pixels. */
static bool from_pixels(const uint8_t *pixels, const int64_t size[2], tp_corners box, int64_t side,
                        uint8_t *target)
{
    double *part = malloc((size_t)(side * side) * sizeof *part);
    if (part) tp_mask_target_from_pixels(pixels, size[0], size[1], box, side, part);
    for (int64_t i = 0; part && i < side * side; i++) target[i] = part[i] >= 0.5;
    free(part);
    return part != NULL;
}

/* Makes the targets of the regions of image b whose object is i. */
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
