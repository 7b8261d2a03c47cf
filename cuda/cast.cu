/* cast.cu - conversion between f32, bf16 and integers: rounds to nearest even, or truncates to
 * integers in range, NaN to 0. Moves each element once, 6 bytes from f32 to bf16; bound by
 * memory. */
#include <type_traits>

#include "cuda/kit/operand.cuh"
#include "tensor/geometry/elementwise.h"

/* x rounded to odd: inexact results have a last bit of 1 and are never halfway between two bf16, to
 * which they are rounded next. Bits beyond double's become one odd bit. */
static __device__ inline float rounded_to_odd(int64_t x)
{
    const int64_t low = 0x7ff, few = (x & ~low) | ((x & low) != 0 ? low + 1 : 0);
    const bool fits = x >= -(1LL << 53) && x <= 1LL << 53;
    const double exact = (double)(fits ? x : few);
    const float near = (float)exact;
    const bool beyond = fabs((double)near) > fabs(exact);
    const unsigned bits = __float_as_uint(near) - (beyond ? 1u : 0u);
    return (double)near == exact ? near : __uint_as_float(bits | 1u);
}

template <class I> struct limits; /* the range, and the largest float in it */
template <> struct limits<uint8_t> {
    static constexpr int64_t least = 0, most = 255;
    static constexpr float top = 255.0f;
};
template <> struct limits<int32_t> {
    static constexpr int64_t least = INT32_MIN, most = INT32_MAX;
    static constexpr float top = 2147483520.0f;
};
template <> struct limits<int64_t> {
    static constexpr int64_t least = INT64_MIN, most = INT64_MAX;
    static constexpr float top = 9223371487098961920.0f;
};

/* Converts V, float or an integer, to Y; bf16 are floats until stored. */
template <class Y> struct converted {
    template <class V> __device__ auto operator()(V x) const
    {
        typedef std::is_same<V, float> floating;
        if constexpr (std::is_same<Y, bf16>::value && !floating::value) {
            return rounded_to_odd((int64_t)x);
        } else if constexpr (std::is_same<Y, bf16>::value || std::is_same<Y, float>::value) {
            return (float)x;
        } else if constexpr (floating::value) {
            const float least = (float)limits<Y>::least, top = limits<Y>::top;
            const Y within = (Y)(x != x ? 0.0f : x < least ? least : x > top ? top : x);
            return x > top ? (Y)limits<Y>::most : within;
        } else {
            const int64_t least = limits<Y>::least, most = limits<Y>::most, v = (int64_t)x;
            return (Y)(v < least ? least : v > most ? most : v);
        }
    }
};

/* Calls f with a value of dtype dt. */
template <class F> static tp_code with_any_type(const tp_call *c, tp_dtype dt, F f)
{
    switch (dt) {
    case TP_I32: return f(int32_t());
    case TP_I64: return f(int64_t());
    case TP_U8: return f(uint8_t());
    default: return tp_with_type(c, dt, f);
    }
}

static tp_code convert(const tp_call *c, const tp_view *from, const tp_view *to)
{
    return with_any_type(c, from->dtype, [&](auto a) {
        return with_any_type(c, to->dtype, [&](auto b) {
            typedef decltype(a) X;
            typedef decltype(b) Y;
            typedef typename std::conditional<std::is_integral<X>::value, X, float>::type V;
            return tp_zip(c, from->numel, converted<Y>(), tp_out<Y>(to),
                          tp_side_of<V, X>(to, from, V(0)));
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
