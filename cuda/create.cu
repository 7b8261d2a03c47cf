/* create.cu - numbers in equal steps, and triangles of matrices. Bound by memory: arange writes
 * each element once, a triangle reads kept elements and writes all. */
#include "cuda/kit/move.cuh"
#include "tensor/geometry/create.h"

/* ---- arange ---- */

static __device__ inline void put_number(float *y, double v)
{
    *y = (float)v;
}

static __device__ inline void put_number(bf16 *y, double v)
{
    tp_put(y, (float)v);
}

template <class S> static __device__ inline void put_number(S *y, double v)
{
    *y = (S)v;
}

template <class S>
__global__ void __launch_bounds__(TP_THREADS) arange_kernel(tp_arange_attr a, S *y)
{
    TP_EACH (i, a.n) put_number(y + i, tp__arange_at(&a, (double)i));
}

template <class S> static tp_code arange(const tp_call *c)
{
    const tp_arange_attr a = *static_cast<const tp_arange_attr *>(c->attr);
    return tp_launch(c, arange_kernel<S>, tp_grid(c, a.n), TP_THREADS, 0, a,
                     static_cast<S *>(c->y[0].data));
}

static tp_code arange_fwd(const tp_call *c)
{
    switch (c->y[0].dtype) {
    case TP_F32: return arange<float>(c);
    case TP_BF16: return arange<bf16>(c);
    case TP_I32: return arange<int32_t>(c);
    case TP_I64: return arange<int64_t>(c);
    case TP_U8: return arange<uint8_t>(c);
    default: return tp_no_dtype(c, c->y[0].dtype);
    }
}

/* ---- triangles ---- */

struct triangle_places {
    tp_triangle_attr attr;
    tp_divisor columns, rows;
};

template <class W>
__global__ void __launch_bounds__(TP_THREADS)
    triangle_kernel(triangle_places p, int64_t n, const W *from, W *to)
{
    TP_EACH (i, n) {
        const int64_t row = tp_over(p.columns, i), column = i - row * p.columns.d;
        const tp_triangle_row stay =
            tp__triangle_row(p.attr, row - tp_over(p.rows, row) * p.rows.d, p.columns.d);
        to[i] = column >= stay.begin && column < stay.end ? from[i] : W();
    }
}

static tp_code triangle(const tp_call *c, const tp_view *from, const tp_view *to)
{
    const int64_t n = to->numel;
    if (!to->data || n == 0) return TP_OK;
    const triangle_places p = { *static_cast<const tp_triangle_attr *>(c->attr),
                                tp_by(to->dim[to->ndim - 1]), tp_by(to->dim[to->ndim - 2]) };
    return tp_with_element((int)tp_dtype_size(to->dtype), [&](auto w) {
        using W = decltype(w);
        return tp_launch(c, triangle_kernel<W>, tp_grid(c, n), TP_THREADS, 0, p, n,
                         static_cast<const W *>(from->data), static_cast<W *>(to->data));
    });
}

static tp_code triangle_fwd(const tp_call *c)
{
    return triangle(c, &c->x[0], &c->y[0]);
}

static tp_code triangle_bwd(const tp_call *c)
{
    return triangle(c, &c->dy[0], &c->dx[0]);
}

TP_CUDA_KERNEL_UNTYPED(arange_fwd)
TP_CUDA_KERNEL_UNTYPED(triangle_fwd)
TP_CUDA_KERNEL_UNTYPED(triangle_bwd)
