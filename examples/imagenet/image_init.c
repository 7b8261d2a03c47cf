/* image_init.c - --init: starts from weights of the same model, possibly with other classes or
 * another image size.
 *
 * Loads them into a second model with the file's classes and this run's size. Copies shared
 * parameters; --head decides which of the head's. */
#include <stdlib.h>
#include <string.h>

#include "image_file.h"
#include "image_run.h"
#include "names/class_names.h"

static bool fits_size(tp_run *R, const char *file, const classifier_cfg *theirs)
{
    const image_settings *s = R->settings;
    const classifier_cfg *ours = &((const image_run *)R->state)->cfg;
    const char *what = classifier_resizing(ours);
    if (theirs->size == ours->size || !what || s->resize) return true;
    tp_run_fail(R,
                "%s was trained on images of %lld pixels, this run has %lld: %s. Give --resize for "
                "that, or --size %lld to train at the old size",
                file, (long long)theirs->size, (long long)ours->size, what,
                (long long)theirs->size);
    return false;
}

static bool fits_head(tp_run *R, const char *file, const classifier_cfg *theirs)
{
    const image_settings *s = R->settings;
    const long long there = theirs->classes, here = ((const image_run *)R->state)->cfg.classes;
    if (there == here || s->head == HEAD_NEW || (s->head == HEAD_SLICE && there > here))
        return true;
    tp_run_fail(R,
                "the head of %s has %lld classes, the images have %lld: "
                "--head new initialises a new head%s",
                file, there, here, there > here ? ", --head slice takes its first rows" : "");
    return false;
}

static bool find(const tp_params *P, const char *name, tp_param_info *it)
{
    *it = (tp_param_info){ 0 };
    while (tp_next_param(P, it))
        if (strcmp(it->name, name) == 0) return true;
    return false;
}

/* Is it a parameter of the head, or of a second head whose name extends the first's
 * ("head_dist.")? */
static bool of_head(const tp_run *R, const char *name)
{
    const char *head = ((const image_run *)R->state)->cfg.of.model->head;
    const char *dot = head ? strrchr(head, '.') : NULL;
    const size_t n = dot ? (size_t)(dot - head) : 0;
    return n > 0 && strncmp(name, head, n) == 0 && (name[n] == '.' || name[n] == '_');
}

/* Copies a parameter of both models; of a head, perhaps only the first rows. */
static void copy_values(tp_run *R, tp_params *from, const tp_param_info *it)
{
    const image_settings *s = R->settings;
    tp_param_info there;
    if (it->alias_of || (s->head == HEAD_NEW && of_head(R, it->name)) ||
        !find(from, it->name, &there))
        return;
    if (it->dtype != TP_F32 && it->dtype != TP_F64) return;
    const size_t bytes = (size_t)tp_numel(there.tensor) * sizeof(double);
    double *x = malloc(bytes);
    if (!x)
        tp_run_fail(R, "out of memory");
    else if (!tp_param_get(from, there.tensor, TP_F64, x, bytes))
        tp_run_fail(R, "%s", tp_params_why(from));
    else if (!tp_param_set(R->P, it->tensor, TP_F64, x, (size_t)tp_numel(it->tensor) * sizeof *x))
        tp_run_fail(R, "%s", tp_params_why(R->P));
    free(x);
}

static void transfer(tp_run *R, tp_file *F, const classifier_cfg *theirs)
{
    const image_settings *s = R->settings;
    const image_run *t = R->state;
    tp_params *Q = tp_params_new(R->D, &(tp_params_opts){ .seed = (uint64_t)s->train.seed });
    classifier *m = calloc(1, sizeof *m);
    classifier_cfg cfg = t->cfg;
    classifier_fit(&cfg, t->cfg.size, theirs->classes);
    if (!m) {
        tp_run_fail(R, "out of memory");
    } else {
        classifier_init(Q, m, &cfg);
        const bool resized = theirs->size != t->cfg.size || s->resize;
        if (!(resized ? classifier_load_resized : classifier_weights)(Q, m, F))
            tp_run_fail(R, "%s", tp_params_why(Q));
    }
    for (tp_param_info it = { 0 }; tp_run_ok(R) && tp_next_param(R->P, &it);)
        copy_values(R, Q, &it);
    tp_params_free(Q);
    classifier_free(m);
}

/* Compares the class names if rows of the old head are kept. */
static void compare_names(tp_run *R, tp_file *from)
{
    const image_run *t = R->state;
    const char *names = tp_file_meta(from, "class_names");
    char why[700];
    if (names && !class_names_agree(names, t->X, why, sizeof why))
        tp_run_say(R,
                   "warning: the head of %s begins with rows of other classes: %s; --head new "
                   "begins with a new head",
                   tp_file_path(from), why);
}

static void say_head(tp_run *R, tp_file *from, const classifier_cfg *theirs)
{
    const image_settings *s = R->settings;
    const long long there = theirs->classes, here = ((const image_run *)R->state)->cfg.classes;
    const char *file = tp_file_path(from);
    if (s->head != HEAD_NEW) compare_names(R, from);
    if (s->head == HEAD_NEW)
        tp_run_say(R, "the head of %s (%lld classes) is left out; a new one of %lld begins", file,
                   there, here);
    else if (there != here)
        tp_run_say(R, "the head of %s has %lld classes; its first %lld are taken", file, there,
                   here);
}

void image_init(tp_run *R, tp_file *from)
{
    const image_settings *s = R->settings;
    const classifier_cfg *ours = &((const image_run *)R->state)->cfg;
    const char *file = tp_file_path(from);
    classifier_cfg theirs;
    char why[2048];
    const bool described = tp_file_meta(from, "model") || tp_file_meta(from, "classifier");
    if (described ? !classifier_read(&theirs, from, why, sizeof why)
                  : !image_file_describe(s->preset, from, &theirs, NULL, why, sizeof why))
        tp_run_fail(R, "%s", why);
    else if (theirs.of.model != ours->of.model)
        tp_run_fail(R, "%s holds another model: %s, not %s; give its --preset or another file",
                    file, classifier_family(&theirs), classifier_family(ours));
    else if (!classifier_same(&theirs, ours))
        tp_run_fail(R,
                    "%s holds a %s with other widths, depths or attention than --preset %s; "
                    "give its preset or another file",
                    file, classifier_family(&theirs), s->preset);
    else if (fits_size(R, file, &theirs) && fits_head(R, file, &theirs)) {
        transfer(R, from, &theirs);
        if (tp_run_ok(R)) say_head(R, from, &theirs);
    }
}
