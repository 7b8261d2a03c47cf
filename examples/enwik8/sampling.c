/* sampling.c - choosing the next token: temperature, then top-k, then top-p.
 *
 *     p_i = exp((z_i - z_max) / temperature), sorted; cut after k, cut where the sum passes top_p
 *
 * The smaller id wins a tie, so that a seed always gives the same text. */
#include "sampling.h"

#include <math.h>
#include <stdlib.h>

enum { MOST = 512 }; /* upper bound of the entries of a dictionary */

typedef struct candidate {
    double logit, p;
    int64_t id;
} candidate;

static int by_logit(const void *pa, const void *pb)
{
    const candidate *a = pa, *b = pb;
    if (a->logit != b->logit) return a->logit < b->logit ? 1 : -1;
    return a->id < b->id ? -1 : 1;
}

/* SplitMix64, the upper 53 bits as a number in [0,1). */
static double uniform(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

int64_t sample(sampler *s, const float *logits, const bool *allowed, int64_t n)
{
    candidate c[MOST];
    int64_t k = 0;
    for (int64_t i = 0; i < n && k < MOST; i++)
        if (allowed[i] && isfinite(logits[i])) c[k++] = (candidate){ .logit = logits[i], .id = i };
    if (k == 0) return -1;
    qsort(c, (size_t)k, sizeof c[0], by_logit);
    if (s->temperature == 0) return c[0].id;
    if (s->top_k > 0 && s->top_k < k) k = s->top_k;
    double all = 0, kept = 0;
    for (int64_t i = 0; i < k; i++) all += c[i].p = exp((c[i].logit - c[0].logit) / s->temperature);
    int64_t last = 0;
    while (last < k && kept < s->top_p * all) kept += c[last++].p;
    double u = uniform(&s->random) * kept;
    int64_t i = 0;
    while (i + 1 < last && (u -= c[i].p) >= 0) i++;
    return c[i].id;
}
