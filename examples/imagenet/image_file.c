/* image_file.c - opens a checkpoint or published weights as a classifier. */
#include "image_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Older checkpoints store no filter; they were evaluated with bicubic. */
static bool read_filter(image_file *f, const char *name)
{
    image_settings s = { 0 };
    char why[300];
    if (!tp_option_set(tp_option_find(image_options, "filter"), &s, name, why, sizeof why))
        return tp_trained_fail(&f->t, "%s: eval_filter: %s", f->t.path, why);
    f->filter = (tp_filter)s.filter;
    return true;
}

static bool read_header(image_file *f, tp_file *F)
{
    char why[2048];
    const char *names = tp_file_meta(F, "class_names"), *filter = tp_file_meta(F, "eval_filter");
    if (!classifier_read(&f->cfg, F, why, sizeof why)) return tp_trained_fail(&f->t, "%s", why);
    f->crop_ratio = 0.875;
    if (!tp_file_num(F, "eval_crop_ratio", &f->crop_ratio))
        return tp_trained_fail(&f->t, "%s", tp_file_why(F));
    if (filter && !read_filter(f, filter)) return false;
    if (!tp_file_int(F, "update", &f->update)) return tp_trained_fail(&f->t, "%s", tp_file_why(F));
    f->names = names ? strdup(names) : NULL;
    return !names || f->names || tp_trained_fail(&f->t, "out of memory");
}

/* blank: leaves weights uninitialised, as they are loaded next. */
static bool build(image_file *f, const image_common *c, bool blank)
{
    f->max_pixels = c->max_pixels;
    tp_trained_open(&f->t, &c->t.machine, (uint64_t)c->seed, blank);
    f->m = calloc(1, sizeof *f->m);
    if (!f->m) return tp_trained_fail(&f->t, "out of memory");
    classifier_init(f->t.P, f->m, &f->cfg);
    return tp_trained_ok(&f->t);
}

bool image_file_fresh(image_file *f, const classifier_cfg *cfg, const image_common *c)
{
    *f = (image_file){ .cfg = *cfg, .crop_ratio = 0.875, .update = -1 };
    return build(f, c, false);
}

/* Changes the image size. */
static bool resize(image_file *f, int64_t size)
{
    char why[1024];
    classifier_fit(&f->cfg, size, f->cfg.classes);
    if (!classifier_check(&f->cfg, why, sizeof why))
        return tp_trained_fail(&f->t, "--size %lld: %s", (long long)size, why);
    return classifier_resizes_all(&f->cfg) ||
           tp_trained_fail(&f->t,
                           "--size %lld: Linformer's projections fit one image size; train at this "
                           "size with --init %s --resize",
                           (long long)size, f->t.path);
}

/* Adds advice on why published weights failed to load. */
static bool advise(image_file *f, const image_common *c)
{
    const size_t n = strlen(f->t.why);
    snprintf(f->t.why + n, sizeof f->t.why - n,
             "\n'tp-inspect --match %s %s' lists what fits, '--match any' the models that do",
             c->preset, c->weights);
    return false;
}

static bool load(image_file *f, tp_file *F, const image_common *c, bool resized)
{
    if (!build(f, c, true)) return false;
    if (!(resized ? classifier_load_resized : classifier_weights)(f->t.P, f->m, F))
        tp_trained_fail(&f->t, "%s", tp_params_why(f->t.P));
    return tp_trained_ok(&f->t) || (c->weights && advise(f, c)); /* always false */
}

bool image_file_describe(const char *preset, tp_file *F, classifier_cfg *c, tp_augment *eval,
                         char *why, size_t size)
{
    image_settings s = { .train = { .accumulation = 1 } };
    char impossible[512];
    bool done = image_preset(&s, preset, -1, why, size) && image_model(&s, 1000, c, why, size);
    if (done && !classifier_adopt(c, F)) {
        snprintf(why, size, "%s", tp_file_why(F));
        done = false;
    } else if (done && !classifier_check(c, impossible, sizeof impossible)) {
        snprintf(why, size, "%s: %s", tp_file_path(F), impossible);
        done = false;
    }
    if (done && eval) {
        *eval = image_eval_pipeline(s.size, s.eval_crop_ratio);
        eval->filter = (tp_filter)s.filter;
    }
    free(s.preset);
    return done;
}

static bool open_published(image_file *f, const image_common *c, int64_t size)
{
    char why[2048];
    *f = (image_file){ .update = -1 };
    snprintf(f->t.path, sizeof f->t.path, "%.4096s", c->weights);
    if (c->t.checkpoint)
        return tp_trained_fail(&f->t, "--weights and --checkpoint exclude each other");
    if (!c->preset)
        return tp_trained_fail(
            &f->t,
            "--weights %s: name its model with --preset; 'imagenet train --help' "
            "lists them",
            c->weights);
    tp_file *F = tp_file_open(c->weights);
    tp_augment eval = { 0 };
    bool done = image_file_describe(c->preset, F, &f->cfg, &eval, why, sizeof why) ||
                tp_trained_fail(&f->t, "%s", why);
    f->crop_ratio = eval.crop_ratio;
    f->filter = eval.filter;
    /* The file does not state its image size, so --size resizes even to the preset's. */
    done = done && (size == 0 || size == f->cfg.size || resize(f, size)) && load(f, F, c, size > 0);
    tp_file_close(F);
    return done;
}

bool image_file_open(image_file *f, const image_common *c, int64_t size)
{
    if (c->weights) return open_published(f, c, size);
    *f = (image_file){ .t = tp_trained_find(&c->t), .update = -1 };
    tp_file *F = tp_file_open(f->t.path);
    bool done = read_header(f, F);
    if (done && c->preset)
        done = tp_trained_fail(&f->t,
                               "--preset %s names the model of published weights: give --weights "
                               "FILE, or leave it out",
                               c->preset);
    const bool resized = done && size > 0 && size != f->cfg.size;
    done = done && (!resized || resize(f, size)) && load(f, F, c, resized);
    tp_file_close(F);
    return done;
}

bool image_file_named(image_file *f, const image_common *c, int64_t size, const char *path,
                      class_names *names)
{
    char why[1024];
    return image_file_open(f, c, size) &&
           (class_names_find(names, path, f->names, f->cfg.classes, why, sizeof why) ||
            tp_trained_fail(&f->t, "%s", why));
}

tp_augment image_file_pipeline(const image_file *f, double crop_ratio)
{
    tp_augment a = image_eval_pipeline(f->cfg.size, crop_ratio > 0 ? crop_ratio : f->crop_ratio);
    if (f->squeeze) a.crop = TP_CROP_NONE;
    a.filter = f->filter;
    a.decode.max_pixels = f->max_pixels;
    return a;
}

void image_file_close(image_file *f)
{
    classifier_free(f->m);
    tp_trained_close(&f->t);
    free(f->names);
}
