/* emulated_gemm.h - the matrix product of the emulated cuBLAS and cuBLASLt. */
#ifndef EMULATED_GEMM_H
#define EMULATED_GEMM_H

#include "cublas_v2.h"

/* C = scale op(A) op(B) + keep C, column-major, for `batch` matrices. */
typedef struct emulated_gemm {
    cudaStream_t stream;
    cublasOperation_t ta, tb;
    int m, n, k, lda, ldb, ldc, batch;
    int halves; /* sum the first half of k separately and round it to bf16, as cuBLAS may do */
    float scale, keep;
    const void *a, *b;
    void *c;
    cudaDataType type, type_c;
    long long step_a, step_b, step_c;
    const void *bias; /* [m], added to every column of C, or NULL     */
    void *sums;       /* [n], of op(B)'s columns, or NULL; both type_c */
} emulated_gemm;

/* True if sizes, leading dimensions and types suit the libraries. */
int emulated_gemm_valid(const emulated_gemm *g, cublasComputeType_t compute);

/* Queues the product on its stream. */
void emulated_gemm_queue(const emulated_gemm *g);

#endif
