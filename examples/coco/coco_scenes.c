/* coco_scenes.c - `coco scenes`: writes drawn scenes as images and annotations in COCO's layout. */
#include <jansson.h>
#include <stdio.h>
#include <tapegrad/file.h>
#include <unistd.h>

#include "coco_commands.h"
#include "coco_data.h"
#include "reports/json_lines.h"

typedef struct scenes_settings {
    coco_data d;
    char *out;
} scenes_settings;

#define S scenes_settings

static const tp_option table[] = {
    TP_HEADING("SCENES"),
    TP_STRING("out", S, out, "DIR", 0, "The folder that is written."),
    OPTIONS_COCO_SCENES(S, d),
    { 0 },
};

static const tp_command manual = {
    .name = "coco scenes",
    .summary = "writes drawn scenes as files in COCO's layout",
    .synopsis = "--out DIR [flag ...]",
    .about =
        "Writes the scenes that coco train draws as PNG files in DIR/train2017 and DIR/val2017, "
        "with annotations in DIR/annotations, for trying out the layout of COCO's files: coco "
        "train --data DIR.",
    .table = table,
    .more = "EXIT STATUS\n"
            "    0 success; 1 an error; 2 a wrong command line\n\n"
            "EXAMPLES\n"
            "    coco scenes --out scenes --scenes 100 --valid-scenes 20\n",
};

static json_t *object_json(const tp_coco *X, const tp_coco_object *o)
{
    json_t *polygons = json_array(), *box = json_array();
    for (int64_t k = 0; k < o->parts; k++) {
        int64_t n;
        const double *xy = tp_coco_polygon(X, o, k, &n);
        json_t *one = json_array();
        for (int64_t i = 0; i < n; i++) json_array_append_new(one, json_real(xy[i]));
        json_array_append_new(polygons, one);
    }
    for (int i = 0; i < 4; i++) json_array_append_new(box, json_real(o->box[i]));
    return json_pack("{s:I,s:I,s:I,s:o,s:f,s:i,s:o}", "id", (json_int_t)o->id, "image_id",
                     (json_int_t)tp_coco_image_at(X, o->image)->id, "category_id",
                     (json_int_t)tp_coco_category_id(X, o->category), "bbox", box, "area", o->area,
                     "iscrowd", 0, "segmentation", polygons);
}

static json_t *annotations_json(const tp_coco *X)
{
    json_t *images = json_array(), *objects = json_array();
    for (int64_t i = 0; i < tp_coco_images(X); i++) {
        const tp_coco_image *p = tp_coco_image_at(X, i);
        json_array_append_new(
            images, json_pack("{s:I,s:s,s:I,s:I}", "id", (json_int_t)p->id, "file_name", p->file,
                              "height", (json_int_t)p->height, "width", (json_int_t)p->width));
    }
    for (int64_t i = 0; i < tp_coco_objects(X); i++)
        json_array_append_new(objects, object_json(X, tp_coco_object_at(X, i)));
    return json_pack("{s:o,s:o,s:o}", "images", images, "annotations", objects, "categories",
                     coco_categories_json(X));
}

static bool write_images(const tp_scenes *Z, const char *folder, char *why, size_t size)
{
    tp_image p = { 0 };
    const tp_coco *X = tp_scenes_coco(Z);
    bool done = true;
    for (int64_t i = 0; i < tp_coco_images(X) && done; i++) {
        char path[4300];
        snprintf(path, sizeof path, "%.4200s/%s", folder, tp_coco_image_at(X, i)->file);
        done = tp_scenes_draw(Z, i, &p) && tp_image_write(&p, path);
        if (!done) snprintf(why, size, "%s", p.why);
    }
    tp_image_free(&p);
    return done;
}

/* Paths of a part's images and annotations. */
typedef struct part_paths {
    char folder[4200], list[4200];
} part_paths;

static part_paths paths_of(const scenes_settings *s, tp_part part)
{
    const char *name = part == TP_TRAIN ? "train2017" : "val2017";
    part_paths p;
    snprintf(p.folder, sizeof p.folder, "%.4000s/%s", s->out, name);
    snprintf(p.list, sizeof p.list, "%.4000s/annotations/instances_%s.json", s->out, name);
    return p;
}

static bool write_part(const scenes_settings *s, tp_part part, char *why, size_t size)
{
    const part_paths to = paths_of(s, part);
    coco_set X;
    const bool done = coco_set_open(&X, &s->d, part, why, size) &&
                      tp_make_folders(to.folder, why, size) &&
                      write_images(X.scenes, to.folder, why, size) &&
                      json_replace(to.list, annotations_json(X.source.coco),
                                   JSON_COMPACT | JSON_REAL_PRECISION(15), why, size);
    coco_set_close(&X);
    return done;
}

/* Removes a part's files, so that no half set is left. */
static void remove_part(const scenes_settings *s, const part_paths *at, tp_part part)
{
    char path[4300], why[600];
    coco_set X;
    if (coco_set_open(&X, &s->d, part, why, sizeof why)) {
        const tp_coco *C = tp_scenes_coco(X.scenes);
        for (int64_t i = 0; i < tp_coco_images(C); i++) {
            snprintf(path, sizeof path, "%.4200s/%s", at->folder, tp_coco_image_at(C, i)->file);
            unlink(path);
        }
    }
    coco_set_close(&X);
    unlink(at->list);
    rmdir(at->folder);
}

static bool run(void *settings, char *why, size_t size)
{
    const scenes_settings *s = settings;
    const part_paths train = paths_of(s, TP_TRAIN), valid = paths_of(s, TP_VALID);
    char folder[4200];
    snprintf(folder, sizeof folder, "%.4000s/annotations", s->out);
    const bool earlier = access(train.list, F_OK) == 0 || access(valid.list, F_OK) == 0;
    const bool done = tp_make_folders(folder, why, size) && write_part(s, TP_TRAIN, why, size) &&
                      write_part(s, TP_VALID, why, size);
    if (done || earlier) return done;
    remove_part(s, &train, TP_TRAIN);
    remove_part(s, &valid, TP_VALID);
    rmdir(folder);
    rmdir(s->out); /* fails if anything else is in it */
    return false;
}

static bool check(const void *settings, char *why, size_t size)
{
    const scenes_settings *s = settings;
    if (s->out) return true;
    snprintf(why, size, "--out DIR is required");
    return false;
}

int coco_scenes_main(int argc, char **argv)
{
    tp_command command = manual;
    scenes_settings s = { 0 };
    coco_data_defaults(&s.d);
    command.check = check;
    return tp_command_main(&command, argc, argv, &s, run);
}
