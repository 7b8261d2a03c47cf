/* cuda_gather.cu - gather and scatter_add along an axis, each the backward of the other.
 *
 * The index is a set of lines along the axis; a line reads from, or adds to, one line of the larger
 * tensor. Reading takes a thread an element: 8 bytes of index, one read, one write; bound by
 * memory.
 *
 * Sums are made in the order of the line, in float, without atomics: the bits are those of the CPU.
 * A thread owns up to PLACES places of one line, every G-th, looks at the whole index of the line
 * and adds what falls on them in shared memory. So each result is written once, side by side with
 * those of other threads, and the index is read size / PLACES times, from cache: long lines are
 * bound by that, and few long lines into few places by the latency of one thread. */
#include "cuda/move.cuh"
#include "tensor/shape.h"

enum { PLACES = 32, AHEAD = 8 };

static int axis_of(const tp_call *c)
{
    return tp__axis(c->x[0].ndim, *static_cast<const int *>(c->attr));
}

/* f of the index's type. */
template <class F> static tp_code with_index(const tp_call *c, F f)
{
    return c->x[1].dtype == TP_I32 ? f(tp_in<int32_t>(&c->x[1])) : f(tp_in<int64_t>(&c->x[1]));
}

/* ---- reading ---- */

/* Where the lines of elements of the index begin in the larger tensor; step along a line there. */
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

/* to[i] = from[index[i]]; NaN for an index that is out of range. */
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

/* The larger tensor as [outer][size][inner]. Thread u of the inner << shift that share an outer has
 * line u % inner and its places u / inner, that + (1 << shift), ... */
struct shares {
    tp_divisor threads, inner;
    int64_t outer, size;
    int shift;
    int64_t length, step; /* lines of the index */
    int n;                /* axes but the one; strides and sizes of the index */
    tp_divisor by[TP_MAX_DIMS];
    int64_t stride[TP_MAX_DIMS], limit[TP_MAX_DIMS];
};

static shares shares_of(const tp_call *c)
{
    const tp_view *big = &c->x[0], *index = &c->x[1];
    const int axis = axis_of(c);
    int64_t inner, step = 1;
    shares s = {};
    tp__axis_split(big, axis, &s.outer, &s.size, &inner);
    s.inner = tp_by(inner);
    while (s.size > (int64_t)PLACES << s.shift) s.shift++;
    s.threads = tp_by(inner << s.shift);
    for (int d = index->ndim - 1; d >= 0; d--) { /* last axis first */
        if (d == axis) {
            s.length = index->dim[d];
            s.step = step;
        } else {
            s.by[s.n] = tp_by(big->dim[d]);
            s.stride[s.n] = step;
            s.limit[s.n++] = index->dim[d];
        }
        step *= index->dim[d];
    }
    return s;
}

/* Where the index's line for a line of the larger tensor begins, or -1: it has none. */
static __device__ inline int64_t line_at(const shares &s, int64_t line)
{
    int64_t at = 0;
    for (int k = 0; k < s.n; k++) {
        const int64_t rest = tp_over(s.by[k], line), i = line - rest * s.by[k].d;
        if (i >= s.limit[k]) return -1;
        at += i * s.stride[k];
        line = rest;
    }
    return at;
}

/* to = old (NULL: 0), then to[index[i]] += from[i]. */
template <class S, class V, class I>
__global__ void __launch_bounds__(TP_THREADS)
    put_kernel(shares s, const I *index, const V *from, const S *old, S *to)
{
    TP_SHARED(float, sums, [PLACES][TP_THREADS]);
    const int me = threadIdx.x;
    TP_EACH (t, s.outer * s.threads.d) {
        const int64_t outer = tp_over(s.threads, t), u = t - outer * s.threads.d;
        const int64_t first = tp_over(s.inner, u), line = u - first * s.inner.d;
        const int64_t begin = line_at(s, outer * s.inner.d + line), group = (int64_t)1 << s.shift;
        const int64_t at = outer * s.size * s.inner.d + u;
        const int places = (int)((s.size - first + group - 1) >> s.shift);
        for (int j = 0; j < places; j++)
            sums[j][me] = old ? tp_float(old[at + j * s.threads.d]) : 0.0f;
        for (int64_t i = 0; begin >= 0 && i < s.length; i += AHEAD) {
            I k[AHEAD];
#pragma unroll
            for (int a = 0; a < AHEAD; a++)
                k[a] = i + a < s.length ? index[begin + (i + a) * s.step] : I(-1);
#pragma unroll
            for (int a = 0; a < AHEAD; a++)
                if (k[a] >= 0 && k[a] < s.size && (k[a] & (group - 1)) == first)
                    sums[k[a] >> s.shift][me] += tp_float(from[begin + (i + a) * s.step]);
        }
        for (int j = 0; j < places; j++) tp_put(to + at + j * s.threads.d, sums[j][me]);
    }
}

template <class S, class V> static tp_code put(const tp_call *c, const V *from, const S *old, S *to)
{
    const shares s = shares_of(c);
    return with_index(c, [&](auto index) {
        typedef
            typename std::remove_const<typename std::remove_pointer<decltype(index)>::type>::type I;
        return tp_launch(c, put_kernel<S, V, I>, tp_grid(c, s.outer * s.threads.d), TP_THREADS, 0,
                         s, index, from, old, to);
    });
}

/* ---- the ops ---- */

template <class S> static tp_code gather_fwd(const tp_call *c)
{
    return take(c, tp_in<S>(&c->x[0]), tp_out<S>(&c->y[0]));
}

template <class S> static tp_code gather_bwd(const tp_call *c)
{
    if (!c->dx[0].data) return TP_OK;
    return put(c, tp_in<S>(&c->dy[0]), (const S *)NULL, tp_out<S>(&c->dx[0]));
}

/* src may be of another floating dtype than x. */
template <class S> static tp_code scatter_add_fwd(const tp_call *c)
{
    return tp_with_type(c, c->x[2].dtype, [&](auto v) {
        return put(c, tp_in<decltype(v)>(&c->x[2]), tp_in<S>(&c->x[0]), tp_out<S>(&c->y[0]));
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

TP_CUDA_KERNEL(gather_fwd)
TP_CUDA_KERNEL(gather_bwd)
TP_CUDA_KERNEL(scatter_add_fwd)
TP_CUDA_KERNEL(scatter_add_bwd)
