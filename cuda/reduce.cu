/* reduce.cu - sum, mean, max, argmax and logsumexp over one axis or all.
 *
 * Sums are folds (fold.cuh). The others see x as [outer][dim][inner] and write [outer][inner]: with
 * inner 1 a block reduces a row, else a thread reduces a column. NaN wins over every number; of equal
 * numbers the first wins. Reads x once, twice in logsumexp; bound by memory. */
#include <tapegrad/ops.h>

#include "cuda/kit/fold.cuh"
#include "tensor/geometry/shape_ops.h"
#include "tensor/shape.h"

static int axis_of(const tp_call *c)
{
    return static_cast<const tp_axis_attr *>(c->attr)->axis;
}

/* ---- sum and mean ---- */

struct divided {
    float n;
    __device__ float operator()(float sum, int64_t) const { return sum / n; }
};

static float terms(const tp_call *c)
{
    const int64_t results = c->y[0].numel;
    return (float)(results ? c->x[0].numel / results : 1);
}

template <class S, class F> static tp_code fold(const tp_call *c, F finish)
{
    const tp_view b = tp__reduced(&c->x[0], axis_of(c));
    return tp_fold_sum(c, &c->x[0], &b, tp_in<S>(&c->x[0]), (const S *)NULL,
                       tp_out<float>(&c->y[0]), c->work, finish);
}

template <class S> static tp_code sum_fwd(const tp_call *c)
{
    return fold<S>(c, tp_as_it_is());
}

template <class S> static tp_code mean_fwd(const tp_call *c)
{
    const divided finish = { terms(c) };
    return fold<S>(c, finish);
}

template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    spread_kernel(tp_broadcast p, int64_t n, float k, const float *dy, S *dx)
{
    TP_EACH (e, n) tp_put(dx + e, k * dy[tp_broadcast_at(p, e)]);
}

/* dx = k dy, repeated along the axis. */
template <class S> static tp_code spread(const tp_call *c, float k)
{
    const tp_view b = tp__reduced(&c->x[0], axis_of(c));
    const int64_t n = c->x[0].numel;
    if (!c->dx[0].data) return TP_OK;
    return tp_launch(c, spread_kernel<S>, tp_grid(c, n), TP_THREADS, 0,
                     tp_broadcast_of(tp__bcast(&c->x[0], &b), 1), n, k, tp_in<float>(&c->dy[0]),
                     tp_out<S>(&c->dx[0]));
}

template <class S> static tp_code sum_bwd(const tp_call *c)
{
    return spread<S>(c, 1.0f);
}
template <class S> static tp_code mean_bwd(const tp_call *c)
{
    return spread<S>(c, 1.0f / terms(c));
}

/* ---- max and argmax ---- */

typedef struct sizes {
    int64_t outer, dim, inner;
} sizes;

static sizes sizes_of(const tp_call *c)
{
    const tp_view *x = &c->x[0];
    sizes s = { 1, x->numel, 1 };
    if (axis_of(c) != TP_ALL)
        tp__axis_split(x, tp__axis(x->ndim, axis_of(c)), &s.outer, &s.dim, &s.inner);
    return s;
}

/* A number and its position. */
struct found {
    float v;
    int64_t at;
};

/* NaN first, then the larger, then the earlier. */
static __device__ inline bool beats(found a, found b)
{
    const bool na = a.v != a.v, nb = b.v != b.v;
    if (na != nb) return na;
    if (!na && a.v != b.v) return a.v > b.v;
    return a.at < b.at;
}

static __device__ inline found better(found a, found b)
{
    return beats(a, b) ? a : b;
}

static __device__ inline found block_best(found f)
{
    TP_SHARED(found, part, [32]);
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    for (int d = 16; d > 0; d >>= 1) {
        const found other = { __shfl_xor_sync(0xffffffffu, f.v, d),
                              __shfl_xor_sync(0xffffffffu, f.at, d) };
        f = better(f, other);
    }
    if (lane == 0) part[threadIdx.x / 32] = f;
    __syncthreads();
    for (int w = 0; w < warps; w++) f = better(f, part[w]);
    __syncthreads();
    return f;
}

/* y may be NULL: only indices. Thread t reads every blockDim-th element of its row. */
template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    best_of_row(int64_t rows, int64_t dim, const S *x, S *y, int64_t *at)
{
    TP_EACH_BLOCK (r, rows) {
        const S *row = x + r * dim;
        found f = { tp_float(row[0]), 0 };
        for (int64_t i = threadIdx.x; i < dim; i += blockDim.x) {
            const found now = { tp_float(row[i]), i };
            f = better(f, now);
        }
        f = block_best(f);
        if (threadIdx.x == 0) {
            at[r] = f.at;
            if (y) y[r] = row[f.at];
        }
    }
}

template <class S>
__global__ void __launch_bounds__(TP_THREADS) best_of_column(sizes s, const S *x, S *y, int64_t *at)
{
    TP_EACH (t, s.outer * s.inner) {
        const int64_t o = tp_div(t, s.inner);
        const S *column = x + o * s.dim * s.inner + t - o * s.inner;
        found f = { tp_float(column[0]), 0 };
        for (int64_t d = 1; d < s.dim; d++) {
            const found now = { tp_float(column[d * s.inner]), d };
            f = better(f, now);
        }
        at[t] = f.at;
        if (y) y[t] = column[f.at * s.inner];
    }
}

template <class S> static tp_code find(const tp_call *c, S *y, int64_t *at)
{
    const sizes s = sizes_of(c);
    const S *x = tp_in<S>(&c->x[0]);
    if (s.inner == 1)
        return tp_launch(c, best_of_row<S>, tp_grid(c, s.outer, 1), TP_THREADS, 0, s.outer, s.dim,
                         x, y, at);
    return tp_launch(c, best_of_column<S>, tp_grid(c, s.outer * s.inner), TP_THREADS, 0, s, x, y,
                     at);
}

template <class S> static tp_code max_fwd(const tp_call *c)
{
    return find(c, tp_out<S>(&c->y[0]), tp_out<int64_t>(&c->y[1]));
}
template <class S> static tp_code argmax_fwd(const tp_call *c)
{
    return find(c, (S *)NULL, tp_out<int64_t>(&c->y[0]));
}

template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    max_grad(sizes s, const int64_t *at, const S *dy, S *dx)
{
    TP_EACH (e, s.outer * s.dim * s.inner) {
        const int64_t row = tp_div(e, s.inner), o = tp_div(row, s.dim), d = row - o * s.dim;
        const int64_t i = o * s.inner + e - row * s.inner;
        tp_put(dx + e, at[i] == d ? tp_float(dy[i]) : 0.0f);
    }
}

template <class S> static tp_code max_bwd(const tp_call *c)
{
    if (!c->dx[0].data) return TP_OK;
    return tp_launch(c, max_grad<S>, tp_grid(c, c->dx[0].numel), TP_THREADS, 0, sizes_of(c),
                     tp_in<int64_t>(&c->y[1]), tp_in<S>(&c->dy[0]), tp_out<S>(&c->dx[0]));
}

/* ---- logsumexp: log sum e^(x - m) + m with m the largest x, or 0 if that is infinite ---- */

static __device__ inline float shift(float most)
{
    return most - most == 0.0f ? most : 0.0f;
}

template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    logsumexp_row(int64_t rows, int64_t dim, const S *x, float *y)
{
    TP_EACH_BLOCK (r, rows) {
        const S *row = x + r * dim;
        float most = -INFINITY, sum = 0.0f;
        for (int64_t i = threadIdx.x; i < dim; i += blockDim.x)
            most = tp_max_of::join(most, tp_float(row[i]));
        const float m = shift(tp_block<tp_max_of>(most));
        for (int64_t i = threadIdx.x; i < dim; i += blockDim.x) sum += expf(tp_float(row[i]) - m);
        sum = tp_block<tp_sum_of>(sum);
        if (threadIdx.x == 0) y[r] = m + logf(sum);
    }
}

template <class S>
__global__ void __launch_bounds__(TP_THREADS) logsumexp_column(sizes s, const S *x, float *y)
{
    TP_EACH (t, s.outer * s.inner) {
        const int64_t o = tp_div(t, s.inner);
        const S *column = x + o * s.dim * s.inner + t - o * s.inner;
        float most = -INFINITY, sum = 0.0f;
        for (int64_t d = 0; d < s.dim; d++)
            most = tp_max_of::join(most, tp_float(column[d * s.inner]));
        const float m = shift(most);
        for (int64_t d = 0; d < s.dim; d++) sum += expf(tp_float(column[d * s.inner]) - m);
        y[t] = m + logf(sum);
    }
}

template <class S> static tp_code logsumexp_fwd(const tp_call *c)
{
    const sizes s = sizes_of(c);
    const S *x = tp_in<S>(&c->x[0]);
    float *y = tp_out<float>(&c->y[0]);
    if (s.inner == 1)
        return tp_launch(c, logsumexp_row<S>, tp_grid(c, s.outer, 1), TP_THREADS, 0, s.outer, s.dim,
                         x, y);
    return tp_launch(c, logsumexp_column<S>, tp_grid(c, s.outer * s.inner), TP_THREADS, 0, s, x, y);
}

/* dx = dy e^(x - y); where y is -infinity so is every x, and the gradient is 0. */
template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    logsumexp_grad(tp_broadcast p, int64_t n, const S *x, const float *y, const float *dy, S *dx)
{
    TP_EACH (e, n) {
        const int64_t i = tp_broadcast_at(p, e);
        const float m = y[i] == -INFINITY ? 0.0f : y[i];
        tp_put(dx + e, dy[i] * expf(tp_float(x[e]) - m));
    }
}

template <class S> static tp_code logsumexp_bwd(const tp_call *c)
{
    const tp_view b = tp__reduced(&c->x[0], axis_of(c));
    const int64_t n = c->x[0].numel;
    if (!c->dx[0].data) return TP_OK;
    return tp_launch(c, logsumexp_grad<S>, tp_grid(c, n), TP_THREADS, 0,
                     tp_broadcast_of(tp__bcast(&c->x[0], &b), 1), n, tp_in<S>(&c->x[0]),
                     tp_in<float>(&c->y[0]), tp_in<float>(&c->dy[0]), tp_out<S>(&c->dx[0]));
}

TP_CUDA_KERNEL(sum_fwd)
TP_CUDA_KERNEL(sum_bwd)
TP_CUDA_KERNEL(mean_fwd)
TP_CUDA_KERNEL(mean_bwd)
TP_CUDA_KERNEL(max_fwd)
TP_CUDA_KERNEL(max_bwd)
TP_CUDA_KERNEL(argmax_fwd)
TP_CUDA_KERNEL(logsumexp_fwd)
TP_CUDA_KERNEL(logsumexp_bwd)
