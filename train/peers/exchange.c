/* exchange.c - sums gradients over processes: which bucket leaves when.
 *
 * All processes send buckets in the same order, of which each has its own place in the transport's
 * streams. In the first update that is the reverse of the block of values, after backward; in it
 * rank 0 notes in which order its buckets become complete, and that is the order from then on. It
 * decides only about speed: whatever backward reaches, finish sends what has not left.
 *
 * Buckets are packed, summed and unpacked when backward passes a parameter. A thread of their own
 * for this was slower in every trial. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/random.h>

#include "autograd/nodes.h"
#include "train/peers/direct.h"
#include "train/peers/exchange.h"

enum {
    FLIGHTS = 8,
    CPU_BUCKET = 1 << 20, /* the buffers of all in flight fit into the cache */
    GPU_BUCKET = 4 << 20,
    TAGS = 1024, /* of one exchange, for two stages: far more than buckets in flight */
    SPINS = 1000
};

typedef enum phase { IDLE, ARMED, WALKING, WALKED } phase;

struct tp_exchange {
    tp_err err;  /* permanent */
    tp_err last; /* of the last finish */
    tp_params *P;
    tp_peers *G;
    tp_exchange_opts o;
    bool whole; /* owners have whole parameters */
    tp_cuts shards;
    tp_wire w;
    tp_direct direct;
    tp_flight flight[FLIGHTS]; /* none if sums are direct */
    int flights;
    int base;      /* of tags */
    uint64_t left; /* buckets so far */
    phase phase;
    /* Of the running update */
    bool open;
    int next;       /* place in the order of the bucket that leaves next */
    bool *stays;    /* by bucket: all of it is frozen */
    int *missing;   /* by bucket: parameters that are not final */
    bool *is_final; /* by entry */
    /* By place: buckets */
    bool learned;
    int *order, *noted, nnoted;
    tp_exchange_stats stats;
};

static tp_exchange no_memory = {
    .err = { TP_E_MEMORY, "exchange: out of memory for the object itself", NULL },
};

static bool refuse(tp_exchange *X, tp_code code, const char *text)
{
    tp__err(&X->err, code, "exchange: %s", text);
    return false;
}

static bool alone(const tp_exchange *X)
{
    return tp_peers_count(X->G) == 1 || X->P->dev->dry;
}

/* ---- construction ---- */

static void close_flights(tp_exchange *X)
{
    for (int i = 0; i < X->flights; i++) tp__flight_close(&X->flight[i]);
    X->flights = 0;
}

static void close_plan(tp_exchange *X)
{
    tp__direct_close(&X->direct, &X->w);
    close_flights(X);
    tp__wire_close(&X->w);
    tp__cuts_free(&X->shards);
    free(X->stays);
    free(X->missing);
    free(X->is_final);
    free(X->order);
    free(X->noted);
    X->stays = X->is_final = NULL;
    X->missing = X->order = X->noted = NULL;
}

/* As many flights as fit into twice the bytes of FLIGHTS buckets. */
static bool open_flights(tp_exchange *X)
{
    const size_t each = tp__flight_bytes(&X->w) + 1, all = 2 * (size_t)FLIGHTS * X->o.bucket;
    size_t n = all / each;
    if (n > FLIGHTS) n = FLIGHTS;
    if (n > (size_t)X->w.cuts.buckets) n = (size_t)X->w.cuts.buckets;
    if (n < 1) n = 1;
    X->stats.memory = n * (each - 1) + (X->w.error ? X->P->block_bytes : 0);
    while (X->flights < (int)n)
        if (!tp__flight_open(&X->flight[X->flights++], &X->w)) return false;
    return true;
}

static bool make_plan(tp_exchange *X)
{
    const int ranks = tp_peers_count(X->G);
    if (X->o.bucket == 0) X->o.bucket = X->P->dev->be->kind == TP_CPU ? CPU_BUCKET : GPU_BUCKET;
    X->w = (tp_wire){ X->P, X->G, tp_peers_rank(X->G), ranks, X->o.bf16, .shard = X->o.shard };
    X->shards = tp__cuts_new(X->P, ranks, X->o.bucket, X->whole);
    if (!X->shards.at || !tp__wire_open(&X->w, X->o.bucket, X->whole ? &X->shards : NULL))
        return false;
    const size_t n = (size_t)X->w.cuts.buckets + 1;
    X->stays = calloc(n, sizeof *X->stays);
    X->missing = calloc(n, sizeof *X->missing);
    X->order = calloc(n, sizeof *X->order);
    X->noted = calloc(n, sizeof *X->noted);
    X->is_final = calloc((size_t)X->P->n + 1, sizeof *X->is_final);
    if (!X->stays || !X->missing || !X->order || !X->noted || !X->is_final) return false;
    for (int i = 0; i < X->w.cuts.buckets; i++) X->order[i] = X->w.cuts.buckets - 1 - i;
    return open_flights(X);
}

static bool plan(tp_exchange *X)
{
    if (make_plan(X)) return true;
    close_plan(X);
    return refuse(X, TP_E_MEMORY, "out of host memory for buckets");
}

static bool acceptable(tp_exchange *X)
{
    if (!X->P || !tp__params_complete(X->P)) {
        tp__err(&X->err, X->P ? X->P->err.code : TP_E_STATE, "exchange: %s", tp_params_why(X->P));
        return false;
    }
    if (X->P->exchange)
        return refuse(X, TP_E_STATE,
                      "these parameters have an exchange already; free it before another is made");
    if (X->o.bf16 && X->P->dtype != TP_F32)
        return refuse(X, TP_E_DTYPE, "gradients travel as bf16 only if parameters are f32");
    return true;
}

/* What all processes must have alike. */
static uint64_t plan_hash(const tp_exchange *X)
{
    uint64_t h = tp_hash(TP_HASH, X->o.bucket);
    h = tp_hash(h, (uint64_t)(X->P->dtype * 4 + X->o.bf16 * 2 + X->o.shard));
    for (int i = 0; i < X->shards.n; i++) {
        h = tp_hash(h, (uint64_t)X->shards.at[i].entry);
        h = tp_hash(h, (uint64_t)X->shards.at[i].numel);
    }
    for (int e = 0; e < X->P->n; e++) h = tp_hash(h, X->P->entries[e].node->frozen);
    return h;
}

tp_exchange *tp_exchange_new(tp_params *P, tp_peers *G, const tp_exchange_opts *o)
{
    tp_exchange *X = calloc(1, sizeof *X);
    if (!X) return &no_memory;
    X->P = P;
    X->G = G;
    if (o) X->o = *o;
    if (acceptable(X) && !alone(X)) plan(X);
    if (X->err.code != TP_OK) return X;
    if (G) X->base = TP_TAG_BUCKET + G->exchanges++ % ((TP_TAGS - TP_TAG_BUCKET) / TAGS) * TAGS;
    P->exchange = X;
    return X;
}

void tp_exchange_free(tp_exchange *X)
{
    if (!X || X == &no_memory) return;
    if (X->P && X->P->exchange == X) {
        X->P->exchange = NULL;
        X->P->follower = NULL;
    }
    close_plan(X);
    free(X);
}

bool tp_exchange_ok(const tp_exchange *X)
{
    return X && X->err.code == TP_OK;
}

const char *tp_exchange_why(const tp_exchange *X)
{
    if (!X) return "exchange: NULL was given in place of an exchange";
    return X->err.code != TP_OK ? X->err.text : X->last.text;
}

/* ---- for the optimiser ---- */

const tp_cuts *tp__exchange_shards(const tp_params *P)
{
    const tp_exchange *X = P->exchange;
    return X && X->o.shard && X->shards.at ? &X->shards : NULL;
}

tp_peers *tp__exchange_peers(const tp_params *P)
{
    return P->exchange ? P->exchange->G : NULL;
}

bool tp__exchange_whole(tp_exchange *X)
{
    if (!tp_exchange_ok(X)) return false;
    if (!X->o.shard || X->whole || alone(X)) return true;
    if (X->stats.updates > 0 || X->open)
        return refuse(X, TP_E_STATE,
                      "an optimiser that needs whole parameters must be created before the first "
                      "update");
    close_plan(X);
    X->whole = true;
    return plan(X);
}

/* ---- buckets leave and land ---- */

/* True if any landed. */
static bool land(tp_exchange *X)
{
    bool any = false;
    for (int i = 0; i < X->flights; i++) {
        tp_flight *f = &X->flight[i];
        if (f->bucket >= 0 && X->G->err.code == TP_OK) any = tp__flight_landed(f, &X->w) || any;
    }
    return any;
}

static tp_flight *free_flight(tp_exchange *X)
{
    for (int i = 0; i < X->flights; i++)
        if (X->flight[i].bucket < 0) return &X->flight[i];
    return NULL;
}

/* Lets buckets leave in the order, up to the first one that is not complete. */
static void leave(tp_exchange *X)
{
    for (; X->next < X->w.cuts.buckets; X->next++) {
        const int bucket = X->order[X->next];
        if (X->stays[bucket]) continue;
        if (X->missing[bucket] > 0 || X->G->err.code != TP_OK) return;
        if (X->direct.on) {
            tp__direct_leave(&X->direct, &X->w, bucket);
            continue;
        }
        tp_flight *f = free_flight(X);
        if (!f) return;
        const int tag = X->base + (int)(X->left++ % (TAGS / 2)) * 2;
        tp__flight_begin(f, &X->w, bucket, tag);
    }
}

static bool is_flying(const tp_exchange *X)
{
    for (int i = 0; i < X->flights; i++)
        if (X->flight[i].bucket >= 0) return true;
    return false;
}

static int waits_for(const tp_exchange *X)
{
    int rank = -1;
    for (int i = 0; rank < 0 && i < X->flights; i++)
        if (X->flight[i].bucket >= 0) rank = tp__flight_waits(&X->flight[i], &X->w);
    return rank;
}

static void send_rest(tp_exchange *X)
{
    int spins = 0;
    memset(X->missing, 0, (size_t)X->w.cuts.buckets * sizeof *X->missing);
    for (leave(X); is_flying(X) && X->G->err.code == TP_OK; leave(X)) {
        if (land(X)) continue;
        X->G->waiting = waits_for(X);
        if (++spins % SPINS == 0) sched_yield();
    }
    X->G->waiting = -1;
    if (X->direct.on) tp__direct_wait(&X->direct, &X->w);
}

/* ---- one update ---- */

static bool agree(tp_exchange *X, const tp_offer *all)
{
    if (!tp__direct_agree(&X->direct, &X->w, all)) return false;
    if (!X->direct.on) return true;
    close_flights(X);
    X->stats.memory = X->direct.spare->bytes;
    return true;
}

/* In the first update, before anything is sent: do all processes send the same, and how? */
static bool compare(tp_exchange *X)
{
    const int ranks = tp_peers_count(X->G);
    tp_offer mine = { .plan = plan_hash(X) }, *all = calloc((size_t)ranks, sizeof mine);
    if (!all) return tp__peers_fail(X->G, "out of memory for a comparison");
    tp__direct_offer(&X->direct, &X->w, &mine);
    const bool got = tp_peers_gather(X->G, &mine, sizeof mine, all);
    for (int k = 1; got && k < ranks; k++)
        if (all[k].plan != all[0].plan)
            tp__err(&X->err, TP_E_VALUE,
                    "exchange: the parameters or the options of rank %d differ from those of rank "
                    "0: all processes must build and freeze the same model",
                    k);
    const bool same = got && X->err.code == TP_OK && agree(X, all);
    free(all);
    return same;
}

/* A bucket of frozen parameters stays. That is decided once an update, as it must be the same in
 * all processes. */
static void open_update(tp_exchange *X)
{
    if (X->open) return;
    X->open = true;
    X->next = 0;
    X->w.failed = false;
    memset(X->w.touched, 0, (size_t)X->P->n * sizeof *X->w.touched);
    memset(X->w.reached, 0, (size_t)X->P->n * sizeof *X->w.reached);
    for (int b = 0; b < X->w.cuts.buckets; b++) X->stays[b] = true;
    for (int i = 0; i < X->w.cuts.n; i++) {
        const tp_cut *c = &X->w.cuts.at[i];
        if (!X->P->entries[c->entry].node->frozen) X->stays[c->bucket] = false;
    }
}

static void note(tp_exchange *X, int bucket)
{
    if (!X->learned) X->noted[X->nnoted++] = bucket;
}

static void follow(tp_exchange *X)
{
    const int64_t began = tp__nanoseconds();
    if (X->learned) {
        land(X);
        leave(X);
    }
    X->stats.hidden += (double)(tp__nanoseconds() - began) * 1e-9;
}

static void backward_begins(void *env)
{
    tp_exchange *X = env;
    if (X->phase != ARMED) {
        X->phase = WALKED;
        return;
    }
    X->phase = WALKING;
    X->nnoted = 0;
    memset(X->missing, 0, (size_t)X->w.cuts.buckets * sizeof *X->missing);
    for (int e = 0; e < X->P->n; e++) {
        X->is_final[e] = X->P->entries[e].node->pending == 0;
        for (int b = X->w.begins[e]; !X->is_final[e] && b <= X->w.ends[e]; b++) X->missing[b]++;
    }
    for (int b = X->w.cuts.buckets - 1; b >= 0; b--)
        if (X->missing[b] == 0) note(X, b);
    follow(X);
}

static void gradient_passed(void *env, const tp_node *param)
{
    tp_exchange *X = env;
    const int e = param->index;
    if (X->phase != WALKING || X->is_final[e]) return;
    X->is_final[e] = true;
    for (int b = X->w.ends[e]; b >= X->w.begins[e]; b--)
        if (--X->missing[b] == 0) note(X, b);
    follow(X);
}

void tp_exchange_begin(tp_exchange *X)
{
    static const tp_follower follower = { backward_begins, gradient_passed };
    if (!tp_exchange_ok(X) || alone(X)) return;
    open_update(X);
    for (int i = 0; i < X->P->n; i++) X->P->entries[i].node->pending = 0; /* of one that failed */
    if (X->o.after) return;
    X->phase = ARMED;
    X->P->follower = &follower;
}

/* ---- the end of an update: what all processes must know ---- */

enum { FAILED = 1, LEARNS = 2 };

/* A byte of flags, then one of each entry: was it reached? */
static uint8_t *tell(tp_exchange *X, size_t n)
{
    const int ranks = tp_peers_count(X->G);
    uint8_t *all = calloc((size_t)ranks + 1, n), *mine = all ? all + (size_t)ranks * n : NULL;
    if (!all) {
        tp__peers_fail(X->G, "out of memory for what the processes reached");
        return NULL;
    }
    const bool complete = !X->o.after && X->nnoted == X->w.cuts.buckets;
    if (X->w.failed || X->P->grad_err.code != TP_OK || X->P->dev->err.code != TP_OK)
        mine[0] |= FAILED;
    if (!X->learned && complete && X->w.rank == 0) mine[0] |= LEARNS;
    for (int e = 0; e < X->P->n; e++) mine[1 + e] = X->w.reached[e];
    if (tp_peers_gather(X->G, mine, n, all)) return all;
    free(all);
    return NULL;
}

/* Keeps the gradients of parameters that some process reached. */
static void settle(tp_exchange *X, const uint8_t *all, size_t n)
{
    for (int e = 0; e < X->P->n; e++) {
        bool any = false;
        if (!X->w.touched[e]) continue;
        for (int k = 0; k < X->w.ranks; k++) any = any || all[(size_t)k * n + 1 + (size_t)e];
        if (!any) tp__set_grad(X->P->entries[e].node, NULL);
        X->P->given = X->P->given || any;
    }
    for (int k = 0; k < X->w.ranks; k++)
        if (all[(size_t)k * n] & FAILED)
            tp__err(&X->last, TP_E_STATE,
                    "exchange: the gradients of rank %d are incomplete, so their sums mean nothing",
                    k);
    if (X->last.code != TP_OK) tp__err(&X->P->grad_err, X->last.code, "%s", X->last.text);
}

static bool learn(tp_exchange *X)
{
    const size_t n = (size_t)X->w.cuts.buckets;
    if (X->w.rank == 0) memcpy(X->order, X->noted, n * sizeof *X->order);
    X->learned = true;
    return tp_peers_broadcast(X->G, X->order, n * sizeof *X->order);
}

static bool finish(tp_exchange *X)
{
    const size_t n = (size_t)X->P->n + 1;
    open_update(X);
    const bool same = X->stats.updates > 1 || compare(X);
    if (same) send_rest(X);
    uint8_t *all = same && X->G->err.code == TP_OK ? tell(X, n) : NULL;
    if (all) settle(X, all, n);
    const bool done = all && (!(all[0] & LEARNS) || learn(X));
    free(all);
    if (!done) tp__err(&X->err, TP_E_IO, "%s", tp_peers_why(X->G));
    X->open = false;
    X->nnoted = 0;
    return done && X->last.code == TP_OK;
}

bool tp_exchange_finish(tp_exchange *X)
{
    if (!tp_exchange_ok(X)) return false;
    X->last = (tp_err){ 0 };
    X->phase = IDLE;
    X->P->follower = NULL;
    X->stats.updates++;
    if (alone(X)) return true;
    const int64_t began = tp__nanoseconds();
    const bool done = finish(X);
    X->stats.exposed += (double)(tp__nanoseconds() - began) * 1e-9;
    return done;
}

tp_exchange_stats tp_exchange_stats_of(const tp_exchange *X)
{
    tp_exchange_stats s = X ? X->stats : (tp_exchange_stats){ 0 };
    if (X) s.bytes = X->w.bytes;
    s.path = X ? X->direct.path : "";
    return s;
}
