/* operand.cuh - elementwise loops over operands that broadcast into y, or are numbers.
 *
 *     y[e] = f(a at e, b at e, ...)
 *
 * A pack of y is within one row of each operand, so one division locates its elements. Operands as
 * large as y are read in packs, others from cache. Moves each element once; bound by memory. */
#ifndef TP_OPERAND_CUH
#define TP_OPERAND_CUH

#include "cuda/kit/move.cuh"

enum tp_operand_kind { TP_WHOLE, TP_REPEATED, TP_CONSTANT };

/* Converts X to V, the function's type: float for arithmetic, X for comparisons and moves. */
template <class V, class X> static __device__ inline V tp_as(X x)
{
    if constexpr (std::is_same<V, X>::value)
        return x;
    else
        return tp_float(x);
}

template <class Y, class V> static __device__ inline void tp_set(Y *p, V v)
{
    if constexpr (std::is_same<Y, V>::value)
        *p = v;
    else
        tp_put(p, v);
}

template <class V, int N> struct tp_values {
    V at[N];
};

template <class V, class X> struct tp_side {
    const X *x;
    V number;
    int kind;
    tp_broadcast p;

    __device__ V operator()(int64_t e) const
    {
        return kind == TP_CONSTANT ? number
               : kind == TP_WHOLE  ? tp_as<V>(x[e])
                                   : tp_as<V>(x[tp_broadcast_at(p, e)]);
    }

    template <int N> __device__ tp_values<V, N> pack(int64_t e) const
    {
        tp_values<V, N> v;
        if (kind == TP_WHOLE) {
            const tp_pack<X, N> raw = tp_load_n<X, N>(x + e);
#pragma unroll
            for (int k = 0; k < N; k++) v.at[k] = tp_as<V>(raw.at[k]);
        } else if (kind == TP_CONSTANT) {
#pragma unroll
            for (int k = 0; k < N; k++) v.at[k] = number;
        } else {
            const X *from = x + tp_broadcast_at(p, e);
#pragma unroll
            for (int k = 0; k < N; k++) v.at[k] = tp_as<V>(from[p.one ? 0 : k]);
        }
        return v;
    }

    /* Can packs of n elements at multiples of n be read? */
    bool packs(int64_t n) const
    {
        return kind == TP_CONSTANT || (kind == TP_WHOLE ? tp_aligned(x) : p.n.d % n == 0);
    }
};

/* The operand x of a call whose result has the shape of y; if x is absent, the number. */
template <class V, class X>
static tp_side<V, X> tp_side_of(const tp_view *y, const tp_view *x, V number)
{
    tp_side<V, X> s = {};
    s.x = tp_in<X>(x);
    s.number = number;
    s.kind = tp_absent(x) ? TP_CONSTANT : x->numel == y->numel ? TP_WHOLE : TP_REPEATED;
    if (s.kind == TP_REPEATED) s.p = tp_broadcast_of(tp__bcast(y, x), 1);
    return s;
}

/* Calls f with values of the types of the floating operands c->x[0] and c->x[1]. A number has the
 * other's type. */
template <class F> static tp_code tp_with_operands(const tp_call *c, F f)
{
    const tp_view *a = &c->x[0], *b = &c->x[1];
    return tp_with_type(c, tp_absent(a) ? b->dtype : a->dtype, [&](auto s) {
        if (tp_absent(a) || tp_absent(b) || a->dtype == b->dtype) return f(s, s);
        return f(s, float()); /* an f32 parameter with bf16 data */
    });
}

template <class F, class Y, int N, class... V>
static __device__ inline tp_pack<Y, N> tp_zip_pack(const F &f, const tp_values<V, N> &...v)
{
    tp_pack<Y, N> y;
#pragma unroll
    for (int k = 0; k < N; k++) tp_set(&y.at[k], f(v.at[k]...));
    return y;
}

template <class F, class Y, class... S>
__global__ void __launch_bounds__(TP_THREADS)
    tp_zip_kernel(F f, int64_t n, int64_t packs, Y *y, S... s)
{
    constexpr int N = (int)(16 / sizeof(Y));
    TP_EACH (i, packs) tp_store(y + i * N, tp_zip_pack<F, Y, N>(f, s.template pack<N>(i * N)...));
    TP_EACH (i, n - packs * N) tp_set(y + packs * N + i, f(s(packs * N + i)...));
}

/* y[e] = f(s(e), ...) for e < n. */
template <class F, class Y, class... S>
static tp_code tp_zip(const tp_call *c, int64_t n, F f, Y *y, S... s)
{
    constexpr int N = (int)(16 / sizeof(Y));
    const bool whole = tp_aligned(y) && (s.packs(N) && ...);
    const int64_t packs = whole ? n / N : 0, items = packs > n - packs * N ? packs : n - packs * N;
    return tp_launch(c, tp_zip_kernel<F, Y, S...>, tp_grid(c, items), TP_THREADS, 0, f, n, packs, y,
                     s...);
}

#endif
