/* pool2d.cu - max and average pooling of channels-last images.
 *
 * A thread computes a pack of channels of an output or, in backward, of an input, which gathers
 * from the outputs whose windows contain it. With adjacent windows average pooling moves 4 bytes
 * per input and 4 per output in f32, forward and backward (half in bf16), and max pooling 4 more
 * per output; elements shared by windows come from cache. Bound by memory. */
#include "cuda/kit/kernel.cuh"
#include "tensor/geometry/pool.h"

/* A position of images of rows x cols, and the pack of its channels. */
struct pool_place {
    int64_t image, row, col, c;
    __device__ pool_place(int64_t e, int64_t packs, int64_t rows, int64_t cols)
    {
        const int64_t at = tp_div(e, packs), line = tp_div(at, cols);
        c = e - at * packs;
        col = at - line * cols;
        image = tp_div(line, rows);
        row = line - image * rows;
    }
};

/* MAX: also stores the maximum's position. */
template <bool MAX, class S, int N>
__global__ void __launch_bounds__(TP_THREADS, 2)
    pool_kernel(tp__pool g, const S *x, S *y, int32_t *at)
{
    const int64_t packs = g.channels / N, W = g.axis[1].in;
    TP_EACH (e, g.batch * g.axis[0].out * g.axis[1].out * packs) {
        const pool_place o(e, packs, g.axis[0].out, g.axis[1].out);
        const tp__range h = tp__pool_window(&g.axis[0], o.row);
        const tp__range w = tp__pool_window(&g.axis[1], o.col);
        const S *image = x + o.image * g.axis[0].in * W * g.channels + o.c * N;
        tp_pack<int32_t, N> found;
        tp_pack<S, N> result;
        float v[N];
        for (int k = 0; k < N; k++) {
            v[k] = MAX ? -INFINITY : 0.0f;
            found.at[k] = (int32_t)(h.first * W + w.first);
        }
        for (int64_t i = h.first; i < h.end; i++)
            for (int64_t j = w.first; j < w.end; j++) {
                const tp_pack<S, N> p = tp_load_n<S, N>(image + (i * W + j) * g.channels);
                for (int k = 0; k < N; k++) {
                    const float u = tp_float(p.at[k]);
                    if (!MAX) v[k] += u;
                    if (MAX && (u > v[k] || (u != u && v[k] == v[k]))) {
                        v[k] = u;
                        found.at[k] = (int32_t)(i * W + j);
                    }
                }
            }
        const int64_t seen = tp__pool_count(&g, 0, o.row) * tp__pool_count(&g, 1, o.col);
        const float share = MAX ? 1.0f : 1.0f / (float)seen;
        for (int k = 0; k < N; k++) tp_put(&result.at[k], v[k] * share);
        tp_store(y + e * N, result);
        if (MAX) tp_store(at + e * N, found);
    }
}

template <bool MAX, class S, int N>
__global__ void __launch_bounds__(TP_THREADS, 2)
    pool_grad(tp__pool g, const S *dy, const int32_t *at, S *dx)
{
    const int64_t packs = g.channels / N;
    TP_EACH (e, g.batch * g.axis[0].in * g.axis[1].in * packs) {
        const pool_place i(e, packs, g.axis[0].in, g.axis[1].in);
        const tp__range h = tp__pool_seen(&g.axis[0], i.row);
        const tp__range w = tp__pool_seen(&g.axis[1], i.col);
        const int32_t here = (int32_t)(i.row * g.axis[1].in + i.col);
        const int64_t image = i.image * g.axis[0].out * g.axis[1].out;
        tp_pack<S, N> result;
        float v[N] = {};
        for (int64_t o = h.first; o < h.end; o++) {
            const int64_t tall = MAX ? 0 : tp__pool_count(&g, 0, o);
            for (int64_t p = w.first; p < w.end; p++) {
                const int64_t from = ((image + o * g.axis[1].out + p) * packs + i.c) * N;
                const tp_pack<S, N> d = tp_load_n<S, N>(dy + from);
                if (MAX) {
                    const tp_pack<int32_t, N> found = tp_load_n<int32_t, N>(at + from);
                    for (int k = 0; k < N; k++)
                        v[k] += found.at[k] == here ? tp_float(d.at[k]) : 0.0f;
                } else {
                    const float share = 1.0f / (float)(tall * tp__pool_count(&g, 1, p));
                    for (int k = 0; k < N; k++) v[k] += share * tp_float(d.at[k]);
                }
            }
        }
        for (int k = 0; k < N; k++) tp_put(&result.at[k], v[k]);
        tp_store(dx + e * N, result);
    }
}

static tp__pool pool_of(const tp_call *c, const tp_view *x)
{
    return tp__pool_of(static_cast<const tp__pool_attr *>(c->attr), x);
}

template <bool MAX, class S, int N> static tp_code forward(const tp_call *c, int32_t *at)
{
    const int64_t n = c->y[0].numel / N;
    return tp_launch(c, pool_kernel<MAX, S, N>, tp_grid(c, n), TP_THREADS, 0, pool_of(c, &c->x[0]),
                     tp_in<S>(&c->x[0]), tp_out<S>(&c->y[0]), at);
}

template <bool MAX, class S, int N> static tp_code backward(const tp_call *c, const int32_t *at)
{
    const int64_t n = c->dx[0].numel / N;
    return tp_launch(c, pool_grad<MAX, S, N>, tp_grid(c, n), TP_THREADS, 0, pool_of(c, &c->dx[0]),
                     tp_in<S>(&c->dy[0]), at, tp_out<S>(&c->dx[0]));
}

template <bool MAX, class S> static tp_code pool_fwd(const tp_call *c)
{
    constexpr int N = (int)(16 / sizeof(S));
    int32_t *at = MAX ? tp_out<int32_t>(&c->y[1]) : NULL;
    const bool packs = c->x[0].dim[3] % N == 0 && tp_aligned(c->x[0].data, c->y[0].data, at);
    return packs ? forward<MAX, S, N>(c, at) : forward<MAX, S, 1>(c, at);
}

template <bool MAX, class S> static tp_code pool_bwd(const tp_call *c)
{
    constexpr int N = (int)(16 / sizeof(S));
    const int32_t *at = MAX ? tp_in<int32_t>(&c->y[1]) : NULL;
    const bool packs = c->dx[0].dim[3] % N == 0 && tp_aligned(c->dx[0].data, c->dy[0].data, at);
    if (!c->dx[0].data) return TP_OK;
    return packs ? backward<MAX, S, N>(c, at) : backward<MAX, S, 1>(c, at);
}

template <class S> static tp_code max_pool2d_fwd(const tp_call *c)
{
    return pool_fwd<true, S>(c);
}

template <class S> static tp_code max_pool2d_bwd(const tp_call *c)
{
    return pool_bwd<true, S>(c);
}

template <class S> static tp_code avg_pool2d_fwd(const tp_call *c)
{
    return pool_fwd<false, S>(c);
}

template <class S> static tp_code avg_pool2d_bwd(const tp_call *c)
{
    return pool_bwd<false, S>(c);
}

TP_CUDA_KERNEL(max_pool2d_fwd)
TP_CUDA_KERNEL(max_pool2d_bwd)
TP_CUDA_KERNEL(avg_pool2d_fwd)
TP_CUDA_KERNEL(avg_pool2d_bwd)
