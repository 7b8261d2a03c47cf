/* reduce.cu - sum, mean, prod and logsumexp over any set of axes: sums are folds (fold.cuh), the others
 * reducers (reducer.cuh). Reads x once; bound by memory. */
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
    return tp_fold_sum(c, &c->x[0], &b, tp_in<S>(&c->x[0]), (const S *)NULL,
                       tp_out<float>(&c->y[0]), c->work, finish);
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

/* ---- prod: the product, that of the elements other than 0, and the number of zeros ---- */

struct factors {
    struct state {
        float all, rest, zeros;
    };
    float *y[3];
    static __device__ state none() { return { 1.0f, 1.0f, 0.0f }; }
    template <class S> __device__ void add(state &v, S x, int64_t) const
    {
        const float f = tp_float(x);
        v.all *= f;
        v.rest *= f == 0.0f ? 1.0f : f;
        v.zeros += f == 0.0f ? 1.0f : 0.0f;
    }
    static __device__ state join(state a, state b)
    {
        return { a.all * b.all, a.rest * b.rest, a.zeros + b.zeros };
    }
    __device__ void finish(state v, int64_t i) const
    {
        y[0][i] = v.all;
        y[1][i] = v.rest;
        y[2][i] = v.zeros;
    }
};

template <class S> static tp_code prod_fwd(const tp_call *c)
{
    const factors r = { { tp_out<float>(&c->y[0]), tp_out<float>(&c->y[1]),
                          tp_out<float>(&c->y[2]) } };
    return tp_reduce<S>(c, r);
}

/* dx = dy times the product of the other elements */
struct factors_grad {
    const float *rest, *zeros, *dy;
    __device__ float operator()(float x, int64_t i) const
    {
        const float g = dy[i] * rest[i], z = zeros[i];
        return x == 0.0f ? (z == 1.0f ? g : 0.0f) : z == 0.0f ? g / x : 0.0f;
    }
};

template <class S> static tp_code prod_bwd(const tp_call *c)
{
    const factors_grad g = { tp_in<float>(&c->y[1]), tp_in<float>(&c->y[2]),
                             tp_in<float>(&c->dy[0]) };
    return tp_reduce_grad<S>(c, g);
}

/* ---- logsumexp: log sum e^(x - m) + m with m the largest x, or 0 if that is infinite ---- */

static __device__ inline float shift(float most)
{
    return most - most == 0.0f ? most : 0.0f;
}

struct exps {
    struct state {
        float most, sum;
    };
    float *y;
    static __device__ state none() { return { -INFINITY, 0.0f }; }
    template <class S> __device__ void add(state &v, S x, int64_t) const
    {
        const float f = tp_float(x);
        if (f > v.most) {
            v.sum = v.sum == 0.0f ? 0.0f : v.sum * expf(shift(v.most) - shift(f));
            v.most = f;
        }
        v.sum += expf(f - shift(v.most));
    }
    static __device__ state join(state a, state b)
    {
        const float most = b.most > a.most ? b.most : a.most, m = shift(most);
        const float sa = a.sum == 0.0f ? 0.0f : a.sum * expf(shift(a.most) - m);
        const float sb = b.sum == 0.0f ? 0.0f : b.sum * expf(shift(b.most) - m);
        return { most, sa + sb };
    }
    __device__ void finish(state v, int64_t i) const { y[i] = shift(v.most) + logf(v.sum); }
};

template <class S> static tp_code logsumexp_fwd(const tp_call *c)
{
    const exps r = { tp_out<float>(&c->y[0]) };
    return tp_reduce<S>(c, r);
}

/* dx = dy e^(x - y); where y is -infinity so is every x, and the gradient is 0. */
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
