/* embedding.h - scratch of the embedding's gradient on a card: ids are sorted there, and rows of dy
 * are summed in runs of one length over the sorted list (cuda/cuda_embedding.cu). */
#ifndef TP_EMBEDDING_H
#define TP_EMBEDDING_H

#include <stddef.h>
#include <stdint.h>

enum {
    TP_SORT_TILE = 2048, /* ids that one block sorts by a digit  */
    TP_SORT_DIGITS = 256,
    TP_SUM_RUN = 32 /* sorted ids whose rows one thread sums */
};

static inline int64_t tp__sort_tiles(int64_t ids)
{
    return (ids + TP_SORT_TILE - 1) / TP_SORT_TILE;
}

static inline int64_t tp__sum_runs(int64_t ids)
{
    return (ids + TP_SUM_RUN - 1) / TP_SUM_RUN;
}

/* Two rows of floats a run, two lists of 8 bytes an id, and what a tile has of each digit. */
static inline size_t tp__embedding_work(int64_t ids, int64_t columns)
{
    return (size_t)(2 * tp__sum_runs(ids) * columns) * sizeof(float) +
           (size_t)(2 * ids) * 2 * sizeof(uint32_t) +
           (size_t)(TP_SORT_DIGITS * tp__sort_tiles(ids)) * sizeof(uint32_t);
}

#endif
