/* shards.h - what processes that divide an optimiser's moments tell each other: the values that
 * each has stepped, and the sums of squares of its gradients. */
#ifndef TP_SHARDS_H
#define TP_SHARDS_H

#include "train/peers/cuts.h"
#include "train/peers/inner.h"

/* Does the next step change the parameter? */
static inline bool tp__is_stepped(const tp_entry *e)
{
    return tp__in_block(e) && e->node->grad_buf && !e->node->frozen;
}

/* Gathers the values of all parameters, or of those that a step has changed, from the owners of
 * their stretches. All processes must call it. False with *e set. */
bool tp__shards_values(tp_peers *G, const tp_cuts *c, const tp_params *P, bool all, tp_err *e);

/* Gathers one number for each block of each gradient, in the order of the parameters. mine: those
 * of this process's cuts, in their order. The caller frees the result, and *n is its length. All
 * processes must call it. NULL with *e set. */
double *tp__shards_squares(tp_peers *G, const tp_cuts *c, const tp_params *P, const double *mine,
                           int64_t *n, tp_err *e);

#endif
