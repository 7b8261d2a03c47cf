/* philox_words.h - consecutive words of a random stream, 64 blocks at a time, and the normal
 * numbers and dropout factors made from them.
 *
 * The words are those of tp__word, computed with a block in each 64-bit lane. A product reads only
 * the low half of a lane, so high halves are left unmasked until the end. AVX-512 takes 0.21 ns per
 * word, AVX2 0.48, scalar code 1.9. A round waits for its products, so TP_PHILOX_AT_ONCE vectors of
 * blocks are processed together; a word takes 0.32 ns with one vector, 0.27 with two. */
#ifndef TP_PHILOX_WORDS_H
#define TP_PHILOX_WORDS_H

#include "cpu/kit/real.h"
#include "cpu/kit/vector.h"
#include "tensor/geometry/whole.h"
#include "tensor/kernel.h"

#ifdef __SSE2__
#include <immintrin.h>
#endif

enum {
    TP_PHILOX_BLOCKS = 64,
    TP_PHILOX_WORDS = 4 * TP_PHILOX_BLOCKS,
    TP_PHILOX_LANES = TP_VECTOR / 8,
    TP_PHILOX_AT_ONCE = 4
};

typedef uint64_t tp_lanes __attribute__((vector_size(TP_VECTOR)));

/* (a0, b0, a2, b2, ...) and (a1, b1, a3, b3, ...) */
#if TP_VECTOR == 64
#define TP_LANES_EVEN(a, b) __builtin_shufflevector(a, b, 0, 8, 2, 10, 4, 12, 6, 14)
#define TP_LANES_ODD(a, b)  __builtin_shufflevector(a, b, 1, 9, 3, 11, 5, 13, 7, 15)
#elif TP_VECTOR == 32
#define TP_LANES_EVEN(a, b) __builtin_shufflevector(a, b, 0, 4, 2, 6)
#define TP_LANES_ODD(a, b)  __builtin_shufflevector(a, b, 1, 5, 3, 7)
#else
#define TP_LANES_EVEN(a, b) __builtin_shufflevector(a, b, 0, 2)
#define TP_LANES_ODD(a, b)  __builtin_shufflevector(a, b, 1, 3)
#endif

/* Multiplies the low halves by y. */
TP_INLINE tp_lanes tp__low_times(tp_lanes x, uint32_t y)
{
    const tp_lanes all = (tp_lanes){ 0 } + y;
#if TP_VECTOR == 64
    return (tp_lanes)_mm512_mul_epu32((__m512i)x, (__m512i)all);
#elif TP_VECTOR == 32
    return (tp_lanes)_mm256_mul_epu32((__m256i)x, (__m256i)all);
#elif defined(__SSE2__)
    return (tp_lanes)_mm_mul_epu32((__m128i)x, (__m128i)all);
#else
    return (x & UINT32_MAX) * all;
#endif
}

/* Writes TP_PHILOX_AT_ONCE vectors of blocks to w. Even lanes hold the first half of a vector's
 * blocks, odd lanes the second; interleaving pairs of words gives the right order. */
TP_INLINE void tp__philox_lanes(tp_rng rng, uint64_t block, uint32_t *w)
{
    enum { L = TP_PHILOX_LANES, N = TP_PHILOX_AT_ONCE };
    tp_lanes a[N], b[N], c[N], d[N], order;
    uint64_t key0 = (uint32_t)rng.seed, key1 = rng.seed >> 32;
    TP_UNROLL
    for (int l = 0; l < L; l++) order[l] = (uint64_t)(l / 2 + l % 2 * (L / 2));
    TP_UNROLL
    for (int i = 0; i < N; i++) {
        a[i] = (tp_lanes){ 0 } + rng.offset;
        b[i] = a[i] >> 32;
        c[i] = order + (block + (uint64_t)(i * L));
        d[i] = c[i] >> 32;
    }
    TP_UNROLL
    for (int round = 0; round < 10; round++) {
        TP_UNROLL
        for (int i = 0; i < N; i++) {
            const tp_lanes p = tp__low_times(a[i], 0xD2511F53u);
            const tp_lanes q = tp__low_times(c[i], 0xCD9E8D57u);
            a[i] = (q >> 32) ^ b[i] ^ key0;
            c[i] = (p >> 32) ^ d[i] ^ key1;
            b[i] = q;
            d[i] = p;
        }
        key0 = (uint32_t)key0 + 0x9E3779B9u;
        key1 = (uint32_t)key1 + 0xBB67AE85u;
    }
    TP_UNROLL
    for (int i = 0; i < N; i++) {
        const tp_lanes ab = (a[i] & UINT32_MAX) | b[i] << 32;
        const tp_lanes cd = (c[i] & UINT32_MAX) | d[i] << 32;
        const tp_lanes words[2] = { TP_LANES_EVEN(ab, cd), TP_LANES_ODD(ab, cd) };
        memcpy(w + 4 * L * i, words, sizeof words);
    }
}

/* The words of TP_PHILOX_BLOCKS blocks. */
static inline void tp__philox_group(tp_rng rng, uint64_t block, uint32_t *w)
{
    enum { STEP = TP_PHILOX_LANES * TP_PHILOX_AT_ONCE };
    for (int i = 0; i < TP_PHILOX_BLOCKS; i += STEP)
        tp__philox_lanes(rng, block + (uint64_t)i, w + 4 * i);
}

/* A stream read by element. */
typedef struct tp_words {
    tp_rng rng;
    int64_t group; /* the group in w; -1: none yet */
    uint32_t w[TP_PHILOX_WORDS];
} tp_words;

/* Returns the words of elements e, e+1, ... and lowers *n, the number wanted, to the number
 * available. Elements may be read in any order; in rising order nothing is recomputed. */
static inline const uint32_t *tp__words_at(tp_words *s, int64_t e, int64_t *n)
{
    const int64_t group = e / TP_PHILOX_WORDS, at = e % TP_PHILOX_WORDS;
    if (group != s->group) tp__philox_group(s->rng, (uint64_t)(group * TP_PHILOX_BLOCKS), s->w);
    s->group = group;
    if (*n > TP_PHILOX_WORDS - at) *n = TP_PHILOX_WORDS - at;
    return s->w + at;
}

/* ---- normal numbers ---- */

/* z: normal numbers, elements g TP_PHILOX_WORDS and later of a stream. Words 2i and 2i+1 give
 * elements 2i and 2i+1 by the Box-Muller transform. */
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

/* ---- dropout ---- */

/* Dropout of attention probabilities: element e is kept and divided by 1 - p if word e of the
 * call's stream is at least p 2^32. */
typedef struct tp_keeper {
    tp_rng rng;
    uint32_t below; /* 0: no dropout, and no words are drawn */
    real scale;
} tp_keeper;

/* Dropout of rate p; none in evaluation. */
static inline tp_keeper tp__keeper(const tp_call *c, double p)
{
    return (tp_keeper){ c->rng, c->train && p > 0 ? tp__drop_below(p) : 0, (real)(1 / (1 - p)) };
}

/* Sets to[i * step] = 0 or 1/(1-p), by the words of elements e .. e + n. The loop vectorises only
 * with a constant step of 1 and the factors in variables that stores to `to` cannot change;
 * otherwise it takes five times as long as the words. */
TP_INLINE void tp__keep_each(const tp_keeper *k, int64_t e, int64_t n, int64_t step, real *to)
{
    enum { WORDS = 4 * TP_PHILOX_LANES * TP_PHILOX_AT_ONCE };
    const uint32_t below = k->below;
    const real scale = k->scale;
    uint32_t w[WORDS];
    while (n > 0) {
        const int64_t skip = e % 4, count = tp__least(n, WORDS - skip);
        tp__philox_lanes(k->rng, (uint64_t)(e / 4), w);
        for (int64_t i = 0; i < count; i++) to[i * step] = w[skip + i] < below ? 0 : scale;
        to += count * step;
        e += count;
        n -= count;
    }
}

static inline void tp__draw_keep(const tp_keeper *k, int64_t e, int64_t n, int64_t step, real *to)
{
    if (step == 1)
        tp__keep_each(k, e, n, 1, to);
    else
        tp__keep_each(k, e, n, step, to);
}

#endif
