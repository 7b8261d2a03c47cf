/* text_measure.c - the validation of `enwik8 train`: one pass over the validation text in as many
 * streams as training has. Every token is scored. */
#include <math.h>
#include <stdio.h>

#include "text_run.h"

typedef struct streams {
    tp_bytes *reader;
    int64_t B, M, steps;
} streams;

/* The number of tokens to score; 0: all. A trial only measures memory, so it stops once the cache
 * is full. */
static int64_t most_tokens(const tp_run *R)
{
    const settings *s = R->settings;
    const int64_t enough = (s->mem_len / s->tokens + 2) * R->units, limit = s->eval_tokens;
    return R->trial && (limit == 0 || limit > enough) ? enough : limit;
}

static streams open_streams(tp_run *R)
{
    const settings *s = R->settings;
    const text_run *t = R->state;
    int64_t n;
    tp_text_ids(t->text, TP_VALID, &n);
    const int64_t M = s->tokens, blocks = n > 1 ? (n - 1) / M + 1 : 1, most = most_tokens(R);
    const int64_t B = s->train.batch < blocks ? s->train.batch : blocks;
    streams v = { .B = B, .M = M };
    v.reader = tp_bytes_new(t->text, TP_VALID,
                            &(tp_bytes_opts){ .batch = B, .tokens = M, .all_targets = true });
    if (!tp_bytes_ok(v.reader)) tp_run_fail(R, "%s", tp_bytes_why(v.reader));
    v.steps = tp_bytes_ok(v.reader) ? tp_bytes_steps(v.reader) : 0;
    if (most > 0 && v.steps > (most - 1) / (B * M) + 1) v.steps = (most - 1) / (B * M) + 1;
    return v;
}

double text_measure(tp_run *R, char *text, size_t size)
{
    text_run *t = R->state;
    tp_tape *E = R->E;
    const streams v = open_streams(R);
    void *state = tp_net_state_new(t->m);
    double nll = 0;
    int64_t counted = 0, lacking = 0;
    for (int64_t i = 0; i < v.steps && !tp_run_stopped(R); i++) {
        tp_reset(E);
        tp_bytes_next_host(v.reader, t->x, t->y);
        const tp_tensor x = tp_from(E, TP_I32, TP_SHAPE(v.B, v.M), t->x);
        const tp_tensor y = tp_from(E, TP_I32, TP_SHAPE(v.B, v.M), t->y);
        const tp_tensor logits = tp_net_forward(E, t->m, state, x);
        nll += tp_item(E, tp_cross_entropy(E, logits, y, TP_SUM));
        counted += text_targets(t->y, v.B * v.M);
        lacking += unknown_in(&t->unknown[TP_VALID], t->y, v.B * v.M);
    }
    tp_net_state_free(t->m, E, state);
    tp_reset(E);
    tp_bytes_free(v.reader);
    const double bpc = unknown_bpc(&t->unknown[TP_VALID], nll, counted, lacking);
    snprintf(text, size, "%.4f bpc", bpc);
    tp_run_note(R, "valid_bpc", bpc);
    return bpc;
}
