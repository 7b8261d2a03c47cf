/* doc_score.c - see the header. Logits are compared in double on the host. */
#include "doc_score.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

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
