/* documents.c - document classifiers, as `lra` and `imdb train` train and score them. */
#include "documents.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/random.h>

/* ---- batches ---- */

static void put(tp_tape *T, tp_tensor *slot, tp_dtype dtype, tp_shape s, const void *values,
                bool stay)
{
    if (stay)
        tp_feed(T, slot, dtype, s, values);
    else
        *slot = tp_from(T, dtype, s, values);
}

void doc_put(tp_tape *T, const tp_document_batch *b, bool stay, tp_tensor slot[DOC_SLOTS])
{
    int c = 0;
    for (int k = 0; k < 2 && b->ids[k]; k++) {
        const tp_shape padded = TP_SHAPE(b->n, b->length[k]), packed = TP_SHAPE(b->length[k]);
        put(T, &slot[c++], TP_I32, b->offset[k] ? packed : padded, b->ids[k], stay);
        if (b->offset[k]) {
            put(T, &slot[c++], TP_I32, packed, b->position[k], stay);
            put(T, &slot[c++], TP_I32, TP_SHAPE(b->n + 1), b->offset[k], stay);
        } else {
            put(T, &slot[c++], TP_U8, padded, b->mask[k], stay);
        }
    }
    put(T, &slot[c], TP_I32, TP_SHAPE(b->n), b->label, stay);
}

int doc_slots(const tp_tensor slot[DOC_SLOTS])
{
    return tp_ndim(slot[0]) == 1 ? 3 : 2;
}

double doc_mean_length(const tp_documents *X, double *deviation)
{
    const int64_t count = tp_documents_count(X), documents = tp_documents_per_example(X);
    const double all = (double)(count * documents);
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < count; i++)
        for (int k = 0; k < documents; k++) {
            int64_t n;
            tp_documents_ids(X, i, k, &n);
            sum += (double)n;
            squares += (double)n * (double)n;
        }
    const double mean = count > 0 ? sum / all : 0;
    if (deviation) *deviation = count > 0 ? sqrt(fmax(squares / all - mean * mean, 0)) : 0;
    return mean;
}

/* ---- training ---- */

bool doc_noise_make(doc_noise *z, const doc_noise_opts *o)
{
    const int64_t n = o->n, length = o->length, cells = n * length;
    tp_random r = tp_random_stream(1, "trial", 0, 0);
    *z = (doc_noise){ .number = malloc((size_t)(2 * cells + 2 * n + 1) * sizeof *z->number),
                      .ones = malloc((size_t)cells) };
    if (!z->number || !z->ones) return false;
    int32_t *place = z->number + cells, *label = place + cells, *offset = label + n;
    for (int64_t i = 0; i < cells; i++) {
        z->number[i] = (int32_t)(o->first + tp_random_below(&r, o->ids - o->first));
        place[i] = (int32_t)(i % length);
    }
    memset(z->ones, 1, (size_t)cells);
    for (int64_t i = 0; i < n; i++) label[i] = (int32_t)(i % o->classes);
    for (int64_t i = 0; i <= n; i++) offset[i] = (int32_t)(i * length);
    z->b = (tp_document_batch){ .n = n, .label = label };
    for (int k = 0; k < o->documents; k++) {
        z->b.length[k] = o->packed ? cells : length;
        z->b.ids[k] = z->number;
        z->b.mask[k] = z->ones;
        z->b.position[k] = o->packed ? place : NULL;
        z->b.offset[k] = o->packed ? offset : NULL;
    }
    return true;
}

void doc_noise_free(doc_noise *z)
{
    free(z->number);
    free(z->ones);
}

int64_t doc_packed_length(const tp_documents *X, int64_t batch)
{
    double deviation;
    const double mean = doc_mean_length(X, &deviation), longest = (double)tp_documents_longest(X);
    return (int64_t)fmin(ceil(mean + 5 * deviation / sqrt((double)batch)), longest);
}

int64_t doc_next(tp_run *R, tp_loader *L, tp_tensor slot[DOC_SLOTS])
{
    const int64_t steps = tp_loader_steps(L);
    const int64_t n = tp_loader_feed(L, R->T, R->batch / steps, R->batch % steps, slot);
    int64_t tokens = 0;
    R->targets = n;
    if (n == 0 && tp_ok(R->T)) tp_run_fail(R, "%s", tp_loader_why(L));
    const int labels = tp_document_loader_slots(L) - 1;
    for (int k = 0; n > 0 && k < labels; k += doc_slots(slot)) tokens += tp_numel(slot[k]);
    return tokens;
}

void doc_keep_end(tp_run *R, const tp_file *from)
{
    const tp_train_settings *o = R->settings;
    const char *former = tp_file_meta(from, "train.steps");
    const bool shaped = o->schedule != TP_RATE_CONSTANT && o->schedule != TP_RATE_STEP &&
                        o->schedule != TP_RATE_PLATEAU;
    if (former && shaped && strtoll(former, NULL, 10) != o->steps)
        tp_run_fail(R, "%s: its schedule ends at update %.20s, which --steps cannot change",
                    tp_file_path(from), former);
}

void doc_add_tokens(tp_run *R, int64_t *tokens, int64_t *own)
{
    double n = (double)*own;
    tp_run_total(R, &n, 1);
    *tokens += (int64_t)n;
    *own = 0;
}

void doc_read_tokens(tp_run *R, tp_file *F, int64_t *tokens)
{
    tp_file_int(F, "tokens", tokens);
    if (*tokens < 0 || *tokens > INT64_C(1) << 60)
        tp_run_fail(R, "%s: 'tokens' is out of range", tp_file_path(F));
}

/* ---- scores ---- */

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

int64_t doc_best(const float *logits, int64_t classes)
{
    int64_t best = 0;
    for (int64_t c = 0; c < classes; c++) {
        if (isnan(logits[c])) return -1;
        if (logits[c] > logits[best]) best = c;
    }
    return best;
}

double doc_cross_entropy(const float *logits, int64_t classes, int32_t label)
{
    double top = (double)logits[0], sum = 0;
    for (int64_t c = 1; c < classes; c++) /* gcc 12 for ARM64 fails on fmax here */
        if ((double)logits[c] > top) top = (double)logits[c];
    for (int64_t c = 0; c < classes; c++) sum += exp((double)logits[c] - top);
    return log(sum) + top - (double)logits[label];
}

/* whole: examples with smaller numbers are in whole batches. */
static bool run_batch(doc_score *s, tp_tape *T, const doc_model *m, const tp_document_batch *b,
                      float *logits, int64_t whole, const doc_watch *w)
{
    const int64_t C = m->classes;
    tp_tensor slot[DOC_SLOTS];
    tp_reset(T);
    doc_put(T, b, false, slot);
    const tp_tensor z = tp_cast(T, m->logits(T, m->m, slot), TP_F32);
    if (!tp_read(T, z, logits, (size_t)(b->n * C) * sizeof *logits)) {
        snprintf(s->why, sizeof s->why, "%s", tp_why(T));
        return false;
    }
    for (int64_t i = 0; i < b->n; i++) {
        const float *own = logits + i * C;
        const bool right = doc_best(own, C) == b->label[i], in_whole = b->index[i] < whole;
        s->count++;
        s->right += right;
        s->whole_count += in_whole;
        s->whole_right += in_whole && right;
        s->loss += doc_cross_entropy(own, C, b->label[i]);
        if (w->each) w->each(w->env, b->index[i], b->label[i], own);
    }
    return true;
}

bool doc_score_run(doc_score *s, tp_tape *T, const doc_model *m, const tp_documents *X,
                   const tp_document_loader_opts *o, doc_watch w)
{
    const int64_t all = o->batch * (o->share.ranks > 1 ? o->share.ranks : 1);
    const int64_t n = tp_documents_count(X), whole = n - n % all;
    const int64_t rows = o->batch < n ? o->batch : n;
    tp_document_batch b;
    *s = (doc_score){ 0 };
    tp_loader *L = tp_document_loader_new(X, o);
    float *logits = malloc((size_t)(rows * m->classes + 1) * sizeof *logits);
    bool done = logits != NULL;
    if (!done) snprintf(s->why, sizeof s->why, "out of memory");
    while (done && tp_document_loader_next(L, &b)) {
        done = run_batch(s, T, m, &b, logits, whole, &w);
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

void doc_score_total(doc_score *s, tp_run *R)
{
    double x[] = { (double)s->count, (double)s->right, (double)s->whole_count,
                   (double)s->whole_right, s->loss };
    tp_run_total(R, x, sizeof x / sizeof *x);
    s->count = (int64_t)x[0];
    s->right = (int64_t)x[1];
    s->whole_count = (int64_t)x[2];
    s->whole_right = (int64_t)x[3];
    s->loss = x[4];
}

bool doc_not_stopped(void *run, const doc_score *so_far)
{
    (void)so_far;
    return !tp_run_stopped(run);
}
