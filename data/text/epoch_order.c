/* epoch_order.c - a permutation of the numbers below n for each epoch: a Feistel network on the
 * numbers below 4^half >= n, repeated until the result is below n. */
#include "epoch_order.h"

#include <tapegrad/random.h>

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

tp_epoch_order tp__epoch_order_of(int64_t count, uint64_t seed, const char *stream)
{
    tp_epoch_order o = { .count = count, .seed = seed, .stream = stream, .keyed = -1 };
    while ((int64_t)1 << (2 * o.half) < count) o.half++;
    return o;
}

static void key_epoch(tp_epoch_order *o, int64_t epoch)
{
    tp_random r = tp_random_stream(o->seed, o->stream, 0, (uint64_t)epoch);
    for (int k = 0; k < TP_ORDER_ROUNDS; k++) {
        const uint64_t high = tp_random_word(&r);
        o->key[k] = high << 32 | tp_random_word(&r);
    }
    o->keyed = epoch;
}

int64_t tp__epoch_order_at(tp_epoch_order *o, int64_t epoch, int64_t place)
{
    if (o->half == 0) return place;
    if (o->keyed != epoch) key_epoch(o, epoch);
    const uint64_t mask = ((uint64_t)1 << o->half) - 1;
    uint64_t x = (uint64_t)place;
    do {
        uint64_t left = x >> o->half, right = x & mask;
        for (int k = 0; k < TP_ORDER_ROUNDS; k++) {
            const uint64_t next = left ^ (mix(right ^ o->key[k]) & mask);
            left = right;
            right = next;
        }
        x = left << o->half | right;
    } while (x >= (uint64_t)o->count);
    return (int64_t)x;
}
