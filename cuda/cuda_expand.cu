/* cuda_expand.cu - repeats axes of size 1; backward sums the repetitions (fold.cuh).
 *
 * A thread writes 16 bytes of y with one read of x and one quick division an axis: each element is
 * written once and x comes from cache. Bound by memory. */
#include "cuda/fold.cuh"
#include "cuda/move.cuh"

/* Rows of y, `columns` words each, where they meet rows of x or (one) single words. */
struct plan {
    tp_places rows;
    tp_divisor columns;
    bool one;
};

template <class W> static __device__ inline const W *met(const plan &p, int64_t i, const W *x)
{
    const int64_t row = tp_over(p.columns, i);
    x += tp_place(p.rows, row);
    return p.one ? x : x + i - row * p.columns.d;
}

template <class W>
__global__ void __launch_bounds__(TP_THREADS)
    expand_kernel(plan p, int64_t n, int64_t packs, const W *x, W *y)
{
    constexpr int N = (int)(16 / sizeof(W));
    TP_EACH (i, packs) {
        const int64_t left = p.columns.d - (i * N - tp_over(p.columns, i * N) * p.columns.d);
        const W *from = met(p, i * N, x);
        if (left < N) { /* of several rows */
#pragma unroll 1
            for (int k = 0; k < N; k++) y[i * N + k] = *met(p, i * N + k, x);
            continue;
        }
        tp_pack<W> v;
#pragma unroll
        for (int k = 0; k < N; k++) v.at[k] = from[p.one ? 0 : k];
        tp_store(y + i * N, v);
    }
    TP_EACH (i, n - packs * N) y[packs * N + i] = *met(p, packs * N + i, x);
}

static tp_code expand_fwd(const tp_call *c)
{
    const tp_view *x = &c->x[0], *y = &c->y[0];
    const int64_t size = (int64_t)tp_dtype_size(x->dtype);
    const tp_bcast b = tp__bcast(y, x);
    const int bytes =
        b.one ? (int)size : tp_widest(b.n * size, (uintptr_t)x->data, (uintptr_t)y->data);
    const int64_t elements = bytes / size, n = y->numel / elements;
    const plan p = { tp_places_of(b.rows, elements), tp_by(b.n / elements), b.one };
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
    return tp_fold_sum(c, &c->dy[0], &c->dx[0], tp_in<S>(&c->dy[0]), (const S *)NULL,
                       tp_out<S>(&c->dx[0]), c->work, tp_as_it_is());
}

TP_CUDA_KERNEL_UNTYPED(expand_fwd)
TP_CUDA_KERNEL(expand_bwd)
