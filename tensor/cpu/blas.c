/* blas.c - OpenBLAS's matrix products; the only file that includes cblas.h.
 *
 * OpenBLAS runs single-threaded: its own pool was slower than our split (gemm.c) on every shape
 * measured, and fights with OpenMP for cores. */
#include <cblas.h>

#include "tensor/kernel.h"

void tp__blas_single_thread(void)
{
#ifdef OPENBLAS_VERSION
    openblas_set_num_threads(1);
#endif
}

/* One row times a matrix: no packing. 4 to 9 times faster than the general product. */
static void gemv(tp_dtype real, bool tb, int64_t n, int64_t k, double alpha, const void *a,
                 const void *b, int64_t ldb, double beta, void *c)
{
    const CBLAS_TRANSPOSE op = tb ? CblasNoTrans : CblasTrans;
    const blasint rows = (blasint)(tb ? n : k), cols = (blasint)(tb ? k : n);
    if (real == TP_F64)
        cblas_dgemv(CblasRowMajor, op, rows, cols, alpha, b, (blasint)ldb, a, 1, beta, c, 1);
    else
        cblas_sgemv(CblasRowMajor, op, rows, cols, (float)alpha, b, (blasint)ldb, a, 1, (float)beta,
                    c, 1);
}

void tp__gemm(tp_dtype real, bool ta, bool tb, int64_t m, int64_t n, int64_t k, double alpha,
              const void *a, int64_t lda, const void *b, int64_t ldb, double beta, void *c,
              int64_t ldc)
{
    if (m == 0 || n == 0) return;
    if (m == 1 && !ta && k > 0) {
        gemv(real, tb, n, k, alpha, a, b, ldb, beta, c);
        return;
    }
    const CBLAS_TRANSPOSE opa = ta ? CblasTrans : CblasNoTrans,
                          opb = tb ? CblasTrans : CblasNoTrans;
    const blasint ild = (blasint)(lda > 0 ? lda : 1), jld = (blasint)(ldb > 0 ? ldb : 1);
    if (real == TP_F64)
        cblas_dgemm(CblasRowMajor, opa, opb, (blasint)m, (blasint)n, (blasint)k, alpha, a, ild, b,
                    jld, beta, c, (blasint)ldc);
    else
        cblas_sgemm(CblasRowMajor, opa, opb, (blasint)m, (blasint)n, (blasint)k, (float)alpha, a,
                    ild, b, jld, (float)beta, c, (blasint)ldc);
}
