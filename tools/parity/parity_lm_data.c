/* parity_lm_data.c - cases of the text pipeline: dictionary, ids, batches. */
#include "parity_lm.h"

#include <stdlib.h>
#include <tapegrad/data.h>

/* The file's training and validation bytes as one text, which the fraction cuts where they meet. */
static tp_text *open_text(parity *p)
{
    tp_shape nt = TP_SHAPE(0), nv = TP_SHAPE(0);
    int64_t *train = par_integers(p, "input.train", &nt),
            *valid = par_integers(p, "input.valid", &nv);
    const int64_t a = nt.dim[0], n = a + nv.dim[0];
    uint8_t *bytes = malloc((size_t)n + 1);
    tp_text_opts o = { .style = par_is(p, "style", "text8") ? TP_TEXT_TEXT8 : TP_TEXT_ENWIK8 };

    tp_text *X = NULL;
    if (!bytes) {
        par_fail(p, "out of memory");
    } else if (train && valid) {
        for (int64_t i = 0; i < n; i++) bytes[i] = (uint8_t)(i < a ? train[i] : valid[i - a]);
        o.valid = n ? (double)(n - a) / (double)n : 0.0;
        X = tp_text_from(bytes, n, &o);
        if (!tp_text_ok(X)) par_fail(p, "%s", tp_text_why(X));
    }
    free(bytes);
    free(valid);
    free(train);
    return X;
}

static void check_vocab(parity *p, const tp_vocab *v)
{
    int64_t symbol[512];
    for (int64_t i = 0; i < v->size; i++) {
        const bool blank = v->style == TP_TEXT_TEXT8 && v->symbol[i] == ' ';
        symbol[i] = blank ? '_' : v->symbol[i]; /* the case stores the byte of its name */
    }
    if (v->size != par_int(p, "vocab_size", v->size))
        par_fail(p, "the dictionary has %lld entries", (long long)v->size);
    par_check_integers(p, "output.symbol", symbol, v->size);
    par_check_integers(p, "output.count", v->count, v->size);
}

static void check_ids(parity *p, const tp_text *X, tp_part part, const char *name)
{
    int64_t n;
    const int16_t *id = tp_text_ids(X, part, &n);
    int64_t *wide = malloc((size_t)(n + 1) * sizeof *wide);
    if (!wide) par_fail(p, "out of memory");
    for (int64_t i = 0; wide && i < n; i++) wide[i] = id[i];
    if (wide) par_check_integers(p, name, wide, n);
    free(wide);
}

/* The cases store <pad>, 1, where a position has no target. */
static void check_cells(parity *p, const char *name, const int32_t *x, int64_t n)
{
    int64_t *wide = malloc((size_t)(n + 1) * sizeof *wide);
    if (!wide) par_fail(p, "out of memory");
    for (int64_t i = 0; wide && i < n; i++) wide[i] = x[i] < 0 ? 1 : x[i];
    if (wide) par_check_integers(p, name, wide, n);
    free(wide);
}

/* All batches of an epoch, or of its last step the cells that hold text. */
static void check_batches(parity *p, const tp_text *X, tp_part part, int64_t B, bool only_last)
{
    const int64_t T = par_int(p, "T", 1);
    tp_bytes *S = tp_bytes_new(X, part, &(tp_bytes_opts){ .batch = B, .tokens = T });
    const int64_t steps = tp_bytes_ok(S) ? tp_bytes_steps(S) : 0, cells = B * T;
    int32_t *x = calloc((size_t)(cells * steps) + 1, sizeof *x);
    int32_t *y = calloc((size_t)(cells * steps) + 1, sizeof *y);
    const bool room = x && y;
    int64_t length;

    tp_text_ids(X, part, &length);
    if (!room) {
        par_fail(p, "out of memory");
    } else {
        for (int64_t s = 0; s < steps; s++) tp_bytes_next_host(S, x + s * cells, y + s * cells);
        if (!tp_bytes_ok(S)) par_fail(p, "%s", tp_bytes_why(S));
        if (steps != par_int(p, only_last ? "valid_steps_B1" : "train_steps", steps))
            par_fail(p, "an epoch has %lld steps", (long long)steps);
    }
    if (room && !p->failed && only_last) {
        const int64_t from = (steps - 1) * cells, n = length - from;
        check_cells(p, "output.valid_last_batch", x + from, n);
        check_cells(p, "output.valid_last_target", y + from, n);
    } else if (room && !p->failed) {
        check_cells(p, "output.train_batches", x, cells * steps);
        check_cells(p, "output.train_targets", y, cells * steps);
    }
    free(y);
    free(x);
    tp_bytes_free(S);
}

void lm_run_data(parity *p)
{
    tp_text *X = open_text(p);
    if (!p->failed) {
        check_vocab(p, tp_text_vocab(X));
        check_ids(p, X, TP_TRAIN, "output.train_ids");
        check_ids(p, X, TP_VALID, "output.valid_ids");
        check_batches(p, X, TP_TRAIN, par_int(p, "B", 1), false);
        check_batches(p, X, TP_VALID, 1, true);
    }
    tp_text_close(X);
}
