/* drop_path.cu - y[s] = m[s] x[s] for the samples s along axis 0, where m[s] is 1/(1-p) if word s
 * is at least p 2^32, else 0. Backward is the same function of dy.
 *
 * A thread takes a pack of one sample and draws its word, about 100 operations per 16 bytes: still
 * bound by memory. Moves 8 bytes per element (f32); dropped samples are not read. */
#include "cuda/kit/mask.cuh"

template <class S, int N>
__global__ void __launch_bounds__(TP_THREADS)
    drop_path_kernel(tp_mask m, int64_t n, int64_t size, const S *x, S *y)
{
    TP_EACH (i, n / N) {
        tp_pack<S, N> v = {};
        if (tp_words<1>(m, tp_div(i * N, size)).keeps(m, 0)) {
            v = tp_load_n<S, N>(x + i * N);
            for (int k = 0; k < N; k++) tp_put(&v.at[k], tp_float(v.at[k]) * m.scale);
        }
        tp_store(y + i * N, v);
    }
}

template <class S> static tp_code drop_samples(const tp_call *c, const S *x, S *y)
{
    constexpr int N = (int)(16 / sizeof(S));
    const tp_view *v = &c->x[0];
    if (!y || v->numel == 0) return TP_OK;
    const tp_mask m = tp_mask_of(c, *static_cast<const double *>(c->attr));
    const int64_t n = v->numel, size = n / v->dim[0];
    if (size % N == 0 && tp_aligned(x, y))
        return tp_launch(c, drop_path_kernel<S, N>, tp_grid(c, n / N), TP_THREADS, 0, m, n, size, x,
                         y);
    return tp_launch(c, drop_path_kernel<S, 1>, tp_grid(c, n), TP_THREADS, 0, m, n, size, x, y);
}

template <class S> static tp_code drop_path_fwd(const tp_call *c)
{
    return drop_samples(c, tp_in<S>(&c->x[0]), tp_out<S>(&c->y[0]));
}

template <class S> static tp_code drop_path_bwd(const tp_call *c)
{
    return drop_samples(c, tp_in<S>(&c->dy[0]), tp_out<S>(&c->dx[0]));
}

TP_CUDA_KERNEL(drop_path_fwd)
TP_CUDA_KERNEL(drop_path_bwd)
