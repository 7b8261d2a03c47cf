/* softmax.cu - softmax and its logarithm over the rows of X [rows,n].
 *
 *     softmax      y = e^(x - max) / sum     dx = y (dy - sum_j dy_j y_j)
 *     log_softmax  y = x - max - log(sum)    dx = dy - e^y sum_j dy_j
 *
 * 8 or 32 threads keep a row of up to 1024 elements in registers. A block processes a longer row
 * and keeps it as floats in shared memory if it fits (n <= 12288). Each element is read and written
 * once: 8 bytes forward, 12 backward (f32), bound by memory. Longer rows are reread. */
#include "cuda/kit/kernel.cuh"

enum {
    SHORT = 1024,  /* elements of a row in registers */
    KEPT = 12288,  /* in shared memory, 48 KiB */
    THREADS = 512, /* of a block with one row */
};

static int64_t row_of(const tp_call *c)
{
    return c->y[0].dim[c->y[0].ndim - 1];
}

/* ---- short rows: LANES threads hold E elements each, in packs of N ---- */

template <int LANES, int E, int N> struct held {
    float v[E];

    static __device__ int place(int pack) { return (pack * LANES + threadIdx.x % LANES) * N; }

    template <class S> __device__ held(const S *row, int n, float none)
    {
#pragma unroll
        for (int p = 0; p < E / N; p++) {
            tp_pack<S, N> of;
            if (place(p) < n) of = tp_load_n<S, N>(row + place(p));
            for (int e = 0; e < N; e++) v[p * N + e] = place(p) < n ? tp_float(of.at[e]) : none;
        }
    }

    template <class S> __device__ void store(S *row, int n) const
    {
#pragma unroll
        for (int p = 0; p < E / N; p++) {
            tp_pack<S, N> of;
            for (int e = 0; e < N; e++) tp_put(&of.at[e], v[p * N + e]);
            if (place(p) < n) tp_store(row + place(p), of);
        }
    }
};

/* All threads of a warp stay together: some may have a row past the end, of no elements. */
template <bool LOG, int LANES, int E, int N, class S>
__global__ void __launch_bounds__(TP_THREADS) short_softmax(int64_t rows, int n, const S *x, S *y)
{
    TP_EACH_BLOCK (b, (rows * LANES + TP_THREADS - 1) / TP_THREADS) {
        const int64_t r = (b * TP_THREADS + threadIdx.x) / LANES;
        const int mine = r < rows ? n : 0;
        held<LANES, E, N> row(x + r * n, mine, -INFINITY);
        float top = -INFINITY, sum = 0.0f;
        for (int e = 0; e < E; e++) top = tp_max_of::join(top, row.v[e]);
        top = tp_group<tp_max_of, LANES>(top);
        for (int e = 0; e < E; e++) {
            const float power = expf(row.v[e] - top);
            if (!LOG) row.v[e] = power;
            sum += power;
        }
        sum = tp_group<tp_sum_of, LANES>(sum);
        const float k = LOG ? logf(sum) : 1.0f / sum;
        for (int e = 0; e < E; e++) row.v[e] = LOG ? row.v[e] - top - k : row.v[e] * k;
        row.store(y + r * n, mine);
    }
}

template <bool LOG, int LANES, int E, int N, class S>
__global__ void __launch_bounds__(TP_THREADS)
    short_grad(int64_t rows, int n, const S *y, const S *dy, S *dx)
{
    TP_EACH_BLOCK (b, (rows * LANES + TP_THREADS - 1) / TP_THREADS) {
        const int64_t r = (b * TP_THREADS + threadIdx.x) / LANES;
        const int mine = r < rows ? n : 0;
        const held<LANES, E, N> v(y + r * n, mine, 0.0f);
        held<LANES, E, N> g(dy + r * n, mine, 0.0f);
        float sum = 0.0f;
        for (int e = 0; e < E; e++) sum += LOG ? g.v[e] : g.v[e] * v.v[e];
        sum = tp_group<tp_sum_of, LANES>(sum);
        for (int e = 0; e < E; e++)
            g.v[e] = LOG ? g.v[e] - expf(v.v[e]) * sum : v.v[e] * (g.v[e] - sum);
        g.store(dx + r * n, mine);
    }
}

template <int I> using number = std::integral_constant<int, I>;

/* Calls f(LANES, E, N) for rows of n <= SHORT elements. */
template <class S, class F> static tp_code with_short(bool aligned, int64_t n, F f)
{
    constexpr int PACK = (int)(16 / sizeof(S));
    const auto with = [&](auto lanes, auto e) {
        return aligned && n % PACK == 0 ? f(lanes, e, number<PACK>()) : f(lanes, e, number<1>());
    };
    return n <= 64    ? with(number<8>(), number<8>())
           : n <= 256 ? with(number<32>(), number<8>())
                      : with(number<32>(), number<32>());
}

/* ---- a block per row ---- */

template <bool LOG, class S>
__global__ void __launch_bounds__(THREADS)
    softmax_kernel(int64_t rows, int64_t n, bool kept, const S *x, S *y)
{
    TP_SHARED_REST(float, row);
    TP_EACH_BLOCK (r, rows) {
        const S *from = x + r * n;
        float top = -INFINITY, sum = 0.0f;
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            const float v = tp_float(from[i]);
            if (kept) row[i] = v;
            top = tp_max_of::join(top, v);
        }
        top = tp_block<tp_max_of>(top);
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            const float e = expf((kept ? row[i] : tp_float(from[i])) - top);
            if (kept && !LOG) row[i] = e;
            sum += e;
        }
        sum = tp_block<tp_sum_of>(sum);
        const float k = LOG ? logf(sum) : 1.0f / sum;
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            const float v = kept ? row[i] : tp_float(from[i]);
            if (LOG)
                tp_put(y + r * n + i, v - top - k);
            else
                tp_put(y + r * n + i, (kept ? v : expf(v - top)) * k);
        }
    }
}

template <bool LOG, class S>
__global__ void __launch_bounds__(THREADS)
    softmax_grad(int64_t rows, int64_t n, bool kept, const S *y, const S *dy, S *dx)
{
    TP_SHARED_REST(float, row);
    TP_EACH_BLOCK (r, rows) {
        float sum = 0.0f;
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            const float g = tp_float(dy[r * n + i]), v = tp_float(y[r * n + i]);
            sum += LOG ? g : g * v;
            if (kept) {
                row[i] = g;
                row[n + i] = v;
            }
        }
        sum = tp_block<tp_sum_of>(sum);
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            const float g = kept ? row[i] : tp_float(dy[r * n + i]);
            const float v = kept ? row[n + i] : tp_float(y[r * n + i]);
            tp_put(dx + r * n + i, LOG ? g - expf(v) * sum : v * (g - sum));
        }
    }
}

template <bool LOG, class S> static tp_code forward(const tp_call *c)
{
    const int64_t n = row_of(c), rows = n ? c->y[0].numel / n : 0;
    const bool kept = n <= KEPT;
    const S *x = tp_in<S>(&c->x[0]);
    S *y = tp_out<S>(&c->y[0]);
    if (n <= SHORT)
        return with_short<S>(tp_aligned(x, y), n, [&](auto lanes, auto e, auto pack) {
            constexpr int LANES = decltype(lanes)::value, E = decltype(e)::value;
            return tp_launch(c, short_softmax<LOG, LANES, E, decltype(pack)::value, S>,
                             tp_grid(c, rows * LANES), TP_THREADS, 0, rows, (int)n, x, y);
        });
    return tp_launch(c, softmax_kernel<LOG, S>, tp_grid(c, rows, 1), THREADS,
                     kept ? (size_t)n * sizeof(float) : 0, rows, n, kept, x, y);
}

template <bool LOG, class S> static tp_code backward(const tp_call *c)
{
    const int64_t n = row_of(c), rows = n ? c->y[0].numel / n : 0;
    const bool kept = 2 * n <= KEPT;
    const S *y = tp_in<S>(&c->y[0]), *dy = tp_in<S>(&c->dy[0]);
    S *dx = tp_out<S>(&c->dx[0]);
    if (!dx) return TP_OK;
    if (n <= SHORT)
        return with_short<S>(tp_aligned(y, dy, dx), n, [&](auto lanes, auto e, auto pack) {
            constexpr int LANES = decltype(lanes)::value, E = decltype(e)::value;
            return tp_launch(c, short_grad<LOG, LANES, E, decltype(pack)::value, S>,
                             tp_grid(c, rows * LANES), TP_THREADS, 0, rows, (int)n, y, dy, dx);
        });
    return tp_launch(c, softmax_grad<LOG, S>, tp_grid(c, rows, 1), THREADS,
                     kept ? (size_t)(2 * n) * sizeof(float) : 0, rows, n, kept, y, dy, dx);
}

template <class S> static tp_code softmax_fwd(const tp_call *c)
{
    return forward<false, S>(c);
}
template <class S> static tp_code softmax_bwd(const tp_call *c)
{
    return backward<false, S>(c);
}
template <class S> static tp_code log_softmax_fwd(const tp_call *c)
{
    return forward<true, S>(c);
}
template <class S> static tp_code log_softmax_bwd(const tp_call *c)
{
    return backward<true, S>(c);
}

TP_CUDA_KERNEL(softmax_fwd)
TP_CUDA_KERNEL(softmax_bwd)
TP_CUDA_KERNEL(log_softmax_fwd)
TP_CUDA_KERNEL(log_softmax_bwd)
