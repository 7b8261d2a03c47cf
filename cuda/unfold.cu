/* unfold.cu - windows of maps, and sums of windows; each is the other's gradient.
 *
 * A thread writes a word of a window, located by five fast divisions, or gathers a pack of a map
 * position from the windows that contain it. Each element of a window is written or read once, the
 * map's come from cache: 4 KH KW / stride^2 bytes (f32, for square strides) and 4 more per element
 * of the map. Bound by memory. */
#include "cuda/kit/move.cuh"
#include "tensor/geometry/unfold.h"

/* Divisors of indices: a position's words or packs; taps, windows and positions of rows and
 * columns. */
struct unfold_plan {
    tp__conv_axis h, w;
    tp_divisor unit, kh, kw, oh, ow, ih, iw, step_h, step_w;
};

static unfold_plan plan_of(const tp_call *c, const tp_view *map, int64_t elements)
{
    const tp__unfold g = tp__unfold_of(static_cast<const tp_unfold_cfg *>(c->attr), map);
    const tp__conv_axis &h = g.axis[0], &w = g.axis[1];
    return { h,
             w,
             tp_by(g.channels / elements),
             tp_by(h.taps),
             tp_by(w.taps),
             tp_by(h.out),
             tp_by(w.out),
             tp_by(h.in),
             tp_by(w.in),
             tp_by(h.dilation),
             tp_by(w.dilation) };
}

/* i / d, and the remainder in *rest. */
static __device__ inline int64_t split(const tp_divisor &by, int64_t i, int64_t *rest)
{
    const int64_t over = tp_over(by, i);
    *rest = i - over * by.d;
    return over;
}

/* ---- windows of a map ---- */

template <class W>
__global__ void __launch_bounds__(TP_THREADS)
    unfold_kernel(unfold_plan p, int64_t n, const W *x, W *y)
{
    TP_EACH (e, n) {
        int64_t c, i, j, row, col;
        int64_t image = split(p.unit, e, &c);
        image = split(p.kw, image, &j);
        image = split(p.kh, image, &i);
        image = split(p.ow, image, &col);
        image = split(p.oh, image, &row);
        row = row * p.h.stride - p.h.pad + i * p.h.dilation;
        col = col * p.w.stride - p.w.pad + j * p.w.dilation;
        W v = {};
        if (row >= 0 && row < p.h.in && col >= 0 && col < p.w.in)
            v = x[((image * p.h.in + row) * p.w.in + col) * p.unit.d + c];
        y[e] = v;
    }
}

static tp_code unfold(const tp_call *c, const tp_view *x, const tp_view *y)
{
    if (!y->data || y->numel == 0) return TP_OK;
    const int64_t size = (int64_t)tp_dtype_size(y->dtype);
    const int bytes = tp_widest(x->dim[3] * size, (uintptr_t)x->data, (uintptr_t)y->data);
    const int64_t n = y->numel / (bytes / size);
    return tp_with_word(bytes, [&](auto w) {
        typedef decltype(w) W;
        return tp_launch(c, unfold_kernel<W>, tp_grid(c, n), TP_THREADS, 0,
                         plan_of(c, x, bytes / size), n, tp_in<W>(x), tp_out<W>(y));
    });
}

/* ---- sums of windows ---- */

template <class S, int N>
__global__ void __launch_bounds__(TP_THREADS, 3)
    fold_kernel(unfold_plan p, int64_t packs, const S *x, S *y)
{
    TP_EACH (e, packs) {
        int64_t c, row, col, i, j, off;
        int64_t image = split(p.unit, e, &c);
        image = split(p.iw, image, &col);
        image = split(p.ih, image, &row);
        const tp__range rows = tp__unfold_seen(&p.h, row, row + 1);
        const tp__range cols = tp__unfold_seen(&p.w, col, col + 1);
        float sum[N] = {};
        for (int64_t a = rows.first; a < rows.end; a++) {
            i = split(p.step_h, row + p.h.pad - a * p.h.stride, &off);
            if (off != 0) continue; /* between two taps */
            for (int64_t b = cols.first; b < cols.end; b++) {
                j = split(p.step_w, col + p.w.pad - b * p.w.stride, &off);
                if (off != 0) continue;
                const int64_t window = (image * p.h.out + a) * p.w.out + b;
                const int64_t from = ((window * p.h.taps + i) * p.w.taps + j) * p.unit.d + c;
                const tp_pack<S, N> v = tp_load_n<S, N>(x + from * N);
                for (int k = 0; k < N; k++) sum[k] += tp_float(v.at[k]);
            }
        }
        tp_pack<S, N> v;
        for (int k = 0; k < N; k++) tp_put(&v.at[k], sum[k]);
        tp_store(y + e * N, v);
    }
}

template <class S, int N>
static tp_code fold_packs(const tp_call *c, const tp_view *x, const tp_view *y)
{
    const int64_t packs = y->numel / N;
    return tp_launch(c, fold_kernel<S, N>, tp_grid(c, packs), TP_THREADS, 0, plan_of(c, y, N),
                     packs, tp_in<S>(x), tp_out<S>(y));
}

template <class S> static tp_code fold(const tp_call *c, const tp_view *x, const tp_view *y)
{
    if (!y->data || y->numel == 0) return TP_OK;
    constexpr int N = (int)(16 / sizeof(S));
    const bool wide = y->dim[3] % N == 0 && tp_aligned(x->data, y->data);
    return wide ? fold_packs<S, N>(c, x, y) : fold_packs<S, 1>(c, x, y);
}

/* ---- the ops ---- */

static tp_code unfold_fwd(const tp_call *c)
{
    return unfold(c, &c->x[0], &c->y[0]);
}

template <class S> static tp_code unfold_bwd(const tp_call *c)
{
    return fold<S>(c, &c->dy[0], &c->dx[0]);
}

template <class S> static tp_code fold_fwd(const tp_call *c)
{
    return fold<S>(c, &c->x[0], &c->y[0]);
}

static tp_code fold_bwd(const tp_call *c)
{
    return unfold(c, &c->dy[0], &c->dx[0]);
}

TP_CUDA_KERNEL_UNTYPED(unfold_fwd)
TP_CUDA_KERNEL(unfold_bwd)
TP_CUDA_KERNEL(fold_fwd)
TP_CUDA_KERNEL_UNTYPED(fold_bwd)
