/* rand.cu - random numbers, uniform and normal: some 60 integer operations per 16 bytes written,
 * and for normal numbers two logarithms, roots and sine-cosine pairs. */
#include "cuda/kit/random_fill.cuh"

struct uniform_of {
    __device__ void operator()(const tp_philox &p, float *z) const
    {
#pragma unroll
        for (int k = 0; k < 4; k++) z[k] = tp__uniform(p.w[k]);
    }
};

template <class F> static tp_code fill_with(const tp_call *c, F f)
{
    const int64_t n = c->y[0].numel;
    return tp_with_type(c, c->y[0].dtype, [&](auto s) {
        using S = decltype(s);
        return tp_fill_random(c, n, f, tp_out<S>(&c->y[0]));
    });
}

static tp_code rand_fwd(const tp_call *c)
{
    return fill_with(c, uniform_of());
}

static tp_code randn_fwd(const tp_call *c)
{
    return fill_with(c, tp_normal_of());
}

TP_CUDA_KERNEL_UNTYPED(rand_fwd)
TP_CUDA_KERNEL_UNTYPED(randn_fwd)
