/* keyed_sums.h - scratch of sums by key on a GPU, as in the gradients of embedding and gather:
 * keys are sorted, and rows are summed in runs of one length over the sorted list
 * (cuda/kit/keyed_sums.cuh).
 */
#ifndef TP_KEYED_SUMS_H
#define TP_KEYED_SUMS_H

#include <stddef.h>
#include <stdint.h>

enum {
    TP_SORT_TILE = 2048, /* keys that one block sorts by a digit */
    TP_SORT_DIGITS = 256,
    TP_SUM_RUN = 32 /* sorted keys whose rows one thread sums */
};

static inline int64_t tp__sort_tiles(int64_t keys)
{
    return (keys + TP_SORT_TILE - 1) / TP_SORT_TILE;
}

static inline int64_t tp__sum_runs(int64_t keys)
{
    return (keys + TP_SUM_RUN - 1) / TP_SUM_RUN;
}

/* Two rows of floats a run, two lists of 8 bytes a key, and what a tile has of each digit. */
static inline size_t tp__keyed_sums_work(int64_t keys, int64_t columns)
{
    return (size_t)(2 * tp__sum_runs(keys) * columns) * sizeof(float) +
           (size_t)(2 * keys) * 2 * sizeof(uint32_t) +
           (size_t)(TP_SORT_DIGITS * tp__sort_tiles(keys)) * sizeof(uint32_t);
}

#endif
