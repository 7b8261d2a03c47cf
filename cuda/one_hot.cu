/* one_hot.cu - y[...,j] = 1 if j is the id, else 0.
 *
 * A thread writes 16 bytes and reads their ids from cache: each element is written once, bound by
 * memory. The row of an id out of range is NaN. */
#include "cuda/kit/move.cuh"

template <class I>
static __device__ inline float hot(const tp_divisor &columns, const I *ids, int64_t i)
{
    const int64_t row = tp_over(columns, i), id = ids[row];
    return id < 0 || id >= columns.d ? NAN : id == i - row * columns.d ? 1.0f : 0.0f;
}

template <class S, class I>
__global__ void __launch_bounds__(TP_THREADS)
    one_hot_kernel(tp_divisor columns, int64_t n, int64_t packs, const I *ids, S *y)
{
    constexpr int N = (int)(16 / sizeof(S));
    TP_EACH (i, packs) {
        tp_pack<S> v;
#pragma unroll
        for (int k = 0; k < N; k++) tp_put(&v.at[k], hot(columns, ids, i * N + k));
        tp_store(y + i * N, v);
    }
    TP_EACH (i, n - packs * N) tp_put(y + packs * N + i, hot(columns, ids, packs * N + i));
}

template <class S, class I> static tp_code one_hot(const tp_call *c, const I *ids)
{
    const tp_view *y = &c->y[0];
    const int64_t n = y->numel, N = (int64_t)(16 / sizeof(S));
    const int64_t packs = tp_aligned(y->data) ? n / N : 0;
    return tp_launch(c, one_hot_kernel<S, I>, tp_grid(c, packs ? packs : n), TP_THREADS, 0,
                     tp_by(y->dim[y->ndim - 1]), n, packs, ids, tp_out<S>(y));
}

template <class S> static tp_code one_hot_fwd(const tp_call *c)
{
    return c->x[0].dtype == TP_I32 ? one_hot<S>(c, tp_in<int32_t>(&c->x[0]))
                                   : one_hot<S>(c, tp_in<int64_t>(&c->x[0]));
}

TP_CUDA_KERNEL(one_hot_fwd)
