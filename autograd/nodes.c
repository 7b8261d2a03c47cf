/* nodes.c - the tape's memory: nodes, which are recycled, and the arena of records. */
#include <stdlib.h>
#include <string.h>
#include <tapegrad/file.h>

#include "autograd/nodes.h"
#include "autograd/tape.h"

#define NODES_A_CHUNK 256
#define ARENA_CHUNK   ((size_t)64 << 10)
#define ARENA_HEAD    64 /* room for a chunk's header; keeps the data aligned */

static bool reserve(tp_nodes *a, size_t wanted)
{
    return tp_reserve(&a->at, &a->cap, a->n, wanted - a->n, sizeof(tp_node *));
}

bool tp__nodes_push(tp_nodes *a, tp_node *n)
{
    if (!reserve(a, a->n + 1)) return false;
    a->at[a->n++] = n;
    return true;
}

/* Detaches a chunk from its tape. A non-NULL tape distinguishes its nodes from parameters. */
static void disown(tp_node *chunk)
{
    for (int i = 0; i < NODES_A_CHUNK; i++)
        chunk[i] = (tp_node){ .tape = &tp__no_tape_memory, .rec = TP_NO_REC };
}

/* Reserves room in the spare list for every node, so that recycling never fails. A freed tape's
 * handles may point into the chunk; this tape never reuses their gens. */
static bool grow_spare(tp_tape *T)
{
    if (!reserve(&T->spare, (T->chunks.n + 1) * NODES_A_CHUNK)) return false;
    tp_node *chunk = tp__left_take(T->dev, NODES_A_CHUNK * sizeof *chunk);
    if (!chunk) return false;
    disown(chunk);
    if (!tp__nodes_push(&T->chunks, chunk)) {
        tp__left_give(T->dev, chunk);
        return false;
    }
    for (int i = NODES_A_CHUNK - 1; i >= 0; i--) tp__nodes_push(&T->spare, chunk + i);
    return true;
}

void tp__chunks_give(tp_tape *T)
{
    for (size_t i = 0; i < T->chunks.n; i++) {
        disown(T->chunks.at[i]);
        tp__left_give(T->dev, T->chunks.at[i]);
    }
}

/* A live node in no scope yet. */
tp_node *tp__node_take(tp_tape *T)
{
    if (T->spare.n == 0 && !grow_spare(T)) {
        tp__no_host_memory(T);
        return NULL;
    }
    tp_node *n = T->spare.at[--T->spare.n];
    *n = (tp_node){ .gen = T->next_gen++, .tape = T, .rec = TP_NO_REC, .live = true };
    return n;
}

tp_node *tp__node_new(tp_tape *T)
{
    tp_node *n = tp__node_take(T);
    if (!n) return NULL;
    if (!tp__nodes_push(&T->used, n)) {
        T->spare.n++; /* the entry above the end is still this node */
        n->live = false;
        tp__no_host_memory(T);
        return NULL;
    }
    if (!tp__nodes_push(&T->open, n)) {
        n->live = false; /* recycled at reset */
        tp__no_host_memory(T);
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

tp_tensor tp__wrap(tp_tape *T, tp_buf *buf, const tp_view *v)
{
    tp_node *n = tp__node_new(T);
    if (!n) {
        tp__buf_unref(buf);
        return TP_FAILED;
    }
    n->buf = buf;
    n->view = *v;
    return tp__handle(n);
}

void tp__rec_release(tp_rec *r)
{
    for (int i = 0; i < r->nx; i++) {
        tp__buf_unref(r->xbuf[i]);
        r->xbuf[i] = NULL;
    }
    for (int i = 0; i < r->ny; i++) {
        tp__buf_unref(r->ybuf[i]);
        r->ybuf[i] = NULL;
    }
}

void *tp__arena(tp_tape *T, size_t bytes)
{
    bytes = tp__arena_bytes(bytes);
    while (T->arena && T->arena->size - T->arena->used < bytes && T->arena->next) {
        T->arena = T->arena->next;
        T->arena->used = 0;
    }
    if (!T->arena || T->arena->size - T->arena->used < bytes) {
        const size_t size = bytes > ARENA_CHUNK ? bytes : ARENA_CHUNK;
        tp_arena_chunk *c = malloc(ARENA_HEAD + size);
        if (!c) {
            tp__no_host_memory(T);
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

tp_arena_mark tp__arena_at(const tp_tape *T)
{
    return (tp_arena_mark){ T->arena, T->arena ? T->arena->used : 0 };
}

void tp__arena_back(tp_tape *T, tp_arena_mark mark)
{
    T->arena = mark.chunk ? mark.chunk : T->arena_first;
    if (T->arena) T->arena->used = mark.used;
}

void tp__set_grad(tp_node *n, tp_buf *g)
{
    tp__buf_unref(n->grad_buf);
    n->grad_buf = g;
    n->grad = n->view;
    n->grad.data = g ? g->data : NULL;
}

tp_buf *tp__alloc(tp_tape *T, size_t bytes, const char *what)
{
    tp_buf *b = tp__buf_new(T->dev, bytes);
    if (!b && T->dev->err.code != TP_OK) {
        tp__device_failed_at(T, what, false);
    } else if (!b && T->err.code == TP_OK) {
        char text[512] = "";
        tp__heap_text(T->dev, bytes, text, sizeof text);
        tp__fail(T, TP_E_MEMORY,
                 "%s: out of memory on %s: %s; lower the batch or the sequence, recompute more, or "
                 "call tp_reset after each step (this tape has applied %lld ops without)",
                 what, T->dev->name, text, (long long)T->ops);
    }
    return b;
}
