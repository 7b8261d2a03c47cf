/* blas_lt.h - products with an epilogue, by cuBLASLt. */
#ifndef TP_CUDA_BLAS_LT_H
#define TP_CUDA_BLAS_LT_H

#include "cuda/device/blas_library.h"

typedef struct tp_cuda_lt tp_cuda_lt;
/* The caller keeps the workspace. Returns NULL with the reason in text on failure. */
tp_cuda_lt *tp__cuda_lt_open(void *workspace, size_t bytes, char *text, size_t size);
void tp__cuda_lt_close(tp_cuda_lt *t);
/* Computes g's product with its bias or sums. Returns false, having queued nothing, if it cannot. */
bool tp__cuda_lt_gemm(tp_cuda_lt *t, const tp_cuda_gemm *g, bool tf32, cudaStream_t s);

#endif
