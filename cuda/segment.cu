/* segment.cu - the maximum of the rows of each segment.
 *
 * Each element of x raises the entry of its segment and column to (value, row) by an atomic maximum
 * of 64 bits: values in the order of their bits, rows reversed, so that NaN wins over every number
 * and of equal values the first, whatever the order of the threads. Reads x once; bound by memory,
 * or by the atomics where many rows share a segment. A segment out of range is left out. */
#include "cuda/kit/move.cuh"

typedef unsigned long long entry; /* 0: no row */

/* Grows with the value. Above 0 for all, largest for NaN. */
static __device__ inline uint32_t ordered(float x)
{
    if (x != x) return 0xffffffffu;
    if (x == 0.0f) x = 0.0f; /* -0 equals 0 */
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

template <class S, class I>
__global__ void __launch_bounds__(TP_THREADS)
    raise_kernel(tp_divisor columns, int64_t numel, int64_t n, const I *segment, const S *x,
                 entry *most)
{
    TP_EACH (e, numel) {
        const int64_t row = tp_over(columns, e), s = segment[row];
        if (s < 0 || s >= n) continue;
        const entry own = (entry)ordered(tp_float(x[e])) << 32 | (0xffffffffu - (uint32_t)row);
        atomicMax(most + s * columns.d + (e - row * columns.d), own);
    }
}

template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    take_kernel(tp_divisor columns, int64_t numel, const entry *most, const S *x, S *y, int64_t *at)
{
    TP_EACH (e, numel) {
        const int64_t row = 0xffffffffu - (uint32_t)most[e];
        at[e] = most[e] ? row : -1;
        tp_put(y + e,
               most[e] ? tp_float(x[row * columns.d + e - tp_over(columns, e) * columns.d]) : 0.0f);
    }
}

static int64_t columns_of(const tp_view *x)
{
    int64_t n = 1;
    for (int d = 1; d < x->ndim; d++) n *= x->dim[d];
    return n;
}

template <class S, class I> static tp_code find(const tp_call *c, const I *segment)
{
    const tp_view *x = &c->x[0], *y = &c->y[0];
    const tp_divisor columns = tp_by(columns_of(x));
    entry *most = static_cast<entry *>(c->work);
    tp_code code = tp__cuda_zero(c, most, (size_t)y->numel * sizeof *most);
    if (code == TP_OK && x->numel)
        code = tp_launch(c, raise_kernel<S, I>, tp_grid(c, x->numel), TP_THREADS, 0, columns,
                         x->numel, y->dim[0], segment, tp_in<S>(x), most);
    if (code != TP_OK) return code;
    return tp_launch(c, take_kernel<S>, tp_grid(c, y->numel), TP_THREADS, 0, columns, y->numel,
                     (const entry *)most, tp_in<S>(x), tp_out<S>(y), tp_out<int64_t>(&c->y[1]));
}

template <class S> static tp_code segment_max_fwd(const tp_call *c)
{
    return c->x[1].dtype == TP_I32 ? find<S>(c, tp_in<int32_t>(&c->x[1]))
                                   : find<S>(c, tp_in<int64_t>(&c->x[1]));
}

/* A row belongs to one segment, so no element of dx is written twice. */
template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    put_kernel(tp_divisor columns, int64_t numel, const int64_t *at, const S *dy, S *dx)
{
    TP_EACH (e, numel)
        if (at[e] >= 0) dx[at[e] * columns.d + e - tp_over(columns, e) * columns.d] = dy[e];
}

template <class S> static tp_code segment_max_bwd(const tp_call *c)
{
    const tp_view *dx = &c->dx[0];
    if (!dx->data || dx->numel == 0) return TP_OK;
    const tp_code code = tp__cuda_zero(c, dx->data, (size_t)dx->numel * sizeof(S));
    if (code != TP_OK || c->dy[0].numel == 0) return code;
    return tp_launch(c, put_kernel<S>, tp_grid(c, c->dy[0].numel), TP_THREADS, 0,
                     tp_by(columns_of(dx)), c->dy[0].numel, tp_in<int64_t>(&c->y[1]),
                     tp_in<S>(&c->dy[0]), tp_out<S>(dx));
}

static size_t segment_max_work(const tp_call *c)
{
    return tp_is_backward(c) ? 0 : (size_t)c->y[0].numel * sizeof(entry);
}

TP_CUDA_WORK(segment_max_work)
TP_CUDA_KERNEL(segment_max_fwd)
TP_CUDA_KERNEL(segment_max_bwd)
