/* numpy_permutation.c - the permutations of NumPy's RandomState: MT19937 (Matsumoto, Nishimura
 * 1998) seeded with one number, and a shuffle from the end. Each partner is drawn by masking words
 * until one is small enough. */
#include <tapegrad/random.h>

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
