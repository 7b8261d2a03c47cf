/* coco_eval.c - `coco eval`: COCO's figures for a detector or a file of results. */
#include <jansson.h>
#include <stdio.h>

#include "coco_commands.h"
#include "coco_found.h"
#include "reports/json_lines.h"
#include "reports/plain_text.h"

typedef struct eval_settings {
    found_settings f; /* first */
    char *write;
    int format, kind;
    bool classes, box_areas;
} eval_settings;

#define S eval_settings

static const tp_option table[] = {
    TP_HEADING("MODEL AND IMAGES"),
    TP_ROWS(coco_found_options),
    TP_STRING("write", S, write, "FILE", 0, "Write the model's detections in COCO's format."),
    TP_HEADING("FIGURES"),
    TP_CHOICE("kind", S, kind, "all|box|mask", 0,
              "What is evaluated. all: boxes, and masks if the detections have them."),
    TP_FLAG("box-areas", S, box_areas, 0,
            "Masks are small, medium or large by the area of their boxes, as in pycocotools if the "
            "results have boxes; off: by their own, as in published figures."),
    TP_FLAG("classes", S, classes, 0,
            "Also print the figures of each category; of a JSON object, \"classes\" is a list."),
    TP_CHOICE("format", S, format, "table|json", 0, "Text for people, or a JSON object."),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_machine_options),
    { 0 },
};

static const char manual_more[] =
    "FIGURES\n"
    "    AP, AP50, AP75    average precision: mean over the thresholds of intersection over\n"
    "                      union 0.5, 0.55 ... 0.95; at 0.5; at 0.75\n"
    "    APs, APm, APl     of small (up to 32 x 32 pixels), medium, large (from 96 x 96) objects\n"
    "    AR@1 @10 @100     average recall with so many detections of an image\n"
    "    ARs, ARm, ARl     of small, medium and large objects\n\n"
    "EXIT STATUS\n"
    "    0 success; 1 an error; 2 a wrong command line\n\n"
    "EXAMPLES\n"
    "    coco eval\n"
    "    coco eval --data coco --run-dir runs/masks --classes\n"
    "    coco eval --results segm.json --annotations instances_val2017.json --kind mask\n";

static const tp_command manual = {
    .name = "coco eval",
    .summary = "measures average precision and recall of detections",
    .synopsis = "[--data DIR] [--run-dir DIR | --checkpoint FILE] [flag ...]\n"
                "    coco eval --results FILE --data DIR | --annotations FILE [flag ...]",
    .about = "Runs the detector of a checkpoint over images, or reads detections from a file, and "
             "prints COCO's twelve figures of boxes and of masks, in percent. They equal those of "
             "pycocotools to the last digit. -1 means that there are no objects of that size.",
    .table = table,
    .more = manual_more,
};

/* ---- printing ---- */

static double percent(double x)
{
    return x < 0 ? x : 100 * x;
}

static void add_figures(json_t *to, const tp_coco_eval *E, int category)
{
    for (int i = 0; i < TP_COCO_FIGURES; i++)
        json_object_set_new(to, tp_coco_figure_name(i),
                            json_real(percent(category < 0 ? tp_coco_eval_figure(E, i)
                                                           : tp_coco_eval_class(E, category, i))));
}

/* A list, since several categories may share a name. */
static json_t *kind_json(const eval_settings *s, const tp_coco *X, const tp_coco_eval *E)
{
    json_t *all = json_object();
    add_figures(all, E, -1);
    if (!s->classes) return all;
    json_t *classes = coco_categories_json(X);
    for (int c = 0; c < tp_coco_categories(X); c++)
        add_figures(json_array_get(classes, (size_t)c), E, c);
    json_object_set_new(all, "classes", classes);
    return all;
}

static void add_remark(void *list, const char *text)
{
    json_array_append_new(list, json_string(text));
}

static bool print_json(const eval_settings *s, const coco_found *found, const detect_figures *f)
{
    const tp_coco *X = found->X->source.coco;
    json_t *all = json_object(), *remarks = json_array();
    if (f->box) json_object_set_new(all, "box", kind_json(s, X, f->box));
    if (f->mask) json_object_set_new(all, "mask", kind_json(s, X, f->mask));
    coco_found_remarks(found, add_remark, remarks);
    json_object_set_new(all, "images", json_integer(detect_counted(X, found->left_out)));
    json_object_set_new(all, "remarks", remarks);
    return print_json_line(stdout, all);
}

enum { NAME = 14 }; /* width of a name */

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

static void print_remark(void *env, const char *text)
{
    char line[8000];
    (void)env;
    puts(plain_line(text, line, sizeof line));
}

static bool print(const eval_settings *s, const coco_found *found, const detect_figures *f)
{
    const tp_coco *X = found->X->source.coco;
    if (s->format == 1) return print_json(s, found, f);
    print_head("");
    if (f->box) print_row("boxes", f->box, -1);
    if (f->mask) print_row("masks", f->mask, -1);
    if (s->classes && f->box) print_classes(X, "boxes of", f->box);
    if (s->classes && f->mask) print_classes(X, "masks of", f->mask);
    coco_found_remarks(found, print_remark, NULL);
    return true;
}

/* ---- evaluating ---- */

static bool report(void *settings, const coco_found *found, char *why, size_t size)
{
    const eval_settings *s = settings;
    detect_figures f = { 0 };
    const tp_detections *R = found->R;
    const bool box = s->kind != 2, mask = s->kind == 2 || (s->kind == 0 && found->masks);
    if (s->write && !tp_detections_write(R, s->write, why, size)) return false;
    bool done = detect_evaluate(R, found->left_out, box, mask, s->box_areas, &f, why, size);
    if (done && !print(s, found, &f) && !ferror(stdout)) {
        snprintf(why, size, "out of memory");
        done = false;
    }
    done = done && coco_flush(why, size);
    detect_figures_free(&f);
    return done;
}

static bool run(void *settings, char *why, size_t size)
{
    eval_settings *s = settings;
    static const coco_masks masks[] = { MASKS_IF_FOUND, MASKS_UNUSED, MASKS_NEEDED };
    return coco_found_run(&s->f, masks[s->kind], report, s, why, size);
}

static bool check(const void *settings, char *why, size_t size)
{
    const eval_settings *s = settings;
    if (!coco_found_check(&s->f, why, size)) return false;
    if (!s->f.results || !s->write) return true;
    snprintf(why, size, "--write is for the detections of a model, not for --results");
    return false;
}

int coco_eval_main(int argc, char **argv)
{
    tp_command command = manual;
    eval_settings s = { .f = coco_found_defaults() };
    command.check = check;
    return tp_command_main(&command, argc, argv, &s, run);
}
