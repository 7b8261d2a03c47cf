/* epoch_order.h - the shuffled order of an epoch, computed and not stored, so that it needs no
 * memory at any length. */
#ifndef TP_EPOCH_ORDER_H
#define TP_EPOCH_ORDER_H

#include <stdint.h>

enum { TP_ORDER_ROUNDS = 6 };

/* A Feistel network on the numbers below 4^half >= count. */
typedef struct tp_epoch_order {
    int64_t count;
    uint64_t seed;
    const char *stream; /* of random numbers */
    int64_t keyed;      /* the epoch that `key` orders, or -1 */
    uint64_t key[TP_ORDER_ROUNDS];
    int half;
} tp_epoch_order;

tp_epoch_order tp__epoch_order_of(int64_t count, uint64_t seed, const char *stream);
/* The number, below count, at a place of an epoch. */
int64_t tp__epoch_order_at(tp_epoch_order *o, int64_t epoch, int64_t place);

#endif
