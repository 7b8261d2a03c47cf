/* random.c - streams of random numbers: the Philox words of (key, index, epoch) in order. */
#include <tapegrad/random.h>

#include <math.h>

#include "tensor/rng.h"

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

/* Marsaglia and Tsang; shapes below 1 use a power of a uniform number. */
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

/* X / (X + Y) of gamma values, computed from logarithms, which do not underflow for small a, b. */
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
