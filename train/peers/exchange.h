/* exchange.h - the exchange of gradients: what the optimiser, clipping and backward see of it.
 *
 *     begin      buckets may leave
 *     backward   each final gradient is noted; a bucket leaves when all of its own are, in an order
 *                that is the same in all processes
 *     finish     sends the rest, waits, and unpacks */
#ifndef TP_EXCHANGE_H
#define TP_EXCHANGE_H

#include <tapegrad/peers.h>

#include "train/peers/cuts.h"

/* How P's gradients are divided among the processes (tp_exchange_opts.shard): after finish only a
 * cut's owner has its sums, elsewhere that stretch of the gradient means nothing. NULL: every
 * process has all sums. The cuts live until tp__exchange_whole or tp_exchange_free. */
const tp_cuts *tp__exchange_shards(const tp_params *P);

/* The processes among which P is divided; only if tp__exchange_shards is not NULL. */
tp_peers *tp__exchange_peers(const tp_params *P);

/* Cuts again so that each owner has whole parameters, before the first update. An optimiser whose
 * step needs norms of a parameter calls it. False with X failed: out of memory, or too late. */
bool tp__exchange_whole(tp_exchange *X);

#endif
