/* cast.cu - conversion between f32 and bf16, rounded to nearest even. Moves 6 bytes per
 * element. */
#include "cuda/kit/map.cuh"

struct same {
    __device__ float operator()(float x) const { return x; }
};

static tp_code convert(const tp_call *c, const tp_view *from, const tp_view *to)
{
    return tp_with_type(c, from->dtype, [&](auto a) {
        return tp_with_type(c, to->dtype, [&](auto b) {
            return tp_map(c, from->numel, same(), tp_out<decltype(b)>(to),
                          tp_in<decltype(a)>(from));
        });
    });
}

static tp_code cast_fwd(const tp_call *c)
{
    return convert(c, &c->x[0], &c->y[0]);
}

static tp_code cast_bwd(const tp_call *c)
{
    return c->dx[0].data ? convert(c, &c->dy[0], &c->dx[0]) : TP_OK;
}

TP_CUDA_KERNEL_UNTYPED(cast_fwd)
TP_CUDA_KERNEL_UNTYPED(cast_bwd)
