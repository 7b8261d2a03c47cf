/* keep.h - factors of dropout for attention: element e of the probabilities is kept, and divided by 1 - p, if
 * word e of the call's random stream is at least p 2^32. */
#ifndef TP_KEEP_H
#define TP_KEEP_H

#include "tensor/cpu/kit/philox_words.h"
#include "tensor/cpu/kit/real.h"
#include "tensor/geometry/whole.h"

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

/* to[i * step] = 0 or 1/(1-p), by the words of elements e .. e + n. The loop takes whole vectors only with a constant
 * step of 1 and with the factors in variables, which stores to `to` cannot change; otherwise it takes five times as
 * long as the words. */
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
