/* parity_lm_data.c - kinds of texts: lm.data, the pipeline of dictionary, ids and batches, and
 * lm.evaluation, the protocols that score a stream of tokens. */
#include <math.h>
#include <tapegrad/data.h>

#include "parity_lm.h"

/* ---- lm.data ---- */

/* Opens the file's training and validation bytes as one text; the fraction splits it between
 * them. */
static tp_text *open_text(parity *p)
{
    static const char *const styles[] = { "enwik8", "text8", NULL };
    tp_shape nt, nv;
    const int64_t *train = par_integers(p, "input.train", &nt);
    const int64_t *valid = par_integers(p, "input.valid", &nv);
    const int64_t a = par_numel(nt), n = a + par_numel(nv);
    uint8_t *bytes = par_alloc(p, n, 1);
    const bool text8 = par_word(p, "style", 0, styles) == 1;
    tp_text_opts o = { .style = text8 ? TP_TEXT_TEXT8 : TP_TEXT_ENWIK8 };

    if (!bytes || p->failed) return NULL;
    for (int64_t i = 0; i < n; i++) bytes[i] = (uint8_t)(i < a ? train[i] : valid[i - a]);
    o.valid = n ? (double)(n - a) / (double)n : 0.0;
    tp_text *X = tp_text_from(bytes, n, &o);
    if (!tp_text_ok(X)) par_fail(p, "%s", tp_text_why(X));
    return X;
}

static void check_vocab(parity *p, const tp_vocab *v)
{
    int64_t *symbol = par_alloc(p, v->size, sizeof *symbol);

    for (int64_t i = 0; symbol && i < v->size; i++) {
        const bool blank = v->style == TP_TEXT_TEXT8 && v->symbol[i] == ' ';
        symbol[i] = blank ? '_' : v->symbol[i]; /* the case stores '_' for a space */
    }
    par_same(p, "vocab_size", v->size);
    if (symbol) par_check_integers(p, "output.symbol", symbol, v->size);
    par_check_integers(p, "output.count", v->count, v->size);
}

static void check_ids(parity *p, const tp_text *X, tp_part part, const char *name)
{
    int64_t n;
    const int16_t *id = tp_text_ids(X, part, &n);
    int64_t *wide = par_alloc(p, n, sizeof *wide);

    for (int64_t i = 0; wide && i < n; i++) wide[i] = id[i];
    if (wide) par_check_integers(p, name, wide, n);
}

/* The cases store <pad>, 1, for a position without a target. */
static void check_cells(parity *p, const char *name, const int32_t *x, int64_t n)
{
    int64_t *wide = par_alloc(p, n, sizeof *wide);

    for (int64_t i = 0; wide && i < n; i++) wide[i] = x[i] < 0 ? 1 : x[i];
    if (wide) par_check_integers(p, name, wide, n);
}

/* All batches of an epoch of B streams: x, y [steps,B,T]. */
typedef struct epoch {
    int64_t steps, cells;
    int32_t *x, *y;
} epoch;

static epoch read_epoch(parity *p, const tp_text *X, tp_part part, int64_t B)
{
    const int64_t T = par_size(p, "T", PAR_NEEDED);
    tp_streams *S = tp_streams_new(X, part, &(tp_streams_opts){ .batch = B, .tokens = T });
    epoch e = { .steps = tp_streams_ok(S) ? tp_streams_steps(S) : 0, .cells = B * T };

    e.x = par_alloc(p, e.cells * e.steps, sizeof *e.x);
    e.y = par_alloc(p, e.cells * e.steps, sizeof *e.y);
    for (int64_t s = 0; e.x && e.y && s < e.steps; s++)
        tp_streams_next_host(S, e.x + s * e.cells, e.y + s * e.cells);
    if (!tp_streams_ok(S)) par_fail(p, "%s", tp_streams_why(S));
    tp_streams_free(S);
    return e;
}

static void check_train(parity *p, const tp_text *X)
{
    const epoch e = read_epoch(p, X, TP_TRAIN, par_size(p, "B", PAR_NEEDED));

    par_same(p, "train_steps", e.steps);
    if (p->failed) return;
    check_cells(p, "output.train_batches", e.x, e.cells * e.steps);
    check_cells(p, "output.train_targets", e.y, e.cells * e.steps);
}

/* Compares the positions of a single stream's last step that have text. */
static void check_valid(parity *p, const tp_text *X)
{
    const epoch e = read_epoch(p, X, TP_VALID, 1);
    const int64_t from = (e.steps - 1) * e.cells;
    int64_t length;

    tp_text_ids(X, TP_VALID, &length);
    par_same(p, "valid_steps_B1", e.steps);
    if (p->failed) return;
    check_cells(p, "output.valid_last_batch", e.x + from, length - from);
    check_cells(p, "output.valid_last_target", e.y + from, length - from);
}

void lm_run_data(parity *p)
{
    tp_text *X = open_text(p);
    if (!p->failed) {
        check_vocab(p, tp_text_vocab(X));
        check_ids(p, X, TP_TRAIN, "output.train_ids");
        check_ids(p, X, TP_VALID, "output.valid_ids");
        check_train(p, X);
        check_valid(p, X);
    }
    tp_text_close(X);
}

/* ---- lm.evaluation ---- */

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
