/* ring.c - passes batches between the caller's thread and the workers that make them. */
#include "engine/ring.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct batch {
    int64_t pieces, given, made;
    bool finished;
} batch;

typedef struct worker {
    tp_ring *of;
    int number;
    pthread_t thread;
} worker;

struct tp_ring {
    tp_ring_opts o;
    batch *at;            /* [slots]: batch k is in slot k % slots                     */
    int64_t added, taken; /* numbers of batches; if `holds`, the caller holds `taken`  */
    bool holds;
    worker *worker; /* [threads] */
    int running;
    bool stop;
    pthread_mutex_t lock; /* of at, added and taken; only the caller's thread changes the latter */
    pthread_cond_t work, ready;
};

tp_ring *tp__ring_new(const tp_ring_opts *o)
{
    tp_ring *r = calloc(1, sizeof *r);
    batch *at = calloc((size_t)o->slots, sizeof *at);
    worker *workers = calloc((size_t)o->threads + 1, sizeof *workers);
    if (!r || !at || !workers) {
        free(r);
        free(at);
        free(workers);
        return NULL;
    }
    r->o = *o;
    r->at = at;
    r->worker = workers;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->work, NULL);
    pthread_cond_init(&r->ready, NULL);
    return r;
}

/* ---- making ---- */

/* Makes one piece; the caller holds the lock. False: no pieces are left. */
static bool make_piece(tp_ring *r, int number)
{
    batch *b = NULL;
    int slot = 0;
    for (int64_t k = r->taken; k < r->added && !b; k++) {
        slot = (int)(k % r->o.slots);
        if (r->at[slot].given < r->at[slot].pieces) b = &r->at[slot];
    }
    if (!b) return false;
    const int64_t piece = b->given++;
    pthread_mutex_unlock(&r->lock);
    r->o.piece(r->o.env, slot, piece, number);
    pthread_mutex_lock(&r->lock);
    if (++b->made < b->pieces) return true;
    pthread_mutex_unlock(&r->lock); /* no other thread touches the batch now */
    r->o.finish(r->o.env, slot);
    pthread_mutex_lock(&r->lock);
    b->finished = true;
    pthread_cond_broadcast(&r->ready);
    return true;
}

static void *run(void *env)
{
    const worker *w = env;
    tp_ring *r = w->of;
    pthread_mutex_lock(&r->lock);
    while (!r->stop)
        if (!make_piece(r, w->number)) pthread_cond_wait(&r->work, &r->lock);
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

static void start(tp_ring *r)
{
    for (int i = 0; i < r->o.threads; i++) {
        worker *w = &r->worker[r->running];
        *w = (worker){ .of = r, .number = r->running };
        if (pthread_create(&w->thread, NULL, run, w) == 0) r->running++;
    }
}

void tp__ring_clear(tp_ring *r)
{
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_cond_broadcast(&r->work);
    pthread_mutex_unlock(&r->lock);
    for (int i = 0; i < r->running; i++) pthread_join(r->worker[i].thread, NULL);
    r->running = 0;
    r->stop = r->holds = false;
    r->added = r->taken = 0;
}

void tp__ring_free(tp_ring *r)
{
    if (!r) return;
    tp__ring_clear(r);
    pthread_cond_destroy(&r->ready);
    pthread_cond_destroy(&r->work);
    pthread_mutex_destroy(&r->lock);
    free(r->at);
    free(r->worker);
    free(r);
}

/* ---- adding and taking ---- */

int tp__ring_vacant(const tp_ring *r)
{
    return r->added - r->taken < r->o.slots ? (int)(r->added % r->o.slots) : -1;
}

void tp__ring_add(tp_ring *r, int64_t pieces)
{
    pthread_mutex_lock(&r->lock);
    r->at[r->added % r->o.slots] = (batch){ .pieces = pieces };
    r->added++;
    pthread_cond_broadcast(&r->work);
    pthread_mutex_unlock(&r->lock);
}

void tp__ring_release(tp_ring *r)
{
    pthread_mutex_lock(&r->lock);
    r->taken += r->holds;
    r->holds = false;
    pthread_mutex_unlock(&r->lock);
}

int tp__ring_take(tp_ring *r)
{
    const int slot = (int)(r->taken % r->o.slots);
    if (r->taken == r->added) return -1;
    if (r->running == 0) start(r);
    pthread_mutex_lock(&r->lock);
    while (!r->at[slot].finished)
        if (r->running > 0)
            pthread_cond_wait(&r->ready, &r->lock);
        else
            make_piece(r, 0);
    r->holds = true;
    pthread_mutex_unlock(&r->lock);
    return slot;
}
