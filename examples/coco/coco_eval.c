/* coco_eval.c - `coco eval`: COCO's figures of a trained detector, or of a file of results. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coco_commands.h"
#include "coco_file.h"
#include "detect.h"
#include "reports/json_lines.h"
#include "reports/plain_text.h"

typedef struct eval_settings {
    tp_trained_settings t;
    coco_data d; /* only its paths */
    char *results, *write;
    int part, format, kind;
    bool classes, box_areas;
    int64_t batch, limit, size, longest, workers;
} eval_settings;

#define S eval_settings

static const tp_option table[] = {
    TP_HEADING("MODEL AND IMAGES"),
    TP_ROWS(tp_trained_options),
    OPTION_COCO_PATH(S, d, 0),
    OPTIONS_COCO_DATA(S, d),
    TP_CHOICE("part", S, part, "train|valid", 0, "The images that are evaluated."),
    TP_STRING("results", S, results, "FILE", 0,
              "Evaluate these detections, a list in COCO's format, and run no model."),
    TP_STRING("write", S, write, "FILE", 0, "Write the model's detections in COCO's format."),
    TP_INT("limit", S, limit, 0, TP_BIG, 0,
           "Detect in that many images only; the objects of the others then count as missed. 0: "
           "all."),
    TP_INT("batch", S, batch, 1, 4096, 0, "Batch size, in images."),
    TP_INT("size", S, size, 0, 4096, 0,
           "Shorter side of images; 0: that of validation in training."),
    TP_INT("longest", S, longest, 0, 4096, 0, "Longest side of images; 0: as in training."),
    TP_INT("workers", S, workers, 1, 64, 0, "Threads that read and resize images."),
    TP_HEADING("FIGURES"),
    TP_CHOICE("kind", S, kind, "all|box|mask", 0,
              "What is evaluated. all: boxes, and masks if the detections have them."),
    TP_FLAG("box-areas", S, box_areas, 0,
            "Masks are small, medium or large by the area of their boxes, as in pycocotools if the "
            "results have boxes; off: by their own, as in published figures."),
    TP_FLAG("classes", S, classes, 0, "Also print a table of the categories."),
    TP_CHOICE("format", S, format, "table|json", 0, "Text for people, or a JSON object."),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_machine_options),
    { 0 },
};

static const tp_command manual = {
    .name = "coco eval",
    .summary = "measures average precision and recall of detections",
    .synopsis = "[--data DIR] [--run-dir DIR | --checkpoint FILE] [flag ...]\n"
                "    coco eval --results FILE --data DIR | --annotations FILE [flag ...]",
    .about =
        "Runs the detector of a checkpoint over images, or reads detections from a file, and prints "
        "COCO's twelve figures of boxes and of masks, in percent. They equal those of pycocotools to "
        "the last digit. -1 means that there are no objects of that size.",
    .table = table,
    .more =
        "FIGURES\n"
        "    AP, AP50, AP75    average precision: mean over the thresholds of intersection over\n"
        "                      union 0.5, 0.55 ... 0.95; at 0.5; at 0.75\n"
        "    APs, APm, APl     of small (up to 32 x 32 pixels), medium and large objects (from 96 x 96)\n"
        "    AR@1 @10 @100     average recall with so many detections of an image\n"
        "    ARs, ARm, ARl     of small, medium and large objects\n\n"
        "EXIT STATUS\n"
        "    0 success; 1 an error; 2 a wrong command line\n\n"
        "EXAMPLES\n"
        "    coco eval\n"
        "    coco eval --data coco --run-dir runs/masks --classes\n"
        "    coco eval --results segm.json --annotations instances_val2017.json --kind mask\n",
};

/* ---- printing ---- */

static double percent(double x)
{
    return x < 0 ? x : 100 * x;
}

static json_t *figures_json(const tp_coco_eval *E, int category)
{
    json_t *all = json_object();
    for (int i = 0; i < TP_COCO_FIGURES; i++)
        json_object_set_new(all, tp_coco_figure_name(i),
                            json_real(percent(category < 0 ? tp_coco_eval_figure(E, i)
                                                           : tp_coco_eval_class(E, category, i))));
    return all;
}

static json_t *kind_json(const eval_settings *s, const tp_coco *X, const tp_coco_eval *E)
{
    json_t *all = figures_json(E, -1);
    if (!s->classes) return all;
    json_t *classes = json_object();
    for (int c = 0; c < tp_coco_categories(X); c++)
        json_object_set_new(classes, tp_coco_category_name(X, c), figures_json(E, c));
    json_object_set_new(all, "classes", classes);
    return all;
}

static bool print_json(const eval_settings *s, const tp_coco *X, const detect_figures *f)
{
    json_t *all = json_object();
    if (f->box) json_object_set_new(all, "box", kind_json(s, X, f->box));
    if (f->mask) json_object_set_new(all, "mask", kind_json(s, X, f->mask));
    return print_json_line(stdout, all);
}

enum { NAME = 14 }; /* columns of a name */

static void print_row(const char *name, const tp_coco_eval *E, int category)
{
    char line[NAME + 1];
    plain_line(name, line, sizeof line);
    printf("%s%*s", line, NAME - plain_columns(line), "");
    for (int i = 0; i < TP_COCO_FIGURES; i++)
        printf("%7.2f", percent(category < 0 ? tp_coco_eval_figure(E, i)
                                             : tp_coco_eval_class(E, category, i)));
    putchar('\n');
}

static void print_head(const char *what)
{
    printf("%-*s", NAME, what);
    for (int i = 0; i < TP_COCO_FIGURES; i++) printf("%7s", tp_coco_figure_name(i));
    putchar('\n');
}

static void print_classes(const tp_coco *X, const char *what, const tp_coco_eval *E)
{
    print_head(what);
    for (int c = 0; c < tp_coco_categories(X); c++) print_row(tp_coco_category_name(X, c), E, c);
}

static bool print(const eval_settings *s, const tp_coco *X, const detect_figures *f)
{
    if (s->format == 1) return print_json(s, X, f);
    print_head("");
    if (f->box) print_row("boxes", f->box, -1);
    if (f->mask) print_row("masks", f->mask, -1);
    if (s->classes && f->box) print_classes(X, "boxes of", f->box);
    if (s->classes && f->mask) print_classes(X, "masks of", f->mask);
    return true;
}

/* ---- evaluating ---- */

static bool any_masks(const tp_detections *R)
{
    return tp_detections_count(R) > 0 && tp_detections_at(R, 0)->mask.runs > 0;
}

static bool report(const eval_settings *s, const tp_detections *R, bool masks, char *why,
                   size_t size)
{
    detect_figures f = { 0 };
    const bool box = s->kind != 2, mask = s->kind == 2 || (s->kind == 0 && masks);
    if (s->write && !tp_detections_write(R, s->write, why, size)) return false;
    f.box = box ? tp_coco_eval_new(R, &(tp_coco_eval_opts){ .kind = TP_COCO_BOXES }) : NULL;
    f.mask = mask ? tp_coco_eval_new(
                        R, &(tp_coco_eval_opts){ .kind = TP_COCO_MASKS, .box_areas = s->box_areas })
                  : NULL;
    bool done = (!box || tp_coco_eval_ok(f.box)) && (!mask || tp_coco_eval_ok(f.mask));
    if (!done)
        snprintf(why, size, "%s",
                 box && !tp_coco_eval_ok(f.box) ? tp_coco_eval_why(f.box)
                                                : tp_coco_eval_why(f.mask));
    else if (!print(s, tp_detections_coco(R), &f) && !ferror(stdout))
        done = false, snprintf(why, size, "out of memory");
    if (done && (fflush(stdout) != 0 || ferror(stdout)))
        done = false, snprintf(why, size, "standard output: %s", strerror(errno));
    detect_figures_free(&f);
    return done;
}

static bool detect(const eval_settings *s, coco_file *f, const coco_set *X)
{
    char why[2048];
    const int64_t all = tp_coco_images(X->source.coco);
    tp_catch_signals();
    tp_ticker t = tp_ticker_start("images", s->limit && s->limit < all ? s->limit : all);
    const detect_opts o = { .batch = s->batch,
                            .size = s->size ? s->size : f->shape.size,
                            .longest = s->longest ? s->longest : f->shape.longest,
                            .limit = s->limit,
                            .threads = (int)s->workers,
                            .go_on = detect_tick,
                            .env = &t };
    tp_detections *R = tp_detections_new(X->source.coco);
    const int64_t n = detect_all(f->t.T, &f->m, &X->source, &o, R, why, sizeof why);
    tp_ticker_end(&t);
    bool done = n >= 0;
    if (done && tp_stop_signal())
        done = false, snprintf(why, sizeof why, "stopped after %lld images", (long long)n);
    done = done && report(s, R, tp_detector_has_masks(&f->cfg), why, sizeof why);
    if (!done) tp_trained_fail(&f->t, "%s", why);
    tp_detections_close(R);
    return done;
}

static bool evaluate_model(eval_settings *s, char *why, size_t size)
{
    coco_file f = { 0 };
    coco_set X = { 0 };
    const bool done = coco_file_open(&f, &s->t) &&
                      coco_file_data(&f, &s->d, (tp_part)s->part, &X) &&
                      coco_file_load(&f, &s->t.machine) && detect(s, &f, &X);
    snprintf(why, size, "%s", f.t.why);
    coco_set_close(&X);
    coco_file_close(&f);
    return done;
}

static bool evaluate_results(eval_settings *s, char *why, size_t size)
{
    coco_set X;
    bool done = coco_set_open(&X, &s->d, (tp_part)s->part, why, size);
    if (done) {
        tp_detections *R = tp_detections_open(X.source.coco, s->results);
        done = tp_detections_ok(R);
        if (done)
            done = report(s, R, any_masks(R), why, size);
        else
            snprintf(why, size, "%s", tp_detections_why(R));
        tp_detections_close(R);
    }
    coco_set_close(&X);
    return done;
}

static bool run(void *settings, char *why, size_t size)
{
    eval_settings *s = settings;
    return s->results ? evaluate_results(s, why, size) : evaluate_model(s, why, size);
}

static bool check(const void *settings, char *why, size_t size)
{
    const eval_settings *s = settings;
    if (s->results && coco_data_drawn(&s->d))
        snprintf(why, size, "--results needs the annotations: give --data or --annotations");
    else if (s->results && s->write)
        snprintf(why, size, "--write is for the detections of a model, not for --results");
    else
        return true;
    return false;
}

int coco_eval_main(int argc, char **argv)
{
    tp_command command = manual;
    eval_settings s = {
        .t = { .machine = { .device = strdup("cpu") }, .run_dir = strdup("runs/coco") },
        .part = TP_VALID,
        .batch = 8,
        .workers = 1,
    };
    command.check = check;
    return tp_command_main(&command, argc, argv, &s, run);
}
