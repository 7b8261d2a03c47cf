/* coco_file.c - opens a trained detector and reads from its checkpoint how its images were made. */
#include "coco_file.h"
#include "coco_settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- metadata ---- */

/* The integers of a coco_shape by metadata key. */
typedef struct shape_row {
    const char *key;
    size_t at;
    int64_t least, most;
} shape_row;
#define AT(member) offsetof(coco_shape, member)
static const shape_row rows[] = {
    { "detector.size", AT(size), 32, 4096 },
    { "detector.longest", AT(longest), 32, 4096 },
    { "scenes.train", AT(scenes.scenes), 1, 10000000 },
    { "scenes.valid", AT(scenes.valid_scenes), 1, 10000000 },
    { "scenes.size", AT(scenes.side), 32, 4096 },
    { "scenes.shapes", AT(scenes.shapes), 1, 64 },
    { "scenes.seed", AT(scenes.seed), 0, INT64_MAX },
};
enum { ROWS = sizeof rows / sizeof *rows };

bool coco_shape_write(const coco_shape *c, const char *preset, const char *set, const tp_coco *X,
                      tp_writer *W)
{
    tp_writer_meta(W, "detector", preset);
    if (set) tp_writer_meta(W, "detector.set", set);
    tp_writer_meta_int(W, "detector.profile", c->profile);
    tp_writer_meta_int(W, "scenes.drawn", c->drawn);
    for (int i = 0; i < ROWS; i++)
        tp_writer_meta_int(W, rows[i].key, *(const int64_t *)((const char *)c + rows[i].at));
    return coco_categories_write(X, W);
}

static bool missing(coco_file *f, const char *key)
{
    return tp_trained_fail(&f->t, "%s is no checkpoint of coco: '%s' is missing", f->t.path, key);
}

static bool read_number(coco_file *f, tp_file *F, const char *key, int64_t least, int64_t most,
                        int64_t *x)
{
    if (!tp_file_meta(F, key)) return missing(f, key);
    if (!tp_file_int(F, key, x)) return tp_trained_fail(&f->t, "%s", tp_file_why(F));
    if (*x >= least && *x <= most) return true;
    return tp_trained_fail(&f->t, "%s: '%s' is out of range", f->t.path, key);
}

/* Parses the categories as annotations. */
static bool read_categories(coco_file *f, const char *text)
{
    static const char *const form = "{\"images\":[],\"annotations\":[],\"categories\":%s}";
    const size_t size = strlen(text) + strlen(form) + 1;
    char *json = malloc(size);
    f->categories = strdup(text);
    if (!json || !f->categories) {
        free(json);
        return tp_trained_fail(&f->t, "out of memory");
    }
    const int n = snprintf(json, size, form, text);
    f->names = tp_coco_from(json, (size_t)n, "categories");
    free(json);
    if (tp_coco_ok(f->names) && tp_coco_categories(f->names) > 0) return true;
    return tp_trained_fail(&f->t, "%s: the categories are damaged: %.300s", f->t.path,
                           tp_coco_why(f->names));
}

static bool read_header(coco_file *f, tp_file *F)
{
    int64_t profile, drawn;
    char why[512];
    if (!tp_file_ok(F)) return tp_trained_fail(&f->t, "%s", tp_file_why(F));
    const char *preset = tp_file_meta(F, "detector"), *categories = tp_file_meta(F, "categories");
    if (!preset) return missing(f, "detector");
    if (!categories) return missing(f, "categories");
    if (!read_number(f, F, "detector.profile", 0, 1, &profile) ||
        !read_number(f, F, "scenes.drawn", 0, 1, &drawn))
        return false;
    for (int i = 0; i < ROWS; i++)
        if (!read_number(f, F, rows[i].key, rows[i].least, rows[i].most,
                         (int64_t *)((char *)&f->shape + rows[i].at)))
            return false;
    f->shape.profile = (int)profile;
    f->shape.drawn = drawn;
    snprintf(f->preset, sizeof f->preset, "%s", preset);
    if (!read_categories(f, categories)) return false;
    if (coco_detector(&f->cfg, f->preset, tp_file_meta(F, "detector.set"),
                      tp_coco_categories(f->names), f->shape.profile, why, sizeof why))
        return true;
    return tp_trained_fail(&f->t, "%s: %s", f->t.path, why);
}

/* ---- the model ---- */

bool coco_file_open(coco_file *f, const tp_trained_settings *o)
{
    f->t = tp_trained_find(o);
    tp_file *F = tp_file_open(f->t.path);
    const bool done = read_header(f, F);
    tp_file_close(F);
    return done;
}

bool coco_file_load(coco_file *f, const tp_machine_settings *o)
{
    tp_trained *t = &f->t;
    tp_trained_open(t, o, 0, true);
    tp_detector_init(t->P, &f->m, "", &f->cfg);
    if (!tp_load(t->P, t->path, NULL)) return tp_trained_fail(t, "%s", tp_params_why(t->P));
    tp_detector_fuse(t->P, &f->m);
    return tp_trained_ok(t);
}

void coco_file_close(coco_file *f)
{
    free(f->categories);
    tp_coco_close(f->names);
    tp_trained_close(&f->t);
}

/* ---- data ---- */

bool coco_file_data(coco_file *f, coco_data *d, tp_part part, coco_set *X)
{
    char why[4096];
    *X = (coco_set){ 0 };
    if (!coco_data_check(d, why, sizeof why)) return tp_trained_fail(&f->t, "%s", why);
    if (coco_data_drawn(d)) {
        if (!f->shape.drawn)
            return tp_trained_fail(
                &f->t, "--data DIR or --annotations FILE is required: %s was trained on files",
                f->t.path);
        *d = f->shape.scenes;
    }
    if (!coco_set_open(X, d, part, why, sizeof why)) return tp_trained_fail(&f->t, "%s", why);
    if (!coco_categories_same(X->source.coco, f->categories, why, sizeof why))
        return tp_trained_fail(&f->t, "%.2000s: %.300s; give images with the categories of %.1000s",
                               X->name, why, f->t.path);
    return coco_set_has_images(X, why, sizeof why) || tp_trained_fail(&f->t, "%s", why);
}
