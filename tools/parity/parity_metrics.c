/* parity_metrics.c - the kind of evaluation metrics: top-k, labels of several classes, test sets
 * with a part of ImageNet's classes, superclasses, corruptions. All in percent. */
#include <string.h>
#include <tapegrad/test_sets.h>

#include "parity_case.h"

/* Logits [n,classes] with labels [n,m] of each row. */
typedef struct rows {
    int64_t n, classes;
    int m;
    const float *logits;
    const int64_t *labels;
} rows;

static rows read_rows(parity *p, const char *logits, const char *labels)
{
    tp_shape s = { 0 }, t = { 0 };
    const float *x = par_floats(p, logits, &s);
    rows r = { .labels = par_integers(p, labels, &t), .m = 1 };
    if (!x || !r.labels) return r;
    if (s.ndim != 2 || t.ndim < 1 || t.ndim > 2 || t.dim[0] != s.dim[0]) {
        par_fail(p, "%s must be [rows,classes], with labels for each row", logits);
        return r;
    }
    r.logits = x;
    r.classes = s.dim[1];
    if (t.ndim == 2) r.m = (int)t.dim[1];
    r.n = s.dim[0];
    return r;
}

/* Compares the share of correct rows, in percent. */
static void check_share(parity *p, const char *output, int64_t right, int64_t all)
{
    par_check_one(p, par_name(p, "output.%s", output), 100.0 * (double)right / (double)all, 1e-6);
}

/* Rows without any label are not counted. */
static void check_top(parity *p, const rows *r, int k, const char *output)
{
    int64_t right = 0, all = 0;
    for (int64_t i = 0; i < r->n; i++) {
        const int64_t *labels = r->labels + i * r->m;
        bool any = false;
        for (int j = 0; j < r->m; j++) any |= labels[j] >= 0;
        all += any;
        right += tp_in_top(r->logits + i * r->classes, r->classes, k, labels, r->m);
    }
    check_share(p, output, right, all);
}

/* Labels of a set; free: as predicted among all classes. */
static void check_set(parity *p, const char *name, tp_test_set set, const char *output,
                      const char *free)
{
    const rows r =
        read_rows(p, par_name(p, "input.logits_%s", name), par_name(p, "input.labels_%s", name));
    int64_t right = 0, right_free = 0;
    if (r.n && r.classes != TP_IMAGENET_CLASSES)
        par_fail(p, "input.logits_%s must have %d columns", name, TP_IMAGENET_CLASSES);
    for (int64_t i = 0; i < r.n && !p->failed; i++) {
        const float *x = r.logits + i * r.classes;
        right += tp_test_set_predict(set, x) == r.labels[i];
        right_free += tp_test_set_label(set, tp_test_set_predict(TP_TEST_ALL, x)) == r.labels[i];
    }
    if (p->failed) return;
    check_share(p, output, right, r.n);
    if (free) check_share(p, free, right_free, r.n);
}

static void check_corruptions(parity *p)
{
    tp_shape s = { 0 };
    const double *x = par_values(p, "input.corruption_error", &s);
    double error[TP_CORRUPTIONS][TP_SEVERITIES], relative[TP_CORRUPTIONS], mean = 0.0;
    if (!x || par_numel(s) != TP_CORRUPTIONS * TP_SEVERITIES) {
        par_fail(p, "input.corruption_error must be [%d,%d]", TP_CORRUPTIONS, TP_SEVERITIES);
        return;
    }
    memcpy(error, x, sizeof error);
    const double mce = tp_corruption_errors((const double(*)[TP_SEVERITIES])error, relative);
    for (int i = 0; i < TP_CORRUPTIONS; i++) relative[i] *= 100.0;
    for (int64_t i = 0; i < par_numel(s); i++) mean += 100.0 * x[i] / (double)par_numel(s);
    par_check(p, "output.ce", relative, TP_CORRUPTIONS, 1e-6);
    par_check_one(p, "output.mce", 100.0 * mce, 1e-6);
    par_check_one(p, "output.mean_unnormalised_error", mean, 1e-6);
}

void par_run_metrics(parity *p)
{
    const rows plain = read_rows(p, "input.logits", "input.labels");
    const rows real = read_rows(p, "input.logits", "input.real_labels");
    if (p->failed) return;
    check_top(p, &plain, 1, "top1");
    check_top(p, &plain, 5, "top5");
    check_top(p, &real, 1, "real_top1");
    check_top(p, &real, 5, "real_top5");
    check_set(p, "a", TP_TEST_A, "imagenet_a", "imagenet_a_without_restriction");
    check_set(p, "r", TP_TEST_R, "imagenet_r", "imagenet_r_without_restriction");
    check_set(p, "in9", TP_TEST_9, "imagenet9", NULL);
    check_corruptions(p);
}
