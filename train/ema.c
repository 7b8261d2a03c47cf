/* ema.c - exponential moving average of all parameters, e = decay e + (1 - decay) p.
 *
 * Swapping exchanges the contents of the two blocks, not the blocks: handles and views of the
 * parameters stay as they are. */
#include <stdlib.h>
#include <tapegrad/optim.h>

#include "tensor/file/inner.h"
#include "train/blocks.h"

#define CHUNK ((size_t)1 << 20) /* bytes exchanged at a time */

TP_KERNEL(ema_step);
static const tp_block_kernel ema_kernel = { .name = "ema", .kernel = TP_KERNELS(ema_step) };

struct tp_ema {
    tp_err err;
    tp_params *P;
    double decay;
    bool swapped;
    tp_buf *averages, *chunk; /* chunk: staging of swaps, allocated early so that no swap fails */
    tp_segments s;
};

static tp_ema no_memory = {
    .err = { TP_E_MEMORY, "ema: out of memory for the object itself", NULL },
};

static tp_ema none = {
    .err = { TP_E_STATE, "ema: NULL was given in place of an average", NULL },
};

/* E, or a failed average in place of NULL. */
static const tp_ema *some(const tp_ema *E)
{
    return E ? E : &none;
}

tp_ema *tp_ema_new(tp_params *P, double decay)
{
    tp_ema *E = calloc(1, sizeof *E);
    if (!E) return &no_memory;
    E->P = P;
    E->decay = decay;
    if (!P) {
        tp__err(&E->err, TP_E_STATE, "ema: NULL was given in place of a parameter set");
        return E;
    }
    E->err.dev = P->dev;
    if (!tp__params_complete(P)) {
        tp__err(&E->err, P->err.code, "%s", P->err.text);
        return E;
    }
    if (!(decay >= 0.0 && decay < 1.0))
        tp__err(&E->err, TP_E_VALUE, "ema: decay must be in [0,1), not %g", decay);
    E->s.at = malloc((size_t)(P->n + 1) * sizeof *E->s.at);
    if (!E->s.at) tp__err(&E->err, TP_E_MEMORY, "ema: out of host memory");
    for (int i = 0; E->s.at && i < P->n; i++)
        if (tp__in_block(&P->entries[i])) tp__segments_add(&E->s, P, &P->entries[i]);
    E->averages = tp__block_new(P, P->block_bytes, "ema", &E->err);
    E->chunk = tp__buf_new(P->dev, P->block_bytes < CHUNK ? P->block_bytes : CHUNK);
    if (!E->chunk) tp__device_error(P->dev, &E->err);
    if (!E->chunk) tp__err(&E->err, TP_E_MEMORY, "ema: out of memory on %s", P->dev->name);
    if (E->averages) P->dev->be->copy(P->dev, E->averages->data, P->values->data, P->block_bytes);
    return E;
}

void tp_ema_free(tp_ema *E)
{
    if (!E || E == &no_memory) return;
    if (E->swapped) E->P->swapped--; /* the averages remain the values */
    tp__buf_unref(E->averages);
    tp__buf_unref(E->chunk);
    free(E->s.at);
    free(E);
}

bool tp_ema_ok(const tp_ema *E)
{
    return some(E)->err.code == TP_OK;
}
const char *tp_ema_why(const tp_ema *E)
{
    return some(E)->err.text;
}

/* Fails E if its parameters have failed or currently hold the averages. */
static bool usable(tp_ema *E, const char *what)
{
    if (!tp_ema_ok(E)) return false;
    if (E->P->err.code != TP_OK) tp__err(&E->err, E->P->err.code, "%s", E->P->err.text);
    if (E->swapped)
        tp__err(&E->err, TP_E_STATE,
                "%s: the parameters hold the averages; "
                "call tp_ema_swap first to restore the values",
                what);
    return E->err.code == TP_OK;
}

void tp_ema_update(tp_ema *E)
{
    if (!usable(E, "tp_ema_update")) return;
    const tp_segments_attr a = { E->s, 1.0 - E->decay };
    const tp_view p = tp__block_view(E->P, E->P->values);
    tp_view e = tp__block_view(E->P, E->averages);
    tp__blocks_run(E->P, &ema_kernel, &a, 1, &p, 1, &e, NULL, &E->err);
}

void tp_ema_swap(tp_ema *E)
{
    if (!tp_ema_ok(E)) return;
    tp_device *D = E->P->dev;
    const size_t bytes = E->P->block_bytes;
    void *chunk = E->chunk->data;
    for (size_t at = 0; at < bytes; at += CHUNK) {
        const size_t n = bytes - at < CHUNK ? bytes - at : CHUNK;
        char *p = (char *)E->P->values->data + at, *e = (char *)E->averages->data + at;
        D->be->copy(D, chunk, p, n);
        D->be->copy(D, p, e, n);
        D->be->copy(D, e, chunk, n);
    }
    tp__params_touch(E->P);
    E->swapped = !E->swapped;
    E->P->swapped += E->swapped ? 1 : -1;
}

bool tp_ema_write(tp_ema *E, tp_writer *W)
{
    if (!usable(E, "tp_ema_write")) {
        tp__writer_fail(W, &some(E)->err);
        return false;
    }
    tp_slots S = { 0 };
    tp__block_slots(&S, E->P, "", E->averages);
    tp__slots_write(&S, W, "ema.");
    tp__slots_free(&S);
    return tp_writer_ok(W);
}

bool tp_ema_read(tp_ema *E, tp_file *F)
{
    if (!usable(E, "tp_ema_read")) return false;
    tp_slots S = { 0 };
    tp__block_slots(&S, E->P, "", E->averages);
    const bool ok = tp__slots_read(&S, F, "ema.", NULL, "averages", &E->err);
    tp__slots_free(&S);
    return ok;
}
