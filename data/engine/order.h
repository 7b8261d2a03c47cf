/* order.h - orders of examples: shuffled, and sorted by length in runs. */
#ifndef TP_ORDER_H
#define TP_ORDER_H

#include <tapegrad/loader.h>
#include <tapegrad/random.h>

void tp__order_shuffle(int64_t *order, int64_t n, tp_shuffle how, tp_random *r);

/* How an order is sorted. Sorting runs of it, not all of it, keeps batches different from epoch to epoch:
 *
 *     order     | batch x bucket examples | ...        each run sorted by length, cut into batches,
 *     batches   | 3 | 1 | 2 | 4 |         | ...        and the batches of a run shuffled            */
typedef struct tp_order_runs {
    int64_t batch, bucket;
    int64_t (*length)(const void *state, int64_t number);
    const void *state;
} tp_order_runs;

/* Sorts the runs of n numbers; r: shuffles the batches of each, or NULL. Only whole batches change places: a smaller
 * one stays last. False: out of memory. */
bool tp__order_sort(int64_t *order, int64_t n, const tp_order_runs *by, tp_random *r);

#endif
