/* cuda_chunk_project.cu - the dynamic projection of chunks of l tokens, and its gradient.
 *
 *     y_j = sum_s p_sj x_s     dx_s = sum_j p_sj dy_j     dz_sj = p_sj (g_sj - sum_s p_sj g_sj)
 *
 * for each head, p the softmax of the scores z over the tokens of a chunk, g_sj = <x_s, dy_j>.
 *
 * p and g are floats in c->work, each element by a thread, each column of scores by a block. Bytes
 * an element of x in bf16: 4 forward at rank 1 and few columns, 6 backward; bound by memory. */
#include "cuda/kernel.cuh"
#include "tensor/chunk_project.h"

typedef struct chunk_geometry {
    int64_t chunks, l, r, n, H, D, C; /* x [chunks,l,C], C = H D; z [chunks,l,n], n = H r */
} chunk_geometry;

static chunk_geometry geometry_of(const tp_call *c)
{
    const tp__chunk_attr *a = static_cast<const tp__chunk_attr *>(c->attr);
    const int64_t C = c->x[0].dim[2];
    chunk_geometry g = { c->x[0].dim[0] * (c->x[0].dim[1] / a->chunk),
                         a->chunk,
                         a->rank,
                         a->heads * a->rank,
                         a->heads,
                         C / a->heads,
                         C };
    return g;
}

/* ---- any size: a thread an element ---- */

/* A block takes one column of the scores of a chunk. */
template <class S>
__global__ void __launch_bounds__(TP_THREADS) weights_kernel(chunk_geometry g, const S *z, float *p)
{
    TP_EACH_BLOCK (column, g.chunks * g.n) {
        const int64_t t = tp_div(column, g.n), first = t * g.l * g.n + column - t * g.n;
        float most = -INFINITY, sum = 0.0f;
        for (int64_t s = threadIdx.x; s < g.l; s += blockDim.x)
            most = tp_max_of::join(most, tp_float(z[first + s * g.n]));
        most = tp_block<tp_max_of>(most);
        for (int64_t s = threadIdx.x; s < g.l; s += blockDim.x) {
            const float e = expf(tp_float(z[first + s * g.n]) - most);
            p[first + s * g.n] = e;
            sum += e;
        }
        const float k = 1.0f / tp_block<tp_sum_of>(sum);
        for (int64_t s = threadIdx.x; s < g.l; s += blockDim.x) p[first + s * g.n] *= k;
    }
}

template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    sums_kernel(chunk_geometry g, const S *x, const float *p, S *y)
{
    TP_EACH (e, g.chunks * g.r * g.C) {
        const int64_t row = tp_div(e, g.C), col = e - row * g.C, t = tp_div(row, g.r);
        const float *w = p + t * g.l * g.n + tp_div(col, g.D) * g.r + row - t * g.r;
        const S *from = x + t * g.l * g.C + col;
        float sum = 0.0f;
        for (int64_t s = 0; s < g.l; s++) sum += w[s * g.n] * tp_float(from[s * g.C]);
        tp_put(y + e, sum);
    }
}

template <class S, class X>
__global__ void __launch_bounds__(TP_THREADS)
    spread_kernel(chunk_geometry g, const float *p, const S *dy, X *dx)
{
    TP_EACH (e, g.chunks * g.l * g.C) {
        const int64_t row = tp_div(e, g.C), col = e - row * g.C;
        const float *w = p + row * g.n + tp_div(col, g.D) * g.r;
        const S *from = dy + tp_div(row, g.l) * g.r * g.C + col;
        float sum = 0.0f;
        for (int64_t j = 0; j < g.r; j++) sum += w[j] * tp_float(from[j * g.C]);
        tp_put(dx + e, sum);
    }
}

/* A warp takes one dot product: out [chunks,l,n]. */
template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    dots_kernel(chunk_geometry g, const S *x, const S *dy, float *out)
{
    const int64_t warps = (int64_t)gridDim.x * blockDim.x / 32;
    int64_t e = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    for (; e < g.chunks * g.l * g.n; e += warps) {
        const int64_t row = tp_div(e, g.n), k = e - row * g.n, i = tp_div(k, g.r);
        const S *a = x + row * g.C + i * g.D;
        const S *b = dy + (tp_div(row, g.l) * g.r + k - i * g.r) * g.C + i * g.D;
        float sum = 0.0f;
        for (int64_t d = threadIdx.x % 32; d < g.D; d += 32) sum += tp_float(a[d]) * tp_float(b[d]);
        sum = tp_warp<tp_sum_of>(sum);
        if (threadIdx.x % 32 == 0) out[e] = sum;
    }
}

template <class Z>
__global__ void __launch_bounds__(TP_THREADS)
    scores_pull(chunk_geometry g, const float *p, const float *dots, Z *dz)
{
    TP_EACH_BLOCK (column, g.chunks * g.n) {
        const int64_t t = tp_div(column, g.n), first = t * g.l * g.n + column - t * g.n;
        float sum = 0.0f;
        for (int64_t s = threadIdx.x; s < g.l; s += blockDim.x)
            sum += p[first + s * g.n] * dots[first + s * g.n];
        sum = tp_block<tp_sum_of>(sum);
        for (int64_t s = threadIdx.x; s < g.l; s += blockDim.x)
            tp_put(dz + first + s * g.n, p[first + s * g.n] * (dots[first + s * g.n] - sum));
    }
}

/* Threads for a column of l scores. */
static int column_threads(int64_t l)
{
    return l <= 64 ? 32 : TP_THREADS;
}

template <class S> static tp_code weights(const tp_call *c, const chunk_geometry &g)
{
    return tp_launch(c, weights_kernel<S>, tp_grid(c, g.chunks * g.n, 1), column_threads(g.l), 0, g,
                     tp_in<S>(&c->x[1]), static_cast<float *>(c->work));
}

template <class S> static tp_code forward_any(const tp_call *c, const chunk_geometry &g)
{
    const tp_code code = weights<S>(c, g);
    if (code != TP_OK) return code;
    return tp_launch(c, sums_kernel<S>, tp_grid(c, c->y[0].numel), TP_THREADS, 0, g,
                     tp_in<S>(&c->x[0]), static_cast<const float *>(c->work), tp_out<S>(&c->y[0]));
}

template <class S, class X, class Z>
static tp_code backward_any(const tp_call *c, const chunk_geometry &g)
{
    const S *dy = tp_in<S>(&c->dy[0]);
    const int64_t nz = c->x[1].numel;
    float *p = static_cast<float *>(c->work), *dots = p + nz;
    tp_code code = weights<S>(c, g);
    if (code == TP_OK && c->dx[0].data)
        code = tp_launch(c, spread_kernel<S, X>, tp_grid(c, c->x[0].numel), TP_THREADS, 0, g, p, dy,
                         tp_out<X>(&c->dx[0]));
    if (code != TP_OK || !c->dx[1].data) return code;
    code = tp_launch(c, dots_kernel<S>, tp_grid(c, nz, TP_THREADS / 32), TP_THREADS, 0, g,
                     tp_in<S>(&c->x[0]), dy, dots);
    if (code != TP_OK) return code;
    return tp_launch(c, scores_pull<Z>, tp_grid(c, g.chunks * g.n, 1), column_threads(g.l), 0, g, p,
                     dots, tp_out<Z>(&c->dx[1]));
}

template <class S> static tp_code chunk_project_fwd(const tp_call *c)
{
    return forward_any<S>(c, geometry_of(c));
}

template <class S> static tp_code chunk_project_bwd(const tp_call *c)
{
    const chunk_geometry g = geometry_of(c);
    return tp_with_type(c, c->dx[0].dtype, [&](auto x) {
        return tp_with_type(c, c->dx[1].dtype, [&](auto z) {
            return backward_any<S, decltype(x), decltype(z)>(c, g);
        });
    });
}

TP_CUDA_KERNEL(chunk_project_fwd)
TP_CUDA_KERNEL(chunk_project_bwd)
