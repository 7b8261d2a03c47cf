/* gemm_tiles.c - matrix products over many threads, tile by tile.
 *
 * A tile is computed by the kernels of gemm.c and gemm_bf16.c. OpenBLAS computes it at the baseline, and for one
 * row (gemv) or a few columns, where packing would not pay.
 *
 * The kernels pack the tile's part of B, and of A if A is stored transposed. A tile therefore has
 * one block of columns and as many rows as possible, fewer only to give every thread its share.
 * This split depends on the number of threads, but the results do not: the kernels add in the same
 * order however a product is split. OpenBLAS does not, so its tiles depend on the shape alone.
 * OpenBLAS packs all of B for every tile. Compared with one large call on one thread, tiles of 256
 * rows keep 97-100 % of its rate, of 128 rows 94-96 %, of 64 rows 88-91 %. Blocks of fewer than 512
 * columns cost another tenth. */
#include "tensor/cpu/kit/gemm.h"
#include "tensor/geometry/whole.h"
#include "tensor/kernel.h"

#define MIN_WORK 1.0e6 /* least multiply-adds of a task: 20 times the cost of an empty region */

#define OWN_TILES    2   /* tiles per thread with several threads                   */
#define OWN_ROWS     512 /* most rows of a tile                                     */
#define OWN_MIN_ROWS 48  /* least rows of a tile, if rows are split                 */
#define OWN_MIN_COLS 8   /* least columns of a product; OpenBLAS gets narrower ones */

#define BF16_LEAST 48 /* least rows, columns and terms of a sum, for which rounding to bf16 pays */

#define BLAS_TILES    8   /* tiles of the whole batch, where sizes allow */
#define BLAS_ROWS     256 /* most rows of a tile                         */
#define BLAS_MIN_COLS 128 /* least columns of a tile, if they are split  */

typedef void (*tile_kernel)(const tp_gemm_tile *t);

#if defined(__x86_64__)
void tp_cpu_gemm_tile_avx2_f32(const tp_gemm_tile *t);
void tp_cpu_gemm_tile_avx2_f64(const tp_gemm_tile *t);
void tp_cpu_gemm_tile_avx512_f32(const tp_gemm_tile *t);
void tp_cpu_gemm_tile_avx512_f64(const tp_gemm_tile *t);
void tp_cpu_gemm_tile_bf16_avx512_f32(const tp_gemm_tile *t);
#endif

bool tp__gemm_takes_bf16(const tp_device *D, tp_dtype dtype, int64_t m, int64_t n, int64_t k)
{
#if defined(__x86_64__)
    return dtype == TP_BF16 && D->isa == TP_ISA_AVX512 && m >= BF16_LEAST && n >= BF16_LEAST &&
           k >= BF16_LEAST && __builtin_cpu_supports("avx512bf16");
#else
    (void)D, (void)dtype, (void)m, (void)n, (void)k;
    return false;
#endif
}

/* The kernel for a product; NULL: OpenBLAS. */
static tile_kernel kernel_for(const tp_device *D, const tp_gemm *g)
{
    if (g->m == 1 || g->n < OWN_MIN_COLS) return NULL;
#if defined(__x86_64__)
    const bool f64 = g->dtype == TP_F64;
    if (tp__gemm_takes_bf16(D, g->dtype, g->m, g->n, g->k)) return tp_cpu_gemm_tile_bf16_avx512_f32;
    if (D->isa == TP_ISA_AVX512)
        return f64 ? tp_cpu_gemm_tile_avx512_f64 : tp_cpu_gemm_tile_avx512_f32;
    if (D->isa == TP_ISA_AVX2) return f64 ? tp_cpu_gemm_tile_avx2_f64 : tp_cpu_gemm_tile_avx2_f32;
#else
    (void)D;
#endif
    return NULL;
}

typedef struct gemm_job {
    tp_gemm g;
    tile_kernel kernel;
    size_t scratch;                           /* bytes of a thread */
    int64_t sums, products;                   /* products added into one C; separate ones */
    int64_t tile_m, tile_n, tiles_m, tiles_n; /* of each separate product                 */
} gemm_job;

/* Splits columns into blocks of equal size, and rows into equal tiles that the threads share
 * evenly. Blocks are narrower if there are not enough rows. */
static void cut_for_kernel(gemm_job *s, int64_t want, int threads)
{
    const tp_gemm *g = &s->g;
    const int64_t size = (int64_t)tp_dtype_size(g->dtype), panel = TP_GEMM_PANEL / size;
    const int64_t panels = tp__ceil_div(g->n, panel), most = tp__most(g->m / OWN_MIN_ROWS, 1);
    const int64_t blocks = tp__most(tp__ceil_div(g->n, TP_GEMM_COLS / size),
                                    tp__ceil_div(tp__least(want, threads), most));
    s->tile_n = tp__ceil_div(panels, tp__least(blocks, panels)) * panel;
    const int64_t across = tp__ceil_div(g->n, s->tile_n);
    int64_t tiles = tp__most(tp__ceil_div(want, across), tp__ceil_div(g->m, OWN_ROWS));
    while (tiles < most && tiles * across * s->products % threads != 0) tiles++;
    s->tile_m = tp__round_up(tp__ceil_div(g->m, tp__least(tiles, most)), TP_GEMM_STRIP);
}

/* Splits rows first, and columns only if that gives too few tiles. */
static void cut_for_blas(gemm_job *s, int64_t want)
{
    const tp_gemm *g = &s->g;
    const int64_t least = g->m >= 512 ? 128 : 64;
    s->tile_m = tp__least(tp__most(tp__ceil_div(g->m, want * 16) * 16, least), BLAS_ROWS);
    s->tile_n = g->n;
    const int64_t tiles = tp__ceil_div(g->m, s->tile_m);
    if (tiles < want && tiles < 4)
        s->tile_n = tp__most(tp__ceil_div(g->n, want / tiles * 16) * 16, BLAS_MIN_COLS);
}

static gemm_job split(const tp_device *D, const tp_gemm *g)
{
    gemm_job s = { .g = *g, .kernel = kernel_for(D, g), .sums = 1, .products = g->batch };
    if (g->dtype == TP_BF16) s.g.dtype = TP_F32; /* as it is stored */
    g = &s.g;
    if (g->step_c == 0) {
        s.products = 1;
        s.sums = tp__most(g->batch, 1);
        if (g->batch == 0) s.g.k = 0; /* an empty sum */
    }
    s.scratch = tp__gemm_scratch(g->dtype, tp__most(g->n, g->k));
    const double work = (double)g->m * (double)g->n * (double)tp__most(g->k * s.sums, 1);
    const int64_t own = D->threads > 1 ? OWN_TILES * D->threads : 1;
    const int64_t tiles = tp__ceil_div(s.kernel ? own : BLAS_TILES, tp__most(s.products, 1));
    const int64_t want = tp__least(tiles, (int64_t)(work / MIN_WORK) + 1);
    if (s.kernel)
        cut_for_kernel(&s, want, want > 1 ? D->threads : 1);
    else
        cut_for_blas(&s, want);
    s.tiles_m = tp__ceil_div(g->m, s.tile_m);
    s.tiles_n = tp__ceil_div(g->n, s.tile_n);
    return s;
}

static void run_tile(const gemm_job *s, const tp_gemm_tile *t)
{
    const tp_gemm *g = &s->g;
    if (s->kernel)
        s->kernel(t);
    else
        tp__gemm(g->dtype, t->ta, t->tb, t->m, t->n, t->k, 1.0, t->a, t->lda, t->b, t->ldb, t->add,
                 t->c, t->ldc);
}

static void gemm_tiles(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const gemm_job *s = ctx;
    const tp_gemm *g = &s->g;
    const int64_t size = (int64_t)tp_dtype_size(g->dtype), tiles = s->tiles_m * s->tiles_n;
    tp_gemm_tile t = { .ta = g->ta,
                       .tb = g->tb,
                       .k = g->k,
                       .lda = g->lda,
                       .ldb = g->ldb,
                       .ldc = g->ldc,
                       .work = (char *)g->work + (size_t)thread * s->scratch };
    for (int64_t at = begin; at < end; at++) {
        const int64_t p = at / tiles;
        const int64_t i = at % tiles / s->tiles_n * s->tile_m, j = at % s->tiles_n * s->tile_n;
        const int64_t at_a = p * g->step_a + (g->ta ? i : i * g->lda);
        const int64_t at_b = p * g->step_b + (g->tb ? j * g->ldb : j);
        t.m = tp__least(g->m - i, s->tile_m);
        t.n = tp__least(g->n - j, s->tile_n);
        t.c = (char *)g->c + (p * g->step_c + i * g->ldc + j) * size;
        for (int64_t q = 0; q < s->sums; q++) {
            t.a = (const char *)g->a + (at_a + q * g->step_a) * size;
            t.b = (const char *)g->b + (at_b + q * g->step_b) * size;
            t.add = g->add || q > 0;
            run_tile(s, &t);
        }
        if (g->done) g->done(g->ctx, i, j, t.m, t.n);
    }
}

size_t tp__product_work(const tp_device *D, tp_dtype dtype, const tp_view *a, const tp_view *b)
{
    const int64_t width = a->dim[a->ndim - 1];
    int64_t size = width > 0 ? a->numel / width : 0;
    for (int i = b->ndim - 2; i < b->ndim; i++) size = tp__most(size, b->dim[i]);
    return (size_t)D->threads * tp__gemm_scratch(dtype, tp__most(width, size));
}

void tp__gemm_parallel(const tp_device *D, const tp_gemm *g)
{
    if (g->m == 0 || g->n == 0) return;
    const gemm_job s = split(D, g);
    const double work = (double)s.tile_m * (double)s.tile_n * (double)tp__most(s.g.k * s.sums, 1);
    tp__parallel(D, s.products * s.tiles_m * s.tiles_n, (int64_t)(MIN_WORK / work), gemm_tiles, &s);
}
