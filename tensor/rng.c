/* rng.c - the parts of the random numbers that only the host needs. */
#include "tensor/rng.h"

#include <math.h>

uint64_t tp__fnv1a(const char *s)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *s; s++) h = (h ^ (uint8_t)*s) * 0x100000001b3u;
    return h;
}

/* Elements 2i and 2i+1 share the pair of words of one half block. */
double tp__normal(uint64_t seed, uint64_t offset, uint64_t e)
{
    const tp_philox b = tp__philox(seed, offset, e / 4);
    const uint32_t w0 = b.w[e % 4 & 2u], w1 = b.w[(e % 4 & 2u) + 1];
    const double radius = sqrt(-2.0 * log(((double)w0 + 0.5) * 0x1p-32));
    const double angle = 6.283185307179586 * ((double)w1 * 0x1p-32);
    return radius * (e % 2 ? sin(angle) : cos(angle));
}
