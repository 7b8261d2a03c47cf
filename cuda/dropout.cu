/* dropout.cu - y = m x and y = residual + m (x + b), where m is 1/(1-p) if the word of the element
 * is at least p 2^32, else 0; rows [R,C]. Masks equal the CPU's; backward redraws them.
 *
 * A thread takes a pack and draws its words four at a time, one Philox block: about 60 operations
 * for four elements, less than half of what a GPU can do while it moves 4 bytes per element (bf16;
 * 8 in f32, and 50% more for the residual). Bound by memory. Backward reads dy once for dx, the
 * gradient of the residual and the sums for the gradient of b. */
#include "cuda/kit/columns.cuh"
#include "cuda/kit/mask.cuh"
#include "cuda/kit/row_param.cuh"

/* Loads elements e .. e + N of x [n], in one move if packed and complete. */
template <class S, int N>
static __device__ inline tp_pack<S, N> load_some(bool packed, const S *x, int64_t e, int64_t n)
{
    tp_pack<S, N> v = {};
    if (packed && e + N <= n) return tp_load_n<S, N>(x + e);
    for (int k = 0; k < N; k++)
        if (e + k < n) v.at[k] = x[e + k];
    return v;
}

template <class S, int N>
static __device__ inline void store_some(bool packed, S *y, int64_t e, int64_t n,
                                         const tp_pack<S, N> &v)
{
    if (packed && e + N <= n) return tp_store(y + e, v);
    for (int k = 0; k < N; k++)
        if (e + k < n) y[e + k] = v.at[k];
}

/* ---- dropout ---- */

template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    drop_kernel(tp_mask m, int64_t n, bool packed, const S *x, S *y)
{
    constexpr int N = (int)(16 / sizeof(S));
    TP_EACH (i, (n + N - 1) / N) {
        tp_pack<S, N> v = load_some<S, N>(packed, x, i * N, n);
        const tp_words<N> w(m, i * N);
        for (int k = 0; k < N; k++) tp_put(&v.at[k], w.drop(m, k, tp_float(v.at[k])));
        store_some(packed, y, i * N, n, v);
    }
}

/* Keeps everything outside training. */
static tp_mask mask_of(const tp_call *c)
{
    return tp_mask_of(c, c->train ? *static_cast<const double *>(c->attr) : 0.0);
}

template <class S> static tp_code drop(const tp_call *c, const S *x, S *y)
{
    const int64_t n = c->x[0].numel, N = (int64_t)(16 / sizeof(S));
    if (!y) return TP_OK;
    return tp_launch(c, drop_kernel<S>, tp_grid(c, (n + N - 1) / N), TP_THREADS, 0, mask_of(c), n,
                     tp_aligned(x, y), x, y);
}

template <class S> static tp_code dropout_fwd(const tp_call *c)
{
    return drop(c, tp_in<S>(&c->x[0]), tp_out<S>(&c->y[0]));
}

template <class S> static tp_code dropout_bwd(const tp_call *c)
{
    return drop(c, tp_in<S>(&c->dy[0]), tp_out<S>(&c->dx[0]));
}

/* ---- residual + dropout(x + b) ---- */

/* v[k] = element (e + k) mod C of b. */
template <int N>
static __device__ inline void take_bias(float v[N], const tp_row_param &b, int64_t e, int64_t C,
                                        bool packed)
{
    int64_t j = b.at ? e - tp_div(e, C) * C : 0;
    if (!b.at || (packed && C % N == 0)) return tp_take<N>(v, b, j);
    for (int k = 0; k < N; k++) {
        tp_take<1>(v + k, b, j);
        if (++j == C) j = 0;
    }
}

template <class S, class R>
__global__ void __launch_bounds__(TP_THREADS)
    drop_add_kernel(tp_mask m, int64_t n, int64_t C, bool packed, const S *x, tp_row_param b,
                    const R *residual, S *y)
{
    constexpr int N = (int)(16 / sizeof(S));
    TP_EACH (i, (n + N - 1) / N) {
        tp_pack<S, N> v = load_some<S, N>(packed, x, i * N, n);
        const tp_pack<R, N> r = load_some<R, N>(packed, residual, i * N, n);
        const tp_words<N> w(m, i * N);
        float bias[N];
        take_bias<N>(bias, b, i * N, C, packed);
        for (int k = 0; k < N; k++)
            tp_put(&v.at[k], tp_float(r.at[k]) + w.drop(m, k, tp_float(v.at[k]) + bias[k]));
        store_some(packed, y, i * N, n, v);
    }
}

static int64_t columns_of(const tp_call *c)
{
    return c->x[0].dim[c->x[0].ndim - 1];
}

template <class S> static tp_code dropout_add_fwd(const tp_call *c)
{
    const int64_t n = c->x[0].numel, N = (int64_t)(16 / sizeof(S));
    const tp_row_param b = tp_row_param_of(c, 1, 0.0f);
    const bool packed = tp_aligned(c->x[0].data, b.at, c->x[2].data, c->y[0].data);
    return tp_with_type(c, c->x[2].dtype, [&](auto r) {
        typedef decltype(r) R;
        return tp_launch(c, drop_add_kernel<S, R>, tp_grid(c, (n + N - 1) / N), TP_THREADS, 0,
                         mask_of(c), n, columns_of(c), packed, tp_in<S>(&c->x[0]), b,
                         tp_in<R>(&c->x[2]), tp_out<S>(&c->y[0]));
    });
}

enum { AT_ONCE = 4 }; /* rows that a thread reads at once */

/* Works in tiles. dx, dr and part, [blocks][C], may be NULL. */
template <class S, class R, int N>
__global__ void __launch_bounds__(TP_THREADS)
    drop_add_grad(tp_mask m, tp_matrix a, const S *dy, S *dx, R *dr, float *part)
{
    TP_EACH_BLOCK (t, tp_tiles(a, N)) {
        const tp_tile<N> tile(a, t);
        float sum[N] = {};
        for (int64_t r = tile.first; r < tile.last; r += AT_ONCE * TP_TILE_GROUPS) {
            tp_pack<S, N> g[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                if (r + i * TP_TILE_GROUPS < tile.last)
                    g[i] = tp_load_n<S, N>(dy + (r + i * TP_TILE_GROUPS) * a.C + tile.j);
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                const int64_t e = (r + i * TP_TILE_GROUPS) * a.C + tile.j;
                if (r + i * TP_TILE_GROUPS >= tile.last) break;
                if (dr) {
                    tp_pack<R, N> copy;
                    for (int k = 0; k < N; k++) tp_put(&copy.at[k], tp_float(g[i].at[k]));
                    tp_store(dr + e, copy);
                }
                const tp_words<N> w(m, e);
                for (int k = 0; k < N; k++) {
                    const float v = w.drop(m, k, tp_float(g[i].at[k]));
                    sum[k] += v;
                    tp_put(&g[i].at[k], v);
                }
                if (dx) tp_store(dx + e, g[i]);
            }
        }
        float *to = part ? part + tile.block * a.C : NULL;
        if (to) tp_join_groups<N>(a, tile, sum, tp_plus(), [=](int64_t i, float v) { to[i] = v; });
    }
}

template <class S, class R, int N>
static tp_code add_grad(const tp_call *c, const tp_matrix &a, float *part)
{
    return tp_launch(c, drop_add_grad<S, R, N>, tp_grid(c, tp_tiles(a, N), 1), TP_THREADS, 0,
                     mask_of(c), a, tp_in<S>(&c->dy[0]), tp_out<S>(&c->dx[0]), tp_out<R>(&c->dx[2]),
                     part);
}

/* c->work: partial sums by block of rows for the gradient of b, [blocks][C]. */
template <class S> static tp_code dropout_add_bwd(const tp_call *c)
{
    constexpr int N = (int)(16 / sizeof(S));
    const tp_matrix a = tp_matrix_of(&c->x[0], columns_of(c));
    const bool packed = a.C % N == 0 && tp_aligned(c->dy[0].data, c->dx[0].data, c->dx[2].data);
    float *part = c->dx[1].data ? static_cast<float *>(c->work) : NULL;
    const tp_code code = tp_with_type(c, c->x[2].dtype, [&](auto r) {
        typedef decltype(r) R;
        return packed ? add_grad<S, R, N>(c, a, part) : add_grad<S, R, 1>(c, a, part);
    });
    if (code != TP_OK || !part) return code;
    return tp_add_parts(c, a.C, tp_row_blocks(a.rows, TP_TILE_ROWS), a.C, part, 1);
}

static size_t dropout_add_work(const tp_call *c)
{
    if (!tp_is_backward(c) || tp_absent(&c->x[1])) return 0;
    const tp_matrix a = tp_matrix_of(&c->x[0], columns_of(c));
    return (size_t)(tp_row_blocks(a.rows, TP_TILE_ROWS) * a.C) * sizeof(float);
}

TP_CUDA_WORK(dropout_add_work)
TP_CUDA_KERNEL(dropout_fwd)
TP_CUDA_KERNEL(dropout_bwd)
TP_CUDA_KERNEL(dropout_add_fwd)
TP_CUDA_KERNEL(dropout_add_bwd)
