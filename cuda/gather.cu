/* gather.cu - gather and scatter_add along an axis, each the backward of the other.
 *
 * The index consists of lines along the axis; a line reads from, or adds to, one line of the larger
 * tensor. Reading takes one thread per element: 8 bytes of index, one read, one write. Adding sorts
 * the target elements (keyed_sums.cuh), in one pass per byte of their number; a pass moves 24 bytes
 * per element of the index. Bound by memory. */
#include "cuda/kit/keyed_sums.cuh"
#include "tensor/shape.h"

static int axis_of(const tp_call *c)
{
    return tp__axis(c->x[0].ndim, *static_cast<const int *>(c->attr));
}

/* Calls f with the index in its type. */
template <class F> static tp_code with_index(const tp_call *c, F f)
{
    return c->x[1].dtype == TP_I32 ? f(tp_in<int32_t>(&c->x[1])) : f(tp_in<int64_t>(&c->x[1]));
}

/* ---- reading ---- */

/* Offsets in the larger tensor where the index's lines begin; step: along a line. */
struct lines {
    tp_places begin;
    int64_t size, step;
};

static lines lines_of(const tp_call *c)
{
    const tp_view *big = &c->x[0], *index = &c->x[1];
    const int axis = axis_of(c);
    tp_axes x = {};
    lines l = { {}, big->dim[axis], 1 };
    int64_t stride[TP_MAX_DIMS], step = 1;
    for (int d = big->ndim - 1; d >= 0; d--) {
        stride[d] = d == axis ? 0 : step;
        if (d == axis) l.step = step;
        step *= big->dim[d];
    }
    for (int d = 0; d < index->ndim; d++) {
        const bool again =
            x.n > 0 && d != axis && d - 1 != axis && stride[d - 1] == index->dim[d] * stride[d];
        if (!again) x.dim[x.n++] = 1;
        x.dim[x.n - 1] *= index->dim[d];
        x.stride[x.n - 1] = stride[d];
    }
    l.begin = tp_places_of(x, 1);
    return l;
}

/* to[i] = from[index[i]], NaN for an index out of range. */
template <class S, class Y, class I>
__global__ void __launch_bounds__(TP_THREADS)
    take_kernel(lines l, int64_t n, const I *index, const S *from, Y *to)
{
    TP_EACH (i, n) {
        const int64_t k = index[i];
        const bool inside = k >= 0 && k < l.size;
        tp_put(to + i, inside ? tp_float(from[tp_place(l.begin, i) + k * l.step]) : NAN);
    }
}

template <class S, class Y> static tp_code take(const tp_call *c, const S *from, Y *to)
{
    const int64_t n = c->x[1].numel;
    return with_index(c, [&](auto index) {
        typedef
            typename std::remove_const<typename std::remove_pointer<decltype(index)>::type>::type I;
        return tp_launch(c, take_kernel<S, Y, I>, tp_grid(c, n), TP_THREADS, 0, lines_of(c), n,
                         index, from, to);
    });
}

/* ---- adding ---- */

/* The element of the larger tensor addressed by index i, or -1 if out of range. */
template <class I> struct place_of {
    lines l;
    const I *index;
    __device__ int64_t operator()(int64_t i) const
    {
        const int64_t k = index[i];
        return k >= 0 && k < l.size ? tp_place(l.begin, i) + k * l.step : -1;
    }
};

/* to[index[i]] += from[i]; without `add`, `to` holds 0. c->work: tp_keyed_sums_work(n, 1). */
template <class V, class S> static tp_code put(const tp_call *c, bool add, const V *from, S *to)
{
    return with_index(c, [&](auto index) {
        typedef
            typename std::remove_const<typename std::remove_pointer<decltype(index)>::type>::type I;
        const place_of<I> places = { lines_of(c), index };
        return tp_add_by_key(c, places, c->x[1].numel, c->x[0].numel, 1, 1.0f, add, from, to);
    });
}

/* ---- the ops ---- */

template <class S> static tp_code gather_fwd(const tp_call *c)
{
    return take(c, tp_in<S>(&c->x[0]), tp_out<S>(&c->y[0]));
}

template <class S> static tp_code gather_bwd(const tp_call *c)
{
    const tp_view *dx = &c->dx[0];
    if (!dx->data || dx->numel == 0) return TP_OK;
    const tp_code code = tp__cuda_zero(c, dx->data, (size_t)dx->numel * sizeof(S));
    return code == TP_OK ? put(c, false, tp_in<S>(&c->dy[0]), tp_out<S>(dx)) : code;
}

/* src may differ from x in floating-point dtype. */
template <class S> static tp_code scatter_add_fwd(const tp_call *c)
{
    const tp_view *y = &c->y[0];
    if (y->numel == 0) return TP_OK;
    const tp_code code = tp__cuda_copy(c, y->data, c->x[0].data, (size_t)y->numel * sizeof(S));
    if (code != TP_OK) return code;
    return tp_with_type(c, c->x[2].dtype, [&](auto v) {
        return put(c, true, tp_in<decltype(v)>(&c->x[2]), tp_out<S>(y));
    });
}

template <class S> static tp_code scatter_add_bwd(const tp_call *c)
{
    const tp_view *dy = &c->dy[0], *dx = c->dx;
    tp_code code = TP_OK;
    if (dx[0].data && dx[0].numel)
        code = tp__cuda_copy(c, dx[0].data, dy->data, dx[0].numel * sizeof(S));
    if (code != TP_OK || !dx[2].data) return code;
    return tp_with_type(c, dx[2].dtype,
                        [&](auto v) { return take(c, tp_in<S>(dy), tp_out<decltype(v)>(&dx[2])); });
}

/* Needed to add values: in gather's backward and scatter_add's forward. */
static size_t gather_work(const tp_call *c)
{
    return tp_is_backward(c) ? tp_keyed_sums_work(c->x[1].numel, 1) : 0;
}

static size_t scatter_add_work(const tp_call *c)
{
    return tp_is_backward(c) ? 0 : tp_keyed_sums_work(c->x[1].numel, 1);
}

TP_CUDA_WORK(gather_work)
TP_CUDA_WORK(scatter_add_work)
TP_CUDA_KERNEL(gather_fwd)
TP_CUDA_KERNEL(gather_bwd)
TP_CUDA_KERNEL(scatter_add_fwd)
TP_CUDA_KERNEL(scatter_add_bwd)
