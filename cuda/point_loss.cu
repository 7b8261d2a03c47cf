/* point_loss.cu - elementwise losses: loss l(x, t) and slope dl/dx; formulas as in
 * cpu/point_loss.c. poisson_nll branches on constants of the call, to keep one instance.
 *
 * A block sums TP_BLOCK elements and writes one part (loss.cuh). Moves 8 bytes per element forward,
 * 12 backward (f32; half in bf16), with 3 operations (mse) to about 60 (focal, three special
 * functions): bound by memory. */
#include "cuda/kit/loss.cuh"
#include "cuda/kit/map.cuh"
#include "tensor/geometry/block.h"

struct point {
    float loss, slope;
};

/* ---- losses: value and slope together, of which a kernel uses one ---- */

struct squared {
    __device__ point operator()(float x, float t) const
    {
        const float d = x - t;
        return { d * d, 2.0f * d };
    }
};

struct smooth {
    float beta;
    __device__ point operator()(float x, float t) const
    {
        const float d = x - t, size = fabsf(d);
        const float sign = d > 0.0f ? 1.0f : d < 0.0f ? -1.0f : d;
        if (size < beta) return { 0.5f * d * (d / beta), d / beta };
        return { size - 0.5f * beta, sign };
    }
};

struct bce {
    __device__ point operator()(float x, float t) const
    {
        const float e = expf(-fabsf(x)), p = (x < 0.0f ? e : 1.0f) / (1.0f + e);
        return { fmaxf(x, 0.0f) - x * t + log1pf(e), p - t };
    }
};

/* a_t = a0 + a1 t. m = 1 - p_t is kept above 0, where its logarithm and quotient are infinite. */
struct focal {
    float a0, a1, gamma;
    __device__ point operator()(float x, float t) const
    {
        const float e = expf(-fabsf(x)), big = 1.0f / (1.0f + e), small = e * big;
        const float p = x < 0.0f ? small : big, q = x < 0.0f ? big : small;
        const float m = fmaxf(p * (1.0f - t) + q * t, 1e-37f);
        const float factor = (a0 + a1 * t) * expf(gamma * logf(m));
        const float dm = gamma * (1.0f - 2.0f * t) * (p * q / m); /* divided by m */
        const point b = bce()(x, t);
        return { factor * b.loss, factor * (b.slope + dm * b.loss) };
    }
};

struct probs {
    __device__ point operator()(float x, float t) const
    {
        const float yes = logf(x), no = log1pf(-x), q = x * (1.0f - x);
        return { (t - 1.0f) * (no < -100.0f ? -100.0f : no) - t * (yes < -100.0f ? -100.0f : yes),
                 (x - t) / (q < 1e-12f ? 1e-12f : q) };
    }
};

struct divergence {
    __device__ point operator()(float x, float t) const
    {
        return { t == 0.0f ? 0.0f : t * (logf(t) - x), -t };
    }
};

struct divergence_log {
    __device__ point operator()(float x, float t) const
    {
        const float p = expf(t);
        return { p == 0.0f ? 0.0f : p * (t - x), -p };
    }
};

/* full: adds Stirling's approximation of log t! for t > 1. */
struct poisson {
    bool rate, full;
    float eps;
    __device__ point operator()(float x, float t) const
    {
        const float e = rate ? x + eps : expf(x);
        const float more =
            full && t > 1.0f ? t * logf(t) - t + 0.5f * logf(6.283185307179586477f * t) : 0.0f;
        if (rate) return { x - t * logf(e) + more, 1.0f - t / e };
        return { e - t * x + more, e - t };
    }
};

/* v, or NaN if m is NaN. */
static __device__ inline float or_nan(float m, float v)
{
    return m == m ? v : m;
}

struct hinge {
    float margin;
    __device__ point operator()(float x, float t) const
    {
        const float m = margin - t * x;
        return { m < 0.0f ? 0.0f : m, m < 0.0f ? 0.0f : or_nan(m, -t) };
    }
};

struct embedding {
    float margin;
    __device__ point operator()(float x, float t) const
    {
        const float m = margin - x;
        const bool near = t != -1.0f, apart = t != 1.0f;
        return { (near ? x : 0.0f) + (apart && !(m < 0.0f) ? m : 0.0f),
                 (near ? 1.0f : 0.0f) - (apart && !(m <= 0.0f) ? or_nan(m, 1.0f) : 0.0f) };
    }
};

struct soft {
    __device__ point operator()(float x, float t) const
    {
        const float z = -t * x, e = expf(-fabsf(z)), p = (z < 0.0f ? e : 1.0f) / (1.0f + e);
        return { (z > 0.0f ? z : 0.0f) + log1pf(e), -t * p };
    }
};

struct cosine {
    float margin;
    __device__ point operator()(float x, float t) const
    {
        const float m = x - margin;
        if (t == 1.0f) return { 1.0f - x, -1.0f };
        if (t != -1.0f || m < 0.0f) return { 0.0f, 0.0f };
        return { m, or_nan(m, 1.0f) };
    }
};

template <class F> struct loss_alone {
    F f;
    __device__ float operator()(float x, float t) const { return f(x, t).loss; }
};

template <class F> struct slope_times {
    F f;
    __device__ float operator()(float dy, float x, float t) const { return dy * f(x, t).slope; }
};

/* ---- kernels ---- */

template <class F, class S, class T>
__global__ void __launch_bounds__(TP_THREADS)
    loss_sum(F f, int64_t n, bool packed, const S *x, const T *t, tp_loss_part *part)
{
    constexpr int N = (int)(16 / sizeof(S));
    TP_EACH_BLOCK (b, (n + TP_BLOCK - 1) / TP_BLOCK) {
        const int64_t first = b * TP_BLOCK;
        const int count = (int)min(n - first, (int64_t)TP_BLOCK), packs = packed ? count / N : 0;
        float sum = 0.0f;
        for (int i = threadIdx.x; i < packs; i += blockDim.x) {
            const tp_pack<S, N> v = tp_load_n<S, N>(x + first + i * N);
            const tp_pack<T, N> w = tp_load_n<T, N>(t + first + i * N);
            for (int e = 0; e < N; e++) sum += f(tp_float(v.at[e]), tp_float(w.at[e])).loss;
        }
        for (int i = packs * N + threadIdx.x; i < count; i += blockDim.x)
            sum += f(tp_float(x[first + i]), tp_float(t[first + i])).loss;
        sum = tp_block<tp_sum_of>(sum);
        if (threadIdx.x == 0) part[b] = { sum, (float)count };
    }
}

/* dx = k dy[0] slope */
template <class F, class S, class T>
__global__ void __launch_bounds__(TP_THREADS)
    loss_slopes(slope_times<F> f, int64_t n, int64_t packs, float k, const float *dy, const S *x,
                const T *t, S *dx)
{
    constexpr int N = (int)(16 / sizeof(S));
    const float g = k * *dy;
    TP_EACH (i, packs) {
        tp_pack<S, N> v = tp_load_n<S, N>(x + i * N);
        const tp_pack<T, N> w = tp_load_n<T, N>(t + i * N);
        for (int e = 0; e < N; e++) tp_put(&v.at[e], f(g, tp_float(v.at[e]), tp_float(w.at[e])));
        tp_store(dx + i * N, v);
    }
    TP_EACH (i, n - packs * N) {
        const int64_t e = packs * N + i;
        tp_put(dx + e, f(g, tp_float(x[e]), tp_float(t[e])));
    }
}

/* ---- launchers ---- */

static const tp__point_loss_attr *attr_of(const tp_call *c)
{
    return static_cast<const tp__point_loss_attr *>(c->attr);
}

template <class F, class S, class T> static tp_code forward(const tp_call *c, F f)
{
    const tp_reduction reduction = attr_of(c)->reduction;
    const int64_t n = c->x[0].numel, parts = (n + TP_BLOCK - 1) / TP_BLOCK;
    const S *x = tp_in<S>(&c->x[0]);
    const T *t = tp_in<T>(&c->x[1]);
    tp_loss_part *part = static_cast<tp_loss_part *>(c->work);
    if (reduction == TP_EACH)
        return tp_map(c, n, loss_alone<F>{ f }, tp_out<float>(&c->y[0]), x, t);
    const tp_code code = tp_launch(c, loss_sum<F, S, T>, tp_grid(c, parts, 1), TP_THREADS, 0, f, n,
                                   tp_aligned(x, t), x, t, part);
    return code == TP_OK ? tp_finish_loss(c, parts, part, reduction == TP_SUM ? 1.0 : 0.0) : code;
}

template <class F, class S, class T> static tp_code backward(const tp_call *c, F f)
{
    const tp_reduction reduction = attr_of(c)->reduction;
    const int64_t n = c->x[0].numel, N = (int64_t)(16 / sizeof(S));
    const S *x = tp_in<S>(&c->x[0]);
    const T *t = tp_in<T>(&c->x[1]);
    const float *dy = tp_in<float>(&c->dy[0]);
    S *dx = tp_out<S>(&c->dx[0]);
    const slope_times<F> slope = { f };
    if (reduction == TP_EACH) return tp_map(c, n, slope, dx, dy, x, t);
    const int64_t packs = tp_aligned(x, t, dx) ? n / N : 0;
    return tp_launch(c, loss_slopes<F, S, T>, tp_grid(c, max(packs, n - packs * N)), TP_THREADS, 0,
                     slope, n, packs, reduction == TP_SUM ? 1.0f : 1.0f / (float)n, dy, x, t, dx);
}

template <class F> static tp_code with_loss(const tp_call *c, F run)
{
    const tp__point_loss_attr *a = attr_of(c);
    const float alpha = (float)a->alpha;
    switch (a->loss) {
    case TP_LOSS_BCE: return run(bce());
    case TP_LOSS_FOCAL:
        return run(focal{ alpha < 0.0f ? 1.0f : 1.0f - alpha,
                          alpha < 0.0f ? 0.0f : 2.0f * alpha - 1.0f, (float)a->gamma });
    case TP_LOSS_SMOOTH_L1: return run(smooth{ (float)a->beta });
    case TP_LOSS_PROBS: return run(probs());
    case TP_LOSS_KL: return run(divergence());
    case TP_LOSS_KL_LOG: return run(divergence_log());
    case TP_LOSS_POISSON: return run(poisson{ false, false, 0.0f });
    case TP_LOSS_POISSON_FULL: return run(poisson{ false, true, 0.0f });
    case TP_LOSS_POISSON_RATE: return run(poisson{ true, false, (float)a->eps });
    case TP_LOSS_POISSON_RATE_FULL: return run(poisson{ true, true, (float)a->eps });
    case TP_LOSS_HINGE: return run(hinge{ (float)a->margin });
    case TP_LOSS_HINGE_EMBEDDING: return run(embedding{ (float)a->margin });
    case TP_LOSS_SOFT_MARGIN: return run(soft());
    case TP_LOSS_COSINE: return run(cosine{ (float)a->margin });
    case TP_LOSS_MSE: break;
    }
    return run(squared());
}

template <class S> static tp_code point_loss_fwd(const tp_call *c)
{
    return tp_with_type(c, c->x[1].dtype, [&](auto t) {
        return with_loss(c, [&](auto f) { return forward<decltype(f), S, decltype(t)>(c, f); });
    });
}

template <class S> static tp_code point_loss_bwd(const tp_call *c)
{
    if (!c->dx[0].data) return TP_OK;
    return tp_with_type(c, c->x[1].dtype, [&](auto t) {
        return with_loss(c, [&](auto f) { return backward<decltype(f), S, decltype(t)>(c, f); });
    });
}

TP_CUDA_KERNEL(point_loss_fwd)
TP_CUDA_KERNEL(point_loss_bwd)
