/* cuts.h - how a parameter set's block of values is cut into buckets, and these into one piece
 * per process.
 *
 * The unit is the reduction block of an optimiser's segment (TP_BLOCK elements of one parameter,
 * or the rest of it), so sums over blocks have the same bits whoever adds them up. The cuts
 * follow from the shapes alone: every process computes the same ones. */
#ifndef TP_CUTS_H
#define TP_CUTS_H

#include "train/blocks.h"

/* A stretch of one parameter that one process owns. */
typedef struct tp_cut {
    int entry;            /* of P->entries */
    int64_t first, numel; /* elements within the parameter */
    int bucket, owner;    /* owner: the rank that sums it, and steps it if shared */
} tp_cut;

typedef struct tp_cuts {
    tp_cut *at; /* in the order of the block of values; buckets ascend */
    int n, buckets, ranks;
} tp_cuts;

/* Cuts P, which must be complete, for that many processes into buckets of at least `bytes`, but for
 * the last one. Each process owns an equal part of each bucket, to a unit; owners ascend in it.
 * whole: an owner has whole parameters (optimisers with norms of a parameter), and they are divided
 * evenly over the whole block instead. at NULL: out of memory. */
tp_cuts tp__cuts_new(const tp_params *P, int ranks, size_t bytes, bool whole);
void tp__cuts_free(tp_cuts *c);

#endif
