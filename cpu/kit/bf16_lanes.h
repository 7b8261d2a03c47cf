/* bf16_lanes.h - the target attribute and lane masks shared by kernels with bf16 instructions. */
#ifndef TP_BF16_LANES_H
#define TP_BF16_LANES_H

#include <immintrin.h>
#include <stdint.h>

#define BF16       __attribute__((target("avx512bf16")))
#define BF16_LANES 16 /* floats, or pairs of bf16 numbers, in a vector */

/* The first n lanes, at most all of them. */
BF16 static inline __mmask16 first(int64_t n)
{
    return (__mmask16)(n >= BF16_LANES ? 0xffff : n > 0 ? (1u << n) - 1 : 0);
}

#endif
