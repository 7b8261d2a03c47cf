/* binary.cu - add, sub, mul, div with b broadcast into a.
 *
 *     y = f(a, b);   da = dy df/da,   db = sum of dy df/db over the elements of a that b[i] broadcasts to
 *
 * Moves each element of a and y (dy and da) once and reads b from cache: 8 to 12 bytes per element
 * (f32), bound by memory. b may be an f32 parameter with bf16 data. */
#include "cuda/kit/fold.cuh"
#include "cuda/kit/map.cuh"

struct sum_of {
    __device__ float operator()(float a, float b) const { return a + b; }
};
struct difference_of {
    __device__ float operator()(float a, float b) const { return a - b; }
};
struct product_of {
    __device__ float operator()(float a, float b) const { return a * b; }
};
struct quotient_of {
    __device__ float operator()(float a, float b) const { return a / b; }
};
/* A pack is within one row of a, so one division finds the b of all its elements. */
template <class F, class S, class B>
__global__ void __launch_bounds__(TP_THREADS)
    broadcast_map_kernel(tp_broadcast p, int64_t n, int64_t packs, const S *a, const B *b, S *y)
{
    constexpr int N = (int)(16 / sizeof(S));
    TP_EACH (i, packs) {
        const B *at = b + tp_broadcast_at(p, i * N);
        tp_pack<S> v = tp_load(a + i * N);
#pragma unroll
        for (int k = 0; k < N; k++)
            tp_put(&v.at[k], F()(tp_float(v.at[k]), tp_float(at[p.one ? 0 : k])));
        tp_store(y + i * N, v);
    }
    TP_EACH (i, n - packs * N) {
        const int64_t e = packs * N + i;
        tp_put(y + e, F()(tp_float(a[e]), tp_float(b[tp_broadcast_at(p, e)])));
    }
}

/* y = F(a, b), where a has the shape of x[0]: it is x[0] or dy. */
template <class F, class S, class B>
static tp_code broadcast_map(const tp_call *c, const tp_view *a, const tp_view *y)
{
    constexpr int N = (int)(16 / sizeof(S));
    const int64_t n = c->x[0].numel;
    const tp_bcast p = tp__bcast(&c->x[0], &c->x[1]);
    if (p.rows.count == 1 && !p.one) /* equal shapes */
        return tp_map(c, n, F(), tp_out<S>(y), tp_in<S>(a), tp_in<B>(&c->x[1]));
    const bool whole = p.n % N == 0 && tp_aligned(a->data, y->data);
    return tp_launch(c, broadcast_map_kernel<F, S, B>, tp_grid(c, whole ? n / N : n), TP_THREADS, 0,
                     tp_broadcast_of(p, 1), n, whole ? n / N : 0, tp_in<S>(a), tp_in<B>(&c->x[1]),
                     tp_out<S>(y));
}

template <class F, class S> static tp_code forward(const tp_call *c)
{
    return tp_with_type(c, c->x[1].dtype, [&](auto b) {
        return broadcast_map<F, S, decltype(b)>(c, &c->x[0], &c->y[0]);
    });
}

/* ---- db: a sum, then the factor that all its terms share ---- */

struct negative {
    __device__ float operator()(float sum, int64_t) const { return -sum; }
};

template <class B> struct by_square {
    const B *b;
    __device__ float operator()(float sum, int64_t i) const
    {
        return -sum / tp_float(b[i]) / tp_float(b[i]);
    }
};

/* factor: multiplies dy before the sum, or NULL. */
template <class S, class B, class F>
static tp_code fold_db(const tp_call *c, const S *factor, F finish)
{
    return tp_fold_sum(c, &c->x[0], &c->x[1], tp_in<S>(&c->dy[0]), factor, tp_out<B>(&c->dx[1]),
                       c->work, finish);
}

template <class S> static tp_code add_fwd(const tp_call *c)
{
    return forward<sum_of, S>(c);
}
template <class S> static tp_code sub_fwd(const tp_call *c)
{
    return forward<difference_of, S>(c);
}
template <class S> static tp_code mul_fwd(const tp_call *c)
{
    return forward<product_of, S>(c);
}
template <class S> static tp_code div_fwd(const tp_call *c)
{
    return forward<quotient_of, S>(c);
}

template <class S> static tp_code add_bwd(const tp_call *c)
{
    if (!c->dx[1].data) return TP_OK;
    return tp_with_type(c, c->dx[1].dtype, [&](auto b) {
        return fold_db<S, decltype(b)>(c, (const S *)NULL, tp_as_it_is());
    });
}

template <class S> static tp_code sub_bwd(const tp_call *c)
{
    if (!c->dx[1].data) return TP_OK;
    return tp_with_type(c, c->dx[1].dtype, [&](auto b) {
        return fold_db<S, decltype(b)>(c, (const S *)NULL, negative());
    });
}

template <class S> static tp_code mul_bwd(const tp_call *c)
{
    return tp_with_type(c, c->x[1].dtype, [&](auto b) {
        typedef decltype(b) B;
        const tp_code code =
            c->dx[0].data ? broadcast_map<product_of, S, B>(c, &c->dy[0], &c->dx[0]) : TP_OK;
        if (code != TP_OK || !c->dx[1].data) return code;
        return fold_db<S, B>(c, tp_in<S>(&c->x[0]), tp_as_it_is());
    });
}

template <class S> static tp_code div_bwd(const tp_call *c)
{
    return tp_with_type(c, c->x[1].dtype, [&](auto b) {
        typedef decltype(b) B;
        const tp_code code =
            c->dx[0].data ? broadcast_map<quotient_of, S, B>(c, &c->dy[0], &c->dx[0]) : TP_OK;
        if (code != TP_OK || !c->dx[1].data) return code;
        const by_square<B> finish = { tp_in<B>(&c->x[1]) };
        return fold_db<S, B>(c, tp_in<S>(&c->x[0]), finish);
    });
}

TP_CUDA_KERNEL(add_fwd)
TP_CUDA_KERNEL(sub_fwd)
TP_CUDA_KERNEL(mul_fwd)
TP_CUDA_KERNEL(div_fwd)
TP_CUDA_KERNEL(add_bwd)
TP_CUDA_KERNEL(sub_bwd)
TP_CUDA_KERNEL(mul_bwd)
TP_CUDA_KERNEL(div_bwd)
