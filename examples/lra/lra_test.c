/* lra_test.c - the end of `lra train`: the best model on the test part, as test.json in the run's folder. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lra_report.h"
#include "lra_run.h"

typedef struct progress {
    tp_run *R;
    tp_ticker line;
} progress;

static bool tick(void *env, const doc_score *s)
{
    progress *p = env;
    if (tp_ticker_due(&p->line))
        tp_ticker_draw(&p->line, s->count, "test accuracy %.2f %%", doc_score_accuracy(s));
    return !tp_run_stopped(p->R);
}

/* Loads the weights of best.safetensors. A damaged file costs the test, not the run. */
static bool load_best(tp_run *R, const char *path)
{
    const lra_run *t = R->state;
    tp_file *F = tp_file_open(path);
    const char *why = tp_file_why(F);
    const bool there = tp_file_ok(F), done = there && tp_net_load(R->P, t->m.net, F, false);
    if (!done) tp_run_say(R, "the best model is not tested: %s", there ? tp_params_why(R->P) : why);
    tp_file_close(F);
    return done;
}

static void test(tp_run *R, const tp_documents *X)
{
    const lra_settings *s = R->settings;
    const lra_run *t = R->state;
    progress p = { R, tp_ticker_start("examples", tp_documents_count(X)) };
    char path[4400], why[4800];
    doc_score v;
    const bool done = doc_score_run(&v, R->E, &t->m, X, lra_batching(s), tick, &p);
    tp_ticker_end(&p.line);
    if (!done) tp_run_fail(R, "%s", v.why);
    if (!done || tp_stop_signal() || !tp_run_ok(R)) return;
    const lra_report r = { .v = &v, .part = "test", .seconds = tp_seconds() - p.line.began };
    tp_run_path(R, "test.json", path, sizeof path);
    if (!lra_report_write(&r, path, why, sizeof why)) tp_run_fail(R, "%s", why);
    tp_run_say(R, "test: %lld examples: loss %.4f, accuracy %.2f %%; of whole batches %.2f %%",
               (long long)v.count, doc_score_loss(&v), doc_score_accuracy(&v),
               doc_score_official(&v));
}

void lra_forget_test(tp_run *R)
{
    char path[4400];
    unlink(tp_run_path(R, "test.json", path, sizeof path));
}

void lra_test_best(tp_run *R)
{
    const lra_settings *s = R->settings;
    char path[4400];
    tp_run_path(R, "best.safetensors", path, sizeof path);
    if (tp_stop_signal() || (access(path, F_OK) != 0 && errno == ENOENT)) return;
    lra_run *t = R->state;
    if (!t->X[TP_TEST]) t->X[TP_TEST] = task_open(&s->d, (task_view){ .part = TP_TEST });
    const tp_documents *X = t->X[TP_TEST];
    if (!tp_documents_ok(X))
        tp_run_fail(R, "%s", tp_documents_why(X));
    else if (load_best(R, path))
        test(R, X);
}
