/* text_score.c - batches of texts for a model, and the model's scores on a set of them. Logits are compared in double on the host. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "imdb.h"

enum { ALL_BATCHES = INT32_MAX };

/* ---- batches ---- */

tp_document_loader_opts text_batches(const tp_roberta_cfg *c, text_batching how)
{
    const int64_t step = c->kind == TP_ROBERTA_LS           ? c->window
                         : c->kind == TP_ROBERTA_LONGFORMER ? c->window / 2
                                                            : 1;
    tp_document_loader_opts o = {
        .batch = how.batch, .bucket = how.bucket, .packed = how.packed, .pad = TP_ROBERTA_PAD
    };
    if (how.packed || step <= 1) return o;
    o.multiple = step;
    o.beyond = c->kind == TP_ROBERTA_LS;
    return o;
}

static bool is_packed(const tp_tensor slot[TEXT_SLOTS])
{
    return tp_ndim(slot[0]) == 1;
}

tp_tensor text_labels(const tp_tensor slot[TEXT_SLOTS])
{
    return slot[is_packed(slot) ? 3 : 2];
}

tp_tensor text_logits(tp_tape *T, const text_model *m, const tp_tensor slot[TEXT_SLOTS])
{
    const tp_roberta *net = model_of(m);
    tp_tensor z;
    if (is_packed(slot)) {
        const tp_packed of = { slot[2], m->cfg.length };
        z = tp_roberta_forward_packed(
            T, net, (tp_roberta_packed){ .ids = slot[0], .position = slot[1], .of = of });
    } else {
        const tp_roberta_in in = { .ids = slot[0], .mask = slot[1] };
        z = tp_roberta_classify(T, net, tp_roberta_encode(T, net, in));
    }
    return tp_compute_dtype(T) == TP_BF16 ? tp_cast(T, z, TP_F32) : z;
}

/* ---- scores ---- */

double text_score_accuracy(const text_score *s)
{
    return s->count > 0 ? 100.0 * (double)s->right / (double)s->count : (double)NAN;
}

double text_score_loss(const text_score *s)
{
    return s->count > 0 ? s->loss / (double)s->count : (double)NAN;
}

int64_t text_best(const float *logits, int64_t classes)
{
    int64_t best = 0;
    for (int64_t c = 0; c < classes; c++) {
        if (isnan(logits[c])) return -1;
        if (logits[c] > logits[best]) best = c;
    }
    return best;
}

double text_cross_entropy(const float *logits, int64_t classes, int32_t label)
{
    double top = (double)logits[0], sum = 0;
    for (int64_t c = 1; c < classes; c++) /* gcc 12 for ARM64 fails on fmax here */
        if ((double)logits[c] > top) top = (double)logits[c];
    for (int64_t c = 0; c < classes; c++) sum += exp((double)logits[c] - top);
    return log(sum) + top - (double)logits[label];
}

static void count(text_score *s, const float *z, int32_t label)
{
    const int64_t best = text_best(z, s->classes);
    s->count++;
    s->right += best == label;
    s->loss += text_cross_entropy(z, s->classes, label);
    if (best >= 0) s->confusion[label * s->classes + best]++;
}

static void put(tp_tape *T, const tp_document_batch *b, tp_tensor slot[TEXT_SLOTS])
{
    const tp_shape padded = TP_SHAPE(b->n, b->length[0]), packed = TP_SHAPE(b->length[0]);
    if (b->offset[0]) {
        slot[0] = tp_from(T, TP_I32, packed, b->ids[0]);
        slot[1] = tp_from(T, TP_I32, packed, b->position[0]);
        slot[2] = tp_from(T, TP_I32, TP_SHAPE(b->n + 1), b->offset[0]);
    } else {
        slot[0] = tp_from(T, TP_I32, padded, b->ids[0]);
        slot[1] = tp_from(T, TP_U8, padded, b->mask[0]);
    }
}

static bool run_batch(text_score *s, tp_tape *T, const text_model *m, const tp_document_batch *b,
                      float *logits, const text_watch *w)
{
    const int64_t C = s->classes;
    tp_tensor slot[TEXT_SLOTS];
    tp_reset(T);
    put(T, b, slot);
    const tp_tensor z = tp_cast(T, text_logits(T, m, slot), TP_F32);
    if (!tp_read(T, z, logits, (size_t)(b->n * C) * sizeof *logits)) {
        snprintf(s->why, sizeof s->why, "%s", tp_why(T));
        return false;
    }
    for (int64_t i = 0; i < b->n; i++) {
        count(s, logits + i * C, b->label[i]);
        if (w->each) w->each(w->env, b->index[i], b->label[i], logits + i * C);
    }
    return true;
}

bool text_score_run(text_score *s, tp_tape *T, const text_model *m, const tp_documents *X,
                    text_batching how, text_watch w)
{
    how.bucket = how.packed ? 0 : ALL_BATCHES;
    const tp_document_loader_opts o = text_batches(&m->cfg, how);
    const int64_t n = tp_documents_count(X), rows = how.batch < n ? how.batch : n,
                  C = m->cfg.classes;
    tp_document_batch b;
    *s = (text_score){ .classes = C, .confusion = calloc((size_t)(C * C), sizeof *s->confusion) };
    tp_loader *L = tp_document_loader_new(X, &o);
    float *logits = malloc((size_t)(rows * C + 1) * sizeof *logits);
    bool done = logits && s->confusion;
    if (!done) snprintf(s->why, sizeof s->why, "out of memory");
    while (done && tp_document_loader_next(L, &b)) {
        done = run_batch(s, T, m, &b, logits, &w);
        if (w.go_on && !w.go_on(w.env, s)) break;
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

void text_score_free(text_score *s)
{
    free(s->confusion);
    s->confusion = NULL;
}
