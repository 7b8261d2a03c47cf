/* blas.c - OpenBLAS's matrix products; the only file that includes cblas.h.
 *
 * OpenBLAS runs single-threaded: its own pool was slower than our split (gemm_tiles.c) on every
 * shape measured, and it competes with OpenMP for cores. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include <cblas.h>
#include <pthread.h>
#include <sys/mman.h>

#include "tensor/kernel.h"

/* ---- threads and memory ---- */

/* OpenBLAS maps a buffer for each concurrent product, and keeps it. If there is no memory for one, it
 * retries forever. */
#define BUFFER  ((size_t)128 << 20)
#define BUFFERS 64 /* most buffers mapped in advance */

/* Declared in no header, and missing from some builds. */
__attribute__((weak)) void *blas_memory_alloc(int where);
__attribute__((weak)) void blas_memory_free(void *buffer);

/* Tells whether there is memory for n buffers. */
static bool room(int n)
{
    void *p[BUFFERS];
    int got = 0;
    while (got < n) {
        p[got] = mmap(NULL, BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p[got] == MAP_FAILED) break;
        got++;
    }
    for (int i = 0; i < got; i++) munmap(p[i], BUFFER);
    return got == n;
}

static void map_buffers(int n)
{
    void *p[BUFFERS];
    for (int i = 0; i < n; i++) p[i] = blas_memory_alloc(0);
    for (int i = 0; i < n; i++) blas_memory_free(p[i]);
}

/* OpenBLAS has a table of two buffers for each processor it was built for, at least 50 in all. Its
 * own threads take some of them. */
static int buffers_for(int threads)
{
    int most = 24;
#ifdef OPENBLAS_VERSION
    if (openblas_get_num_procs() > most) most = openblas_get_num_procs();
#endif
    if (most > BUFFERS) most = BUFFERS;
    return threads < most ? threads : most;
}

bool tp__blas_prepare(int threads)
{
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
    static int mapped;
    const int n = buffers_for(threads);
    pthread_mutex_lock(&one);
#ifdef OPENBLAS_VERSION
    openblas_set_num_threads(1);
#endif
    const bool done = n <= mapped || !blas_memory_alloc || !blas_memory_free || room(n - mapped);
    if (done && n > mapped && blas_memory_alloc && blas_memory_free) {
        map_buffers(n);
        mapped = n;
    }
    pthread_mutex_unlock(&one);
    return done;
}

/* ---- products ---- */

/* One row times a matrix. It needs no packing and is 4 to 9 times faster than the general
 * product. */
static void gemv(tp_dtype dtype, bool tb, int64_t n, int64_t k, double alpha, const void *a,
                 const void *b, int64_t ldb, double beta, void *c)
{
    const CBLAS_TRANSPOSE op = tb ? CblasNoTrans : CblasTrans;
    const blasint rows = (blasint)(tb ? n : k), cols = (blasint)(tb ? k : n);
    if (dtype == TP_F64)
        cblas_dgemv(CblasRowMajor, op, rows, cols, alpha, b, (blasint)ldb, a, 1, beta, c, 1);
    else
        cblas_sgemv(CblasRowMajor, op, rows, cols, (float)alpha, b, (blasint)ldb, a, 1, (float)beta,
                    c, 1);
}

void tp__gemm(tp_dtype dtype, bool ta, bool tb, int64_t m, int64_t n, int64_t k, double alpha,
              const void *a, int64_t lda, const void *b, int64_t ldb, double beta, void *c,
              int64_t ldc)
{
    if (m == 0 || n == 0) return;
    if (m == 1 && !ta && k > 0) {
        gemv(dtype, tb, n, k, alpha, a, b, ldb, beta, c);
        return;
    }
    const CBLAS_TRANSPOSE opa = ta ? CblasTrans : CblasNoTrans,
                          opb = tb ? CblasTrans : CblasNoTrans;
    const blasint ild = (blasint)(lda > 0 ? lda : 1), jld = (blasint)(ldb > 0 ? ldb : 1);
    if (dtype == TP_F64)
        cblas_dgemm(CblasRowMajor, opa, opb, (blasint)m, (blasint)n, (blasint)k, alpha, a, ild, b,
                    jld, beta, c, (blasint)ldc);
    else
        cblas_sgemm(CblasRowMajor, opa, opb, (blasint)m, (blasint)n, (blasint)k, (float)alpha, a,
                    ild, b, jld, (float)beta, c, (blasint)ldc);
}
