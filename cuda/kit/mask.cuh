/* mask.cuh - random masks: keeps an element, scaled by 1/(1-p), if its word is at least p 2^32.
 *
 * The words are those of tensor/rng.h, so masks equal the CPU's. A Philox block of four words takes
 * about 60 operations: draw whole blocks for adjacent elements. */
#ifndef TP_MASK_CUH
#define TP_MASK_CUH

#include "cuda/kit/kernel.cuh"

struct tp_mask {
    tp_random random;
    uint32_t below; /* 0: keeps everything, draws no words */
    float scale;
};

static inline tp_mask tp_mask_of(const tp_call *c, double p)
{
    return { tp_random_of(c), tp__drop_below(p), (float)(1.0 / (1.0 - p)) };
}

/* The random words of elements e .. e + N: one element, or whole blocks of four, the first at e. */
template <int N> struct tp_words {
    uint32_t w[N];

    __device__ tp_words(const tp_mask &m, int64_t e)
    {
        for (int k = 0; k < N; k++) w[k] = 0;
        if (m.below == 0) return;
        if constexpr (N == 1) { /* no variable index, so the words stay in registers */
            const tp_philox p = tp_random_block(m.random, (uint64_t)e / 4);
            w[0] = e & 2 ? (e & 1 ? p.w[3] : p.w[2]) : (e & 1 ? p.w[1] : p.w[0]);
        } else {
            for (int q = 0; q < N / 4; q++) {
                const tp_philox p = tp_random_block(m.random, (uint64_t)(e / 4 + q));
                for (int k = 0; k < 4; k++) w[4 * q + k] = p.w[k];
            }
        }
    }
    __device__ bool keeps(const tp_mask &m, int k) const { return w[k] >= m.below; }
    __device__ float drop(const tp_mask &m, int k, float x) const
    {
        return keeps(m, k) ? x * m.scale : 0.0f;
    }
};

#endif
