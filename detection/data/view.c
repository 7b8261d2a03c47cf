/* view.c - images and objects in the coordinates of a network's input: the objects that a detector
 * learns from, their boxes and outlines. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "inner.h"

enum { PATH = 4200 };

/* ---- sources ---- */

static bool fail(tp_image *p, const char *fmt, const char *path, const char *reason)
{
    char why[sizeof p->why];
    const tp_code shortage = p->shortage;
    snprintf(why, sizeof why, fmt, path, reason);
    tp_image_free(p);
    p->shortage = shortage;
    memcpy(p->why, why, sizeof why);
    return false;
}

/* Writes the path of an image's file; absolute names stay unchanged. */
static void path_of(const tp_object_source *s, const tp_coco_image *image, char path[PATH])
{
    const char *folder = s->folder && image->file[0] != '/' ? s->folder : NULL;
    snprintf(path, PATH, "%s%s%s", folder ? folder : "", folder ? "/" : "", image->file);
}

/* Returns 1 if the file exists, 0 if not, -1 if the disk reports an error. */
static int is_there(const char *path, char *why, size_t size)
{
    struct stat st;
    if (stat(path, &st) == 0) return 1;
    const int e = errno;
    const bool gone = e == ENOENT || e == ENOTDIR || e == ENAMETOOLONG || e == ELOOP || e == EACCES;
    snprintf(why, size, "%.300s: %s%s", path, gone ? "" : "cannot be accessed: ", strerror(e));
    if (gone && strchr(path, '\\'))
        snprintf(why, size, "%.300s: %s; its name has backslashes: write / between folders", path,
                 strerror(e));
    return gone ? 0 : -1;
}

int64_t tp_object_source_look(const tp_object_source *s, bool with_objects, bool *missing,
                              char *why, size_t size)
{
    int64_t n = 0;
    char path[PATH], reason[512];
    if (!s || !missing) {
        snprintf(why, size, "NULL was given in place of %s", s ? "a list" : "a source");
        return -1;
    }
    for (int64_t i = 0; i < tp_coco_images(s->coco); i++) {
        const tp_coco_image *image = tp_coco_image_at(s->coco, i);
        missing[i] = false;
        if (s->scenes || (with_objects && image->objects == 0)) continue;
        path_of(s, image, path);
        const int there = is_there(path, reason, sizeof reason);
        if (there == 1) continue;
        if (there < 0 || n == 0) snprintf(why, size, "%s", reason);
        if (there < 0) return -1;
        missing[i] = true;
        n++;
    }
    return n;
}

bool tp_object_source_read(const tp_object_source *s, int64_t i, tp_image *p)
{
    if (!s) return false;
    const tp_coco_image *image = tp_coco_image_at(s->coco, i);
    char path[PATH], size[80];
    if (s->scenes) return tp_scenes_draw(s->scenes, i, p);
    path_of(s, image, path);
    const tp_image_opts decode = { .max_pixels = s->max_pixels, .orient = true, .strict = true };
    if (!tp_image_read(p, path, &decode)) {
        char reason[sizeof p->why];
        memcpy(reason, p->why, sizeof reason);
        return strstr(reason, path) ? false : fail(p, "%.300s: %.200s", path, reason);
    }
    if (image->height == 0 || (image->height == p->height && image->width == p->width)) return true;
    snprintf(size, sizeof size, "%lld x %lld pixels, the annotations say %lld x %lld",
             (long long)p->width, (long long)p->height, (long long)image->width,
             (long long)image->height);
    return fail(p, "%.300s: the image has %s", path, size);
}

static uint64_t hash_number(uint64_t h, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return tp_hash(h, bits);
}

uint64_t tp_object_source_hash(const tp_object_source *s)
{
    if (!s) return 0;
    uint64_t h = TP_HASH;
    for (int64_t i = 0; i < tp_coco_images(s->coco); i++) {
        const tp_coco_image *image = tp_coco_image_at(s->coco, i);
        h = tp_hash(tp_hash(tp_hash_text(h, image->file), (uint64_t)image->height),
                    (uint64_t)image->width);
        for (int64_t k = 0; k < image->objects; k++) {
            const tp_coco_object *o = tp_coco_object_at(s->coco, image->first + k);
            h = tp_hash(tp_hash(h, (uint64_t)o->category), o->crowd);
            for (int c = 0; c < 4; c++) h = hash_number(h, o->box[c]);
        }
    }
    return h;
}

/* ---- views ---- */

bool tp_view_image(const tp_object_view *v, const tp_image *in, tp_image *out)
{
    if (!v) return false;
    const int64_t h = v->to[0], w = v->to[1];
    const bool same = in->height == h && in->width == w;
    if (!(same                           ? tp_image_copy(out, in)
          : v->profile == TP_MMDETECTION ? tp_image_resize_linear(out, in, w, h)
                                         : tp_image_resize(out, in, NULL, w, h, TP_BILINEAR)))
        return false;
    if (v->mirror) tp_image_flip(out);
    return true;
}

static double view_x(const tp_object_view *v, double x)
{
    const double scaled = x * ((double)v->to[1] / (double)v->from[1]);
    return v->mirror ? (double)v->to[1] - scaled : scaled;
}

static double view_y(const tp_object_view *v, double y)
{
    return y * ((double)v->to[0] / (double)v->from[0]);
}

tp_corners tp_view_box(const tp_object_view *v, const double box[4])
{
    if (!v) return (tp_corners){ 0 };
    const double a = view_x(v, box[0]), b = view_x(v, box[0] + box[2]);
    const tp_corners c = { a < b ? a : b, view_y(v, box[1]), a < b ? b : a,
                           view_y(v, box[1] + box[3]) };
    return tp_corners_clip(c, (double)v->to[0], (double)v->to[1]);
}

void tp_view_outline(const tp_object_view *v, const double *xy, int64_t n, double *out)
{
    for (int64_t k = 0; v && xy && out && k + 1 < n; k += 2) {
        out[k] = view_x(v, xy[k]);
        out[k + 1] = view_y(v, xy[k + 1]);
    }
}

/* Returns which pixel of n is shown by pixel i of m: Pillow takes centres, OpenCV corners. */
static int64_t nearest(const tp_object_view *v, int64_t i, int64_t n, int64_t m)
{
    return v->profile == TP_MMDETECTION ? i * n / m : (2 * i + 1) * n / (2 * m);
}

bool tp_view_mask(const tp_object_view *v, const tp_rle *in, tp_rle *out)
{
    if (!v || !in || !out) return false;
    const int64_t h = v->to[0], w = v->to[1];
    uint8_t *from = malloc((size_t)(in->height * in->width)), *to = malloc((size_t)(h * w));
    bool done = from && to;
    *out = (tp_rle){ 0 };
    if (done) tp_rle_pixels(in, from);
    for (int64_t y = 0; done && y < h; y++) {
        const uint8_t *row = from + nearest(v, y, in->height, h) * in->width;
        for (int64_t x = 0; x < w; x++)
            to[y * w + (v->mirror ? w - 1 - x : x)] = row[nearest(v, x, in->width, w)];
    }
    done = done && tp_rle_from_pixels(out, to, h, w);
    free(from);
    free(to);
    return done;
}

const tp_pixel_scale tp_pixels_imagenet = { { 123.675f, 116.28f, 103.53f },
                                            { 58.395f, 57.12f, 57.375f } };

int64_t tp_padded_side(int64_t n, int64_t multiple)
{
    return multiple > 0 ? (n + multiple - 1) / multiple * multiple : n;
}

void tp_view_floats(const tp_image *p, const tp_pixel_scale *scale, int64_t height, int64_t width,
                    float *out)
{
    if (!p) return;
    memset(out, 0, (size_t)(height * width * 3) * sizeof *out);
    for (int64_t y = 0; y < p->height; y++) {
        const uint8_t *from = p->rgb + y * p->width * 3;
        float *to = out + y * width * 3;
        for (int64_t x = 0; x < p->width * 3; x += 3)
            for (int c = 0; c < 3; c++)
                to[x + c] = ((float)from[x + c] - scale->mean[c]) / scale->std[c];
    }
}

/* ---- objects to learn from ---- */

/* As in detectron2: a polygon needs at least three points, and no half ones. */
static bool polygon_counts(int64_t n)
{
    return n >= 6 && n % 2 == 0;
}

/* Counts the polygons of an object that can be drawn. */
static int64_t polygons_of(const tp_coco *X, const tp_coco_object *a)
{
    int64_t usable = 0, n;
    for (int64_t k = 0; a->form == TP_COCO_POLYGONS && k < a->parts; k++) {
        tp_coco_polygon(X, a, k, &n);
        usable += polygon_counts(n);
    }
    return usable;
}

/* Is the box in the view? Sides as in detectron2. */
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
    /* detectron2 drops objects with no usable polygon even if no masks are wanted */
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

/* Counts an image's relevant objects, their polygons and numbers, and those with runs. */
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

/* Makes room for arrays of `bytes` bytes and, unless masks is 0, for that many masks. */
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

/* Adds the outline of an object as polygons after the first `parts`; returns their new number. */
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

/* Runs of an image of unknown size may turn out to have another size. */
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
    /* all but the last have 8-byte elements */
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
        if (room->mask && a->form == TP_COCO_RUNS && !add_mask(X, a, v, &room->mask[n]))
            return false;
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
