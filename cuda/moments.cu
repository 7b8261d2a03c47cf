/* moments.cu - var, std and norms over any set of axes (reducer.cuh).
 *
 * Squares are also summed scaled up and down, in case they leave float's range. Variances use the
 * running mean (Welford 1962), and parts are joined by Chan's formula, as on the CPU. Reads x once;
 * bound by memory. */
#include <cmath>

#include "cuda/kit/reducer.cuh"

static float option(const tp_call *c)
{
    return (float)tp_reduce_attr_of(c)->k;
}

/* Squares of numbers times 2^60 or 2^-60 replace those that are too small or too large. */
static constexpr float UP = 0x1p60f, DOWN = 0x1p-60f, LEAST = 0x1p-100f;

/* Sums of products, plain and scaled. */
struct squares {
    float plain, up, down;
    __device__ void add(float a, float b)
    {
        plain += a * b;
        up += (a * UP) * (b * UP);
        down += (a * DOWN) * (b * DOWN);
    }
    __device__ void add(squares s)
    {
        plain += s.plain;
        up += s.up;
        down += s.down;
    }
    __device__ float root(float by) const
    {
        return plain == INFINITY ? sqrtf(down / by) * UP
               : plain < LEAST   ? sqrtf(up / by) * DOWN
                                 : sqrtf(plain / by);
    }
};

/* ---- var and std ---- */

struct moments {
    struct state {
        float n, mean;
        squares M;
    };
    float *y, *mean;
    float correction;
    bool root;
    static __device__ state none() { return { 0.0f, 0.0f, { 0.0f, 0.0f, 0.0f } }; }
    template <class S> __device__ void add(state &v, S x, int64_t) const
    {
        const float d = tp_float(x) - v.mean;
        v.n += 1.0f;
        v.mean += d / v.n;
        v.M.add(d, tp_float(x) - v.mean);
    }
    static __device__ state join(state a, state b)
    {
        const float n = a.n + b.n, d = b.mean - a.mean;
        if (a.n == 0.0f || b.n == 0.0f) return a.n == 0.0f ? b : a;
        const float weight = a.n * (b.n / n);
        squares between = { 0.0f, 0.0f, 0.0f };
        between.add(d, d);
        state v = { n, a.mean + d * (b.n / n), a.M };
        v.M.add(b.M);
        v.M.add({ between.plain * weight, between.up * weight, between.down * weight });
        return v;
    }
    __device__ void finish(state v, int64_t i) const
    {
        const float free = v.n == 0.0f ? NAN : fmaxf(v.n - correction, 0.0f);
        y[i] = v.n == 0.0f ? NAN : root ? v.M.root(free) : v.M.plain / free;
        mean[i] = v.n == 0.0f ? NAN : v.mean;
    }
};

template <class S> static tp_code moments_of(const tp_call *c, bool root)
{
    const moments r = { tp_out<float>(&c->y[0]), tp_out<float>(&c->y[1]), option(c), root };
    return tp_reduce<S>(c, r);
}

template <class S> static tp_code var_fwd(const tp_call *c)
{
    return moments_of<S>(c, false);
}
template <class S> static tp_code std_fwd(const tp_call *c)
{
    return moments_of<S>(c, true);
}

/* dx = k (x - mean): var has k = 2 dy / (n - correction), std k = dy / (y (n - correction)). */
struct moments_grad {
    const float *y, *mean, *dy; /* y: of std, or NULL */
    float scale;
    __device__ float operator()(float x, int64_t i) const
    {
        const float k = !y ? dy[i] : y[i] == 0.0f ? 0.0f : dy[i] / y[i];
        return y && y[i] == 0.0f ? 0.0f : scale * k * (x - mean[i]);
    }
};

template <class S> static tp_code moments_bwd(const tp_call *c, const float *y)
{
    const int64_t results = c->dy[0].numel;
    const float n = (float)(c->x[0].numel / (results ? results : 1)), free = n - option(c);
    const moments_grad g = { y, tp_in<float>(&c->y[1]), tp_in<float>(&c->dy[0]),
                             (y ? 1.0f : 2.0f) / (free > 0.0f ? free : 0.0f) };
    return tp_reduce_grad<S>(c, g);
}

template <class S> static tp_code var_bwd(const tp_call *c)
{
    return moments_bwd<S>(c, (const float *)NULL);
}
template <class S> static tp_code std_bwd(const tp_call *c)
{
    return moments_bwd<S>(c, tp_in<float>(&c->y[0]));
}

/* ---- norms ---- */

struct powers {
    struct state {
        squares sum; /* of powers for p other than 2 */
    };
    float *y;
    float p;
    static __device__ state none() { return { { 0.0f, 0.0f, 0.0f } }; }
    __device__ float power(float f) const
    {
        return p == 1.0f ? f : p == 0.0f ? (f != 0.0f ? 1.0f : 0.0f) : powf(f, p);
    }
    template <class S> __device__ void add(state &v, S x, int64_t) const
    {
        const float f = fabsf(tp_float(x));
        if (p == 2.0f)
            v.sum.add(f, f);
        else if (p == 0.0f || p == 1.0f)
            v.sum.plain += power(f);
        else
            v.sum.add({ power(f), power(f * UP), power(f * DOWN) });
    }
    static __device__ state join(state a, state b)
    {
        a.sum.add(b.sum);
        return a;
    }
    __device__ float general(squares s) const
    {
        if (s.plain >= LEAST && s.plain < INFINITY) return powf(s.plain, 1.0f / p);
        const float v =
            s.plain == INFINITY ? powf(s.down, 1.0f / p) * UP : powf(s.up, 1.0f / p) * DOWN;
        return s.plain == s.plain ? v : s.plain;
    }
    __device__ void finish(state v, int64_t i) const
    {
        y[i] = p == 2.0f ? v.sum.root(1.0f) : p == 1.0f || p == 0.0f ? v.sum.plain : general(v.sum);
    }
};

/* The largest magnitude and how many elements have it. */
struct magnitudes {
    struct state {
        float largest, ties;
    };
    float *y, *ties;
    static __device__ state none() { return { 0.0f, 0.0f }; }
    static __device__ state join(state a, state b)
    {
        if (a.largest == b.largest) return { a.largest, a.ties + b.ties };
        return b.largest > a.largest || b.largest != b.largest ? b : a;
    }
    template <class S> __device__ void add(state &v, S x, int64_t) const
    {
        v = join(v, { fabsf(tp_float(x)), 1.0f });
    }
    __device__ void finish(state v, int64_t i) const
    {
        y[i] = v.largest;
        ties[i] = v.ties;
    }
};

template <class S> static tp_code norm_fwd(const tp_call *c)
{
    const powers r = { tp_out<float>(&c->y[0]), option(c) };
    const magnitudes m = { tp_out<float>(&c->y[0]), tp_out<float>(&c->y[1]) };
    return std::isinf(tp_reduce_attr_of(c)->k) ? tp_reduce<S>(c, m) : tp_reduce<S>(c, r);
}

/* dx = dy sign(x) (|x| / y)^(p - 1); ties: of p = infinity, or NULL. */
struct norm_grad {
    const float *y, *ties, *dy;
    float p;
    __device__ float operator()(float x, int64_t i) const
    {
        const float sign = x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : 0.0f, f = fabsf(x);
        if (ties) return f == y[i] ? dy[i] / ties[i] * sign : 0.0f;
        if (p == 1.0f) return dy[i] * sign;
        if (p == 0.0f || y[i] == 0.0f) return 0.0f;
        if (p == 2.0f) return dy[i] / y[i] * x;
        return f == 0.0f ? 0.0f : dy[i] * sign * powf(f / y[i], p - 1.0f);
    }
};

template <class S> static tp_code norm_bwd(const tp_call *c)
{
    const bool largest = std::isinf(tp_reduce_attr_of(c)->k);
    const norm_grad g = { tp_in<float>(&c->y[0]),
                          largest ? tp_in<float>(&c->y[1]) : (const float *)NULL,
                          tp_in<float>(&c->dy[0]), option(c) };
    return tp_reduce_grad<S>(c, g);
}

TP_CUDA_KERNEL(var_fwd)
TP_CUDA_KERNEL(var_bwd)
TP_CUDA_KERNEL(std_fwd)
TP_CUDA_KERNEL(std_bwd)
TP_CUDA_KERNEL(norm_fwd)
TP_CUDA_KERNEL(norm_bwd)
