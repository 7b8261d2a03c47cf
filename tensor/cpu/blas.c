/* blas.c - matrix products; the only file that includes cblas.h.
 *
 * OpenBLAS runs single-threaded: its own pool was slower than our split on every shape measured,
 * and fights with OpenMP for cores. The tiles of the parallel product follow from the shape alone,
 * so the bits do not depend on the number of threads. OpenBLAS packs the whole of B for every tile,
 * so a tile has as many rows as balance allows and all columns if it can: against one large call on
 * one thread, tiles of 256 rows keep 97-100 % of the rate, of 128 rows 94-96 %, of 64 rows 88-91 %;
 * cutting columns below 512 costs another tenth. */
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

#define TILES    8     /* of the whole batch, where the sizes give as many             */
#define MAX_ROWS 256   /* of a tile                                                    */
#define MIN_COLS 128   /* of a tile, where columns are cut                             */
#define MIN_WORK 1.0e6 /* multiply-adds of a tile or chunk: 20 times an empty region's */

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

typedef struct gemm_job {
    tp_gemm g;
    int64_t sums, products;                   /* products added into one C; separate ones */
    int64_t tile_m, tile_n, tiles_m, tiles_n; /* of each separate one                     */
} gemm_job;

/* Rows are cut first; columns only when that gives too few tiles. */
static gemm_job split(const tp_gemm *g)
{
    gemm_job s = { .g = *g, .sums = 1, .products = g->batch };
    if (g->step_c == 0) {
        s.products = 1;
        s.sums = max(g->batch, 1);
        if (g->batch == 0) s.g.k = 0; /* an empty sum */
    }
    const double work = (double)g->m * (double)g->n * (double)max(g->k * s.sums, 1);
    const int64_t want = min(ceil_div(TILES, max(s.products, 1)), (int64_t)(work / MIN_WORK) + 1);
    const int64_t least = g->m >= 512 ? 128 : 64;
    s.tile_m = min(max(ceil_div(g->m, want * 16) * 16, least), MAX_ROWS);
    s.tiles_m = ceil_div(g->m, s.tile_m);
    s.tile_n = g->n;
    if (s.tiles_m < want && s.tiles_m < 4)
        s.tile_n = max(ceil_div(g->n, want / s.tiles_m * 16) * 16, MIN_COLS);
    s.tiles_n = ceil_div(g->n, s.tile_n);
    return s;
}

static void gemm_tiles(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const gemm_job *s = ctx;
    const tp_gemm *g = &s->g;
    const int64_t size = (int64_t)tp_dtype_size(g->dtype), tiles = s->tiles_m * s->tiles_n;
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        const int64_t p = t / tiles;
        const int64_t i = t % tiles / s->tiles_n * s->tile_m, m = min(g->m - i, s->tile_m);
        const int64_t j = t % s->tiles_n * s->tile_n, n = min(g->n - j, s->tile_n);
        const int64_t at_a = p * g->step_a + (g->ta ? i : i * g->lda);
        const int64_t at_b = p * g->step_b + (g->tb ? j * g->ldb : j);
        char *c = (char *)g->c + (p * g->step_c + i * g->ldc + j) * size;
        for (int64_t q = 0; q < s->sums; q++)
            tp__gemm(g->dtype, g->ta, g->tb, m, n, g->k, 1.0,
                     (const char *)g->a + (at_a + q * g->step_a) * size, g->lda,
                     (const char *)g->b + (at_b + q * g->step_b) * size, g->ldb, g->add || q > 0, c,
                     g->ldc);
        if (g->done) g->done(g->ctx, i, j, m, n);
    }
}

void tp__gemm_parallel(const tp_device *D, const tp_gemm *g)
{
    if (g->m == 0 || g->n == 0) return;
    const gemm_job s = split(g);
    const double work = (double)s.tile_m * (double)s.tile_n * (double)max(s.g.k * s.sums, 1);
    tp__parallel(D, s.products * s.tiles_m * s.tiles_n, (int64_t)(MIN_WORK / work), gemm_tiles, &s);
}
