/* interpolate.cu - resizes channels-last images.
 *
 * A thread computes a pack of channels of an output or, in backward, of an input, which gathers
 * from the outputs that read it. One thread per output first computes the weights of an axis, in
 * double. Each element comes from memory once, then from cache (4 or 16 reads per output): bound by
 * memory for large images, by launches for position tables. */
#include "cuda/kit/kernel.cuh"
#include "tensor/geometry/interpolate.h"

/* Taps of an output along an axis. c->work: those of each output, rows first, once per call. */
struct taps_of {
    float w[4];
    int32_t first;
};

__global__ void __launch_bounds__(TP_THREADS) taps_kernel(tp__resize g, taps_of *taps)
{
    TP_EACH (e, g.axis[0].out + g.axis[1].out) {
        const bool cols = e >= g.axis[0].out;
        double w[4];
        int64_t first;
        tp__resize_weights(&g.axis[cols ? 1 : 0], cols ? e - g.axis[0].out : e, w, &first);
        taps_of t;
        for (int k = 0; k < 4; k++) t.w[k] = (float)w[k];
        t.first = (int32_t)first;
        taps[e] = t;
    }
}

/* A position of images of rows x cols, and the pack of its channels. */
struct resize_place {
    int64_t image, row, col, c;
    __device__ resize_place(int64_t e, int64_t packs, int64_t rows, int64_t cols)
    {
        const int64_t at = tp_div(e, packs), line = tp_div(at, cols);
        c = e - at * packs;
        col = at - line * cols;
        image = tp_div(line, rows);
        row = line - image * rows;
    }
};

template <class S, int N>
__global__ void __launch_bounds__(TP_THREADS, 2)
    resize_kernel(tp__resize g, const taps_of *taps, const S *x, S *y)
{
    const tp__resize_axis &h = g.axis[0], &w = g.axis[1];
    const int64_t packs = g.channels / N;
    TP_EACH (e, g.batch * h.out * w.out * packs) {
        const resize_place o(e, packs, h.out, w.out);
        const taps_of a = taps[o.row], b = taps[h.out + o.col];
        tp_pack<S, N> result;
        float v[N] = {};
        for (int i = 0; i < h.taps; i++) {
            const int64_t row = o.image * h.in + tp__resize_inside(&h, a.first + i);
            for (int j = 0; j < w.taps; j++) {
                const int64_t at = row * w.in + tp__resize_inside(&w, b.first + j);
                const tp_pack<S, N> p = tp_load_n<S, N>(x + (at * packs + o.c) * N);
                for (int k = 0; k < N; k++) v[k] += a.w[i] * b.w[j] * tp_float(p.at[k]);
            }
        }
        for (int k = 0; k < N; k++) tp_put(&result.at[k], v[k]);
        tp_store(y + e * N, result);
    }
}

/* The weight of input i in the output with these taps; at an edge two taps may share an input. */
static __device__ inline float weight_of(const tp__resize_axis &a, const taps_of &t, int64_t i)
{
    float w = 0.0f;
    for (int k = 0; k < a.taps; k++)
        if (tp__resize_inside(&a, t.first + k) == i) w += t.w[k];
    return w;
}

template <class S, int N>
__global__ void __launch_bounds__(TP_THREADS, 2)
    resize_grad(tp__resize g, const taps_of *taps, const S *dy, S *dx)
{
    const tp__resize_axis &h = g.axis[0], &w = g.axis[1];
    const int64_t packs = g.channels / N;
    TP_EACH (e, g.batch * h.in * w.in * packs) {
        const resize_place i(e, packs, h.in, w.in);
        int64_t top, bottom, left, right;
        tp__resize_readers(&h, i.row, &top, &bottom);
        tp__resize_readers(&w, i.col, &left, &right);
        tp_pack<S, N> result;
        float v[N] = {};
        for (int64_t o = top; o < bottom; o++) {
            const float a = weight_of(h, taps[o], i.row);
            const int64_t line = (i.image * h.out + o) * w.out;
            for (int64_t p = left; p < right && a != 0.0f; p++) {
                const float b = a * weight_of(w, taps[h.out + p], i.col);
                if (b == 0.0f) continue;
                const tp_pack<S, N> d = tp_load_n<S, N>(dy + ((line + p) * packs + i.c) * N);
                for (int k = 0; k < N; k++) v[k] += b * tp_float(d.at[k]);
            }
        }
        for (int k = 0; k < N; k++) tp_put(&result.at[k], v[k]);
        tp_store(dx + e * N, result);
    }
}

/* Computes the geometry, and the taps in c->work. */
static tp_code make_taps(const tp_call *c, const tp_view *x, tp__resize *g)
{
    *g = tp__resize_of(static_cast<const tp__interpolate_attr *>(c->attr), x);
    return tp_launch(c, taps_kernel, tp_grid(c, g->axis[0].out + g->axis[1].out), TP_THREADS, 0, *g,
                     static_cast<taps_of *>(c->work));
}

template <class S, int N> static tp_code forward(const tp_call *c, const tp__resize &g)
{
    return tp_launch(c, resize_kernel<S, N>, tp_grid(c, c->y[0].numel / N), TP_THREADS, 0, g,
                     static_cast<const taps_of *>(c->work), tp_in<S>(&c->x[0]),
                     tp_out<S>(&c->y[0]));
}

template <class S, int N> static tp_code backward(const tp_call *c, const tp__resize &g)
{
    return tp_launch(c, resize_grad<S, N>, tp_grid(c, c->dx[0].numel / N), TP_THREADS, 0, g,
                     static_cast<const taps_of *>(c->work), tp_in<S>(&c->dy[0]),
                     tp_out<S>(&c->dx[0]));
}

template <class S> static tp_code interpolate_fwd(const tp_call *c)
{
    constexpr int N = (int)(16 / sizeof(S));
    tp__resize g;
    const tp_code code = make_taps(c, &c->x[0], &g);
    if (code != TP_OK) return code;
    const bool packs = g.channels % N == 0 && tp_aligned(c->x[0].data, c->y[0].data);
    return packs ? forward<S, N>(c, g) : forward<S, 1>(c, g);
}

template <class S> static tp_code interpolate_bwd(const tp_call *c)
{
    constexpr int N = (int)(16 / sizeof(S));
    tp__resize g;
    if (!c->dx[0].data) return TP_OK;
    const tp_code code = make_taps(c, &c->dx[0], &g);
    if (code != TP_OK) return code;
    const bool packs = g.channels % N == 0 && tp_aligned(c->dx[0].data, c->dy[0].data);
    return packs ? backward<S, N>(c, g) : backward<S, 1>(c, g);
}

static size_t interpolate_work(const tp_call *c)
{
    const tp__interpolate_attr *at = static_cast<const tp__interpolate_attr *>(c->attr);
    return (size_t)(at->size[0] + at->size[1]) * sizeof(taps_of);
}

TP_CUDA_WORK(interpolate_work)
TP_CUDA_KERNEL(interpolate_fwd)
TP_CUDA_KERNEL(interpolate_bwd)
