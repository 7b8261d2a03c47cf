/* cuda_linear.cu - Y = act(Z), Z = X W^T + b, and its gradient; products by cuBLAS.
 *
 *     dZ = dY act'(Z)     dX = dZ W     dW = dZ^T X     db = sum of the rows of dZ
 *
 * Bias and activation are one pass over the product: 4 bytes an element of Y in bf16 (6 with a
 * saved Z), small beside the product's 2 K operations. Hidden output: Z for the GELUs, one byte an
 * element (Z > 0) for ReLU. */
#include "cuda/activation.cuh"
#include "cuda/fold.cuh"
#include "cuda/map.cuh"
#include "tensor/linalg.h"

static tp_act act_of(const tp_call *c)
{
    return static_cast<const tp__linear_attr *>(c->attr)->act;
}

/* z has the product; all of z, y and positive may be NULL but what the activation needs. */
template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    finish_kernel(tp_act act, int64_t numel, int64_t n, const S *b, S *z, S *y, uint8_t *positive)
{
    TP_EACH (i, numel) {
        float v = tp_float(z[i]);
        if (b) v += tp_float(b[i - tp_div(i, n) * n]);
        if (tp__keeps_z(act) || act == TP_ACT_NONE) tp_put(z + i, v);
        if (act == TP_ACT_RELU) {
            positive[i] = v > 0.0f;
            tp_put(y + i, tp_relu_f(v));
        } else if (act == TP_ACT_GELU) {
            tp_put(y + i, tp_gelu_f(v));
        } else if (act == TP_ACT_QUICK_GELU) {
            tp_put(y + i, tp_quick_gelu_f(v));
        }
    }
}

static int64_t rows_of(const tp_call *c)
{
    const int64_t N = c->x[1].dim[0], K = c->x[1].dim[1];
    return N > 0 ? c->y[0].numel / N : K > 0 ? c->x[0].numel / K : 0;
}

/* A product of row-major matrices, one of them dense in each place. */
static tp_cuda_gemm gemm(tp_dtype type, int64_t m, int64_t n, int64_t k)
{
    tp_cuda_gemm g = {};
    g.m = m;
    g.n = n;
    g.k = k;
    g.type = g.type_c = type;
    g.ldc = n;
    g.batch = 1;
    return g;
}

template <class S> static tp_code linear_fwd(const tp_call *c)
{
    const int64_t N = c->x[1].dim[0], K = c->x[1].dim[1], numel = c->y[0].numel;
    const tp_act act = act_of(c);
    S *y = tp_out<S>(&c->y[0]), *z = tp__keeps_z(act) ? tp_out<S>(&c->y[1]) : y;
    tp_cuda_gemm g = gemm(c->x[0].dtype, rows_of(c), N, K);
    g.a = c->x[0].data;
    g.lda = K;
    g.b = c->x[1].data;
    g.ldb = K;
    g.tb = true;
    g.c = z;
    tp_code code = tp__cuda_gemm(c, &g);
    if (code != TP_OK || (tp_absent(&c->x[2]) && act == TP_ACT_NONE)) return code;
    return tp_launch(c, finish_kernel<S>, tp_grid(c, numel), TP_THREADS, 0, act, numel, N,
                     tp_absent(&c->x[2]) ? (const S *)NULL : tp_in<S>(&c->x[2]), z, y,
                     act == TP_ACT_RELU ? tp_out<uint8_t>(&c->y[1]) : (uint8_t *)NULL);
}

/* ---- backward ---- */

template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    dz_kernel(tp_act act, int64_t n, const S *dy, const S *z, const uint8_t *positive, S *dz)
{
    TP_EACH (i, n) {
        const float slope = act == TP_ACT_RELU   ? (float)positive[i]
                            : act == TP_ACT_GELU ? tp_gelu_slope(tp_float(z[i]))
                                                 : tp_quick_gelu_slope(tp_float(z[i]));
        tp_put(dz + i, tp_float(dy[i]) * slope);
    }
}

/* dX = dZ W (to = 0) or dW = dZ^T X (to = 1). */
template <class S>
static tp_code dz_product(const tp_call *c, const S *dz, int to, int64_t m, int64_t k)
{
    const int64_t N = c->x[1].dim[0], K = c->x[1].dim[1];
    tp_cuda_gemm g = gemm(c->x[0].dtype, m, K, k);
    g.a = dz;
    g.lda = N;
    g.ta = to == 1;
    g.b = c->x[1 - to].data;
    g.ldb = K;
    g.c = c->dx[to].data;
    g.type_c = c->dx[to].dtype;
    g.add = c->add >> to & 1u;
    return tp__cuda_gemm(c, &g);
}

template <class S> static tp_code dz_sum(const tp_call *c, const S *dz, void *work)
{
    return tp_with_type(c, c->dx[2].dtype, [&](auto b) {
        typedef decltype(b) B;
        const tp_add_to<B> finish = { tp_in<B>(&c->dx[2]), (c->add >> 2 & 1u) != 0 };
        return tp_fold_sum(c, &c->dy[0], &c->dx[2], dz, (const S *)NULL, tp_out<B>(&c->dx[2]), work,
                           finish);
    });
}

/* c->work: dZ [rows,N] if there is an activation, room for floats, then that of the sum. */
template <class S> static tp_code linear_bwd(const tp_call *c)
{
    const int64_t N = c->x[1].dim[0], rows = rows_of(c), n = c->dy[0].numel;
    const tp_act act = act_of(c);
    const S *dz = tp_in<S>(&c->dy[0]);
    float *work = static_cast<float *>(c->work);
    tp_code code = TP_OK;
    if (act != TP_ACT_NONE) {
        S *to = reinterpret_cast<S *>(work);
        work += n;
        code = tp_launch(c, dz_kernel<S>, tp_grid(c, n), TP_THREADS, 0, act, n, dz,
                         tp__keeps_z(act) ? tp_in<S>(&c->y[1]) : (const S *)NULL,
                         act == TP_ACT_RELU ? tp_in<uint8_t>(&c->y[1]) : (const uint8_t *)NULL, to);
        dz = to;
    }
    if (code == TP_OK && c->dx[0].data) code = dz_product(c, dz, 0, rows, N);
    if (code == TP_OK && c->dx[1].data) code = dz_product(c, dz, 1, N, rows);
    if (code == TP_OK && c->dx[2].data) code = dz_sum(c, dz, work);
    return code;
}

TP_CUDA_KERNEL(linear_fwd)
TP_CUDA_KERNEL(linear_bwd)
