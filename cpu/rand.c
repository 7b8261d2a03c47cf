/* rand.c - uniform and normal random numbers, by groups of words of the stream. */
#include <string.h>

#include "cpu/kit/philox_words.h"
#include "cpu/kit/real.h"
#include "tensor/kernel.h"

enum { GRAIN = 32 }; /* groups worth a thread */

static int64_t groups(const tp_call *c)
{
    return (c->y[0].numel + TP_PHILOX_WORDS - 1) / TP_PHILOX_WORDS;
}

/* Stores group g; the last one may be cut off. */
static void store(const tp_call *c, int64_t g, const real *z)
{
    const int64_t at = g * TP_PHILOX_WORDS, rest = c->y[0].numel - at;
    real *y = c->y[0].data;
    memcpy(y + at, z, (size_t)(rest < TP_PHILOX_WORDS ? rest : TP_PHILOX_WORDS) * sizeof *z);
}

static void uniform_range(const tp_call *c, int64_t begin, int64_t end)
{
    uint32_t w[TP_PHILOX_WORDS];
    real z[TP_PHILOX_WORDS];
    for (int64_t g = begin; g < end; g++) {
        tp__philox_group(c->rng, (uint64_t)(g * TP_PHILOX_BLOCKS), w);
        for (int i = 0; i < TP_PHILOX_WORDS; i++) z[i] = (real)(int32_t)(w[i] >> 8) * RC(0x1p-24);
        store(c, g, z);
    }
}

static void normal_range(const tp_call *c, int64_t begin, int64_t end)
{
    real z[TP_PHILOX_WORDS];
    for (int64_t g = begin; g < end; g++) {
        tp__normal_group(c->rng, g, z);
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
