/* rng.c - random numbers that only the host draws. */
#include "tensor/rng.h"

#include <math.h>

/* Pair i shares two words of one block. */
void tp__normal_pair(uint64_t seed, uint64_t offset, uint64_t i, double z[2])
{
    const tp_philox b = tp__philox(seed, offset, i / 2);
    const uint32_t w0 = b.w[i % 2 * 2], w1 = b.w[i % 2 * 2 + 1];
    const double radius = sqrt(-2.0 * log(((double)w0 + 0.5) * 0x1p-32));
    const double angle = 6.283185307179586 * ((double)w1 * 0x1p-32);
    z[0] = radius * cos(angle);
    z[1] = radius * sin(angle);
}

double tp__normal(uint64_t seed, uint64_t offset, uint64_t e)
{
    double z[2];
    tp__normal_pair(seed, offset, e / 2, z);
    return z[e % 2];
}
