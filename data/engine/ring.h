/* ring.h - a ring of batches whose pieces worker threads make, and which are taken in order. */
#ifndef TP_RING_H
#define TP_RING_H

#include <tapegrad/base.h>

/* A free worker makes a piece of the oldest batch that has one left; who makes the last piece finishes the batch. What
 * a piece contains must depend on its number alone: which worker makes it, and when, is not determined. */
typedef struct tp_ring_opts {
    int threads, slots; /* at least 0 and 1 */
    void (*piece)(void *env, int slot, int64_t piece, int worker);
    void (*finish)(void *env, int slot);
    void *env;
} tp_ring_opts;

/* One thread calls these functions. NULL: out of memory. Workers start with the first batch that is taken; if there are
 * none, or none can be started, the caller is worker 0. */
typedef struct tp_ring tp_ring;
tp_ring *tp__ring_new(const tp_ring_opts *o);
void tp__ring_free(tp_ring *r);

/* The slot for another batch; -1: all are full. */
int tp__ring_vacant(const tp_ring *r);
/* Lets the workers make the batch in the vacant slot. */
void tp__ring_add(tp_ring *r, int64_t pieces);
/* Waits for the oldest batch, whose slot stays as it is until it is released. -1: there is none. */
int tp__ring_take(tp_ring *r);
void tp__ring_release(tp_ring *r); /* does nothing if no batch was taken */
/* Drops all batches. No worker runs afterwards. */
void tp__ring_clear(tp_ring *r);

#endif
