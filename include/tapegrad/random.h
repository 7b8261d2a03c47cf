/* random.h - streams of counter-based random numbers (Philox4x32-10), determined by a key.
 *
 * A stream is identified by a seed, its purpose and two numbers, such as an example and an epoch.
 * It depends neither on threads nor on the order in which streams are used. */
#ifndef TAPEGRAD_RANDOM_H
#define TAPEGRAD_RANDOM_H

#include <tapegrad/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The state of a stream, a value: a copy draws the same numbers again. */
typedef struct tp_random {
    uint64_t key, index, next; /* next: words drawn so far, with the epoch in the high bits */
} tp_random;

/* The stream of a seed, a purpose ("augment"), an index and an epoch (below 2^31). A stream has
 * 2^33 words and then continues with those of the next epoch. */
TP_API tp_random tp_random_stream(uint64_t seed, const char *purpose, uint64_t index,
                                  uint64_t epoch);

/* Draw the next value: 32 random bits, or a double. */
TP_API uint32_t tp_random_word(tp_random *r);
TP_API double tp_random_uniform(tp_random *r);                       /* [0, 1), two words */
TP_API double tp_random_between(tp_random *r, double lo, double hi); /* [lo, hi) */
TP_API int64_t tp_random_below(tp_random *r, int64_t n);             /* 0 ... n - 1; 0 if n < 1 */
TP_API double tp_random_normal(tp_random *r);                        /* mean 0, deviation 1 */
TP_API double tp_random_beta(tp_random *r, double a, double b);      /* [0, 1]; a, b above 0 */

/* n standard normal values: each block of four words, from the next multiple of four on, gives
 * four. */
TP_API void tp_random_normals(tp_random *r, float *out, int64_t n);

/* One step of FNV-1a. h is TP_HASH for the first step and then the previous result; word is a byte
 * or a whole number. tp_hash_text hashes the bytes of a text. Purposes of streams are hashed this
 * way; tp_run.data_hash can be too. */
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

/* Writes NumPy's RandomState(seed).permutation(n), n below 2^32, to order. pandas' sample uses it
 * too, and published splits of data sets were made this way. */
TP_API void tp_numpy_permutation(uint32_t seed, int64_t n, int64_t *order);

#ifdef __cplusplus
}
#endif
#endif
