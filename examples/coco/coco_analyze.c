/* coco_analyze.c - `coco analyze`: draws precision and recall, kinds of errors, and the anchors
 * matched in training. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/coco.h>
#include <tapegrad/rle.h>

#include "coco_commands.h"
#include "coco_found.h"
#include "pictures/picture.h"
#include "reports/json_lines.h"
#include "reports/plain_text.h"

/* ---- kinds of errors ---- */

/* The kind of a detection follows from v and w, its largest intersection over union (IoU) with an
 * object of its own and of another category. If v >= 0.5: right, or duplicate if a better detection
 * took the object. Otherwise: class if w >= 0.5, place if v >= 0.1, class and place if w >= 0.1,
 * background. Objects that no right detection takes are missed. Crowds, and detections inside one,
 * do not count. */
typedef enum error_kind {
    ERROR_NONE,
    ERROR_DUPLICATE,
    ERROR_CLASS,
    ERROR_PLACE,
    ERROR_BOTH,
    ERROR_BACKGROUND,
    ERROR_KINDS
} error_kind;

typedef struct errors {
    int64_t count[ERROR_KINDS], missed, objects;
} errors;

static const double found_at = 0.5, near_at = 0.1;

static const char *error_name(error_kind k)
{
    static const char *const names[ERROR_KINDS] = {
        "right", "duplicate", "wrong class", "wrong place", "class and place", "background"
    };
    return names[k];
}

/* The detections of one image that count, by descending score. */
typedef struct counted {
    const tp_detection **at;
    int64_t n;
} counted;

/* Equal scores keep the order of the list, as in COCO's evaluation. */
static int by_image_and_score(const void *a, const void *b)
{
    const tp_detection *x = *(const tp_detection *const *)a, *y = *(const tp_detection *const *)b;
    if (x->image != y->image) return x->image < y->image ? -1 : 1;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return (x > y) - (x < y);
}

/* Judges one detection; taken is [objects of image]. */
static error_kind judge(const tp_coco *X, const tp_detection *d, bool *taken, bool *in_crowd)
{
    const tp_coco_image *image = tp_coco_image_at(X, d->image);
    double same = 0, other = 0;
    int64_t best = -1;
    bool free_one = false;
    *in_crowd = false;
    for (int64_t k = 0; k < image->objects; k++) {
        const tp_coco_object *o = tp_coco_object_at(X, image->first + k);
        const bool crowd = o->crowd || o->ignore;
        double iou;
        tp_box_iou_xywh(&d->box, 1, &o->box, 1, &crowd, &iou);
        if (crowd) {
            *in_crowd = *in_crowd || (o->category == d->category && iou >= found_at);
            continue;
        }
        if (o->category != d->category) {
            if (iou > other) other = iou;
            continue;
        }
        /* among overlapping objects, prefer one not yet taken */
        const bool is_free = iou >= found_at && !taken[k];
        if ((is_free && !free_one) || (is_free == free_one && iou > same)) {
            same = iou;
            best = k;
            free_one = is_free;
        }
    }
    if (same >= found_at && free_one) {
        taken[best] = true;
        return ERROR_NONE;
    }
    if (same >= found_at) return ERROR_DUPLICATE;
    if (other >= found_at) return ERROR_CLASS;
    if (same >= near_at) return ERROR_PLACE;
    return other >= near_at ? ERROR_BOTH : ERROR_BACKGROUND;
}

static void count_image(const tp_coco *X, int64_t i, const counted *c, int64_t *at, bool *taken,
                        errors *e)
{
    const tp_coco_image *image = tp_coco_image_at(X, i);
    for (int64_t k = 0; k < image->objects; k++) taken[k] = false;
    for (; *at < c->n && c->at[*at]->image == i; ++*at) {
        bool in_crowd;
        const error_kind kind = judge(X, c->at[*at], taken, &in_crowd);
        if (kind == ERROR_NONE || !in_crowd) e->count[kind]++;
    }
    for (int64_t k = 0; k < image->objects; k++) {
        const tp_coco_object *o = tp_coco_object_at(X, image->first + k);
        if (o->crowd || o->ignore) continue;
        e->objects++;
        e->missed += !taken[k];
    }
}

/* Counts the errors of all detections with at least this score. left_out [images]: images that do
 * not count; may be NULL. False: out of memory. */
static bool errors_count(const tp_detections *R, const bool *left_out, double score, errors *e)
{
    const tp_coco *X = tp_detections_coco(R);
    int64_t most = 1, at = 0;
    *e = (errors){ { 0 }, 0, 0 };
    for (int64_t i = 0; i < tp_coco_images(X); i++)
        if (tp_coco_image_at(X, i)->objects > most) most = tp_coco_image_at(X, i)->objects;
    counted c = { malloc((size_t)(tp_detections_count(R) + 1) * sizeof(tp_detection *)), 0 };
    bool *taken = malloc((size_t)most * sizeof *taken);
    const bool done = c.at && taken;
    for (int64_t i = 0; done && i < tp_detections_count(R); i++)
        if (tp_detections_at(R, i)->score >= score &&
            !(left_out && left_out[tp_detections_at(R, i)->image]))
            c.at[c.n++] = tp_detections_at(R, i);
    if (done) {
        qsort(c.at, (size_t)c.n, sizeof *c.at, by_image_and_score);
        for (int64_t i = 0; i < tp_coco_images(X); i++)
            if (!(left_out && left_out[i])) count_image(X, i, &c, &at, taken, e);
    }
    free(c.at);
    free(taken);
    return done;
}

/* ---- flags ---- */

typedef struct analyze_settings {
    found_settings f; /* first */
    char *out;
    int kind, format;
    double score;
} analyze_settings;

#define S analyze_settings

static const tp_option table[] = {
    TP_HEADING("MODEL AND IMAGES"),
    TP_ROWS(coco_found_options),
    TP_HEADING("RESULTS"),
    TP_CHOICE("kind", S, kind, "box|mask", 0, "The curves are those of boxes or of masks."),
    TP_NUM("score", S, score, 0, 1, 0, "Count the errors of detections with at least this score."),
    TP_STRING("out", S, out, "DIR", 0,
              "The folder for curves.png, errors.png and, of a run with a log and without "
              "--checkpoint, anchors.png; not given: DIR/analysis of --run-dir. Needs gnuplot."),
    TP_CHOICE("format", S, format, "table|json", 0, "Text for people, or a JSON object."),
    TP_HEADING("MACHINE"),
    TP_ROWS(tp_machine_options),
    { 0 },
};

static const char manual_more[] =
    "KINDS OF ERRORS\n"
    "    duplicate        the object was found by a detection with a better score\n"
    "    wrong class      intersection over union of 0.5 or more with an object of another\n"
    "                     category\n"
    "    wrong place      0.1 to 0.5 with an object of its category\n"
    "    class and place  0.1 to 0.5 with an object of another category\n"
    "    background       less than 0.1 with any object\n"
    "    missed           objects that no detection found\n\n"
    "EXIT STATUS\n"
    "    0 success; 1 an error; 2 a wrong command line\n\n"
    "EXAMPLES\n"
    "    coco analyze --score 0.3\n"
    "    coco analyze --results segm.json --annotations instances_val2017.json --out seen\n";

static const tp_command manual = {
    .name = "coco analyze",
    .summary = "draws precision-recall curves, kinds of errors and matched anchors",
    .synopsis = "[--data DIR] [--run-dir DIR | --checkpoint FILE] [flag ...]\n"
                "    coco analyze --results FILE --data DIR | --annotations FILE [flag ...]",
    .about =
        "Runs a detector over images, or reads detections from a file. Draws precision over "
        "recall at several thresholds and of each category, counts the kinds of errors, and shows "
        "how many anchors matched an object in the course of training.",
    .table = table,
    .more = manual_more,
};

typedef struct analysis {
    const analyze_settings *s;
    const tp_detections *R;
    const tp_coco_eval *E;
    errors e;
    char out[4200], note[600];
    gnuplot g;
} analysis;

/* ---- curves ---- */

enum { LINES = 10 };

/* Precision at each recall point, averaged over the categories that have objects. */
static void mean_curve(const analysis *a, int threshold, double y[TP_COCO_POINTS])
{
    const int K = tp_coco_eval_classes(a->E);
    int n = 0;
    double one[TP_COCO_POINTS];
    memset(y, 0, TP_COCO_POINTS * sizeof *y);
    for (int k = 0; k < K; k++) {
        tp_coco_eval_curve(a->E, k, threshold, 0, TP_COCO_LIMITS - 1, one, NULL);
        if (one[0] < 0) continue;
        n++;
        for (int i = 0; i < TP_COCO_POINTS; i++) y[i] += one[i];
    }
    for (int i = 0; i < TP_COCO_POINTS; i++) y[i] = n > 0 ? y[i] / n : (double)NAN;
}

/* Chooses the largest categories, at most LINES. Returns their number. */
static int largest_categories(const tp_coco *X, int chosen[LINES])
{
    const int K = tp_coco_categories(X);
    int64_t *count = calloc((size_t)K, sizeof *count);
    int n = 0;
    for (int64_t i = 0; count && i < tp_coco_objects(X); i++)
        count[tp_coco_object_at(X, i)->category]++;
    for (; count && n < LINES; n++) {
        int best = -1;
        for (int k = 0; k < K; k++)
            if (count[k] > 0 && (best < 0 || count[k] > count[best])) best = k;
        if (best < 0) break;
        chosen[n] = best;
        count[best] = 0;
    }
    free(count);
    return n;
}

static bool draw_curves(analysis *a, char *why, size_t size)
{
    static const int thresholds[] = { 0, 2, 4, 5, 6, 8 };
    enum { N = sizeof thresholds / sizeof *thresholds };
    static double x[TP_COCO_POINTS], y[N + LINES][TP_COCO_POINTS];
    char names[N][40], path[4300];
    curve by_threshold[N], by_category[LINES];
    int chosen[LINES];
    const tp_coco *X = tp_detections_coco(a->R);
    for (int i = 0; i < TP_COCO_POINTS; i++) x[i] = 0.01 * i;
    for (int i = 0; i < N; i++) {
        mean_curve(a, thresholds[i], y[i]);
        snprintf(names[i], sizeof names[i], "IoU %.2f", tp_coco_threshold(thresholds[i]));
        by_threshold[i] = (curve){ names[i], TP_COCO_POINTS, x, y[i] };
    }
    const int n = largest_categories(X, chosen);
    for (int i = 0; i < n; i++) {
        tp_coco_eval_curve(a->E, chosen[i], 0, 0, TP_COCO_LIMITS - 1, y[N + i], NULL);
        by_category[i] =
            (curve){ tp_coco_category_name(X, chosen[i]), TP_COCO_POINTS, x, y[N + i] };
    }
    const panel panels[] = {
        { .kind = PANEL_CURVES,
          .title = "All categories, by threshold",
          .across = "recall",
          .up = "precision",
          .curves = { .n = N, .at = by_threshold, .plain = true, .least = 0, .most = 1 } },
        { .kind = n ? PANEL_CURVES : PANEL_NONE,
          .title = "Categories with the most objects, IoU 0.50",
          .across = "recall",
          .up = "precision",
          .curves = { .n = n, .at = by_category, .plain = true, .least = 0, .most = 1 } },
    };
    const picture p = { .title = a->s->kind == 1 ? "Precision and recall of masks"
                                                 : "Precision and recall of boxes",
                        .note = a->note,
                        .down = 1,
                        .across = 2,
                        .at = panels };
    snprintf(path, sizeof path, "%s/curves.png", a->out);
    return picture_draw(&a->g, &p, path, why, size);
}

/* ---- errors ---- */

static bool draw_errors(analysis *a, char *why, size_t size)
{
    panel_bar bars[ERROR_KINDS + 1];
    char path[4300], note[700];
    for (int k = 0; k < ERROR_KINDS; k++)
        bars[k] = (panel_bar){ .name = error_name((error_kind)k),
                               .value = (double)a->e.count[k],
                               .colour = k == ERROR_NONE ? COLOUR_RIGHT : COLOUR_WRONG };
    bars[ERROR_KINDS] = (panel_bar){ .name = "missed", .value = (double)a->e.missed };
    const panel one = { .kind = PANEL_BARS,
                        .across = "detections; missed: objects",
                        .bars = { .n = ERROR_KINDS + 1, .at = bars } };
    snprintf(note, sizeof note, "%s. Detections with a score of at least %g, %lld objects.",
             a->note, a->s->score, (long long)a->e.objects);
    const picture p = {
        .title = "Kinds of errors", .note = note, .down = 1, .across = 1, .at = &one
    };
    snprintf(path, sizeof path, "%s/errors.png", a->out);
    return picture_draw(&a->g, &p, path, why, size);
}

/* ---- the log ---- */

/* The values of one key of log.jsonl, by update. */
typedef struct logged {
    double *x, *y;
    int n;
} logged;

static bool read_log(const char *path, const char *key, logged *to)
{
    FILE *f = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    int most = 0;
    *to = (logged){ 0 };
    while (f && getline(&line, &room, f) > 0) {
        json_t *one = json_loads(line, 0, NULL);
        const json_t *step = json_object_get(one, "step"), *value = json_object_get(one, key);
        if (json_is_number(step) && json_is_number(value)) {
            if (to->n == most) {
                most = most ? 2 * most : 256;
                double *x = realloc(to->x, (size_t)most * sizeof *x);
                if (x) to->x = x;
                double *y = realloc(to->y, (size_t)most * sizeof *y);
                if (y) to->y = y;
                if (!x || !y) most = to->n;
            }
            if (to->n < most) {
                to->x[to->n] = json_number_value(step);
                to->y[to->n++] = json_number_value(value);
            }
        }
        json_decref(one);
    }
    free(line);
    if (f) fclose(f);
    return to->n > 0;
}

static void free_log(logged *l)
{
    free(l->x);
    free(l->y);
}

/* Draws the matched anchors beside the terms of the loss. */
static bool draw_log(analysis *a, const char *run, const char *const *names, char *why, size_t size)
{
    char log[4300], path[4300];
    logged anchors, terms[TP_DETECTION_LOSSES];
    curve curves[TP_DETECTION_LOSSES];
    int n = 0, read = 0;
    snprintf(log, sizeof log, "%.4200s/log.jsonl", run);
    bool done = true;
    if (read_log(log, "anchors_per_object", &anchors)) {
        for (; names[read]; read++)
            if (read_log(log, names[read], &terms[read]))
                curves[n++] = (curve){ names[read], terms[read].n, terms[read].x, terms[read].y };
        double most = 1;
        for (int i = 0; i < anchors.n; i++) most = fmax(most, ceil(1.1 * anchors.y[i]));
        const curve matched = { "anchors", anchors.n, anchors.x, anchors.y };
        const panel panels[] = {
            { .kind = PANEL_CURVES,
              .title = "Anchors that match an object, per object",
              .across = "update",
              .up = "anchors",
              .curves = { .n = 1, .at = &matched, .plain = true, .least = 0, .most = most } },
            { .kind = n ? PANEL_CURVES : PANEL_NONE,
              .title = "Terms of the loss",
              .across = "update",
              .up = "loss",
              .curves = { .n = n, .at = curves, .plain = true } },
        };
        const picture p = {
            .title = "Training", .note = a->note, .down = 1, .across = 2, .at = panels
        };
        snprintf(path, sizeof path, "%s/anchors.png", a->out);
        done = picture_draw(&a->g, &p, path, why, size);
        while (read > 0) free_log(&terms[--read]);
    }
    free_log(&anchors);
    return done;
}

/* ---- the command ---- */

static void print_table(const analysis *a)
{
    for (int k = 0; k < ERROR_KINDS; k++)
        printf("%-16s %8lld\n", error_name((error_kind)k), (long long)a->e.count[k]);
    printf("%-16s %8lld of %lld objects\n", "missed", (long long)a->e.missed,
           (long long)a->e.objects);
}

static bool print(const analysis *a, char *why, size_t size)
{
    bool done = true;
    if (a->s->format == 1) {
        json_t *all = json_object();
        for (int k = 0; k < ERROR_KINDS; k++)
            json_object_set_new(all, error_name((error_kind)k),
                                json_integer((json_int_t)a->e.count[k]));
        json_object_set_new(all, "missed", json_integer((json_int_t)a->e.missed));
        json_object_set_new(all, "objects", json_integer((json_int_t)a->e.objects));
        done = print_json_line(stdout, all);
    } else {
        print_table(a);
    }
    if (!coco_flush(why, size)) return false;
    if (!done) snprintf(why, size, "out of memory");
    return done;
}

static void say(void *env, const char *text)
{
    char line[8000];
    (void)env;
    fprintf(stderr, "coco analyze: %s\n", plain_line(text, line, sizeof line));
}

static bool report(void *settings, const coco_found *found, char *why, size_t size)
{
    const analyze_settings *s = settings;
    const tp_detections *R = found->R;
    analysis a = { .s = s, .R = R };
    snprintf(a.note, sizeof a.note, "%s", found->name);
    snprintf(a.out, sizeof a.out, "%.4100s%s", s->out ? s->out : s->f.t.run_dir,
             s->out ? "" : "/analysis");
    if (!tp_make_folders(a.out, why, size)) return false;
    if (!errors_count(R, found->left_out, s->score, &a.e)) {
        snprintf(why, size, "out of memory");
        return false;
    }
    coco_found_remarks(found, say, NULL);
    tp_coco_eval *E = tp_coco_eval_new(
        R, &(tp_coco_eval_opts){ .kind = s->kind == 1 ? TP_COCO_MASKS : TP_COCO_BOXES,
                                 .left_out = found->left_out });
    a.E = E;
    bool done = tp_coco_eval_ok(E);
    if (!done) snprintf(why, size, "%s", tp_coco_eval_why(E));
    done = done && print(&a, why, size) && draw_curves(&a, why, size) &&
           draw_errors(&a, why, size) &&
           (s->f.results || s->f.t.checkpoint ||
            draw_log(&a, s->f.t.run_dir, found->kind->terms, why, size));
    gnuplot_end(&a.g);
    tp_coco_eval_free(E);
    return done;
}

static bool run(void *settings, char *why, size_t size)
{
    analyze_settings *s = settings;
    const coco_masks masks = s->kind == 1 ? MASKS_NEEDED : MASKS_UNUSED;
    return coco_found_run(&s->f, masks, report, s, why, size);
}

static bool check(const void *settings, char *why, size_t size)
{
    const analyze_settings *s = settings;
    if (!coco_found_check(&s->f, why, size)) return false;
    if (!s->f.results || s->out) return true;
    snprintf(why, size, "--results needs --out DIR");
    return false;
}

int coco_analyze_main(int argc, char **argv)
{
    tp_command command = manual;
    analyze_settings s = { .f = coco_found_defaults(), .score = 0.5 };
    command.check = check;
    return tp_command_main(&command, argc, argv, &s, run);
}
