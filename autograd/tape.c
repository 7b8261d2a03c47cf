/* tape.c - the tape: nodes and handles, scopes, reset, carried tensors, and the sticky error. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "autograd/graph.h"

#define NODES_A_CHUNK 256
#define ARENA_CHUNK   ((size_t)64 << 10)
#define ARENA_HEAD    64 /* room of a chunk's header, keeps data aligned */
#define FIRST_GEN     2  /* 0 is TP_NONE, 1 is TP_FAILED */

static tp_tape no_memory = {
    .err = { TP_E_MEMORY, "tape: out of memory for the tape object itself" },
    .born_failed = true,
};

/* ---- errors -------------------------------------------------------------------------------- */

void tp__where(const tp_tape *T, char *text, size_t size)
{
    if (T->file)
        tp__append(text, size, "\n  at %s:%d", T->file, T->line);
    else
        tp__append(text, size, "\n  at an unknown place");
    for (size_t i = 0; i < T->nscopes; i++)
        if (T->scopes[i].path && *T->scopes[i].path)
            tp__append(text, size, "%s%s", i == 0 ? ", in " : " > ", T->scopes[i].path);
    tp__append(text, size, ", op %lld of this tape", (long long)T->ops);
}

tp_tensor tp__fail(tp_tape *T, tp_code code, const char *fmt, ...)
{
    if (T->err.code == TP_OK) {
        va_list ap;
        va_start(ap, fmt);
        tp__verr(&T->err, code, fmt, ap);
        va_end(ap);
        tp__where(T, T->err.text, sizeof T->err.text);
    }
    return TP_FAILED;
}

tp_tensor tp_raise(tp_tape *T, tp_code code, const char *fmt, ...)
{
    if (T->err.code == TP_OK) {
        va_list ap;
        va_start(ap, fmt);
        tp__verr(&T->err, code == TP_OK ? TP_E_BUG : code, fmt, ap);
        va_end(ap);
    }
    return TP_FAILED;
}

bool tp_ok(const tp_tape *T)
{
    return T->err.code == TP_OK;
}
const char *tp_why(const tp_tape *T)
{
    return T->err.text;
}
tp_code tp_code_of(const tp_tape *T)
{
    return T->err.code;
}

void tp_clear(tp_tape *T)
{
    if (!T->born_failed) T->err = (tp_err){ 0 };
}

tp_tape *tp_at(tp_tape *T, const char *file, int line)
{
    if (T != &no_memory) {
        T->file = file;
        T->line = line;
    }
    return T;
}

/* ---- memory: node pointers, nodes, arena ------------------------------------------------------
 */

bool tp__nodes_push(tp_nodes *a, tp_node *n)
{
    if (a->n == a->cap) {
        const size_t cap = a->cap ? 2 * a->cap : 64;
        tp_node **p = realloc(a->at, cap * sizeof *p);
        if (!p) return false;
        a->at = p;
        a->cap = cap;
    }
    a->at[a->n++] = n;
    return true;
}

static void no_host_memory(tp_tape *T)
{
    tp__fail(T, TP_E_MEMORY, "tape: out of host memory for its bookkeeping");
}

static bool grow_spare(tp_tape *T)
{
    tp_node *chunk = calloc(NODES_A_CHUNK, sizeof *chunk);
    if (!chunk || !tp__nodes_push(&T->chunks, chunk)) {
        free(chunk);
        return false;
    }
    for (int i = NODES_A_CHUNK - 1; i >= 0; i--)
        if (!tp__nodes_push(&T->spare, chunk + i)) return T->spare.n > 0;
    return true;
}

/* A live node that belongs to no scope yet. */
static tp_node *node_take(tp_tape *T)
{
    if (T->spare.n == 0 && !grow_spare(T)) {
        no_host_memory(T);
        return NULL;
    }
    tp_node *n = T->spare.at[--T->spare.n];
    *n = (tp_node){ .gen = T->next_gen++, .tape = T, .rec = TP_NO_REC, .live = true };
    return n;
}

tp_node *tp__node_new(tp_tape *T)
{
    tp_node *n = node_take(T);
    if (!n) return NULL;
    if (!tp__nodes_push(&T->used, n)) {
        T->spare.n++; /* still there: nothing was written over it */
        n->live = false;
        no_host_memory(T);
        return NULL;
    }
    if (!tp__nodes_push(&T->open, n)) {
        n->live = false; /* recycled at reset */
        no_host_memory(T);
        return NULL;
    }
    return n;
}

void tp__release(tp_node *n, const char *where)
{
    n->live = n->kept = false;
    n->died_in = where;
    tp__buf_unref(n->buf);
    n->buf = NULL;
    n->view.data = NULL;
}

void *tp__arena(tp_tape *T, size_t bytes)
{
    bytes = (bytes + 15) / 16 * 16;
    while (T->arena && T->arena->size - T->arena->used < bytes && T->arena->next) {
        T->arena = T->arena->next;
        T->arena->used = 0;
    }
    if (!T->arena || T->arena->size - T->arena->used < bytes) {
        const size_t size = bytes > ARENA_CHUNK ? bytes : ARENA_CHUNK;
        tp_arena_chunk *c = malloc(ARENA_HEAD + size);
        if (!c) {
            no_host_memory(T);
            return NULL;
        }
        *c = (tp_arena_chunk){ .size = size };
        if (T->arena)
            T->arena->next = c;
        else
            T->arena_first = c;
        T->arena = c;
    }
    void *p = (char *)T->arena + ARENA_HEAD + T->arena->used;
    T->arena->used += bytes;
    memset(p, 0, bytes);
    return p;
}

tp_buf *tp__alloc(tp_tape *T, size_t bytes, const char *what)
{
    tp_buf *b = tp__buf_new(T->dev, bytes);
    if (!b && T->err.code == TP_OK) {
        char text[512] = "";
        tp__heap_text(T->dev, bytes, text, sizeof text);
        tp__fail(T, TP_E_MEMORY,
                 "%s: out of memory on %s: %s; lower the batch or the sequence, or recompute more",
                 what, T->dev->name, text);
    }
    return b;
}

/* ---- life ---------------------------------------------------------------------------------- */

tp_tape *tp_tape_new(tp_device *D, const tp_tape_opts *o)
{
    static const tp_tape_opts defaults = { 0 };
    tp_tape *T = calloc(1, sizeof *T);
    if (!T) return &no_memory;
    if (!o) o = &defaults;
    T->dev = D;
    T->seed = o->seed;
    T->compute = o->compute;
    T->train = o->train;
    T->check_finite = o->check_finite;
    T->recording = true;
    T->next_gen = FIRST_GEN;
    if (D->err.code != TP_OK)
        tp__err(&T->err, D->err.code, "%s", D->err.text);
    else if (!tp_is_float(o->compute))
        tp__err(&T->err, TP_E_DTYPE, "tape: compute dtype must be f32, bf16 or f64, not %s",
                tp_dtype_name(o->compute));
    else if (o->compute == TP_F64 && D->be->kind != TP_CPU)
        tp__err(&T->err, TP_E_DTYPE, "tape: f64 runs on the CPU only, not on %s", D->name);
    T->born_failed = T->err.code != TP_OK;
    return T;
}

/* Drops the records from `from` on, and what they still hold. */
void tp__recs_drop(tp_tape *T, int64_t from)
{
    for (int64_t i = T->nrecs - 1; i >= from; i--) tp__rec_release(T->recs[i]);
    T->nrecs = from;
}

static void node_recycle(tp_tape *T, tp_node *n)
{
    if (n->live) tp__release(n, NULL);
    tp__buf_unref(n->grad_buf);
    n->grad_buf = NULL;
    n->gen = 0;
    tp__nodes_push(&T->spare, n); /* has room: it came from there */
}

void tp_reset(tp_tape *T)
{
    if (!T->dev) return;
    tp__recs_drop(T, 0);
    for (size_t i = 0; i < T->used.n; i++)
        if (!T->used.at[i]->carried) node_recycle(T, T->used.at[i]);
    for (size_t i = 0; i < T->retired.n; i++) node_recycle(T, T->retired.at[i]);
    T->used.n = T->retired.n = T->open.n = 0;
    T->nscopes = 0;
    T->nreads = 0;
    T->ops = 0;
    T->watch = NULL;
    T->arena = T->arena_first;
    if (T->arena) T->arena->used = 0;
}

void tp_tape_free(tp_tape *T)
{
    if (!T || T == &no_memory) return;
    tp_reset(T);
    for (size_t i = 0; i < T->carried.n; i++) node_recycle(T, T->carried.at[i]);
    for (tp_arena_chunk *c = T->arena_first, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    for (size_t i = 0; i < T->chunks.n; i++) free(T->chunks.at[i]);
    tp_nodes *all[] = { &T->open, &T->used, &T->spare, &T->carried, &T->retired, &T->chunks };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]->at);
    free(T->scopes);
    free(T->recs);
    free(T);
}

void tp_train(tp_tape *T, bool on)
{
    if (T != &no_memory) T->train = on;
}

bool tp_record(tp_tape *T, bool on)
{
    const bool was = T->recording;
    if (T != &no_memory) T->recording = on;
    return was;
}

bool tp_is_training(const tp_tape *T)
{
    return T->train;
}
tp_dtype tp_compute_dtype(const tp_tape *T)
{
    return T->compute;
}

tp_device *tp_device_of(const tp_tape *T)
{
    return T->dev;
}

void tp_random_state(const tp_tape *T, uint64_t *seed, uint64_t *offset)
{
    *seed = T->seed;
    *offset = T->offset;
}

void tp_set_random_state(tp_tape *T, uint64_t seed, uint64_t offset)
{
    if (T == &no_memory) return;
    T->seed = seed;
    T->offset = offset;
}

/* ---- handles ------------------------------------------------------------------------------- */

tp_tensor tp__handle(const tp_node *n)
{
    return n ? (tp_tensor){ (tp_node *)n, n->gen } : TP_FAILED;
}

tp_node *tp__node(tp_tape *T, tp_tensor x, const char *what)
{
    if (T->err.code != TP_OK) return NULL;
    tp_node *n = x.node;
    if (!n) {
        tp__fail(T, TP_E_VALUE,
                 x.gen ? "%s: a failed tensor of another tape" : "%s: is missing (TP_NONE)", what);
        return NULL;
    }
    if (n->gen != x.gen) {
        tp__fail(T, TP_E_STATE, "%s: this tensor was released by an earlier tp_reset", what);
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
            tp__fail(T, TP_E_DEVICE, "%s: the parameter lives on %s, the tape on %s", what,
                     P->dev->name, T->dev->name);
        else if (!tp__params_complete(P))
            tp__fail(T, P->err.code, "%s", P->err.text);
        if (T->err.code != TP_OK) return NULL;
    }
    return n;
}

void tp__note_read(tp_tape *T, tp_params *P)
{
    for (int i = 0; i < T->nreads; i++)
        if (T->reads[i] == P) return;
    if (T->nreads < (int)(sizeof T->reads / sizeof *T->reads)) T->reads[T->nreads++] = P;
}

/* ---- scopes -------------------------------------------------------------------------------- */

void tp_enter(tp_tape *T, const char *path)
{
    if (T->born_failed) return;
    if (T->nscopes == T->scopes_cap) {
        const size_t cap = T->scopes_cap ? 2 * T->scopes_cap : 32;
        tp_scope *s = realloc(T->scopes, cap * sizeof *s);
        if (!s) {
            no_host_memory(T);
            return;
        }
        T->scopes = s;
        T->scopes_cap = cap;
    }
    T->scopes[T->nscopes++] = (tp_scope){ path, T->open.n };
}

static bool is_result(const tp_node *n, int count, const tp_tensor *results)
{
    for (int i = 0; i < count; i++)
        if (results[i].node == n && results[i].gen == n->gen) return true;
    return false;
}

void tp_leave_n(tp_tape *T, int n, const tp_tensor *results)
{
    if (T->nscopes == 0) {
        tp__fail(T, TP_E_STATE, "tp_leave: no scope is open");
        return;
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
    tp_node *n = tp__node(T, x, "tp_detach");
    if (!n) return TP_FAILED;
    if (n->params) tp__note_read(T, n->params);
    return tp__wrap(T, tp__buf_ref(n->buf), &n->view);
}

/* ---- carried tensors ---------------------------------------------------------------------------
 */

/* The carried node of a slot, or NULL if the slot is empty. */
static tp_node *slot_node(const tp_tape *T, const tp_tensor *slot)
{
    tp_node *n = slot->node;
    return n && n->gen == slot->gen && n->carried && n->tape == T ? n : NULL;
}

/* Moves a carried node to those that the next reset recycles. */
static void retire(tp_tape *T, tp_node *n)
{
    for (size_t i = 0; i < T->carried.n; i++)
        if (T->carried.at[i] == n) {
            T->carried.at[i] = T->carried.at[--T->carried.n];
            break;
        }
    n->carried = false;
    if (!tp__nodes_push(&T->retired, n)) no_host_memory(T);
}

tp_tensor tp_carry(tp_tape *T, tp_tensor *slot, tp_tensor x)
{
    if (T->err.code != TP_OK || T->replaying) return *slot;
    tp_node *old = slot_node(T, slot);
    if (!old && slot->node) {
        tp__fail(T, TP_E_STATE,
                 "tp_carry: the slot holds no tensor carried by this tape; start "
                 "with an empty (zero) slot");
        return *slot;
    }
    if (!tp_given(x)) {
        if (old) retire(T, old);
        return *slot = TP_NONE;
    }
    const tp_node *n = tp__node(T, x, "tp_carry");
    if (!n) return *slot;
    if (n->params) {
        tp__fail(T, TP_E_VALUE, "tp_carry: a parameter cannot be carried");
        return *slot;
    }
    tp_node *c = node_take(T);
    if (!c) return *slot;
    c->buf = tp__buf_ref(n->buf);
    c->view = n->view;
    c->carried = true;
    if (!tp__nodes_push(&T->carried, c)) {
        tp__buf_unref(c->buf);
        c->gen = 0;
        T->spare.n++;
        no_host_memory(T);
        return *slot;
    }
    if (old) retire(T, old);
    return *slot = tp__handle(c);
}

static int64_t row_elements(const tp_view *v)
{
    int64_t n = 1;
    for (int i = 1; i < v->ndim; i++) n *= v->dim[i];
    return n;
}

void tp_write_rows(tp_tape *T, tp_tensor dst, int64_t row, tp_tensor src)
{
    tp_node *d = tp__node(T, dst, "tp_write_rows: destination");
    tp_node *s = d ? tp__node(T, src, "tp_write_rows: source") : NULL;
    if (!s) return;
    const tp_view *dv = &d->view, *sv = &s->view;
    if (!d->carried || T->recording) {
        tp__fail(T, TP_E_STATE,
                 "tp_write_rows: writes only carried tensors, and only while "
                 "recording is off");
        return;
    }
    bool fits = dv->dtype == sv->dtype && dv->ndim == sv->ndim && dv->ndim > 0;
    for (int i = 1; fits && i < dv->ndim; i++) fits = dv->dim[i] == sv->dim[i];
    if (!fits || row < 0 || sv->dim[0] > dv->dim[0] - row) {
        char text[256] = "";
        tp__print_view(text, sizeof text, sv);
        tp__append(text, sizeof text, " at row %lld of ", (long long)row);
        tp__print_view(text, sizeof text, dv);
        tp__fail(T, TP_E_SHAPE, "tp_write_rows: does not fit: %s", text);
        return;
    }
    const size_t one = (size_t)row_elements(dv) * tp_dtype_size(dv->dtype);
    T->dev->be->copy(T->dev, (char *)dv->data + (size_t)row * one, sv->data,
                     (size_t)sv->dim[0] * one);
}
