/* blas.c - matrix products; the only file that includes cblas.h.
 *
 * OpenBLAS runs single-threaded: its own pool was slower than our split on every shape measured,
 * and fights with OpenMP for cores. The tiles of the parallel product follow from the shape alone,
 * so the bits do not depend on the number of threads. */
#include <cblas.h>
#include <limits.h>

#include "tensor/kernel.h"

void tp__blas_single_thread(void)
{
#ifdef OPENBLAS_VERSION
    openblas_set_num_threads(1);
#endif
}

void tp__gemm(tp_dtype real, bool ta, bool tb, int64_t m, int64_t n, int64_t k, double alpha,
              const void *a, int64_t lda, const void *b, int64_t ldb, double beta, void *c,
              int64_t ldc)
{
    if (m == 0 || n == 0) return;
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

typedef struct gemm_job {
    tp_dtype real;
    bool ta, tb;
    int64_t m, n, k, lda, ldb, ldc, tile_m, tile_n, tiles_n;
    double alpha, beta;
    const char *a, *b;
    char *c;
} gemm_job;

static void gemm_tiles(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const gemm_job *g = ctx;
    const int64_t size = g->real == TP_F64 ? 8 : 4;
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        const int64_t i = t / g->tiles_n * g->tile_m, j = t % g->tiles_n * g->tile_n;
        const int64_t m = g->m - i < g->tile_m ? g->m - i : g->tile_m;
        const int64_t n = g->n - j < g->tile_n ? g->n - j : g->tile_n;
        tp__gemm(g->real, g->ta, g->tb, m, n, g->k, g->alpha,
                 g->a + (g->ta ? i : i * g->lda) * size, g->lda,
                 g->b + (g->tb ? j * g->ldb : j) * size, g->ldb, g->beta,
                 g->c + (i * g->ldc + j) * size, g->ldc);
    }
}

/* Tiles of at least ~8 M multiply-adds, at most 512 rows; columns are cut only when rows are few.
 */
void tp__gemm_parallel(const tp_device *D, tp_dtype real, bool ta, bool tb, int64_t m, int64_t n,
                       int64_t k, double alpha, const void *a, int64_t lda, const void *b,
                       int64_t ldb, double beta, void *c, int64_t ldc)
{
    if (m == 0 || n == 0) return;
    const double work = (double)m * (double)n * (double)(k > 0 ? k : 1);
    int64_t tiles = (int64_t)(work / 8e6) + 1;
    int64_t rows = (m + 511) / 512;
    if (rows < 8) rows = tiles < 8 ? tiles : 8;
    const int64_t most = (m + 63) / 64;
    if (rows > most) rows = most;
    int64_t cols = rows >= 8 ? 1 : (tiles < 16 ? tiles : 16) / rows;
    if (cols > (n + 63) / 64) cols = (n + 63) / 64;
    if (cols < 1) cols = 1;
    const int64_t tile_m = ((m + rows - 1) / rows + 15) / 16 * 16;
    const int64_t tile_n = ((n + cols - 1) / cols + 15) / 16 * 16;
    gemm_job g = { real,  ta,   tb,  m,      n,      k,
                   lda,   ldb,  ldc, tile_m, tile_n, (n + tile_n - 1) / tile_n,
                   alpha, beta, a,   b,      c };
    tp__parallel(D, (m + tile_m - 1) / tile_m * g.tiles_n, 1, gemm_tiles, &g);
}
