/* score.c - opens evaluation images and computes a model's accuracy on them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reports/plain_text.h"
#include "score.h"

/* ---- the set ---- */

/* Maps class k of the images to the model's class label[k]. */
static bool fits(image_file *f, const class_names *names, const tp_image_set *X,
                 const eval_source *from, int32_t *label)
{
    char why[700], warning[700] = "";
    const class_names stored = { .text = f->names };
    if (tp_image_set_classes(X) > f->cfg.classes)
        return tp_trained_fail(&f->t,
                               "the images have %d classes, the head of %s has %lld: the model was "
                               "trained on other images%s",
                               tp_image_set_classes(X), f->t.path, (long long)f->cfg.classes,
                               from->data ? "" : "; give them with --data");
    const bool done = class_labels(f->names ? &stored : names, f->cfg.classes, X, label,
                                   f->names ? NULL : warning, sizeof warning, why, sizeof why);
    eval_warn(from->command, warning);
    return done || tp_trained_fail(&f->t,
                                   f->names ? "%s was trained on other classes: %s"
                                            : "%s does not fit the images: %s",
                                   f->t.path, why);
}

bool eval_set_open(eval_set *e, const eval_source *s, image_file *f, const class_names *names)
{
    const int64_t drawn = s->most > 0 && s->most < s->shapes ? s->most : s->shapes;
    *e = (eval_set){ .X = s->data ? tp_image_set_open(s->data, s->layout, s->part)
                                  : tp_image_set_shapes(drawn, f->cfg.size, s->part) };
    if (!tp_image_set_ok(e->X)) return tp_trained_fail(&f->t, "%s", tp_image_set_why(e->X));
    if (s->most > 0) tp_image_set_thin(e->X, s->most);
    e->label = calloc((size_t)tp_image_set_classes(e->X) + 1, sizeof *e->label);
    if (!e->label) return tp_trained_fail(&f->t, "out of memory");
    eval_warn(s->command, tp_image_set_note(e->X));
    return fits(f, names, e->X, s, e->label);
}

void eval_set_close(eval_set *e)
{
    free(e->label);
    tp_image_set_close(e->X);
    *e = (eval_set){ 0 };
}

bool eval_score(score *v, image_file *f, const tp_image_set *X, const score_opts *o)
{
    if (!score_run(v, f->t.T, f->m, X, o)) return tp_trained_fail(&f->t, "%s", v->why);
    if (v->count == 0) return tp_trained_fail(&f->t, "none of the images could be read");
    return isfinite(v->loss) ||
           tp_trained_fail(&f->t,
                           "the loss is %g: the weights in %s are bad, or --dtype is too narrow "
                           "for them",
                           v->loss, f->t.path);
}

void eval_warn(const char *command, const char *warning)
{
    char line[4200];
    if (warning[0]) fprintf(stderr, "%s: %s\n", command, plain_line(warning, line, sizeof line));
}

void eval_skipped(const char *command, const char *name, const char *why)
{
    char line[4200], reason[1200];
    fprintf(stderr, "%s: skipped: %s: %s\n", command, plain_line(name, line, sizeof line),
            plain_line(why, reason, sizeof reason));
}

/* ---- scores ---- */

void score_top(const float *logits, int64_t classes, int n, int32_t *best)
{
    int found = 0;
    for (int k = 0; k < n; k++) best[k] = -1;
    for (int32_t c = 0; c < classes; c++) {
        int at = found;
        while (at > 0 && logits[c] > logits[best[at - 1]]) at--;
        if (at == n) continue;
        found += found < n;
        memmove(best + at + 1, best + at, (size_t)(found - at - 1) * sizeof *best);
        best[at] = c;
    }
}

static void count(score *s, const float *logits, int64_t classes, int32_t label)
{
    int32_t best[5];
    score_top(logits, classes, 5, best);
    s->count++;
    s->top1 += best[0] == label;
    for (int k = 0; k < 5; k++) s->top5 += best[k] == label;
    s->confusion[label * classes + best[0]]++;
}

static bool fail(score *s, const char *why)
{
    snprintf(s->why, sizeof s->why, "%s", why);
    return false;
}

/* A batch's scratch: [batch,classes], [batch]. */
typedef struct scratch {
    float *logits;
    int32_t *label;
} scratch;

static bool run_batch(score *s, tp_tape *T, const classifier *m, const tp_image_batch *b, scratch w,
                      const score_opts *o)
{
    const int64_t C = m->cfg.classes;
    for (int64_t i = 0; i < b->n; i++)
        w.label[i] = o->label_of ? o->label_of[b->label[i]] : b->label[i];
    tp_reset(T);
    const tp_tensor x = classifier_input(T, m, b->x, b->n);
    const tp_tensor y = tp_from(T, TP_I32, TP_SHAPE(b->n), w.label);
    const tp_tensor z = classifier_forward(T, m, x);
    s->loss += tp_item(T, tp_cross_entropy(T, z, y, TP_SUM));
    if (!tp_read(T, tp_cast(T, z, TP_F32), w.logits, (size_t)(b->n * C) * sizeof *w.logits))
        return fail(s, tp_why(T));
    for (int64_t i = 0; i < b->n; i++) {
        count(s, w.logits + i * C, C, w.label[i]);
        if (o->each) o->each(o->env, b->index[i], w.label[i], w.logits + i * C);
    }
    return true;
}

static bool run_batches(score *s, tp_tape *T, const classifier *m, tp_loader *L,
                        const score_opts *o)
{
    const scratch w = { .logits = malloc((size_t)(o->batch * m->cfg.classes) * sizeof *w.logits),
                        .label = malloc((size_t)o->batch * sizeof *w.label) };
    tp_image_batch b;
    bool done = w.logits && w.label && s->confusion ? true : fail(s, "out of memory");
    while (done && tp_image_loader_next(L, &b)) {
        done = run_batch(s, T, m, &b, w, o);
        if (o->go_on && !o->go_on(o->env, s)) break;
    }
    tp_reset(T);
    free(w.logits);
    free(w.label);
    s->skipped = tp_loader_skipped(L);
    if (done && !tp_loader_ok(L)) done = fail(s, tp_loader_why(L));
    return done;
}

bool score_run(score *s, tp_tape *T, const classifier *m, const tp_image_set *X,
               const score_opts *o)
{
    const int64_t C = m->cfg.classes;
    *s = (score){ .confusion = calloc((size_t)(C * C), sizeof *s->confusion) };
    tp_loader *L = tp_image_loader_new(X, &(tp_image_loader_opts){ .augment = o->augment,
                                                                   .batch = o->batch,
                                                                   .threads = o->workers,
                                                                   .seed = o->seed,
                                                                   .strict = o->strict,
                                                                   .bad = o->bad,
                                                                   .env = o->env,
                                                                   .share = o->share });
    bool done = run_batches(s, T, m, L, o);
    tp_loader_free(L);
    return done;
}

/* Replaces n counts by their totals, a part at a time. */
static void total_counts(int64_t *count, int64_t n, tp_run *R)
{
    enum { PART = 1024 };
    double x[PART];
    for (int64_t at = 0; at < n; at += PART) {
        const int64_t m = n - at < PART ? n - at : PART;
        for (int64_t i = 0; i < m; i++) x[i] = (double)count[at + i];
        tp_run_total(R, x, (int)m);
        for (int64_t i = 0; i < m; i++) count[at + i] = (int64_t)x[i];
    }
}

void score_total(score *s, int64_t classes, tp_run *R)
{
    int64_t few[] = { s->count, s->top1, s->top5, s->skipped };
    total_counts(few, sizeof few / sizeof *few, R);
    tp_run_total(R, &s->loss, 1);
    if (s->confusion) total_counts(s->confusion, classes * classes, R);
    s->count = few[0];
    s->top1 = few[1];
    s->top5 = few[2];
    s->skipped = few[3];
}

void score_free(score *s)
{
    free(s->confusion);
    s->confusion = NULL;
}

double score_percent(int64_t part, int64_t of)
{
    return of > 0 ? 100.0 * (double)part / (double)of : NAN;
}
