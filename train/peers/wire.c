/* wire.c - the plan of an exchange: pieces of buckets, and the memory of a bucket in flight. */
#include "train/peers/wire.h"

#include <stdlib.h>

/* ---- the plan ---- */

/* Gives each cut the owner of its whole parameter. */
static void take_owners(tp_cuts *c, const tp_cuts *shards)
{
    for (int i = 0; i < c->n; i++)
        for (int k = 0; k < shards->n; k++)
            if (shards->at[k].entry == c->at[i].entry) c->at[i].owner = shards->at[k].owner;
}

/* Orders the cuts of each bucket by owner and notes the pieces. `from` has the cuts by bucket. */
static void make_pieces(tp_wire *w, const tp_cuts *from)
{
    tp_cut *to = w->cuts.at;
    int begin = 0, end, n = 0;
    for (int b = 0; b < from->buckets; b++, begin = end) {
        int64_t numel = 0;
        for (end = begin; end < from->n && from->at[end].bucket == b;) end++;
        for (int k = 0; k < w->ranks; k++) {
            tp_piece *p = tp__piece(w, b, k);
            *p = (tp_piece){ .first = n, .from = numel };
            for (int i = begin; i < end; i++)
                if (from->at[i].owner == k) {
                    to[n++] = from->at[i];
                    p->numel += from->at[i].numel;
                }
            p->n = n - p->first;
            numel += p->numel;
        }
    }
}

static void note_buckets(tp_wire *w)
{
    for (int e = 0; e < w->P->n; e++) w->begins[e] = w->cuts.buckets;
    for (int e = 0; e < w->P->n; e++) w->ends[e] = -1;
    for (int i = 0; i < w->cuts.n; i++) {
        const tp_cut *c = &w->cuts.at[i];
        if (c->bucket < w->begins[c->entry]) w->begins[c->entry] = c->bucket;
        if (c->bucket > w->ends[c->entry]) w->ends[c->entry] = c->bucket;
    }
}

bool tp__wire_open(tp_wire *w, size_t bytes, const tp_cuts *shards)
{
    const size_t n = (size_t)w->P->n + 1;
    tp_cuts c = tp__cuts_new(w->P, w->ranks, bytes, false);
    if (!c.at) return false;
    if (shards) take_owners(&c, shards);
    w->cuts = c;
    w->cuts.at = calloc((size_t)c.n + 1, sizeof *c.at);
    w->pieces = calloc((size_t)c.buckets * (size_t)w->ranks + 1, sizeof *w->pieces);
    w->begins = calloc(n, sizeof *w->begins);
    w->ends = calloc(n, sizeof *w->ends);
    w->touched = calloc(n, sizeof *w->touched);
    w->reached = calloc(n, sizeof *w->reached);
    if (w->bf16) w->error = calloc(w->P->block_bytes / sizeof *w->error + 1, sizeof *w->error);
    const bool done = w->cuts.at && w->pieces && w->begins && w->ends && w->touched && w->reached &&
                      (w->error || !w->bf16);
    if (done) {
        make_pieces(w, &c);
        note_buckets(w);
    }
    tp__cuts_free(&c);
    return done;
}

void tp__wire_close(tp_wire *w)
{
    tp__cuts_free(&w->cuts);
    free(w->pieces);
    free(w->begins);
    free(w->ends);
    free(w->touched);
    free(w->reached);
    free(w->error);
    *w = (tp_wire){ 0 };
}

/* ---- memory of a bucket in flight ---- */

typedef struct most { /* of all buckets */
    size_t numel, own, cuts;
} most;

static most most_of(const tp_wire *w)
{
    most m = { 0 };
    for (int b = 0; b < w->cuts.buckets; b++) {
        const tp_piece *first = tp__piece(w, b, 0), *last = tp__piece(w, b, w->ranks - 1);
        const size_t numel = (size_t)(last->from + last->numel);
        const size_t own = (size_t)tp__piece(w, b, w->rank)->numel;
        const size_t cuts = (size_t)(last->first + last->n - first->first);
        if (numel > m.numel) m.numel = numel;
        if (own > m.own) m.own = own;
        if (cuts > m.cuts) m.cuts = cuts;
    }
    return m;
}

static size_t got_bytes(const tp_wire *w, const most *m)
{
    return m->own * (size_t)(w->ranks - 1) * tp__wire_size(w);
}

size_t tp__flight_bytes(const tp_wire *w)
{
    const most m = most_of(w);
    const size_t half = w->bf16 ? m.numel * sizeof(uint16_t) : 0;
    return m.numel * tp_dtype_size(w->P->dtype) + got_bytes(w, &m) + half;
}

bool tp__flight_open(tp_flight *f, const tp_wire *w)
{
    const most m = most_of(w);
    const size_t ranks = (size_t)w->ranks;
    *f = (tp_flight){ .bucket = -1 };
    f->asked = calloc(ranks, sizeof *f->asked);
    f->m = calloc(4 * ranks, sizeof *f->m);
    f->at = calloc(ranks, sizeof *f->at);
    f->held = calloc(m.cuts + 1, sizeof(tp_buf *));
    f->staged = malloc(m.numel * tp_dtype_size(w->P->dtype) + 1);
    f->got = malloc(got_bytes(w, &m) + 1);
    if (w->bf16) f->half = malloc(m.numel * sizeof *f->half + 1);
    return f->asked && f->m && f->at && f->held && f->staged && f->got && (f->half || !w->bf16);
}

/* Memory that messages under way still use stays, as do their gradients. */
void tp__flight_close(tp_flight *f)
{
    if (f->bucket >= 0) return;
    free(f->asked);
    free(f->m);
    free(f->at);
    free(f->held);
    free(f->staged);
    free(f->got);
    free(f->half);
}
