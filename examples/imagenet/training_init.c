/* training_init.c - beginning with the weights of another run: of the same model, but perhaps for
 * other classes or pictures of another size.
 *
 * The weights are loaded into a second model with the file's classes and this run's size; what both
 * share is copied, and of the head what --head says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "training.h"

static bool check_size(training *t, const classifier_cfg *theirs)
{
    const char *what = classifier_resizing(&t->cfg);
    if (theirs->size == t->cfg.size || !what || t->s.resize) return true;
    return training_fail(t,
                         "%s was trained on pictures of %lld pixels, this run has %lld: %s. "
                         "--resize does that, --size %lld trains at the former size",
                         t->s.init, (long long)theirs->size, (long long)t->cfg.size, what,
                         (long long)theirs->size);
}

static bool check_head(training *t, const classifier_cfg *theirs)
{
    const long long there = theirs->classes, here = t->cfg.classes;
    if (there == here || t->s.head == HEAD_NEW) return true;
    if (t->s.head == HEAD_SLICE && there > here) return true;
    return training_fail(
        t,
        "the head of %s has %lld classes, the pictures have %lld: --head new begins "
        "with a new head%s",
        t->s.init, there, here, there > here ? ", --head slice with its first rows" : "");
}

/* What a parameter of both models takes over: all of it, or the first rows of the head's. */
static bool copy_values(training *t, tp_params *from, const tp_param_info *it)
{
    const bool of_head = strncmp(it->name, "head.", 5) == 0;
    const tp_tensor there = tp_find(from, it->name);
    int64_t n = 1;
    if (it->alias_of || !tp_given(there) || (of_head && t->s.head == HEAD_NEW)) return true;
    if (it->dtype != TP_F32 && it->dtype != TP_F64) return true;
    for (int i = 0; i < it->shape.ndim; i++) n *= it->shape.dim[i];
    for (tp_param_info other = { 0 }; tp_next_param(from, &other);) {
        if (strcmp(other.name, it->name) != 0) continue;
        int64_t rows = 1;
        for (int i = 0; i < other.shape.ndim; i++) rows *= other.shape.dim[i];
        const size_t bytes = (size_t)rows * sizeof(double);
        double *x = malloc(bytes);
        bool done = x || training_fail(t, "out of memory");
        if (done && !tp_param_get(from, other.tensor, TP_F64, x, bytes))
            done = training_fail(t, "%s", tp_params_why(from));
        if (done && !tp_param_set(t->P, it->tensor, TP_F64, x, (size_t)n * sizeof *x))
            done = training_fail(t, "%s", tp_params_why(t->P));
        free(x);
        return done;
    }
    return true;
}

static bool transfer(training *t, tp_file *F, classifier_cfg theirs)
{
    tp_params *Q = tp_params_new(t->D, &(tp_params_opts){ .seed = (uint64_t)t->s.c.seed });
    classifier *m = calloc(1, sizeof *m);
    const bool resized = theirs.size != t->cfg.size;
    bool done = m || training_fail(t, "out of memory");
    const int64_t classes = theirs.classes;
    theirs = t->cfg;
    classifier_fit(&theirs, t->cfg.size, classes);
    if (done) classifier_init(Q, m, &theirs);
    if (done && !(resized ? classifier_load_resized(Q, m, F) : classifier_weights(Q, F)))
        done = training_fail(t, "%s", tp_params_why(Q));
    for (tp_param_info it = { 0 }; done && tp_next_param(t->P, &it);) done = copy_values(t, Q, &it);
    tp_params_free(Q);
    free(m);
    return done;
}

bool training_init(training *t)
{
    classifier_cfg theirs;
    char why[2048];
    tp_file *F = tp_file_open(t->s.init);
    bool done = classifier_read(&theirs, F, why, sizeof why) || training_fail(t, "%s", why);
    if (done && theirs.kind != t->cfg.kind)
        done = training_fail(t, "%s holds another model: %s, not %s", t->s.init,
                             classifier_family(&theirs), classifier_family(&t->cfg));
    if (done && !classifier_same(&theirs, &t->cfg))
        done =
            training_fail(t, "%s holds a %s of other widths, depths or attention than --preset %s",
                          t->s.init, classifier_family(&theirs), t->s.preset);
    done = done && check_size(t, &theirs) && check_head(t, &theirs) && transfer(t, F, theirs);
    tp_file_close(F);
    return done;
}
