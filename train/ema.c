/* ema.c - exponential moving average of all parameters, e = decay e + (1 - decay) p.
 *
 * Swapping exchanges the contents of the two blocks, not the blocks: handles and views of the
 * parameters stay valid. */
#include <stdio.h>
#include <stdlib.h>
#include <tapegrad/optim.h>

#include "autograd/recorded.h"
#include "tensor/file/inner.h"
#include "train/blocks.h"

#define CHUNK ((size_t)1 << 20) /* bytes exchanged at a time */

TP_KERNEL(ema_step);
static const tp_block_kernel ema_kernel = { .name = "ema", .kernel = TP_KERNELS(ema_step) };

/* An update in a recording: it asks nothing of the host, but must not outlive the average. */
typedef struct recorded {
    tp_recorded base;
    tp_ema *E; /* NULL: freed */
    struct recorded *next;
} recorded;

struct tp_ema {
    tp_err err;
    tp_err call_err; /* of the last update or swap: the next one clears it */
    tp_err refusal;  /* of the last refused file */
    tp_params *P;
    uint64_t id; /* of P */
    tp_device *dev;
    double decay;
    bool swapped;
    tp_buf *averages, *chunk; /* chunk: staging of swaps, allocated early so that no swap fails */
    tp_segments s;
    recorded *updates; /* in recordings */
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
    E->id = P->id;
    E->err.dev = E->call_err.dev = E->refusal.dev = E->dev = P->dev;
    tp__device_enter(E->dev);
    if (!tp__params_complete(P)) {
        tp__err(&E->err, P->err.code, "%s", P->err.text);
        return E;
    }
    if (!(decay >= 0.0 && decay < 1.0))
        tp__err(&E->err, TP_E_VALUE, "ema: decay must be in [0,1), not %g", decay);
    E->s.at = malloc((size_t)(P->n + 1) * sizeof *E->s.at);
    if (!E->s.at) tp__err(&E->err, TP_E_MEMORY, "ema: out of host memory");
    for (int i = 0; E->s.at && i < P->n; i++)
        if (tp__in_block(&P->entries[i]))
            tp__segments_add(&E->s, P, &P->entries[i], 0, P->entries[i].node->view.numel);
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
    if (E->swapped && E->P->id == E->id) E->P->swapped--; /* the averages remain the values */
    for (recorded *r = E->updates; r; r = r->next) r->E = NULL;
    tp__buf_unref(E->averages);
    tp__buf_unref(E->chunk);
    free(E->s.at);
    tp__device_leave(E->dev);
    free(E);
}

bool tp_ema_ok(const tp_ema *E)
{
    return some(E)->err.code == TP_OK && some(E)->call_err.code == TP_OK;
}

const char *tp_ema_why(const tp_ema *E)
{
    E = some(E);
    if (E->err.code != TP_OK) return E->err.text;
    return E->call_err.code != TP_OK ? E->call_err.text : E->refusal.text;
}

/* Begins a call with errors in *e. False if E or its parameters failed, or these were freed. */
static bool begin(tp_ema *E, const char *what, tp_err *e)
{
    if (some(E)->err.code != TP_OK) return false;
    *e = (tp_err){ .dev = E->dev };
    if (!tp__params_live(E->P, E->id, what, e)) return false;
    if (E->P->err.code != TP_OK) tp__err(e, E->P->err.code, "%s", E->P->err.text);
    return e->code == TP_OK;
}

/* The same for a call refused while the parameters hold the averages. */
static bool usable(tp_ema *E, const char *what, tp_err *e)
{
    if (!begin(E, what, e)) return false;
    if (E->swapped)
        tp__err(e, TP_E_STATE,
                "%s: the parameters hold the averages; "
                "call tp_ema_swap first to restore the values",
                what);
    return e->code == TP_OK;
}

/* ---- updates ---- */

static bool holds(const tp_recorded *base)
{
    return ((const recorded *)base)->E != NULL;
}

static bool ready(const tp_recorded *base)
{
    const tp_ema *E = ((const recorded *)base)->E;
    return E->err.code == TP_OK && E->call_err.code == TP_OK && E->P->id == E->id &&
           E->P->err.code == TP_OK && !E->swapped;
}

static void nothing(tp_recorded *base)
{
    (void)base;
}

static void drop(tp_recorded *base)
{
    recorded *r = (recorded *)base;
    for (recorded **at = r->E ? &r->E->updates : NULL; at && *at; at = &(*at)->next)
        if (*at == r) {
            *at = r->next;
            break;
        }
    free(r);
}

/* Makes the update part of the step that is recorded. */
static bool record(tp_ema *E)
{
    recorded *r = malloc(sizeof *r);
    if (r) *r = (recorded){ { holds, ready, nothing, nothing, drop }, E, E->updates };
    if (r) E->updates = r;
    if (r && tp__record_with(E->dev, &r->base)) return true;
    if (r) drop(&r->base);
    tp__err(&E->call_err, TP_E_MEMORY, "tp_ema_update: out of host memory");
    tp__record_failed(E->dev, E->call_err.code, E->call_err.text);
    return false;
}

bool tp_ema_update(tp_ema *E)
{
    if (!E) return false;
    if (!usable(E, "tp_ema_update", &E->call_err)) {
        tp__record_once(E->dev);
        return false;
    }
    if (E->dev->capturing && !record(E)) return false;
    const tp_segments_attr a = { E->s, 1.0 - E->decay };
    const tp_view p = tp__block_view(E->P, E->P->values);
    tp_view e = tp__block_view(E->P, E->averages);
    return tp__blocks_run(E->P, &ema_kernel, &a, 1, &p, 1, &e, NULL, &E->err);
}

bool tp_ema_swap(tp_ema *E)
{
    if (!E || !begin(E, "tp_ema_swap", &E->call_err)) return false;
    if (tp__in_step(E->dev)) {
        tp__err(&E->call_err, TP_E_STATE,
                "tp_ema_swap: must not be called between tp_capture_begin and tp_capture_end");
        return false;
    }
    if (!E->swapped && !tp__params_hold_values(E->P, "tp_ema_swap", &E->call_err)) return false;
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
    E->P->swap = "tp_ema_swap";
    return true;
}

/* The prefix of the averages' tensors; false: too long. */
static bool place_of(const char *prefix, char place[256], tp_err *e)
{
    const int n = snprintf(place, 256, "%sema.", prefix ? prefix : "");
    if (n >= 0 && n < 256) return true;
    tp__err(e, TP_E_VALUE, "the prefix of an average has more than 200 characters");
    return false;
}

bool tp_ema_write(tp_ema *E, tp_writer *W, const char *prefix)
{
    char place[256];
    tp_err e = some(E)->err;
    if (e.code != TP_OK || !usable(E, "tp_ema_write", &e) || !place_of(prefix, place, &e)) {
        tp__writer_fail(W, &e);
        return false;
    }
    tp_slots S = { 0 };
    tp__block_slots(&S, E->P, "", E->averages);
    tp__slots_write(&S, W, place);
    tp__slots_free(&S);
    return tp_writer_ok(W);
}

bool tp_ema_read(tp_ema *E, tp_file *F, const char *prefix)
{
    char place[256];
    if (!E || !usable(E, "tp_ema_read", &E->refusal) || !place_of(prefix, place, &E->refusal))
        return false;
    tp_slots S = { 0 };
    tp__block_slots(&S, E->P, "", E->averages);
    const tp_file_tensor **from = tp__slots_match(&S, F, place, NULL, "averages", &E->refusal);
    const bool ok = from && tp__slots_load(&S, F, from, &E->refusal, &E->err);
    free(from);
    tp__slots_free(&S);
    return ok;
}
