/* logical.cu - any and all of x != 0, over any set of axes and for every dtype (reducer.cuh). Reads
 * x once; bound by memory. */
#include "cuda/kit/reducer.cuh"

template <class S> static __device__ inline bool is_zero(S x)
{
    return x == S(0);
}
static __device__ inline bool is_zero(bf16 x)
{
    return tp_float(x) == 0.0f;
}

/* all is not any of x == 0; `zero`: looks for zeros. */
struct seen {
    struct state {
        uint32_t found;
    };
    uint8_t *y;
    bool zero;
    static __device__ state none() { return { 0u }; }
    template <class S> __device__ void add(state &v, S x, int64_t) const
    {
        v.found |= is_zero(x) == zero ? 1u : 0u;
    }
    static __device__ state join(state a, state b) { return { a.found | b.found }; }
    __device__ void finish(state v, int64_t i) const { y[i] = (v.found != 0u) != zero; }
};

static tp_code look(const tp_call *c, bool zero)
{
    const seen r = { tp_out<uint8_t>(&c->y[0]), zero };
    switch (c->x[0].dtype) {
    case TP_U8: return tp_reduce<uint8_t>(c, r);
    case TP_I32: return tp_reduce<int32_t>(c, r);
    case TP_I64: return tp_reduce<int64_t>(c, r);
    default:
        return tp_with_type(c, c->x[0].dtype, [&](auto s) { return tp_reduce<decltype(s)>(c, r); });
    }
}

static tp_code any_fwd(const tp_call *c)
{
    return look(c, false);
}
static tp_code all_fwd(const tp_call *c)
{
    return look(c, true);
}

TP_CUDA_KERNEL_UNTYPED(any_fwd)
TP_CUDA_KERNEL_UNTYPED(all_fwd)
