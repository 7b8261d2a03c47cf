/* parity_lm_eval.c - kind lm.evaluation: the protocols that score a stream of tokens. */
#include <math.h>

#include "parity_lm.h"

typedef struct stream {
    lm_case *c;
    const int64_t *id; /* [n] */
    int64_t n, T;      /* tokens, segment length */
} stream;

/* Runs tokens begin .. end-1 in segments, starting with fresh caches; nll[i - begin] is the loss of
 * predicting id[i+1], if it exists, at position i. */
static void run_stream(parity *p, const stream *s, int64_t begin, int64_t end, double *nll)
{
    tp_tape *T = p->T;
    lm_clear(p, s->c);
    for (int64_t i = begin; i < end && par_ok(p); i += s->T) {
        const int64_t len = end - i < s->T ? end - i : s->T;
        const int64_t targets = i + len < s->n ? len : len - 1;
        tp_reset(T);
        const tp_tensor x = tp_from(T, TP_I64, TP_SHAPE(1, len), s->id + i);
        const tp_tensor y = tp_slice(T, lm_forward(p, s->c, x), 1, 0, targets);
        const tp_tensor next = tp_from(T, TP_I64, TP_SHAPE(1, targets), s->id + i + 1);
        const double *each = par_read(p, tp_cross_entropy(T, y, next, TP_EACH));
        for (int64_t j = 0; each && j < targets; j++) nll[i - begin + j] = each[j];
    }
}

static double bits(const double *nll, const int64_t *counted, int64_t n)
{
    double sum = 0.0, count = 0.0;
    for (int64_t i = 0; i < n; i++)
        if (!counted || counted[i]) {
            sum += nll[i];
            count += 1.0;
        }
    return sum / count / log(2.0);
}

/* Compares the official script's stream, with and without the last position of each segment. */
static void check_streaming(parity *p, const stream *s)
{
    const double limit = par_limit(p, PAR_OUTPUT);
    double *nll = par_alloc(p, s->n, sizeof *nll);
    int64_t *counted = par_alloc(p, s->n, sizeof *counted);

    if (!nll || !counted) return;
    run_stream(p, s, 0, s->n, nll);
    for (int64_t i = 0; i < s->n - 1; i++) counted[i] = i % s->T != s->T - 1;
    par_check(p, "output.nll_stream", nll, s->n - 1, limit);
    par_check_integers(p, "output.counted_official", counted, s->n - 1);
    par_check_one(p, "output.bpc_official", bits(nll, counted, s->n - 1), limit);
    par_check_one(p, "output.bpc_all", bits(nll, NULL, s->n - 1), limit);
}

/* Compares the paper's overlapping windows, of which the last `step` predictions are scored. */
static void check_windows(parity *p, const stream *s)
{
    const double limit = par_limit(p, PAR_OUTPUT);
    const int64_t window = par_size(p, "window_tokens", 32768);
    const int64_t step = par_int(p, "window_step", 512, 1, window);
    int64_t n = 0;

    if (!par_has(p, "output.nll_windows") && !par_has(p, "output.bpc_windows")) return;
    double *nll = par_alloc(p, s->n, sizeof *nll), *scored = par_alloc(p, s->n, sizeof *nll);
    if (!nll || !scored) return;
    for (int64_t end = step; end < s->n && !p->failed; end += step) {
        const int64_t begin = end > window ? end - window : 0;
        run_stream(p, s, begin, end, nll);
        for (int64_t i = end - step; i < end; i++) scored[n++] = nll[i - begin];
    }
    par_check(p, "output.nll_windows", scored, n, limit);
    par_check_one(p, "output.bpc_windows", bits(scored, NULL, n), limit);
}

void lm_run_evaluation(parity *p)
{
    lm_case *c = lm_open(p);
    tp_shape shape;
    const int64_t *id = par_integers(p, "input.stream", &shape);
    const stream s = { c, id, par_numel(shape), par_size(p, "T", 256) };

    par_fixed(p, "B", 1.0);
    par_same(p, "N", s.n);
    if (!c || !id) return;
    par_load(p);
    if (p->failed) return;
    tp_record(p->T, false);
    check_streaming(p, &s);
    check_windows(p, &s);
}
