/* normal_words.h - normal random numbers from a random stream, a group of its words at a time: words 2i and
 * 2i+1 give elements 2i and 2i+1, by Box and Muller's transformation. */
#ifndef TP_NORMAL_WORDS_H
#define TP_NORMAL_WORDS_H

#include "tensor/cpu/kit/philox_words.h"
#include "tensor/cpu/kit/real.h"

/* z: elements g TP_PHILOX_WORDS and after it. */
static inline void tp__normal_group(tp_rng rng, int64_t g, real *z)
{
    uint32_t w[TP_PHILOX_WORDS];
    real radius[TP_PHILOX_WORDS / 2], angle[TP_PHILOX_WORDS / 2];
    tp__philox_group(rng, (uint64_t)(g * TP_PHILOX_BLOCKS), w);
    for (int i = 0; i < TP_PHILOX_WORDS / 2; i++) {
        radius[i] = ((real)w[2 * i] + RC(0.5)) * RC(0x1p-32);
        angle[i] = RC(6.283185307179586) * ((real)w[2 * i + 1] * RC(0x1p-32));
    }
    for (int i = 0; i < TP_PHILOX_WORDS / 2; i++) radius[i] = r_sqrt(RC(-2.0) * r_log(radius[i]));
    for (int i = 0; i < TP_PHILOX_WORDS / 2; i++) {
        z[2 * i] = radius[i] * r_cos(angle[i]);
        z[2 * i + 1] = radius[i] * r_sin(angle[i]);
    }
}

#endif
