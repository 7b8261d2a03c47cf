/* random.c - random numbers for programs, and those drawn only on the host. */
#include "tensor/rng.h"

#include <math.h>

#include <tapegrad/random.h>

/* ---- normal numbers ---- */

/* Pair i uses two words of one block. */
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

/* ---- streams ---- */

/* Streams of random numbers: the Philox words of (key, index, epoch) in order. */
/* The block number is the low part of the counter: 2^31 blocks of four words for each epoch. */
enum { EPOCH = 33 };

tp_random tp_random_stream(uint64_t seed, const char *purpose, uint64_t index, uint64_t epoch)
{
    return (tp_random){ seed ^ tp_hash_text(TP_HASH, purpose ? purpose : ""), index,
                        epoch << EPOCH };
}

uint32_t tp_random_word(tp_random *r)
{
    return r ? tp__word(r->key, r->index, r->next++) : 0;
}

double tp_random_uniform(tp_random *r)
{
    const uint64_t high = tp_random_word(r) >> 6, low = tp_random_word(r) >> 5;
    return (double)(high << 27 | low) * 0x1p-53;
}

double tp_random_between(tp_random *r, double lo, double hi)
{
    return lo + (hi - lo) * tp_random_uniform(r);
}

/* 64 random bits modulo n; the bias is below n / 2^64. */
int64_t tp_random_below(tp_random *r, int64_t n)
{
    const uint64_t x = (uint64_t)tp_random_word(r) << 32 | tp_random_word(r);
    return n < 1 ? 0 : (int64_t)(x % (uint64_t)n);
}

double tp_random_normal(tp_random *r)
{
    double u = 1 - tp_random_uniform(r); /* (0, 1] */
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * tp_random_uniform(r));
}

/* Marsaglia and Tsang; for a below 1, a power of a uniform number. */
static double log_gamma_value(tp_random *r, double a)
{
    const double boost = a < 1 ? log(1 - tp_random_uniform(r)) / a : 0;
    const double d = (a < 1 ? a + 1 : a) - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        const double x = tp_random_normal(r), v = pow(1 + c * x, 3);
        const double u = 1 - tp_random_uniform(r);
        if (v > 0 && log(u) < 0.5 * x * x + d - d * v + d * log(v)) return log(d * v) + boost;
    }
}

/* X / (X + Y) of gamma values, from their logarithms, which do not underflow for small a, b. */
double tp_random_beta(tp_random *r, double a, double b)
{
    if (!r) return 0; /* the loops would not end */
    const double x = log_gamma_value(r, a), y = log_gamma_value(r, b);
    return 1 / (1 + exp(y - x));
}

/* One block of words gives four values. */
void tp_random_normals(tp_random *r, float *out, int64_t n)
{
    if (!r || !out) return;
    r->next = (r->next + 3) / 4 * 4;
    for (int64_t i = 0; i < n; i += 4, r->next += 4) {
        const tp_philox b = tp__philox(r->key, r->index, r->next / 4);
        float z[4];
        for (int k = 0; k < 4; k += 2) {
            const float u = ((float)(b.w[k] >> 8) + 0.5F) * 0x1p-24F;
            const float angle = 6.2831853F * ((float)(b.w[k + 1] >> 8) * 0x1p-24F);
            const float radius = sqrtf(-2 * logf(u));
            z[k] = radius * cosf(angle);
            z[k + 1] = radius * sinf(angle);
        }
        for (int k = 0; k < 4 && i + k < n; k++) out[i + k] = z[k];
    }
}

/* ---- permutations of NumPy ---- */

/* NumPy's RandomState permutations: MT19937 (Matsumoto, Nishimura 1998) seeded with one number, and
 * a shuffle from the end. Each partner is drawn by masking words until one is small enough. */

enum { WORDS = 624, FAR = 397 };

typedef struct twister {
    uint32_t state[WORDS];
    int next;
} twister;

static void seed_twister(twister *t, uint32_t seed)
{
    t->state[0] = seed;
    for (uint32_t i = 1; i < WORDS; i++) {
        const uint32_t s = t->state[i - 1];
        t->state[i] = 1812433253u * (s ^ s >> 30) + i;
    }
    t->next = WORDS;
}

static void renew(twister *t)
{
    for (int i = 0; i < WORDS; i++) {
        const uint32_t y = (t->state[i] & 0x80000000u) | (t->state[(i + 1) % WORDS] & 0x7fffffffu);
        t->state[i] = t->state[(i + FAR) % WORDS] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0);
    }
    t->next = 0;
}

static uint32_t word(twister *t)
{
    if (t->next == WORDS) renew(t);
    uint32_t y = t->state[t->next++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

/* Uniform in 0 ... most. */
static uint32_t up_to(twister *t, uint32_t most)
{
    uint32_t mask = most;
    for (int shift = 1; shift < 32; shift *= 2) mask |= mask >> shift;
    for (;;) {
        const uint32_t x = word(t) & mask;
        if (x <= most) return x;
    }
}

void tp_numpy_permutation(uint32_t seed, int64_t n, int64_t *order)
{
    twister t;
    if (!order) return;
    seed_twister(&t, seed);
    for (int64_t i = 0; i < n; i++) order[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        const int64_t j = up_to(&t, (uint32_t)i), last = order[i];
        order[i] = order[j];
        order[j] = last;
    }
}
