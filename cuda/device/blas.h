/* blas.h - what blas.c and blas_lt.c share. */
#ifndef TP_CUDA_BLAS_H
#define TP_CUDA_BLAS_H

#include <cublas_v2.h>
#include <dlfcn.h>

#include "cuda/device/inner.h"

/* Loads stem.so.13, .so.12 or .so, and its functions of these names, ended by NULL, into the
 * pointers that begin at `functions`. NULL with the reason in text. */
void *tp__cuda_library(const char *title, const char *stem, const char *const *names,
                       void *functions, char *text, size_t size);

static inline cudaDataType tp__cuda_blas_type(tp_dtype dt)
{
    return dt == TP_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* Sums are in f32; TF32 is a way of multiplying f32 only. */
static inline cublasComputeType_t tp__cuda_blas_compute(tp_dtype dt, bool tf32)
{
    return tf32 && dt == TP_F32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

typedef struct tp_cuda_lt tp_cuda_lt;
/* The workspace stays the caller's. NULL with the reason in text. */
tp_cuda_lt *tp__cuda_lt_open(void *workspace, size_t bytes, char *text, size_t size);
void tp__cuda_lt_close(tp_cuda_lt *t);
/* Makes g's product with its bias or sums, or nothing: then it cannot be made here. */
bool tp__cuda_lt_gemm(tp_cuda_lt *t, const tp_cuda_gemm *g, bool tf32, cudaStream_t s);

#endif
