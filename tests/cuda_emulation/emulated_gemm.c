/* emulated_gemm.c - the matrix product of the emulated libraries.
 *
 * Copies operands to float matrices element by element, so that the address sanitizer sees every
 * access. OpenBLAS computes the product. */
#include "emulated_gemm.h"

#include <cblas.h>
#include <stdlib.h>

#include "tensor/bf16.h"

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

/* Copies op(x), rows x cols, to a dense column-major matrix. */
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

static matrix vector(const void *data, cudaDataType type)
{
    return at(data, type, 0, 0, 0);
}

static int most(int a, int b)
{
    return a > b ? a : b;
}

static void run(const void *args)
{
    const emulated_gemm *g = args;
    const size_t m = (size_t)g->m, n = (size_t)g->n, k = (size_t)g->k;
    float *pa = malloc((m * k + 1) * sizeof *pa);
    float *pb = malloc((k * n + 1) * sizeof *pb);
    float *pc = calloc(m * n + 1, sizeof *pc);
    g->stream->enter(g->stream);
    for (int i = 0; i < g->batch; i++) {
        const matrix to = at(g->c, g->type_c, g->ldc, g->step_c, i);
        pack(pa, at(g->a, g->type, g->lda, g->step_a, i), g->ta, g->m, g->k);
        pack(pb, at(g->b, g->type, g->ldb, g->step_b, i), g->tb, g->k, g->n);
        const int first = g->halves ? g->k / 2 : 0;
        if (m && n && first)
            cblas_sgemm(CblasColMajor, CblasNoTrans, CblasNoTrans, g->m, g->n, first, 1.0f, pa,
                        g->m, pb, g->k, 0.0f, pc, g->m);
        for (size_t j = 0; j < m * n && first; j++) pc[j] = tp__from_bf16(tp__to_bf16(pc[j]));
        if (m && n && k)
            cblas_sgemm(CblasColMajor, CblasNoTrans, CblasNoTrans, g->m, g->n, g->k - first, 1.0f,
                        pa + m * (size_t)first, g->m, pb + first, g->k, first ? 1.0f : 0.0f, pc,
                        g->m);
        for (int col = 0; col < g->n; col++)
            for (int row = 0; row < g->m; row++) {
                const float old = g->keep != 0.0f ? g->keep * get(to, row, col) : 0.0f;
                const float bias = g->bias ? get(vector(g->bias, g->type_c), row, 0) : 0.0f;
                put(to, row, col, old + g->scale * pc[(size_t)col * m + (size_t)row] + bias);
            }
        for (int col = 0; g->sums && col < g->n; col++) {
            float sum = 0.0f;
            for (int row = 0; row < g->k; row++) sum += pb[(size_t)col * k + (size_t)row];
            put(vector(g->sums, g->type_c), col, 0, sum);
        }
    }
    g->stream->leave();
    free(pa);
    free(pb);
    free(pc);
}

int emulated_gemm_valid(const emulated_gemm *g, cublasComputeType_t compute)
{
    return g->m >= 0 && g->n >= 0 && g->k >= 0 && g->batch >= 0 && g->ldc >= most(1, g->m) &&
           g->lda >= most(1, g->ta == CUBLAS_OP_N ? g->m : g->k) &&
           g->ldb >= most(1, g->tb == CUBLAS_OP_N ? g->k : g->n) &&
           (g->type_c == CUDA_R_32F || g->type == CUDA_R_16BF) &&
           (compute == CUBLAS_COMPUTE_32F ||
            (compute == CUBLAS_COMPUTE_32F_FAST_TF32 && g->type == CUDA_R_32F));
}

void emulated_gemm_queue(const emulated_gemm *g)
{
    g->stream->queue(g->stream, run, g, sizeof *g);
}
