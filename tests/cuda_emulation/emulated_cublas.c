/* emulated_cublas.c - the emulation's libcublas.so, which tapegrad loads like the real one. */
#include <stdlib.h>

#include "emulated_gemm.h"

struct cublasContext {
    cudaStream_t stream;
    cublasMath_t mode;
};

cublasStatus_t cublasCreate_v2(cublasHandle_t *h)
{
    *h = calloc(1, sizeof **h);
    return *h ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t h)
{
    free(h);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t h, cudaStream_t s)
{
    h->stream = s;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t h, void *work, size_t bytes)
{
    return h && (work || bytes == 0) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t h, cublasMath_t mode)
{
    h->mode = mode;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmStridedBatchedEx(
    cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
    const void *alpha, const void *a, cudaDataType type_a, int lda, long long step_a, const void *b,
    cudaDataType type_b, int ldb, long long step_b, const void *beta, void *c, cudaDataType type_c,
    int ldc, long long step_c, int batch, cublasComputeType_t compute, cublasGemmAlgo_t algo)
{
    (void)algo;
    const int exact = h->mode & CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
    const emulated_gemm g = { .stream = h->stream,
                              .halves = type_c == CUDA_R_16BF && !exact,
                              .ta = ta,
                              .tb = tb,
                              .m = m,
                              .n = n,
                              .k = k,
                              .lda = lda,
                              .ldb = ldb,
                              .ldc = ldc,
                              .batch = batch,
                              .scale = *(const float *)alpha,
                              .keep = *(const float *)beta,
                              .a = a,
                              .b = b,
                              .c = c,
                              .type = type_a,
                              .type_c = type_c,
                              .step_a = step_a,
                              .step_b = step_b,
                              .step_c = step_c };
    if (type_a != type_b || !emulated_gemm_valid(&g, compute)) return CUBLAS_STATUS_INVALID_VALUE;
    if (h->stream->fault()) return CUBLAS_STATUS_EXECUTION_FAILED;
    emulated_gemm_queue(&g);
    return CUBLAS_STATUS_SUCCESS;
}
