/* channel_norm.cuh - kernels for normalisation by channel: batch, group and instance norm.
 *
 *     h = (x - m) s     y = h w + b     dx = w s (dy - mean dy - h mean(dy h))
 *
 * Columns are summed in tiles (columns.cuh). A thread reads eight rows at a time, computes their
 * mean and squared deviations in registers, and merges these in order (Chan, Golub, LeVeque 1979).
 * Statistics of an image begin `step` elements after the previous one's. step 0: all rows share
 * statistics. */
#ifndef TP_CHANNEL_NORM_CUH
#define TP_CHANNEL_NORM_CUH

#include "cuda/kit/columns.cuh"
#include "cuda/kit/row_param.cuh"

/* Count, mean and sum of squared deviations of `n` numbers. */
struct tp_moments {
    float n, m, v;
};

static __device__ inline tp_moments tp_merged(tp_moments a, tp_moments b)
{
    const float n = a.n + b.n, d = b.m - a.m, share = n > 0.0f ? b.n / n : 0.0f;
    return { n, a.m + d * share, a.v + b.v + d * d * share * a.n };
}

struct tp_merge {
    __device__ tp_moments operator()(tp_moments a, tp_moments b) const { return tp_merged(a, b); }
};

enum { TP_AT_ONCE = 8 }; /* rows that a thread reads together */

/* part [blocks][2][C]: mean and squared deviations of each block of rows. */
template <class S, int N>
__global__ void __launch_bounds__(TP_THREADS)
    tp_moments_kernel(tp_matrix a, const S *x, float *part)
{
    TP_EACH_BLOCK (t, tp_tiles(a, N)) {
        const tp_tile<N> tile(a, t);
        tp_moments all[N] = {};
        for (int64_t r = tile.first; r < tile.last; r += TP_AT_ONCE * TP_TILE_GROUPS) {
            const int64_t left = (tile.last - r + TP_TILE_GROUPS - 1) / TP_TILE_GROUPS;
            const int n = (int)min((int64_t)TP_AT_ONCE, left);
            const float k = 1.0f / (float)n;
            tp_pack<S, N> g[TP_AT_ONCE];
#pragma unroll
            for (int i = 0; i < TP_AT_ONCE; i++)
                if (i < n) g[i] = tp_load_n<S, N>(x + (r + i * TP_TILE_GROUPS) * a.C + tile.j);
#pragma unroll
            for (int e = 0; e < N; e++) {
                float m = 0.0f, v = 0.0f;
                for (int i = 0; i < TP_AT_ONCE; i++) m += i < n ? tp_float(g[i].at[e]) : 0.0f;
                m *= k;
                for (int i = 0; i < TP_AT_ONCE; i++) {
                    const float d = i < n ? tp_float(g[i].at[e]) - m : 0.0f;
                    v += d * d;
                }
                all[e] = tp_merged(all[e], { (float)n, m, v });
            }
        }
        float *to = part + tile.block * 2 * a.C;
        tp_join_groups<N>(a, tile, all, tp_merge(), [=](int64_t i, const tp_moments &v) {
            to[i] = v.m;
            to[a.C + i] = v.v;
        });
    }
}

/* Merges the parts of each image: out(image, channel, merged). A block merges 32 channels: warp w
 * merges the parts w, w + warps, ..., and warp 0 merges their results. */
template <class Out>
static __device__ inline void tp_join_moments(const tp_matrix &a, const float *part, Out out)
{
    TP_SHARED(tp_moments, all, [32][32]);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int64_t spans = tp_spans(a), across = (a.C + 31) / 32;
    TP_EACH_BLOCK (tile, a.rows > a.image ? tp_div(a.rows, a.image) * across : across) {
        const int64_t image = tp_div(tile, across), i = (tile - image * across) * 32 + lane;
        const int64_t rows = min(a.image, a.rows);
        tp_moments v = {};
        for (int64_t k = warp; i < a.C && k * a.size < rows; k += warps) {
            const float *at = part + (image * spans + k) * 2 * a.C + i;
            v = tp_merged(v, { (float)min(a.size, rows - k * a.size), at[0], at[a.C] });
        }
        all[warp][lane] = v;
        __syncthreads();
        if (warp == 0 && i < a.C) {
            for (int w = 1; w < warps; w++) v = tp_merged(v, all[w][lane]);
            out(image, i, v);
        }
        __syncthreads();
    }
}

/* m and s at image step + j are those of channel j of an image. */
struct tp_channel_stats {
    const float *m, *s;
    int64_t step;
};

static __device__ inline int64_t tp_stats_at(const tp_matrix &a, int64_t step, int64_t row)
{
    return step > 0 ? tp_div(row, a.image) * step : 0;
}

template <int N> static __device__ inline void tp_take(float v[N], const float *p)
{
    const tp_pack<float, N> f = tp_load_n<float, N>(p);
    for (int k = 0; k < N; k++) v[k] = f.at[k];
}

/* ---- y = (x - m) s w + b ---- */

template <class S, int N>
__global__ void __launch_bounds__(TP_THREADS)
    tp_normalise_kernel(tp_matrix a, tp_channel_stats stats, tp_row_param w, tp_row_param b,
                        const S *x, S *y)
{
    TP_EACH (i, a.rows * a.C / N) {
        const int64_t row = tp_div(i * N, a.C), j = i * N - row * a.C;
        const int64_t at = j + tp_stats_at(a, stats.step, row);
        float m[N], s[N], k[N], t[N];
        tp_pack<S, N> v = tp_load_n<S, N>(x + i * N);
        tp_take<N>(m, stats.m + at);
        tp_take<N>(s, stats.s + at);
        tp_take<N>(k, w, j);
        tp_take<N>(t, b, j);
        for (int e = 0; e < N; e++)
            tp_put(&v.at[e], (tp_float(v.at[e]) - m[e]) * s[e] * k[e] + t[e]);
        tp_store(y + i * N, v);
    }
}

/* Calls f(N): a pack if rows are whole packs, else 1. */
template <class S, class F> static tp_code tp_with_packs(bool aligned, int64_t C, F f)
{
    constexpr int N = (int)(16 / sizeof(S));
    return aligned && C % N == 0 ? f(std::integral_constant<int, N>())
                                 : f(std::integral_constant<int, 1>());
}

/* ---- backward ---- */

/* part [blocks][2][C]: the sums of dy h and of dy over each block of rows. */
template <class S, int N>
__global__ void __launch_bounds__(TP_THREADS)
    tp_channel_sums(tp_matrix a, tp_channel_stats stats, const S *x, const S *dy, float *part)
{
    TP_EACH_BLOCK (t, tp_tiles(a, N)) {
        const tp_tile<N> tile(a, t);
        float m[N] = {}, s[N] = {}, sum_dyh[N] = {}, sum_dy[N] = {};
        if (tile.j < a.C) {
            tp_take<N>(m, stats.m + tile.image * stats.step + tile.j);
            tp_take<N>(s, stats.s + tile.image * stats.step + tile.j);
        }
#pragma unroll 4
        for (int64_t r = tile.first; r < tile.last; r += TP_TILE_GROUPS) {
            const tp_pack<S, N> v = tp_load_n<S, N>(x + r * a.C + tile.j);
            const tp_pack<S, N> g = tp_load_n<S, N>(dy + r * a.C + tile.j);
            for (int e = 0; e < N; e++) {
                sum_dyh[e] += tp_float(g.at[e]) * ((tp_float(v.at[e]) - m[e]) * s[e]);
                sum_dy[e] += tp_float(g.at[e]);
            }
        }
        float *to = part + tile.block * 2 * a.C;
        tp_join_groups<N>(a, tile, sum_dyh, tp_plus(), [=](int64_t i, float v) { to[i] = v; });
        tp_join_groups<N>(a, tile, sum_dy, tp_plus(), [=](int64_t i, float v) { to[a.C + i] = v; });
    }
}

/* dx = s (w dy - mean(w dy) - h mean(w dy h)). The sums of dy h and dy are laid out like the
 * statistics and multiplied by of_sums: w, or 1 if they include it. share is 1 / terms of a sum, or
 * 0 with running statistics, when dx = w s dy. */
template <class S, int N>
__global__ void __launch_bounds__(TP_THREADS)
    tp_channel_grad(tp_matrix a, float share, tp_channel_stats stats, tp_row_param w,
                    tp_row_param of_sums, const float *sums_dyh, const float *sums_dy, const S *x,
                    const S *dy, S *dx)
{
    TP_EACH (i, a.rows * a.C / N) {
        const int64_t row = tp_div(i * N, a.C), j = i * N - row * a.C;
        const int64_t at = j + tp_stats_at(a, stats.step, row);
        float m[N], s[N], weight[N], k[N], sum_dyh[N], sum_dy[N];
        tp_pack<S, N> g = tp_load_n<S, N>(dy + i * N);
        tp_take<N>(s, stats.s + at);
        tp_take<N>(weight, w, j);
        if (share > 0.0f) {
            const tp_pack<S, N> v = tp_load_n<S, N>(x + i * N);
            tp_take<N>(m, stats.m + at);
            tp_take<N>(sum_dyh, sums_dyh + at);
            tp_take<N>(sum_dy, sums_dy + at);
            tp_take<N>(k, of_sums, j);
            for (int e = 0; e < N; e++) {
                const float h = (tp_float(v.at[e]) - m[e]) * s[e];
                const float mean = share * k[e] * (sum_dy[e] + h * sum_dyh[e]);
                tp_put(&g.at[e], s[e] * (weight[e] * tp_float(g.at[e]) - mean));
            }
        } else {
            for (int e = 0; e < N; e++) tp_put(&g.at[e], weight[e] * s[e] * tp_float(g.at[e]));
        }
        tp_store(dx + i * N, g);
    }
}

#endif
