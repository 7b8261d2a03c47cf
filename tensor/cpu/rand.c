/* rand.c - random numbers, uniform and normal: a group of words of the stream at a time. Words 2i and 2i+1
 * give elements 2i and 2i+1 of the normal numbers, by Box and Muller's transformation. */
#include <string.h>

#include "tensor/cpu/kit/philox_words.h"
#include "tensor/cpu/kit/real.h"
#include "tensor/kernel.h"

enum { GRAIN = 32 }; /* groups that are worth a thread */

static int64_t groups(const tp_call *c)
{
    return (c->y[0].numel + TP_PHILOX_WORDS - 1) / TP_PHILOX_WORDS;
}

/* Stores group g, of which the last may be cut off. */
static void store(const tp_call *c, int64_t g, const real *z)
{
    const int64_t at = g * TP_PHILOX_WORDS, rest = c->y[0].numel - at;
    real *y = c->y[0].data;
    memcpy(y + at, z, (size_t)(rest < TP_PHILOX_WORDS ? rest : TP_PHILOX_WORDS) * sizeof *z);
}

static void uniform_range(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    uint32_t w[TP_PHILOX_WORDS];
    real z[TP_PHILOX_WORDS];
    (void)thread;
    for (int64_t g = begin; g < end; g++) {
        tp__philox_group(c->rng, (uint64_t)(g * TP_PHILOX_BLOCKS), w);
        for (int i = 0; i < TP_PHILOX_WORDS; i++) z[i] = (real)(int32_t)(w[i] >> 8) * RC(0x1p-24);
        store(c, g, z);
    }
}

static void normal_range(const tp_call *c, int64_t begin, int64_t end, int thread)
{
    uint32_t w[TP_PHILOX_WORDS];
    real radius[TP_PHILOX_WORDS / 2], angle[TP_PHILOX_WORDS / 2], z[TP_PHILOX_WORDS];
    (void)thread;
    for (int64_t g = begin; g < end; g++) {
        tp__philox_group(c->rng, (uint64_t)(g * TP_PHILOX_BLOCKS), w);
        for (int i = 0; i < TP_PHILOX_WORDS / 2; i++) {
            radius[i] = ((real)w[2 * i] + RC(0.5)) * RC(0x1p-32);
            angle[i] = RC(6.283185307179586) * ((real)w[2 * i + 1] * RC(0x1p-32));
        }
        for (int i = 0; i < TP_PHILOX_WORDS / 2; i++)
            radius[i] = r_sqrt(RC(-2.0) * r_log(radius[i]));
        for (int i = 0; i < TP_PHILOX_WORDS / 2; i++) {
            z[2 * i] = radius[i] * r_cos(angle[i]);
            z[2 * i + 1] = radius[i] * r_sin(angle[i]);
        }
        store(c, g, z);
    }
}

static tp_code rand_fwd(const tp_call *c)
{
    tp__for(c, groups(c), GRAIN, uniform_range);
    return TP_OK;
}

static tp_code randn_fwd(const tp_call *c)
{
    tp__for(c, groups(c), GRAIN, normal_range);
    return TP_OK;
}

TP_CPU_KERNEL(rand_fwd)
TP_CPU_KERNEL(randn_fwd)
