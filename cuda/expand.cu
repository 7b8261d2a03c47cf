/* expand.cu - repeats axes of size 1; backward sums the repetitions (fold.cuh).
 *
 * A thread writes 16 bytes of y with one read of x and one fast division per axis: writes each
 * element once and reads x from cache. Bound by memory. */
#include "cuda/kit/fold.cuh"
#include "cuda/kit/move.cuh"

template <class W>
__global__ void __launch_bounds__(TP_THREADS)
    expand_kernel(tp_broadcast p, int64_t n, int64_t packs, const W *x, W *y)
{
    constexpr int N = (int)(16 / sizeof(W));
    TP_EACH (i, packs) {
        const int64_t left = p.n.d - (i * N - tp_over(p.n, i * N) * p.n.d);
        const W *from = x + tp_broadcast_at(p, i * N);
        if (left < N) { /* spans several rows */
#pragma unroll 1
            for (int k = 0; k < N; k++) y[i * N + k] = x[tp_broadcast_at(p, i * N + k)];
            continue;
        }
        tp_pack<W> v;
#pragma unroll
        for (int k = 0; k < N; k++) v.at[k] = from[p.one ? 0 : k];
        tp_store(y + i * N, v);
    }
    TP_EACH (i, n - packs * N) y[packs * N + i] = x[tp_broadcast_at(p, packs * N + i)];
}

static tp_code expand_fwd(const tp_call *c)
{
    const tp_view *x = &c->x[0], *y = &c->y[0];
    const int64_t size = (int64_t)tp_dtype_size(x->dtype);
    const tp_bcast b = tp__bcast(y, x);
    const int bytes =
        b.one ? (int)size : tp_widest(b.n * size, (uintptr_t)x->data, (uintptr_t)y->data);
    const int64_t elements = bytes / size, n = y->numel / elements;
    const tp_broadcast p = tp_broadcast_of(b, elements);
    return tp_with_word(bytes, [&](auto w) {
        typedef decltype(w) W;
        const int64_t N = (int64_t)(16 / sizeof(W)), packs = tp_aligned(y->data) ? n / N : 0;
        return tp_launch(c, expand_kernel<W>, tp_grid(c, packs ? packs : n), TP_THREADS, 0, p, n,
                         packs, tp_in<W>(x), tp_out<W>(y));
    });
}

template <class S> static tp_code expand_bwd(const tp_call *c)
{
    if (!c->dx[0].data) return TP_OK;
    return tp_fold_sum(c, &c->dy[0], &c->dx[0], tp_in<S>(&c->dy[0]), tp_out<S>(&c->dx[0]), c->work,
                       tp_as_it_is());
}

TP_CUDA_KERNEL_UNTYPED(expand_fwd)
TP_CUDA_KERNEL(expand_bwd)
