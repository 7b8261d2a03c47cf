/* lra_score.c - scores of an encoder on a set of documents, and how they are told. Logits are compared in double on the
 * host. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/file.h>

#include "lra.h"

enum { ALL_BATCHES = INT32_MAX };

static double percent(int64_t part, int64_t of)
{
    return of > 0 ? 100.0 * (double)part / (double)of : (double)NAN;
}

double doc_score_accuracy(const doc_score *s)
{
    return percent(s->right, s->count);
}

double doc_score_official(const doc_score *s)
{
    return percent(s->whole_right, s->whole_count);
}

double doc_score_loss(const doc_score *s)
{
    return s->count > 0 ? s->loss / (double)s->count : (double)NAN;
}

/* Counts one example: z are its logits. NaN is never right. */
static void count(doc_score *s, const float *z, int64_t classes, int32_t label, bool whole)
{
    int64_t best = 0;
    double sum = 0;
    for (int64_t c = 1; c < classes; c++)
        if (!(z[c] <= z[best])) best = c;
    for (int64_t c = 0; c < classes; c++) sum += exp((double)z[c] - (double)z[best]);
    const bool right = best == label && !isnan(sum);
    s->count++;
    s->right += right;
    s->whole_count += whole;
    s->whole_right += whole && right;
    s->loss += log(sum) + (double)z[best] - (double)z[label];
}

/* whole: the examples in whole batches are those with smaller numbers. */
static bool run_batch(doc_score *s, tp_tape *T, const encoder *m, const tp_document_batch *b,
                      float *logits, int64_t whole)
{
    const int64_t C = m->cfg.classes;
    tp_tensor slot[ENCODER_SLOTS];
    tp_reset(T);
    encoder_put(T, m, b, false, slot);
    const tp_tensor z = tp_cast(T, encoder_logits(T, m, slot), TP_F32);
    if (!tp_read(T, z, logits, (size_t)(b->n * C) * sizeof *logits)) {
        snprintf(s->why, sizeof s->why, "%s", tp_why(T));
        return false;
    }
    for (int64_t i = 0; i < b->n; i++)
        count(s, logits + i * C, C, b->label[i], b->index[i] < whole);
    return true;
}

bool doc_score_run(doc_score *s, tp_tape *T, const encoder *m, const tp_documents *X,
                   encoder_batching how, doc_score_fn go_on, void *env)
{
    how.bucket = how.bucket > 1 && !how.packed ? ALL_BATCHES : 0;
    const tp_document_loader_opts o = encoder_batches(&m->cfg, how);
    const int64_t n = tp_documents_count(X), whole = n - n % how.batch;
    const int64_t rows = how.batch < n ? how.batch : n;
    tp_document_batch b;
    *s = (doc_score){ 0 };
    tp_loader *L = tp_document_loader_new(X, &o);
    float *logits = malloc((size_t)(rows * m->cfg.classes + 1) * sizeof *logits);
    bool done = logits != NULL;
    if (!done) snprintf(s->why, sizeof s->why, "out of memory");
    while (done && tp_document_loader_next(L, &b)) {
        done = run_batch(s, T, m, &b, logits, whole);
        if (go_on && !go_on(env, s)) break;
    }
    tp_reset(T);
    if (done && !tp_loader_ok(L)) {
        snprintf(s->why, sizeof s->why, "%s", tp_loader_why(L));
        done = false;
    }
    free(logits);
    tp_loader_free(L);
    return done;
}

/* ---- reports ---- */

static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

json_t *lra_report_json(const lra_report *r)
{
    const doc_score *v = r->v;
    return json_pack("{s:s,s:I,s:o,s:o,s:I,s:o,s:b,s:f}", "part", r->part, "examples",
                     (json_int_t)v->count, "loss", number(doc_score_loss(v)), "accuracy",
                     number(doc_score_accuracy(v)), "official_examples", (json_int_t)v->whole_count,
                     "official_accuracy", number(doc_score_official(v)), "stopped", (int)r->stopped,
                     "seconds", r->seconds);
}

static bool print_json(FILE *out, const lra_report *r)
{
    json_t *line = lra_report_json(r);
    const bool done = line && json_dumpf(line, out, JSON_REAL_PRECISION(9)) == 0;
    json_decref(line);
    return done && fputc('\n', out) != EOF;
}

bool lra_report_print(FILE *out, bool json, const lra_report *r)
{
    const doc_score *v = r->v;
    if (json) return print_json(out, r);
    fprintf(out, "%s%lld %s examples: loss %.4f, accuracy %.2f %%",
            r->stopped ? "stopped after " : "", (long long)v->count, r->part, doc_score_loss(v),
            doc_score_accuracy(v));
    if (v->whole_count > 0 && v->whole_count < v->count)
        fprintf(out, "; %.2f %% of the first %lld, in whole batches", doc_score_official(v),
                (long long)v->whole_count);
    return fprintf(out, "; %.0f examples/s\n", (double)v->count / r->seconds) > 0;
}

bool lra_report_write(const lra_report *r, const char *path, char *why, size_t size)
{
    json_t *all = lra_report_json(r);
    char *text = all ? json_dumps(all, JSON_REAL_PRECISION(9) | JSON_INDENT(2)) : NULL;
    json_decref(all);
    if (!text) snprintf(why, size, "out of memory");
    const bool done = text && tp_file_replace(path, text, strlen(text), why, size);
    free(text);
    return done;
}
