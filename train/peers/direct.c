/* direct.c - sums over GPUs by their own library: whether all processes can, and one update.
 *
 * The library sees the same sums in the same order in all processes, as buckets leave in the same
 * order. It serves one exchange of a device: the buckets of two would interleave differently in
 * each process, and all would wait for ever.
 *
 * Before the first update the processes compare versions of the library, hosts and GPUs. If one
 * lacks the library, two share a GPU, which NCCL refuses, or gradients are rounded to bf16, whose
 * error feedback is the host's, all use messages. The host waits once an update, by polling, so
 * that the watchdog sees a process that is lost. Recordings contain no sums: those of a recorded
 * step begin after its launch. */
#include "train/peers/direct.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SPINS = 1000 };

static const tp_collective *library_of(const tp_wire *w)
{
    return tp__collective(w->P->dev);
}

/* ---- agreement ---- */

/* Elements of the longest cut. */
static size_t longest(const tp_wire *w)
{
    int64_t n = 0;
    for (int i = 0; i < w->cuts.n; i++)
        if (w->cuts.at[i].numel > n) n = w->cuts.at[i].numel;
    return (size_t)n;
}

static bool allocate(tp_direct *d, const tp_wire *w)
{
    const size_t cuts = (size_t)w->cuts.n + 1;
    d->stretches = calloc(cuts, sizeof *d->stretches);
    d->held = calloc(cuts, sizeof(tp_buf *));
    d->spare = tp__buf_new(w->P->dev, longest(w) * tp_dtype_size(w->P->dtype));
    return d->stretches && d->held && d->spare;
}

static void release(tp_direct *d, const tp_wire *w)
{
    for (int i = 0; d->held && i < w->cuts.n; i++) {
        tp__buf_unref(d->held[i]);
        d->held[i] = NULL;
    }
}

void tp__direct_close(tp_direct *d, tp_wire *w)
{
    if (d->is_open)
        library_of(w)->close(w->P->dev, d->flying || (d->on && w->G->err.code != TP_OK));
    release(d, w);
    free(d->stretches);
    free(d->held);
    tp__buf_unref(d->spare);
    *d = (tp_direct){ 0 };
}

static void use_messages(tp_direct *d, tp_wire *w, const char *why)
{
    tp__direct_close(d, w);
    snprintf(d->path, sizeof d->path, "messages%s%s", why[0] ? ": " : "", why);
}

void tp__direct_offer(tp_direct *d, tp_wire *w, tp_offer *offer)
{
    const tp_collective *c = library_of(w);
    tp_offer mine = { .plan = offer->plan };
    char why[TP_WHY] = "";
    snprintf(mine.host, sizeof mine.host, "%s", w->G->t.host);
    d->is_open = c && !w->bf16 && c->open(w->P->dev, mine.library, mine.gpu, why);
    if (d->is_open && allocate(d, w)) {
        *offer = mine;
        return;
    }
    if (c && w->bf16) snprintf(why, sizeof why, "bf16 is rounded on the host");
    if (d->is_open) snprintf(why, sizeof why, "out of memory for sums on the GPU");
    use_messages(d, w, why);
}

/* NULL, or why sums cannot be direct. */
static const char *objection(const tp_offer *all, int ranks)
{
    for (int k = 0; k < ranks; k++) {
        if (!all[k].library[0]) return "another process cannot use NCCL";
        if (strcmp(all[k].library, all[0].library) != 0) return "versions of NCCL differ";
        for (int j = 0; j < k; j++)
            if (strcmp(all[j].host, all[k].host) == 0 && strcmp(all[j].gpu, all[k].gpu) == 0)
                return "processes share a GPU";
    }
    return NULL;
}

typedef struct meeting {
    char id[TP_COLLECTIVE_ID];
    bool is_open;
} meeting;

/* One that fails says so at once; the others notice by the watchdog. */
static bool join(tp_wire *w, char *why)
{
    const tp_collective *c = library_of(w);
    tp_device *D = w->P->dev;
    meeting m = { .is_open = false };
    if (w->rank == 0) m.is_open = c->meet(D, m.id, why);
    if (!tp_peers_broadcast(w->G, &m, sizeof m)) return false;
    w->G->waiting = w->ranks;
    const bool joined = m.is_open && c->join(D, m.id, w->rank, w->ranks, why);
    w->G->waiting = -1;
    return joined;
}

bool tp__direct_agree(tp_direct *d, tp_wire *w, const tp_offer *all)
{
    const char *against = objection(all, w->ranks);
    char why[TP_WHY] = "rank 0 could not start NCCL";
    if (against && d->is_open) use_messages(d, w, against);
    if (against) return true;
    d->on = true;
    snprintf(d->path, sizeof d->path, "%s", all[0].library);
    return join(w, why) || tp__peers_fail(w->G, "exchange: %s", why);
}

/* ---- one update ---- */

void tp__direct_leave(tp_direct *d, tp_wire *w, int bucket)
{
    const size_t size = tp_dtype_size(w->P->dtype);
    const tp_piece *first = tp__piece(w, bucket, 0), *last = first + w->ranks - 1;
    char why[TP_WHY] = "";
    int n = 0;
    for (int i = first->first; i < last->first + last->n; i++) {
        const tp_cut *c = &w->cuts.at[i];
        tp_buf *g = d->held[i] = tp__gradient(w, c->entry);
        d->stretches[n++] = (tp_addend){
            .at = g ? (char *)g->data + (size_t)c->first * size : d->spare->data,
            .n = (size_t)c->numel,
            .owner = w->shard ? c->owner : -1,
        };
        w->bytes += (double)c->numel * (double)size;
    }
    d->flying = true;
    if (!library_of(w)->sum(w->P->dev, d->stretches, n, w->P->dtype, why))
        tp__peers_fail(w->G, "exchange: %s", why);
}

void tp__direct_wait(tp_direct *d, tp_wire *w)
{
    const tp_collective *c = library_of(w);
    char why[TP_WHY] = "";
    int done = w->G->err.code == TP_OK && c->follow(w->P->dev, why) ? 0 : -1;
    for (int spins = 1; done == 0; spins++) {
        w->G->waiting = w->ranks;
        done = c->done(w->P->dev, why);
        if (spins % SPINS == 0) sched_yield();
    }
    w->G->waiting = -1;
    w->G->progress++;
    if (done < 0) {
        tp__peers_fail(w->G, "exchange: %s", why);
        return;
    }
    d->flying = false;
    release(d, w);
}
