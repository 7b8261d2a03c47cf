/* softmax.cu - softmax and its logarithm over the rows of X [rows,n].
 *
 *     softmax      y = e^(x - max) / sum     dx = y (dy - sum_j dy_j y_j)
 *     log_softmax  y = x - max - log(sum)    dx = dy - e^y sum_j dy_j
 *
 * A block processes a row and keeps it as floats in shared memory if it fits (n <= 12288), so that
 * each element is read and written once: 8 bytes forward, 12 backward (f32), bound by memory.
 * Longer rows are reread. */
#include "cuda/kit/kernel.cuh"

enum { KEPT = 12288 }; /* elements of a row in shared memory, 48 KiB */

static int64_t row_of(const tp_call *c)
{
    return c->y[0].dim[c->y[0].ndim - 1];
}

static int threads_for(int64_t n)
{
    return n <= 128 ? 32 : n <= 1024 ? 128 : 512;
}

template <bool LOG, class S>
__global__ void __launch_bounds__(512)
    softmax_kernel(int64_t rows, int64_t n, bool kept, const S *x, S *y)
{
    TP_SHARED_REST(float, row);
    TP_EACH_BLOCK (r, rows) {
        const S *from = x + r * n;
        float top = -INFINITY, sum = 0.0f;
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            const float v = tp_float(from[i]);
            if (kept) row[i] = v;
            top = tp_max_of::join(top, v);
        }
        top = tp_block<tp_max_of>(top);
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            const float e = expf((kept ? row[i] : tp_float(from[i])) - top);
            if (kept && !LOG) row[i] = e;
            sum += e;
        }
        sum = tp_block<tp_sum_of>(sum);
        const float k = LOG ? logf(sum) : 1.0f / sum;
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            const float v = kept ? row[i] : tp_float(from[i]);
            if (LOG)
                tp_put(y + r * n + i, v - top - k);
            else
                tp_put(y + r * n + i, (kept ? v : expf(v - top)) * k);
        }
    }
}

template <bool LOG, class S>
__global__ void __launch_bounds__(512)
    softmax_grad(int64_t rows, int64_t n, bool kept, const S *y, const S *dy, S *dx)
{
    TP_SHARED_REST(float, row);
    TP_EACH_BLOCK (r, rows) {
        float sum = 0.0f;
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            const float g = tp_float(dy[r * n + i]), v = tp_float(y[r * n + i]);
            sum += LOG ? g : g * v;
            if (kept) {
                row[i] = g;
                row[n + i] = v;
            }
        }
        sum = tp_block<tp_sum_of>(sum);
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            const float g = kept ? row[i] : tp_float(dy[r * n + i]);
            const float v = kept ? row[n + i] : tp_float(y[r * n + i]);
            tp_put(dx + r * n + i, LOG ? g - expf(v) * sum : v * (g - sum));
        }
    }
}

template <bool LOG, class S> static tp_code forward(const tp_call *c)
{
    const int64_t n = row_of(c), rows = n ? c->y[0].numel / n : 0;
    const bool kept = n <= KEPT;
    return tp_launch(c, softmax_kernel<LOG, S>, tp_grid(c, rows, 1), threads_for(n),
                     kept ? (size_t)n * sizeof(float) : 0, rows, n, kept, tp_in<S>(&c->x[0]),
                     tp_out<S>(&c->y[0]));
}

template <bool LOG, class S> static tp_code backward(const tp_call *c)
{
    const int64_t n = row_of(c), rows = n ? c->y[0].numel / n : 0;
    const bool kept = 2 * n <= KEPT;
    if (!c->dx[0].data) return TP_OK;
    return tp_launch(c, softmax_grad<LOG, S>, tp_grid(c, rows, 1), threads_for(n),
                     kept ? (size_t)(2 * n) * sizeof(float) : 0, rows, n, kept, tp_in<S>(&c->y[0]),
                     tp_in<S>(&c->dy[0]), tp_out<S>(&c->dx[0]));
}

template <class S> static tp_code softmax_fwd(const tp_call *c)
{
    return forward<false, S>(c);
}
template <class S> static tp_code softmax_bwd(const tp_call *c)
{
    return backward<false, S>(c);
}
template <class S> static tp_code log_softmax_fwd(const tp_call *c)
{
    return forward<true, S>(c);
}
template <class S> static tp_code log_softmax_bwd(const tp_call *c)
{
    return backward<true, S>(c);
}

TP_CUDA_KERNEL(softmax_fwd)
TP_CUDA_KERNEL(softmax_bwd)
TP_CUDA_KERNEL(log_softmax_fwd)
TP_CUDA_KERNEL(log_softmax_bwd)
