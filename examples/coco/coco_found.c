/* coco_found.c - collects detections for a report: runs a detector over images or reads a file of
 * results. */
#include "coco_found.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "reports/plain_text.h"

#define S found_settings

const tp_option coco_found_options[] = {
    TP_ROWS(tp_trained_options),
    OPTION_COCO_PATH(S, d, 0),
    OPTIONS_COCO_DATA(S, d),
    TP_CHOICE("part", S, part, "train|valid", 0, "The images that are looked at."),
    TP_STRING("results", S, results, "FILE", 0,
              "Take the detections from this file, a list in COCO's format, and run no model."),
    TP_INT("limit", S, limit, 0, TP_BIG, 0,
           "Detect in that many images only; the objects of the others then count as missed. 0: "
           "all."),
    TP_INT("batch", S, batch, 1, 4096, 0, "Batch size, in images."),
    TP_INT("size", S, size, 0, 4096, 0,
           "Shorter side of images; 0: that of validation in training."),
    TP_INT("longest", S, longest, 0, 4096, 0, "Longest side of images; 0: as in training."),
    TP_INT("workers", S, workers, 1, 64, 0, "Threads that read and resize images."),
    TP_FLAG("strict", S, strict, 0,
            "Stop at an image that cannot be read; off: report it and leave it out, with its "
            "objects."),
    { 0 },
};

found_settings coco_found_defaults(void)
{
    return (found_settings){
        .t = { .machine = { .device = strdup("cpu") }, .run_dir = strdup("runs/coco") },
        .part = TP_VALID,
        .batch = 8,
        .workers = 1,
    };
}

bool coco_found_check(const found_settings *s, char *why, size_t size)
{
    if (s->results && coco_data_drawn(&s->d))
        snprintf(why, size, "--results needs the annotations: give --data or --annotations");
    else if (s->results && s->t.checkpoint)
        snprintf(why, size,
                 "--results and --checkpoint are two sources of detections: give one of them");
    else if (s->results && s->limit > 0)
        snprintf(why, size, "--limit is for the detections of a model, not for --results");
    else
        return true;
    return false;
}

static void say_skipped(void *env, const char *name, const char *why)
{
    char line[4200], reason[1200];
    (void)env;
    fprintf(stderr, "coco: skipped: %s: %s\n", plain_line(name, line, sizeof line),
            plain_line(why, reason, sizeof reason));
}

/* Marks images that cannot be read in X->missing. */
static bool detect(const found_settings *s, coco_file *f, coco_set *X, tp_detections *R)
{
    char why[6000];
    const int64_t all = tp_coco_images(X->source.coco);
    if (!coco_set_look(X, false, s->strict, why, sizeof why))
        return tp_trained_fail(&f->t, "%s", why);
    if (X->absent > 0) {
        snprintf(why, sizeof why, "%lld images are missing; the first: %s", (long long)X->absent,
                 X->first);
        say_skipped(NULL, X->name, why);
    }
    tp_catch_signals();
    tp_ticker t = tp_ticker_start("images", s->limit && s->limit < all ? s->limit : all);
    const detect_opts o = { .batch = s->batch,
                            .size = s->size ? s->size : f->shape.size,
                            .longest = s->longest ? s->longest : f->shape.longest,
                            .limit = s->limit,
                            .profile = (tp_detection_profile)f->shape.profile,
                            .threads = (int)s->workers,
                            .go_on = detect_tick,
                            .bad = s->strict ? NULL : say_skipped,
                            .env = &t,
                            .left_out = X->missing };
    const int64_t n = detect_all(f->t.T, &f->m, &X->source, &o, R, why, sizeof why);
    tp_ticker_end(&t);
    if (n < 0) return tp_trained_fail(&f->t, "%s", why);
    if (detect_counted(X->source.coco, X->missing) == 0)
        return tp_trained_fail(&f->t, "%.3000s: none of its images can be read", X->name);
    return !tp_stop_signal() || tp_trained_fail(&f->t, "stopped after %lld images", (long long)n);
}

static bool have_masks(const coco_set *X, char *why, size_t size)
{
    char reason[3500];
    if (coco_set_has_masks(X, reason, sizeof reason)) return true;
    snprintf(why, size, "%s; --kind box evaluates boxes", reason);
    return false;
}

static bool of_model(found_settings *s, coco_masks masks, coco_report report, void *env, char *why,
                     size_t size)
{
    coco_file f = { 0 };
    coco_set X = { 0 };
    tp_detections *R = NULL;
    char name[200];
    bool done = coco_file_open(&f, &s->t) && coco_file_data(&f, &s->d, (tp_part)s->part, &X);
    if (done && masks == MASKS_NEEDED && !tp_detector_has_masks(&f.cfg))
        done = tp_trained_fail(&f.t, "--kind mask: %s has no masks", f.preset);
    if (done && masks && tp_detector_has_masks(&f.cfg))
        done = have_masks(&X, f.t.why, sizeof f.t.why);
    if (done) R = tp_detections_new(X.source.coco);
    done = done && coco_file_load(&f, &s->t.machine) && detect(s, &f, &X, R);
    snprintf(why, size, "%s", f.t.why);
    if (done) {
        const long long all = detect_counted(X.source.coco, X.missing);
        if (s->limit > 0 && s->limit < all)
            snprintf(name, sizeof name, "%s, %lld of %lld images", f.preset, (long long)s->limit,
                     all);
        else
            snprintf(name, sizeof name, "%s, %lld images", f.preset, all);
        done = report(env, &(coco_found){ &X, R, X.missing, name, f.cfg.kind->masks, f.cfg.kind },
                      why, size);
    }
    tp_detections_close(R);
    coco_set_close(&X);
    coco_file_close(&f);
    return done;
}

static bool any_masks(const tp_detections *R)
{
    return tp_detections_count(R) > 0 && tp_detections_at(R, 0)->mask.runs > 0;
}

static bool of_file(found_settings *s, coco_masks masks, coco_report report, void *env, char *why,
                    size_t size)
{
    coco_set X;
    bool done = coco_set_open(&X, &s->d, (tp_part)s->part, why, size);
    if (done) {
        tp_detections *R = tp_detections_open(X.source.coco, s->results);
        done = tp_detections_ok(R);
        if (!done) snprintf(why, size, "%s", tp_detections_why(R));
        const bool found = done && any_masks(R);
        if (done && (masks == MASKS_NEEDED || (masks && found))) done = have_masks(&X, why, size);
        done =
            done && report(env, &(coco_found){ &X, R, NULL, "detections of a file", found, NULL },
                           why, size);
        tp_detections_close(R);
    }
    coco_set_close(&X);
    return done;
}

/* Counts images without annotations: detections on them are wrong. */
static int64_t without_objects(const tp_coco *X, const bool *left_out)
{
    int64_t n = 0;
    for (int64_t i = 0; i < tp_coco_images(X); i++)
        n += tp_coco_image_at(X, i)->objects == 0 && !(left_out && left_out[i]);
    return n;
}

void coco_found_remarks(const coco_found *f, void (*say)(void *env, const char *text), void *env)
{
    const tp_coco *X = f->X->source.coco;
    const long long all = tp_coco_images(X), counted = detect_counted(X, f->left_out),
                    empty = without_objects(X, f->left_out);
    char text[2000], out[600];
    int n = snprintf(text, sizeof text, "figures of %lld images, %lld of them without annotations",
                     counted, empty);
    if (counted < all)
        n += snprintf(text + n, sizeof text - (size_t)n, "; %lld that cannot be read are left out",
                      all - counted);
    snprintf(text + n, sizeof text - (size_t)n, "; %lld detections",
             (long long)tp_detections_count(f->R));
    say(env, text);
    if (tp_coco_tally_text(tp_detections_noted(f->R), "number", out, sizeof out)) {
        snprintf(text, sizeof text, "results left out: %s", out);
        say(env, text);
    }
    coco_set_remarks(f->X, say, env);
}

bool coco_found_run(found_settings *s, coco_masks masks, coco_report report, void *env, char *why,
                    size_t size)
{
    return s->results ? of_file(s, masks, report, env, why, size)
                      : of_model(s, masks, report, env, why, size);
}

bool coco_flush(char *why, size_t size)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) return true;
    snprintf(why, size, "standard output: %s", strerror(errno));
    return false;
}
