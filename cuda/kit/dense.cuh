/* dense.cuh - common to dense layers: products, the bias, activations as types. */
#ifndef TP_DENSE_CUH
#define TP_DENSE_CUH

#include "cuda/kit/activation.cuh"

/* A product of dense row-major matrices. */
static inline tp_cuda_gemm tp_dense(tp_dtype type, int64_t m, int64_t n, int64_t k)
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

/* z[r][i] += b[i], rows of n, if the product could not add the bias. */
template <class S>
__global__ void __launch_bounds__(TP_THREADS)
    tp_bias_kernel(int64_t numel, int64_t n, const S *b, S *z)
{
    TP_EACH (i, numel) tp_put(z + i, tp_float(z[i]) + tp_float(b[i - tp_div(i, n) * n]));
}

/* Activations: value and derivative at z. */
struct tp_gelu_of {
    static __device__ float value(float z) { return gelu_value(z); }
    static __device__ float slope(float z) { return gelu_slope(z); }
};
struct tp_quick_gelu_of {
    static __device__ float value(float z) { return quick_gelu_value(z); }
    static __device__ float slope(float z) { return quick_gelu_slope(z); }
};
struct tp_silu_of {
    static __device__ float value(float z) { return silu_value(z); }
    static __device__ float slope(float z) { return silu_slope(z); }
};
struct tp_gelu_tanh_of {
    static __device__ float value(float z) { return gelu_tanh_value(z); }
    static __device__ float slope(float z) { return gelu_tanh_slope(z); }
};
struct tp_tanh_of {
    static __device__ float value(float z) { return r_tanh(z); }
    static __device__ float slope(float z) { return tanh_slope(z); }
};
struct tp_sigmoid_of {
    static __device__ float value(float z) { return logistic(z); }
    static __device__ float slope(float z) { return sigmoid_slope(z); }
};

#endif
