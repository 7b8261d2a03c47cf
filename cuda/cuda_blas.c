/* cuda_blas.c - matrix products by cuBLAS, which is loaded when a device opens.
 *
 * It is never linked: a program built with CUDA starts on machines without it. Results are
 * deterministic, since all calls are on one stream with a workspace of ours. cuBLAS is
 * column-major: a row-major product C = A B is asked for as C^T = B^T A^T. */
#include <cublas_v2.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/cuda_inner.h"
#include "tensor/error.h"

#define WORKSPACE ((size_t)32 << 20) /* what cuBLAS recommends for compute capability 9.0 */

/* clang-format off */
#define FUNCTIONS(X)                                                                               \
    X(cublasCreate_v2) X(cublasDestroy_v2) X(cublasSetStream_v2) X(cublasSetWorkspace_v2)          \
    X(cublasGemmStridedBatchedEx)
/* clang-format on */

struct tp_cuda_blas {
    void *library, *workspace;
    cublasHandle_t handle;
#define POINTER(name) __typeof__(name) *name;
    FUNCTIONS(POINTER)
#undef POINTER
};

static const char *const names[] = { "libcublas.so.13", "libcublas.so.12", "libcublas.so" };

static bool load(tp_cuda_blas *b, char *text, size_t size)
{
    for (size_t i = 0; !b->library && i < sizeof names / sizeof *names; i++)
        b->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!b->library) {
        tp__append(text, size,
                   "cuBLAS was not found (libcublas.so.13, .so.12, .so); install the CUDA "
                   "libraries, or put their folder into LD_LIBRARY_PATH");
        return false;
    }
    const char *missing = NULL;
    void *symbol;
#define LOAD(name)                                                                                 \
    symbol = dlsym(b->library, #name);                                                             \
    if (!symbol) missing = #name;                                                                  \
    memcpy(&b->name, &symbol, sizeof symbol);
    FUNCTIONS(LOAD)
#undef LOAD
    if (missing) tp__append(text, size, "the cuBLAS library found here has no %s", missing);
    return !missing;
}

tp_cuda_blas *tp__cuda_blas_open(cudaStream_t s, char *text, size_t size)
{
    tp_cuda_blas *b = calloc(1, sizeof *b);
    if (!b) {
        tp__append(text, size, "out of host memory");
        return NULL;
    }
    if (!load(b, text, size)) {
        tp__cuda_blas_close(b);
        return NULL;
    }
    if (cudaMalloc(&b->workspace, WORKSPACE) != cudaSuccess ||
        b->cublasCreate_v2(&b->handle) != CUBLAS_STATUS_SUCCESS ||
        b->cublasSetStream_v2(b->handle, s) != CUBLAS_STATUS_SUCCESS ||
        b->cublasSetWorkspace_v2(b->handle, b->workspace, WORKSPACE) != CUBLAS_STATUS_SUCCESS) {
        tp__append(text, size, "cuBLAS did not start: is the card's memory full?");
        tp__cuda_blas_close(b);
        return NULL;
    }
    return b;
}

void tp__cuda_blas_close(tp_cuda_blas *b)
{
    if (!b) return;
    if (b->handle) b->cublasDestroy_v2(b->handle);
    if (b->workspace) cudaFree(b->workspace);
    if (b->library) dlclose(b->library);
    free(b);
}

static cudaDataType type_of(tp_dtype dt)
{
    return dt == TP_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* cuBLAS wants leading dimensions of at least 1, also of empty matrices. */
static int size_of(int64_t n)
{
    return n > 1 ? (int)n : 1;
}

tp_code tp__cuda_gemm(const tp_call *c, const tp_cuda_gemm *g)
{
    const tp_cuda_blas *b = tp__cuda_blas(c->dev);
    const float one = 1.0f, keep = g->add ? 1.0f : 0.0f;
    if (g->type != TP_F32 && g->type != TP_BF16)
        return tp__cuda_fail(c, TP_E_DTYPE, "%s is not supported on CUDA devices; use f32 or bf16",
                             tp_dtype_name(g->type));
    if (g->m == 0 || g->n == 0 || g->batch == 0) return TP_OK;
    const cublasStatus_t s = b->cublasGemmStridedBatchedEx(
        b->handle, g->tb ? CUBLAS_OP_T : CUBLAS_OP_N, g->ta ? CUBLAS_OP_T : CUBLAS_OP_N, (int)g->n,
        (int)g->m, (int)g->k, &one, g->b, type_of(g->type), size_of(g->ldb), g->step_b, g->a,
        type_of(g->type), size_of(g->lda), g->step_a, &keep, g->c, type_of(g->type_c),
        size_of(g->ldc), g->step_c, (int)g->batch,
        tp__cuda_tf32(c->dev) ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
        CUBLAS_GEMM_DEFAULT);
    if (s == CUBLAS_STATUS_SUCCESS) return TP_OK;
    return tp__cuda_fail(c, TP_E_CUDA, "cuBLAS failed with status %d (m %lld, n %lld, k %lld)",
                         (int)s, (long long)g->m, (long long)g->n, (long long)g->k);
}
