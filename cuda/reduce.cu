/* reduce.cu - sum, mean, prod and logsumexp over any set of axes: sums are folds (fold.cuh), the
 * others reducers (reducer.cuh). Reads x once; bound by memory. */
#include <cfloat>

#include "cuda/kit/reducer.cuh"

static int axes_of(const tp_call *c)
{
    return tp_reduce_attr_of(c)->axes;
}

/* ---- sum and mean ---- */

struct divided {
    float n;
    __device__ float operator()(float sum, int64_t) const { return sum / n; }
};

static float terms(const tp_call *c)
{
    const int64_t results = c->y[0].numel;
    return (float)(results ? c->x[0].numel / results : 1);
}

template <class S, class F> static tp_code fold(const tp_call *c, F finish)
{
    const tp_view b = tp__reduced(&c->x[0], axes_of(c));
    return tp_fold_sum(c, &c->x[0], &b, tp_in<S>(&c->x[0]), tp_out<float>(&c->y[0]), c->work,
                       finish);
}

template <class S> static tp_code sum_fwd(const tp_call *c)
{
    return fold<S>(c, tp_as_it_is());
}

template <class S> static tp_code mean_fwd(const tp_call *c)
{
    const divided finish = { terms(c) };
    return fold<S>(c, finish);
}

template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    spread_kernel(tp_broadcast p, int64_t n, float k, const float *dy, S *dx)
{
    TP_EACH (e, n) tp_put(dx + e, k * dy[tp_broadcast_at(p, e)]);
}

/* dx = k dy, repeated along the axes. */
template <class S> static tp_code spread(const tp_call *c, float k)
{
    const tp_view b = tp__reduced(&c->x[0], axes_of(c));
    const int64_t n = c->x[0].numel;
    if (!c->dx[0].data) return TP_OK;
    return tp_launch(c, spread_kernel<S>, tp_grid(c, n), TP_THREADS, 0,
                     tp_broadcast_of(tp__bcast(&c->x[0], &b), 1), n, k, tp_in<float>(&c->dy[0]),
                     tp_out<S>(&c->dx[0]));
}

template <class S> static tp_code sum_bwd(const tp_call *c)
{
    return spread<S>(c, 1.0f);
}
template <class S> static tp_code mean_bwd(const tp_call *c)
{
    return spread<S>(c, 1.0f / terms(c));
}

/* ---- prod: the product of nonzero elements, as rest 2^exponent, and the number of zeros ---- */

/* Is v far from the ends of float's range? So are NaN and infinities: no scale brings them
 * nearer. */
static __device__ inline bool is_middling(float v)
{
    const float size = fabsf(v);
    return (size > 0x1p-60f && size < 0x1p60f) || !(size <= FLT_MAX);
}

/* Scales v away from the ends; adds the power of two to *exponent. */
static __device__ inline float settled(float v, float *exponent)
{
    int e = 0;
    if (is_middling(v)) return v;
    v = frexpf(v, &e);
    *exponent += (float)e;
    return v;
}

/* v 2^e; beyond these bounds every result is 0 or infinite. */
static __device__ inline float scaled(float v, float e)
{
    return ldexpf(v, (int)fminf(fmaxf(e, -999.0f), 999.0f));
}

struct factors {
    struct state {
        float rest, zeros, exponent;
    };
    float *y[4];
    static __device__ state none() { return { 1.0f, 0.0f, 0.0f }; }
    template <class S> __device__ void add(state &v, S x, int64_t) const
    {
        const float f = tp_float(x);
        if (f == 0.0f) {
            v.zeros += 1.0f;
            return;
        }
        v.rest = settled(v.rest * settled(f, &v.exponent), &v.exponent);
    }
    static __device__ state join(state a, state b)
    {
        state v = { a.rest * b.rest, a.zeros + b.zeros, a.exponent + b.exponent };
        v.rest = settled(v.rest, &v.exponent);
        return v;
    }
    /* The exponent is 0 unless the product of nonzero elements is not a normal number. */
    __device__ void finish(state v, int64_t i) const
    {
        const float all = scaled(v.rest, v.exponent), size = fabsf(all);
        const bool normal = size >= FLT_MIN && size <= FLT_MAX;
        y[0][i] = v.zeros > 0.0f ? v.rest * 0.0f : all;
        y[1][i] = normal ? all : v.rest;
        y[2][i] = v.zeros;
        y[3][i] = normal ? 0.0f : v.exponent;
    }
};

template <class S> static tp_code prod_fwd(const tp_call *c)
{
    const factors r = { { tp_out<float>(&c->y[0]), tp_out<float>(&c->y[1]), tp_out<float>(&c->y[2]),
                          tp_out<float>(&c->y[3]) } };
    return tp_reduce<S>(c, r);
}

/* dx = dy times the product of the other elements */
struct factors_grad {
    const float *rest, *zeros, *exponent, *dy;
    __device__ float operator()(float x, int64_t i) const
    {
        const float g = dy[i] * rest[i], size = fabsf(g), z = zeros[i];
        if (z > 1.0f || (z > 0.0f && x != 0.0f)) return 0.0f;
        if (exponent[i] == 0.0f && ((size >= FLT_MIN && size <= FLT_MAX) || dy[i] == 0.0f))
            return x == 0.0f ? g : g / x;
        int ed, er, ex = 0;
        float v = frexpf(dy[i], &ed) * frexpf(rest[i], &er);
        if (z == 0.0f) v /= frexpf(x, &ex);
        return scaled(v, exponent[i] + (float)(ed + er - ex));
    }
};

template <class S> static tp_code prod_bwd(const tp_call *c)
{
    const factors_grad g = { tp_in<float>(&c->y[1]), tp_in<float>(&c->y[2]), tp_in<float>(&c->y[3]),
                             tp_in<float>(&c->dy[0]) };
    return tp_reduce_grad<S>(c, g);
}

/* ---- logsumexp: log sum e^(x - m) + m with m the largest x, or 0 if that is infinite ---- */

static __device__ inline float shift(float top)
{
    return top - top == 0.0f ? top : 0.0f;
}

struct exps {
    struct state {
        float top, sum;
    };
    float *y;
    static __device__ state none() { return { -INFINITY, 0.0f }; }
    template <class S> __device__ void add(state &v, S x, int64_t) const
    {
        const float f = tp_float(x);
        if (f > v.top) {
            v.sum = v.sum == 0.0f ? 0.0f : v.sum * expf(shift(v.top) - shift(f));
            v.top = f;
        }
        v.sum += expf(f - shift(v.top));
    }
    static __device__ state join(state a, state b)
    {
        const float top = b.top > a.top ? b.top : a.top, m = shift(top);
        const float sa = a.sum == 0.0f ? 0.0f : a.sum * expf(shift(a.top) - m);
        const float sb = b.sum == 0.0f ? 0.0f : b.sum * expf(shift(b.top) - m);
        return { top, sa + sb };
    }
    __device__ void finish(state v, int64_t i) const { y[i] = shift(v.top) + logf(v.sum); }
};

template <class S> static tp_code logsumexp_fwd(const tp_call *c)
{
    const exps r = { tp_out<float>(&c->y[0]) };
    return tp_reduce<S>(c, r);
}

/* dx = dy e^(x - y); if y is -infinity, so is every x, and the gradient is 0. */
struct exps_grad {
    const float *y, *dy;
    __device__ float operator()(float x, int64_t i) const
    {
        return dy[i] * expf(x - (y[i] == -INFINITY ? 0.0f : y[i]));
    }
};

template <class S> static tp_code logsumexp_bwd(const tp_call *c)
{
    const exps_grad g = { tp_in<float>(&c->y[0]), tp_in<float>(&c->dy[0]) };
    return tp_reduce_grad<S>(c, g);
}

TP_CUDA_KERNEL(sum_fwd)
TP_CUDA_KERNEL(sum_bwd)
TP_CUDA_KERNEL(mean_fwd)
TP_CUDA_KERNEL(mean_bwd)
TP_CUDA_KERNEL(prod_fwd)
TP_CUDA_KERNEL(prod_bwd)
TP_CUDA_KERNEL(logsumexp_fwd)
TP_CUDA_KERNEL(logsumexp_bwd)
