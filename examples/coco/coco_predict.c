/* coco_predict.c - `coco predict`: finds objects in images and draws them. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coco_commands.h"
#include "coco_found.h"
#include "draw.h"
#include "reports/plain_text.h"

typedef struct predict_settings {
    tp_trained_settings t;
    coco_data d;
    tp_words images;
    char *draw, *sheet, *results;
    int part;
    bool truth;
    double score;
    int64_t limit, size, longest, zoom, across;
} predict_settings;

#define S predict_settings

static const tp_option table[] = {
    TP_HEADING("MODEL AND IMAGES"),
    TP_ARGUMENTS(
        S, images, "IMAGE ...",
        "JPEG or PNG files. Without them, the images of --data or --annotations, or the run's "
        "scenes."),
    TP_ROWS(tp_trained_options),
    OPTION_COCO_PATH(S, d, 0),
    OPTIONS_COCO_DATA(S, d),
    TP_CHOICE("part", S, part, "train|valid", 0, "Which images, if none are named."),
    TP_INT("limit", S, limit, 1, TP_BIG, 0, "How many of them, from the first on."),
    TP_INT("size", S, size, 0, 4096, 0,
           "Shorter side of images; 0: that of validation in training."),
    TP_INT("longest", S, longest, 0, 4096, 0, "Longest side of images; 0: as in training."),
    TP_HEADING("RESULTS"),
    TP_NUM("score", S, score, 0, 1, 0, "Leave out detections with a lower score."),
    TP_STRING(
        "results", S, results, "FILE", 0,
        "Write the detections in COCO's format; files of the command line have the ids 1, 2 ..."),
    TP_STRING("draw", S, draw, "DIR", 0,
              "Draw each image with its boxes, masks, names and scores into this folder: "
              "NUMBER-NAME.png."),
    TP_STRING("sheet", S, sheet, "FILE", 0, "Draw all images into one PNG."),
    TP_INT("across", S, across, 1, 64, 0, "Images of a row of the sheet."),
    TP_INT("zoom", S, zoom, 1, 16, 0, "Enlarge images by this factor before drawing."),
    TP_FLAG("truth", S, truth, 0,
            "Draw each image twice in the sheet, on the left with the annotated objects."),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_machine_options),
    { 0 },
};

static const tp_command manual = {
    .name = "coco predict",
    .summary = "finds objects in images and draws them",
    .synopsis = "[IMAGE ...] [--run-dir DIR | --checkpoint FILE] [--draw DIR] [flag ...]",
    .about =
        "Prints the objects that a detector finds in each image: category, score in percent, and "
        "the box as x, y, width and height in pixels. --draw and --sheet show them in the images.",
    .table = table,
    .more = "EXIT STATUS\n"
            "    0 success; 1 an image cannot be read, or another error; 2 a wrong command line\n\n"
            "EXAMPLES\n"
            "    coco predict --sheet sheet.png --truth\n"
            "    coco predict street.jpg --run-dir runs/masks --draw found\n",
};

typedef struct predictor {
    predict_settings *s;
    coco_file f;
    coco_set X;
    tp_coco *listed; /* the command line's images */
    tp_object_source source;
    tp_detections *found;
    tp_image raw, seen, shown, sheet;
    float *x;
    size_t room;
    int64_t images; /* number to predict */
} predictor;

/* ---- images ---- */

/* Lists the command line's images as annotations. */
static bool list_images(predictor *t)
{
    json_t *images = json_array(), *categories = json_loads(t->f.categories, 0, NULL);
    bool done = true;
    for (int i = 0; i < t->s->images.n && done; i++)
        done = json_array_append_new(images,
                                     json_pack("{s:i,s:s,s:i,s:i}", "id", i + 1, "file_name",
                                               t->s->images.at[i], "height", 0, "width", 0)) == 0;
    json_t *all =
        json_pack("{s:o,s:o,s:[]}", "images", images, "categories", categories, "annotations");
    char *text = all && done ? json_dumps(all, JSON_COMPACT) : NULL;
    json_decref(all);
    if (!text)
        return tp_trained_fail(&t->f.t, "the name of an image is not UTF-8, or out of memory");
    t->listed = tp_coco_from(text, strlen(text), "images");
    free(text);
    t->source = (tp_object_source){ .coco = t->listed, .max_pixels = t->s->d.max_pixels };
    t->images = t->s->images.n;
    return tp_coco_ok(t->listed) || tp_trained_fail(&t->f.t, "%s", tp_coco_why(t->listed));
}

static bool open_images(predictor *t)
{
    predict_settings *s = t->s;
    if (s->images.n > 0) return list_images(t);
    if (!coco_file_data(&t->f, &s->d, (tp_part)s->part, &t->X)) return false;
    t->source = t->X.source;
    t->images = tp_coco_images(t->source.coco);
    if (t->images > s->limit) t->images = s->limit;
    return true;
}

/* ---- drawing ---- */

static void free_objects(draw_object *o, int64_t n)
{
    for (int64_t i = 0; o && i < n; i++) tp_rle_free(&o[i].mask);
    free(o);
}

/* Draws detections, which fit an image of size `to`. False: out of memory. */
static bool draw_found(predictor *t, tp_image *p, const tp_detected *d, const int64_t to[2])
{
    const int64_t size[2] = { p->height, p->width };
    draw_object *o = calloc((size_t)d->n + 1, sizeof *o);
    int64_t n = 0;
    bool done = o != NULL;
    for (int64_t i = 0; i < d->n && done; i++) {
        tp_found found = d->found[i];
        if (tp_found_to_original(&found, 1, to, size) == 0) continue;
        draw_object *one = &o[n++];
        one->category = (int)found.category;
        one->name = tp_coco_category_name(t->f.names, one->category);
        one->score = found.score;
        tp_corners_xywh(found.box, one->box);
        done = !d->mask || tp_paste_rle(d->mask + i * d->side * d->side, d->side, found.box, 0.5,
                                        size[0], size[1], &one->mask);
    }
    done = done && draw_objects(p, o, n);
    free_objects(o, n);
    return done;
}

/* An object's mask in the enlarged image; { 0 } if it has none. False: out of memory. */
static bool enlarged_mask(const predictor *t, const tp_image *p, const tp_coco_object *o, tp_rle *r)
{
    if (o->form == TP_COCO_RUNS) {
        const tp_rle runs = tp_coco_runs(t->source.coco, o);
        const tp_object_view v = { .to = { p->height, p->width } };
        return tp_view_mask(&v, &runs, r);
    }
    const int64_t parts = o->form == TP_COCO_POLYGONS ? o->parts : 0;
    tp_rle *part = calloc((size_t)parts + 1, sizeof *part);
    bool done = part != NULL;
    *r = (tp_rle){ 0 };
    for (int64_t k = 0; k < parts && done; k++) {
        int64_t n;
        const double *xy = tp_coco_polygon(t->source.coco, o, k, &n);
        double *large = malloc((size_t)(n + 1) * sizeof *large);
        for (int64_t i = 0; large && i < n; i++) large[i] = xy[i] * (double)t->s->zoom;
        done = large && tp_rle_from_polygon(&part[k], large, n / 2, p->height, p->width);
        free(large);
    }
    done = done && (parts == 0 || tp_rle_merge(r, part, parts, false));
    for (int64_t k = 0; part && k < parts; k++) tp_rle_free(&part[k]);
    free(part);
    return done;
}

static int smaller_first(const void *a, const void *b)
{
    const double *x = ((const draw_object *)a)->box, *y = ((const draw_object *)b)->box;
    const double left = x[2] * x[3], right = y[2] * y[3];
    return (left > right) - (left < right);
}

/* Draws the annotated objects, smallest on top; masks only if the detector has them, so that both
 * sides look alike. */
static bool draw_truth(predictor *t, tp_image *p, int64_t image)
{
    const tp_coco_image *at = tp_coco_image_at(t->source.coco, image);
    draw_object *o = calloc((size_t)at->objects + 1, sizeof *o);
    if (!o) return tp_trained_fail(&t->f.t, "out of memory");
    bool done = true;
    for (int64_t i = 0; i < at->objects && done; i++) {
        const tp_coco_object *from = tp_coco_object_at(t->source.coco, at->first + i);
        o[i].category = from->category;
        o[i].name = tp_coco_category_name(t->f.names, from->category);
        o[i].score = -1;
        for (int k = 0; k < 4; k++) o[i].box[k] = from->box[k] * (double)t->s->zoom;
        if (tp_detector_has_masks(&t->f.cfg) && !enlarged_mask(t, p, from, &o[i].mask))
            done = tp_trained_fail(&t->f.t, "annotation %lld: its polygons cannot be drawn",
                                   (long long)from->id);
    }
    if (done) qsort(o, (size_t)at->objects, sizeof *o, smaller_first);
    done = done && (draw_objects(p, o, at->objects) || tp_trained_fail(&t->f.t, "out of memory"));
    free_objects(o, at->objects);
    return done;
}

static bool enlarge(predictor *t)
{
    const int64_t zoom = t->s->zoom, w = t->raw.width * zoom, h = t->raw.height * zoom;
    if (zoom == 1 ? tp_image_copy(&t->shown, &t->raw)
                  : tp_image_resize(&t->shown, &t->raw, NULL, w, h, TP_BILINEAR))
        return true;
    return tp_trained_fail(&t->f.t, "%s", t->shown.why);
}

/* Copies an image into the sheet at column x, row y, clipped to the sheet. */
static void copy_to(tp_image *sheet, const tp_image *p, int64_t x, int64_t y)
{
    const int64_t wide = p->width < sheet->width - x ? p->width : sheet->width - x;
    for (int64_t k = 0; k < p->height && y + k < sheet->height; k++)
        memcpy(sheet->rgb + 3 * ((y + k) * sheet->width + x), p->rgb + 3 * k * p->width,
               (size_t)(3 * wide));
}

/* Grows most to the size of an image; reads the image if the annotations omit its size. */
static bool enlarge_cell(predictor *t, int64_t image, int64_t most[2])
{
    const tp_coco_image *at = tp_coco_image_at(t->source.coco, image);
    int64_t size[2] = { at->height, at->width };
    if (at->height == 0) {
        if (!tp_object_source_read(&t->source, image, &t->raw))
            return tp_trained_fail(&t->f.t, "%s", t->raw.why);
        size[0] = t->raw.height;
        size[1] = t->raw.width;
    }
    for (int a = 0; a < 2; a++)
        if (size[a] > most[a]) most[a] = size[a];
    return true;
}

/* A cell of the sheet fits the largest image; with annotated objects it is twice as wide. */
static bool open_sheet(predictor *t, int64_t cell[2])
{
    int64_t most[2] = { 1, 1 };
    enum { GAP = 4 };
    for (int64_t i = 0; i < t->images; i++)
        if (!enlarge_cell(t, i, most)) return false;
    cell[0] = most[0] * t->s->zoom + GAP;
    cell[1] = (most[1] * t->s->zoom + GAP) * (t->s->truth ? 2 : 1);
    const int64_t down = (t->images + t->s->across - 1) / t->s->across;
    if (!tp_image_new(&t->sheet, t->s->across * cell[1], down * cell[0]))
        return tp_trained_fail(&t->f.t, "%s", t->sheet.why);
    memset(t->sheet.rgb, 255, (size_t)(3 * t->sheet.width * t->sheet.height));
    return true;
}

static bool write_drawn(predictor *t, int64_t image, tp_image *p)
{
    const char *name = tp_coco_image_at(t->source.coco, image)->file, *slash = strrchr(name, '/');
    const char *base = slash ? slash + 1 : name, *dot = strrchr(base, '.');
    char path[4600];
    snprintf(path, sizeof path, "%s/%03lld-%.*s.png", t->s->draw, (long long)image + 1,
             (int)(dot ? dot - base : (ptrdiff_t)strlen(base)), base);
    return tp_image_write(p, path) || tp_trained_fail(&t->f.t, "%s", p->why);
}

static bool show(predictor *t, int64_t image, const tp_detected *d, const int64_t to[2],
                 const int64_t cell[2])
{
    const int64_t x = image % t->s->across * cell[1], y = image / t->s->across * cell[0];
    if (t->s->sheet && t->s->truth) {
        if (!enlarge(t) || !draw_truth(t, &t->shown, image)) return false;
        copy_to(&t->sheet, &t->shown, x, y);
    }
    if (!enlarge(t)) return false;
    if (!draw_found(t, &t->shown, d, to)) return tp_trained_fail(&t->f.t, "out of memory");
    if (t->s->sheet) copy_to(&t->sheet, &t->shown, x + (t->s->truth ? cell[1] / 2 : 0), y);
    return !t->s->draw || write_drawn(t, image, &t->shown);
}

/* ---- predicting ---- */

static void print_found(const predictor *t, int64_t image, int64_t first)
{
    const char *file = tp_coco_image_at(t->source.coco, image)->file;
    for (int64_t i = first; i < tp_detections_count(t->found); i++) {
        const tp_detection *d = tp_detections_at(t->found, i);
        char image_name[8192], category[400];
        plain_line(file, image_name, sizeof image_name);
        plain_line(tp_coco_category_name(t->f.names, d->category), category, sizeof category);
        printf("%s\t%s\t%.1f\t%.1f %.1f %.1f %.1f\n", image_name, category, 100 * d->score,
               d->box[0], d->box[1], d->box[2], d->box[3]);
    }
}

/* Runs the detector on t->raw. */
static bool infer(predictor *t, int64_t to[2], tp_detected *d)
{
    tp_object_view v = { .from = { t->raw.height, t->raw.width },
                         .profile = (tp_detection_profile)t->f.shape.profile };
    const predict_settings *s = t->s;
    tp_tape *T = t->f.t.T;
    tp_shortest_side(v.profile, v.from[0], v.from[1], s->size ? s->size : t->f.shape.size,
                     s->longest ? s->longest : t->f.shape.longest, v.to);
    const int64_t h = tp_padded_side(v.to[0], TP_SIDE_MULTIPLE),
                  w = tp_padded_side(v.to[1], TP_SIDE_MULTIPLE);
    const size_t floats = (size_t)(h * w * 3);
    if (!tp_view_image(&v, &t->raw, &t->seen)) return tp_trained_fail(&t->f.t, "%s", t->seen.why);
    if (floats > t->room) {
        free(t->x);
        t->x = malloc(floats * sizeof *t->x);
        t->room = t->x ? floats : 0;
        if (!t->x) return tp_trained_fail(&t->f.t, "out of memory");
    }
    tp_view_floats(&t->seen, &tp_pixels_imagenet, h, w, t->x);
    memcpy(to, v.to, sizeof v.to);
    tp_reset(T);
    const tp_tensor x = tp_from(T, TP_F32, TP_SHAPE(1, h, w, 3), t->x);
    const tp_detection_in in = { .images = tp_cast(T, x, tp_compute_dtype(T)),
                                 .size = (const int64_t(*)[2]) & v.to };
    return tp_detector_detect(T, &t->f.m, &in, d) || tp_trained_fail(&t->f.t, "%s", tp_why(T));
}

static bool predict(predictor *t, int64_t image, const int64_t cell[2])
{
    int64_t to[2];
    tp_detected d = { 0 };
    if (!tp_object_source_read(&t->source, image, &t->raw))
        return tp_trained_fail(&t->f.t, "%s", t->raw.why);
    if (!infer(t, to, &d)) return false;
    int64_t n = 0;
    while (n < d.n && d.found[n].score >= t->s->score) n++;
    d.n = n;
    const int64_t size[2] = { t->raw.height, t->raw.width }, first = tp_detections_count(t->found);
    bool done =
        detect_add(t->found, &d, image, to, size) || tp_trained_fail(&t->f.t, "out of memory");
    done = done && (tp_detections_ok(t->found) ||
                    tp_trained_fail(&t->f.t, "%s", tp_detections_why(t->found)));
    if (done) print_found(t, image, first);
    done = done && ((!t->s->draw && !t->s->sheet) || show(t, image, &d, to, cell));
    tp_detected_free(&d);
    return done;
}

static bool predict_all(predictor *t)
{
    const predict_settings *s = t->s;
    char why[1024];
    int64_t cell[2] = { 0, 0 };
    if (s->draw && !tp_make_folders(s->draw, why, sizeof why))
        return tp_trained_fail(&t->f.t, "%s", why);
    if (s->sheet && !open_sheet(t, cell)) return false;
    t->found = tp_detections_new(t->source.coco);
    for (int64_t i = 0; i < t->images; i++)
        if (!predict(t, i, cell)) return false;
    if (s->sheet && !tp_image_write(&t->sheet, s->sheet))
        return tp_trained_fail(&t->f.t, "%s", t->sheet.why);
    if (s->results && !tp_detections_write(t->found, s->results, why, sizeof why))
        return tp_trained_fail(&t->f.t, "%s", why);
    if (tp_detections_count(t->found) == 0)
        fprintf(stderr, "coco predict: no object has a score of %g or more; --score lowers it\n",
                s->score);
    return coco_flush(why, sizeof why) || tp_trained_fail(&t->f.t, "%s", why);
}

static bool run(void *settings, char *why, size_t size)
{
    predictor t = { .s = settings };
    const bool done = coco_file_open(&t.f, &t.s->t) && open_images(&t) &&
                      coco_file_load(&t.f, &t.s->t.machine) && predict_all(&t);
    snprintf(why, size, "%s", t.f.t.why);
    tp_detections_close(t.found);
    tp_coco_close(t.listed);
    coco_set_close(&t.X);
    coco_file_close(&t.f);
    tp_image_free(&t.raw);
    tp_image_free(&t.seen);
    tp_image_free(&t.shown);
    tp_image_free(&t.sheet);
    free(t.x);
    return done;
}

static bool check(const void *settings, char *why, size_t size)
{
    const predict_settings *s = settings;
    if (s->images.n > 0 && !coco_data_drawn(&s->d))
        snprintf(why, size, "give images, or --data or --annotations, not both");
    else if (s->images.n > 0 && s->sheet)
        snprintf(why, size, "--sheet is for images of --data or scenes; --draw is for files");
    else if (s->truth && !s->sheet)
        snprintf(why, size, "--truth needs --sheet");
    else
        return true;
    return false;
}

int coco_predict_main(int argc, char **argv)
{
    tp_command command = manual;
    predict_settings s = {
        .t = { .machine = { .device = strdup("cpu") }, .run_dir = strdup("runs/coco") },
        .part = TP_VALID,
        .limit = 16,
        .across = 4,
        .zoom = 1,
        .score = 0.5,
    };
    command.check = check;
    return tp_command_main(&command, argc, argv, &s, run);
}
