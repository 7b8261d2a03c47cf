/* eval_set.c - see the header. */
#include "eval_set.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "reports/plain_text.h"

/* label[k] becomes the model's class for class k of the images. */
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
