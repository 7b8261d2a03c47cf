/* binary.cu - functions of two operands that broadcast into a common shape, by the rows of
 * tensor/geometry/functions.h.
 *
 *     y = f(a, b);   da = dy df/da,   db = dy df/db,   summed over the repetitions of an element
 *
 * Moves each element of y and of whole operands once and reads repeated ones from cache: 8 to 12
 * bytes per element forward (f32), bound by memory; pow takes some 100 more operations. b may be an
 * f32 parameter with bf16 data. */
#include "cuda/kit/activation.cuh"
#include "cuda/kit/fold.cuh"
#include "cuda/kit/operand.cuh"
#include "tensor/geometry/elementwise.h"
#include "tensor/geometry/functions.h"

template <class X> static tp_side<float, X> side(const tp_call *c, int i)
{
    const float number = (float)static_cast<const tp_binary_attr *>(c->attr)->number;
    return tp_side_of<float, X>(&c->y[0], &c->x[i], number);
}

template <class F> static tp_code forward(const tp_call *c)
{
    return tp_with_operands(c, [&](auto a, auto b) {
        typedef decltype(a) S;
        return tp_zip(c, c->y[0].numel, F(), tp_out<S>(&c->y[0]), side<S>(c, 0),
                      side<decltype(b)>(c, 1));
    });
}

/* Replaces an operand that a slope does not read and is not saved: one kernel per type of dy then
 * serves operands of all types. */
struct unread {
    __device__ float operator()(int64_t) const { return 0.0f; }
    template <int N> __device__ tp_values<float, N> pack(int64_t) const { return {}; }
    bool packs(int64_t) const { return true; }
};

template <class F, class S, class A, class B> struct terms {
    tp_side<float, S> dy;
    A a;
    B b;
    __device__ float operator()(int64_t e) const { return F()(dy(e), a(e), b(e)); }
};

/* Gradient i, direct if the operand is as large as y, else summed. */
template <class F, class S, class D, class A, class B>
static tp_code gradient(const tp_call *c, int i, A a, B b)
{
    const tp_view *dx = &c->dx[i];
    const tp_side<float, S> dy = tp_side_of<float, S>(&c->y[0], &c->dy[0], 0.0f);
    if (dx->numel == c->y[0].numel) return tp_zip(c, dx->numel, F(), tp_out<D>(dx), dy, a, b);
    const terms<F, S, A, B> t = { dy, a, b };
    return tp_fold_terms(c, &c->y[0], dx, t, tp_out<D>(dx), c->work, tp_as_it_is());
}

template <bool READS, class X> static auto slope_side(const tp_call *c, int i)
{
    if constexpr (READS)
        return side<X>(c, i);
    else
        return unread();
}

template <bool READS, class FA, class FB> static tp_code backward(const tp_call *c)
{
    return tp_with_operands(c, [&](auto x, auto w) {
        typedef decltype(x) S;
        typedef decltype(w) B;
        const auto a = slope_side<READS, S>(c, 0);
        const auto b = slope_side<READS, B>(c, 1);
        const tp_code code = c->dx[0].data ? gradient<FA, S, S>(c, 0, a, b) : TP_OK;
        if (code != TP_OK || !c->dx[1].data) return code;
        return gradient<FB, S, B>(c, 1, a, b);
    });
}

#define KERNELS(op, reads, value, by_a, by_b)                                                      \
    struct op##_value {                                                                            \
        __device__ float operator()(float a, float b) const { return value; }                      \
    };                                                                                             \
    struct op##_by_a {                                                                             \
        __device__ float operator()(float dy, float a, float b) const                              \
        {                                                                                          \
            (void)a, (void)b;                                                                      \
            return by_a;                                                                           \
        }                                                                                          \
    };                                                                                             \
    struct op##_by_b {                                                                             \
        __device__ float operator()(float dy, float a, float b) const                              \
        {                                                                                          \
            (void)a, (void)b;                                                                      \
            return by_b;                                                                           \
        }                                                                                          \
    };                                                                                             \
    static tp_code op##_fwd(const tp_call *c)                                                      \
    {                                                                                              \
        return forward<op##_value>(c);                                                             \
    }                                                                                              \
    static tp_code op##_bwd(const tp_call *c)                                                      \
    {                                                                                              \
        return backward<reads, op##_by_a, op##_by_b>(c);                                           \
    }                                                                                              \
    TP_CUDA_KERNEL_UNTYPED(op##_fwd)                                                               \
    TP_CUDA_KERNEL_UNTYPED(op##_bwd)

#define SUM(op, doc, cases, value, by_a, by_b)      KERNELS(op, false, value, by_a, by_b)
#define FUNCTION(op, doc, cases, value, by_a, by_b) KERNELS(op, true, value, by_a, by_b)

TP_BINARY_SUMS(SUM)
TP_BINARY_PRODUCTS(FUNCTION)
TP_BINARY_POWERS(FUNCTION)
TP_BINARY(FUNCTION)
