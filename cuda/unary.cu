/* unary.cu - elementwise functions of one operand, by the rows of tensor/geometry/functions.h.
 *
 *     y = f(x);   dx = dy f'   with f' computed from what the op saved, x or y
 *
 * Moves 8 bytes per element forward, 12 backward (f32): bound by memory. */
#include "cuda/kit/activation.cuh"
#include "cuda/kit/map.cuh"
#include "tensor/geometry/elementwise.h"
#include "tensor/geometry/functions.h"

static tp_unary_attr constants(const tp_call *c)
{
    return c->attr ? *static_cast<const tp_unary_attr *>(c->attr) : tp_unary_attr();
}

template <class F, class S> static tp_code forward(const tp_call *c)
{
    const tp_unary_attr k = constants(c);
    const F f = { (float)k.a, (float)k.b };
    return tp_map(c, c->x[0].numel, f, tp_out<S>(&c->y[0]), tp_in<S>(&c->x[0]));
}

/* A slope that reads neither x nor y gets dy and ignores it. */
template <class F, class S> static tp_code backward(const tp_call *c)
{
    const tp_unary_attr k = constants(c);
    const F f = { (float)k.a, (float)k.b };
    const tp_view *saved = c->x[0].data ? &c->x[0] : c->y[0].data ? &c->y[0] : &c->dy[0];
    if (!c->dx[0].data) return TP_OK;
    return tp_map(c, saved->numel, f, tp_out<S>(&c->dx[0]), tp_in<S>(&c->dy[0]), tp_in<S>(saved));
}

#define VALUE(name, value)                                                                         \
    struct f_##name {                                                                              \
        float a, b;                                                                                \
        __device__ float operator()(float x) const { return value; }                               \
    };                                                                                             \
    template <class S> static tp_code name##_fwd(const tp_call *c)                                 \
    {                                                                                              \
        return forward<f_##name, S>(c);                                                            \
    }                                                                                              \
    TP_CUDA_KERNEL(name##_fwd)
#define FUNCTION(name, doc, saved, cases, value, slope)                                            \
    VALUE(name, value)                                                                             \
    struct d_##name {                                                                              \
        float a, b;                                                                                \
        __device__ float operator()(float dy, float saved) const                                   \
        {                                                                                          \
            (void)saved;                                                                           \
            return dy * (slope);                                                                   \
        }                                                                                          \
    };                                                                                             \
    template <class S> static tp_code name##_bwd(const tp_call *c)                                 \
    {                                                                                              \
        return backward<d_##name, S>(c);                                                           \
    }                                                                                              \
    TP_CUDA_KERNEL(name##_bwd)
#define STEP(name, doc, value) VALUE(name, value)

TP_UNARY(FUNCTION)
TP_UNARY_TURNS(FUNCTION)
TP_UNARY_OF(FUNCTION)
TP_UNARY_STEPS(STEP)

struct no_slope {
    __device__ float operator()(float) const { return 0.0f; }
};

template <class S> static tp_code step_bwd(const tp_call *c)
{
    if (!c->dx[0].data) return TP_OK;
    return tp_map(c, c->dx[0].numel, no_slope(), tp_out<S>(&c->dx[0]), tp_in<S>(&c->dy[0]));
}
TP_CUDA_KERNEL(step_bwd)
