/* parity_lm_data.c - kind lm.data, the text pipeline: dictionary, ids, batches. */
#include <tapegrad/data.h>

#include "parity_lm.h"

/* Opens the file's training and validation bytes as one text; the fraction splits it between them. */
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
    tp_bytes *S = tp_bytes_new(X, part, &(tp_bytes_opts){ .batch = B, .tokens = T });
    epoch e = { .steps = tp_bytes_ok(S) ? tp_bytes_steps(S) : 0, .cells = B * T };

    e.x = par_alloc(p, e.cells * e.steps, sizeof *e.x);
    e.y = par_alloc(p, e.cells * e.steps, sizeof *e.y);
    for (int64_t s = 0; e.x && e.y && s < e.steps; s++)
        tp_bytes_next_host(S, e.x + s * e.cells, e.y + s * e.cells);
    if (!tp_bytes_ok(S)) par_fail(p, "%s", tp_bytes_why(S));
    tp_bytes_free(S);
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
