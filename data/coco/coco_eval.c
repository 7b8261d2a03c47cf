/* coco_eval.c - precision and recall over all images, and their means.
 *
 * Means are summed as NumPy does, in blocks of 128 with eight partial sums each, because they must equal pycocotools'
 * bit by bit. */
#include "coco_eval.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { T = TP_COCO_THRESHOLDS, POINTS = TP_COCO_POINTS, A = TP_COCO_AREAS, M = TP_COCO_LIMITS };

static tp_coco_eval no_memory = { .why = "evaluation: out of memory" };

double tp_coco_threshold(int t)
{
    static const double from = 0.5, to = 0.95;
    return t == T - 1 ? to : from + t * ((to - from) / (T - 1));
}

static double recall_point(int r)
{
    return r == POINTS - 1 ? 1.0 : r * 0.01;
}

/* ---- accumulating ---- */

static size_t at_precision(const tp_coco_eval *E, int t, int r, int k, int a, int m)
{
    return ((((size_t)t * POINTS + (size_t)r) * (size_t)E->classes + (size_t)k) * A + (size_t)a) *
               M +
           (size_t)m;
}

static size_t at_recall(const tp_coco_eval *E, int t, int k, int a, int m)
{
    return (((size_t)t * (size_t)E->classes + (size_t)k) * A + (size_t)a) * M + (size_t)m;
}

/* Detections of a category by descending score. Scores are finite: a list of detections has no others. */
static int by_score(const void *x, const void *y)
{
    const tp_coco_found *a = *(const tp_coco_found *const *)x,
                        *b = *(const tp_coco_found *const *)y;
    if (a->score != b->score) return a->score < b->score ? 1 : -1;
    return (a > b) - (a < b);
}

/* A point of the precision-recall curve, after a detection that counts. */
typedef struct curve {
    double *recall, *precision, *score;
    int64_t n;
} curve;

/* The steps of one threshold, size and limit. */
static void walk(curve *c, const tp_coco_found *const *found, int64_t n, int64_t objects, int t,
                 int a, int most)
{
    static const double spacing = 2.220446049250313e-16; /* of 1 */
    double right = 0.0, wrong = 0.0;
    c->n = 0;
    for (int64_t i = 0; i < n; i++) {
        if (found[i]->rank >= most) continue;
        const bool matched = found[i]->matched[a] >> t & 1, ignored = found[i]->ignored[a] >> t & 1;
        right += matched && !ignored;
        wrong += !matched && !ignored;
        c->recall[c->n] = right / (double)objects;
        c->precision[c->n] = right / (wrong + right + spacing);
        c->score[c->n++] = found[i]->score;
    }
    for (int64_t i = c->n - 1; i > 0; i--)
        if (c->precision[i] > c->precision[i - 1]) c->precision[i - 1] = c->precision[i];
}

/* Stores the curve at the recall points: the first step that reaches each, 0 beyond the last. */
static void store(tp_coco_eval *E, const curve *c, int t, int k, int a, int m)
{
    int64_t i = 0;
    E->recall[at_recall(E, t, k, a, m)] = c->n ? c->recall[c->n - 1] : 0.0;
    for (int r = 0; r < POINTS; r++) {
        while (i < c->n && c->recall[i] < recall_point(r)) i++;
        const size_t at = at_precision(E, t, r, k, a, m);
        E->precision[at] = i < c->n ? c->precision[i] : 0.0;
        E->scores[at] = i < c->n ? c->score[i] : 0.0;
    }
}

static bool accumulate(tp_coco_eval *E, int k, tp_coco_class *of)
{
    const size_t n = of->found.count;
    const tp_coco_found *found = of->found.items, **order = malloc((n + 1) * sizeof *order);
    double *memory = malloc((3 * n + 1) * sizeof *memory);
    curve c = { memory, memory + n, memory + 2 * n, 0 };
    const bool done = order && memory;
    for (size_t i = 0; done && i < n; i++) order[i] = &found[i];
    if (done && n) qsort(order, n, sizeof *order, by_score);
    for (int t = 0; done && t < T; t++)
        for (int a = 0; a < A; a++)
            for (int m = 0; m < M && of->objects[a]; m++) {
                walk(&c, order, (int64_t)n, of->objects[a], t, a, E->o.most[m]);
                store(E, &c, t, k, a, m);
            }
    if (!done) snprintf(E->why, sizeof E->why, "evaluation: out of memory for %zu detections", n);
    free(order);
    free(memory);
    return done;
}

/* ---- means ---- */

/* The sum of n numbers in NumPy's order. */
static double sum(const double *x, size_t n)
{
    double s[8], all = 0.0;
    size_t i = 8;
    if (n > 128) {
        const size_t half = n / 2 - n / 2 % 8;
        return sum(x, half) + sum(x + half, n - half);
    }
    if (n < 8) {
        for (i = 0; i < n; i++) all += x[i];
        return all;
    }
    memcpy(s, x, sizeof s);
    for (; i < n - n % 8; i += 8)
        for (size_t j = 0; j < 8; j++) s[j] += x[i + j];
    all = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
    for (; i < n; i++) all += x[i];
    return all;
}

/* What a figure is a mean of. */
static const struct figure {
    const char *name;
    bool recall;
    int threshold; /* -1: all */
    int area, limit;
} figures[TP_COCO_FIGURES] = {
    { "AP", false, -1, 0, 2 },  { "AP50", false, 0, 0, 2 },  { "AP75", false, 5, 0, 2 },
    { "APs", false, -1, 1, 2 }, { "APm", false, -1, 2, 2 },  { "APl", false, -1, 3, 2 },
    { "AR@1", true, -1, 0, 0 }, { "AR@10", true, -1, 0, 1 }, { "AR@100", true, -1, 0, 2 },
    { "ARs", true, -1, 1, 2 },  { "ARm", true, -1, 2, 2 },   { "ARl", true, -1, 3, 2 },
};

/* The mean of a figure's entries over the categories from k to end - 1; x has room for all of them. */
static double mean(const tp_coco_eval *E, const struct figure *f, int k, int end, double *x)
{
    const int first = f->threshold < 0 ? 0 : f->threshold;
    const int last = f->threshold < 0 ? T - 1 : f->threshold;
    const int points = f->recall ? 1 : POINTS;
    size_t n = 0;
    for (int t = first; t <= last; t++)
        for (int r = 0; r < points; r++)
            for (int c = k; c < end; c++) {
                const double v = f->recall
                                     ? E->recall[at_recall(E, t, c, f->area, f->limit)]
                                     : E->precision[at_precision(E, t, r, c, f->area, f->limit)];
                if (v > -1.0) x[n++] = v;
            }
    return n ? sum(x, n) / (double)n : -1.0;
}

static bool fill_figures(tp_coco_eval *E)
{
    const size_t rows = (size_t)E->classes + 1;
    double *x = malloc((size_t)T * POINTS * rows * sizeof *x);
    E->figures = malloc(rows * TP_COCO_FIGURES * sizeof *E->figures);
    for (size_t i = 0; x && E->figures && i < rows * TP_COCO_FIGURES; i++) {
        const int row = (int)i / TP_COCO_FIGURES; /* 0: all categories */
        E->figures[i] =
            mean(E, &figures[i % TP_COCO_FIGURES], row ? row - 1 : 0, row ? row : E->classes, x);
    }
    if (!x || !E->figures)
        snprintf(E->why, sizeof E->why, "evaluation: out of memory for the figures");
    free(x);
    return !E->why[0];
}

const char *tp_coco_figure_name(int i)
{
    return i >= 0 && i < TP_COCO_FIGURES ? figures[i].name : NULL;
}

double tp_coco_eval_figure(const tp_coco_eval *E, int i)
{
    return E->why[0] ? -1.0 : E->figures[i];
}

double tp_coco_eval_class(const tp_coco_eval *E, int category, int i)
{
    return E->why[0] ? -1.0 : E->figures[(category + 1) * TP_COCO_FIGURES + i];
}

/* ---- the object ---- */

static bool prepare(tp_coco_eval *E, const tp_detections *R)
{
    const tp_coco_eval_opts *o = &E->o;
    E->classes = o->one_class ? 1 : tp_coco_categories(tp_detections_coco(R));
    if (o->most[0] < 1 || o->most[1] < o->most[0] || o->most[2] < o->most[1]) {
        snprintf(E->why, sizeof E->why,
                 "evaluation: the limits %d, %d, %d are not ascending numbers of detections",
                 o->most[0], o->most[1], o->most[2]);
        return false;
    }
    const size_t recalls = (size_t)T * (size_t)E->classes * A * M, n = recalls * POINTS;
    E->recall = malloc((recalls + 1) * sizeof *E->recall);
    E->precision = malloc((n + 1) * sizeof *E->precision);
    E->scores = malloc((n + 1) * sizeof *E->scores);
    if (!E->recall || !E->precision || !E->scores) {
        snprintf(E->why, sizeof E->why, "evaluation: out of memory for the curves of %d categories",
                 E->classes);
        return false;
    }
    for (size_t i = 0; i < recalls; i++) E->recall[i] = -1.0;
    for (size_t i = 0; i < n; i++) E->precision[i] = E->scores[i] = -1.0;
    return true;
}

tp_coco_eval *tp_coco_eval_new(const tp_detections *R, const tp_coco_eval_opts *o)
{
    static const int most[M] = { 1, 10, 100 };
    tp_coco_eval *E = calloc(1, sizeof *E);
    if (!E) return &no_memory;
    if (o) E->o = *o;
    if (!E->o.most[0] && !E->o.most[1] && !E->o.most[2]) memcpy(E->o.most, most, sizeof most);
    if (!tp_detections_ok(R))
        snprintf(E->why, sizeof E->why, "%s", tp_detections_why(R));
    else if (prepare(E, R) && tp__coco_match(E, R, accumulate))
        fill_figures(E);
    if (E->why[0]) E->classes = 0;
    return E;
}

void tp_coco_eval_free(tp_coco_eval *E)
{
    if (!E || E == &no_memory) return;
    free(E->recall);
    free(E->precision);
    free(E->scores);
    free(E->figures);
    free(E);
}

bool tp_coco_eval_ok(const tp_coco_eval *E)
{
    return !E->why[0];
}

const char *tp_coco_eval_why(const tp_coco_eval *E)
{
    return E->why;
}

int tp_coco_eval_classes(const tp_coco_eval *E)
{
    return E->classes;
}

const double *tp_coco_eval_precision(const tp_coco_eval *E)
{
    return E->precision;
}

const double *tp_coco_eval_scores(const tp_coco_eval *E)
{
    return E->scores;
}

const double *tp_coco_eval_recall(const tp_coco_eval *E)
{
    return E->recall;
}

void tp_coco_eval_curve(const tp_coco_eval *E, int category, int t, int a, int m, double *precision,
                        double *score)
{
    for (int r = 0; r < POINTS; r++) {
        const size_t at = at_precision(E, t, r, category, a, m);
        precision[r] = E->precision[at];
        if (score) score[r] = E->scores[at];
    }
}
