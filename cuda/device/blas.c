/* blas.c - matrix products by cuBLAS, loaded when a device opens. Products with a bias or sums use
 * cuBLASLt (blas_lt.c) if it has an algorithm.
 *
 * Neither library is linked, so a program built with CUDA starts on machines without them. Results
 * are deterministic, since all calls use one stream and one workspace; a product split over k keeps
 * its partial sums in f32 even if the result is bf16. cuBLAS is column-major: the row-major product
 * C = A B is computed as C^T = B^T A^T. */
#include <stdlib.h>

#include "cuda/device/blas_library.h"
#include "tensor/backend.h"
#include "tensor/error.h"

#define WORKSPACE ((size_t)32 << 20) /* recommended by cuBLAS for compute capability 9.0 */

/* clang-format off */
#define FUNCTIONS(X)                                                                               \
    X(cublasCreate_v2) X(cublasDestroy_v2) X(cublasSetStream_v2) X(cublasSetWorkspace_v2)          \
    X(cublasSetMathMode) X(cublasGemmStridedBatchedEx)
/* clang-format on */

struct tp_cuda_blas {
    struct {
#define POINTER(name) __typeof__(name) *name;
        FUNCTIONS(POINTER)
#undef POINTER
    } f;
    void *library, *workspace;
    cublasHandle_t handle;
    tp_cuda_lt *lt;
};

tp_cuda_blas *tp__cuda_blas_open(cudaStream_t s, char *text, size_t size)
{
#define NAME(name) #name,
    static const char *const names[] = { FUNCTIONS(NAME) NULL };
#undef NAME
    tp_cuda_blas *b = calloc(1, sizeof *b);
    if (!b) {
        tp__append(text, size, "out of host memory");
        return NULL;
    }
    b->library = tp__cuda_library("cuBLAS", "libcublas", names, &b->f, text, size);
    if (!b->library) {
        tp__cuda_blas_close(b);
        return NULL;
    }
    if (cudaMalloc(&b->workspace, WORKSPACE) != cudaSuccess ||
        b->f.cublasCreate_v2(&b->handle) != CUBLAS_STATUS_SUCCESS ||
        b->f.cublasSetStream_v2(b->handle, s) != CUBLAS_STATUS_SUCCESS ||
        b->f.cublasSetWorkspace_v2(b->handle, b->workspace, WORKSPACE) != CUBLAS_STATUS_SUCCESS ||
        b->f.cublasSetMathMode(b->handle, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION) !=
            CUBLAS_STATUS_SUCCESS) {
        tp__append(text, size, "cuBLAS did not start: is the GPU's memory full?");
        tp__cuda_blas_close(b);
        return NULL;
    }
    b->lt = tp__cuda_lt_open(b->workspace, WORKSPACE, text, size);
    if (!b->lt) {
        tp__cuda_blas_close(b);
        return NULL;
    }
    return b;
}

void tp__cuda_blas_close(tp_cuda_blas *b)
{
    if (!b) return;
    tp__cuda_lt_close(b->lt);
    if (b->handle) b->f.cublasDestroy_v2(b->handle);
    if (b->workspace) cudaFree(b->workspace);
    if (b->library) dlclose(b->library);
    free(b);
}

/* cuBLAS requires leading dimensions of at least 1, even for empty matrices. */
static int leading(int64_t n)
{
    return n > 1 ? (int)n : 1;
}

tp_code tp__cuda_gemm(const tp_call *c, tp_cuda_gemm *g)
{
    const tp_cuda_blas *b = tp__cuda_blas(c->dev);
    const bool tf32 = tp__cuda_tf32(c->dev);
    const float one = 1.0f, keep = g->add ? 1.0f : 0.0f;
    if (g->type != TP_F32 && g->type != TP_BF16)
        return tp__cuda_fail(c, TP_E_DTYPE, "%s is not supported on CUDA devices; use f32 or bf16",
                             tp_dtype_name(g->type));
    g->fused = false;
    if (g->m == 0 || g->n == 0 || g->batch == 0) return TP_OK;
    cudaStream_t stream = tp__cuda_stream(c->dev);
    if (g->bias || g->sums) g->fused = tp__cuda_lt_gemm(b->lt, g, tf32, stream);
    if (g->fused) return TP_OK;
    if (g->bias || g->sums) tp__count(c->dev->unfused, 1);
    const cublasStatus_t s = b->f.cublasGemmStridedBatchedEx(
        b->handle, g->tb ? CUBLAS_OP_T : CUBLAS_OP_N, g->ta ? CUBLAS_OP_T : CUBLAS_OP_N, (int)g->n,
        (int)g->m, (int)g->k, &one, g->b, tp__cuda_blas_type(g->type), leading(g->ldb), g->step_b,
        g->a, tp__cuda_blas_type(g->type), leading(g->lda), g->step_a, &keep, g->c,
        tp__cuda_blas_type(g->type_c), leading(g->ldc), g->step_c, (int)g->batch,
        tp__cuda_blas_compute(g->type, tf32), CUBLAS_GEMM_DEFAULT);
    if (s == CUBLAS_STATUS_SUCCESS) return TP_OK;
    if (tp__cuda_failed(c)) return TP_E_CUDA;
    return tp__cuda_fail(c, TP_E_CUDA, "cuBLAS failed with status %d (m %lld, n %lld, k %lld)",
                         (int)s, (long long)g->m, (long long)g->n, (long long)g->k);
}
