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

/* A call, to be carried out now or when the recording runs that it became part of. */
typedef struct call {
    cudaStream_t stream;
    cublasOperation_t ta, tb;
    int m, n, k, lda, ldb, ldc, batch;
    float scale, keep;
    const void *a, *b;
    void *c;
    cudaDataType type, type_c;
    long long step_a, step_b, step_c;
} call;

static void run(const void *args)
{
    const call *g = args;
    const size_t m = (size_t)g->m, n = (size_t)g->n, k = (size_t)g->k;
    float *pa = malloc((m * k + 1) * sizeof *pa);
    float *pb = malloc((k * n + 1) * sizeof *pb);
    float *pc = calloc(m * n + 1, sizeof *pc);
    g->stream->enter();
    for (int i = 0; i < g->batch; i++) {
        const matrix to = at(g->c, g->type_c, g->ldc, g->step_c, i);
        pack(pa, at(g->a, g->type, g->lda, g->step_a, i), g->ta, g->m, g->k);
        pack(pb, at(g->b, g->type, g->ldb, g->step_b, i), g->tb, g->k, g->n);
        if (m && n && k)
            cblas_sgemm(CblasColMajor, CblasNoTrans, CblasNoTrans, g->m, g->n, g->k, 1.0f, pa, g->m,
                        pb, g->k, 0.0f, pc, g->m);
        for (int col = 0; col < g->n; col++)
            for (int row = 0; row < g->m; row++) {
                const float old = g->keep != 0.0f ? g->keep * get(to, row, col) : 0.0f;
                put(to, row, col, old + g->scale * pc[(size_t)col * m + (size_t)row]);
            }
    }
    g->stream->leave();
    free(pa);
    free(pb);
    free(pc);
}

cublasStatus_t cublasGemmStridedBatchedEx(
    cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
    const void *alpha, const void *a, cudaDataType type_a, int lda, long long step_a, const void *b,
    cudaDataType type_b, int ldb, long long step_b, const void *beta, void *c, cudaDataType type_c,
    int ldc, long long step_c, int batch, cublasComputeType_t compute, cublasGemmAlgo_t algo)
{
    (void)compute;
    (void)algo;
    if (m < 0 || n < 0 || k < 0 || batch < 0 || ldc < most(1, m) ||
        lda < most(1, ta == CUBLAS_OP_N ? m : k) || ldb < most(1, tb == CUBLAS_OP_N ? k : n) ||
        type_a != type_b || (type_a == CUDA_R_32F && type_c != CUDA_R_32F))
        return CUBLAS_STATUS_INVALID_VALUE;
    const call g = { .stream = h->stream,
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
    if (!h->stream->record(run, &g, sizeof g)) run(&g);
    return CUBLAS_STATUS_SUCCESS;
}
