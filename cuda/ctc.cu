/* ctc.cu - connectionist temporal classification; formulas and layout as in cpu/ctc.c.
 *
 * One block of threads takes a sample and iterates over time, all states of a row at once: bound by
 * the latency of some five barriers per row, not by memory. Labels that occur several times in a
 * target are added along a chain, by one thread in order. Lengths or labels out of range make their
 * sample's loss and gradients NaN. */
#include "cuda/kit/any.cuh"
#include "cuda/kit/loss.cuh"

struct problem {
    int64_t B, N, V, S, stride, blank; /* S: columns of target; stride: states of a row, 2S+1 */
    tp_reader x;
    tp_ids target, rows, labels;
    float *alpha, *base; /* [B,N,stride], [B,N+1,2] */
    int reduction;       /* a tp_reduction */
    bool zero_infinity;
};

static problem problem_of(const tp_call *c)
{
    const tp__ctc_attr *a = static_cast<const tp__ctc_attr *>(c->attr);
    const tp_view *x = &c->x[0];
    const int64_t S = c->x[1].dim[1];
    return { x->dim[0],
             x->dim[1],
             x->dim[2],
             S,
             2 * S + 1,
             a->blank,
             tp_reads(x),
             tp_ids_of(&c->x[1], 0),
             tp_ids_of(&c->x[2], x->dim[1]),
             tp_ids_of(&c->x[3], 0),
             tp_out<float>(&c->y[1]),
             tp_out<float>(&c->y[2]),
             (int)a->reduction,
             a->zero_infinity };
}

/* ---- one sample ---- */

struct sample {
    int64_t b, rows, S; /* S: labels that count */
    bool valid;
    float *alpha, *base;
};

static __device__ inline int64_t label_of(const problem &k, const sample &s, int64_t u)
{
    return k.target[s.b * k.S + u];
}

/* All threads get the result. */
static __device__ inline sample sample_of(const problem &k, int64_t b)
{
    sample s = {
        b, k.rows[b], k.labels[b], true, k.alpha + b * k.N * k.stride, k.base + b * (k.N + 1) * 2
    };
    float bad = s.rows < 0 || s.rows > k.N || s.S < 0 || s.S > k.S ? 1.0f : 0.0f;
    for (int64_t u = threadIdx.x; bad == 0.0f && u < s.S; u += blockDim.x) {
        const int64_t label = label_of(k, s, u);
        if (label < 0 || label >= k.V || label == k.blank) bad = 1.0f;
    }
    s.valid = tp_block<tp_max_of>(bad) == 0.0f;
    if (!s.valid) s.rows = s.S = 0;
    return s;
}

/* Can label u follow label u - 1 without a blank? */
static __device__ inline bool skips(const problem &k, const sample &s, int64_t u)
{
    return u > 0 && label_of(k, s, u) != label_of(k, s, u - 1);
}

static __device__ inline float sum2(float a, float b)
{
    const float m = fmaxf(a, b);
    if (m == -INFINITY) return m;
    return m + log1pf(expf(-fabsf(a - b)));
}

static __device__ inline float sum3(float a, float b, float c)
{
    const float m = fmaxf(fmaxf(a, b), c);
    if (m == -INFINITY) return m;
    return m + logf(expf(a - m) + expf(b - m) + expf(c - m));
}

static __device__ inline void put_base(float *at, double x)
{
    at[0] = (float)x;
    at[1] = fabs(x) < (double)INFINITY ? (float)(x - (double)at[0]) : 0.0f;
}

static __device__ inline double get_base(const float *at)
{
    return (double)at[0] + (double)at[1];
}

/* ---- forward ---- */

/* State i of row t; states: S+1 blanks, then S labels. top: the maximum of row t - 1. */
static __device__ inline float state(const problem &k, const sample &s, int64_t t, int64_t i,
                                     float top)
{
    const int64_t S = s.S, at = (s.b * k.N + t) * k.V;
    const float *e = s.alpha + (t - 1) * k.stride, *o = e + S + 1;
    if (i <= S) {
        const float x = k.x[at + k.blank];
        if (t == 0) return i == 0 ? x : -INFINITY;
        return x - top + (i == 0 ? e[0] : sum2(e[i], o[i - 1]));
    }
    const int64_t u = i - S - 1;
    const float x = k.x[at + label_of(k, s, u)];
    if (t == 0) return u == 0 ? x : -INFINITY;
    return x - top + sum3(o[u], e[u], skips(k, s, u) ? o[u - 1] : -INFINITY);
}

/* The log-likelihood; only thread 0's value is valid. */
static __device__ inline double likelihood(const problem &k, const sample &s)
{
    const int64_t n = 2 * s.S + 1;
    double base = 0.0;
    float top = 0.0f;
    if (!s.valid) return NAN;
    if (s.rows == 0) return s.S == 0 ? 0.0 : -INFINITY;
    for (int64_t t = 0; t < s.rows; t++) {
        if (threadIdx.x == 0) put_base(s.base + 2 * t, base += (double)top);
        float next = -INFINITY;
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            const float v = state(k, s, t, i, top);
            s.alpha[t * k.stride + i] = v;
            next = v > next || v != v ? v : next;
        }
        top = tp_block<tp_max_of>(next); /* a barrier: the row is complete */
        if (top == -INFINITY) return -INFINITY;
    }
    const float *last = s.alpha + (s.rows - 1) * k.stride;
    return base + (double)(s.S > 0 ? sum2(last[s.S], last[2 * s.S]) : last[0]);
}

/* The factor of a sample's loss in the result. */
static __device__ inline double share(const problem &k, const sample &s)
{
    if (k.reduction == TP_MEAN) return 1.0 / ((double)k.B * (double)(s.S > 1 ? s.S : 1));
    return k.reduction == TP_MEAN_ALL ? 1.0 / (double)k.B : 1.0;
}

__global__ void __launch_bounds__(TP_THREADS) ctc_kernel(problem k, float *y, tp_loss_part *part)
{
    TP_EACH_BLOCK (b, k.B) {
        const sample s = sample_of(k, b);
        const double v = likelihood(k, s);
        if (threadIdx.x == 0) {
            const double loss = k.zero_infinity && v == -INFINITY ? 0.0 : -v;
            put_base(s.base + 2 * k.N, v);
            if (y)
                y[b] = (float)loss;
            else
                part[b] = { (float)(loss * share(k, s)), 1.0f };
        }
        __syncthreads();
    }
}

static tp_code ctc_fwd(const tp_call *c)
{
    const problem k = problem_of(c);
    const bool each = k.reduction == TP_EACH;
    tp_loss_part *part = static_cast<tp_loss_part *>(c->work);
    const tp_code code =
        tp_launch(c, ctc_kernel, tp_grid(c, k.B, 1), TP_THREADS, 0, k,
                  each ? tp_out<float>(&c->y[0]) : (float *)NULL, each ? NULL : part);
    return code == TP_OK && !each ? tp_finish_loss(c, k.B, part, 1.0) : code;
}

/* ---- backward ---- */

/* Scratch of one sample: backward variables, the same with emissions, expected counts of labels;
 * the next position of the same label (-1: none), and whether a position is the first. */
struct scratch {
    float *beta, *next, *post;
    int32_t *link, *first;
};

static inline size_t scratch_size(int64_t S)
{
    return (size_t)(7 * S + 2) * sizeof(float);
}

static __device__ inline scratch scratch_of(const problem &k, float *work, int64_t b)
{
    float *p = work + b * (7 * k.S + 2);
    int32_t *link = reinterpret_cast<int32_t *>(p + 2 * k.stride + k.S);
    return { p, p + k.stride, p + 2 * k.stride, link, link + k.S };
}

static size_t ctc_work(const tp_call *c)
{
    const size_t B = (size_t)c->x[0].dim[0];
    return B * (tp_is_backward(c) ? scratch_size(c->x[1].dim[1]) : sizeof(tp_loss_part));
}

static __device__ inline void chain(const problem &k, const sample &s, const scratch &w)
{
    for (int64_t u = threadIdx.x; u < s.S; u += blockDim.x) {
        const int64_t label = label_of(k, s, u);
        int64_t next = u + 1, before = u - 1;
        while (next < s.S && label_of(k, s, next) != label) next++;
        while (before >= 0 && label_of(k, s, before) != label) before--;
        w.link[u] = next < s.S ? (int32_t)next : -1;
        w.first[u] = before < 0;
    }
}

/* Writes row t of dx; alpha + beta + off are logarithms of expected counts. */
static __device__ inline void expect(const problem &k, const sample &s, const scratch &w, int64_t t,
                                     float off, float g, const tp_writer_of &dx)
{
    const int64_t S = s.S, row = (s.b * k.N + t) * k.V;
    const float *alpha = s.alpha + t * k.stride;
    float blanks = 0.0f;
    for (int64_t v = threadIdx.x; v < k.V; v += blockDim.x) dx.put(row + v, 0.0f);
    for (int64_t i = threadIdx.x; i < 2 * S + 1; i += blockDim.x) {
        const float p = expf(alpha[i] + w.beta[i] + off);
        if (i <= S)
            blanks += p;
        else
            w.post[i - S - 1] = p;
    }
    blanks = tp_block<tp_sum_of>(blanks); /* barriers: zeros and counts are stored */
    if (threadIdx.x == 0) dx.put(row + k.blank, -g * blanks);
    for (int64_t u = threadIdx.x; u < S; u += blockDim.x) {
        if (!w.first[u]) continue;
        float sum = 0.0f;
        for (int64_t v = u; v >= 0; v = w.link[v]) sum += w.post[v];
        dx.put(row + label_of(k, s, u), -g * sum);
    }
}

/* Computes backward variables of row t - 1, returns this thread's maximum. top: that of row t. */
static __device__ inline float retreat(const problem &k, const sample &s, const scratch &w,
                                       int64_t t, float top)
{
    const int64_t S = s.S, n = 2 * S + 1, row = (s.b * k.N + t) * k.V;
    const float *ne = w.next, *no = ne + S + 1;
    float largest = -INFINITY;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
        w.next[i] = w.beta[i] + (k.x[row + (i <= S ? k.blank : label_of(k, s, i - S - 1))] - top);
    __syncthreads();
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        const int64_t u = i <= S ? i : i - S - 1;
        float v;
        if (i <= S)
            v = u < S ? sum2(ne[u], no[u]) : ne[S];
        else
            v = u + 1 < S ? sum3(no[u], ne[u + 1], skips(k, s, u + 1) ? no[u + 1] : -INFINITY)
                          : sum2(no[u], ne[u + 1]);
        w.beta[i] = v;
        largest = v > largest || v != v ? v : largest;
    }
    return largest;
}

/* dy: per sample, or one for all */
__global__ void __launch_bounds__(TP_THREADS)
    ctc_grad(problem k, const float *dy, float *work, tp_writer_of dx)
{
    TP_EACH_BLOCK (b, k.B) {
        const sample s = sample_of(k, b);
        const scratch w = scratch_of(k, work, b);
        const double all = get_base(s.base + 2 * k.N);
        const float g = k.reduction == TP_EACH ? dy[b] : (float)((double)*dy * share(k, s));
        const int64_t rows = all == -INFINITY ? 0 : s.rows, n = 2 * s.S + 1;
        double base = 0.0;
        float top = 0.0f;
        for (int64_t i = rows * k.V + threadIdx.x; i < k.N * k.V; i += blockDim.x)
            dx.put(b * k.N * k.V + i, s.valid ? 0.0f : NAN);
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
            w.beta[i] = i == s.S || (s.S > 0 && i == 2 * s.S) ? 0.0f : -INFINITY;
        chain(k, s, w);
        __syncthreads();
        for (int64_t t = rows - 1; t >= 0; t--) {
            expect(k, s, w, t, (float)(get_base(s.base + 2 * t) + base - all), g, dx);
            if (t == 0) break;
            base += (double)top;
            top = tp_block<tp_max_of>(retreat(k, s, w, t, top));
        }
        __syncthreads();
    }
}

static tp_code ctc_bwd(const tp_call *c)
{
    const problem k = problem_of(c);
    if (!c->dx[0].data) return TP_OK;
    return tp_launch(c, ctc_grad, tp_grid(c, k.B, 1), TP_THREADS, 0, k, tp_in<float>(&c->dy[0]),
                     static_cast<float *>(c->work), tp_writes(&c->dx[0]));
}

TP_CUDA_KERNEL_UNTYPED(ctc_fwd)
TP_CUDA_KERNEL_UNTYPED(ctc_bwd)
TP_CUDA_WORK(ctc_work)
