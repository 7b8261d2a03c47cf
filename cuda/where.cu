/* where.cu - mask ? a : b, broadcast into a common shape; each gradient flows where its operand was
 * selected, and is summed if the operand is repeated.
 *
 * If no tensor is repeated, a thread takes eight elements. Forward moves 13 bytes per element
 * (f32): both operands are read whole, since the mask changes within memory transactions. Backward
 * reads mask and dy once for both gradients, also 13 bytes. Repeated operands are read from cache.
 * Bound by memory. Forward only moves elements, so words of their size serve all dtypes. */
#include "cuda/kit/fold.cuh"
#include "cuda/kit/operand.cuh"
#include "tensor/geometry/elementwise.h"

enum { N = 8 };

template <class W>
__global__ void __launch_bounds__(TP_THREADS)
    where_kernel(int64_t n, int64_t packs, const uint8_t *mask, const W *a, const W *b, W *y)
{
    TP_EACH (i, packs) {
        const tp_pack<uint8_t, N> m = tp_load_n<uint8_t, N>(mask + i * N);
        const tp_pack<W, N> yes = tp_load_n<W, N>(a + i * N), no = tp_load_n<W, N>(b + i * N);
        tp_pack<W, N> v;
#pragma unroll
        for (int k = 0; k < N; k++) v.at[k] = m.at[k] ? yes.at[k] : no.at[k];
        tp_store(y + i * N, v);
    }
    TP_EACH (i, n - packs * N) {
        const int64_t e = packs * N + i;
        y[e] = mask[e] ? a[e] : b[e];
    }
}

/* da and db may be NULL. */
template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    where_grad(int64_t n, int64_t packs, const uint8_t *mask, const S *dy, S *da, S *db)
{
    S zero;
    tp_put(&zero, 0.0f);
    TP_EACH (i, packs) {
        const tp_pack<uint8_t, N> m = tp_load_n<uint8_t, N>(mask + i * N);
        const tp_pack<S, N> g = tp_load_n<S, N>(dy + i * N);
        tp_pack<S, N> a, b;
#pragma unroll
        for (int k = 0; k < N; k++) {
            a.at[k] = m.at[k] ? g.at[k] : zero;
            b.at[k] = m.at[k] ? zero : g.at[k];
        }
        if (da) tp_store(da + i * N, a);
        if (db) tp_store(db + i * N, b);
    }
    TP_EACH (i, n - packs * N) {
        const int64_t e = packs * N + i;
        if (da) da[e] = mask[e] ? dy[e] : zero;
        if (db) db[e] = mask[e] ? zero : dy[e];
    }
}

static int64_t blocks_of(int64_t n, int64_t packs)
{
    return packs > n - packs * N ? packs : n - packs * N;
}

/* ---- forward ---- */

struct chosen {
    template <class W> __device__ W operator()(uint8_t mask, W a, W b) const
    {
        return mask ? a : b;
    }
};

static tp_side<uint8_t, uint8_t> mask_of(const tp_call *c)
{
    return tp_side_of<uint8_t, uint8_t>(&c->y[0], &c->x[0], 0);
}

template <class W> static tp_side<W, W> side(const tp_call *c, int i)
{
    W number;
    tp_view v = {};
    v.data = &number;
    v.dtype = c->y[0].dtype;
    tp_st(&v, 0, static_cast<const tp_binary_attr *>(c->attr)->number);
    return tp_side_of<W, W>(&c->y[0], &c->x[i], number);
}

static bool all_whole(const tp_call *c)
{
    const int64_t n = c->y[0].numel;
    return c->x[0].numel == n && c->x[1].numel == n && c->x[2].numel == n;
}

static tp_code where_fwd(const tp_call *c)
{
    return tp_with_element((int)tp_dtype_size(c->y[0].dtype), [&](auto w) {
        typedef decltype(w) W;
        const int64_t n = c->y[0].numel;
        W *y = tp_out<W>(&c->y[0]);
        if (!all_whole(c))
            return tp_zip(c, n, chosen(), y, mask_of(c), side<W>(c, 1), side<W>(c, 2));
        const uint8_t *mask = tp_in<uint8_t>(&c->x[0]);
        const W *a = tp_in<W>(&c->x[1]), *b = tp_in<W>(&c->x[2]);
        const int64_t packs = tp_aligned(mask, a, b, y) ? n / N : 0;
        return tp_launch(c, where_kernel<W>, tp_grid(c, blocks_of(n, packs)), TP_THREADS, 0, n,
                         packs, mask, a, b, y);
    });
}

/* ---- backward ---- */

struct flowing {
    bool to_a;
    __device__ float operator()(uint8_t mask, float dy) const
    {
        return (mask != 0) == to_a ? dy : 0.0f;
    }
};

template <class S> struct terms {
    flowing f;
    tp_side<uint8_t, uint8_t> mask;
    tp_side<float, S> dy;
    __device__ float operator()(int64_t e) const { return f(mask(e), dy(e)); }
};

/* The gradient of input i, 1 or 2. */
template <class S> static tp_code gradient(const tp_call *c, int i)
{
    const tp_view *dx = &c->dx[i];
    const flowing f = { i == 1 };
    const tp_side<float, S> dy = tp_side_of<float, S>(&c->y[0], &c->dy[0], 0.0f);
    if (!dx->data) return TP_OK;
    if (dx->numel == c->y[0].numel) return tp_zip(c, dx->numel, f, tp_out<S>(dx), mask_of(c), dy);
    return tp_fold_terms(c, &c->y[0], dx, terms<S>{ f, mask_of(c), dy }, tp_out<S>(dx), c->work,
                         tp_as_it_is());
}

template <class S> static tp_code where_bwd(const tp_call *c)
{
    if (!all_whole(c)) {
        const tp_code code = gradient<S>(c, 1);
        return code == TP_OK ? gradient<S>(c, 2) : code;
    }
    const uint8_t *mask = tp_in<uint8_t>(&c->x[0]);
    const S *dy = tp_in<S>(&c->dy[0]);
    S *da = tp_out<S>(&c->dx[1]), *db = tp_out<S>(&c->dx[2]);
    const int64_t n = c->dy[0].numel, packs = tp_aligned(mask, dy, da, db) ? n / N : 0;
    return tp_launch(c, where_grad<S>, tp_grid(c, blocks_of(n, packs)), TP_THREADS, 0, n, packs,
                     mask, dy, da, db);
}

TP_CUDA_KERNEL_UNTYPED(where_fwd)
TP_CUDA_KERNEL(where_bwd)
