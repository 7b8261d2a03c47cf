/* rand.cu - random numbers, uniform and normal. A thread turns the four words of a block of the stream into four
 * elements: some 60 integer operations for 16 bytes written, and for normal numbers two logarithms, roots and
 * pairs of sine and cosine. */
#include "cuda/kit/kernel.cuh"

struct uniform_of {
    __device__ void operator()(const tp_philox &p, float *z) const
    {
#pragma unroll
        for (int k = 0; k < 4; k++) z[k] = tp__uniform(p.w[k]);
    }
};

struct normal_of {
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
__global__ void __launch_bounds__(TP_THREADS) random_kernel(tp_random random, int64_t n, F f, S *y)
{
    TP_EACH (i, (n + 3) / 4) {
        float z[4];
        f(tp_random_block(random, (uint64_t)i), z);
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (4 * i + k < n) tp_put(y + 4 * i + k, z[k]);
    }
}

template <class F> static tp_code fill_with(const tp_call *c, F f)
{
    const int64_t n = c->y[0].numel;
    return tp_with_type(c, c->y[0].dtype, [&](auto s) {
        using S = decltype(s);
        return tp_launch(c, random_kernel<S, F>, tp_grid(c, (n + 3) / 4), TP_THREADS, 0,
                         tp_random_of(c), n, f, tp_out<S>(&c->y[0]));
    });
}

static tp_code rand_fwd(const tp_call *c)
{
    return fill_with(c, uniform_of());
}

static tp_code randn_fwd(const tp_call *c)
{
    return fill_with(c, normal_of());
}

TP_CUDA_KERNEL_UNTYPED(rand_fwd)
TP_CUDA_KERNEL_UNTYPED(randn_fwd)
