/* remap.cu - flip and pad_nd: copy stretches of x to y (geometry/remap.h).
 *
 * Forward, a thread writes 16 bytes of y. It finds their source with one fast division per axis and
 * reads one word or, if the order is reversed, single elements. Backward, a thread gathers a pack
 * of dx: up to three terms along each padded axis, one in the interior. Each element is read and
 * written once: bound by memory. */
#include "cuda/kit/move.cuh"
#include "tensor/geometry/remap.h"

/* Strides and `inner` count words or packs. */
struct plan {
    tp_remap m;
    tp_divisor inner, by[TP_MAX_DIMS]; /* sizes of the tensor written  */
    uint4 value;                       /* 16 bytes of copies, for gaps */
};

static plan plan_of(const tp_remap &m, int64_t elements, bool gather)
{
    plan p = { m, tp_by(m.inner / elements), {}, {} };
    p.m.inner /= elements;
    for (int k = 0; k < m.n; k++) {
        p.by[k] = tp_by(gather ? m.axis[k].nx : m.axis[k].ny);
        p.m.axis[k].x_stride /= elements;
        p.m.axis[k].y_stride /= elements;
    }
    return p;
}

/* ---- forward ---- */

/* The source of word i of y, the number of consecutive words from there, and their distance. */
template <class W> struct source {
    const W *from; /* NULL: the constant */
    int64_t left;
    int step;
};

template <class W>
static __device__ inline source<W> source_of(const plan &p, const W *x, int64_t i)
{
    const int last = p.m.n - 1;
    int64_t rest = tp_over(p.inner, i);
    const int64_t in = i - rest * p.inner.d;
    source<W> s = { x + in, p.inner.d - in, 1 };
    for (int k = last; k >= 0; k--) {
        const int64_t row = k > 0 ? tp_over(p.by[k], rest) : 0;
        const tp_remap_source a = tp__remap_source(&p.m.axis[k], rest - row * p.by[k].d);
        rest = row;
        if (k == last && (a.x < 0 || a.step > 0 || p.inner.d == 1)) {
            s.left += (a.left - 1) * p.inner.d;
            s.step = a.step;
        }
        if (a.x < 0) return { NULL, s.left, 1 };
        s.from += a.x * p.m.axis[k].x_stride;
    }
    return s;
}

template <class W> static __device__ inline W word_of(const plan &p, const W *x, int64_t i)
{
    const W *from = source_of(p, x, i).from;
    W value;
    memcpy(&value, &p.value, sizeof value);
    return from ? *from : value;
}

template <class W>
__global__ void __launch_bounds__(TP_THREADS)
    remap_kernel(plan p, int64_t n, int64_t packs, const W *x, W *y)
{
    constexpr int N = (int)(16 / sizeof(W));
    TP_EACH (i, packs) {
        const source<W> s = source_of(p, x, i * N);
        if (s.left < N) { /* spans several stretches */
#pragma unroll 1
            for (int k = 0; k < N; k++) y[i * N + k] = word_of(p, x, i * N + k);
            continue;
        }
        tp_pack<W> v;
        memcpy(&v, &p.value, sizeof v);
        if (s.from) {
#pragma unroll
            for (int k = 0; k < N; k++) v.at[k] = s.from[k * s.step];
        }
        tp_store(y + i * N, v);
    }
    TP_EACH (i, n - packs * N) y[packs * N + i] = word_of(p, x, packs * N + i);
}

static tp_code remap(const tp_call *c, const tp_remap &m, const tp_view *x, const tp_view *y,
                     double value)
{
    const int64_t size = (int64_t)tp_dtype_size(y->dtype);
    if (y->numel == 0) return TP_OK;
    const int bytes = tp_widest(m.inner * size, (uintptr_t)x->data, (uintptr_t)y->data);
    plan p = plan_of(m, bytes / size, false);
    p.value = tp_repeated(y->dtype, value);
    const int64_t n = y->numel / (bytes / size);
    return tp_with_word(bytes, [&](auto w) {
        typedef decltype(w) W;
        const int64_t N = (int64_t)(16 / sizeof(W)), packs = tp_aligned(y->data) ? n / N : 0;
        return tp_launch(c, remap_kernel<W>, tp_grid(c, packs ? packs : n), TP_THREADS, 0, p, n,
                         packs, tp_in<W>(x), tp_out<W>(y));
    });
}

/* ---- backward ---- */

/* dx in packs of N elements: sums of the elements of dy copied from each. */
template <class S, int N>
__global__ void __launch_bounds__(TP_THREADS)
    gather_kernel(plan p, int64_t packs, const S *dy, S *dx)
{
    TP_EACH (i, packs) {
        const int64_t unit = tp_over(p.inner, i);
        int64_t rest = unit, uses = 1;
        for (int k = p.m.n - 1; k >= 0; k--) {
            const int64_t row = k > 0 ? tp_over(p.by[k], rest) : 0;
            uses *= tp__remap_uses(&p.m.axis[k], rest - row * p.by[k].d);
            rest = row;
        }
        double sum[N] = {};
        for (int64_t t = 0; t < uses; t++) {
            int64_t at = i - unit * p.inner.d, left = t;
            rest = unit;
            for (int k = p.m.n - 1; k >= 0; k--) {
                const int64_t row = k > 0 ? tp_over(p.by[k], rest) : 0;
                const int64_t j = rest - row * p.by[k].d, n = tp__remap_uses(&p.m.axis[k], j);
                const int64_t higher = n > 1 ? tp_div(left, n) : left;
                at += tp__remap_use(&p.m.axis[k], j, left - higher * n) * p.m.axis[k].y_stride;
                left = higher;
                rest = row;
            }
            const tp_pack<S, N> v = tp_load_n<S, N>(dy + at * N);
            for (int e = 0; e < N; e++) sum[e] += (double)tp_float(v.at[e]);
        }
        tp_pack<S, N> v;
        for (int e = 0; e < N; e++) tp_put(&v.at[e], (float)sum[e]);
        tp_store(dx + i * N, v);
    }
}

template <class S, int N>
static tp_code gather(const tp_call *c, const tp_remap &m, const tp_view *dy, const tp_view *dx)
{
    const int64_t packs = dx->numel / N;
    return tp_launch(c, gather_kernel<S, N>, tp_grid(c, packs), TP_THREADS, 0, plan_of(m, N, true),
                     packs, tp_in<S>(dy), tp_out<S>(dx));
}

/* ---- the ops ---- */

static tp_code flip(const tp_call *c, const tp_view *from, const tp_view *to)
{
    if (!to->data) return TP_OK;
    return remap(c, tp__remap_flip(from, *static_cast<const int *>(c->attr)), from, to, 0.0);
}

static tp_code flip_fwd(const tp_call *c)
{
    return flip(c, &c->x[0], &c->y[0]);
}

static tp_code flip_bwd(const tp_call *c)
{
    return flip(c, &c->dy[0], &c->dx[0]);
}

static tp_code pad_nd_fwd(const tp_call *c)
{
    const tp_pad_cfg *cfg = static_cast<const tp_pad_cfg *>(c->attr);
    return remap(c, tp__remap_pad(&c->x[0], cfg), &c->x[0], &c->y[0],
                 cfg->mode == TP_PAD_CONSTANT ? cfg->value : 0.0);
}

template <class S> static tp_code pad_nd_bwd(const tp_call *c)
{
    const tp_view *dx = &c->dx[0], *dy = &c->dy[0];
    if (!dx->data || dx->numel == 0) return TP_OK;
    const tp_remap m = tp__remap_pad(dx, static_cast<const tp_pad_cfg *>(c->attr));
    constexpr int N = (int)(16 / sizeof(S));
    const bool wide = m.inner % N == 0 && tp_aligned(tp_in<S>(dy), tp_in<S>(dx));
    return wide ? gather<S, N>(c, m, dy, dx) : gather<S, 1>(c, m, dy, dx);
}

TP_CUDA_KERNEL_UNTYPED(flip_fwd)
TP_CUDA_KERNEL_UNTYPED(flip_bwd)
TP_CUDA_KERNEL_UNTYPED(pad_nd_fwd)
TP_CUDA_KERNEL(pad_nd_bwd)
