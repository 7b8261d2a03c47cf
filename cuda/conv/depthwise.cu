/* depthwise.cu - depthwise convolutions of channels-last images and sequences, direct.
 *
 *     y[o,c] = b[c] + sum over taps k of x[i,c] w[k,c]      i the input under tap k of output o
 *     dx[i,c] = sum dy[o,c] w[k,c]     dw[k,c] = sum dy[o,c] x[i,c]     db[c] = sum dy[o,c]
 *
 * If kernels are three taps wide and one or three high, with dilation 1 and stride 1 or (except for
 * dx) 2, a thread computes four channels of runs of four outputs, row after row, with weights in
 * registers. Rows that the next outputs reread come from L1. Otherwise a thread computes one
 * position and four channels, or one. dx at stride 1 is a convolution of dy with reversed taps.
 *
 * dw and db are summed in strips of outputs, cut by shapes only and added in order.
 *
 * Bytes per element in bf16 at stride 1: 4 forward, 4 for dx, 4 for dw; 2 operations per tap each.
 * Bound by memory; in bf16 with nine taps, instruction issue is close. */
#include "cuda/kit/kernel.cuh"
#include "tensor/geometry/depthwise.h"

/* The input under tap k of output `at` or, with BACK, the output whose tap k reads input `at`;
 * negative: none. */
template <bool BACK>
static __device__ inline int64_t partner(const tp__conv_axis &a, int64_t at, int64_t k)
{
    if (!BACK) {
        const int64_t i = at * a.stride - a.pad + k * a.dilation;
        return i < a.in ? i : -1;
    }
    const int64_t t = at + a.pad - k * a.dilation;
    if (t < 0) return -1;
    const int64_t o = tp_div(t, a.stride);
    return o * a.stride == t && o < a.out ? o : -1;
}

/* A position of images of rows x cols. */
struct conv_place {
    int64_t image, row, col;
    __device__ conv_place(int64_t at, int64_t rows, int64_t cols)
    {
        const int64_t line = tp_div(at, cols);
        image = tp_div(line, rows);
        row = line - image * rows;
        col = at - line * cols;
    }
};

/* Loads N channels as floats. */
template <int N, class S> static __device__ inline void load_channels(float v[N], const S *from)
{
    if constexpr (N == 1) {
        v[0] = tp_float(*from);
    } else {
        const tp_pack<S, N> p = tp_load_n<S, N>(from);
        for (int i = 0; i < N; i++) v[i] = tp_float(p.at[i]);
    }
}

template <int N, class S> static __device__ inline void store_channels(S *to, const float v[N])
{
    if constexpr (N == 1) {
        tp_put(to, v[0]);
    } else {
        tp_pack<S, N> p;
        for (int i = 0; i < N; i++) tp_put(&p.at[i], v[i]);
        tp_store(to, p);
    }
}

/* [C,taps] to [taps,C]. */
template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    taps_first(int64_t C, int64_t taps, const S *from, float *to)
{
    TP_EACH (e, C * taps) {
        const int64_t k = tp_div(e, C);
        to[e] = tp_float(from[(e - k * C) * taps + k]);
    }
}

/* ---- y and dx ---- */

/* to[position][c] = base[c] + sum over taps of from[partner][c] w[tap][c], or added to `to`. */
template <bool BACK, int N, class S, class Y>
__global__ void __launch_bounds__(TP_THREADS)
    gather_kernel(tp__conv g, const S *from, const float *w, const S *base, bool add, Y *to)
{
    const int64_t C = g.channels, packs = C / N;
    const int64_t rows = BACK ? g.h.in : g.h.out, cols = BACK ? g.w.in : g.w.out;
    const int64_t lines = BACK ? g.h.out : g.h.in, width = BACK ? g.w.out : g.w.in;
    TP_EACH (e, g.batch * rows * cols * packs) {
        const int64_t at = tp_div(e, packs), c = (e - at * packs) * N;
        const conv_place o(at, rows, cols);
        float sum[N] = {}, v[N], k[N];
        if (base) load_channels<N>(sum, base + c);
        if (add) load_channels<N>(sum, to + at * C + c);
        for (int64_t kh = 0; kh < g.h.taps; kh++) {
            const int64_t h = partner<BACK>(g.h, o.row, kh);
            if (h < 0) continue;
            for (int64_t kw = 0; kw < g.w.taps; kw++) {
                const int64_t p = partner<BACK>(g.w, o.col, kw);
                if (p < 0) continue;
                load_channels<N>(v, from + ((o.image * lines + h) * width + p) * C + c);
                load_channels<N>(k, w + (kh * g.w.taps + kw) * C + c);
                for (int i = 0; i < N; i++) sum[i] += v[i] * k[i];
            }
        }
        store_channels<N>(to + at * C + c, sum);
    }
}

enum { RUN = 4, BAND = 8 }; /* outputs of a row computed at once; rows per thread, in order */

/* Calls f(t, tap, x) for each output t of a run and each tap, with four channels of the input under
 * it. x: the first image; left: the column under output 0's first tap, STRIDE before output 1's. */
template <int KH, int STRIDE, class S, class F>
static __device__ inline void each_tap(const tp__conv &g, int64_t image, int64_t row, int left,
                                       const S *x, F f)
{
    const int width = (int)g.w.in;
#pragma unroll
    for (int kh = 0; kh < KH; kh++) {
        const int64_t h = row * STRIDE - g.h.pad + kh;
        if (h < 0 || h >= g.h.in) continue;
        const S *const from = x + ((image * g.h.in + h) * g.w.in + left) * g.channels;
#pragma unroll
        for (int u = 0; u < (RUN - 1) * STRIDE + 3; u++) {
            float v[4] = {};
            if (left + u >= 0 && left + u < width) load_channels<4>(v, from + u * g.channels);
#pragma unroll
            for (int t = 0; t < RUN; t++)
                if (u >= t * STRIDE && u < t * STRIDE + 3) f(t, kh * 3 + u - t * STRIDE, v);
        }
    }
}

/* The same for KH x 3 taps at dilation 1. For dx, g is flipped and the taps reversed. */
template <bool BACK, int KH, int STRIDE, class S, class Y>
__global__ void __launch_bounds__(TP_THREADS, 2)
    run_kernel(tp__conv g, const S *from, const float *w, const S *base, bool add, Y *to)
{
    const int64_t C = g.channels, packs = C / 4, runs = (g.w.out + RUN - 1) / RUN;
    const int64_t bands = (g.h.out + BAND - 1) / BAND;
    TP_EACH (e, g.batch * bands * runs * packs) {
        const int64_t at = tp_div(e, packs), c = (e - at * packs) * 4;
        const conv_place o(at, bands, runs);
        const int64_t last = min((o.row + 1) * BAND, g.h.out), col = o.col * RUN;
        const int left = (int)(col * STRIDE - g.w.pad);
        float k[KH * 3][4], first[4] = {};
        for (int i = 0; i < KH * 3; i++)
            load_channels<4>(k[i], w + (BACK ? KH * 3 - 1 - i : i) * C + c);
        if (base) load_channels<4>(first, base + c);
        for (int64_t row = o.row * BAND; row < last; row++) {
            Y *const y = to + ((o.image * g.h.out + row) * g.w.out + col) * C + c;
            float sum[RUN][4];
#pragma unroll
            for (int t = 0; t < RUN; t++)
                for (int i = 0; i < 4; i++) sum[t][i] = first[i];
            each_tap<KH, STRIDE>(g, o.image, row, left, from + c,
                                 [&](int t, int tap, const float *v) {
                                     for (int i = 0; i < 4; i++) sum[t][i] += v[i] * k[tap][i];
                                 });
#pragma unroll
            for (int t = 0; t < RUN; t++) {
                if (col + t >= g.w.out) continue;
                if (add) {
                    float old[4];
                    load_channels<4>(old, y + t * C);
                    for (int i = 0; i < 4; i++) sum[t][i] += old[i];
                }
                store_channels<4>(y + t * C, sum[t]);
            }
        }
    }
}

/* Returns whether a kernel in runs supports this convolution. They count columns in 32 bits. */
static bool in_runs(const tp__conv &g)
{
    return g.w.in < 1 << 30 && g.w.pad < 1 << 30 && g.w.taps == 3 &&
           (g.h.taps == 1 || g.h.taps == 3) && g.w.stride <= 2 &&
           (g.h.stride == g.w.stride || g.h.out == 1) && g.w.dilation == 1 && g.h.dilation == 1 &&
           g.channels % 4 == 0;
}

/* The axis of the convolution that computes dx from dy. */
static tp__conv_axis flipped(const tp__conv_axis &a)
{
    tp__conv_axis b = a;
    b.in = a.out;
    b.out = a.in;
    b.pad = a.taps - 1 - a.pad;
    return b;
}

template <bool BACK, class S, class Y>
static tp_code gather_runs(const tp_call *c, const tp__conv &g, const S *from, const S *base,
                           bool add, Y *to)
{
    tp__conv v = g;
    if (BACK) {
        v.h = flipped(g.h);
        v.w = flipped(g.w);
    }
    const int64_t n =
        v.batch * ((v.h.out + BAND - 1) / BAND) * ((v.w.out + RUN - 1) / RUN) * (v.channels / 4);
    auto kernel = g.h.taps == 1 ? run_kernel<BACK, 1, 1, S, Y> : run_kernel<BACK, 3, 1, S, Y>;
    if constexpr (!BACK)
        if (g.w.stride == 2)
            kernel = g.h.taps == 1 ? run_kernel<BACK, 1, 2, S, Y> : run_kernel<BACK, 3, 2, S, Y>;
    return tp_launch(c, kernel, tp_grid(c, n), TP_THREADS, 0, v, from,
                     static_cast<const float *>(c->work), base, add, to);
}

template <bool BACK, class S, class Y>
static tp_code gather(const tp_call *c, const tp__conv &g, const S *from, const S *base, bool add,
                      Y *to)
{
    const int64_t taps = g.h.taps * g.w.taps;
    const int64_t n = g.batch * g.channels * (BACK ? g.h.in * g.w.in : g.h.out * g.w.out);
    float *w = static_cast<float *>(c->work);
    const tp_code code = tp_launch(c, taps_first<S>, tp_grid(c, g.channels * taps), TP_THREADS, 0,
                                   g.channels, taps, tp_in<S>(&c->x[1]), w);
    if (code != TP_OK) return code;
    const bool aligned = tp_aligned(from, base, to);
    if (in_runs(g) && aligned && (!BACK || g.w.stride == 1))
        return gather_runs<BACK>(c, g, from, base, add, to);
    if (g.channels % 4 == 0 && aligned)
        return tp_launch(c, gather_kernel<BACK, 4, S, Y>, tp_grid(c, n / 4), TP_THREADS, 0, g, from,
                         w, base, add, to);
    return tp_launch(c, gather_kernel<BACK, 1, S, Y>, tp_grid(c, n), TP_THREADS, 0, g, from, w,
                     base, add, to);
}

/* ---- dw and db ---- */

/* Blocks take strips of outputs and `lanes` packs of channels. Threads are lanes over packs and
 * groups over outputs; the sums of the groups are added in order at the end. */
typedef struct strip_cut {
    int64_t strips, size, slices;
    int lanes;
} strip_cut;

/* Stores a block's sums for one tap in part, a row of [strips,taps + 1,C]. */
template <int N>
static __device__ inline void put_sums(int lanes, const float sum[N], int64_t slice, int64_t C,
                                       float *part)
{
    TP_SHARED(float, sums, [TP_THREADS * N]);
    const int width = lanes * N;
    const int64_t c = slice * width + threadIdx.x;
    for (int i = 0; i < N; i++) sums[threadIdx.x * N + i] = sum[i];
    __syncthreads();
    if ((int)threadIdx.x < width && c < C) {
        float all = 0.0f;
        for (int at = threadIdx.x; at < TP_THREADS * N; at += width) all += sums[at];
        part[c] = all;
    }
    __syncthreads();
}

/* Any taps, one by one; the last pass computes db. */
template <int N, class S>
__global__ void __launch_bounds__(TP_THREADS, 4)
    taps_kernel(tp__conv g, strip_cut cut, const S *x, const S *dy, float *part)
{
    const int64_t C = g.channels, taps = g.h.taps * g.w.taps, outputs = g.batch * g.h.out * g.w.out;
    const int lane = threadIdx.x % cut.lanes, group = threadIdx.x / cut.lanes;
    TP_EACH_BLOCK (b, cut.strips * cut.slices) {
        const int64_t strip = tp_div(b, cut.slices), slice = b - strip * cut.slices;
        const int64_t last = min((strip + 1) * cut.size, outputs);
        const int64_t c = (slice * cut.lanes + lane) * N;
        for (int64_t k = 0; k <= taps; k++) {
            const int64_t kh = tp_div(k, g.w.taps), kw = k - kh * g.w.taps;
            float sum[N] = {}, a[N], v[N];
            for (int64_t at = strip * cut.size + group; at < last && c < C;
                 at += TP_THREADS / cut.lanes) {
                load_channels<N>(a, dy + at * C + c);
                for (int i = 0; i < N; i++) v[i] = 1.0f;
                if (k < taps) {
                    const conv_place o(at, g.h.out, g.w.out);
                    const int64_t h = partner<false>(g.h, o.row, kh);
                    const int64_t p = partner<false>(g.w, o.col, kw);
                    if (h < 0 || p < 0) continue;
                    load_channels<N>(v, x + ((o.image * g.h.in + h) * g.w.in + p) * C + c);
                }
                for (int i = 0; i < N; i++) sum[i] += a[i] * v[i];
            }
            put_sums<N>(cut.lanes, sum, slice, C, part + (strip * (taps + 1) + k) * C);
        }
    }
}

/* KH x 3 taps at dilation 1, with all sums in registers; strips consist of runs. */
template <int KH, int STRIDE, class S>
__global__ void __launch_bounds__(TP_THREADS, 2)
    run_grad(tp__conv g, strip_cut cut, const S *x, const S *dy, float *part)
{
    const int64_t C = g.channels, runs = (g.w.out + RUN - 1) / RUN;
    const int lane = threadIdx.x % cut.lanes, group = threadIdx.x / cut.lanes;
    TP_EACH_BLOCK (b, cut.strips * cut.slices) {
        const int64_t strip = tp_div(b, cut.slices), slice = b - strip * cut.slices;
        const int64_t last = min((strip + 1) * cut.size, g.batch * g.h.out * runs);
        const int64_t c = (slice * cut.lanes + lane) * 4;
        float sum[KH * 3 + 1][4] = {};
        for (int64_t at = strip * cut.size + group; at < last && c < C;
             at += TP_THREADS / cut.lanes) {
            const conv_place o(at, g.h.out, runs);
            const int64_t col = o.col * RUN;
            const int left = (int)(col * STRIDE - g.w.pad);
            const S *const a = dy + ((o.image * g.h.out + o.row) * g.w.out + col) * C + c;
            float d[RUN][4] = {};
#pragma unroll
            for (int t = 0; t < RUN; t++) {
                if (col + t < g.w.out) load_channels<4>(d[t], a + t * C);
                for (int i = 0; i < 4; i++) sum[KH * 3][i] += d[t][i];
            }
            each_tap<KH, STRIDE>(g, o.image, o.row, left, x + c,
                                 [&](int t, int tap, const float *v) {
                                     for (int i = 0; i < 4; i++) sum[tap][i] += d[t][i] * v[i];
                                 });
        }
#pragma unroll
        for (int k = 0; k <= KH * 3; k++)
            put_sums<4>(cut.lanes, sum[k], slice, C, part + (strip * (KH * 3 + 1) + k) * C);
    }
}

/* out[c][k] = or += the sum over strips of row first + k of part, k < taps, one warp each. */
template <class D>
__global__ void __launch_bounds__(TP_THREADS)
    finish_taps(int64_t C, int64_t strips, int64_t rows, int64_t first, int64_t taps, bool add,
                const float *part, D *out)
{
    for (int64_t e = tp_warp_number(); e < C * taps; e += tp_warps()) {
        const int64_t k = tp_div(e, C), c = e - k * C;
        double sum = 0.0;
        for (int64_t s = threadIdx.x % 32; s < strips; s += 32)
            sum += (double)part[(s * rows + first + k) * C + c];
        sum = tp_warp<tp_sum_of>(sum);
        D *to = out + c * taps + k;
        if (threadIdx.x % 32 == 0) tp_put(to, add ? tp_float(*to) + (float)sum : (float)sum);
    }
}

/* dw (input 1) or db (input 2) from the sums of the strips. */
static tp_code finish(const tp_call *c, int input, int64_t first, int64_t taps, int64_t rows,
                      int64_t strips, const float *part)
{
    const int64_t C = c->x[1].dim[0];
    if (!c->dx[input].data) return TP_OK;
    return tp_with_type(c, c->dx[input].dtype, [&](auto d) {
        typedef decltype(d) D;
        return tp_launch(c, finish_taps<D>, tp_grid(c, C * taps, TP_THREADS / 32), TP_THREADS, 0, C,
                         strips, rows, first, taps, (c->add >> input & 1u) != 0, part,
                         tp_out<D>(&c->dx[input]));
    });
}

/* dw and db are summed in at most 256 strips of at least 64 outputs. */
static int64_t strip_of(const tp__conv &g)
{
    const int64_t outputs = g.batch * g.h.out * g.w.out;
    return outputs > 64 * 256 ? (outputs + 255) / 256 : 64;
}

static int64_t strips_of(const tp__conv &g)
{
    const int64_t n = strip_of(g);
    return (g.batch * g.h.out * g.w.out + n - 1) / n;
}

/* Lanes are a power of two, so that a block is a whole number of groups. */
static strip_cut cut_of(const tp__conv &g, int64_t packs, int64_t items)
{
    strip_cut cut = { strips_of(g), 0, 0, 1 };
    while (cut.lanes < 32 && cut.lanes < packs) cut.lanes *= 2;
    cut.slices = (packs + cut.lanes - 1) / cut.lanes;
    if (cut.strips > 0) cut.size = (items + cut.strips - 1) / cut.strips;
    return cut;
}

template <class S> static tp_code sums_of_taps(const tp_call *c, const tp__conv &g)
{
    const int64_t taps = g.h.taps * g.w.taps, C = g.channels, lines = g.batch * g.h.out;
    const S *x = tp_in<S>(&c->x[0]), *dy = tp_in<S>(&c->dy[0]);
    float *part = static_cast<float *>(c->work) + taps * C;
    const bool aligned = tp_aligned(x, dy), four = C % 4 == 0 && aligned;
    const bool runs = in_runs(g) && aligned;
    const strip_cut cut =
        cut_of(g, C / (four ? 4 : 1), lines * (runs ? (g.w.out + RUN - 1) / RUN : g.w.out));
    auto kernel = four ? taps_kernel<4, S> : taps_kernel<1, S>;
    if (runs && g.w.stride == 1) kernel = g.h.taps == 1 ? run_grad<1, 1, S> : run_grad<3, 1, S>;
    if (runs && g.w.stride == 2) kernel = g.h.taps == 1 ? run_grad<1, 2, S> : run_grad<3, 2, S>;
    tp_code code = tp_launch(c, kernel, tp_grid(c, cut.strips * cut.slices, 1), TP_THREADS, 0, g,
                             cut, x, dy, part);
    if (code == TP_OK) code = finish(c, 1, 0, taps, taps + 1, cut.strips, part);
    if (code == TP_OK) code = finish(c, 2, taps, 1, taps + 1, cut.strips, part);
    return code;
}

/* ---- kernels ---- */

static tp__conv conv_of(const tp_call *c)
{
    return tp__conv_of(static_cast<const tp_conv_cfg *>(c->attr), &c->x[0], &c->x[1]);
}

template <class S> static tp_code depthwise_fwd(const tp_call *c)
{
    const S *bias = tp_absent(&c->x[2]) ? (const S *)NULL : tp_in<S>(&c->x[2]);
    return gather<false>(c, conv_of(c), tp_in<S>(&c->x[0]), bias, false, tp_out<S>(&c->y[0]));
}

template <class S> static tp_code depthwise_bwd(const tp_call *c)
{
    const tp__conv g = conv_of(c);
    tp_code code = TP_OK;
    if (c->dx[0].data)
        code = tp_with_type(c, c->dx[0].dtype, [&](auto d) {
            typedef decltype(d) D;
            return gather<true>(c, g, tp_in<S>(&c->dy[0]), (const S *)NULL, (c->add & 1u) != 0,
                                tp_out<D>(&c->dx[0]));
        });
    if (code != TP_OK || !(c->dx[1].data || c->dx[2].data)) return code;
    return sums_of_taps<S>(c, g);
}

/* Weights [taps][C]; backward also sums for dw and db, [taps+1][C] per strip. */
static size_t depthwise_work(const tp_call *c)
{
    const tp__conv g = conv_of(c);
    const int64_t taps = g.h.taps * g.w.taps;
    const int64_t rows = taps + (tp_is_backward(c) ? strips_of(g) * (taps + 1) : 0);
    return (size_t)(rows * g.channels) * sizeof(float);
}

TP_CUDA_WORK(depthwise_work)
TP_CUDA_KERNEL(depthwise_fwd)
TP_CUDA_KERNEL(depthwise_bwd)
