/* compare.cu - masks of where two broadcast operands satisfy a relation, and where elements of one
 * tensor are 0, NaN, finite or infinite.
 *
 * A thread takes 16 elements. Moves each element of whole operands and of the mask once and reads
 * repeated ones from cache: 5 to 9 bytes per element (f32), bound by memory. */
#include <type_traits>

#include "cuda/kit/operand.cuh"
#include "tensor/geometry/elementwise.h"

/* f(name, relation, condition). Swapped operands turn > and >= into < and <=. */
/* clang-format off */
#define RELATIONS(f)                                                                               \
    f(equal,     TP_EQ,  a == b)                                                                   \
    f(unequal,   TP_NE,  a != b)                                                                   \
    f(less,      TP_LT,  a < b)                                                                    \
    f(not_more,  TP_LE,  a <= b)                                                                   \
    f(both,      TP_AND, a != V(0) && b != V(0))                                                   \
    f(either,    TP_OR,  a != V(0) || b != V(0))                                                   \
    f(just_one,  TP_XOR, (a != V(0)) != (b != V(0)))
/* clang-format on */

#define FUNCTOR(name, relation, holds)                                                             \
    struct name {                                                                                  \
        template <class V> __device__ uint8_t operator()(V a, V b) const                           \
        {                                                                                          \
            return (holds) ? 1 : 0;                                                                \
        }                                                                                          \
    };
RELATIONS(FUNCTOR)

/* Operand i, read as V. */
template <class V, class X> static tp_side<V, X> side(const tp_call *c, int i)
{
    const tp_compare_attr *k = static_cast<const tp_compare_attr *>(c->attr);
    return tp_side_of<V, X>(&c->y[0], &c->x[i], (V)k->operands.number);
}

template <class V, class A, class B> static tp_code related(const tp_call *c, A a, B b)
{
    const int64_t n = c->y[0].numel;
    uint8_t *y = tp_out<uint8_t>(&c->y[0]);
    switch (static_cast<const tp_compare_attr *>(c->attr)->relation) {
    case TP_GT: return tp_zip(c, n, less(), y, b, a);
    case TP_GE: return tp_zip(c, n, not_more(), y, b, a);
#define CASE(name, relation, holds)                                                                \
    case relation: return tp_zip(c, n, name(), y, a, b);
        RELATIONS(CASE)
#undef CASE
    }
    return TP_E_VALUE;
}

template <class X> static tp_code integers(const tp_call *c)
{
    return related<X>(c, side<X, X>(c, 0), side<X, X>(c, 1));
}

static tp_code compare_fwd(const tp_call *c)
{
    switch (c->x[tp_absent(&c->x[0]) ? 1 : 0].dtype) {
    case TP_U8: return integers<uint8_t>(c);
    case TP_I32: return integers<int32_t>(c);
    case TP_I64: return integers<int64_t>(c);
    default:
        return tp_with_operands(c, [&](auto a, auto b) {
            return related<float>(c, side<float, decltype(a)>(c, 0),
                                  side<float, decltype(b)>(c, 1));
        });
    }
}

/* ---- one tensor ---- */

struct answer {
    tp_question question;
    __device__ uint8_t operator()(float x) const
    {
        const bool finite = x - x == 0.0f;
        return question == TP_IS_ZERO     ? x == 0.0f
               : question == TP_IS_NAN    ? x != x
               : question == TP_IS_FINITE ? finite
                                          : !finite && x == x;
    }
    template <class X> __device__ uint8_t operator()(X x) const
    {
        return question == TP_IS_ZERO ? x == X(0) : question == TP_IS_FINITE;
    }
};

template <class V, class X> static tp_code answers(const tp_call *c)
{
    const answer f = { *static_cast<const tp_question *>(c->attr) };
    return tp_zip(c, c->y[0].numel, f, tp_out<uint8_t>(&c->y[0]),
                  tp_side_of<V, X>(&c->y[0], &c->x[0], V(0)));
}

static tp_code ask_fwd(const tp_call *c)
{
    switch (c->x[0].dtype) {
    case TP_U8: return answers<uint8_t, uint8_t>(c);
    case TP_I32: return answers<int32_t, int32_t>(c);
    case TP_I64: return answers<int64_t, int64_t>(c);
    default:
        return tp_with_type(c, c->x[0].dtype,
                            [&](auto s) { return answers<float, decltype(s)>(c); });
    }
}

TP_CUDA_KERNEL_UNTYPED(compare_fwd)
TP_CUDA_KERNEL_UNTYPED(ask_fwd)
