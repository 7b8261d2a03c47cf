/* cuda_batchnorm.cu - each channel of X [rows,C] by the statistics of its column, or by running
 * ones; formulas as in tensor/cpu/cpu_batchnorm.c.
 *
 * Columns are summed in tiles (columns.cuh), eight rows of a thread at a time, so that mean and
 * squared deviations of the eight come from registers and are merged in order (Chan, Golub, LeVeque
 * 1979). Training reads x for the statistics and again to normalise: 12 bytes an element (f32; half
 * of that in bf16); backward reads x and dy twice, 20. Eval moves 8 forward, and 20 or 8 backward,
 * with or without gradients of w and b. About 20 operations an element: bound by memory. */
#include "cuda/columns.cuh"
#include "cuda/row_param.cuh"
#include "tensor/norms.h"

/* Mean and squared deviations of `n` numbers. */
struct moments {
    float n, m, v;
};

static __device__ inline moments merged(moments a, moments b)
{
    const float n = a.n + b.n, d = b.m - a.m, share = n > 0.0f ? b.n / n : 0.0f;
    return { n, a.m + d * share, a.v + b.v + d * d * share * a.n };
}

enum { AT_ONCE = 8 }; /* rows that a thread reads together */

static tp_matrix matrix_of(const tp_call *c)
{
    return tp_matrix_of(&c->x[0], c->x[3].dim[0]);
}

/* ---- statistics of a batch ---- */

struct merge {
    __device__ moments operator()(moments a, moments b) const { return merged(a, b); }
};

/* part [blocks][2][C]: mean and squared deviations of each block of rows. */
template <class S, int N>
__global__ void __launch_bounds__(TP_THREADS) moments_kernel(tp_matrix a, const S *x, float *part)
{
    TP_EACH_BLOCK (t, tp_tiles(a, N)) {
        const tp_tile<N> tile(a, t);
        moments all[N] = {};
        for (int64_t r = tile.first; r < tile.last; r += AT_ONCE * TP_TILE_GROUPS) {
            const int64_t left = (tile.last - r + TP_TILE_GROUPS - 1) / TP_TILE_GROUPS;
            const int n = (int)min((int64_t)AT_ONCE, left);
            const float k = 1.0f / (float)n;
            tp_pack<S, N> g[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                if (i < n) g[i] = tp_load_n<S, N>(x + (r + i * TP_TILE_GROUPS) * a.C + tile.j);
#pragma unroll
            for (int e = 0; e < N; e++) {
                float m = 0.0f, v = 0.0f;
                for (int i = 0; i < AT_ONCE; i++) m += i < n ? tp_float(g[i].at[e]) : 0.0f;
                m *= k;
                for (int i = 0; i < AT_ONCE; i++) {
                    const float d = i < n ? tp_float(g[i].at[e]) - m : 0.0f;
                    v += d * d;
                }
                all[e] = merged(all[e], { (float)n, m, v });
            }
        }
        float *to = part + tile.block * 2 * a.C;
        tp_join_groups<N>(a, tile, all, merge(), [=](int64_t i, const moments &v) {
            to[i] = v.m;
            to[a.C + i] = v.v;
        });
    }
}

/* What becomes of the statistics of a channel. */
struct running {
    float *mean, *var; /* NULL: they stay */
    float keep, eps;
};

/* A block merges the parts of 32 channels: warp w the parts w, w + warps, ..., the first warp what
 * these give. */
__global__ void __launch_bounds__(1024)
    merge_kernel(tp_matrix a, running to, const float *part, float *m, float *s)
{
    TP_SHARED(moments, all, [32][32]);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    TP_EACH_BLOCK (tile, (a.C + 31) / 32) {
        const int64_t i = tile * 32 + lane;
        moments v = {};
        for (int64_t k = warp; i < a.C && k * a.size < a.rows; k += warps) {
            const float *at = part + k * 2 * a.C + i;
            v = merged(v, { (float)min(a.size, a.rows - k * a.size), at[0], at[a.C] });
        }
        all[warp][lane] = v;
        __syncthreads();
        if (warp == 0 && i < a.C) {
            for (int w = 1; w < warps; w++) v = merged(v, all[w][lane]);
            m[i] = v.m;
            s[i] = 1.0f / sqrtf((v.n > 0.0f ? v.v / v.n : 0.0f) + to.eps);
            if (to.mean && v.n > 1.0f) {
                to.mean[i] = to.keep * to.mean[i] + (1.0f - to.keep) * v.m;
                to.var[i] = to.keep * to.var[i] + (1.0f - to.keep) * (v.v / (v.n - 1.0f));
            }
        }
        __syncthreads();
    }
}

__global__ void __launch_bounds__(TP_THREADS)
    running_kernel(int64_t C, const float *mean, const float *var, float eps, float *m, float *s)
{
    TP_EACH (i, C) {
        m[i] = mean[i];
        s[i] = 1.0f / sqrtf(var[i] + eps);
    }
}

/* ---- y = (x - m) s w + b ---- */

template <class S, int N>
__global__ void __launch_bounds__(TP_THREADS)
    normalise_kernel(tp_matrix a, tp_row_param mean, tp_row_param scale, tp_row_param w,
                     tp_row_param b, const S *x, S *y)
{
    TP_EACH (i, a.rows * a.C / N) {
        const int64_t j = i * N - tp_div(i * N, a.C) * a.C;
        float m[N], s[N], k[N], t[N];
        tp_pack<S, N> v = tp_load_n<S, N>(x + i * N);
        tp_take<N>(m, mean, j);
        tp_take<N>(s, scale, j);
        tp_take<N>(k, w, j);
        tp_take<N>(t, b, j);
        for (int e = 0; e < N; e++)
            tp_put(&v.at[e], (tp_float(v.at[e]) - m[e]) * s[e] * k[e] + t[e]);
        tp_store(y + i * N, v);
    }
}

static tp_row_param of_floats(const float *v)
{
    return { v, false, 0.0f };
}

/* f(N): in packs if rows begin where packs do, else in single elements. */
template <class S, class F> static tp_code with_packs(bool aligned, int64_t C, F f)
{
    constexpr int N = (int)(16 / sizeof(S));
    return aligned && C % N == 0 ? f(std::integral_constant<int, N>())
                                 : f(std::integral_constant<int, 1>());
}

/* m and s of this call: of the batch, towards which the running ones move, or the running ones. */
template <class S, int N> static tp_code statistics(const tp_call *c, const tp_matrix &a)
{
    const tp__batchnorm_attr *at = static_cast<const tp__batchnorm_attr *>(c->attr);
    const float eps = (float)at->eps;
    float *mean = tp_out<float>(&c->x[3]), *var = tp_out<float>(&c->x[4]);
    float *m = tp_out<float>(&c->y[1]), *s = tp_out<float>(&c->y[2]);
    float *part = static_cast<float *>(c->work);
    if (!c->train)
        return tp_launch(c, running_kernel, tp_grid(c, a.C), TP_THREADS, 0, a.C, mean, var, eps, m,
                         s);
    const running to = { c->replay ? NULL : mean, var, (float)(1.0 - at->momentum), eps };
    const int64_t blocks = tp__card_row_blocks(a.rows, TP_TILE_ROWS);
    const tp_code code = tp_launch(c, moments_kernel<S, N>, tp_grid(c, tp_tiles(a, N), 1),
                                   TP_THREADS, 0, a, tp_in<S>(&c->x[0]), part);
    if (code != TP_OK) return code;
    return tp_launch(c, merge_kernel, tp_grid(c, a.C, 32), tp_part_threads(blocks), 0, a, to, part,
                     m, s);
}

template <class S> static tp_code batchnorm_fwd(const tp_call *c)
{
    const tp_matrix a = matrix_of(c);
    const tp_row_param w = tp_row_param_of(c, 1, 1.0f), b = tp_row_param_of(c, 2, 0.0f);
    return with_packs<S>(tp_aligned(c->x[0].data, c->y[0].data, w.at, b.at), a.C, [&](auto n) {
        constexpr int N = decltype(n)::value;
        const tp_code code = statistics<S, N>(c, a);
        if (code != TP_OK) return code;
        return tp_launch(c, normalise_kernel<S, N>, tp_grid(c, a.rows * a.C / N), TP_THREADS, 0, a,
                         of_floats(tp_in<float>(&c->y[1])), of_floats(tp_in<float>(&c->y[2])), w, b,
                         tp_in<S>(&c->x[0]), tp_out<S>(&c->y[0]));
    });
}

/* ---- backward ---- */

/* part [blocks][2][C]: the sums of dy h and of dy over each block of rows. */
template <class S, int N>
__global__ void __launch_bounds__(TP_THREADS)
    sums_kernel(tp_matrix a, tp_row_param mean, tp_row_param scale, const S *x, const S *dy,
                float *part)
{
    TP_EACH_BLOCK (t, tp_tiles(a, N)) {
        const tp_tile<N> tile(a, t);
        float m[N] = {}, s[N] = {}, dyh[N] = {}, sum[N] = {};
        if (tile.j < a.C) {
            tp_take<N>(m, mean, tile.j);
            tp_take<N>(s, scale, tile.j);
        }
#pragma unroll 4
        for (int64_t r = tile.first; r < tile.last; r += TP_TILE_GROUPS) {
            const tp_pack<S, N> v = tp_load_n<S, N>(x + r * a.C + tile.j);
            const tp_pack<S, N> g = tp_load_n<S, N>(dy + r * a.C + tile.j);
            for (int e = 0; e < N; e++) {
                dyh[e] += tp_float(g.at[e]) * ((tp_float(v.at[e]) - m[e]) * s[e]);
                sum[e] += tp_float(g.at[e]);
            }
        }
        float *to = part + tile.block * 2 * a.C;
        tp_join_groups<N>(a, tile, dyh, tp_plus(), [=](int64_t i, float v) { to[i] = v; });
        tp_join_groups<N>(a, tile, sum, tp_plus(), [=](int64_t i, float v) { to[a.C + i] = v; });
    }
}

/* dx = w s (dy - mean dy - h mean(dy h)); in eval w s dy, and share, 1 / rows, is 0. */
template <class S, int N>
__global__ void __launch_bounds__(TP_THREADS)
    pull_kernel(tp_matrix a, float share, tp_row_param mean, tp_row_param scale, tp_row_param w,
                tp_row_param dyh, tp_row_param sum, const S *x, const S *dy, S *dx)
{
    TP_EACH (i, a.rows * a.C / N) {
        const int64_t j = i * N - tp_div(i * N, a.C) * a.C;
        float m[N], s[N], k[N], gh[N], g0[N];
        tp_pack<S, N> g = tp_load_n<S, N>(dy + i * N);
        tp_take<N>(s, scale, j);
        tp_take<N>(k, w, j);
        if (share > 0.0f) {
            const tp_pack<S, N> v = tp_load_n<S, N>(x + i * N);
            tp_take<N>(m, mean, j);
            tp_take<N>(gh, dyh, j);
            tp_take<N>(g0, sum, j);
            for (int e = 0; e < N; e++) {
                const float h = (tp_float(v.at[e]) - m[e]) * s[e];
                const float d = tp_float(g.at[e]) - share * g0[e] - h * (share * gh[e]);
                tp_put(&g.at[e], k[e] * s[e] * d);
            }
        } else {
            for (int e = 0; e < N; e++) tp_put(&g.at[e], k[e] * s[e] * tp_float(g.at[e]));
        }
        tp_store(dx + i * N, g);
    }
}

/* c->work: the sums of dy h and of dy, [2][C], then those of each block of rows, [blocks][2][C]. */
template <class S, int N> static tp_code pull(const tp_call *c, const tp_matrix &a)
{
    const int64_t C = a.C, blocks = tp__card_row_blocks(a.rows, TP_TILE_ROWS);
    const tp_row_param m = of_floats(tp_in<float>(&c->y[1])), s = of_floats(tp_in<float>(&c->y[2]));
    const S *x = tp_in<S>(&c->x[0]), *dy = tp_in<S>(&c->dy[0]);
    float *sums = static_cast<float *>(c->work), *part = sums + 2 * C;
    tp_code code = TP_OK;
    if (c->train || c->dx[1].data || c->dx[2].data) {
        code = tp_launch(c, sums_kernel<S, N>, tp_grid(c, tp_tiles(a, N), 1), TP_THREADS, 0, a, m,
                         s, x, dy, part);
        if (code == TP_OK)
            code = tp_launch(c, tp_add_parts_kernel<float>, tp_grid(c, 2 * C, 32),
                             tp_part_threads(blocks), 0, 2 * C, blocks, 2 * C, part, sums);
    }
    for (int i = 0; i < 2; i++)
        if (code == TP_OK && c->dx[1 + i].data)
            code = tp_add_parts(c, C, 1, C, sums + i * C, &c->dx[1 + i]);
    if (code != TP_OK || !c->dx[0].data) return code;
    return tp_launch(c, pull_kernel<S, N>, tp_grid(c, a.rows * C / N), TP_THREADS, 0, a,
                     c->train ? 1.0f / (float)a.rows : 0.0f, m, s, tp_row_param_of(c, 1, 1.0f),
                     of_floats(sums), of_floats(sums + C), x, dy, tp_out<S>(&c->dx[0]));
}

template <class S> static tp_code batchnorm_bwd(const tp_call *c)
{
    const tp_matrix a = matrix_of(c);
    const bool aligned =
        tp_aligned(c->x[0].data, c->dy[0].data, c->dx[0].data, tp_row_param_of(c, 1, 1.0f).at);
    return with_packs<S>(aligned, a.C, [&](auto n) { return pull<S, decltype(n)::value>(c, a); });
}

TP_CUDA_KERNEL(batchnorm_fwd)
TP_CUDA_KERNEL(batchnorm_bwd)
