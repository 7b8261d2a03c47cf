/* blas_library.h - common to cuBLAS and cuBLASLt: loading a library, and its types. */
#ifndef TP_CUDA_BLAS_LIBRARY_H
#define TP_CUDA_BLAS_LIBRARY_H

#include <cublas_v2.h>
#include <dlfcn.h>

#include "cuda/device/inner.h"

/* Loads stem.so.13, .so.12 or .so and stores its functions of these names (the list ends with NULL)
 * in the pointers that begin at `functions`. Returns NULL with the reason in text on failure. */
void *tp__cuda_library(const char *title, const char *stem, const char *const *names,
                       void *functions, char *text, size_t size);

static inline cudaDataType tp__cuda_blas_type(tp_dtype dt)
{
    return dt == TP_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* Sums are in f32; TF32 only affects products of f32. */
static inline cublasComputeType_t tp__cuda_blas_compute(tp_dtype dt, bool tf32)
{
    return tf32 && dt == TP_F32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

/* ---- blas_lt.c: products with an epilogue, by cuBLASLt ---- */

typedef struct tp_cuda_lt tp_cuda_lt;
/* The caller keeps the workspace. Returns NULL with the reason in text on failure. */
tp_cuda_lt *tp__cuda_lt_open(void *workspace, size_t bytes, char *text, size_t size);
void tp__cuda_lt_close(tp_cuda_lt *t);
/* Computes g's product with its bias or sums; returns false and queues nothing if it cannot. */
bool tp__cuda_lt_gemm(tp_cuda_lt *t, const tp_cuda_gemm *g, bool tf32, cudaStream_t s);

#endif
