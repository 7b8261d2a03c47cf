/* protocol.c - evaluation: streaming, the official script's form of it, and the paper's windows.
 *
 *     stream    |--segment--|--segment--|--seg..    the cache slides along, starting with zero rows
 *     windows   |------context------|step|          for each end e = step, 2 step, ...: tokens
 *                    |------context------|step|     e-context .. e-1 run with an empty cache, and
 *                                                   the last `step` predictions count
 *
 * Windows cost context / step times the work of a stream. */
#include "protocol.h"

#include <math.h>
#include <stdlib.h>
#include <tapegrad/tapegrad.h>

typedef struct evaluation {
    const protocol *p;
    tp_tape *T;
    const tp_net *m;
    void *state;
    const int16_t *ids;
    int64_t n;
    int32_t *x, *y; /* a segment */
    score sum;
    score_fn seen;
    void *env;
} evaluation;

double score_bpc(const score *s, const unknown_bytes *u)
{
    return s->tokens ? unknown_bpc(u, s->nll, s->tokens, s->unknown) : (double)NAN;
}

/* Runs the segment that begins at `at` and scores its targets first .. end-1. The segment is padded
 * past the end of the text; causal attention hides the padding from scored tokens. */
static bool run_segment(evaluation *e, int64_t at, int64_t first, int64_t end)
{
    tp_tape *T = e->T;
    const int64_t M = e->p->segment;
    int64_t counted = 0;
    for (int64_t t = 0; t < M; t++) {
        const int64_t i = at + t;
        const bool scored = i + 1 >= first && i + 1 < end;
        e->x[t] = i < e->n ? e->ids[i] : 0;
        e->y[t] = scored ? e->ids[i + 1] : -1;
        counted += scored;
    }
    tp_reset(T);
    const tp_tensor x = tp_from(T, TP_I32, TP_SHAPE(1, M), e->x);
    const tp_tensor logits = tp_net_forward(T, e->m, e->state, x);
    if (counted > 0) {
        const tp_tensor y = tp_from(T, TP_I32, TP_SHAPE(1, M), e->y);
        e->sum.nll += tp_item(T, tp_cross_entropy(T, logits, y, TP_SUM));
        e->sum.tokens += counted;
        e->sum.unknown += unknown_in(&e->p->unknown, e->y, M);
    }
    return tp_ok(T) && (!e->seen || e->seen(e->env, &e->sum));
}

static void run_stream(evaluation *e)
{
    const int64_t M = e->p->segment;
    const bool official = e->p->kind == PROTOCOL_OFFICIAL;
    for (int64_t at = 0; at + 1 < e->n; at += M) {
        int64_t end = at + M + (official ? 0 : 1);
        if (end > e->n) end = e->n;
        if (!run_segment(e, at, at + 1, end)) break;
    }
}

static bool run_window(evaluation *e, int64_t begin, int64_t end)
{
    const int64_t M = e->p->segment, first = end - e->p->step + 1;
    tp_net_cfg(e->m)->model->state_clear(e->T, e->state);
    for (int64_t at = begin; at < end; at += M)
        if (!run_segment(e, at, first, end + 1)) return false;
    return true;
}

static void run_windows(evaluation *e)
{
    const int64_t C = e->p->context, S = e->p->step;
    for (int64_t end = S; end < e->n; end += S)
        if (!run_window(e, end > C ? end - C : 0, end)) break;
}

score protocol_run(const protocol *p, tp_tape *T, const tp_net *m, const int16_t *ids, int64_t n,
                   score_fn seen, void *env)
{
    evaluation e = { .p = p, .T = T, .m = m, .ids = ids, .n = n };
    e.state = tp_net_state_new(m);
    e.x = malloc((size_t)p->segment * sizeof *e.x);
    e.y = malloc((size_t)p->segment * sizeof *e.y);
    e.seen = seen;
    e.env = env;
    tp_train(T, false);
    tp_record(T, false);
    if (!e.state || !e.x || !e.y)
        tp_raise(T, TP_E_MEMORY, "evaluation: out of memory for segments of %lld tokens",
                 (long long)p->segment);
    else if (p->kind == PROTOCOL_WINDOWS)
        run_windows(&e);
    else
        run_stream(&e);
    tp_net_state_free(m, T, e.state);
    free(e.x);
    free(e.y);
    return e.sum;
}
