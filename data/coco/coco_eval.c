/* coco_eval.c - precision and recall over all images, and their means.
 *
 * Curves are computed from the matched detections on request: stored, those of one category would
 * take 194 KB, however few detections it has. Means are summed in NumPy's order, blocks of 128 with
 * eight partial sums each, because they must equal pycocotools' bit by bit. */
#include "coco_eval.h"
#include "kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { T = TP_COCO_THRESHOLDS, POINTS = TP_COCO_POINTS, A = TP_COCO_AREAS, M = TP_COCO_LIMITS };

TP_FAILS(tp_coco_eval, no_memory, "evaluation: out of memory",
         "coco_eval: NULL was given in place of an evaluation")

static double recall_point(int r)
{
    return r == POINTS - 1 ? 1.0 : r * 0.01;
}

/* ---- curves ---- */

/* The indices of a curve: threshold, category, size, limit. */
typedef struct entry {
    int t, k, a, m;
} entry;

/* Detections of a category up to some score. */
typedef struct counts {
    double right, wrong;
} counts;

static counts judge(const tp_coco_found *f, const entry *e)
{
    const bool matched = f->matched[e->a] >> e->t & 1, ignored = f->ignored[e->a] >> e->t & 1;
    return (counts){ .right = matched && !ignored, .wrong = !matched && !ignored };
}

/* The detections of a class; NULL: it has none. */
static const tp_coco_found *found_of(const tp_coco_eval *E, const tp_coco_class *of)
{
    return of->n ? (const tp_coco_found *)E->found.items + of->first : NULL;
}

/* Counts all detections within the limit. first: index of the first of them, or the list's end. */
static counts count_all(const tp_coco_eval *E, const entry *e, int64_t *first)
{
    const tp_coco_class *of = &E->of[e->k];
    const tp_coco_found *found = found_of(E, of);
    counts all = { 0.0, 0.0 };
    *first = of->n;
    for (int64_t i = 0; i < of->n; i++) {
        if (found[i].rank >= E->o.most[e->m]) continue;
        const counts one = judge(&found[i], e);
        all.right += one.right;
        all.wrong += one.wrong;
        if (*first == of->n) *first = i;
    }
    return all;
}

static double recall_of(const tp_coco_eval *E, const entry *e)
{
    int64_t first;
    if (E->why[0] || E->of[e->k].objects[e->a] == 0) return -1.0;
    return count_all(E, e, &first).right / (double)E->of[e->k].objects[e->a];
}

/* Precision at the recall points: the largest from the first detection on that reaches the point,
 * with that detection's score; 0 if none does. The walk runs backwards, so the largest so far is
 * the largest of the rest. */
static void curve_of(const tp_coco_eval *E, const entry *e, double *precision, double *score)
{
    static const double spacing = 2.220446049250313e-16; /* of doubles at 1 */
    const double objects = E->why[0] ? 0.0 : (double)E->of[e->k].objects[e->a];
    int64_t first = 0;
    int r = POINTS - 1;
    for (int i = 0; i < POINTS; i++) precision[i] = score[i] = objects > 0.0 ? 0.0 : -1.0;
    if (objects == 0.0) return;
    const tp_coco_found *found = found_of(E, &E->of[e->k]);
    counts c = count_all(E, e, &first);
    double largest = 0.0;
    while (r >= 0 && recall_point(r) > c.right / objects) r--;
    for (int64_t i = E->of[e->k].n - 1; i >= first && r >= 0; i--) {
        if (found[i].rank >= E->o.most[e->m]) continue;
        const counts one = judge(&found[i], e);
        const double now = c.right / (c.wrong + c.right + spacing);
        if (now > largest) largest = now;
        c.right -= one.right;
        c.wrong -= one.wrong;
        for (; r >= 0 && (i == first || recall_point(r) > c.right / objects); r--) {
            precision[r] = largest;
            score[r] = found[i].score;
        }
    }
}

/* ---- means ---- */

/* What each figure averages. */
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

/* The entries that a figure averages, over the categories from k to end - 1 that have objects:
 * threshold by threshold, point by point of a curve, category by category. */
typedef struct entries {
    const tp_coco_eval *E;
    const struct figure *f;
    int k, end, t;
    size_t classes, points, at;
    double *block; /* [points,classes]: the entries of threshold t - 1 */
} entries;

static void next_threshold(entries *s)
{
    double precision[POINTS] = { 0 }, score[POINTS];
    size_t j = 0;
    for (int k = s->k; k < s->end; k++) {
        const entry e = { s->t, k, s->f->area, s->f->limit };
        if (s->E->of[k].objects[e.a] == 0) continue;
        if (s->f->recall)
            precision[0] = recall_of(s->E, &e);
        else
            curve_of(s->E, &e, precision, score);
        for (size_t r = 0; r < s->points; r++) s->block[r * s->classes + j] = precision[r];
        j++;
    }
    s->t++;
    s->at = 0;
}

/* Takes the next n entries, at most 128. */
static void take(entries *s, double *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (s->at == s->points * s->classes) next_threshold(s);
        x[i] = s->block[s->at++];
    }
}

/* Returns the sum of the next n entries in NumPy's order. */
static double sum(entries *from, size_t n)
{
    double x[128], s[8], all = 0.0;
    size_t i = 8;
    if (n > 128) {
        const size_t half = n / 2 - n / 2 % 8;
        all = sum(from, half);
        return all + sum(from, n - half);
    }
    take(from, x, n);
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

/* The mean of a figure's entries over the categories from k to end - 1; block [POINTS,end-k]. */
static double mean(const tp_coco_eval *E, const struct figure *f, int k, int end, double *block)
{
    const int first = f->threshold < 0 ? 0 : f->threshold;
    const size_t thresholds = f->threshold < 0 ? T : 1;
    entries s = { .E = E, .f = f, .k = k, .end = end, .t = first, .block = block };
    for (int i = k; i < end; i++) s.classes += E->of[i].objects[f->area] > 0;
    s.points = f->recall ? 1 : POINTS;
    s.at = s.points * s.classes;
    const size_t n = thresholds * s.points * s.classes;
    return n ? sum(&s, n) / (double)n : -1.0;
}

static bool fill_figures(tp_coco_eval *E)
{
    size_t classes = 0;
    for (int k = 0; k < E->classes; k++) classes += E->of[k].objects[0] > 0;
    double *block = malloc((classes + 1) * POINTS * sizeof *block);
    for (int i = 0; block && i < TP_COCO_FIGURES; i++)
        E->figures[i] = mean(E, &figures[i], 0, E->classes, block);
    if (!block) snprintf(E->why, sizeof E->why, "evaluation: out of memory for the figures");
    free(block);
    return !E->why[0];
}

const char *tp_coco_figure_name(int i)
{
    return i >= 0 && i < TP_COCO_FIGURES ? figures[i].name : NULL;
}

double tp_coco_eval_figure(const tp_coco_eval *E, int i)
{
    if (!E) return 0;
    return E->why[0] ? -1.0 : E->figures[i];
}

double tp_coco_eval_class(const tp_coco_eval *E, int category, int i)
{
    if (!E) return 0;
    double block[POINTS];
    return E->why[0] ? -1.0 : mean(E, &figures[i], category, category + 1, block);
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
    E->of = calloc((size_t)E->classes + 1, sizeof *E->of);
    if (!E->of)
        snprintf(E->why, sizeof E->why, "evaluation: out of memory for %d categories", E->classes);
    return E->of != NULL;
}

tp_coco_eval *tp_coco_eval_new(const tp_detections *R, const tp_coco_eval_opts *o)
{
    if (!R) return NULL;
    static const int most[M] = { 1, 10, 100 };
    tp_coco_eval *E = calloc(1, sizeof *E);
    if (!E) return &no_memory;
    if (o) E->o = *o;
    if (!E->o.most[0] && !E->o.most[1] && !E->o.most[2]) memcpy(E->o.most, most, sizeof most);
    if (!tp_detections_ok(R))
        snprintf(E->why, sizeof E->why, "%s", tp_detections_why(R));
    else if (prepare(E, R) && tp__coco_match(E, R))
        fill_figures(E);
    E->o.left_out = NULL; /* owned by the caller */
    if (E->why[0]) E->classes = 0;
    return E;
}

void tp_coco_eval_free(tp_coco_eval *E)
{
    if (!E || E == &no_memory) return;
    free(E->found.items);
    free(E->of);
    free(E);
}

int tp_coco_eval_classes(const tp_coco_eval *E)
{
    if (!E) return 0;
    return E->classes;
}

double tp_coco_eval_recall(const tp_coco_eval *E, int category, int t, int a, int m)
{
    if (!E) return 0;
    return recall_of(E, &(entry){ t, category, a, m });
}

void tp_coco_eval_curve(const tp_coco_eval *E, int category, int t, int a, int m, double *precision,
                        double *score)
{
    if (!E) return;
    double unused[POINTS];
    curve_of(E, &(entry){ t, category, a, m }, precision, score ? score : unused);
}
