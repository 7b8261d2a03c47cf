/* weight_standardize.cu - standardises the rows of W [Co,n]; formulas as in
 * cpu/weight_standardize.c.
 *
 * A warp processes a row and reads it three times forward, twice backward, mostly from cache: 8 and
 * 12 bytes per element (f32). Weights are small: launches dominate. */
#include "cuda/kit/kernel.cuh"
#include "tensor/geometry/norms.h"

enum { WARPS = TP_THREADS / 32 };

template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    standardize_kernel(int64_t rows, int64_t n, float eps, bool biased, const S *w, S *y,
                       float *stats)
{
    const int lane = threadIdx.x % 32;
    for (int64_t r = tp_warp_number(); r < rows; r += tp_warps()) {
        const S *row = w + r * n;
        float m = 0.0f, v = 0.0f;
        for (int64_t i = lane; i < n; i += 32) m += tp_float(row[i]);
        m = tp_warp<tp_sum_of>(m) / (float)n;
        for (int64_t i = lane; i < n; i += 32) v += (tp_float(row[i]) - m) * (tp_float(row[i]) - m);
        v = tp_warp<tp_sum_of>(v);
        const float std = sqrtf(v / (float)(biased ? n : n - 1));
        const float s =
            v == INFINITY ? NAN : 1.0f / (biased ? sqrtf(v / (float)n + eps) : std + eps);
        for (int64_t i = lane; i < n; i += 32) tp_put(y + r * n + i, (tp_float(row[i]) - m) * s);
        if (lane > 0) continue;
        stats[3 * r] = m;
        stats[3 * r + 1] = s;
        const float k = biased       ? s * s * s / (float)n
                        : std > 0.0f ? s * s / ((float)(n - 1) * std)
                                     : 0.0f;
        stats[3 * r + 2] = k == 0.0f && std > 0.0f && n > 1 ? NAN : k; /* as on the CPU */
    }
}

template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    standardize_grad(int64_t rows, int64_t n, const S *w, const S *dy, const float *stats, S *dw)
{
    const int lane = threadIdx.x % 32;
    for (int64_t r = tp_warp_number(); r < rows; r += tp_warps()) {
        const float m = stats[3 * r], s = stats[3 * r + 1];
        float sum_dy = 0.0f, sum_dyh = 0.0f;
        for (int64_t i = r * n + lane; i < (r + 1) * n; i += 32) {
            sum_dy += tp_float(dy[i]);
            sum_dyh += tp_float(dy[i]) * (tp_float(w[i]) - m);
        }
        const float mean_dy = tp_warp<tp_sum_of>(sum_dy) / (float)n;
        const float k = stats[3 * r + 2] * tp_warp<tp_sum_of>(sum_dyh);
        for (int64_t i = r * n + lane; i < (r + 1) * n; i += 32)
            tp_put(dw + i, s * (tp_float(dy[i]) - mean_dy) - k * (tp_float(w[i]) - m));
    }
}

template <class S> static tp_code standardize_fwd(const tp_call *c)
{
    const tp__standardize_attr *at = static_cast<const tp__standardize_attr *>(c->attr);
    const int64_t rows = c->y[1].dim[0];
    if (c->x[0].numel == 0)
        return tp__cuda_zero(c, c->y[1].data, (size_t)c->y[1].numel * sizeof(float));
    return tp_launch(c, standardize_kernel<S>, tp_grid(c, rows, WARPS), TP_THREADS, 0, rows,
                     c->x[0].numel / rows, (float)at->eps, at->biased, tp_in<S>(&c->x[0]),
                     tp_out<S>(&c->y[0]), tp_out<float>(&c->y[1]));
}

template <class S> static tp_code standardize_bwd(const tp_call *c)
{
    const int64_t rows = c->y[1].dim[0];
    if (!c->dx[0].data || c->x[0].numel == 0) return TP_OK;
    return tp_launch(c, standardize_grad<S>, tp_grid(c, rows, WARPS), TP_THREADS, 0, rows,
                     c->x[0].numel / rows, tp_in<S>(&c->x[0]), tp_in<S>(&c->dy[0]),
                     tp_in<float>(&c->y[1]), tp_out<S>(&c->dx[0]));
}

TP_CUDA_KERNEL(standardize_fwd)
TP_CUDA_KERNEL(standardize_bwd)
