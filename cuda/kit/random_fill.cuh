/* random_fill.cuh - fills memory with elements computed from the random stream, such as normal
 * numbers. A thread turns the four words of a block into four elements. */
#ifndef TP_RANDOM_FILL_CUH
#define TP_RANDOM_FILL_CUH

#include "cuda/kit/kernel.cuh"

struct tp_normal_of {
    __device__ void operator()(const tp_philox &p, float *z) const
    {
#pragma unroll
        for (int k = 0; k < 4; k += 2) {
            const float u = ((float)p.w[k] + 0.5f) * 0x1p-32f;
            const float angle = 6.283185307179586f * ((float)p.w[k + 1] * 0x1p-32f);
            const float radius = sqrtf(-2.0f * logf(u));
            z[k] = radius * cosf(angle);
            z[k + 1] = radius * sinf(angle);
        }
    }
};

template <class S, class F>
__global__ void __launch_bounds__(TP_THREADS)
    tp_random_kernel(tp_random random, int64_t n, F f, S *y)
{
    TP_EACH (i, (n + 3) / 4) {
        float z[4];
        f(tp_random_block(random, (uint64_t)i), z);
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (4 * i + k < n) tp_put(y + 4 * i + k, z[k]);
    }
}

/* y[0..n) = f of words of the op's stream. */
template <class S, class F> static tp_code tp_fill_random(const tp_call *c, int64_t n, F f, S *y)
{
    return tp_launch(c, tp_random_kernel<S, F>, tp_grid(c, (n + 3) / 4), TP_THREADS, 0,
                     tp_random_of(c), n, f, y);
}

#endif
