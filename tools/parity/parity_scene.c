/* parity_scene.c - batches of images with objects, as the cases of whole detectors store them:
 * images of uint8 and different sizes, boxes, categories, polygons; detections in the original
 * images; the kind of the input pipeline. */
#include <limits.h>
#include <math.h>
#include <string.h>
#include <tapegrad/detection/masks.h>

#include "parity_detection.h"

/* The number of image b, which full-size cases do not write. */
static const char *numbered(parity *p, const char *stem, int64_t b)
{
    return p->kind->large ? stem : par_name(p, "%s%lld", stem, (long long)b);
}

/* ---- objects ---- */

/* The first vertices of polygons [polygons + 1], and the number of all. */
static int64_t *starts(parity *p, const int64_t *count, int64_t polygons)
{
    int64_t *start = par_alloc(p, polygons + 1, sizeof *start);
    for (int64_t k = 0; start && k < polygons; k++) {
        if (count[k] < 0) par_fail(p, "a polygon has %lld vertices", (long long)count[k]);
        start[k + 1] = start[k] + (count[k] > 0 ? count[k] : 0);
    }
    return start;
}

void par_polygons(parity *p, const char *of, tp_objects *o)
{
    tp_shape s = { 0 }, t = { 0 };
    const char *xy = par_name(p, "input.poly_xy%s", of);
    if (!par_has(p, xy)) return;
    const int64_t *count, *owner = NULL;
    int64_t polygons;
    o->xy = par_values(p, xy, &s);
    if (p->kind->large) {
        count = par_sizes(p, "poly_counts", 0, &polygons);
        if (polygons != o->n) par_fail(p, "metadata poly_counts: %lld objects", (long long)o->n);
    } else {
        count = par_integers(p, par_name(p, "input.poly_count%s", of), &t);
        polygons = par_numel(t);
        owner = par_integers_of(p, par_name(p, "input.poly_instance%s", of), polygons);
    }
    int64_t *part = par_alloc(p, o->n + 1, sizeof *part), k = 0;
    if (p->failed) return;
    for (int64_t i = 0; i < o->n; i++) {
        while (k < polygons && (owner ? owner[k] : k) == i) k++;
        part[i + 1] = k;
    }
    o->part = part;
    o->point = starts(p, count, polygons);
    if (k != polygons || !o->point || 2 * o->point[polygons] != par_numel(s))
        par_fail(p, "%s does not have the polygons of the objects in order", xy);
}

static void read_objects(parity *p, int64_t b, int64_t classes, tp_objects *o)
{
    o->box = par_corners(p, numbered(p, "input.gt_boxes", b), &o->n);
    o->category = par_categories(p, numbered(p, "input.gt_classes", b), o->n, classes - 1);
    if (!p->failed) par_polygons(p, numbered(p, "", b), o);
}

/* The indices of the images without objects, -1: none. */
static void check_empty(parity *p, const par_scene *s)
{
    int64_t n, empty = 0;
    if (!par_given(p, "image_without_gt")) return;
    const int64_t *index = par_sizes(p, "image_without_gt", -1, &n);
    for (int64_t b = 0; b < s->images; b++) empty += s->objects[b].n == 0;
    for (int64_t i = 0; i < n; i++)
        if (index[i] >= s->images || (index[i] >= 0 ? s->objects[index[i]].n > 0 : empty > 0))
            par_fail(p, "metadata image_without_gt: image %lld has objects, or others have none",
                     (long long)index[i]);
    if (empty > (n && index[0] >= 0 ? n : 0))
        par_fail(p, "metadata image_without_gt: %lld images have no objects", (long long)empty);
}

/* ---- images ---- */

/* Rows of height and width, one for each image. NULL: failed. */
static int64_t (*sides_of(parity *p, const char *key, int64_t images))[2]
{
    int64_t rows, columns;
    const double *x = par_nested(p, key, &rows, &columns);
    int64_t(*side)[2] = par_alloc(p, images, sizeof *side);
    if (rows != images || columns != 2) {
        par_fail(p, "metadata %s: not one height and width for each image", key);
        return NULL;
    }
    for (int64_t i = 0; side && i < 2 * images; i++) {
        side[i / 2][i % 2] = (int64_t)x[i];
        if (x[i] < 1 || x[i] > 4096 || x[i] != floor(x[i]))
            par_illegal(p, "metadata %s: %g is not a side from 1 to 4096", key, x[i]);
    }
    return side;
}

/* Images are padded to multiples of size_divisibility. */
static int64_t padding(parity *p)
{
    const int64_t unit = par_int(p, "size_divisibility", 32, 0, 4096);
    return unit > 0 ? unit : 1;
}

bool par_scene_read(parity *p, int64_t classes, par_scene *s)
{
    *s = (par_scene){ .images = p->kind->large ? 1 : par_series(p, "input.image") };
    if (p->kind->large) {
        s->size = par_alloc(p, 1, sizeof *s->size);
        if (s->size) par_sides(p, "image_hw", s->size[0]);
    } else {
        s->size = sides_of(p, "image_hw", s->images);
        s->original = sides_of(p, "original_hw", s->images);
    }
    s->objects = par_alloc(p, s->images, sizeof *s->objects);
    for (int64_t b = 0; !p->failed && b < s->images; b++)
        read_objects(p, b, classes, &s->objects[b]);
    if (!p->failed) check_empty(p, s);
    padding(p);
    if (s->images < 1) par_fail(p, "the case has no images");
    return !p->failed;
}

/* The pixels [3,H,W] of image b: stored, or by the fill rule. NULL: failed. */
static const double *pixels_of(parity *p, const par_scene *s, int64_t b)
{
    const int64_t n = 3 * s->size[b][0] * s->size[b][1];
    double *x = par_alloc(p, n, sizeof *x);
    if (!x) return NULL;
    if (!p->kind->large) {
        tp_shape t = { 0 };
        const int64_t *stored = par_integers(p, par_nth(p, "input.image", b), &t);
        if (t.ndim != 3 || t.dim[0] != 3 || t.dim[1] != s->size[b][0] || t.dim[2] != s->size[b][1])
            par_fail(p, "input.image%lld does not have the size of image_hw", (long long)b);
        for (int64_t i = 0; stored && !p->failed && i < n; i++) x[i] = (double)stored[i];
        return p->failed ? NULL : x;
    }
    int64_t ends;
    const char *name = par_text(p, "image_fill");
    const double *range = par_list(p, "image_range", &ends);
    if (!name || ends != 2) par_fail(p, "metadata image_fill, image_range: a name and two numbers");
    if (p->failed) return NULL;
    const uint64_t hash = par_hash(name);
    for (int64_t i = 0; i < n; i++)
        x[i] = floor((double)(float)(range[0] + (range[1] - range[0]) * par_uniform(hash, i)));
    return x;
}

/* The images on the tape, normalised and padded. */
static tp_tensor scene_images(parity *p, const par_scene *s)
{
    int64_t H = 0, W = 0;
    float mean[3], std[3];
    par_three(p, "pixel_mean", 0.0, 1e6, mean);
    par_three(p, "pixel_std", 1e-9, 1e6, std);
    for (int64_t b = 0; b < s->images; b++) {
        H = s->size[b][0] > H ? s->size[b][0] : H;
        W = s->size[b][1] > W ? s->size[b][1] : W;
    }
    const int64_t unit = padding(p);
    H = tp_padded_side(H, unit);
    W = tp_padded_side(W, unit);
    double *all = par_alloc(p, s->images * H * W * 3, sizeof *all);
    for (int64_t b = 0; !p->failed && b < s->images; b++) {
        const int64_t h = s->size[b][0], w = s->size[b][1];
        const double *x = pixels_of(p, s, b);
        for (int64_t i = 0; x && i < 3 * h * w; i++) {
            const int64_t c = i / (h * w), row = i / w % h, column = i % w;
            all[((b * H + row) * W + column) * 3 + c] = (x[i] - (double)mean[c]) / (double)std[c];
        }
    }
    if (p->failed) return tp_raise(p->T, TP_E_VALUE, "%s", p->r->why);
    return tp_reshape(p->T, par_matrix(p, s->images * H, W * 3, all), TP_SHAPE(s->images, H, W, 3));
}

tp_detection_in par_scene_in(parity *p, const par_scene *s)
{
    static const char *const rules[] = { "even", NULL };
    par_word(p, "sampling_rule", 0, rules);
    return (tp_detection_in){ .images = scene_images(p, s),
                              .size = (const int64_t(*)[2])s->size,
                              .objects = s->objects,
                              .sampling = TP_SAMPLE_EVEN };
}

tp_detection_in par_mm_in(parity *p, int64_t B)
{
    int64_t hw[2];
    tp_objects *o = par_alloc(p, B, sizeof *o);
    int64_t(*size)[2] = par_alloc(p, B, sizeof *size);
    par_sides(p, "image_hw", hw);
    for (int64_t b = 0; o && size && b < B && !p->failed; b++) {
        const char *labels = par_nth(p, "input.gt_labels", b);
        memcpy(size[b], hw, sizeof hw);
        o[b].box = par_corners(p, par_nth(p, "input.gt_boxes", b), &o[b].n);
        if (par_has(p, labels)) o[b].category = par_categories(p, labels, o[b].n, INT_MAX);
    }
    return (tp_detection_in){ .size = (const int64_t(*)[2])size, .objects = o };
}

/* ---- detections ---- */

/* Of each mask, a few pixels at the boundary may differ. */
static void check_masks(parity *p, const char *name, const tp_detected *d, double threshold,
                        const int64_t size[2])
{
    enum { BOUNDARY = 4 };
    const int64_t n = size[0] * size[1];
    const int64_t *want = par_integers(p, name, NULL);
    uint8_t *pixels = par_alloc(p, n, 1);
    int64_t *got = par_alloc(p, d->n * n, sizeof *got);
    if (!want || !pixels || !got) return;
    if (par_numel(par_shape(p, name)) != d->n * n) {
        par_fail(p, "%s has another size", name);
        return;
    }
    for (int64_t i = 0; i < d->n; i++) {
        int64_t different = 0;
        tp_paste_mask(d->mask + i * d->side * d->side, d->side, d->found[i].box, threshold, size[0],
                      size[1], pixels);
        for (int64_t k = 0; k < n; k++) {
            got[i * n + k] = pixels[k];
            different += pixels[k] != want[i * n + k];
        }
        if (different > BOUNDARY)
            par_fail(p, "%s: %lld pixels of mask %lld differ", name, (long long)different,
                     (long long)i);
        if (different) memcpy(got + i * n, want + i * n, (size_t)n * sizeof *got);
    }
    par_check_integers(p, name, got, d->n * n);
}

void par_scene_detect(parity *p, const par_scene *s, const tp_detector_kind *kind, const void *m,
                      const tp_detection_in *in, double threshold)
{
    tp_detected *found = par_alloc(p, s->images, sizeof *found);
    if (!found || !s->original) return;
    tp_train(p->T, false);
    const bool done = kind->detect(p->T, m, in, found);
    tp_train(p->T, p->train);
    for (int64_t b = 0; done && b < s->images; b++) {
        tp_detected *d = &found[b];
        tp_detected_to_original(d, s->size[b], s->original[b]);
        par_check_found(p, PAR_ON_TAPE, d->found, d->n, par_nth(p, "output.det_boxes", b),
                        par_nth(p, "output.det_scores", b), par_nth(p, "output.det_classes", b),
                        NULL);
        if (d->mask && !p->failed)
            check_masks(p, par_nth(p, "output.det_masks", b), d, threshold, s->original[b]);
        tp_detected_free(d);
    }
}

/* ---- the input pipeline ---- */

/* The network's input with channels first, as stored. */
static void check_floats(parity *p, const tp_image *image, const tp_pixel_scale *scale)
{
    const int64_t unit = padding(p), h = tp_padded_side(image->height, unit),
                  w = tp_padded_side(image->width, unit);
    float *x = par_alloc(p, h * w * 3, sizeof *x);
    if (!x) return;
    tp_view_floats(image, scale, h, w, x);
    par_check_pixels(p, "output.normalised_padded", x, 1, (int64_t[]){ 3, h, w }, 1e-6);
}

static void check_objects(parity *p, const tp_object_view *v)
{
    int64_t n;
    const tp_corners *box = par_corners(p, "input.boxes_xywh", &n);
    tp_corners *seen = par_alloc(p, n, sizeof *seen);
    for (int64_t i = 0; box && seen && i < n; i++) {
        double xywh[4]; /* read as corners */
        memcpy(xywh, &box[i], sizeof xywh);
        seen[i] = tp_view_box(v, xywh);
    }
    if (seen) par_check_corners(p, "output.boxes_xyxy", seen, n);
    for (int64_t k = 0; k < par_series(p, "input.poly") && !p->failed; k++) {
        tp_shape s = { 0 };
        const double *xy = par_values(p, par_nth(p, "input.poly", k), &s);
        const char *name = par_nth(p, "output.poly", k);
        double *to = par_alloc(p, par_numel(s), sizeof *to);
        if (!xy || !to) return;
        tp_view_outline(v, xy, par_numel(s), to);
        par_check(p, name, to, par_numel(s), par_exact(p, name));
    }
}

static void run_preprocess(parity *p)
{
    tp_image in = { 0 }, plain = { 0 }, seen = { 0 };
    tp_object_view v = { .mirror = par_flag(p, "flip", false) };
    tp_pixel_scale scale;
    par_three(p, "mean", 0.0, 1e6, scale.mean);
    par_three(p, "std", 1e-9, 1e6, scale.std);
    const int64_t size = par_size(p, "short_edge", PAR_NEEDED),
                  most = par_size(p, "max_size", PAR_NEEDED);
    par_read_image(p, "input.image", &in);
    if (!p->failed) {
        tp_shortest_side(TP_DETECTRON2, in.height, in.width, size, most, v.to);
        v.from[0] = in.height;
        v.from[1] = in.width;
        tp_object_view straight = v;
        straight.mirror = false;
        if (!tp_view_image(&straight, &in, &plain) || !tp_view_image(&v, &in, &seen))
            par_fail(p, "%s%s", plain.why, seen.why);
        par_check_image(p, "output.resized", &plain);
        par_check_image(p, "output.final_uint8", &seen);
        check_floats(p, &seen, &scale);
        check_objects(p, &v);
    }
    tp_image_free(&in);
    tp_image_free(&plain);
    tp_image_free(&seen);
}

const par_kind par_scene_kinds[] = {
    { .kind = "detection.preprocess", .run = run_preprocess },
    { .kind = NULL },
};
