/* shards.c - gathers what the owners of stretches have computed: values and sums of squares.
 *
 * Values go from block to block without a copy; those of a GPU pass through host memory, a bucket
 * at a time. All messages of a call have one tag: they arrive in the order in which they began, and
 * all processes begin them in the order of the cuts. */
#include "train/peers/shards.h"

#include <stdlib.h>
#include <string.h>

/* ---- messages ---- */

/* Reports the failure of G in e. */
static bool lost(const tp_peers *G, tp_err *e)
{
    tp__err(e, TP_E_IO, "%s", tp_peers_why(G));
    return false;
}

/* Begins to send a process's own bytes to all others, or to receive those of another one. Returns
 * how many messages these are; after a failure, which G keeps, perhaps fewer. */
static int begin(tp_peers *G, tp_message *m, int owner, int tag, void *data, size_t bytes)
{
    int n = 0;
    if (owner != tp_peers_rank(G)) return tp__peers_receive(G, m, owner, tag, data, bytes);
    for (int k = 0; k < tp_peers_count(G); k++)
        if (k != owner) n += tp__peers_send(G, &m[n], k, tag, data, bytes);
    return n;
}

/* ---- values ---- */

/* Bytes of the block of values that one process has stepped, all in one bucket. */
typedef struct run {
    int owner, bucket;
    size_t at, bytes;
} run;

/* Lists the runs; all: also of parameters that were not stepped. Cuts that follow each other are
 * joined, with the gap between parameters. */
static int list_runs(const tp_cuts *c, const tp_params *P, bool all, run *runs)
{
    const size_t size = tp_dtype_size(P->dtype);
    bool joins = false; /* the cut before this one is in the last run */
    int n = 0;
    for (int i = 0; i < c->n; i++) {
        const tp_cut *t = &c->at[i];
        const tp_entry *e = &P->entries[t->entry];
        const size_t at = e->at + (size_t)t->first * size, bytes = (size_t)t->numel * size;
        const bool stepped = all || tp__is_stepped(e);
        run *last = n > 0 ? &runs[n - 1] : NULL;
        if (stepped && joins && last->owner == t->owner && last->bucket == t->bucket)
            last->bytes = at + bytes - last->at;
        else if (stepped)
            runs[n++] = (run){ t->owner, t->bucket, at, bytes };
        joins = stepped;
    }
    return n;
}

/* The first run of the next bucket. */
static int next_bucket(const run *runs, int n, int from)
{
    int end = from;
    while (end < n && runs[end].bucket == runs[from].bucket) end++;
    return end;
}

/* Begins the messages of runs [from, end), whose bytes are at `host` + their place - base. */
static int begin_runs(tp_peers *G, tp_message *m, int tag, const run *runs, int from, int end,
                      char *host, size_t base)
{
    int n = 0;
    for (int i = from; i < end; i++)
        n += begin(G, &m[n], runs[i].owner, tag, host + (runs[i].at - base), runs[i].bytes);
    return n;
}

/* The most bytes that the runs of a bucket extend over. */
static size_t largest_bucket(const run *runs, int n)
{
    size_t most = 0;
    for (int i = 0, end; i < n; i = end) {
        end = next_bucket(runs, n, i);
        const size_t bytes = runs[end - 1].at + runs[end - 1].bytes - runs[i].at;
        if (bytes > most) most = bytes;
    }
    return most;
}

/* The values are in host memory. */
static bool gather_direct(tp_peers *G, const tp_params *P, tp_message *m, const run *runs, int n)
{
    return tp__peers_wait(G, m, begin_runs(G, m, tp__peers_tag(G), runs, 0, n, P->values->data, 0));
}

static bool gather_staged(tp_peers *G, const tp_params *P, tp_message *m, const run *runs, int n,
                          char *host)
{
    tp_device *D = P->dev;
    const int tag = tp__peers_tag(G);
    bool done = true;
    for (int i = 0, end; done && i < n; i = end) {
        const size_t base = runs[i].at;
        end = next_bucket(runs, n, i);
        for (int k = i; k < end; k++)
            if (runs[k].owner == tp_peers_rank(G))
                D->be->download(D, host + (runs[k].at - base),
                                (const char *)P->values->data + runs[k].at, runs[k].bytes);
        done = tp__peers_wait(G, m, begin_runs(G, m, tag, runs, i, end, host, base));
        for (int k = i; done && k < end; k++)
            if (runs[k].owner != tp_peers_rank(G))
                D->be->upload(D, (char *)P->values->data + runs[k].at, host + (runs[k].at - base),
                              runs[k].bytes);
    }
    return done;
}

bool tp__shards_values(tp_peers *G, const tp_cuts *c, const tp_params *P, bool all, tp_err *e)
{
    if (P->dev->dry || c->ranks == 1) return true;
    const bool direct = P->dev->be->kind == TP_CPU;
    run *runs = malloc(((size_t)c->n + 1) * sizeof *runs);
    const int n = runs ? list_runs(c, P, all, runs) : 0;
    tp_message *m = runs ? calloc((size_t)n * (size_t)c->ranks + 1, sizeof *m) : NULL;
    char *host = m && !direct ? malloc(largest_bucket(runs, n) + 1) : NULL;
    bool done = m && (direct || host);
    if (!done)
        tp__peers_fail(G, "out of host memory for the values of other processes");
    else if (direct)
        done = gather_direct(G, P, m, runs, n);
    else
        done = gather_staged(G, P, m, runs, n, host);
    free(host);
    free(m);
    free(runs);
    return done || lost(G, e);
}

/* ---- sums of squares ---- */

static int64_t blocks_of(const tp_params *P, const tp_cut *t)
{
    return P->entries[t->entry].node->grad_buf ? tp__blocks_of(t->numel) : 0;
}

/* Gathers them into `all`, those of rank 0 first; from: where each rank's begin. */
static bool gather_squares(tp_peers *G, const double *mine, double *all, const int64_t *from)
{
    const int ranks = tp_peers_count(G), rank = tp_peers_rank(G);
    tp_message *m = calloc(2 * (size_t)ranks, sizeof *m);
    if (!m) return tp__peers_fail(G, "out of host memory for the norm");
    const int tag = tp__peers_tag(G);
    int n = 0;
    memcpy(all + from[rank], mine, (size_t)(from[rank + 1] - from[rank]) * sizeof *all);
    for (int k = 0; k < ranks; k++)
        n += begin(G, &m[n], k, tag, all + from[k], (size_t)(from[k + 1] - from[k]) * sizeof *all);
    const bool done = tp__peers_wait(G, m, n);
    free(m);
    return done;
}

/* Copies them from the order of the ranks to that of the parameters. at: for each rank, the next
 * one; first: for each parameter, its first block. */
static void sort_squares(const tp_cuts *c, const tp_params *P, const double *all, int64_t *at,
                         int64_t *first, double *sorted)
{
    int64_t blocks = 0;
    for (int i = 0; i < P->n; i++) {
        first[i] = blocks;
        if (tp__in_block(&P->entries[i]) && P->entries[i].node->grad_buf)
            blocks += tp__blocks_of(P->entries[i].node->view.numel);
    }
    for (int i = 0; i < c->n; i++) {
        const tp_cut *t = &c->at[i];
        const int64_t n = blocks_of(P, t);
        memcpy(sorted + first[t->entry] + t->first / TP_BLOCK, all + at[t->owner],
               (size_t)n * sizeof *all);
        at[t->owner] += n;
    }
}

double *tp__shards_squares(tp_peers *G, const tp_cuts *c, const tp_params *P, const double *mine,
                           int64_t *n, tp_err *e)
{
    int64_t *from = calloc((size_t)c->ranks + 1 + (size_t)P->n, sizeof *from);
    for (int i = 0; from && i < c->n; i++) from[c->at[i].owner + 1] += blocks_of(P, &c->at[i]);
    for (int k = 0; from && k < c->ranks; k++) from[k + 1] += from[k];
    *n = from ? from[c->ranks] : 0;
    double *all = malloc(((size_t)*n + 1) * sizeof *all);
    double *sorted = malloc(((size_t)*n + 1) * sizeof *sorted);
    bool done = from && all && sorted;
    if (!done)
        tp__peers_fail(G, "out of host memory for the norm");
    else
        done = gather_squares(G, mine, all, from);
    if (done) sort_squares(c, P, all, from, from + c->ranks + 1, sorted);
    free(from);
    free(all);
    if (done) return sorted;
    free(sorted);
    lost(G, e);
    return NULL;
}
