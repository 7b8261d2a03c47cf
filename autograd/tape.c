/* tape.c - the tape: its lifetime, numbers, handles and scopes. */
#include <stdlib.h>
#include <string.h>
#include <tapegrad/file.h>

#include "autograd/nodes.h"
#include "autograd/params.h"
#include "autograd/tape.h"
#include "tensor/left.h"

#define FIRST_GEN 2 /* 0 is TP_NONE, 1 is TP_FAILED */

/* ---- lifetime ---- */

tp_tape *tp_tape_new(tp_device *D, const tp_tape_opts *o)
{
    static const tp_tape_opts defaults = { 0 };
    tp_tape *T = D && D->left ? tp__left_take(D, sizeof *T) : calloc(1, sizeof *T);
    if (!T) return &tp__no_tape_memory;
    if (!o) o = &defaults;
    tp__device_enter(D);
    T->err.dev = T->dev = D;
    T->seed = o->seed;
    T->compute = o->compute;
    T->train = o->train;
    T->check_finite = o->check_finite;
    T->recording = true;
    T->next_gen = T->id * TP_TAPE_GENS + FIRST_GEN;
    if (!D)
        tp__err(&T->err, TP_E_DEVICE, "tape: NULL was given in place of a device");
    else if (D->err.code != TP_OK)
        tp__err(&T->err, D->err.code, "%s", D->err.text);
    else if (!tp_is_float(o->compute))
        tp__err(&T->err, TP_E_DTYPE, "tape: compute dtype must be f32, bf16 or f64, not %s",
                tp_dtype_name(o->compute));
    else if (o->compute == TP_F64 && D->be->kind != TP_CPU)
        tp__err(&T->err, TP_E_DTYPE, "tape: f64 runs on the CPU only, not on %s", D->name);
    T->born_failed = T->err.code != TP_OK;
    return T;
}

/* Drops the records from `from` on and releases what they hold. */
void tp__recs_drop(tp_tape *T, int64_t from)
{
    for (int64_t i = T->nrecs - 1; i >= from; i--) tp__rec_release(T->recs[i]);
    T->nrecs = from;
}

static void node_recycle(tp_tape *T, tp_node *n)
{
    if (n->live) tp__release(n, NULL);
    tp__set_grad(n, NULL);
    n->gen = 0;
    tp__nodes_push(&T->spare, n); /* cannot fail: see grow_spare */
}

void tp_reset(tp_tape *T)
{
    if (!tp__some(T)->dev) return;
    tp__recs_drop(T, 0);
    for (size_t i = 0; i < T->used.n; i++)
        if (!T->used.at[i]->carried) node_recycle(T, T->used.at[i]);
    for (size_t i = 0; i < T->retired.n; i++) node_recycle(T, T->retired.at[i]);
    T->used.n = T->retired.n = T->open.n = 0;
    T->nscopes = 0;
    T->nreads = 0;
    T->ops = 0;
    T->epoch++;
    T->watch = NULL;
    T->arena = T->arena_first;
    if (T->arena) T->arena->used = 0;
}

/* Marks T as freed for stale pointers until it is reused or the device closes. */
static void mark_freed(tp_tape *T, tp_device *D)
{
    static const char text[] = "tape: tp_tape_free has freed this tape";
    *T = (tp_tape){ .err = { TP_E_STATE, "", NULL }, .born_failed = true, .freed = true };
    memcpy(T->err.text, text, sizeof text);
    tp__left_give(D, T);
    tp__device_leave(D);
}

void tp_tape_free(tp_tape *T)
{
    if (tp__is_none(T)) return;
    tp_reset(T);
    for (size_t i = 0; i < T->carried.n; i++) node_recycle(T, T->carried.at[i]);
    for (tp_arena_chunk *c = T->arena_first, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    tp__chunks_give(T);
    tp_nodes *all[] = { &T->open, &T->used, &T->spare, &T->carried, &T->retired, &T->chunks };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]->at);
    free(T->scopes);
    free(T->moves);
    free(T->reads);
    free(T->recs);
    if (T->dev && T->dev->left)
        mark_freed(T, T->dev);
    else
        free(T);
}

void tp_train(tp_tape *T, bool on)
{
    if (!tp__is_none(T)) T->train = on;
}

bool tp_record(tp_tape *T, bool on)
{
    const bool was = tp__some(T)->recording;
    if (!tp__is_none(T)) T->recording = on;
    return was;
}

bool tp_is_training(const tp_tape *T)
{
    return tp__some(T)->train;
}
tp_dtype tp_compute_dtype(const tp_tape *T)
{
    return tp__some(T)->compute;
}

tp_device *tp_device_of(const tp_tape *T)
{
    return tp__some(T)->dev;
}
bool tp_dry(const tp_tape *T)
{
    const tp_device *D = tp__some(T)->dev;
    return D && D->dry;
}

void tp_random_state(const tp_tape *T, uint64_t *seed, uint64_t *offset)
{
    if (seed) *seed = tp__some(T)->seed;
    if (offset) *offset = tp__some(T)->offset;
}

void tp_set_random_state(tp_tape *T, uint64_t seed, uint64_t offset)
{
    if (tp__is_none(T)) return;
    T->seed = seed;
    T->offset = offset;
}

/* ---- numbers ---- */

tp_node tp__number_node; /* never live: queries treat it as a failed tensor */

tp_tensor tp_number(double value)
{
    tp_tensor x = { &tp__number_node, 0 };
    memcpy(&x.gen, &value, sizeof value);
    return x;
}

double tp__number_of(tp_tensor x)
{
    double value;
    memcpy(&value, &x.gen, sizeof value);
    return value;
}

/* ---- handles ---- */

/* Is gen one of T's nodes', past or present? */
static bool is_of(const tp_tape *T, uint64_t gen)
{
    return gen - T->id * TP_TAPE_GENS < TP_TAPE_GENS;
}

tp_node *tp__node(tp_tape *T, tp_tensor x, const char *what)
{
    if (tp__some(T)->err.code != TP_OK) return NULL;
    tp_node *n = x.node;
    if (!n) {
        tp__fail(
            T, TP_E_VALUE,
            x.gen
                ? "%s: a failed tensor, of another tape or from before tp_clear; the cause is the "
                  "first error there"
                : "%s: is missing (TP_NONE)",
            what);
        return NULL;
    }
    if (tp__is_number(x)) {
        tp__fail(T, TP_E_VALUE,
                 "%s: the number %g was given in place of a tensor; make one with tp_full", what,
                 tp__number_of(x));
        return NULL;
    }
    if (n->gen != x.gen && !n->tape) {
        tp__fail(T, TP_E_STATE,
                 "%s: this tensor belonged to parameters that tp_params_free has freed, or is the "
                 "norm of an earlier tp_clip_grad_norm",
                 what);
        return NULL;
    }
    if (n->gen != x.gen) {
        tp__fail(
            T, TP_E_STATE,
            is_of(T, x.gen)
                ? "%s: this tensor was released by an earlier tp_reset"
                : "%s: this tensor belonged to another tape, which has released it or was freed",
            what);
        return NULL;
    }
    if (n->params && n == n->params->missing) {
        const tp_err *e = &n->params->err;
        if (e->code != TP_OK)
            tp__fail(T, e->code, "%s", e->text);
        else
            tp__fail(
                T, TP_E_STATE,
                "%s: a parameter that could not be declared; tp_params_clear has cleared the cause",
                what);
        return NULL;
    }
    if (!n->live) {
        tp__fail(T, TP_E_STATE, "%s: this tensor was released when scope '%s' was left%s", what,
                 n->died_in ? n->died_in : "?", "; return it from the scope or tp_keep it");
        return NULL;
    }
    if (n->tape && n->tape != T) {
        tp__fail(T, TP_E_STATE, "%s: this tensor belongs to another tape", what);
        return NULL;
    }
    if (n->params) {
        tp_params *P = n->params;
        if (P->err.code == TP_OK && P->dev != T->dev)
            tp__fail(T, TP_E_DEVICE,
                     "%s: the parameter lives on %s, the tape on %s%s; open a device once and give "
                     "it to both",
                     what, P->dev->name,
                     strcmp(P->dev->name, T->dev->name) == 0 ? "another device opened as " : "",
                     T->dev->name);
        else if (P->err.code != TP_OK)
            tp__fail(T, P->err.code, "%s", P->err.text);
        if (T->err.code != TP_OK) return NULL;
    }
    return n;
}

tp_node *tp__node_with_values(tp_tape *T, tp_tensor x, const char *what)
{
    tp_node *n = tp__node(T, x, what);
    if (!n || !n->params || tp__params_complete(n->params)) return n;
    tp__fail(T, n->params->err.code, "%s", n->params->err.text);
    return NULL;
}

bool tp__note_read(tp_tape *T, tp_params *P)
{
    const tp_tensor first = tp__handle(P->entries[0].node);
    for (int i = 0; i < T->nreads; i++)
        if (T->reads[i].node == first.node && T->reads[i].gen == first.gen) return true;
    if (!tp_reserve(&T->reads, &T->reads_cap, (size_t)T->nreads, 1, sizeof *T->reads)) {
        tp__no_host_memory(T);
        return false;
    }
    T->reads[T->nreads++] = first;
    return true;
}

tp_params *tp__set_read(const tp_tape *T, int i)
{
    const tp_tensor first = T->reads[i];
    return first.node->gen == first.gen ? first.node->params : NULL;
}

bool tp__versions_match(tp_tape *T, const tp_rec *r)
{
    for (int i = 0; i < r->nx; i++)
        if (r->x[i] && r->version[i] && r->version[i] != tp__version(r->x[i])) {
            tp__fail(T, TP_E_STATE,
                     "%s (backward): the parameters have changed since the forward pass (tp_step, "
                     "tp_load, tp_ema_swap or tp_params_free came between)",
                     r->op->name);
            return false;
        }
    return true;
}

/* ---- scopes ---- */

void tp_enter(tp_tape *T, const char *path)
{
    if (tp__some(T)->born_failed) return;
    if (!tp_reserve(&T->scopes, &T->scopes_cap, T->nscopes, 1, sizeof *T->scopes)) {
        tp__no_host_memory(T);
        return;
    }
    const double began = T->dev->trace ? tp_seconds() : 0.0;
    T->scopes[T->nscopes++] = (tp_scope){ path, T->open.n, began };
}

static bool is_result(const tp_node *n, int count, const tp_tensor *results)
{
    for (int i = 0; i < count; i++)
        if (results[i].node == n && results[i].gen == n->gen) return true;
    return false;
}

void tp_leave_n(tp_tape *T, int n, const tp_tensor *results)
{
    T = tp__some(T);
    if (T->born_failed) return;
    if (T->nscopes == 0) {
        tp__fail(T, TP_E_STATE, "tp_leave: no scope is open; tp_enter begins one");
        return;
    }
    if (n > 0 && !results) {
        tp__fail(T, TP_E_VALUE, "tp_leave_n: NULL was given in place of %d results", n);
        n = 0;
    }
    const tp_scope s = T->scopes[T->nscopes - 1];
    size_t to = s.first;
    for (size_t i = s.first; i < T->open.n; i++) {
        tp_node *node = T->open.at[i];
        if (node->kept || is_result(node, n, results))
            T->open.at[to++] = node;
        else
            tp__release(node, s.path ? s.path : "");
    }
    T->open.n = to;
    T->nscopes--;
    if (T->dev->trace && s.began > 0.0) tp__trace_span(T->dev, s.path, s.began);
}

tp_tensor tp_leave(tp_tape *T, tp_tensor result)
{
    tp_leave_n(T, 1, &result);
    return result;
}

tp_tensor tp_keep(tp_tape *T, tp_tensor x)
{
    tp_node *n = tp__node(T, x, "tp_keep");
    if (!n) return TP_FAILED;
    if (!n->params && !T->replaying) n->kept = true;
    return x;
}

tp_tensor tp_detach(tp_tape *T, tp_tensor x)
{
    tp_node *n = tp__node_with_values(T, x, "tp_detach");
    if (!n) return TP_FAILED;
    if (n->params && !tp__note_read(T, n->params)) return TP_FAILED;
    return tp__wrap(T, tp__buf_ref(n->buf), &n->view);
}
