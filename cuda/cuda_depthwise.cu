/* cuda_depthwise.cu - depthwise convolutions of channels-last images and sequences, direct.
 *
 *     y[o,c] = b[c] + sum over taps k of x[i,c] w[k,c]      i the input that tap k joins with o
 *     dx[i,c] = sum dy[o,c] w[k,c]     dw[k,c] = sum dy[o,c] x[i,c]     db[c] = sum dy[o,c]
 *
 * A thread takes four channels of one position, or one where four do not divide them. Sums for dw
 * and db are formed in strips of outputs, cut by the shapes alone, and those added in order.
 *
 * Bytes an element in bf16 at stride 1: 4 forward, 4 for dx, 4 for dw; 2 operations a tap each.
 * Bound by memory, if each element comes from it once and by cache for the other taps. */
#include "cuda/kernel.cuh"
#include "tensor/depthwise.h"

/* What tap k joins with position `at`: an input if `at` is an output, and the other way round where
 * BACK; negative if nothing. */
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

/* N channels as floats. */
template <int N, class S> static __device__ inline void pull(float v[N], const S *from)
{
    if constexpr (N == 1) {
        v[0] = tp_float(*from);
    } else {
        const tp_pack<S, N> p = tp_load_n<S, N>(from);
        for (int i = 0; i < N; i++) v[i] = tp_float(p.at[i]);
    }
}

template <int N, class S> static __device__ inline void push(S *to, const float v[N])
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
        if (base) pull<N>(sum, base + c);
        if (add) pull<N>(sum, to + at * C + c);
        for (int64_t kh = 0; kh < g.h.taps; kh++) {
            const int64_t h = partner<BACK>(g.h, o.row, kh);
            if (h < 0) continue;
            for (int64_t kw = 0; kw < g.w.taps; kw++) {
                const int64_t p = partner<BACK>(g.w, o.col, kw);
                if (p < 0) continue;
                pull<N>(v, from + ((o.image * lines + h) * width + p) * C + c);
                pull<N>(k, w + (kh * g.w.taps + kw) * C + c);
                for (int i = 0; i < N; i++) sum[i] += v[i] * k[i];
            }
        }
        push<N>(to + at * C + c, sum);
    }
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
    if (g.channels % 4 == 0 && tp_aligned(from, base, to))
        return tp_launch(c, gather_kernel<BACK, 4, S, Y>, tp_grid(c, n / 4), TP_THREADS, 0, g, from,
                         w, base, add, to);
    return tp_launch(c, gather_kernel<BACK, 1, S, Y>, tp_grid(c, n), TP_THREADS, 0, g, from, w,
                     base, add, to);
}

/* ---- dw and db ---- */

/* A block takes a strip of outputs and 32 packs of channels. Its threads are lanes over packs and
 * groups over outputs, which are added at the end. part [strips,taps + 1,C]; the last is db. */
template <int N, class S>
__global__ void __launch_bounds__(TP_THREADS)
    taps_kernel(tp__conv g, int64_t strips, int64_t size, const S *x, const S *dy, float *part)
{
    TP_SHARED(float, sums, [TP_THREADS * N]);
    const int64_t C = g.channels, taps = g.h.taps * g.w.taps, outputs = g.batch * g.h.out * g.w.out;
    const int64_t slices = (C / N + 31) / 32;
    const int lane = threadIdx.x % 32, group = threadIdx.x / 32, groups = blockDim.x / 32;
    TP_EACH_BLOCK (b, strips * slices) {
        const int64_t strip = tp_div(b, slices), pack = (b - strip * slices) * 32 + lane;
        const int64_t last = min((strip + 1) * size, outputs), c = pack * N;
        for (int64_t k = 0; k <= taps; k++) {
            const int64_t kh = tp_div(k, g.w.taps), kw = k - kh * g.w.taps;
            float sum[N] = {}, a[N], v[N];
            for (int64_t at = strip * size + group; at < last && c < C; at += groups) {
                pull<N>(a, dy + at * C + c);
                for (int i = 0; i < N; i++) v[i] = 1.0f;
                if (k < taps) {
                    const conv_place o(at, g.h.out, g.w.out);
                    const int64_t h = partner<false>(g.h, o.row, kh);
                    const int64_t p = partner<false>(g.w, o.col, kw);
                    if (h < 0 || p < 0) continue;
                    pull<N>(v, x + ((o.image * g.h.in + h) * g.w.in + p) * C + c);
                }
                for (int i = 0; i < N; i++) sum[i] += a[i] * v[i];
            }
            for (int i = 0; i < N; i++) sums[threadIdx.x * N + i] = sum[i];
            __syncthreads();
            const int64_t to = (b - strip * slices) * 32 * N + threadIdx.x;
            if (threadIdx.x < 32 * N && to < C) {
                float all = 0.0f;
                for (int q = 0; q < groups; q++) all += sums[q * 32 * N + threadIdx.x];
                part[(strip * (taps + 1) + k) * C + to] = all;
            }
            __syncthreads();
        }
    }
}

/* out[c][k] of `taps` rows of part, from row `first`: the sum over strips. */
template <class D>
__global__ void __launch_bounds__(TP_THREADS)
    finish_taps(int64_t C, int64_t strips, int64_t rows, int64_t first, int64_t taps, bool add,
                const float *part, D *out)
{
    TP_EACH (e, C * taps) {
        const int64_t k = tp_div(e, C), c = e - k * C;
        double sum = 0.0;
        for (int64_t s = 0; s < strips; s++) sum += (double)part[(s * rows + first + k) * C + c];
        D *to = out + c * taps + k;
        tp_put(to, add ? tp_float(*to) + (float)sum : (float)sum);
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
        return tp_launch(c, finish_taps<D>, tp_grid(c, C * taps), TP_THREADS, 0, C, strips, rows,
                         first, taps, (c->add >> input & 1u) != 0, part, tp_out<D>(&c->dx[input]));
    });
}

template <class S> static tp_code sums_of_taps(const tp_call *c, const tp__conv &g)
{
    const int64_t taps = g.h.taps * g.w.taps, C = g.channels;
    const int64_t strips = tp__conv_strips(&g), size = tp__conv_strip(&g);
    const S *x = tp_in<S>(&c->x[0]), *dy = tp_in<S>(&c->dy[0]);
    float *part = static_cast<float *>(c->work) + taps * C;
    const bool four = C % 4 == 0 && tp_aligned(x, dy);
    const int64_t blocks = strips * ((C / (four ? 4 : 1) + 31) / 32);
    tp_code code = tp_launch(c, four ? taps_kernel<4, S> : taps_kernel<1, S>, tp_grid(c, blocks, 1),
                             TP_THREADS, 0, g, strips, size, x, dy, part);
    if (code == TP_OK) code = finish(c, 1, 0, taps, taps + 1, strips, part);
    if (code == TP_OK) code = finish(c, 2, taps, 1, taps + 1, strips, part);
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

TP_CUDA_KERNEL(depthwise_fwd)
TP_CUDA_KERNEL(depthwise_bwd)
