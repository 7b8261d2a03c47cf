/* glu.cu - gated linear units: y = act(g) u with g = X Wg^T + bg and u = X Wu^T + bu, products by
 * cuBLAS; and the plain y = a s(b) of two halves.
 *
 *     dg = dy u act'(g)   du = dy act(g)   dX = dg Wg + du Wu   dW = dZ^T X   db = sums of rows
 *
 * Besides the products, forward moves 6 bytes per element of y in bf16 and backward 10: few for 4 K
 * operations. If Wg and Wu are one weight, dg and du are halves of the rows of dZ [rows,2N], and
 * each gradient is one product; otherwise they are two matrices. */
#include "cuda/kit/dense.cuh"
#include "cuda/kit/fold.cuh"
#include "cuda/kit/map.cuh"
#include "cuda/kit/move.cuh"
#include "tensor/geometry/linalg.h"
#include "tensor/geometry/shape_ops.h"
#include "tensor/shape.h"

struct sigmoid_of {
    static __device__ float value(float z) { return logistic(z); }
    static __device__ float slope(float z)
    {
        const float s = logistic(z);
        return s * (1.0f - s);
    }
};
struct relu_of {
    static __device__ float value(float z) { return relu_value(z); }
    static __device__ float slope(float z) { return relu_slope(z); }
};

/* ---- glu_linear ---- */

struct glu {
    bool both;          /* one weight holds gate and other factor */
    int64_t rows, N, K; /* y is [rows,N] */
    int64_t ld, step;   /* dZ: row stride, offset from dg to du */
};

static glu glu_of(const tp_call *c)
{
    glu p = {};
    p.both = tp_absent(&c->x[3]);
    p.N = c->x[1].dim[0] / (p.both ? 2 : 1);
    p.K = c->x[1].dim[1];
    p.rows = p.N > 0 ? c->y[0].numel / p.N : p.K > 0 ? c->x[0].numel / p.K : 0;
    p.ld = p.both ? 2 * p.N : p.N;
    p.step = p.both ? p.N : (p.rows * p.N + 15) / 16 * 16;
    return p;
}

/* Part 0 (gate) or 1 of w (what = 1) or b (2). */
template <class S> static const S *part_of(const tp_call *c, const glu &p, int what, int part)
{
    const tp_view *v = &c->x[p.both || part == 0 ? what : what + 2];
    if (tp_absent(v)) return NULL;
    return tp_in<S>(v) + (p.both && part == 1 ? (what == 1 ? p.N * p.K : p.N) : 0);
}

template <class A> struct gated {
    __device__ float operator()(float g, float u) const { return A::value(g) * u; }
};

/* Calls f with the activation's type. */
template <class F> static tp_code with_gate(const tp_call *c, F f)
{
    switch (static_cast<const tp__glu_attr *>(c->attr)->kind) {
    case TP_GLU_SILU: return f(tp_silu_of());
    case TP_GLU_GELU: return f(tp_gelu_of());
    case TP_GLU_RELU: return f(relu_of());
    default: return f(sigmoid_of());
    }
}

template <class S> static tp_code glu_linear_fwd(const tp_call *c)
{
    const glu p = glu_of(c);
    const int64_t n = p.rows * p.N;
    for (int part = 0; part < 2; part++) {
        const S *b = part_of<S>(c, p, 2, part);
        S *z = tp_out<S>(&c->y[1 + part]);
        tp_cuda_gemm g = tp_dense(c->x[0].dtype, p.rows, p.N, p.K);
        g.a = c->x[0].data;
        g.lda = p.K;
        g.b = part_of<S>(c, p, 1, part);
        g.ldb = p.K;
        g.tb = true;
        g.c = z;
        g.bias = b;
        tp_code code = tp__cuda_gemm(c, &g);
        if (code == TP_OK && b && !g.fused)
            code = tp_launch(c, tp_bias_kernel<S>, tp_grid(c, n), TP_THREADS, 0, n, p.N, b, z);
        if (code != TP_OK) return code;
    }
    return with_gate(c, [&](auto act) {
        return tp_map(c, n, gated<decltype(act)>(), tp_out<S>(&c->y[0]), tp_in<S>(&c->y[1]),
                      tp_in<S>(&c->y[2]));
    });
}

/* Item: N elements of row r from j. */
template <class A, int N, class S>
__global__ void __launch_bounds__(TP_THREADS)
    glu_grad(int64_t n, tp_divisor row, int64_t ld, int64_t step, const S *g, const S *u,
             const S *dy, S *dz)
{
    TP_EACH (e, n) {
        const int64_t r = tp_over(row, e), j = (e - r * row.d) * N;
        const tp_pack<S, N> a = tp_load_n<S, N>(g + e * N), b = tp_load_n<S, N>(u + e * N);
        const tp_pack<S, N> d = tp_load_n<S, N>(dy + e * N);
        tp_pack<S, N> dg, du;
#pragma unroll
        for (int k = 0; k < N; k++) {
            const float x = tp_float(a.at[k]), t = tp_float(d.at[k]);
            tp_put(&dg.at[k], t * tp_float(b.at[k]) * A::slope(x));
            tp_put(&du.at[k], t * A::value(x));
        }
        tp_store(dz + r * ld + j, dg);
        tp_store(dz + r * ld + j + step, du);
    }
}

template <class S> static tp_code grads(const tp_call *c, const glu &p, S *dz)
{
    constexpr int N = (int)(16 / sizeof(S));
    const S *g = tp_in<S>(&c->y[1]), *u = tp_in<S>(&c->y[2]), *dy = tp_in<S>(&c->dy[0]);
    return with_gate(c, [&](auto act) {
        typedef decltype(act) A;
        if (tp_aligned(g, u, dy, dz) && p.N % N == 0)
            return tp_launch(c, glu_grad<A, N, S>, tp_grid(c, p.rows * p.N / N), TP_THREADS, 0,
                             p.rows * p.N / N, tp_by(p.N / N), p.ld, p.step, g, u, dy, dz);
        return tp_launch(c, glu_grad<A, 1, S>, tp_grid(c, p.rows * p.N), TP_THREADS, 0,
                         p.rows * p.N, tp_by(p.N), p.ld, p.step, g, u, dy, dz);
    });
}

/* A dense matrix or vector without data: a sum's shape. */
static tp_view shape_of(tp_dtype type, int64_t rows, int64_t n)
{
    tp_view v = {};
    v.dtype = type;
    v.ndim = rows > 0 ? 2 : 1;
    v.dim[0] = rows > 0 ? rows : n;
    if (rows > 0) v.dim[1] = n;
    v.numel = rows > 0 ? rows * n : n;
    return v;
}

/* Sums rows of dZ, or of its part, for bias `what`. */
template <class S>
static tp_code bias_sum(const tp_call *c, const glu &p, int what, const S *dz, void *work)
{
    const tp_view a = shape_of(c->x[0].dtype, p.rows, p.ld);
    const tp_view b = shape_of(c->x[0].dtype, 0, p.ld);
    return tp_with_type(c, c->dx[what].dtype, [&](auto zero) {
        typedef decltype(zero) B;
        B *db = tp_out<B>(&c->dx[what]);
        const tp_add_to<B> finish = { db, (c->add >> what & 1u) != 0 };
        return tp_fold_sum(c, &a, &b, dz, db, work, finish);
    });
}

static size_t dz_bytes(const tp_call *c, const glu &p)
{
    const int64_t n = p.both ? p.rows * p.ld : 2 * p.step;
    return ((size_t)n * tp_dtype_size(c->y[0].dtype) + 15) / 16 * 16;
}

/* c->work in backward: dZ, then the scratch of the sums. */
static size_t glu_linear_work(const tp_call *c)
{
    const glu p = glu_of(c);
    const tp_view a = shape_of(c->y[0].dtype, p.rows, p.ld), b = shape_of(c->y[0].dtype, 0, p.ld);
    const bool bias = !tp_absent(&c->x[2]) || !tp_absent(&c->x[4]);
    if (!tp_is_backward(c)) return 0;
    return dz_bytes(c, p) + (bias && p.rows > 0 ? tp__fold_work(&a, &b, a.dtype) : 0);
}

/* dW = dZ^T X and db, for the weight that is input `what` and the bias after it. */
template <class S>
static tp_code weight_grads(const tp_call *c, const glu &p, int what, const S *dz, void *work)
{
    const tp_view *dw = &c->dx[what], *db = &c->dx[what + 1];
    bool summed = !db->data;
    tp_code code = TP_OK;
    if (dw->data) {
        tp_cuda_gemm g = tp_dense(c->x[0].dtype, p.ld, p.K, p.rows);
        g.a = dz;
        g.lda = p.ld;
        g.ta = true;
        g.b = c->x[0].data;
        g.ldb = p.K;
        g.c = dw->data;
        g.type_c = dw->dtype;
        g.add = c->add >> what & 1u;
        if (db->dtype == dw->dtype && !(c->add >> (what + 1) & 1u)) g.sums = db->data;
        code = tp__cuda_gemm(c, &g);
        summed = summed || g.fused;
    }
    if (code != TP_OK || summed) return code;
    if (p.rows == 0)
        return c->add >> (what + 1) & 1u
                   ? TP_OK
                   : tp__cuda_zero(c, db->data, (size_t)db->numel * tp_dtype_size(db->dtype));
    return bias_sum(c, p, what + 1, dz, work);
}

/* dX = dZ W: one product, or the sum of two. */
template <class S> static tp_code data_grad(const tp_call *c, const glu &p, const S *dz)
{
    tp_code code = TP_OK;
    for (int part = 0; code == TP_OK && part < (p.both ? 1 : 2); part++) {
        tp_cuda_gemm g = tp_dense(c->x[0].dtype, p.rows, p.K, p.ld);
        g.a = dz + part * p.step;
        g.lda = p.ld;
        g.b = c->x[1 + 2 * part].data;
        g.ldb = p.K;
        g.c = c->dx[0].data;
        g.type_c = c->dx[0].dtype;
        g.add = part == 1 || (c->add & 1u);
        code = tp__cuda_gemm(c, &g);
    }
    return code;
}

template <class S> static tp_code glu_linear_bwd(const tp_call *c)
{
    const glu p = glu_of(c);
    S *dz = static_cast<S *>(c->work);
    void *work = static_cast<char *>(c->work) + dz_bytes(c, p);
    tp_code code = grads(c, p, dz);
    if (code == TP_OK && c->dx[0].data) code = data_grad<S>(c, p, dz);
    if (code == TP_OK) code = weight_grads<S>(c, p, 1, dz, work);
    if (code == TP_OK && !p.both) code = weight_grads<S>(c, p, 3, dz + p.step, work);
    return code;
}

/* ---- glu: y is [outer,half], x [outer,2,half] ---- */

static int64_t half_of(const tp_call *c)
{
    const tp_view *y = &c->y[0];
    int64_t outer, dim, inner;
    tp__axis_split(y, tp__axis(y->ndim, static_cast<const tp_axis_attr *>(c->attr)->axis), &outer,
                   &dim, &inner);
    return dim * inner;
}

template <bool BACK, int N, class S>
__global__ void __launch_bounds__(TP_THREADS)
    halves_kernel(int64_t n, tp_divisor row, const S *x, const S *dy, S *to)
{
    TP_EACH (e, n) {
        const int64_t r = tp_over(row, e), half = row.d * N, at = (e + r * row.d) * N;
        const tp_pack<S, N> a = tp_load_n<S, N>(x + at), b = tp_load_n<S, N>(x + at + half);
        tp_pack<S, N> d = a, da, db;
        if (BACK) d = tp_load_n<S, N>(dy + e * N);
#pragma unroll
        for (int k = 0; k < N; k++) {
            const float s = logistic(tp_float(b.at[k])), t = tp_float(d.at[k]) * s;
            tp_put(&da.at[k], t);
            if (BACK) tp_put(&db.at[k], t * tp_float(a.at[k]) * (1.0f - s));
        }
        tp_store(to + (BACK ? at : e * N), da);
        if (BACK) tp_store(to + at + half, db);
    }
}

template <bool BACK, class S> static tp_code halves(const tp_call *c, const S *dy, S *to)
{
    constexpr int N = (int)(16 / sizeof(S));
    const S *x = tp_in<S>(&c->x[0]);
    const int64_t half = half_of(c), n = c->y[0].numel;
    if ((BACK ? tp_aligned(x, dy, to) : tp_aligned(x, to)) && half % N == 0)
        return tp_launch(c, halves_kernel<BACK, N, S>, tp_grid(c, n / N), TP_THREADS, 0, n / N,
                         tp_by(half / N), x, dy, to);
    return tp_launch(c, halves_kernel<BACK, 1, S>, tp_grid(c, n), TP_THREADS, 0, n, tp_by(half), x,
                     dy, to);
}

template <class S> static tp_code glu_fwd(const tp_call *c)
{
    return halves<false, S>(c, NULL, tp_out<S>(&c->y[0]));
}

template <class S> static tp_code glu_bwd(const tp_call *c)
{
    return c->dx[0].data ? halves<true, S>(c, tp_in<S>(&c->dy[0]), tp_out<S>(&c->dx[0])) : TP_OK;
}

TP_CUDA_WORK(glu_linear_work)
TP_CUDA_KERNEL(glu_linear_fwd)
TP_CUDA_KERNEL(glu_linear_bwd)
TP_CUDA_KERNEL(glu_fwd)
TP_CUDA_KERNEL(glu_bwd)
