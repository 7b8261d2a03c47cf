/* ring.h - a ring of batches: worker threads make their pieces, the caller takes them in order. */
#ifndef TP_RING_H
#define TP_RING_H

#include <tapegrad/base.h>

/* A free worker makes a piece of the oldest unfinished batch; the maker of the last piece finishes
 * the batch. A piece must depend only on its number: which worker makes it, and when, is not
 * determined. */
typedef struct tp_ring_opts {
    int threads, slots; /* at least 0 and 1 */
    void (*piece)(void *env, int slot, int64_t piece, int worker);
    void (*finish)(void *env, int slot);
    void *env;
} tp_ring_opts;

/* Call these functions from one thread. NULL: out of memory. Workers start when the first batch is
 * taken; without workers the caller is worker 0. */
typedef struct tp_ring tp_ring;
tp_ring *tp__ring_new(const tp_ring_opts *o);
void tp__ring_free(tp_ring *r);

/* Returns the slot for another batch; -1: all are full. */
int tp__ring_vacant(const tp_ring *r);
/* Lets the workers make the batch in the vacant slot. */
void tp__ring_add(tp_ring *r, int64_t pieces);
/* Waits for the oldest batch; its slot stays unchanged until released. -1: there is none. */
int tp__ring_take(tp_ring *r);
void tp__ring_release(tp_ring *r); /* no effect if no batch was taken */
/* Drops all batches. No worker runs afterwards. */
void tp__ring_clear(tp_ring *r);

#endif
