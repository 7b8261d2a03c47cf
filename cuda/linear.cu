/* linear.cu - Y = m act(Z), Z = X W^T + b, and its gradient; products by cuBLAS. m: the factors of
 * a dropout, of which the activation's pass draws the words.
 *
 *     dZ = dY act'(Z)     dX = dZ W     dW = dZ^T X     db = sum of the rows of dZ
 *
 * cuBLASLt adds the bias in the product, and sums db in that of dW. If it cannot, or if db is added
 * to an existing gradient, separate passes do. Activations are separate passes too: 6 bytes per
 * element of Y in bf16 (5 for ReLU) in each direction, few compared with the product's 2 K
 * operations. As on the CPU, the hidden output is m act'(Z), and for ReLU one byte per element,
 * m Z > 0. */
#include "cuda/kit/dense.cuh"
#include "cuda/kit/fold.cuh"
#include "cuda/kit/map.cuh"
#include "cuda/kit/mask.cuh"
#include "tensor/geometry/linalg.h"

static tp_act act_of(const tp_call *c)
{
    return static_cast<const tp__linear_attr *>(c->attr)->act;
}

static tp_mask mask_of(const tp_call *c)
{
    const double p = static_cast<const tp__linear_attr *>(c->attr)->dropout;
    return tp_mask_of(c, c->train ? p : 0.0);
}

/* Replaces Z in y by m relu(Z), N elements from e on. */
template <int N, class S>
static __device__ inline void relu_pack(const tp_mask &m, int64_t e, S *y, uint8_t *positive)
{
    const tp_pack<S, N> z = tp_load_n<S, N>(y + e);
    const tp_words<N> words(m, e);
    tp_pack<S, N> value;
    tp_pack<uint8_t, N> kept;
#pragma unroll
    for (int k = 0; k < N; k++) {
        kept.at[k] = tp_float(z.at[k]) > 0.0f && words.keeps(m, k);
        tp_put(&value.at[k], words.drop(m, k, relu_value(tp_float(z.at[k]))));
    }
    tp_store(y + e, value);
    if constexpr (N == 1) /* no pack is as small as a byte */
        positive[e] = kept.at[0];
    else
        tp_store(positive + e, kept);
}

template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    relu_kernel(tp_mask m, int64_t n, int64_t packs, S *y, uint8_t *positive)
{
    constexpr int N = (int)(16 / sizeof(S));
    TP_EACH (i, packs) relu_pack<N>(m, i * N, y, positive);
    TP_EACH (i, n - packs * N) relu_pack<1>(m, packs * N + i, y, positive);
}

template <class S> static tp_code run_relu(const tp_call *c, S *y)
{
    constexpr int N = (int)(16 / sizeof(S));
    uint8_t *positive = tp_out<uint8_t>(&c->y[1]);
    const int64_t n = c->y[0].numel, packs = tp_aligned(y, positive) ? n / N : 0;
    return tp_launch(c, relu_kernel<S>, tp_grid(c, max(packs, n - packs * N)), TP_THREADS, 0,
                     mask_of(c), n, packs, y, positive);
}

/* Writes m act(Z) to y and m act'(Z) over z, N elements from e on. */
template <class F, int N, class S>
static __device__ inline void slope_pack(const tp_mask &m, int64_t e, S *z, S *y)
{
    const tp_pack<S, N> x = tp_load_n<S, N>(z + e);
    const tp_words<N> words(m, e);
    tp_pack<S, N> value, slope;
#pragma unroll
    for (int k = 0; k < N; k++) {
        tp_put(&value.at[k], words.drop(m, k, F::value(tp_float(x.at[k]))));
        tp_put(&slope.at[k], words.drop(m, k, F::slope(tp_float(x.at[k]))));
    }
    tp_store(y + e, value);
    tp_store(z + e, slope);
}

template <class F, class S>
__global__ void __launch_bounds__(TP_THREADS)
    slope_kernel(tp_mask m, int64_t n, int64_t packs, S *z, S *y)
{
    constexpr int N = (int)(16 / sizeof(S));
    TP_EACH (i, packs) slope_pack<F, N>(m, i * N, z, y);
    TP_EACH (i, n - packs * N) slope_pack<F, 1>(m, packs * N + i, z, y);
}

template <class F, class S> static tp_code run_slope(const tp_call *c, S *z, S *y)
{
    constexpr int N = (int)(16 / sizeof(S));
    const int64_t n = c->y[0].numel, packs = tp_aligned(z, y) ? n / N : 0;
    return tp_launch(c, slope_kernel<F, S>, tp_grid(c, max(packs, n - packs * N)), TP_THREADS, 0,
                     mask_of(c), n, packs, z, y);
}

static int64_t rows_of(const tp_call *c)
{
    const int64_t N = c->x[1].dim[0], K = c->x[1].dim[1];
    return N > 0 ? c->y[0].numel / N : K > 0 ? c->x[0].numel / K : 0;
}

template <class S> static tp_code activate(const tp_call *c, S *z, S *y)
{
    switch (act_of(c)) {
    case TP_ACT_RELU: return run_relu(c, y);
    case TP_ACT_GELU: return run_slope<tp_gelu_of>(c, z, y);
    case TP_ACT_QUICK_GELU: return run_slope<tp_quick_gelu_of>(c, z, y);
    case TP_ACT_SILU: return run_slope<tp_silu_of>(c, z, y);
    case TP_ACT_GELU_TANH: return run_slope<tp_gelu_tanh_of>(c, z, y);
    case TP_ACT_TANH: return run_slope<tp_tanh_of>(c, z, y);
    case TP_ACT_SIGMOID: return run_slope<tp_sigmoid_of>(c, z, y);
    default: return TP_OK;
    }
}

template <class S> static tp_code linear_fwd(const tp_call *c)
{
    const int64_t N = c->x[1].dim[0], K = c->x[1].dim[1], numel = c->y[0].numel;
    S *y = tp_out<S>(&c->y[0]), *z = tp__keeps_slope(act_of(c)) ? tp_out<S>(&c->y[1]) : y;
    const S *b = tp_absent(&c->x[2]) ? NULL : tp_in<S>(&c->x[2]);
    tp_cuda_gemm g = tp_dense(c->x[0].dtype, rows_of(c), N, K);
    g.a = c->x[0].data;
    g.lda = K;
    g.b = c->x[1].data;
    g.ldb = K;
    g.tb = true;
    g.c = z;
    g.bias = b;
    tp_code code = tp__cuda_gemm(c, &g);
    if (code == TP_OK && b && !g.fused)
        code = tp_launch(c, tp_bias_kernel<S>, tp_grid(c, numel), TP_THREADS, 0, numel, N, b, z);
    return code == TP_OK ? activate<S>(c, z, y) : code;
}

/* ---- backward ---- */

struct times {
    float scale; /* of slopes that are bytes */
    bool select; /* slopes of 0 give 0 for any dy: those of dropped elements and of ReLU */
    __device__ float operator()(float dy, float slope) const
    {
        return select && slope == 0.0f ? 0.0f : dy * (slope * scale);
    }
};

template <class S> static tp_code grad(const tp_call *c, S *dz)
{
    const int64_t n = c->dy[0].numel;
    const S *dy = tp_in<S>(&c->dy[0]);
    const tp_mask m = mask_of(c);
    return act_of(c) == TP_ACT_RELU
               ? tp_map(c, n, times{ m.scale, true }, dz, dy, tp_in<uint8_t>(&c->y[1]))
               : tp_map(c, n, times{ 1.0f, m.below != 0 }, dz, dy, tp_in<S>(&c->y[1]));
}

/* dX = dZ W (to = 0) or dW = dZ^T X (to = 1). */
static tp_cuda_gemm dz_product(const tp_call *c, const void *dz, int to, int64_t m, int64_t k)
{
    const int64_t N = c->x[1].dim[0], K = c->x[1].dim[1];
    tp_cuda_gemm g = tp_dense(c->x[0].dtype, m, K, k);
    g.a = dz;
    g.lda = N;
    g.ta = to == 1;
    g.b = c->x[1 - to].data;
    g.ldb = K;
    g.c = c->dx[to].data;
    g.type_c = c->dx[to].dtype;
    g.add = c->add >> to & 1u;
    return g;
}

template <class S> static tp_code dz_sum(const tp_call *c, const S *dz, void *work)
{
    return tp_with_type(c, c->dx[2].dtype, [&](auto b) {
        typedef decltype(b) B;
        const tp_add_to<B> finish = { tp_in<B>(&c->dx[2]), (c->add >> 2 & 1u) != 0 };
        return tp_fold_sum(c, &c->dy[0], &c->dx[2], dz, tp_out<B>(&c->dx[2]), work, finish);
    });
}

static size_t dz_bytes(const tp_call *c)
{
    const size_t bytes = (size_t)c->y[0].numel * tp_dtype_size(c->y[0].dtype);
    return act_of(c) == TP_ACT_NONE ? 0 : (bytes + 15) / 16 * 16;
}

/* c->work in backward: dZ [rows,N] if there is an activation, then the scratch of the sum. */
static size_t linear_work(const tp_call *c)
{
    const tp_view *y = &c->y[0], *b = &c->x[2];
    if (!tp_is_backward(c)) return 0;
    return dz_bytes(c) + (tp_absent(b) ? 0 : tp__fold_work(y, b, y->dtype));
}

template <class S> static tp_code linear_bwd(const tp_call *c)
{
    const int64_t N = c->x[1].dim[0], rows = rows_of(c);
    const tp_view *dw = &c->dx[1], *db = &c->dx[2];
    const S *dz = tp_in<S>(&c->dy[0]);
    char *work = static_cast<char *>(c->work);
    bool summed = !db->data;
    tp_code code = TP_OK;
    if (act_of(c) != TP_ACT_NONE) {
        S *to = reinterpret_cast<S *>(work);
        work += dz_bytes(c);
        code = grad<S>(c, to);
        dz = to;
    }
    if (code == TP_OK && c->dx[0].data) {
        tp_cuda_gemm g = dz_product(c, dz, 0, rows, N);
        code = tp__cuda_gemm(c, &g);
    }
    if (code == TP_OK && dw->data) {
        tp_cuda_gemm g = dz_product(c, dz, 1, N, rows);
        if (db->dtype == dw->dtype && !(c->add >> 2 & 1u)) g.sums = db->data;
        code = tp__cuda_gemm(c, &g);
        summed = summed || g.fused;
    }
    return code == TP_OK && !summed ? dz_sum(c, dz, work) : code;
}

TP_CUDA_WORK(linear_work)
TP_CUDA_KERNEL(linear_fwd)
TP_CUDA_KERNEL(linear_bwd)
