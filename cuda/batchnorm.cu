/* batchnorm.cu - normalises each channel of X [rows,C] by its column's statistics or by running
 * statistics; formulas: cpu/batchnorm.c.
 *
 * Training reads x for the statistics and again to normalise: 12 bytes per element (f32; half of
 * that in bf16). Backward reads x and dy twice: 20 bytes. Evaluation moves 8 bytes forward;
 * backward 20 with gradients of w and b, 8 without. About 20 operations per element: bound by
 * memory. */
#include "cuda/kit/channel_norm.cuh"
#include "tensor/geometry/norms.h"

static tp_matrix matrix_of(const tp_call *c)
{
    return tp_matrix_of(&c->x[0], c->x[3].dim[0]);
}

/* ---- statistics of a batch ---- */

/* The update of the running statistics. */
struct running {
    float *mean, *var; /* NULL: not updated */
    int64_t *batches;  /* the counter of updates, or NULL */
    float keep, eps;
    bool raw; /* s gets the sum of squared deviations: other processes share the batch */
};

__global__ void __launch_bounds__(1024)
    merge_kernel(tp_matrix a, running to, const float *part, float *m, float *s)
{
    tp_join_moments(a, part, [=](int64_t, int64_t i, const tp_moments &v) {
        m[i] = v.m;
        s[i] = to.raw ? v.v : tp_inverse_root((v.n > 0.0f ? v.v / v.n : 0.0f) + to.eps);
        if (to.mean && v.n > 1.0f) {
            to.mean[i] = to.keep * to.mean[i] + (1.0f - to.keep) * v.m;
            to.var[i] = to.keep * to.var[i] + (1.0f - to.keep) * (v.v / (v.n - 1.0f));
            if (i == 0 && to.batches) ++*to.batches;
        }
    });
}

__global__ void __launch_bounds__(TP_THREADS)
    running_kernel(int64_t C, const float *mean, const float *var, float eps, float *m, float *s)
{
    TP_EACH (i, C) {
        m[i] = mean[i];
        s[i] = tp_inverse_root(var[i] + eps);
    }
}

/* ---- the processes that share the batch (tensor/together.h) ---- */

__global__ void __launch_bounds__(TP_THREADS)
    joined_kernel(int64_t C, float rows, running to, float *m, float *s)
{
    TP_EACH (i, C) {
        const float squares = s[i];
        s[i] = tp_inverse_root((rows > 0.0f ? squares / rows : 0.0f) + to.eps);
        if (to.mean && rows > 1.0f) {
            to.mean[i] = to.keep * to.mean[i] + (1.0f - to.keep) * m[i];
            to.var[i] = to.keep * to.var[i] + (1.0f - to.keep) * (squares / (rows - 1.0f));
            if (i == 0 && to.batches) ++*to.batches;
        }
    }
}

/* Sets m and s of this call: in training from the batch, also updating the running statistics, else
 * from these. */
template <class S, int N> static tp_code statistics(const tp_call *c, const tp_matrix &a)
{
    const tp__batchnorm_attr *at = static_cast<const tp__batchnorm_attr *>(c->attr);
    const float eps = (float)at->eps;
    float *mean = tp_out<float>(&c->x[3]), *var = tp_out<float>(&c->x[4]);
    float *m = tp_out<float>(&c->y[1]), *s = tp_out<float>(&c->y[2]);
    float *part = static_cast<float *>(c->work);
    if (!c->train)
        return tp_launch(c, running_kernel, tp_grid(c, a.C), TP_THREADS, 0, a.C, mean, var, eps, m,
                         s);
    int64_t *const batches = tp_absent(&c->x[5]) ? NULL : tp_out<int64_t>(&c->x[5]);
    const bool joins = tp__cuda_joins(c);
    const running to = { c->replay ? NULL : mean,     var, batches,
                         (float)(1.0 - at->momentum), eps, false };
    running first = to;
    first.raw = joins;
    if (joins) first.mean = NULL;
    const int64_t blocks = tp_row_blocks(a.rows, TP_TILE_ROWS);
    tp_code code = tp_launch(c, tp_moments_kernel<S, N>, tp_grid(c, tp_tiles(a, N), 1), TP_THREADS,
                             0, a, tp_in<S>(&c->x[0]), part);
    if (code == TP_OK)
        code = tp_launch(c, merge_kernel, tp_grid(c, a.C, 32), tp_part_threads(blocks), 0, a, first,
                         part, m, s);
    double rows = (double)a.rows;
    if (code != TP_OK || !joins) return code;
    code = tp__cuda_join(c, a.C, &rows, m, s, true);
    if (code != TP_OK) return code;
    return tp_launch(c, joined_kernel, tp_grid(c, a.C), TP_THREADS, 0, a.C, (float)rows, to, m, s);
}

static tp_channel_stats stats_of(const tp_call *c)
{
    return { tp_in<float>(&c->y[1]), tp_in<float>(&c->y[2]), 0 };
}

template <class S> static tp_code batchnorm_fwd(const tp_call *c)
{
    const tp_matrix a = matrix_of(c);
    const tp_row_param w = tp_row_param_of(c, 1, 1.0f), b = tp_row_param_of(c, 2, 0.0f);
    return tp_with_packs<S>(tp_aligned(c->x[0].data, c->y[0].data, w.at, b.at), a.C, [&](auto n) {
        constexpr int N = decltype(n)::value;
        const tp_code code = statistics<S, N>(c, a);
        if (code != TP_OK) return code;
        return tp_launch(c, tp_normalise_kernel<S, N>, tp_grid(c, a.rows * a.C / N), TP_THREADS, 0,
                         a, stats_of(c), w, b, tp_in<S>(&c->x[0]), tp_out<S>(&c->y[0]));
    });
}

/* ---- backward ---- */

/* c->work: the sums of dy h and of dy, [2][C], then their parts by block of rows,
 * [blocks][2][C]. */
template <class S, int N> static tp_code grad(const tp_call *c, const tp_matrix &a)
{
    const int64_t C = a.C, blocks = tp_row_blocks(a.rows, TP_TILE_ROWS);
    const tp_channel_stats stats = stats_of(c);
    const S *x = tp_in<S>(&c->x[0]), *dy = tp_in<S>(&c->dy[0]);
    float *sums = static_cast<float *>(c->work), *part = sums + 2 * C;
    tp_code code = TP_OK;
    if (c->train || c->dx[1].data || c->dx[2].data) {
        code = tp_launch(c, tp_channel_sums<S, N>, tp_grid(c, tp_tiles(a, N), 1), TP_THREADS, 0, a,
                         stats, x, dy, part);
        if (code == TP_OK)
            code = tp_add_sets(c, 1, 2 * C, blocks, 2 * C, part, sums, tp_as_it_is());
    }
    if (code == TP_OK) code = tp_add_affine(c, C, 1, sums);
    double rows = (double)a.rows;
    if (code == TP_OK && c->train && tp__cuda_joins(c))
        code = tp__cuda_join(c, C, &rows, sums, sums + C, false);
    if (code != TP_OK || !c->dx[0].data) return code;
    const tp_row_param w = tp_row_param_of(c, 1, 1.0f);
    return tp_launch(c, tp_channel_grad<S, N>, tp_grid(c, a.rows * C / N), TP_THREADS, 0, a,
                     c->train ? 1.0f / (float)rows : 0.0f, stats, w, w, sums, sums + C, x, dy,
                     tp_out<S>(&c->dx[0]));
}

template <class S> static tp_code batchnorm_bwd(const tp_call *c)
{
    const tp_matrix a = matrix_of(c);
    const bool aligned =
        tp_aligned(c->x[0].data, c->dy[0].data, c->dx[0].data, tp_row_param_of(c, 1, 1.0f).at);
    return tp_with_packs<S>(aligned, a.C,
                            [&](auto n) { return grad<S, decltype(n)::value>(c, a); });
}

static size_t batchnorm_work(const tp_call *c)
{
    const tp_matrix a = matrix_of(c);
    if (!tp_is_backward(c) && !c->train) return 0;
    return (size_t)((tp_row_blocks(a.rows, TP_TILE_ROWS) + 1) * 2 * a.C) * sizeof(float);
}

TP_CUDA_WORK(batchnorm_work)
TP_CUDA_KERNEL(batchnorm_fwd)
TP_CUDA_KERNEL(batchnorm_bwd)
