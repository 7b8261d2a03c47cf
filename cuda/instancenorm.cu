/* instancenorm.cu - normalises each channel of each image of X [B,positions,C] by its own statistics;
 * formulas as in tensor/cpu/instancenorm.c, kernels of channel_norm.cuh.
 *
 * A block of threads covers 8 packs of channels of an image. Forward reads x for the statistics and
 * again to normalise: 12 bytes per element (f32; half of that in bf16); backward reads x and dy
 * twice: 20. About 20 operations per element: bound by memory, and by latency where images times
 * packs are few. */
#include "cuda/kit/channel_norm.cuh"
#include "tensor/geometry/norms.h"

/* All images as one matrix in which an image is a block of rows. */
static tp_matrix matrix_of(const tp_call *c)
{
    const int64_t B = c->y[1].dim[0], C = c->y[1].dim[2], rows = c->x[0].numel / C;
    return { rows, C, rows / B };
}

static tp_channel_stats stats_of(const tp_call *c)
{
    const float *m = tp_in<float>(&c->y[1]);
    const int64_t C = c->y[1].dim[2];
    return { m, m + C, 2 * C };
}

/* Replaces the second half of stats [B][2][C], squared deviations v, by 1 / sqrt(v / positions +
 * eps). */
__global__ void __launch_bounds__(TP_THREADS)
    scale_kernel(int64_t n, int64_t C, float positions, float eps, float *stats)
{
    TP_EACH (i, n) {
        const int64_t image = tp_div(i, C), at = (2 * image + 1) * C + i - image * C;
        stats[at] = 1.0f / sqrtf(stats[at] / positions + eps);
    }
}

template <class S> static tp_code instancenorm_fwd(const tp_call *c)
{
    const float eps = (float)static_cast<const tp__instancenorm_attr *>(c->attr)->eps;
    if (c->x[0].numel == 0)
        return tp__cuda_zero(c, c->y[1].data, (size_t)c->y[1].numel * sizeof(float));
    const tp_matrix a = matrix_of(c);
    const tp_row_param w = tp_row_param_of(c, 1, 1.0f), b = tp_row_param_of(c, 2, 0.0f);
    const int64_t n = c->y[1].numel / 2;
    float *stats = tp_out<float>(&c->y[1]);
    return tp_with_packs<S>(tp_aligned(c->x[0].data, c->y[0].data, w.at, b.at), a.C, [&](auto p) {
        constexpr int N = decltype(p)::value;
        tp_code code = tp_launch(c, tp_moments_kernel<S, N>, tp_grid(c, tp_tiles(a, N), 1),
                                 TP_THREADS, 0, a, tp_in<S>(&c->x[0]), stats);
        if (code == TP_OK)
            code = tp_launch(c, scale_kernel, tp_grid(c, n), TP_THREADS, 0, n, a.C, (float)a.size,
                             eps, stats);
        if (code != TP_OK) return code;
        return tp_launch(c, tp_normalise_kernel<S, N>, tp_grid(c, a.rows * a.C / N), TP_THREADS, 0,
                         a, stats_of(c), w, b, tp_in<S>(&c->x[0]), tp_out<S>(&c->y[0]));
    });
}

/* c->work: the sums of dy h and of dy of each image, [B][2][C]. */
template <class S, int N> static tp_code grad(const tp_call *c, const tp_matrix &a)
{
    const tp_channel_stats stats = stats_of(c);
    const S *x = tp_in<S>(&c->x[0]), *dy = tp_in<S>(&c->dy[0]);
    float *sums = static_cast<float *>(c->work);
    tp_code code = tp_launch(c, tp_channel_sums<S, N>, tp_grid(c, tp_tiles(a, N), 1), TP_THREADS, 0,
                             a, stats, x, dy, sums);
    for (int i = 0; i < 2; i++)
        if (code == TP_OK && c->dx[1 + i].data)
            code = tp_add_parts(c, a.C, a.rows / a.size, 2 * a.C, sums + i * a.C, 1 + i);
    if (code != TP_OK || !c->dx[0].data) return code;
    return tp_launch(c, tp_channel_grad<S, N>, tp_grid(c, a.rows * a.C / N), TP_THREADS, 0, a,
                     1.0f / (float)a.size, stats, tp_row_param_of(c, 1, 1.0f), sums, sums + a.C, x,
                     dy, tp_out<S>(&c->dx[0]));
}

template <class S> static tp_code instancenorm_bwd(const tp_call *c)
{
    const tp_row_param w = tp_row_param_of(c, 1, 1.0f);
    tp_code code = TP_OK;
    for (int i = 1; i < 3 && c->x[0].numel == 0; i++)
        if (code == TP_OK && c->dx[i].data)
            code = tp__cuda_zero(c, c->dx[i].data,
                                 (size_t)c->dx[i].numel * tp_dtype_size(c->dx[i].dtype));
    if (c->x[0].numel == 0) return code;
    const tp_matrix a = matrix_of(c);
    return tp_with_packs<S>(tp_aligned(c->x[0].data, c->dy[0].data, c->dx[0].data, w.at), a.C,
                            [&](auto n) { return grad<S, decltype(n)::value>(c, a); });
}

TP_CUDA_KERNEL(instancenorm_fwd)
TP_CUDA_KERNEL(instancenorm_bwd)
