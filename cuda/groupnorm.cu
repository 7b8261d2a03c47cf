/* groupnorm.cu - normalises each group of channels of each image of X [B,positions,C] by its
 * statistics; formulas: cpu/groupnorm.c, kernels: channel_norm.cuh.
 *
 * A block of threads covers 8 packs of channels of an image, or of a span of its positions if these
 * are few; sums are then joined by span and by group. Forward reads x for the statistics and again
 * to normalise: 12 bytes per element (f32; half in bf16); backward reads x and dy twice: 20. About
 * 20 operations per element: bound by memory. */
#include "cuda/kit/channel_norm.cuh"
#include "tensor/geometry/norms.h"

enum { BLOCKS = 512 }; /* enough for any GPU */

/* All images, which are not empty, in equal spans. */
static tp_matrix matrix_of(const tp_call *c)
{
    const int64_t B = c->y[1].dim[0], C = c->y[1].dim[2], rows = c->x[0].numel / C,
                  image = rows / B;
    const int64_t width = TP_TILE_LANES * (int64_t)(16 / tp_dtype_size(c->x[0].dtype));
    const int64_t most = BLOCKS / (B * ((C + width - 1) / width));
    const int64_t spans = max(min(most, image / TP_TILE_ROWS), (int64_t)1);
    return { rows, C, (image + spans - 1) / spans, image };
}

/* Bytes of two numbers per channel of every span; 0: images are whole. */
static size_t span_bytes(const tp_matrix &a)
{
    const int64_t spans = tp_spans(a);
    return spans > 1 ? (size_t)(a.rows / a.image * spans * 2 * a.C) * sizeof(float) : 0;
}

static const tp__groupnorm_attr *attr_of(const tp_call *c)
{
    return static_cast<const tp__groupnorm_attr *>(c->attr);
}

static tp_channel_stats stats_of(const tp_call *c)
{
    const float *m = tp_in<float>(&c->y[1]);
    const int64_t C = c->y[1].dim[2];
    return { m, m + C, 2 * C };
}

/* ---- groups: LANES threads join the numbers of a group's channels ---- */

/* Groups of `size` channels, n in all images. */
struct group_span {
    int64_t n, C, size;
    /* Offset of group i in [B][2][C]. */
    __device__ int64_t at(int64_t i) const
    {
        const int64_t groups = C / size, image = tp_div(i, groups);
        return image * 2 * C + (i - image * groups) * size;
    }
};

/* Replaces means and squared deviations of channels, stats [B][2][C], by the mean and 1 /
 * sqrt(variance + eps) of their group. */
template <int LANES>
__global__ void __launch_bounds__(TP_THREADS)
    group_stats(group_span k, float positions, float eps, float *stats)
{
    TP_EACH_BLOCK (block, (k.n * LANES + TP_THREADS - 1) / TP_THREADS) {
        const int64_t i = (block * TP_THREADS + threadIdx.x) / LANES;
        const int lane = threadIdx.x % LANES;
        const int64_t size = i < k.n ? k.size : 0;
        float *const m = stats + (i < k.n ? k.at(i) : 0), *const v = m + k.C;
        float sum = 0.0f, squares = 0.0f;
        for (int64_t e = lane; e < size; e += LANES) sum += m[e];
        const float mean = tp_group<tp_sum_of, LANES>(sum) / (float)k.size;
        for (int64_t e = lane; e < size; e += LANES)
            squares += v[e] + positions * (m[e] - mean) * (m[e] - mean);
        const float s = tp_inverse_root(
            tp_group<tp_sum_of, LANES>(squares) / (positions * (float)k.size) + eps);
        for (int64_t e = lane; e < size; e += LANES) {
            m[e] = mean;
            v[e] = s;
        }
    }
}

/* terms [B][2][C]: per channel, the sum over its group of w sums [B][2][C]. */
template <int LANES>
__global__ void __launch_bounds__(TP_THREADS)
    group_terms(group_span k, tp_row_param w, const float *sums, float *terms)
{
    TP_EACH_BLOCK (block, (k.n * LANES + TP_THREADS - 1) / TP_THREADS) {
        const int64_t i = (block * TP_THREADS + threadIdx.x) / LANES;
        const int lane = threadIdx.x % LANES;
        const int64_t size = i < k.n ? k.size : 0, at = i < k.n ? k.at(i) : 0;
        const int64_t channel = at - tp_div(at, 2 * k.C) * 2 * k.C;
        float dyh = 0.0f, dy = 0.0f;
        for (int64_t e = lane; e < size; e += LANES) {
            float weight[1];
            tp_take<1>(weight, w, channel + e);
            dyh += weight[0] * sums[at + e];
            dy += weight[0] * sums[at + k.C + e];
        }
        dyh = tp_group<tp_sum_of, LANES>(dyh);
        dy = tp_group<tp_sum_of, LANES>(dy);
        for (int64_t e = lane; e < size; e += LANES) {
            terms[at + e] = dyh;
            terms[at + k.C + e] = dy;
        }
    }
}

static group_span groups_of(const tp_call *c)
{
    const int64_t C = c->y[1].dim[2], size = tp__group_size(attr_of(c), C);
    return { c->y[1].dim[0] * (C / size), C, size };
}

/* Calls f(LANES). */
template <class F> static tp_code with_lanes(const group_span &k, F f)
{
    return k.size == 1   ? f(std::integral_constant<int, 1>())
           : k.size <= 8 ? f(std::integral_constant<int, 8>())
                         : f(std::integral_constant<int, 32>());
}

/* ---- forward ---- */

/* stats [B][2][C]: means and squared deviations of an image's channels, from those of its spans. */
__global__ void __launch_bounds__(1024) span_stats(tp_matrix a, const float *part, float *stats)
{
    tp_join_moments(a, part, [=](int64_t image, int64_t i, const tp_moments &v) {
        stats[image * 2 * a.C + i] = v.m;
        stats[(image * 2 + 1) * a.C + i] = v.v;
    });
}

static tp_code join_spans(const tp_call *c, const tp_matrix &a, float *stats)
{
    return tp_launch(c, span_stats, tp_grid(c, a.rows / a.image * ((a.C + 31) / 32), 1),
                     tp_part_threads(tp_spans(a)), 0, a, static_cast<const float *>(c->work),
                     stats);
}

static tp_code join_stats(const tp_call *c, const tp_matrix &a, float *stats)
{
    const group_span k = groups_of(c);
    return with_lanes(k, [&](auto lanes) {
        constexpr int LANES = decltype(lanes)::value;
        return tp_launch(c, group_stats<LANES>, tp_grid(c, k.n * LANES), TP_THREADS, 0, k,
                         (float)a.image, (float)attr_of(c)->eps, stats);
    });
}

template <class S> static tp_code groupnorm_fwd(const tp_call *c)
{
    if (c->x[0].numel == 0)
        return tp__cuda_zero(c, c->y[1].data, (size_t)c->y[1].numel * sizeof(float));
    const tp_matrix a = matrix_of(c);
    const tp_row_param w = tp_row_param_of(c, 1, 1.0f), b = tp_row_param_of(c, 2, 0.0f);
    float *stats = tp_out<float>(&c->y[1]);
    const bool whole = tp_spans(a) == 1;
    return tp_with_packs<S>(tp_aligned(c->x[0].data, c->y[0].data, w.at, b.at), a.C, [&](auto p) {
        constexpr int N = decltype(p)::value;
        tp_code code =
            tp_launch(c, tp_moments_kernel<S, N>, tp_grid(c, tp_tiles(a, N), 1), TP_THREADS, 0, a,
                      tp_in<S>(&c->x[0]), whole ? stats : static_cast<float *>(c->work));
        if (code == TP_OK && !whole) code = join_spans(c, a, stats);
        if (code == TP_OK) code = join_stats(c, a, stats);
        if (code != TP_OK) return code;
        return tp_launch(c, tp_normalise_kernel<S, N>, tp_grid(c, a.rows * a.C / N), TP_THREADS, 0,
                         a, stats_of(c), w, b, tp_in<S>(&c->x[0]), tp_out<S>(&c->y[0]));
    });
}

/* ---- backward ---- */

/* c->work: the sums of dy h and dy per image, [B][2][C], then by group unless it is one channel,
 * then by span unless an image is one. In forward only the last, of means and deviations. */
static size_t groupnorm_work(const tp_call *c)
{
    const int64_t C = c->y[1].dim[2], n = c->y[1].dim[0] * 2 * C;
    if (c->x[0].numel == 0) return 0;
    const size_t spans = span_bytes(matrix_of(c));
    if (!tp_is_backward(c)) return spans;
    return (size_t)(tp__group_size(attr_of(c), C) > 1 ? 2 * n : n) * sizeof(float) + spans;
}

template <class S, int N> static tp_code grad(const tp_call *c, const tp_matrix &a)
{
    const tp_channel_stats stats = stats_of(c);
    const group_span k = groups_of(c);
    const S *x = tp_in<S>(&c->x[0]), *dy = tp_in<S>(&c->dy[0]);
    const tp_row_param w = tp_row_param_of(c, 1, 1.0f);
    const int64_t spans = tp_spans(a), images = a.rows / a.image;
    float *const sums = static_cast<float *>(c->work);
    float *const terms = k.size > 1 ? sums + c->y[1].numel : sums;
    float *const part = spans > 1 ? terms + c->y[1].numel : sums;
    tp_code code = tp_launch(c, tp_channel_sums<S, N>, tp_grid(c, tp_tiles(a, N), 1), TP_THREADS, 0,
                             a, stats, x, dy, part);
    if (code == TP_OK && spans > 1)
        code = tp_add_sets(c, images, 2 * a.C, spans, 2 * a.C, part, sums, tp_as_it_is());
    if (code == TP_OK) code = tp_add_affine(c, a.C, images, sums);
    if (code != TP_OK || !c->dx[0].data) return code;
    if (k.size > 1)
        code = with_lanes(k, [&](auto lanes) {
            constexpr int LANES = decltype(lanes)::value;
            return tp_launch(c, group_terms<LANES>, tp_grid(c, k.n * LANES), TP_THREADS, 0, k, w,
                             sums, terms);
        });
    if (code != TP_OK) return code;
    const tp_row_param of_sums = k.size > 1 ? tp_row_param{ NULL, false, 1.0f } : w;
    return tp_launch(c, tp_channel_grad<S, N>, tp_grid(c, a.rows * a.C / N), TP_THREADS, 0, a,
                     1.0f / ((float)a.image * (float)k.size), stats, w, of_sums, terms, terms + a.C,
                     x, dy, tp_out<S>(&c->dx[0]));
}

template <class S> static tp_code groupnorm_bwd(const tp_call *c)
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

TP_CUDA_WORK(groupnorm_work)
TP_CUDA_KERNEL(groupnorm_fwd)
TP_CUDA_KERNEL(groupnorm_bwd)
