/* muon.cu - Muon's update over the flat blocks of a parameter set; formula in
 * tensor/geometry/segments.h.
 *
 * One kernel moves all moments, updates what AdamW does, and leaves the sum of squares of each
 * block of a matrix's direction. Then each matrix takes three products, by cuBLAS, and one small
 * kernel per iteration. Products of f32 follow the device's choice of TF32. */
#include "cuda/kit/dense.cuh"
#include "cuda/kit/segments.cuh"
#include "tensor/geometry/muon.h"

struct muon {
    const tp_optim_attr *a; /* on the device, as for all optimisers */
    float *p, *u, *v;
    double *squares; /* [blocks] */
};

/* The rule of matrices. */
struct momentum {
    float keep, rest, of_u, of_g;
};

static __device__ inline momentum momentum_of(const tp_optim_attr *a)
{
    const double keep = a->k[TP_MUON_MOMENTUM], rest = (1.0 - keep) * a->scale;
    const bool nesterov = a->k[TP_MUON_NESTEROV] != 0.0;
    return { (float)keep, (float)rest, nesterov ? (float)keep : 1.0f,
             nesterov ? (float)rest : 0.0f };
}

static __device__ inline float direction(momentum k, float u, float g)
{
    return k.of_u * u + k.of_g * g;
}

static __device__ void move_matrix(const tp_stretch &t, const muon &f, int64_t block)
{
    const momentum k = momentum_of(f.a);
    double sum = 0.0;
    for (int64_t j = threadIdx.x; j < t.n; j += blockDim.x) {
        const float u = k.keep * f.u[t.own + j] + k.rest * t.g[j];
        f.u[t.own + j] = u;
        const double d = (double)direction(k, u, t.g[j]);
        sum += d * d;
    }
    sum = tp_block<tp_sum_of>(sum);
    if (threadIdx.x == 0) f.squares[block] = sum;
}

static __device__ void step_rest(const tp_stretch &t, const muon &f)
{
    const float rate = (float)t.s->rate, root = (float)t.s->root, before = (float)t.s->before;
    const float scale = (float)f.a->scale, eps = (float)f.a->k[TP_MUON_EPS];
    const float beta1 = (float)f.a->k[TP_MUON_BETA1], beta2 = (float)f.a->k[TP_MUON_BETA2];
    const float rest1 = (float)(1.0 - f.a->k[TP_MUON_BETA1]);
    const float rest2 = (float)(1.0 - f.a->k[TP_MUON_BETA2]);
    float *v = f.v + t.s->own[1] + (t.at - t.s->at);
    for (int64_t j = threadIdx.x; j < t.n; j += blockDim.x) {
        const float w = f.p[t.at + j], d = scale * t.g[j];
        const float m1 = beta1 * f.u[t.own + j] + rest1 * d;
        const float v1 = beta2 * v[j] + rest2 * d * d;
        f.u[t.own + j] = m1;
        v[j] = v1;
        f.p[t.at + j] = w - before * w - rate * m1 / (root * sqrtf(v1) + eps);
    }
}

__global__ void __launch_bounds__(TP_THREADS) moments_kernel(tp_segments s, muon f)
{
    TP_EACH_BLOCK (b, s.blocks) {
        const tp_stretch t = tp_stretch_of(s, b);
        if (t.s->taken)
            move_matrix(t, f, b);
        else
            step_rest(t, f);
    }
}

/* One block of threads. */
__global__ void __launch_bounds__(TP_THREADS)
    factor_kernel(int64_t blocks, const double *squares, double *factor)
{
    double sum = 0.0;
    for (int64_t b = threadIdx.x; b < blocks; b += blockDim.x) sum += squares[b];
    sum = tp_block<tp_sum_of>(sum);
    const double norm = sqrt(sum);
    if (threadIdx.x == 0) *factor = 1.0 / (norm < TP_MUON_LEAST ? TP_MUON_LEAST : norm);
}

__global__ void __launch_bounds__(TP_THREADS)
    start_kernel(int64_t n, const float *u, const float *g, const double *factor, muon f, float *x)
{
    const float by = (float)*factor;
    const momentum k = momentum_of(f.a);
    TP_EACH (i, n) x[i] = by * direction(k, u[i], g[i]);
}

/* B = c B + b A + a I */
__global__ void __launch_bounds__(TP_THREADS)
    polynomial_kernel(int64_t side, const float *a, float *b)
{
    TP_EACH (i, side * side) {
        const float diagonal = i / side == i % side ? (float)TP_MUON_A : 0.0f;
        b[i] = (float)TP_MUON_C * b[i] + (float)TP_MUON_B * a[i] + diagonal;
    }
}

__global__ void __launch_bounds__(TP_THREADS)
    apply_kernel(int64_t n, const float *x, const tp_segment *s, float *p)
{
    const float rate = (float)s->rate, before = (float)s->before;
    TP_EACH (i, n) p[i] = p[i] - before * p[i] - rate * x[i];
}

/* C = op(A) op(B). */
static tp_code product(const tp_call *c, bool ta, bool tb, const float *a, const float *b, float *z,
                       int64_t rows, int64_t terms, int64_t columns)
{
    tp_cuda_gemm g = tp_dense(TP_F32, rows, columns, terms);
    g.a = a;
    g.lda = ta ? rows : terms;
    g.ta = ta;
    g.b = b;
    g.ldb = tb ? terms : columns;
    g.tb = tb;
    g.c = z;
    return tp__cuda_gemm(c, &g);
}

struct scratch {
    double *factor;
    float *x, *next, *a, *b;
};

/* One iteration: from w.x to w.next. */
static tp_code iterate(const tp_call *c, const tp_segment *s, const scratch &w)
{
    const int64_t R = s->rows, C = s->cols, n = tp__muon_side(s);
    const bool wide = R <= C;
    tp_code code = product(c, !wide, wide, w.x, w.x, w.a, n, wide ? C : R, n);
    if (code == TP_OK) code = product(c, false, false, w.a, w.a, w.b, n, n, n);
    if (code == TP_OK)
        code = tp_launch(c, polynomial_kernel, tp_grid(c, n * n), TP_THREADS, 0, n, w.a, w.b);
    if (code != TP_OK) return code;
    return wide ? product(c, false, false, w.b, w.x, w.next, R, R, C)
                : product(c, false, false, w.x, w.b, w.next, R, C, C);
}

/* s: on the host; there: the same on the device. */
static tp_code step_matrix(const tp_call *c, const tp_segment *s, const tp_segment *there,
                           const muon &f, scratch w)
{
    const int64_t blocks = (s->numel + TP_BLOCK - 1) / TP_BLOCK;
    const unsigned grid = tp_grid(c, s->numel);
    const float *g = static_cast<const float *>(s->grad);
    tp_code code =
        tp_launch(c, factor_kernel, 1, TP_THREADS, 0, blocks, f.squares + s->block, w.factor);
    if (code == TP_OK)
        code = tp_launch(c, start_kernel, grid, TP_THREADS, 0, s->numel, f.u + s->own[0], g,
                         w.factor, f, w.x);
    for (int k = 0; code == TP_OK && k < (int)tp_options(c)->k[TP_MUON_ITERATIONS]; k++) {
        code = iterate(c, s, w);
        float *x = w.x;
        w.x = w.next;
        w.next = x;
    }
    if (code != TP_OK) return code;
    return tp_launch(c, apply_kernel, grid, TP_THREADS, 0, s->numel, w.x, there, f.p + s->at);
}

static tp_code muon_step(const tp_call *c)
{
    const tp_segments *host = &tp_options(c)->s, s = tp_table_of(tp_options(c));
    const tp_muon_sizes n = tp__muon_sizes(host);
    const muon f = { tp_options(c)->there, tp_out<float>(&c->y[0]), tp_out<float>(&c->y[1]),
                     tp_out<float>(&c->y[2]), static_cast<double *>(c->work) };
    float *x = reinterpret_cast<float *>(f.squares + tp__muon_doubles(host)), *a = x + 2 * n.x;
    const scratch w = { f.squares + host->blocks, x, x + n.x, a, a + n.a };
    tp_code code = tp_launch(c, moments_kernel, tp_grid(c, s.blocks, 1), TP_THREADS, 0, s, f);
    for (int64_t i = 0; code == TP_OK && i < host->n; i++)
        if (host->at[i].taken) code = step_matrix(c, &host->at[i], &s.at[i], f, w);
    return code;
}

static size_t muon_work(const tp_call *c)
{
    return tp__muon_bytes(&tp_options(c)->s, sizeof(float));
}

TP_CUDA_KERNEL_UNTYPED(muon_step)
TP_CUDA_WORK(muon_work)
