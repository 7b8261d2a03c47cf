/* order.h - orders of examples: shuffled, and sorted by length in runs. */
#ifndef TP_ORDER_H
#define TP_ORDER_H

#include <tapegrad/loader.h>
#include <tapegrad/random.h>

void tp__order_shuffle(int64_t *order, int64_t n, tp_shuffle how, tp_random *r);

/* The examples of an epoch of a set of `count`: all, or as many as a sampler (NULL: none) draws. No
 * batch has more. */
static inline int64_t tp__order_length(const tp_example_sampler *s, int64_t count)
{
    return s && s->length > 0 && count > 0 ? s->length : count;
}

/* How to sort an order. Sorting in runs keeps batches different from epoch to epoch:
 *
 *     order     | batch x bucket examples | ...        each run sorted by length, cut into batches,
 *     batches   | 3 | 1 | 2 | 4 |         | ...        and its batches shuffled */
typedef struct tp_order_runs {
    int64_t batch, bucket;
    int64_t (*length)(const void *state, int64_t number);
    const void *state;
} tp_order_runs;

/* Sorts n numbers in runs; r (or NULL) shuffles the batches of each. Only whole batches move; a
 * smaller one stays last. False: out of memory. */
bool tp__order_sort(int64_t *order, int64_t n, const tp_order_runs *by, tp_random *r);

#endif
