/* explain.c - see the header. The log odds of a class are its logit minus the log of the sum of the others' exp: their
 * gradient does not vanish where the probability is 1. */
#include "explain.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/observe.h>

#include "text_score.h"

/* ---- gradients ---- */

/* Keeps the first lookup in the table of words, the input of the model. */
typedef struct lookup {
    tp_tensor words, rows;
} lookup;

static void watch(void *env, tp_tape *T, const tp_seen *s)
{
    lookup *l = env;
    if (!tp_given(l->rows) && s->nx > 0 && s->x[0].node == l->words.node)
        l->rows = tp_keep(T, s->y[0]);
}

/* The derivative of the log odds by each logit. */
static void odds_gradient(const float *z, int64_t classes, int64_t label, float *g)
{
    double top = -INFINITY, sum = 0;
    for (int64_t c = 0; c < classes; c++)
        if (c != label) top = fmax(top, (double)z[c]);
    for (int64_t c = 0; c < classes; c++)
        if (c != label) sum += exp((double)z[c] - top);
    for (int64_t c = 0; c < classes; c++)
        g[c] = c == label ? 1.0f : (float)(-exp((double)z[c] - top) / sum);
}

/* Runs the model forward and backward. value, gradient: [n,dim] in host memory. */
static bool run(tp_tape *T, const text_model *m, const int32_t *ids, int64_t n, int64_t label,
                float *value, float *gradient)
{
    const int64_t C = m->cfg.classes;
    const size_t bytes = (size_t)(n * m->cfg.dim) * sizeof *value;
    lookup l = { model_of(m)->words.weight, TP_NONE };
    const tp_tensor x = tp_from(T, TP_I32, TP_SHAPE(1, n), ids);
    const tp_tensor pad = tp_full(T, TP_I32, TP_SHAPE(1), (double)TP_ROBERTA_PAD);
    const tp_tensor slot[TEXT_SLOTS] = { x, tp_ne(T, x, pad) };
    tp_observe(T, watch, &l);
    const tp_tensor z = text_logits(T, m, slot);
    tp_observe(T, NULL, NULL);
    float *logits = malloc(2 * (size_t)C * sizeof *logits);
    bool done = logits && tp_read(T, tp_cast(T, z, TP_F32), logits, (size_t)C * sizeof *logits);
    if (done) {
        odds_gradient(logits, C, label, logits + C);
        const tp_tensor g = tp_from(T, TP_F32, TP_SHAPE(1, C), logits + C);
        tp_backward(T, tp_sum(T, tp_mul(T, z, tp_cast(T, g, tp_dtype_of(z))), TP_ALL));
        done = tp_read(T, tp_cast(T, l.rows, TP_F32), value, bytes) &&
               tp_read(T, tp_cast(T, tp_grad(T, l.rows), TP_F32), gradient, bytes);
    }
    free(logits);
    return done;
}

/* ---- pieces ---- */

/* Joins tokens until their bytes are whole characters. */
static bool collect(explanation *e, tp_bpe_coder *coder, const int32_t *ids, int64_t n,
                    const double *weight)
{
    enum { MOST_JOINED = 8 }; /* a damaged text need not become whole */
    e->at = calloc((size_t)n + 1, sizeof *e->at);
    for (int64_t first = 0, count; e->at && first < n; first += count) {
        const char *text = NULL;
        for (count = 1; count <= MOST_JOINED && first + count <= n; count++) {
            text = tp_bpe_decode(coder, ids + first, count, TP_BPE_RAW, NULL);
            if (!text || tp_is_utf8(text)) break;
        }
        if (!text || count > MOST_JOINED || first + count > n) {
            count = 1;
            text = tp_bpe_decode(coder, ids + first, 1, TP_BPE_RAW, NULL);
        }
        explained *piece = &e->at[e->n];
        piece->text = text ? strdup(text) : NULL;
        if (!piece->text) return false;
        for (int64_t i = first; i < first + count; i++) piece->weight += weight[i];
        e->most = fmax(e->most, fabs(piece->weight));
        e->n++;
    }
    return e->at != NULL;
}

bool explain_text(explanation *e, tp_tape *T, tp_params *P, const text_model *m,
                  tp_bpe_coder *coder, const int32_t *ids, int64_t n, int64_t label, char *why,
                  size_t size)
{
    const int64_t d = m->cfg.dim;
    float *value = malloc((size_t)(n * d) * sizeof *value);
    float *gradient = malloc((size_t)(n * d) * sizeof *gradient);
    double *weight = calloc((size_t)n, sizeof *weight);
    *e = (explanation){ 0 };
    tp_reset(T);
    tp_record(T, true);
    bool done = value && gradient && weight;
    if (!done)
        snprintf(why, size, "out of memory");
    else if (!(done = run(T, m, ids, n, label, value, gradient)))
        snprintf(why, size, "%s", tp_ok(T) ? "out of memory" : tp_why(T));
    for (int64_t i = 0; done && i < n * d; i++)
        weight[i / d] += (double)value[i] * (double)gradient[i];
    if (done && !(done = n < 3 || collect(e, coder, ids + 1, n - 2, weight + 1)))
        snprintf(why, size, "out of memory");
    tp_grad_clear(P);
    tp_reset(T);
    tp_record(T, false);
    free(value);
    free(gradient);
    free(weight);
    return done;
}

void explanation_free(explanation *e)
{
    for (int i = 0; i < e->n; i++) free(e->at[i].text);
    free(e->at);
    *e = (explanation){ 0 };
}
