/* packed.cu - packed documents: sums of rows, and prepended rows. Reads and writes each element
 * once: bound by memory. */
#include "cuda/kit/move.cuh"
#include "tensor/geometry/packed.h"

static tp_packing packing_of(const tp_call *c, int x)
{
    return tp__packing(&c->x[x + 1], c->x[x].dim[0], *static_cast<const int64_t *>(c->attr));
}

static int64_t width_of(const tp_view *y)
{
    return y->dim[0] > 0 ? y->numel / y->dim[0] : 0;
}

/* ---- sums: x, offset ---- */

enum { COLUMNS = 32, ROWS = TP_THREADS / COLUMNS }; /* of a block */

/* A block takes 32 columns of a document; a warp, every eighth row. */
template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    sum_kernel(tp_packing p, int64_t width, const S *x, S *y)
{
    TP_SHARED(double, part, [ROWS][COLUMNS]);
    const int warp = (int)threadIdx.x / COLUMNS, lane = (int)threadIdx.x % COLUMNS;
    const int64_t strips = tp__ceil_div(width, COLUMNS);
    TP_EACH_BLOCK (item, p.n * strips) {
        const int64_t b = tp_div(item, strips), col = (item - b * strips) * COLUMNS + lane;
        const tp_rows rows = tp__document(&p, b);
        double sum = 0.0;
        for (int64_t i = warp; i < rows.count && col < width; i += ROWS)
            sum += (double)tp_float(x[(rows.first + i) * width + col]);
        __syncthreads();
        part[warp][lane] = sum;
        __syncthreads();
        for (int w = 1; w < ROWS; w++) sum += part[w][lane];
        if (warp == 0 && col < width) tp_put(y + b * width + col, (float)sum);
    }
}

template <class S, class X>
__global__ void __launch_bounds__(TP_THREADS)
    spread_kernel(tp_packing p, int64_t width, const S *dy, X *dx)
{
    TP_EACH (e, p.rows * width) {
        const int64_t row = tp_div(e, width);
        tp_put(dx + e, tp_float(dy[tp__document_of(&p, row) * width + e - row * width]));
    }
}

template <class S> static tp_code packed_sum_fwd(const tp_call *c)
{
    const tp_packing p = packing_of(c, 0);
    const int64_t width = width_of(&c->y[0]);
    return tp_launch(c, sum_kernel<S>, tp_grid(c, p.n * tp__ceil_div(width, COLUMNS), 1),
                     TP_THREADS, 0, p, width, tp_in<S>(&c->x[0]), tp_out<S>(&c->y[0]));
}

template <class S> static tp_code packed_sum_bwd(const tp_call *c)
{
    const tp_packing p = packing_of(c, 0);
    const int64_t width = width_of(&c->dy[0]);
    if (!c->dx[0].data) return TP_OK;
    return tp_with_type(c, c->dx[0].dtype, [&](auto x) {
        using X = decltype(x);
        return tp_launch(c, spread_kernel<S, X>, tp_grid(c, p.rows * width), TP_THREADS, 0, p,
                         width, tp_in<S>(&c->dy[0]), tp_out<X>(&c->dx[0]));
    });
}

/* ---- rows before documents: first, x, offset ---- */

/* The row of y for row i of first, then x; -1: in no document. */
static __device__ inline int64_t longer_row(const tp_packing &p, int64_t i)
{
    if (i < p.n) return tp__offset(&p, i) + i;
    const int64_t row = i - p.n, b = tp__document_of(&p, row);
    const tp_rows at = tp__document(&p, b);
    return row >= at.first && row - at.first < at.count ? row + b + 1 : -1;
}

template <class W>
__global__ void __launch_bounds__(TP_THREADS)
    prepend_kernel(tp_packing p, int64_t words, const W *first, const W *x, W *y)
{
    TP_EACH (e, (p.n + p.rows) * words) {
        const int64_t i = tp_div(e, words), to = longer_row(p, i);
        if (to >= 0) y[to * words + e - i * words] = i < p.n ? first[e] : x[e - p.n * words];
    }
}

template <class W>
__global__ void __launch_bounds__(TP_THREADS)
    prepend_grad(tp_packing p, int64_t words, const W *dy, W *first, W *x)
{
    TP_EACH (e, (p.n + p.rows) * words) {
        const int64_t i = tp_div(e, words), from = longer_row(p, i);
        if (from < 0) continue;
        const W v = dy[from * words + e - i * words];
        if (i < p.n && first) first[e] = v;
        if (i >= p.n && x) x[e - p.n * words] = v;
    }
}

static __global__ void __launch_bounds__(TP_THREADS) longer_offsets(tp_packing p, void *to)
{
    TP_EACH (b, p.n + 1) {
        const int64_t at = tp__offset(&p, b) + b;
        if (p.wide)
            static_cast<int64_t *>(to)[b] = at;
        else
            static_cast<int32_t *>(to)[b] = (int32_t)at;
    }
}

static tp_code packed_prepend_fwd(const tp_call *c)
{
    const tp_packing p = packing_of(c, 1);
    const tp_view *y = &c->y[0];
    const int64_t bytes = width_of(y) * (int64_t)tp_dtype_size(y->dtype);
    const int word =
        tp_widest(bytes, (uintptr_t)c->x[0].data, (uintptr_t)c->x[1].data, (uintptr_t)y->data);
    const tp_code code =
        tp_launch(c, longer_offsets, tp_grid(c, p.n + 1), TP_THREADS, 0, p, c->y[1].data);
    if (code != TP_OK) return code;
    return tp_with_word(word, [&](auto w) {
        using W = decltype(w);
        return tp_launch(c, prepend_kernel<W>, tp_grid(c, y->dim[0] * bytes / word), TP_THREADS, 0,
                         p, bytes / word, static_cast<const W *>(c->x[0].data),
                         static_cast<const W *>(c->x[1].data), static_cast<W *>(y->data));
    });
}

static tp_code packed_prepend_bwd(const tp_call *c)
{
    const tp_packing p = packing_of(c, 1);
    const tp_view *dy = &c->dy[0];
    const int64_t bytes = width_of(dy) * (int64_t)tp_dtype_size(dy->dtype);
    const int word =
        tp_widest(bytes, (uintptr_t)c->dx[0].data, (uintptr_t)c->dx[1].data, (uintptr_t)dy->data);
    return tp_with_word(word, [&](auto w) {
        using W = decltype(w);
        return tp_launch(c, prepend_grad<W>, tp_grid(c, dy->dim[0] * bytes / word), TP_THREADS, 0,
                         p, bytes / word, static_cast<const W *>(dy->data),
                         static_cast<W *>(c->dx[0].data), static_cast<W *>(c->dx[1].data));
    });
}

TP_CUDA_KERNEL(packed_sum_fwd)
TP_CUDA_KERNEL(packed_sum_bwd)
TP_CUDA_KERNEL_UNTYPED(packed_prepend_fwd)
TP_CUDA_KERNEL_UNTYPED(packed_prepend_bwd)
