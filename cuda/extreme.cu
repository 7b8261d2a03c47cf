/* extreme.cu - max, min and their indices over any set of axes (reducer.cuh).
 *
 * The minimum of x is minus the maximum of -x. NaN wins over every number; of equal numbers the
 * first wins. Reads x once; bound by memory. */
#include "cuda/kit/reducer.cuh"

/* Order: NaN first, then larger, then earlier. */
template <class S> struct extreme {
    struct state {
        float v;
        uint32_t unused;
        int64_t at; /* -1: no term yet */
    };
    S *y; /* NULL: only indices */
    int64_t *at;
    float sign; /* -1: the smallest */
    static __device__ state none() { return { 0.0f, 0u, -1 }; }
    static __device__ state join(state a, state b)
    {
        if (a.at < 0 || b.at < 0) return a.at < 0 ? b : a;
        const bool na = a.v != a.v, nb = b.v != b.v;
        if (na != nb) return na ? a : b;
        if (!na && a.v != b.v) return a.v > b.v ? a : b;
        return a.at < b.at ? a : b;
    }
    __device__ void add(state &v, S x, int64_t i) const
    {
        v = join(v, { sign * tp_float(x), 0u, i });
    }
    __device__ void finish(state v, int64_t i) const
    {
        at[i] = v.at;
        if (y) tp_put(y + i, sign * v.v);
    }
};

template <class S> static tp_code find(const tp_call *c, S *y, int64_t *at, float sign)
{
    const extreme<S> r = { y, at, sign };
    return tp_reduce<S>(c, r);
}

template <class S> static tp_code max_fwd(const tp_call *c)
{
    return find(c, tp_out<S>(&c->y[0]), tp_out<int64_t>(&c->y[1]), 1.0f);
}
template <class S> static tp_code min_fwd(const tp_call *c)
{
    return find(c, tp_out<S>(&c->y[0]), tp_out<int64_t>(&c->y[1]), -1.0f);
}
template <class S> static tp_code argmax_fwd(const tp_call *c)
{
    return find(c, (S *)NULL, tp_out<int64_t>(&c->y[0]), 1.0f);
}
template <class S> static tp_code argmin_fwd(const tp_call *c)
{
    return find(c, (S *)NULL, tp_out<int64_t>(&c->y[0]), -1.0f);
}

/* ---- backward: dy goes to the elements at the indices ---- */

template <class S> __global__ void __launch_bounds__(TP_THREADS) clear_kernel(int64_t n, S *dx)
{
    TP_EACH (e, n) tp_put(dx + e, 0.0f);
}

/* kept, again: offsets of the rows of results, and of the rows of x that share one. */
template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    scatter_kernel(tp_places kept, tp_places again, tp_divisor n, bool one, int64_t results,
                   const int64_t *at, const S *dy, S *dx)
{
    TP_EACH (i, results) {
        const int64_t row = one ? i : tp_over(n, i), s = one ? tp_over(n, at[i]) : at[i];
        const int64_t rest = one ? at[i] - s * n.d : i - row * n.d;
        dx[tp_place(kept, row) + tp_place(again, s) + rest] = dy[i];
    }
}

template <class S> static tp_code max_bwd(const tp_call *c)
{
    const tp_view b = tp__reduced(&c->x[0], tp_reduce_attr_of(c)->axes);
    const tp_bcast p = tp__bcast(&c->x[0], &b);
    const int64_t n = c->x[0].numel, results = c->dy[0].numel;
    if (!c->dx[0].data || n == 0) return TP_OK;
    const tp_code code =
        tp_launch(c, clear_kernel<S>, tp_grid(c, n), TP_THREADS, 0, n, tp_out<S>(&c->dx[0]));
    if (code != TP_OK) return code;
    return tp_launch(c, scatter_kernel<S>, tp_grid(c, results), TP_THREADS, 0,
                     tp_places_of(p.kept, 1), tp_places_of(p.again, 1), tp_by(p.n), p.one, results,
                     tp_in<int64_t>(&c->y[1]), tp_in<S>(&c->dy[0]), tp_out<S>(&c->dx[0]));
}

TP_CUDA_KERNEL(max_fwd)
TP_CUDA_KERNEL(max_bwd)
TP_CUDA_KERNEL(min_fwd)
TP_CUDA_KERNEL(argmax_fwd)
TP_CUDA_KERNEL(argmin_fwd)
