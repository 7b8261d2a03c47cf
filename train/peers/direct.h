/* direct.h - sums over GPUs by their own library (tensor/collective.h), gradients staying where
 * they are. Messages between the processes only prepare it. */
#ifndef TP_DIRECT_H
#define TP_DIRECT_H

#include "tensor/collective.h"
#include "train/peers/wire.h"

typedef struct tp_direct {
    bool is_open;         /* the library takes part */
    bool on;              /* gradients travel this way */
    bool flying;          /* sums have begun since the last wait */
    char path[400];       /* tp_exchange_stats.path */
    tp_addend *stretches; /* of a bucket */
    tp_buf **held;        /* gradients under way, by cut */
    tp_buf *spare;        /* in place of a gradient for which there was no memory */
} tp_direct;

/* What a process says before its first update. */
typedef struct tp_offer {
    uint64_t plan;                                             /* what all must have alike */
    char library[TP_COLLECTIVE_TEXT], gpu[TP_COLLECTIVE_TEXT]; /* "": messages only */
    char host[64];
} tp_offer;

/* Fills in the offer but for its plan. */
void tp__direct_offer(tp_direct *d, tp_wire *w, tp_offer *offer);
/* all: the offers by rank. Sums are direct if all processes have the same library and a GPU each.
 * False with the error on w->G: they should be, but could not start. */
bool tp__direct_agree(tp_direct *d, tp_wire *w, const tp_offer *all);
/* Frees what it has; sums under way are broken off. d may be zero. */
void tp__direct_close(tp_direct *d, tp_wire *w);

/* Begins the sums of a bucket. Errors are on w->G. */
void tp__direct_leave(tp_direct *d, tp_wire *w, int bucket);
/* Waits for the sums begun so far. Errors are on w->G. */
void tp__direct_wait(tp_direct *d, tp_wire *w);

#endif
