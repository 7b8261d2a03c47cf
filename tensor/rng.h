/* rng.h - Philox4x32-10 (Salmon et al. 2011), laid out as in cuRAND; shared by all backends.
 *
 * Element e of random op `offset` gets word e mod 4 of the block with counter (offset, e/4) and key
 * seed, independent of device, grid and threads. */
#ifndef TP_RNG_H
#define TP_RNG_H

#include "tensor/host_device.h"

typedef struct tp_philox {
    uint32_t w[4];
} tp_philox;

TP_HD static inline tp_philox tp__philox(uint64_t seed, uint64_t offset, uint64_t block)
{
    uint32_t c0 = (uint32_t)offset, c1 = (uint32_t)(offset >> 32);
    uint32_t c2 = (uint32_t)block, c3 = (uint32_t)(block >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        const uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    const tp_philox r = { { c0, c1, c2, c3 } };
    return r;
}

TP_HD static inline uint32_t tp__word(uint64_t seed, uint64_t offset, uint64_t e)
{
    return tp__philox(seed, offset, e / 4).w[e % 4];
}

/* Uniform in [0,1) with 24 bits: exact in float, the same on every device. */
TP_HD static inline float tp__uniform(uint32_t w)
{
    return (float)(w >> 8) * 0x1p-24f;
}

/* An element is kept with probability 1-p (0 <= p < 1) iff its word is at least this. */
TP_HD static inline uint32_t tp__drop_below(double p)
{
    return (uint32_t)(p * 4294967296.0);
}

/* Host only: elements 2i and 2i+1, and element e, of a normal stream (Box-Muller, double). */
void tp__normal_pair(uint64_t seed, uint64_t offset, uint64_t i, double z[2]);
double tp__normal(uint64_t seed, uint64_t offset, uint64_t e);

#endif
