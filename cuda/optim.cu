/* optim.cu - optimiser updates, gradient norm, clipping and averaging over the segments of a
 * parameter set; their formulas are in tensor/geometry/segments.h.
 *
 * Each operation is one kernel over all parameters (cuda/kit/segments.cuh) and reads and writes
 * every array once: Adam moves 28 bytes per element, SGD 12 to 20, bound by memory. Sums of squares
 * are in double, added in order. */
#include "cuda/kit/segments.cuh"

static const tp_segments *segments(const tp_call *c)
{
    return static_cast<const tp_segments *>(c->attr);
}

/* Calls f.update(i, j, g, numbers) for each element of the blocks: i in the values, j in the
 * states; g: its gradient, or NULL. */
template <class F> __global__ void __launch_bounds__(TP_THREADS) update_kernel(tp_segments s, F f)
{
    TP_EACH_BLOCK (b, s.blocks) {
        const tp_stretch t = tp_stretch_of(s, b);
        const typename F::numbers k = f.of(*t.s);
        for (int64_t i = threadIdx.x; i < t.n; i += blockDim.x)
            f.update(t.at + i, t.own + i, t.g ? t.g + i : NULL, k);
    }
}

/* With a table that this call uploads. */
template <class F> static tp_code update(const tp_call *c, F f)
{
    tp_segments s = *segments(c);
    if (s.blocks == 0) return TP_OK;
    if (!tp_upload(c, &s)) return TP_E_MEMORY;
    return tp_launch(c, update_kernel<F>, tp_grid(c, s.blocks, 1), TP_THREADS, 0, s, f);
}

/* A step of an optimiser. What another step may change, f.of takes from f.a, on the device. */
template <class F> static tp_code step(const tp_call *c, F f)
{
    const tp_segments s = tp_table_of(tp_options(c));
    return tp_launch(c, update_kernel<F>, tp_grid(c, s.blocks, 1), TP_THREADS, 0, s, f);
}

/* ---- SGD ---- */

struct sgd {
    const tp_optim_attr *a;
    float *p, *u; /* u: NULL without momentum */
    struct numbers {
        float scale, l2, rate, momentum, gain, of_g, of_u;
    };
    __device__ numbers of(const tp_segment &s) const
    {
        return { (float)a->scale,
                 (float)s.l2,
                 (float)s.rate,
                 (float)a->k[TP_SGD_MOMENTUM],
                 (float)a->k[TP_SGD_GAIN],
                 (float)a->k[TP_SGD_OF_G],
                 (float)a->k[TP_SGD_OF_U] };
    }
    __device__ void update(int64_t i, int64_t j, const float *g, numbers k) const
    {
        float d = k.scale * *g + k.l2 * p[i];
        if (u) {
            const float v = k.momentum * u[j] + k.gain * d;
            u[j] = v;
            d = k.of_g * d + k.of_u * v;
        }
        p[i] -= k.rate * d;
    }
};

static tp_code sgd_step(const tp_call *c)
{
    return step(c, sgd{ tp_options(c)->there, tp_out<float>(&c->y[0]), tp_out<float>(&c->y[1]) });
}

/* ---- Adam and AdamW ---- */

struct adam {
    const tp_optim_attr *a;
    float *p, *m, *v;
    struct numbers {
        float scale, beta1, beta2, rest1, rest2, eps;
        float l2, rate, root, before, after;
    };
    __device__ numbers of(const tp_segment &s) const
    {
        const double beta1 = a->k[TP_ADAM_BETA1], beta2 = a->k[TP_ADAM_BETA2];
        return { (float)a->scale,      (float)beta1,         (float)beta2,
                 (float)(1.0 - beta1), (float)(1.0 - beta2), (float)a->k[TP_ADAM_EPS],
                 (float)s.l2,          (float)s.rate,        (float)s.root,
                 (float)s.before,      (float)s.after };
    }
    __device__ void update(int64_t i, int64_t j, const float *g, numbers k) const
    {
        const float w = p[i], d = k.scale * *g + k.l2 * w;
        const float m1 = k.beta1 * m[j] + k.rest1 * d, v1 = k.beta2 * v[j] + k.rest2 * d * d;
        float q = w - k.before * w;
        m[j] = m1;
        v[j] = v1;
        q -= k.rate * m1 / (k.root * sqrtf(v1) + k.eps);
        p[i] = q - k.after * q;
    }
};

static tp_code adam_step(const tp_call *c)
{
    return step(c, adam{ tp_options(c)->there, tp_out<float>(&c->y[0]), tp_out<float>(&c->y[1]),
                         tp_out<float>(&c->y[2]) });
}

/* ---- RMSprop, Adagrad, Lion ---- */

struct rmsprop {
    const tp_optim_attr *a;
    float *p, *v, *u, *mean; /* u: NULL without momentum; mean: NULL unless centred */
    struct numbers {
        float scale, keep, rest, eps, momentum, l2, rate;
    };
    __device__ numbers of(const tp_segment &s) const
    {
        const double alpha = a->k[TP_RMSPROP_ALPHA];
        return { (float)a->scale,
                 (float)alpha,
                 (float)(1.0 - alpha),
                 (float)a->k[TP_RMSPROP_EPS],
                 (float)a->k[TP_RMSPROP_MOMENTUM],
                 (float)s.l2,
                 (float)s.rate };
    }
    __device__ void update(int64_t i, int64_t j, const float *g, numbers k) const
    {
        const float w = p[i], d = k.scale * *g + k.l2 * w;
        float spread = k.keep * v[j] + k.rest * d * d;
        v[j] = spread;
        if (mean) {
            const float old = mean[j], m = old + k.rest * (d - old);
            mean[j] = m;
            spread -= m * m;
            spread = spread < 0.0f ? 0.0f : spread; /* by rounding */
        }
        float by = d / (sqrtf(spread) + k.eps);
        if (u) u[j] = by = k.momentum * u[j] + by;
        p[i] = w - k.rate * by;
    }
};

static tp_code rmsprop_step(const tp_call *c)
{
    return step(c, rmsprop{ tp_options(c)->there, tp_out<float>(&c->y[0]), tp_out<float>(&c->y[1]),
                            tp_out<float>(&c->y[2]), tp_out<float>(&c->y[3]) });
}

struct adagrad {
    const tp_optim_attr *a;
    float *p, *v;
    struct numbers {
        float scale, eps, l2, rate;
    };
    __device__ numbers of(const tp_segment &s) const
    {
        return { (float)a->scale, (float)a->k[TP_ADAGRAD_EPS], (float)s.l2, (float)s.rate };
    }
    __device__ void update(int64_t i, int64_t j, const float *g, numbers k) const
    {
        const float w = p[i], d = k.scale * *g + k.l2 * w, sum = v[j] + d * d;
        v[j] = sum;
        p[i] = w - k.rate * d / (sqrtf(sum) + k.eps);
    }
};

static tp_code adagrad_step(const tp_call *c)
{
    return step(c,
                adagrad{ tp_options(c)->there, tp_out<float>(&c->y[0]), tp_out<float>(&c->y[1]) });
}

struct lion {
    const tp_optim_attr *a;
    float *p, *m;
    struct numbers {
        float scale, beta1, beta2, rest1, rest2, rate, before;
    };
    __device__ numbers of(const tp_segment &s) const
    {
        const double beta1 = a->k[TP_LION_BETA1], beta2 = a->k[TP_LION_BETA2];
        return { (float)a->scale,      (float)beta1,  (float)beta2,   (float)(1.0 - beta1),
                 (float)(1.0 - beta2), (float)s.rate, (float)s.before };
    }
    __device__ void update(int64_t i, int64_t j, const float *g, numbers k) const
    {
        const float w = p[i], d = k.scale * *g, old = m[j], to = k.beta1 * old + k.rest1 * d;
        const float sign = to > 0.0f ? 1.0f : to < 0.0f ? -1.0f : to; /* 0 and NaN stay */
        p[i] = w - k.before * w - k.rate * sign;
        m[j] = k.beta2 * old + k.rest2 * d;
    }
};

static tp_code lion_step(const tp_call *c)
{
    return step(c, lion{ tp_options(c)->there, tp_out<float>(&c->y[0]), tp_out<float>(&c->y[1]) });
}

/* ---- schedule-free AdamW ---- */

struct schedulefree {
    const tp_optim_attr *a;
    float *p, *e, *v;
    struct numbers {
        float scale, beta2, rest2, eps, toward, keep;
        float root, decay, back, rate;
    };
    __device__ numbers of(const tp_segment &s) const
    {
        const double beta1 = a->k[TP_FREE_BETA1], beta2 = a->k[TP_FREE_BETA2];
        const double toward = a->k[TP_FREE_C], rest = 1.0 - toward;
        return { (float)a->scale,         (float)beta2,
                 (float)(1.0 - beta2),    (float)a->k[TP_FREE_EPS],
                 (float)toward,           (float)rest,
                 (float)s.root,           (float)s.after,
                 (float)(s.rate * beta1), (float)(s.rate * (1.0 - beta1 * rest)) };
    }
    __device__ void update(int64_t i, int64_t j, const float *g, numbers k) const
    {
        const float w = p[i], old = e[j], d = k.scale * *g;
        const float v1 = k.beta2 * v[j] + k.rest2 * d * d;
        const float q = d / (k.root * sqrtf(v1) + k.eps) + k.decay * w;
        v[j] = v1;
        p[i] = w + (k.toward * old - k.rate * q);
        e[j] = k.keep * (old - k.back * q);
    }
};

static tp_code schedulefree_step(const tp_call *c)
{
    return step(c, schedulefree{ tp_options(c)->there, tp_out<float>(&c->y[0]),
                                 tp_out<float>(&c->y[1]), tp_out<float>(&c->y[2]) });
}

struct evaluation {
    const tp_optim_attr *a;
    float *p;
    const float *e;
    typedef float numbers;
    __device__ numbers of(const tp_segment &) const
    {
        const double beta1 = a->k[TP_FREE_BETA1];
        return (float)((1.0 - beta1) / beta1);
    }
    __device__ void update(int64_t i, int64_t j, const float *, numbers k) const
    {
        p[i] -= k * e[j];
    }
};

static tp_code schedulefree_average(const tp_call *c)
{
    return step(
        c, evaluation{ tp_options(c)->there, tp_out<float>(&c->y[0]), tp_out<float>(&c->y[1]) });
}

/* ---- norm, clipping, averaging ---- */

__global__ void __launch_bounds__(TP_THREADS) squares_kernel(tp_segments s, double *part)
{
    TP_EACH_BLOCK (b, s.blocks) {
        const tp_stretch t = tp_stretch_of(s, b);
        double sum = 0.0;
        for (int64_t i = threadIdx.x; i < t.n; i += blockDim.x)
            sum += (double)t.g[i] * (double)t.g[i];
        sum = tp_block<tp_sum_of>(sum);
        if (threadIdx.x == 0) part[b] = sum;
    }
}

__global__ void __launch_bounds__(TP_THREADS)
    root_kernel(int64_t blocks, const double *part, float *norm)
{
    double sum = 0.0;
    for (int64_t b = threadIdx.x; b < blocks; b += blockDim.x) sum += part[b];
    sum = tp_block<tp_sum_of>(sum);
    if (threadIdx.x == 0) *norm = (float)sqrt(sum);
}

static tp_code grad_squares(const tp_call *c)
{
    tp_segments s = *segments(c);
    double *part = static_cast<double *>(c->work);
    if (s.blocks == 0) return TP_OK;
    if (!tp_upload(c, &s)) return TP_E_MEMORY;
    return tp_launch(c, squares_kernel, tp_grid(c, s.blocks, 1), TP_THREADS, 0, s, part);
}

static tp_code grad_root(const tp_call *c)
{
    return tp_launch(c, root_kernel, 1, TP_THREADS, 0, segments(c)->blocks,
                     static_cast<const double *>(c->work), tp_out<float>(&c->y[0]));
}

/* A NaN norm must make the gradients NaN, not pass for a small one. */
struct clip {
    const float *norm;
    double limit;
    typedef float numbers;
    __device__ numbers of(const tp_segment &) const
    {
        const double n = (double)*norm + 1e-6;
        return n <= limit ? 1.0f : (float)(limit / n);
    }
    __device__ void update(int64_t, int64_t, float *g, numbers k) const
    {
        if (k != 1.0f) *g *= k;
    }
};

static tp_code grad_clip(const tp_call *c)
{
    const tp_segments_attr *a = static_cast<const tp_segments_attr *>(c->attr);
    const clip f = { tp_in<float>(&c->x[0]), a->number };
    return update(c, f);
}

struct clamp {
    float limit;
    struct numbers {
    };
    __device__ numbers of(const tp_segment &) const { return {}; }
    __device__ void update(int64_t, int64_t, float *g, numbers) const
    {
        const float x = *g;
        if (x < -limit || x > limit) *g = x < 0.0f ? -limit : limit;
    }
};

static tp_code grad_clamp(const tp_call *c)
{
    const tp_segments_attr *a = static_cast<const tp_segments_attr *>(c->attr);
    const clamp f = { (float)a->number };
    return update(c, f);
}

struct average {
    const float *p;
    float *e;
    float k;
    struct numbers {
    };
    __device__ numbers of(const tp_segment &) const { return {}; }
    __device__ void update(int64_t i, int64_t, const float *, numbers) const
    {
        e[i] += k * (p[i] - e[i]);
    }
};

static tp_code ema_step(const tp_call *c)
{
    const tp_segments_attr *a = static_cast<const tp_segments_attr *>(c->attr);
    const average f = { tp_in<float>(&c->x[0]), tp_out<float>(&c->y[0]), (float)a->number };
    return update(c, f);
}

TP_CUDA_KERNEL_UNTYPED(sgd_step)
TP_CUDA_KERNEL_UNTYPED(adam_step)
TP_CUDA_KERNEL_UNTYPED(rmsprop_step)
TP_CUDA_KERNEL_UNTYPED(adagrad_step)
TP_CUDA_KERNEL_UNTYPED(lion_step)
TP_CUDA_KERNEL_UNTYPED(schedulefree_step)
TP_CUDA_KERNEL_UNTYPED(schedulefree_average)
TP_CUDA_KERNEL_UNTYPED(grad_squares)
TP_CUDA_KERNEL_UNTYPED(grad_root)
TP_CUDA_KERNEL_UNTYPED(grad_clip)
TP_CUDA_KERNEL_UNTYPED(grad_clamp)
TP_CUDA_KERNEL_UNTYPED(ema_step)
