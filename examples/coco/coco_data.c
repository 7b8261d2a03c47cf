/* coco_data.c - opens the images for training and evaluation and reports what their annotations
 * omit. */
#include "coco_data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tapegrad/train.h>
#include <unistd.h>

void coco_data_defaults(coco_data *d)
{
    d->scenes = 4000;
    d->valid_scenes = 200;
    d->side = 128;
    d->shapes = 6;
    d->seed = 1;
}

bool coco_data_drawn(const coco_data *d)
{
    return !d->path && !d->list;
}

bool coco_data_check(const coco_data *d, char *why, size_t size)
{
    if (d->path && d->list)
        snprintf(why, size, "--data and --annotations are two sources of images: give one of them");
    else if (!d->list && (d->images || d->valid_list || d->valid_images))
        snprintf(why, size, "--images, --valid-annotations and --valid-images need --annotations");
    else if (d->valid_images && !d->valid_list)
        snprintf(why, size, "--valid-images needs --valid-annotations");
    else
        return true;
    return false;
}

void coco_data_absolute(coco_data *d)
{
    char **const paths[] = { &d->path, &d->list, &d->images, &d->valid_list, &d->valid_images };
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) tp_absolute_path(paths[i]);
}

void coco_data_free(coco_data *d)
{
    char *const paths[] = { d->path, d->list, d->images, d->valid_list, d->valid_images };
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) free(paths[i]);
    *d = (coco_data){ 0 };
}

/* ---- opening ---- */

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static bool open_list(coco_set *X, const char *list, const char *folder)
{
    X->read = tp_coco_open(list);
    snprintf(X->folder, sizeof X->folder, "%s", folder);
    snprintf(X->name, sizeof X->name, "%s", list);
    return true;
}

/* Tries COCO's file names, with and without a year. */
static bool open_coco(coco_set *X, const char *path, tp_part part)
{
    static const char *const years[] = { "2017", "2014", "" };
    const char *name = part == TP_TRAIN ? "train" : "val";
    char list[4200], folder[4200];
    for (size_t i = 0; i < sizeof years / sizeof *years; i++) {
        snprintf(list, sizeof list, "%s/annotations/instances_%s%s.json", path, name, years[i]);
        snprintf(folder, sizeof folder, "%s/%s%s", path, name, years[i]);
        if (exists(list)) return open_list(X, list, folder);
    }
    return false;
}

static bool open_voc(coco_set *X, const char *path, tp_part part)
{
    char folder[4200];
    snprintf(folder, sizeof folder, "%s/Annotations", path);
    if (!exists(folder)) return false;
    X->read = tp_coco_voc(path, part);
    snprintf(X->folder, sizeof X->folder, "%s/JPEGImages", path);
    snprintf(X->name, sizeof X->name, "%s", path);
    return true;
}

static void draw(coco_set *X, const coco_data *d, tp_part part)
{
    X->scenes = tp_scenes_new(&(tp_scenes_opts){
        .images = part == TP_TRAIN ? d->scenes : d->valid_scenes,
        .size = d->side,
        .most = d->shapes,
        .seed = (uint64_t)d->seed,
        .part = part,
    });
    snprintf(X->name, sizeof X->name, "drawn scenes");
}

static bool open_files(coco_set *X, const coco_data *d, tp_part part, char *why, size_t size)
{
    if (d->list && part == TP_VALID && d->valid_list)
        return open_list(X, d->valid_list,
                         d->valid_images ? d->valid_images
                         : d->images     ? d->images
                                         : ".");
    if (d->list) return open_list(X, d->list, d->images ? d->images : ".");
    if (open_coco(X, d->path, part) || open_voc(X, d->path, part)) return true;
    snprintf(
        why, size,
        "%.3000s: neither annotations/instances_%s2017.json (COCO) nor Annotations (Pascal VOC) "
        "is there",
        d->path, part == TP_TRAIN ? "train" : "val");
    return false;
}

/* Checkpoints, results and figures are JSON, but Pascal VOC's files may hold any bytes. */
static bool names_are_utf8(const coco_set *X, char *why, size_t size)
{
    for (int c = 0; c < tp_coco_categories(X->read); c++) {
        uint32_t character;
        const char *at = tp_coco_category_name(X->read, c);
        for (size_t n = 1; n > 0 && *at; at += n) n = tp_utf8_at(at, &character);
        if (!*at) continue;
        snprintf(why, size, "%.3000s: the name of category %d is not UTF-8", X->name, c + 1);
        return false;
    }
    return true;
}

bool coco_set_open(coco_set *X, const coco_data *d, tp_part part, char *why, size_t size)
{
    *X = (coco_set){ 0 };
    if (!coco_data_check(d, why, size)) return false;
    if (coco_data_drawn(d)) {
        draw(X, d, part);
        snprintf(why, size, "%s", tp_scenes_why(X->scenes));
        if (!tp_scenes_ok(X->scenes)) return false;
        X->source = (tp_object_source){ .coco = tp_scenes_coco(X->scenes), .scenes = X->scenes };
        return true;
    }
    if (!open_files(X, d, part, why, size)) return false;
    X->source =
        (tp_object_source){ .coco = X->read, .folder = X->folder, .max_pixels = d->max_pixels };
    snprintf(why, size, "%s", tp_coco_why(X->read));
    if (!tp_coco_ok(X->read)) return false;
    if (tp_coco_images(X->read) > 0 && tp_coco_categories(X->read) > 0)
        return names_are_utf8(X, why, size);
    snprintf(why, size, "%.3000s: there are no images, or no categories", X->name);
    return false;
}

void coco_set_close(coco_set *X)
{
    tp_coco_close(X->read);
    tp_scenes_free(X->scenes);
    free(X->missing);
    *X = (coco_set){ 0 };
}

/* ---- checks ---- */

bool coco_set_has_images(const coco_set *X, char *why, size_t size)
{
    struct stat st;
    bool folder = false; /* is it needed? */
    if (!X->read) return true;
    for (int64_t i = 0; i < tp_coco_images(X->read); i++)
        folder = folder || tp_coco_image_at(X->read, i)->file[0] != '/';
    if (folder && (stat(X->folder, &st) != 0 || !S_ISDIR(st.st_mode))) {
        snprintf(why, size, "%.2000s: its images must be in the folder %.2000s, which is not there",
                 X->name, X->folder);
        return false;
    }
    for (int64_t i = 0; i < tp_coco_images(X->read); i++) {
        const tp_coco_image *image = tp_coco_image_at(X->read, i);
        if (image->file[0]) continue;
        snprintf(why, size, "%.3000s: image %lld (id %lld) has no 'file_name' to read", X->name,
                 (long long)i + 1, (long long)image->id);
        return false;
    }
    return true;
}

bool coco_set_has_masks(const coco_set *X, char *why, size_t size)
{
    const tp_coco *C = X->source.coco;
    for (int64_t i = 0; i < tp_coco_objects(C); i++) {
        const tp_coco_object *o = tp_coco_object_at(C, i);
        const bool sized = tp_coco_image_at(C, o->image)->height > 0;
        if (o->parts > 0 && (o->form == TP_COCO_RUNS || (o->form == TP_COCO_POLYGONS && sized)))
            continue;
        snprintf(why, size, "%.3000s: annotation %lld has no mask%s, and masks are evaluated",
                 X->name, (long long)o->id,
                 o->parts > 0 ? ", since the size of its image is not given" : "");
        return false;
    }
    return true;
}

bool coco_set_look(coco_set *X, bool with_objects, bool strict, char *why, size_t size)
{
    const tp_coco *C = X->source.coco;
    int64_t looked = 0;
    free(X->missing);
    X->missing = calloc((size_t)tp_coco_images(C) + 1, sizeof *X->missing);
    if (!X->missing) {
        snprintf(why, size, "out of memory");
        return false;
    }
    for (int64_t i = 0; i < tp_coco_images(C); i++)
        looked += !with_objects || tp_coco_image_at(C, i)->objects > 0;
    X->absent =
        tp_object_source_look(&X->source, with_objects, X->missing, X->first, sizeof X->first);
    if (X->absent < 0)
        snprintf(why, size, "%s", X->first);
    else if (X->absent > 0 && X->absent == looked)
        snprintf(why, size, "%.3000s: none of its images is there; the first: %s", X->name,
                 X->first);
    else if (X->absent > 0 && strict)
        snprintf(why, size, "%.3000s: %lld of its images are missing; the first: %s", X->name,
                 (long long)X->absent, X->first);
    else
        return true;
    return false;
}

void coco_set_remarks(const coco_set *X, void (*say)(void *env, const char *text), void *env)
{
    const tp_coco_tally *t = tp_coco_noted(X->source.coco);
    char text[6000], out[1000];
    if (tp_coco_tally_text(t, "annotation", out, sizeof out)) {
        snprintf(text, sizeof text, "%s: annotations left out: %s", X->name, out);
        say(env, text);
    }
    if (t->count[TP_COCO_WITHOUT_AREA]) {
        snprintf(text, sizeof text,
                 "%s: %lld annotations have no 'area' (the first: annotation %lld): that of their "
                 "mask or box decides whether they are small, medium or large",
                 X->name, (long long)t->count[TP_COCO_WITHOUT_AREA],
                 (long long)t->first[TP_COCO_WITHOUT_AREA]);
        say(env, text);
    }
    if (t->count[TP_COCO_ID_0]) {
        snprintf(text, sizeof text,
                 "warning: %s: an annotation has the id 0: figures count its object as not found, "
                 "as pycocotools does; ids from 1 on avoid this",
                 X->name);
        say(env, text);
    }
    if (t->count[TP_COCO_IMAGE_ID_0]) {
        snprintf(text, sizeof text,
                 "warning: %s: an image has the id 0, which some programs take for no id; figures "
                 "do not depend on it",
                 X->name);
        say(env, text);
    }
}

/* ---- categories ---- */

json_t *coco_categories_json(const tp_coco *X)
{
    json_t *list = json_array();
    for (int c = 0; c < tp_coco_categories(X); c++)
        json_array_append_new(list,
                              json_pack("{s:I,s:s}", "id", (json_int_t)tp_coco_category_id(X, c),
                                        "name", tp_coco_category_name(X, c)));
    return list;
}

bool coco_categories_write(const tp_coco *X, tp_writer *W)
{
    json_t *list = coco_categories_json(X);
    char *text = json_dumps(list, JSON_COMPACT);
    json_decref(list);
    if (!text) return false;
    tp_writer_meta(W, "categories", text);
    free(text);
    return true;
}

bool coco_categories_same(const tp_coco *X, const char *text, char *why, size_t size)
{
    json_t *list = text ? json_loads(text, 0, NULL) : NULL;
    const int n = (int)json_array_size(list);
    snprintf(why, size, "the images have %d categories, the model was trained for %d",
             tp_coco_categories(X), n);
    bool same = n == tp_coco_categories(X);
    for (int c = 0; c < n && same; c++) {
        const json_t *one = json_array_get(list, (size_t)c);
        const char *name = json_string_value(json_object_get(one, "name"));
        same = name && strcmp(name, tp_coco_category_name(X, c)) == 0 &&
               json_integer_value(json_object_get(one, "id")) == tp_coco_category_id(X, c);
        if (!same)
            snprintf(why, size, "category %d of the images is '%.80s', that of the model '%.80s'",
                     c, tp_coco_category_name(X, c), name ? name : "");
    }
    json_decref(list);
    return same;
}
