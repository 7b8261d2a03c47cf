/* gemm_tiles.c - matrix products over many threads, tile by tile.
 *
 * A tile is computed by the kernels of gemm.c and gemm_bf16.c. OpenBLAS computes it at the
 * baseline, and for one row (gemv) or few columns, where packing does not pay. Without bf16
 * instructions, blocks of operands in bf16 are widened to f32 for these kernels. A tile of a bf16 C
 * is summed separately in f32 and rounded at the end.
 *
 * The kernels pack the tile's part of B, and of A if A is stored transposed. A tile therefore has
 * one block of columns and as many rows as possible, fewer only to give every thread its share.
 * This split depends on the number of threads, but the results do not: the kernels add in the same
 * order however a product is split. OpenBLAS does not, so its tiles depend on the shape only.
 * OpenBLAS packs all of B for every tile. Compared with one large call on one thread, tiles of 256
 * rows keep 97-100 % of its rate, of 128 rows 94-96 %, of 64 rows 88-91 %. Blocks of fewer than 512
 * columns cost another tenth. */
#include "cpu/kit/gemm.h"
#include "tensor/bf16.h"
#include "tensor/geometry/whole.h"
#include "tensor/kernel.h"

#define MIN_WORK 1.0e6 /* least multiply-adds of a task: 20 times the cost of an empty region */

#define OWN_TILES    2 /* tiles per thread, if several run */
#define OWN_ROWS     TP_GEMM_TILE
#define OWN_MIN_ROWS 48 /* fewest rows of a tile, if split */
#define OWN_MIN_COLS 8  /* fewest columns; OpenBLAS gets narrower products */

#define BF16_LEAST 48 /* rows, columns and terms of a sum from which rounding to bf16 pays */

#define BLAS_TILES    8   /* tiles of the whole batch, if sizes allow */
#define BLAS_ROWS     256 /* most rows of a tile */
#define BLAS_BF16     256 /* most columns of a tile of bf16 operands */
#define BLAS_MIN_COLS 128 /* fewest columns of a tile, if split */

typedef void (*tile_kernel)(const tp_gemm_tile *t);

#if defined(__x86_64__)
void tp_cpu_gemm_tile_avx2_f32(const tp_gemm_tile *t);
void tp_cpu_gemm_tile_avx2_f64(const tp_gemm_tile *t);
void tp_cpu_gemm_tile_avx512_f32(const tp_gemm_tile *t);
void tp_cpu_gemm_tile_avx512_f64(const tp_gemm_tile *t);
void tp_cpu_gemm_tile_bf16_avx512_f32(const tp_gemm_tile *t);
#endif

bool tp__gemm_has_bf16(const tp_device *D)
{
#if defined(__x86_64__)
    return TP_HAS_ISA(TP_ISA_AVX512) && D->isa == TP_ISA_AVX512 &&
           __builtin_cpu_supports("avx512bf16");
#else
    (void)D;
    return false;
#endif
}

bool tp__gemm_takes_bf16(const tp_device *D, tp_dtype dtype, int64_t m, int64_t n, int64_t k)
{
    return dtype == TP_BF16 && m >= BF16_LEAST && n >= BF16_LEAST && k >= BF16_LEAST &&
           tp__gemm_has_bf16(D);
}

/* The kernel for a product; NULL: OpenBLAS. */
static tile_kernel kernel_for(const tp_device *D, const tp_gemm *g)
{
#if defined(__x86_64__)
    const bool f64 = g->dtype == TP_F64;
    if (TP_HAS_ISA(TP_ISA_AVX512) && g->dtype == TP_BF16 && tp__gemm_has_bf16(D))
        return tp_cpu_gemm_tile_bf16_avx512_f32;
    if (g->m == 1 || g->n < OWN_MIN_COLS) return NULL;
    if (TP_HAS_ISA(TP_ISA_AVX512) && D->isa == TP_ISA_AVX512)
        return f64 ? tp_cpu_gemm_tile_avx512_f64 : tp_cpu_gemm_tile_avx512_f32;
    if (TP_HAS_ISA(TP_ISA_AVX2) && D->isa == TP_ISA_AVX2)
        return f64 ? tp_cpu_gemm_tile_avx2_f64 : tp_cpu_gemm_tile_avx2_f32;
#else
    (void)D, (void)g;
#endif
    return NULL;
}

typedef struct gemm_job {
    const tp_device *D;
    tp_gemm g;
    tile_kernel kernel;
    bool rounds, widens;                      /* C is bf16; bf16 operands become f32 blocks */
    bool amx;                                 /* tiles of AMX */
    int64_t size;                             /* of tp__gemm_scratch */
    size_t scratch;                           /* bytes of a thread */
    int64_t sums, products;                   /* products added into one C; separate ones */
    int64_t tile_m, tile_n, tiles_m, tiles_n; /* of each separate product */
} gemm_job;

/* Splits columns into blocks of equal size, and rows into equal tiles that the threads share
 * evenly. Blocks are narrower if there are too few rows. */
static void cut_for_kernel(gemm_job *s, int64_t want, int threads)
{
    const tp_gemm *g = &s->g;
    const int64_t size = (int64_t)tp_dtype_size(g->dtype == TP_F64 ? TP_F64 : TP_F32);
    const int64_t panel = TP_GEMM_PANEL / size;
    const int64_t panels = tp__ceil_div(g->n, panel), most = tp__most(g->m / OWN_MIN_ROWS, 1);
    const int64_t strip = s->amx ? TP_GEMM_AMX : TP_GEMM_STRIP, rows = OWN_ROWS / strip * strip;
    const int64_t blocks = tp__most(tp__ceil_div(g->n, TP_GEMM_COLS / size),
                                    tp__ceil_div(tp__least(want, threads), most));
    s->tile_n = tp__ceil_div(panels, tp__least(blocks, panels)) * panel;
    const int64_t across = tp__ceil_div(g->n, s->tile_n);
    int64_t tiles = tp__most(tp__ceil_div(want, across), tp__ceil_div(g->m, rows));
    while (tiles < most && tiles * across * s->products % threads != 0) tiles++;
    s->tile_m = tp__round_up(tp__ceil_div(g->m, tp__least(tiles, most)), strip);
}

/* Splits rows first, and columns only if there are too few tiles. */
static void cut_for_blas(gemm_job *s, int64_t want)
{
    const tp_gemm *g = &s->g;
    const int64_t least = g->m >= 512 ? 128 : 64;
    s->tile_m = tp__least(tp__most(tp__ceil_div(g->m, want * 16) * 16, least), BLAS_ROWS);
    s->tile_n = g->n;
    const int64_t tiles = tp__ceil_div(g->m, s->tile_m);
    if (tiles < want && tiles < 4)
        s->tile_n = tp__most(tp__ceil_div(g->n, want / tiles * 16) * 16, BLAS_MIN_COLS);
    if (g->dtype == TP_BF16) s->tile_n = tp__least(s->tile_n, BLAS_BF16);
}

static gemm_job split(const tp_device *D, const tp_gemm *g)
{
    gemm_job s = { .D = D, .g = *g, .kernel = kernel_for(D, g), .sums = 1, .products = g->batch };
    s.rounds = g->dtype == TP_BF16 && g->c_dtype == TP_BF16;
    s.widens = g->dtype == TP_BF16 && !tp__gemm_has_bf16(D);
    s.amx = g->dtype == TP_BF16 && D->amx;
    g = &s.g;
    if (g->step_c == 0) {
        s.products = 1;
        s.sums = tp__most(g->batch, 1);
        if (g->batch == 0) s.g.k = 0; /* an empty sum */
    }
    s.size = tp__most(g->n, g->k);
    s.scratch = tp__gemm_scratch(g->dtype, s.size);
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
    if (s->kernel)
        s->kernel(t);
    else
        tp__gemm(s->g.dtype == TP_F64 ? TP_F64 : TP_F32, t->ta, t->tb, t->m, t->n, t->k, 1.0, t->a,
                 t->lda, t->b, t->ldb, t->add, t->c, t->ldc);
}

/* Widens a block of an operand, n by `deep` of its k, to f32 rows of `to`; returns their stride.
 * turned: rows run along k. */
static int64_t widen_block(const gemm_job *s, const void *x, int64_t ld, bool turned, int64_t k,
                           int64_t deep, int64_t n, float *to)
{
    const uint16_t *from = (const uint16_t *)x + (turned ? k * ld : k);
    const int64_t rows = turned ? deep : n, cols = turned ? n : deep;
    tp__widen_rows(s->D, from, ld, to, cols, rows, cols);
    return cols;
}

/* Multiplies a tile, widening bf16 operands block by block; room: tp__gemm_widened bytes. */
static void run_widened(const gemm_job *s, const tp_gemm_tile *t, float *room)
{
    float *b = room + TP_GEMM_TILE * TP_GEMM_WIDE;
    tp_gemm_tile w = *t;
    w.a = room;
    w.b = b;
    w.a_bf16 = w.b_bf16 = false;
    for (int64_t k = 0; k == 0 || k < t->k; k += TP_GEMM_WIDE, w.add = true) {
        w.k = tp__least(t->k - k, TP_GEMM_WIDE);
        w.lda = tp__most(widen_block(s, t->a, t->lda, t->ta, k, w.k, t->m, room), 1);
        w.ldb = tp__most(widen_block(s, t->b, t->ldb, !t->tb, k, w.k, t->n, b), 1);
        run_tile(s, &w);
    }
}

static void gemm_tiles(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const gemm_job *s = ctx;
    const tp_gemm *g = &s->g;
    const int64_t size = (int64_t)tp_dtype_size(g->dtype), tiles = s->tiles_m * s->tiles_n;
    const int64_t size_c = g->dtype == TP_BF16 && !s->rounds ? (int64_t)sizeof(float) : size;
    char *work = (char *)g->work + (size_t)thread * s->scratch;
    float *sums = (float *)(work + tp__gemm_scratch(TP_F32, s->size));
    float *room = (float *)(work + s->scratch - tp__gemm_widened(s->size));
    tp_gemm_tile t = { .ta = g->ta,
                       .a_bf16 = g->dtype == TP_BF16,
                       .b_bf16 = g->dtype == TP_BF16,
                       .amx = s->amx,
                       .tb = g->tb,
                       .k = g->k,
                       .lda = g->lda,
                       .ldb = g->ldb,
                       .ldc = s->rounds ? s->tile_n : g->ldc,
                       .work = work };
    for (int64_t at = begin; at < end; at++) {
        const int64_t p = at / tiles;
        const int64_t i = at % tiles / s->tiles_n * s->tile_m, j = at % s->tiles_n * s->tile_n;
        const int64_t at_a = p * g->step_a + (g->ta ? i : i * g->lda);
        const int64_t at_b = p * g->step_b + (g->tb ? j * g->ldb : j);
        t.m = tp__least(g->m - i, s->tile_m);
        t.n = tp__least(g->n - j, s->tile_n);
        char *c = (char *)g->c + (p * g->step_c + i * g->ldc + j) * size_c;
        t.c = s->rounds ? (char *)sums : c;
        if (s->rounds && g->add)
            tp__widen_rows(s->D, (const uint16_t *)c, g->ldc, sums, t.ldc, t.m, t.n);
        for (int64_t q = 0; q < s->sums; q++) {
            t.a = (const char *)g->a + (at_a + q * g->step_a) * size;
            t.b = (const char *)g->b + (at_b + q * g->step_b) * size;
            t.add = g->add || q > 0;
            if (s->widens)
                run_widened(s, &t, room);
            else
                run_tile(s, &t);
        }
        if (g->done) g->done(g->ctx, t.c, t.ldc, i, j, t.m, t.n);
        if (s->rounds) tp__round_rows(s->D, sums, t.ldc, (uint16_t *)c, g->ldc, t.m, t.n);
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
