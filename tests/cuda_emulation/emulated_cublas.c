/* emulated_cublas.c - the emulation's libcublas.so, loaded by tapegrad as the real one is.
 *
 * Operands are copied to float matrices element by element, so that the address sanitizer sees
 * every access; the product is OpenBLAS's. */
#include "cublas_v2.h"

#include <cblas.h>
#include <stdlib.h>

#include "tensor/bf16.h"

struct cublasContext {
    cudaStream_t stream;
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

/* A column-major matrix in device memory. */
typedef struct matrix {
    void *data;
    cudaDataType type;
    int ld;
} matrix;

static float get(matrix x, int row, int col)
{
    const size_t i = (size_t)col * (size_t)x.ld + (size_t)row;
    return x.type == CUDA_R_16BF ? tp__from_bf16(((uint16_t *)x.data)[i]) : ((float *)x.data)[i];
}

static void put(matrix x, int row, int col, float v)
{
    const size_t i = (size_t)col * (size_t)x.ld + (size_t)row;
    if (x.type == CUDA_R_16BF)
        ((uint16_t *)x.data)[i] = tp__to_bf16(v);
    else
        ((float *)x.data)[i] = v;
}

/* op(x), rows x cols, dense and column-major. */
static void pack(float *to, matrix x, cublasOperation_t op, int rows, int cols)
{
    for (int j = 0; j < cols; j++)
        for (int i = 0; i < rows; i++)
            to[(size_t)j * (size_t)rows + (size_t)i] =
                op == CUBLAS_OP_T ? get(x, j, i) : get(x, i, j);
}

static matrix at(const void *data, cudaDataType type, int ld, long long step, int i)
{
    const long long size = type == CUDA_R_16BF ? 2 : 4;
    return (matrix){ (char *)(uintptr_t)data + i * step * size, type, ld };
}

static int most(int a, int b)
{
    return a > b ? a : b;
}

cublasStatus_t cublasGemmStridedBatchedEx(
    cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
    const void *alpha, const void *a, cudaDataType type_a, int lda, long long step_a, const void *b,
    cudaDataType type_b, int ldb, long long step_b, const void *beta, void *c, cudaDataType type_c,
    int ldc, long long step_c, int batch, cublasComputeType_t compute, cublasGemmAlgo_t algo)
{
    const float scale = *(const float *)alpha, keep = *(const float *)beta;
    (void)compute;
    (void)algo;
    if (m < 0 || n < 0 || k < 0 || batch < 0 || ldc < most(1, m) ||
        lda < most(1, ta == CUBLAS_OP_N ? m : k) || ldb < most(1, tb == CUBLAS_OP_N ? k : n) ||
        type_a != type_b || (type_a == CUDA_R_32F && type_c != CUDA_R_32F))
        return CUBLAS_STATUS_INVALID_VALUE;
    float *pa = malloc(((size_t)m * (size_t)k + 1) * sizeof *pa);
    float *pb = malloc(((size_t)k * (size_t)n + 1) * sizeof *pb);
    float *pc = calloc((size_t)m * (size_t)n + 1, sizeof *pc);
    h->stream->enter();
    for (int i = 0; i < batch; i++) {
        const matrix to = at(c, type_c, ldc, step_c, i);
        pack(pa, at(a, type_a, lda, step_a, i), ta, m, k);
        pack(pb, at(b, type_b, ldb, step_b, i), tb, k, n);
        if (m && n && k)
            cblas_sgemm(CblasColMajor, CblasNoTrans, CblasNoTrans, m, n, k, 1.0f, pa, m, pb, k,
                        0.0f, pc, m);
        for (int col = 0; col < n; col++)
            for (int row = 0; row < m; row++) {
                const float old = keep != 0.0f ? keep * get(to, row, col) : 0.0f;
                put(to, row, col, old + scale * pc[(size_t)col * (size_t)m + (size_t)row]);
            }
    }
    h->stream->leave();
    free(pa);
    free(pb);
    free(pc);
    return CUBLAS_STATUS_SUCCESS;
}
