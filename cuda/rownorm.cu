/* rownorm.cu - layer norm and RMS norm: normalises each row of X [rows,n] by its statistics;
 * formulas: cpu/rownorm.c.
 *
 * A row is held in registers of 8 or 32 lanes or of a block, in packs of 16 bytes: x is read once
 * and both passes of the variance run in registers. Moves 8 bytes per element forward, 12 backward
 * (f32; half in bf16), with about 8 and 20 operations: bound by memory. Backward computes dx and
 * the sums for dw and db from one read of x and dy: each thread keeps the sums of its columns over
 * a block of rows (columns.cuh), which adds 1 byte per element, mostly in cache. Separate kernels
 * reread rows of more than 8192 elements. A second tensor's rows follow those of the first in the
 * same launch (layernorm_kv). */
#include "cuda/kit/columns.cuh"
#include "cuda/kit/row_param.cuh"
#include "tensor/geometry/norms.h"

struct stats {
    float m, s;
};

struct rownorm {
    int64_t rows, n;
    float eps;
    bool centre;
    tp_row_param w, b;
};

/* The rows of one tensor, then those of a second, as one numbering; `first` are the first's.
 * Variable indices would put the pointers into local memory. */
template <class S> struct rows_of {
    S *at[2];
    int64_t first;
    __device__ S *tensor(int64_t r) const { return r < first ? at[0] : at[1]; }
    __device__ S *row(int64_t r, int64_t n) const
    {
        return r < first ? at[0] + r * n : at[1] + (r - first) * n;
    }
};

/* How a row is distributed: each of LANES threads holds E elements in packs of N. */
template <int N_, int E_, int LANES_> struct spread {
    static constexpr int N = N_, E = E_, LANES = LANES_, PACKS = E / N;
    static constexpr int THREADS = LANES > 128 ? LANES : 128, GROUPS = THREADS / LANES;
};

/* The first column of pack p of this thread. */
template <class C> static __device__ inline int column(int p)
{
    return (p * C::LANES + (int)(threadIdx.x % C::LANES)) * C::N;
}

/* This thread's packs of a row, zeros beyond its end. */
template <class S, class C> struct packs {
    tp_pack<S, C::N> at[C::PACKS];

    __device__ void load(const S *row, int n)
    {
#pragma unroll
        for (int p = 0; p < C::PACKS; p++) {
            if (column<C>(p) < n)
                at[p] = tp_load_n<S, C::N>(row + column<C>(p));
            else
                for (int k = 0; k < C::N; k++) tp_put(&at[p].at[k], 0.0f);
        }
    }
    __device__ void add(const S *row, int n)
    {
#pragma unroll
        for (int p = 0; p < C::PACKS; p++) {
            if (column<C>(p) >= n) continue;
            const tp_pack<S, C::N> was = tp_load_n<S, C::N>(row + column<C>(p));
            for (int k = 0; k < C::N; k++)
                tp_put(&at[p].at[k], tp_float(was.at[k]) + tp_float(at[p].at[k]));
        }
    }
    __device__ void store(S *row, int n) const
    {
#pragma unroll
        for (int p = 0; p < C::PACKS; p++)
            if (column<C>(p) < n) tp_store(row + column<C>(p), at[p]);
    }
};

template <class S, class C>
static __device__ inline stats stats_of(const packs<S, C> &x, const rownorm &k, int n)
{
    float m = 0.0f, v = 0.0f;
    if (k.centre) {
#pragma unroll
        for (int p = 0; p < C::PACKS; p++)
            for (int e = 0; e < C::N; e++) m += tp_float(x.at[p].at[e]);
        m = tp_group<tp_sum_of, C::LANES>(m) / (float)k.n;
    }
#pragma unroll
    for (int p = 0; p < C::PACKS; p++) {
        if (column<C>(p) >= n) continue;
        for (int e = 0; e < C::N; e++) {
            const float d = tp_float(x.at[p].at[e]) - m;
            v += d * d;
        }
    }
    return { m, tp_inverse_root(tp_group<tp_sum_of, C::LANES>(v) / (float)k.n + k.eps) };
}

/* n = 0 past the last row, where groups only take part in their warp's shuffles. */
template <class S, class C>
__global__ void __launch_bounds__(C::THREADS)
    norm_kernel(rownorm k, rows_of<const S> x, rows_of<S> y, stats *t)
{
    TP_EACH_BLOCK (g, (k.rows + C::GROUPS - 1) / C::GROUPS) {
        const int64_t r = g * C::GROUPS + threadIdx.x / C::LANES;
        const int n = r < k.rows ? (int)k.n : 0;
        packs<S, C> v;
        v.load(x.row(r, k.n), n);
        const stats s = stats_of(v, k, n);
#pragma unroll
        for (int p = 0; p < C::PACKS; p++) {
            float w[C::N], b[C::N];
            if (column<C>(p) >= n) continue;
            tp_take<C::N>(w, k.w, column<C>(p));
            tp_take<C::N>(b, k.b, column<C>(p));
            for (int e = 0; e < C::N; e++)
                tp_put(&v.at[p].at[e], (tp_float(v.at[p].at[e]) - s.m) * s.s * w[e] + b[e]);
        }
        v.store(y.row(r, k.n), n);
        if (n > 0 && threadIdx.x % C::LANES == 0) t[r] = s;
    }
}

/* ---- backward ---- */

/* A thread's sums of its columns, over its rows of a block. */
template <class C> struct column_sums {
    float dw[C::E], db[C::E];
};

/* Calls f(pack, element, dy, w, h) for this thread's elements of a row, h = (x - m) s. */
template <class S, class C, class F>
static __device__ inline void each_element(const rownorm &k, int n, stats t, const packs<S, C> &x,
                                           const packs<S, C> &dy, F f)
{
#pragma unroll
    for (int p = 0; p < C::PACKS; p++) {
        float w[C::N];
        if (column<C>(p) >= n) continue;
        tp_take<C::N>(w, k.w, column<C>(p));
        for (int e = 0; e < C::N; e++)
            f(p, e, tp_float(dy.at[p].at[e]), w[e], (tp_float(x.at[p].at[e]) - t.m) * t.s);
    }
}

/* Adds one row to the sums, then overwrites x with dx. */
template <class S, class C>
static __device__ inline void grad_row(const rownorm &k, int n, stats t, packs<S, C> &x,
                                       const packs<S, C> &dy, column_sums<C> &sums)
{
    float sum_g = 0.0f, sum_gh = 0.0f; /* g = dy w */
    each_element(k, n, t, x, dy, [&](int p, int e, float d, float w, float h) {
        sums.dw[p * C::N + e] += d * h;
        sums.db[p * C::N + e] += d;
        sum_g += d * w;
        sum_gh += d * w * h;
    });
    const float mean_g = k.centre ? tp_group<tp_sum_of, C::LANES>(sum_g) / (float)k.n : 0.0f;
    const float mean_gh = tp_group<tp_sum_of, C::LANES>(sum_gh) / (float)k.n;
    each_element(k, n, t, x, dy, [&](int p, int e, float d, float w, float h) {
        tp_put(&x.at[p].at[e], t.s * (d * w - mean_g - h * mean_gh));
    });
}

/* part[column] = the sum over the groups of the block. In shared memory element e of lane l of
 * group g is at [g][e][l], which avoids bank conflicts. */
template <class C>
static __device__ inline void put_sums(const float (&sum)[C::E], int n, float *part)
{
    TP_SHARED(float, all, [C::GROUPS][C::E][C::LANES]);
    const int lane = threadIdx.x % C::LANES, group = threadIdx.x / C::LANES;
#pragma unroll
    for (int e = 0; e < C::E; e++) all[group][e][lane] = sum[e];
    __syncthreads();
    for (int p = group; p < C::PACKS; p += C::GROUPS) {
        tp_pack<float, C::N> v = {};
        if (column<C>(p) >= n) continue;
        for (int g = 0; g < C::GROUPS; g++)
            for (int e = 0; e < C::N; e++) v.at[e] += all[g][p * C::N + e][lane];
        tp_store(part + column<C>(p), v);
    }
    __syncthreads();
}

/* The gradients of x, which may be NULL; add: accumulates. */
template <class S> struct grad_rows : rows_of<S> {
    bool add[2];
    __device__ bool adds(int64_t r) const { return r < this->first ? add[0] : add[1]; }
};

/* part, [blocks][2][n], may be NULL. */
template <class S, class C>
__global__ void __launch_bounds__(C::THREADS, 1)
    norm_grad(rownorm k, int64_t size, rows_of<const S> x, rows_of<const S> dy, const stats *t,
              grad_rows<S> dx, float *part)
{
    const int n = (int)k.n;
    TP_EACH_BLOCK (b, (k.rows + size - 1) / size) {
        const int64_t last = min((b + 1) * size, k.rows);
        column_sums<C> sums = {};
        for (int64_t first = b * size; first < last; first += C::GROUPS) {
            const int64_t r = first + threadIdx.x / C::LANES;
            const bool live = r < last;
            packs<S, C> v, d;
            v.load(x.row(r, k.n), live ? n : 0);
            d.load(dy.row(r, k.n), live ? n : 0);
            grad_row(k, live ? n : 0, live ? t[r] : stats(), v, d, sums);
            S *const to = dx.tensor(r) ? dx.row(r, k.n) : NULL;
            if (to && dx.adds(r)) v.add(to, live ? n : 0);
            if (to) v.store(to, live ? n : 0);
        }
        if (part) {
            put_sums<C>(sums.dw, n, part + b * 2 * k.n);
            put_sums<C>(sums.db, n, part + b * 2 * k.n + k.n);
        }
    }
}

/* ---- rows too long for registers: a block processes a row and reads it again ---- */

template <class S>
__global__ void __launch_bounds__(1024)
    long_norm_kernel(rownorm k, rows_of<const S> x, rows_of<S> y, stats *t)
{
    TP_EACH_BLOCK (r, k.rows) {
        const S *row = x.row(r, k.n);
        S *const to = y.row(r, k.n);
        float m = 0.0f, v = 0.0f, w[1], b[1];
        if (k.centre) {
            for (int64_t i = threadIdx.x; i < k.n; i += blockDim.x) m += tp_float(row[i]);
            m = tp_block<tp_sum_of>(m) / (float)k.n;
        }
        for (int64_t i = threadIdx.x; i < k.n; i += blockDim.x)
            v += (tp_float(row[i]) - m) * (tp_float(row[i]) - m);
        const float s = tp_inverse_root(tp_block<tp_sum_of>(v) / (float)k.n + k.eps);
        for (int64_t i = threadIdx.x; i < k.n; i += blockDim.x) {
            tp_take<1>(w, k.w, i);
            tp_take<1>(b, k.b, i);
            tp_put(to + i, (tp_float(row[i]) - m) * s * w[0] + b[0]);
        }
        if (threadIdx.x == 0) t[r] = { m, s };
    }
}

template <class S>
__global__ void __launch_bounds__(1024)
    long_norm_grad(rownorm k, rows_of<const S> xs, rows_of<const S> dys, const stats *t,
                   grad_rows<S> dxs)
{
    TP_EACH_BLOCK (r, k.rows) {
        const stats s = t[r];
        const S *x = xs.row(r, k.n), *dy = dys.row(r, k.n);
        if (!dxs.tensor(r)) continue;
        float sum_g = 0.0f, sum_gh = 0.0f, w[1];
        for (int64_t i = threadIdx.x; i < k.n; i += blockDim.x) {
            tp_take<1>(w, k.w, i);
            const float g = tp_float(dy[i]) * w[0];
            sum_g += g;
            sum_gh += g * (tp_float(x[i]) - s.m) * s.s;
        }
        const float mean_g = k.centre ? tp_block<tp_sum_of>(sum_g) / (float)k.n : 0.0f;
        const float mean_gh = tp_block<tp_sum_of>(sum_gh) / (float)k.n;
        for (int64_t i = threadIdx.x; i < k.n; i += blockDim.x) {
            tp_take<1>(w, k.w, i);
            const float h = (tp_float(x[i]) - s.m) * s.s;
            const float d = s.s * (tp_float(dy[i]) * w[0] - mean_g - h * mean_gh);
            S *to = dxs.row(r, k.n) + i;
            tp_put(to, dxs.adds(r) ? tp_float(*to) + d : d);
        }
    }
}

/* A thread sums one column of one block of rows. */
template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    long_norm_sums(rownorm k, int64_t size, rows_of<const S> x, rows_of<const S> dy, const stats *t,
                   float *part)
{
    TP_EACH (j, (k.rows + size - 1) / size * k.n) {
        const int64_t b = tp_div(j, k.n), i = j - b * k.n, last = min((b + 1) * size, k.rows);
        float dw = 0.0f, db = 0.0f;
        for (int64_t r = b * size; r < last; r++) {
            const float d = tp_float(dy.row(r, k.n)[i]);
            dw += d * (tp_float(x.row(r, k.n)[i]) - t[r].m) * t[r].s;
            db += d;
        }
        part[b * 2 * k.n + i] = dw;
        part[b * 2 * k.n + k.n + i] = db;
    }
}

/* ---- launchers ---- */

static const tp_view *stats_view(const tp_call *c)
{
    return &c->y[c->ny - 1];
}

static rownorm rownorm_of(const tp_call *c)
{
    const tp__rownorm_attr *a = static_cast<const tp__rownorm_attr *>(c->attr);
    rownorm k = {};
    k.rows = stats_view(c)->numel / 2;
    k.n = c->x[0].dim[c->x[0].ndim - 1];
    k.eps = (float)a->eps;
    k.centre = a->centre;
    k.w = tp_row_param_of(c, ROWNORM_W, 1.0f);
    k.b = tp_row_param_of(c, ROWNORM_B, 0.0f);
    return k;
}

/* of: the views of x and of v, or of what belongs to them; v may be absent. */
template <class S>
static rows_of<S> pair_of(const tp_call *c, const rownorm &k, const tp_view *of, const tp_view *v)
{
    return { { tp_out<S>(of), v ? tp_out<S>(v) : NULL },
             v ? c->x[ROWNORM_X].numel / max(k.n, (int64_t)1) : INT64_MAX };
}

template <class S> static rows_of<const S> inputs_of(const tp_call *c, const rownorm &k)
{
    return pair_of<const S>(c, k, c->x, c->nx > ROWNORM_V ? c->x + ROWNORM_V : NULL);
}

template <class S> static grad_rows<S> gradients_of(const tp_call *c, const rownorm &k)
{
    const bool two = c->nx > ROWNORM_V;
    return { pair_of<S>(c, k, c->dx, two ? c->dx + ROWNORM_V : NULL),
             { (c->add >> ROWNORM_X & 1u) != 0, two && (c->add >> ROWNORM_V & 1u) != 0 } };
}

/* Calls f(spread) for rows of n elements, of which each thread holds at most 32. */
template <int N, class F> static tp_code with_spread(int64_t n, F f)
{
    if (n <= 8 * 8) return f(spread<N, 8, 8>());
    if (n <= 8 * 32) return f(spread<N, 8, 32>());
    if (n <= 16 * 32) return f(spread<N, 16, 32>());
    if (n <= 32 * 32) return f(spread<N, 32, 32>());
    if (n <= 8 * 256) return f(spread<N, 8, 256>());
    if (n <= 16 * 256) return f(spread<N, 16, 256>());
    return f(spread<N, 32, 256>());
}

enum { HELD = 32 * 256 }; /* elements of the longest row in registers */

/* Calls f(spread): packs if rows are whole packs, else single elements. */
template <class S, class F> static tp_code with_packs(bool aligned, int64_t n, F f)
{
    constexpr int N = (int)(16 / sizeof(S));
    return aligned && n % N == 0 ? with_spread<N>(n, f) : with_spread<1>(n, f);
}

template <class S> static tp_code rownorm_fwd(const tp_call *c)
{
    const rownorm k = rownorm_of(c);
    const rows_of<const S> x = inputs_of<S>(c, k);
    const rows_of<S> y = pair_of<S>(c, k, c->y, c->ny > 2 ? c->y + 1 : NULL);
    stats *t = tp_out<stats>(stats_view(c));
    if (k.n > HELD)
        return tp_launch(c, long_norm_kernel<S>, tp_grid(c, k.rows, 1), 1024, 0, k, x, y, t);
    const bool aligned = tp_aligned(x.at[0], x.at[1], y.at[0], y.at[1], k.w.at, k.b.at);
    return with_packs<S>(aligned, k.n, [&](auto s) {
        typedef decltype(s) C;
        return tp_launch(c, norm_kernel<S, C>, tp_grid(c, k.rows, C::GROUPS), C::THREADS, 0, k, x,
                         y, t);
    });
}

template <class S>
static tp_code grad(const tp_call *c, const rownorm &k, int64_t size, float *part)
{
    const rows_of<const S> x = inputs_of<S>(c, k);
    const rows_of<const S> dy = pair_of<const S>(c, k, c->dy, c->ny > 2 ? c->dy + 1 : NULL);
    const grad_rows<S> dx = gradients_of<S>(c, k);
    const stats *t = tp_in<stats>(stats_view(c));
    const int64_t blocks = tp_row_blocks(k.rows, TP_WHOLE_ROWS);
    if (k.n > HELD) {
        const tp_code code = part ? tp_launch(c, long_norm_sums<S>, tp_grid(c, blocks * k.n),
                                              TP_THREADS, 0, k, size, x, dy, t, part)
                                  : TP_OK;
        if (code != TP_OK || !(dx.at[0] || dx.at[1])) return code;
        return tp_launch(c, long_norm_grad<S>, tp_grid(c, k.rows, 1), 1024, 0, k, x, dy, t, dx);
    }
    const bool aligned =
        tp_aligned(x.at[0], x.at[1], dy.at[0], dy.at[1], dx.at[0], dx.at[1], k.w.at);
    return with_packs<S>(aligned, k.n, [&](auto s) {
        typedef decltype(s) C;
        return tp_launch(c, norm_grad<S, C>, tp_grid(c, blocks, 1), C::THREADS, 0, k, size, x, dy,
                         t, dx, part);
    });
}

/* c->work: partial sums for dw and db per block of rows, [blocks][2][n]. */
template <class S> static tp_code rownorm_bwd(const tp_call *c)
{
    const rownorm k = rownorm_of(c);
    const int64_t blocks = tp_row_blocks(k.rows, TP_WHOLE_ROWS);
    const bool params = c->dx[ROWNORM_W].data || (c->nx > ROWNORM_B && c->dx[ROWNORM_B].data);
    float *part = params ? static_cast<float *>(c->work) : NULL;
    const tp_code code = grad<S>(c, k, tp_block_rows(k.rows, TP_WHOLE_ROWS), part);
    return code == TP_OK ? tp_add_affine(c, k.n, blocks, part) : code;
}

static size_t rownorm_work(const tp_call *c)
{
    const bool params =
        !tp_absent(&c->x[ROWNORM_W]) || (c->nx > ROWNORM_B && !tp_absent(&c->x[ROWNORM_B]));
    const int64_t n = c->x[0].dim[c->x[0].ndim - 1];
    const int64_t blocks = tp_row_blocks(stats_view(c)->dim[0], TP_WHOLE_ROWS);
    return tp_is_backward(c) && params ? (size_t)(blocks * 2 * n) * sizeof(float) : 0;
}

TP_CUDA_WORK(rownorm_work)
TP_CUDA_KERNEL(rownorm_fwd)
TP_CUDA_KERNEL(rownorm_bwd)
