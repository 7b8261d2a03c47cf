/* cross_entropy.cu - fused log-softmax and cross entropy, rows of V logits x; formulas as in
 * cpu/cross_entropy.c.
 *
 * 8 or 32 lanes or a block process a row, in packs of 16 bytes. Forward reads it once: each thread
 * keeps a running maximum, and sums relative to it that are rescaled when it rises. Backward reads
 * and writes it once: 4 bytes per element forward and 8 backward (f32; half in bf16), plus target
 * probabilities (read twice in backward, the second time from cache), with about 12 operations:
 * bound by memory.
 *
 * __expf has the error of rounding x log2(e): |x| 2^-24 of a term e^x, x <= 0, so less than 2^-25
 * of the sum, which is at least 1. */
#include <cfloat>

#include "cuda/kit/any.cuh"
#include "cuda/kit/loss.cuh"

/* q_j = w_j (hit t_j + rest), w_j = 1 without weights. Label targets are indices. */
struct problem {
    int64_t rows, V;
    const void *labels;
    bool wide; /* i64 */
    bool aligned;
    float hit, rest;
    tp_reader weights; /* of classes; p NULL: none */
};

/* Replaces the type of probabilities if targets are labels. */
struct by_label {
};

template <class T> constexpr bool is_soft = !std::is_same<T, by_label>::value;

/* m = max_j x_j and s = log sum_j exp(x_j - m) of a row; zeros if the row does not count. */
struct saved {
    float m, s;
};

static __device__ inline int64_t label_of(const problem &k, int64_t r)
{
    return k.wide ? static_cast<const int64_t *>(k.labels)[r]
                  : static_cast<const int32_t *>(k.labels)[r];
}

static __device__ inline float weight_of(const problem &k, int64_t j)
{
    return k.weights.p ? k.weights[j] : 1.0f;
}

/* Visits n elements from p: calls f(size, i) for single elements up to the first 16-byte boundary,
 * for packs, and for the remaining single ones. Each of LANES threads takes its share. */
template <class S, int LANES, class F>
static __device__ inline void walk(const problem &k, const S *p, int64_t n, F f)
{
    constexpr int N = (int)(16 / sizeof(S));
    const std::integral_constant<int, 1> single = {};
    const std::integral_constant<int, N> pack = {};
    const int lane = threadIdx.x % LANES;
    const int64_t before = (int64_t)((0 - reinterpret_cast<uintptr_t>(p)) / sizeof(S) % N);
    const int64_t head = k.aligned && before < n ? before : n;
    const int64_t packs = (n - head) / N;
    for (int64_t i = lane; i < head; i += LANES) f(single, i);
    for (int64_t i = lane; i < packs; i += LANES) f(pack, head + i * N);
    for (int64_t i = head + packs * N + lane; i < n; i += LANES) f(single, i);
}

/* ---- forward ---- */

/* Statistics of some elements: the maximum, sum e^(x - top), sum q and sum q (x - top). */
struct tally {
    float top, sum, q, dot;
};

/* Rescales the sums to a larger maximum; without elements the difference is infinite, dot 0. */
static __device__ inline void raise(tally &a, float top)
{
    if (a.q != 0.0f) a.dot += a.q * (a.top - top);
    a.sum *= __expf(a.top - top);
    a.top = top;
}

template <class S, class T, int N>
static __device__ inline void include(const problem &k, tally &a, const S *x, const T *t, int64_t j)
{
    const tp_pack<S, N> v = tp_load_n<S, N>(x);
    float top = a.top;
    for (int e = 0; e < N; e++) top = fmaxf(top, tp_float(v.at[e]));
    raise(a, top);
    for (int e = 0; e < N; e++) a.sum += __expf(tp_float(v.at[e]) - top);
    if constexpr (is_soft<T>) {
        const tp_pack<T, N> w = tp_load_n<T, N>(t);
        for (int e = 0; e < N; e++) {
            const float q = (k.hit * tp_float(w.at[e]) + k.rest) * weight_of(k, j + e);
            a.q += q;
            a.dot += q * (tp_float(v.at[e]) - top);
        }
    } else if (k.rest != 0.0f && k.weights.p) {
        for (int e = 0; e < N; e++) {
            const float q = k.rest * k.weights[j + e];
            a.q += q;
            a.dot += q * (tp_float(v.at[e]) - top);
        }
    } else if (k.rest != 0.0f) {
        a.q += k.rest * (float)N;
        for (int e = 0; e < N; e++) a.dot += k.rest * (tp_float(v.at[e]) - top);
    }
}

template <int LANES> static __device__ inline tally joined(tally a)
{
    raise(a, tp_group<tp_max_of, LANES>(a.top));
    a.sum = tp_group<tp_sum_of, LANES>(a.sum);
    a.q = tp_group<tp_sum_of, LANES>(a.q);
    a.dot = tp_group<tp_sum_of, LANES>(a.dot);
    return a;
}

template <class T, class S>
static __device__ inline float loss_of(const problem &k, const S *x, int64_t label, const tally &a)
{
    const float s = logf(a.sum), spread = is_soft<T> || k.rest != 0.0f ? s * a.q - a.dot : 0.0f;
    if (is_soft<T>) return spread;
    if (label >= k.V) return NAN;
    return k.hit * weight_of(k, label) * (s - (tp_float(x[label]) - a.top)) + spread;
}

/* each or part may be NULL. A part covers the rows that a block processes at once. */
template <class S, class T, int LANES>
__global__ void __launch_bounds__(TP_THREADS, 4)
    loss_kernel(problem k, const S *x, const T *t, saved *keep, float *each, tp_loss_part *part)
{
    constexpr int GROUPS = TP_THREADS / LANES;
    TP_SHARED(tp_loss_part, of_group, [GROUPS]);
    TP_EACH_BLOCK (b, (k.rows + GROUPS - 1) / GROUPS) {
        const int group = threadIdx.x / LANES;
        const int64_t r = b * GROUPS + group;
        const int64_t label = is_soft<T> || r >= k.rows ? 0 : label_of(k, r);
        const bool counts = r < k.rows && label >= 0;
        const S *row = x + r * k.V;
        tally a = { -FLT_MAX, 0.0f, 0.0f, 0.0f };
        walk<S, LANES>(k, row, counts ? k.V : 0, [&](auto n, int64_t i) {
            include<S, T, decltype(n)::value>(k, a, row + i, is_soft<T> ? t + r * k.V + i : t, i);
        });
        a = joined<LANES>(a);
        if (threadIdx.x % LANES == 0) {
            const float loss = counts ? loss_of<T>(k, row, label, a) : 0.0f;
            if (r < k.rows) keep[r] = counts ? saved{ a.top, logf(a.sum) } : saved{ 0.0f, 0.0f };
            if (r < k.rows && each) each[r] = loss;
            const bool weighted = counts && !is_soft<T> && label < k.V;
            of_group[group] = { loss, weighted ? weight_of(k, label) : counts ? 1.0f : 0.0f };
        }
        if (part) {
            __syncthreads();
            if (threadIdx.x == 0) {
                tp_loss_part sum = of_group[0];
                for (int g = 1; g < GROUPS; g++) {
                    sum.sum += of_group[g].sum;
                    sum.counted += of_group[g].counted;
                }
                part[b] = sum;
            }
            __syncthreads();
        }
    }
}

/* ---- backward ---- */

typedef unsigned long long counter;

/* *counted += the number of rows that count. Integers may be added in any order. */
static __global__ void __launch_bounds__(TP_THREADS) count_kernel(problem k, counter *counted)
{
    counter n = 0;
    TP_EACH (r, k.rows) n += label_of(k, r) >= 0;
    n = tp_block<tp_sum_of>(n);
    if (threadIdx.x == 0 && n > 0) atomicAdd(counted, n);
}

/* *divisor = the weights of the rows that count, 1 if they have none. Runs as one block, so that
 * they are added in one order. */
static __global__ void __launch_bounds__(1024) weigh_kernel(problem k, float *divisor)
{
    double sum = 0.0;
    for (int64_t r = threadIdx.x; r < k.rows; r += blockDim.x) {
        const int64_t label = label_of(k, r);
        if (label >= 0) sum += label < k.V ? (double)k.weights[label] : 1.0;
    }
    sum = tp_block<tp_sum_of>(sum);
    if (threadIdx.x == 0) *divisor = sum != 0.0 ? (float)sum : 1.0f;
}

/* The gradient of a row's loss: dy[each ? r : 0] times factor, divided by the number of rows that
 * count, or by the divisor, unless that is NULL. */
struct outer {
    const float *dy;
    bool each;
    float factor;
    const counter *counted;
    const float *divisor;
};

static __device__ inline float gradient_of(const outer &o, int64_t r)
{
    const float g = o.factor * o.dy[o.each ? r : 0];
    if (o.divisor) return g / *o.divisor;
    return o.counted ? __fdividef(g, (float)max(*o.counted, (counter)1)) : g;
}

/* Values shared by all elements of a row: dx = total e^(x - m - s) - w (hit t + rest), where hit of
 * a label has its weight already. */
struct slope {
    saved l;
    float total, hit, rest;
};

template <class S, class T, int N>
static __device__ inline void grad(const problem &k, const slope &a, const S *x, const T *t,
                                   int64_t label, int64_t j, S *dx)
{
    tp_pack<S, N> v = tp_load_n<S, N>(x);
    float d[N];
    for (int e = 0; e < N; e++) d[e] = a.total * __expf((tp_float(v.at[e]) - a.l.m) - a.l.s);
    for (int e = 0; e < N && k.rest != 0.0f; e++) d[e] -= a.rest * weight_of(k, j + e);
    if constexpr (is_soft<T>) {
        const tp_pack<T, N> w = tp_load_n<T, N>(t);
        for (int e = 0; e < N; e++) d[e] -= a.hit * tp_float(w.at[e]) * weight_of(k, j + e);
    } else {
        for (int e = 0; e < N; e++)
            if (e == label - j) d[e] -= a.hit;
    }
    for (int e = 0; e < N; e++) tp_put(&v.at[e], d[e]);
    tp_store(dx, v);
}

/* g sum_j q_j of a row whose n logits are at x. */
template <class S, class T, int LANES>
static __device__ inline float total_of(const problem &k, const slope &a, const S *x, const T *t,
                                        int64_t n)
{
    float targets = 0.0f, weights = 0.0f; /* the sums of w_j t_j and of w_j */
    walk<S, LANES>(k, x, n, [&](auto size, int64_t i) {
        constexpr int N = decltype(size)::value;
        float w[N];
        for (int e = 0; e < N; e++) weights += w[e] = weight_of(k, i + e);
        if constexpr (is_soft<T>) {
            const auto p = tp_load_n<T, N>(t + i);
            for (int e = 0; e < N; e++) targets += w[e] * tp_float(p.at[e]);
        }
    });
    targets = is_soft<T> ? tp_group<tp_sum_of, LANES>(targets) : 1.0f;
    return a.hit * targets + a.rest * tp_group<tp_sum_of, LANES>(weights);
}

template <class S, class T, int LANES>
__global__ void __launch_bounds__(TP_THREADS, 4)
    loss_grad(problem k, outer o, const S *x, const T *t, const saved *keep, S *dx)
{
    constexpr int GROUPS = TP_THREADS / LANES;
    TP_EACH_BLOCK (b, (k.rows + GROUPS - 1) / GROUPS) {
        const int64_t r = b * GROUPS + threadIdx.x / LANES, n = r < k.rows ? k.V : 0;
        const int64_t label = is_soft<T> || n == 0 ? 0 : label_of(k, r), at = r * k.V;
        const float g = n == 0 ? 0.0f : label < k.V ? gradient_of(o, r) : NAN;
        slope a = { n == 0 ? saved() : keep[r], g, g * k.hit, g * k.rest };
        if (!is_soft<T> && k.weights.p && label >= 0 && label < k.V) a.hit *= k.weights[label];
        if (is_soft<T> || (k.weights.p && k.rest != 0.0f))
            a.total = total_of<S, T, LANES>(k, a, x + at, is_soft<T> ? t + at : t, n);
        else if (k.weights.p)
            a.total = a.hit; /* weights of other classes are not read */
        walk<S, LANES>(k, x + at, n, [&](auto size, int64_t i) {
            constexpr int N = decltype(size)::value;
            if (label < 0) {
                tp_pack<S, N> none;
                for (int e = 0; e < N; e++) tp_put(&none.at[e], 0.0f);
                tp_store(dx + at + i, none);
            } else {
                grad<S, T, N>(k, a, x + at + i, is_soft<T> ? t + at + i : t, label, i, dx + at + i);
            }
        });
    }
}

/* ---- launchers ---- */

static const tp__cross_entropy_attr *attr_of(const tp_call *c)
{
    return static_cast<const tp__cross_entropy_attr *>(c->attr);
}

static problem problem_of(const tp_call *c)
{
    const tp_view *logits = &c->x[0], *target = &c->x[1];
    const double e = attr_of(c)->smoothing;
    problem k = {};
    k.V = logits->dim[logits->ndim - 1];
    k.rows = c->y[1].dim[0];
    k.labels = target->data;
    k.wide = target->dtype == TP_I64;
    k.aligned = tp_aligned(logits->data, tp_is_float(target->dtype) ? target->data : NULL,
                           c->dx ? c->dx[0].data : NULL);
    k.hit = (float)(1.0 - e);
    k.rest = (float)(e / (double)k.V);
    k.weights = tp_reads(&c->x[2]);
    return k;
}

/* Calls f(target, lanes): the type of probabilities or by_label, and the threads per row. */
template <class F> static tp_code with_rows(const tp_call *c, const problem &k, F f)
{
    const auto by_size = [&](auto t) {
        if (k.V <= 128) return f(t, std::integral_constant<int, 8>());
        if (k.V <= 1024) return f(t, std::integral_constant<int, 32>());
        return f(t, std::integral_constant<int, TP_THREADS>());
    };
    if (!tp_is_float(c->x[1].dtype)) return by_size(by_label());
    return tp_with_type(c, c->x[1].dtype, by_size);
}

/* c->work: one part per block of rows. */
template <class S> static tp_code cross_entropy_fwd(const tp_call *c)
{
    const problem k = problem_of(c);
    const tp_reduction reduction = attr_of(c)->reduction;
    const bool each = reduction == TP_EACH;
    tp_loss_part *part = each ? NULL : static_cast<tp_loss_part *>(c->work);
    int64_t parts = 0;
    const tp_code code = with_rows(c, k, [&](auto t, auto lanes) {
        typedef decltype(t) T;
        constexpr int LANES = decltype(lanes)::value, GROUPS = TP_THREADS / LANES;
        parts = (k.rows + GROUPS - 1) / GROUPS;
        return tp_launch(c, loss_kernel<S, T, LANES>, tp_grid(c, k.rows, GROUPS), TP_THREADS, 0, k,
                         tp_in<S>(&c->x[0]), tp_in<T>(&c->x[1]), tp_out<saved>(&c->y[1]),
                         each ? tp_out<float>(&c->y[0]) : (float *)NULL, part);
    });
    if (code != TP_OK || each) return code;
    const double rows = k.rows > 0 ? (double)k.rows : 1.0;
    return tp_finish_loss(c, parts, part,
                          reduction == TP_MEAN       ? 0.0
                          : reduction == TP_MEAN_ALL ? rows
                                                     : 1.0);
}

/* Sets the divisor of o to that of TP_MEAN for labels, made in c->work. */
static tp_code count(const tp_call *c, const problem &k, outer *o)
{
    if (k.weights.p) {
        float *divisor = static_cast<float *>(c->work);
        o->divisor = divisor;
        return tp_launch(c, weigh_kernel, 1, 1024, 0, k, divisor);
    }
    counter *counted = static_cast<counter *>(c->work);
    o->counted = counted;
    const tp_code code = tp__cuda_zero(c, counted, sizeof *counted);
    if (code != TP_OK) return code;
    return tp_launch(c, count_kernel, tp_grid(c, k.rows), TP_THREADS, 0, k, counted);
}

template <class S> static tp_code cross_entropy_bwd(const tp_call *c)
{
    const problem k = problem_of(c);
    const tp_reduction reduction = attr_of(c)->reduction;
    const bool some = reduction == TP_MEAN && !tp_is_float(c->x[1].dtype);
    const bool all = !some && (reduction == TP_MEAN || reduction == TP_MEAN_ALL);
    outer o = { tp_in<float>(&c->dy[0]), reduction == TP_EACH, all ? 1.0f / (float)k.rows : 1.0f,
                NULL, NULL };
    if (!c->dx[0].data) return TP_OK;
    const tp_code code = some ? count(c, k, &o) : TP_OK;
    if (code != TP_OK) return code;
    return with_rows(c, k, [&](auto t, auto lanes) {
        typedef decltype(t) T;
        constexpr int LANES = decltype(lanes)::value;
        return tp_launch(c, loss_grad<S, T, LANES>, tp_grid(c, k.rows, TP_THREADS / LANES),
                         TP_THREADS, 0, k, o, tp_in<S>(&c->x[0]), tp_in<T>(&c->x[1]),
                         tp_in<saved>(&c->y[1]), tp_out<S>(&c->dx[0]));
    });
}

TP_CUDA_KERNEL(cross_entropy_fwd)
TP_CUDA_KERNEL(cross_entropy_bwd)
