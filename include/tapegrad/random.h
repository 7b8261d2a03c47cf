/* random.h - streams of random numbers that a key determines: Philox4x32-10, counter-based.
 *
 * A stream is named by what it is for and by two numbers (an example and an epoch, say), so that it
 * depends neither on threads nor on the order in which streams are used. */
#ifndef TAPEGRAD_RANDOM_H
#define TAPEGRAD_RANDOM_H

#include <tapegrad/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A value: copy it to draw the same numbers again. */
typedef struct tp_random {
    uint64_t key, index, next; /* next: how many words were drawn, above them the epoch */
} tp_random;

/* The stream of a seed, a purpose ("augment"), an index and an epoch (below 2^31). A stream has
 * 2^33 words and then goes on as that of the next epoch. */
TP_API tp_random tp_random_stream(uint64_t seed, const char *purpose, uint64_t index,
                                  uint64_t epoch);

TP_API uint32_t tp_random_word(tp_random *r);
TP_API double tp_random_uniform(tp_random *r);                       /* [0, 1), two words         */
TP_API double tp_random_between(tp_random *r, double lo, double hi); /* [lo, hi)                  */
TP_API int64_t tp_random_below(tp_random *r, int64_t n);             /* 0 ... n - 1; 0 if n < 1   */
TP_API double tp_random_normal(tp_random *r);                        /* mean 0, deviation 1       */
TP_API double tp_random_beta(tp_random *r, double a, double b);      /* [0, 1]; a, b above 0      */

/* n standard normal values, four for every four words from the next multiple of four on. */
TP_API void tp_random_normals(tp_random *r, float *out, int64_t n);

/* FNV-1a: h is TP_HASH at first and then the result of the last call; a word is a byte, or a number
 * taken as a whole. tp_hash_text: all bytes of a text. Streams hash their purpose this way; a run may
 * hash its data (tp_run.data_hash). */
#define TP_HASH 0xcbf29ce484222325u
static inline uint64_t tp_hash(uint64_t h, uint64_t word)
{
    return (h ^ word) * 0x100000001b3u;
}
static inline uint64_t tp_hash_text(uint64_t h, const char *text)
{
    for (; *text; text++) h = tp_hash(h, (unsigned char)*text);
    return h;
}

/* What NumPy's RandomState(seed).permutation(n) and, by it, pandas' sample make of 0 ... n - 1
 * (n below 2^32): published splits of data sets are made so. */
TP_API void tp_numpy_permutation(uint32_t seed, int64_t n, int64_t *order);

#ifdef __cplusplus
}
#endif
#endif
