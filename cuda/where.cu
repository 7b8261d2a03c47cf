/* where.cu - mask ? a : b; each gradient flows where its operand was selected.
 *
 * A thread takes eight elements. Forward moves 13 bytes per element (f32): both operands are read
 * whole, since the mask changes within the stretches that memory delivers. Backward reads mask and
 * dy once for both gradients, also 13 bytes. Bound by memory. */
#include "cuda/kit/kernel.cuh"

enum { N = 8 };

template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    where_kernel(int64_t n, int64_t packs, const uint8_t *mask, const S *a, const S *b, S *y)
{
    TP_EACH (i, packs) {
        const tp_pack<uint8_t, N> m = tp_load_n<uint8_t, N>(mask + i * N);
        const tp_pack<S, N> yes = tp_load_n<S, N>(a + i * N), no = tp_load_n<S, N>(b + i * N);
        tp_pack<S, N> v;
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

template <class S> static tp_code where_fwd(const tp_call *c)
{
    const uint8_t *mask = tp_in<uint8_t>(&c->x[0]);
    const S *a = tp_in<S>(&c->x[1]), *b = tp_in<S>(&c->x[2]);
    S *y = tp_out<S>(&c->y[0]);
    const int64_t n = c->y[0].numel, packs = tp_aligned(mask, a, b, y) ? n / N : 0;
    return tp_launch(c, where_kernel<S>, tp_grid(c, blocks_of(n, packs)), TP_THREADS, 0, n, packs,
                     mask, a, b, y);
}

template <class S> static tp_code where_bwd(const tp_call *c)
{
    const uint8_t *mask = tp_in<uint8_t>(&c->x[0]);
    const S *dy = tp_in<S>(&c->dy[0]);
    S *da = tp_out<S>(&c->dx[1]), *db = tp_out<S>(&c->dx[2]);
    const int64_t n = c->dy[0].numel, packs = tp_aligned(mask, dy, da, db) ? n / N : 0;
    return tp_launch(c, where_grad<S>, tp_grid(c, blocks_of(n, packs)), TP_THREADS, 0, n, packs,
                     mask, dy, da, db);
}

TP_CUDA_KERNEL(where_fwd)
TP_CUDA_KERNEL(where_bwd)
