/* focal_class.cu - sigmoid focal loss of rows of K logits with class targets; formulas:
 * cpu/focal_class.c.
 *
 * A block of threads sums the rows of one part (tp__focal_rows); unreduced, a warp sums each row.
 * Moves 4 bytes per element forward and 8 backward (f32; half in bf16), with three special
 * functions and about 20 other operations: bound by memory. */
#include "cuda/kit/any.cuh"
#include "cuda/kit/loss.cuh"

enum { WARPS = TP_THREADS / 32 };

struct problem {
    int64_t rows, K;
    tp_ids target;
    float object, background, gamma;
};

struct point {
    float loss, slope;
};

static __device__ inline point focal(float x, float gamma)
{
    const float e = expf(-fabsf(x)), l = log1pf(e), big = 1.0f / (1.0f + e), small = e * big;
    const float p = x < 0.0f ? small : big, q = x < 0.0f ? big : small;
    const float soft = fmaxf(x, 0.0f) + l, log_p = fminf(x, 0.0f) - l;
    const float m = gamma == 2.0f ? p * p : gamma == 0.0f ? 1.0f : expf(gamma * log_p);
    return { m * soft, m * (gamma * q * soft + p) };
}

/* Loss and slope of class j's logit in a row with target t. */
static __device__ inline point element(const problem &k, float x, int64_t j, int64_t t)
{
    if (t > k.K) return { NAN, NAN };
    const point f = focal(j == t ? -x : x, k.gamma);
    if (j == t) return { k.object * f.loss, -k.object * f.slope };
    return { k.background * f.loss, k.background * f.slope };
}

/* ---- forward ---- */

template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    loss_parts(problem k, int64_t per, const S *x, tp_loss_part *part)
{
    TP_EACH_BLOCK (b, (k.rows + per - 1) / per) {
        const int64_t from = b * per, n = min(per, k.rows - from) * k.K;
        float sum = 0.0f, counted = 0.0f;
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            const int64_t r = tp_div(i, k.K), j = i - r * k.K, t = k.target[from + r];
            if (t < 0) continue;
            sum += element(k, tp_float(x[from * k.K + i]), j, t).loss;
            counted += j == 0 ? 1.0f : 0.0f;
        }
        sum = tp_block<tp_sum_of>(sum);
        counted = tp_block<tp_sum_of>(counted);
        if (threadIdx.x == 0) part[b] = { sum, counted };
    }
}

template <class S>
__global__ void __launch_bounds__(TP_THREADS) loss_each(problem k, const S *x, float *y)
{
    for (int64_t r = tp_warp_number(); r < k.rows; r += tp_warps()) {
        const int64_t t = k.target[r];
        float sum = 0.0f;
        for (int64_t j = threadIdx.x % 32; t >= 0 && j < k.K; j += 32)
            sum += element(k, tp_float(x[r * k.K + j]), j, t).loss;
        sum = tp_warp<tp_sum_of>(sum);
        if (threadIdx.x % 32 == 0) y[r] = sum;
    }
}

/* ---- backward ---- */

/* Runs as one block: *by = 1 / the number of rows that count. */
static __global__ void __launch_bounds__(1024) count_kernel(int64_t rows, tp_ids t, float *by)
{
    double n = 0.0;
    for (int64_t r = threadIdx.x; r < rows; r += blockDim.x) n += t[r] >= 0;
    n = tp_block<tp_sum_of>(n);
    if (threadIdx.x == 0) *by = n > 0.0 ? (float)(1.0 / n) : 1.0f;
}

/* factor may be NULL. */
template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    loss_grad(problem k, const float *dy, bool each, float by, const float *factor, const S *x,
              S *dx)
{
    TP_EACH (i, k.rows * k.K) {
        const int64_t r = tp_div(i, k.K), t = k.target[r];
        const float g = dy[each ? r : 0] * (factor ? *factor : by);
        tp_put(dx + i, t < 0 ? 0.0f : g * element(k, tp_float(x[i]), i - r * k.K, t).slope);
    }
}

/* ---- launchers ---- */

static const tp__point_loss_attr *attr_of(const tp_call *c)
{
    return static_cast<const tp__point_loss_attr *>(c->attr);
}

static problem problem_of(const tp_call *c)
{
    const tp__point_loss_attr *a = attr_of(c);
    const bool none = a->alpha < 0.0;
    return { c->x[1].numel,
             c->x[0].dim[c->x[0].ndim - 1],
             tp_ids_of(&c->x[1], 0),
             none ? 1.0f : (float)a->alpha,
             none ? 1.0f : (float)(1.0 - a->alpha),
             (float)a->gamma };
}

static int64_t parts_of(const tp_call *c)
{
    const int64_t per = tp__focal_rows(c->x[0].dim[c->x[0].ndim - 1]);
    return (c->x[1].numel + per - 1) / per;
}

static size_t focal_class_work(const tp_call *c)
{
    return tp_is_backward(c) ? sizeof(float) : (size_t)parts_of(c) * sizeof(tp_loss_part);
}

template <class S> static tp_code focal_class_fwd(const tp_call *c)
{
    const problem k = problem_of(c);
    const tp_reduction r = attr_of(c)->reduction;
    const S *x = tp_in<S>(&c->x[0]);
    tp_loss_part *part = static_cast<tp_loss_part *>(c->work);
    if (r == TP_EACH)
        return tp_launch(c, loss_each<S>, tp_grid(c, k.rows, WARPS), TP_THREADS, 0, k, x,
                         tp_out<float>(&c->y[0]));
    const tp_code code = tp_launch(c, loss_parts<S>, tp_grid(c, parts_of(c), 1), TP_THREADS, 0, k,
                                   tp__focal_rows(k.K), x, part);
    if (code != TP_OK) return code;
    return tp_finish_loss(c, parts_of(c), part,
                          r == TP_MEAN                     ? 0.0
                          : r == TP_MEAN_ALL && k.rows > 0 ? (double)k.rows
                                                           : 1.0);
}

template <class S> static tp_code focal_class_bwd(const tp_call *c)
{
    const problem k = problem_of(c);
    const tp_reduction r = attr_of(c)->reduction;
    float *counted = r == TP_MEAN ? static_cast<float *>(c->work) : nullptr;
    const float by = r == TP_MEAN_ALL && k.rows > 0 ? (float)(1.0 / (double)k.rows) : 1.0f;
    if (!c->dx[0].data) return TP_OK;
    const tp_code code =
        counted ? tp_launch(c, count_kernel, 1, 1024, 0, k.rows, k.target, counted) : TP_OK;
    if (code != TP_OK) return code;
    return tp_launch(c, loss_grad<S>, tp_grid(c, k.rows * k.K), TP_THREADS, 0, k,
                     tp_in<float>(&c->dy[0]), r == TP_EACH, by, static_cast<const float *>(counted),
                     tp_in<S>(&c->x[0]), tp_out<S>(&c->dx[0]));
}

TP_CUDA_KERNEL(focal_class_fwd)
TP_CUDA_KERNEL(focal_class_bwd)
TP_CUDA_WORK(focal_class_work)
