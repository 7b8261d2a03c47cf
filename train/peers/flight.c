/* flight.c - the messages of one bucket. */
#include "train/peers/wire.h"

/* The kinds of messages between this process and another one. */
enum { PIECE_OUT, PIECE_IN, SUMS_OUT, SUMS_IN };

static tp_message *message(const tp_flight *f, const tp_wire *w, int kind, int rank)
{
    return &f->m[kind * w->ranks + rank];
}

static bool all_done(const tp_flight *f, const tp_wire *w, int kind)
{
    bool done = true;
    for (int k = 0; k < w->ranks; k++) done = tp__peers_done(w->G, message(f, w, kind, k)) && done;
    return done;
}

static void send(const tp_flight *f, tp_wire *w, int kind, int to, const void *data, size_t n)
{
    const int tag = kind == PIECE_OUT ? f->tag : f->tag + 1;
    if (tp__peers_send(w->G, message(f, w, kind, to), to, tag, data, n)) w->bytes += (double)n;
}

/* Where a piece begins that goes to its owner. */
static const void *outgoing(const tp_flight *f, const tp_wire *w, int rank)
{
    return w->bf16 ? (const void *)(f->half + tp__piece(w, f->bucket, rank)->from) : f->at[rank];
}

void tp__flight_begin(tp_flight *f, tp_wire *w, int bucket, int tag)
{
    const size_t size = tp__wire_size(w);
    f->bucket = bucket;
    f->tag = tag;
    f->summed = false;
    tp__pack(f, w);
    const size_t own = (size_t)tp__piece(w, bucket, w->rank)->numel * size;
    char *got = f->got;
    for (int k = 0; k < w->ranks; k++) {
        f->asked[k] = k == w->rank || w->shard || tp__piece(w, bucket, k)->numel == 0;
        if (k == w->rank || own == 0) continue;
        tp__peers_receive(w->G, message(f, w, PIECE_IN, k), k, tag, got, own);
        got += own;
    }
    for (int i = 1; i < w->ranks; i++) { /* not all to the same one first */
        const int k = (w->rank + i) % w->ranks;
        const size_t n = (size_t)tp__piece(w, bucket, k)->numel * size;
        if (n > 0) send(f, w, PIECE_OUT, k, outgoing(f, w, k), n);
    }
}

/* Sums the own piece once all of it has come, and sends the sums. */
static void sum(tp_flight *f, tp_wire *w)
{
    const size_t size = tp_dtype_size(w->P->dtype);
    const size_t own = (size_t)tp__piece(w, f->bucket, w->rank)->numel * size;
    if (f->summed || !all_done(f, w, PIECE_IN)) return;
    f->summed = true;
    if (own == 0) return;
    if (w->G->err.code == TP_OK) tp__sum(f, w);
    for (int i = 1; !w->shard && i < w->ranks; i++)
        send(f, w, SUMS_OUT, (w->rank + i) % w->ranks, f->at[w->rank], own);
}

/* Asks for the sums of pieces that have gone: they come to the same memory. */
static bool ask(tp_flight *f, tp_wire *w)
{
    const size_t size = tp_dtype_size(w->P->dtype);
    bool all = true;
    for (int k = 0; k < w->ranks; k++) {
        if (!f->asked[k] && tp__peers_done(w->G, message(f, w, PIECE_OUT, k))) {
            const size_t n = (size_t)tp__piece(w, f->bucket, k)->numel * size;
            tp__peers_receive(w->G, message(f, w, SUMS_IN, k), k, f->tag + 1, f->at[k], n);
            f->asked[k] = true;
        }
        all = all && f->asked[k];
    }
    return all;
}

bool tp__flight_landed(tp_flight *f, tp_wire *w)
{
    sum(f, w);
    if (!ask(f, w) || !f->summed) return false;
    if (!all_done(f, w, PIECE_OUT) || !all_done(f, w, SUMS_OUT) || !all_done(f, w, SUMS_IN))
        return false;
    if (w->G->err.code != TP_OK) return true; /* messages under way may still use the memory */
    tp__unpack(f, w);
    f->bucket = -1;
    return true;
}

int tp__flight_waits(const tp_flight *f, const tp_wire *w)
{
    for (int i = 0; i < 4 * w->ranks; i++)
        if (f->m[i].request) return f->m[i].peer;
    return -1;
}
