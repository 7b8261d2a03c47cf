/* map.cuh - elementwise loops: y = f(x, ...) in packs of 16 bytes of y, the rest one by one.
 *
 * f is a struct of constants with float operator()(float, ...) const. Moves each element once;
 * bound by memory. */
#ifndef TP_MAP_CUH
#define TP_MAP_CUH

#include "cuda/kit/kernel.cuh"

template <class F, class Y, int N, class... X>
static __device__ inline tp_pack<Y, N> tp_map_pack(const F &f, const tp_pack<X, N> &...x)
{
    tp_pack<Y, N> y;
#pragma unroll
    for (int k = 0; k < N; k++) tp_put(&y.at[k], f(tp_float(x.at[k])...));
    return y;
}

template <class F, class Y, class... X>
__global__ void __launch_bounds__(TP_THREADS)
    tp_map_kernel(F f, int64_t n, int64_t packs, Y *y, const X *...x)
{
    constexpr int N = (int)(16 / sizeof(Y));
    TP_EACH (i, packs)
        tp_store(y + i * N, tp_map_pack<F, Y, N, X...>(f, tp_load_n<X, N>(x + i * N)...));
    TP_EACH (i, n - packs * N) {
        const int64_t e = packs * N + i;
        tp_put(y + e, f(tp_float(x[e])...));
    }
}

/* y[i] = f(x[i], ...) for i < n. An x may be y itself. */
template <class F, class Y, class... X>
static tp_code tp_map(const tp_call *c, int64_t n, F f, Y *y, const X *...x)
{
    constexpr int N = (int)(16 / sizeof(Y));
    const int64_t packs = tp_aligned(y, x...) ? n / N : 0,
                  items = packs > n - packs * N ? packs : n;
    return tp_launch(c, tp_map_kernel<F, Y, X...>, tp_grid(c, items), TP_THREADS, 0, f, n, packs, y,
                     x...);
}

#endif
