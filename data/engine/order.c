/* order.c - shuffles and sorts the example numbers of an epoch. */
#include "engine/order.h"

#include <stdlib.h>
#include <string.h>

void tp__order_shuffle(int64_t *order, int64_t n, tp_shuffle how, tp_random *r)
{
    if (how == TP_SHUFFLE_UP) {
        for (int64_t i = 0; i < n; i++) {
            const int64_t k = tp_random_below(r, i + 1), number = order[i];
            order[i] = order[k];
            order[k] = number;
        }
    } else {
        for (int64_t i = n - 1; i > 0; i--) {
            const int64_t k = tp_random_below(r, i + 1), number = order[i];
            order[i] = order[k];
            order[k] = number;
        }
    }
}

/* A number with its length, the key, and its previous place, which keeps ties in order. */
typedef struct entry {
    int64_t number, length, place;
} entry;

static int by_length(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->length != y->length) return x->length < y->length ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

/* Writes a sorted run of n numbers back to `order`; whole batches in the order of `batches`. */
static void put_back(const entry *run, int64_t *order, int64_t n, int64_t batch, int64_t *batches,
                     tp_random *r)
{
    const int64_t whole = n / batch;
    for (int64_t i = 0; i < whole; i++) batches[i] = i;
    if (r) tp__order_shuffle(batches, whole, TP_SHUFFLE_UP, r);
    for (int64_t i = 0; i < n; i++) {
        const int64_t from = i / batch < whole ? batches[i / batch] * batch + i % batch : i;
        order[i] = run[from].number;
    }
}

bool tp__order_sort(int64_t *order, int64_t n, const tp_order_runs *by, tp_random *r)
{
    const int64_t batch = by->batch, whole = n / batch;
    const int64_t run = by->bucket < whole + 1 ? by->bucket : whole + 1; /* in batches */
    const int64_t most = run * batch < n ? run * batch : n;
    entry *sorted = malloc((size_t)most * sizeof *sorted);
    int64_t *batches = malloc((size_t)run * sizeof *batches);
    const bool ok = sorted && batches;
    for (int64_t first = 0; ok && first < n; first += run * batch) {
        const int64_t all = n - first < run * batch ? n - first : run * batch;
        for (int64_t i = 0; i < all; i++) {
            const int64_t number = order[first + i];
            sorted[i] = (entry){ number, by->length(by->state, number), i };
        }
        qsort(sorted, (size_t)all, sizeof *sorted, by_length);
        put_back(sorted, order + first, all, batch, batches, r);
    }
    free(sorted);
    free(batches);
    return ok;
}
