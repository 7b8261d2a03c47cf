/* test_amx.c - the tiles of AMX: when they are used, the functions that stand for their
 * instructions (tests/support/amx.c), and what products by them read, write and leave behind.
 *
 * test_gemm, test_attention, test_attention_bf16, test_conv2d and test_linalg compare their values
 * with those of other sets. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include <criterion/criterion.h>
#include <fenv.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cpu/kit/gemm.h"
#include "support/amx.h"
#include "support/values.h"
#include "tensor/bf16.h"
#include "tensor/kernel.h"
#if defined(__x86_64__)
#include "cpu/kit/amx.h"
#endif

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* ---- detection ---- */

/* The answers of a processor and a system, and how often Linux was asked. */
static struct {
    uint32_t one_c, seven_d, more_a, palettes, palette_b, palette_c;
    uint64_t xcr0;
    long refusal;
    int asked;
} told;

static void told_cpuid(uint32_t leaf, uint32_t part, uint32_t to[4])
{
    memset(to, 0, 4 * sizeof *to);
    if (leaf == 1) to[2] = told.one_c;
    if (leaf == 7 && part == 0) to[3] = told.seven_d;
    if (leaf == 7 && part == 1) to[0] = told.more_a;
    if (leaf == 0x1d && part == 0) to[0] = told.palettes;
    if (leaf == 0x1d && part == 1) {
        to[1] = told.palette_b;
        to[2] = told.palette_c;
    }
}

static uint64_t told_xcr0(void)
{
    return told.xcr0;
}

static long told_permit(void)
{
    told.asked++;
    return told.refusal;
}

static bool runs_told(void)
{
    static const tp_amx_source source = { told_cpuid, told_xcr0, told_permit };
    return tp__amx_runs(&source);
}

static void tell_sapphire_rapids(void)
{
    told.one_c = 1u << 27;
    told.seven_d = 1u << 22 | 1u << 24;
    told.more_a = 1u << 5;
    told.palettes = 1;
    told.palette_b = 8u << 16 | 64;
    told.palette_c = 16;
    told.xcr0 = 0x600e7;
    told.refusal = 0;
    told.asked = 0;
}

Test(amx, needs_processor_system_and_permission)
{
#if !defined(__x86_64__)
    cr_skip_test("AMX belongs to x86-64");
#endif
    tell_sapphire_rapids();
    cr_expect(runs_told());
    cr_expect_eq(told.asked, 1);
    static const struct {
        const char *what;
        uint32_t *at, without;
    } bits[] = {
        { "XCR0 readable", &told.one_c, 1u << 27 },  { "AMX-BF16", &told.seven_d, 1u << 22 },
        { "AMX-TILE", &told.seven_d, 1u << 24 },     { "AVX512-BF16", &told.more_a, 1u << 5 },
        { "palette 1", &told.palettes, 1 },          { "8 tiles", &told.palette_b, 8u << 16 },
        { "rows of 64 bytes", &told.palette_b, 64 }, { "16 rows", &told.palette_c, 16 },
    };
    for (size_t i = 0; i < COUNT(bits); i++) {
        tell_sapphire_rapids();
        *bits[i].at &= ~bits[i].without;
        cr_expect(!runs_told() && told.asked == 0, "without %s", bits[i].what);
    }
    for (int bit = 17; bit <= 18; bit++) {
        tell_sapphire_rapids();
        told.xcr0 &= ~(1ull << bit);
        cr_expect(!runs_told() && told.asked == 0, "without bit %d of XCR0", bit);
    }
    tell_sapphire_rapids();
    told.refusal = -1;
    cr_expect(!runs_told() && told.asked == 1, "refused by Linux");
}

/* A device without tiles runs the next best set, says so, and refuses to be told otherwise. */
Test(amx, is_told_by_the_device)
{
    tp_device *D = tp_device_open("cpu", NULL);
    const char *isa = tp_device_stats(D).isa;
    cr_expect_eq(strcmp(isa, "amx") == 0, tp_isa_runs(TP_ISA_AMX), "%s", isa);
    tp_device_close(D);
    if (tp_isa_runs(TP_ISA_AVX512)) {
        D = tp_device_open("cpu", &(tp_device_opts){ .isa = TP_ISA_AVX512 });
        cr_expect_str_eq(tp_device_stats(D).isa, "avx512");
        tp_device_close(D);
    }
    D = tp_device_open("cpu", &(tp_device_opts){ .isa = TP_ISA_AMX });
    if (tp_isa_runs(TP_ISA_AMX))
        cr_expect_str_eq(tp_device_stats(D).isa, "amx");
    else
        cr_expect_str_eq(tp_device_why(D), "device cpu: this processor does not run amx kernels");
    tp_device_close(D);
}

#if defined(__x86_64__)
static void need_tiles(void)
{
    if (!amx_isa_runs(TP_ISA_AMX))
        cr_skip_test("this machine has neither AMX nor AVX-512 with bf16");
}

/* ---- the functions ---- */

/* Configures all tiles with these rows, and bytes of a row. */
static bool shape_tiles(int rows, int bytes)
{
    uint8_t shapes[64] = { 1 };
    for (int t = 0; t < 8; t++) {
        shapes[16 + 2 * t] = (uint8_t)bytes;
        shapes[48 + t] = (uint8_t)rows;
    }
    return amx_ldtilecfg(shapes);
}

static uint32_t pair_of(float low, float high)
{
    return (uint32_t)tp__to_bf16(low) | (uint32_t)tp__to_bf16(high) << 16;
}

/* c += sum of a[k] b[k], one row and one column, 16 pairs. */
static float dot(const uint32_t *a, const uint32_t *b, float c)
{
    float y = NAN;
    uint32_t rows_of_b[16][16] = { { 0 } };
    float rows_of_c[16][16] = { { c } };
    uint32_t rows_of_a[16][16] = { { 0 } };
    for (int k = 0; k < 16; k++) {
        rows_of_a[0][k] = a[k];
        rows_of_b[k][0] = b[k];
    }
    cr_assert(shape_tiles(16, 64));
    cr_assert(amx_tileloadd(0, rows_of_c, 64) && amx_tileloadd(1, rows_of_a, 64) &&
              amx_tileloadd(2, rows_of_b, 64));
    cr_assert(amx_tdpbf16ps(0, 1, 2));
    cr_assert(amx_tilestored(0, rows_of_c, 64));
    y = rows_of_c[0][0];
    amx_tilerelease();
    return y;
}

Test(amx, the_stand_ins_sum_in_the_order_of_the_manual)
{
    need_tiles();
    const uint32_t one = pair_of(1, 1), low = pair_of(1, 0), high = pair_of(0, 1);
    const float large = 0x1p24f;
    uint32_t a[16] = { 0 }, b[16] = { 0 };

    a[0] = pair_of(2, 3);
    b[0] = pair_of(5, 7);
    cr_expect_eq(dot(a, b, 100), 131.0f, "pairs of halves");

    /* 2^24 + 1 + 1 in one chain stays 2^24; 2^24 + (1 + 1) over both does not. */
    for (int k = 0; k < 16; k++) a[k] = one, b[k] = 0;
    b[0] = pair_of(large, 0);
    b[1] = b[2] = low;
    cr_expect_eq(dot(a, b, 0), large, "one after another along k");
    b[1] = b[2] = high;
    cr_expect_eq(dot(a, b, 0), large + 2, "low and high halves apart");
    b[1] = b[2] = low;
    b[0] = 0;
    cr_expect_eq(dot(a, b, large), large + 2, "c last");
    b[2] = 0;
    cr_expect_eq(dot(a, b, large), large, "half to even");

    const float tiny = 0x1p-130f, small = 0x1p-126f;
    memset(b, 0, sizeof b);
    b[0] = pair_of(tiny, 0);
    a[0] = pair_of(0x1p100f, 0);
    cr_expect_eq(dot(a, b, 0), 0.0f, "subnormal operands are 0");
    cr_expect_eq(dot(a, b, tiny), 0.0f, "so is c");
    a[0] = pair_of(0.5f, 0);
    b[0] = pair_of(small, 0);
    cr_expect_eq(dot(a, b, 0), 0.0f, "subnormal results become 0");
    a[1] = pair_of(1, 0);
    b[1] = pair_of(small, 0);
    cr_expect_eq(dot(a, b, 0), small, "and earlier ones before they are added to");
    b[0] = pair_of(0x1p-66f, 0);
    a[0] = pair_of(-0x1p-66f, 0);
    a[1] = b[1] = 0;
    a[0] = pair_of(INFINITY, 0);
    b[0] = pair_of(0, 0);
    cr_expect(isnan(dot(a, b, 0)), "infinity times 0");
}

Test(amx, the_stand_ins_fault_as_processors_do)
{
    static uint8_t memory[16 * 64];
    uint8_t shapes[64] = { 2 };
    need_tiles();
    cr_expect(!amx_tilezero(0) && !amx_tileloadd(0, memory, 64) && !amx_tilestored(0, memory, 64),
              "tiles that are not configured");
    cr_expect(!amx_ldtilecfg(shapes), "palette 2");
    cr_expect(!shape_tiles(17, 64), "17 rows");
    cr_expect(!shape_tiles(16, 65), "65 bytes");
    cr_expect(!shape_tiles(0, 64), "no rows, but bytes");
    cr_assert(shape_tiles(16, 32));
    cr_expect(!amx_tdpbf16ps(0, 1, 2), "rows of b differ from pairs of a");
    cr_assert(shape_tiles(16, 64));
    cr_expect(!amx_tdpbf16ps(0, 1, 1), "a tile is two operands");
    cr_expect(amx_tdpbf16ps(0, 1, 2));
    amx_tilerelease();
    cr_expect(!amx_tdpbf16ps(0, 1, 2), "released");
}

/* ---- products ---- */

enum { M = 37, N = 45, K = 417, THREADS = 3 }; /* K: two blocks */

static void fill(uint16_t *x, int64_t n, uint64_t seed)
{
    double *values = malloc((size_t)n * sizeof *values);
    values_random(values, n, seed);
    for (int64_t i = 0; i < n; i++) x[i] = tp__to_bf16((float)values[i]);
    free(values);
}

static void multiply(tp_device *D, int64_t k, const uint16_t *a, const uint16_t *b, float *c)
{
    void *work = aligned_alloc(64, THREADS * tp__gemm_scratch(TP_BF16, K));
    const tp_gemm g = { .dtype = TP_BF16,
                        .c_dtype = TP_F32,
                        .m = M,
                        .n = N,
                        .k = k,
                        .a = a,
                        .b = b,
                        .c = c,
                        .lda = k,
                        .ldb = N,
                        .ldc = N,
                        .batch = 1,
                        .work = work };
    tp__gemm_parallel(D, &g);
    free(work);
}

/* Expects row i of c to be sums by the functions over steps of 32 terms from the first on. */
static void expect_chains(int64_t terms, const uint16_t *a, const uint16_t *b, int i,
                          const float *c)
{
    for (int j = 0; j < N; j++) {
        float sum = 0;
        for (int64_t k = 0; k < terms; k += 32) {
            uint32_t x[16] = { 0 }, y[16] = { 0 };
            for (int p = 0; p < 32 && k + p < terms; p++) {
                x[p / 2] |= (uint32_t)a[i * terms + k + p] << p % 2 * 16;
                y[p / 2] |= (uint32_t)b[(k + p) * N + j] << p % 2 * 16;
            }
            sum = dot(x, y, sum);
        }
        cr_assert_eq(memcmp(&sum, &c[i * N + j], sizeof sum), 0, "%d, %d of %d terms: %a, not %a",
                     i, j, (int)terms, (double)c[i * N + j], (double)sum);
    }
}

/* The bits that gemm_amx.c promises, in blocks of any depth. The tiles are given back. */
Test(amx, products_are_chains_of_steps)
{
    static const int64_t terms[] = { 71, K };
    static uint16_t a[M * K], b[K * N];
    static float c[M * N];
    need_tiles();
    fill(a, M * K, 1);
    fill(b, K * N, 2);
    tp_device *D = amx_open(&(tp_device_opts){ .threads = 1, .isa = TP_ISA_AMX });
    for (size_t t = 0; t < COUNT(terms); t++) {
        const int64_t before = amx_products();
        multiply(D, terms[t], a, b, c);
        if (amx_stood_for()) { /* 3 x 3 tiles */
            cr_expect_eq(amx_products() - before, 3 * 3 * ((terms[t] + 31) / 32), "%lld tiles",
                         (long long)(amx_products() - before));
            cr_expect_eq(amx_holders(), 0);
        }
        for (int i = 0; i < M; i++) expect_chains(terms[t], a, b, i, c);
    }
    tp_device_close(D);
}

/* Rounding upwards in the caller changes nothing, and is the caller's again afterwards. */
Test(amx, the_callers_rounding_does_not_matter)
{
    static uint16_t a[M * K], b[K * N];
    static float c[2][M * N];
    need_tiles();
    fill(a, M * K, 3);
    fill(b, K * N, 4);
    tp_device *D = amx_open(&(tp_device_opts){ .threads = THREADS, .isa = TP_ISA_AMX });
    multiply(D, K, a, b, c[0]);
    fesetround(FE_UPWARD);
    multiply(D, K, a, b, c[1]);
    cr_expect_eq(fegetround(), FE_UPWARD);
    fesetround(FE_TONEAREST);
    cr_expect_eq(memcmp(c[0], c[1], sizeof c[0]), 0);
    tp_device_close(D);
}

/* Memory that ends where a page begins that must not be touched. */
typedef struct fenced {
    char *pages;
    size_t all;
    void *data;
} fenced;

static fenced fence(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
    fenced f = { .all = whole + page };
    f.pages = mmap(NULL, f.all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq((void *)f.pages, MAP_FAILED);
    cr_assert_eq(mprotect(f.pages + whole, page, PROT_NONE), 0);
    f.data = f.pages + whole - bytes;
    return f;
}

/* Leaves NaN below the caller's frame, where copies with padding will lie. */
__attribute__((noinline)) static void fill_stack(void)
{
    volatile uint8_t below[1 << 16];
    for (size_t i = 0; i < sizeof below; i++) below[i] = 0xff;
}

/* A product of these sizes on D, one thread: operands without gaps, f32 sums, NaN in scratch. */
static void fenced_product(tp_device *D, int64_t m, int64_t n, int64_t k, int form, float *to)
{
    const size_t a_size = (size_t)(m * k), b_size = (size_t)(k * n), c_size = (size_t)(m * n);
    const fenced a = fence(a_size * 2), b = fence(b_size * 2), c = fence(c_size * 4);
    const bool ta = form & 1, tb = form & 2;
    tp_gemm g = { .dtype = TP_BF16,
                  .c_dtype = TP_F32,
                  .m = m,
                  .n = n,
                  .k = k,
                  .batch = 1,
                  .ta = ta,
                  .tb = tb,
                  .add = form & 4,
                  .a = a.data,
                  .b = b.data,
                  .c = c.data,
                  .lda = ta ? m : k,
                  .ldb = tb ? k : n,
                  .ldc = n };
    fill(a.data, m * k, 5);
    fill(b.data, k * n, 6);
    for (size_t i = 0; i < c_size; i++) ((float *)c.data)[i] = form & 4 ? 1.0f : NAN;
    const size_t work = tp__gemm_scratch(TP_BF16, n > k ? n : k);
    g.work = memset(aligned_alloc(64, work), 0xff, work);
    fill_stack();
    tp__gemm_parallel(D, &g);
    memcpy(to, c.data, c_size * sizeof *to);
    free(g.work);
    munmap(a.pages, a.all);
    munmap(b.pages, b.all);
    munmap(c.pages, c.all);
}

/* Whole tiles, parts of them, and one more; the last row of each operand ends at a fence. What is
 * not padded with zeros makes results NaN. */
Test(amx, touches_nothing_beyond_its_operands)
{
    static const int64_t sizes[][3] = {
        { 32, 64, 64 }, { 33, 65, 32 },  { 31, 63, 31 },  { 16, 16, 32 },
        { 17, 15, 33 }, { 1, 1, 1 },     { 1, 33, 2 },    { 48, 48, 96 },
        { 40, 1, 700 }, { 50, 20, 384 }, { 34, 70, 417 },
    };
    static float y[65 * 70], want[65 * 70];
    need_tiles();
    tp_device *D = amx_open(&(tp_device_opts){ .threads = 1, .isa = TP_ISA_AMX });
    tp_device *plain =
        tp_device_open("cpu", &(tp_device_opts){ .threads = 1, .isa = TP_ISA_AVX512 });
    for (size_t i = 0; i < COUNT(sizes); i++)
        for (int form = 0; form < 8; form++) {
            const int64_t m = sizes[i][0], n = sizes[i][1], k = sizes[i][2];
            fenced_product(D, m, n, k, form, y);
            fenced_product(plain, m, n, k, form, want);
            double worst = 0;
            for (int64_t e = 0; e < m * n; e++) {
                const double off = fabs((double)y[e] - (double)want[e]);
                worst = off <= worst ? worst : off;
            }
            cr_expect_leq(worst, 3e-7 * (double)(k + 1), "%lld x %lld x %lld, form %d: %g off",
                          (long long)m, (long long)n, (long long)k, form, worst);
        }
    tp_device_close(D);
    tp_device_close(plain);
}

/* ---- products of pairs, as attention calls them ---- */

/* Absent in builds without kernels for AVX-512. */
__attribute__((weak)) void tp_cpu_amx_begin_avx512_f32(void);
__attribute__((weak)) void tp_cpu_amx_multiply_avx512_f32(const tp_amx_product *p);
__attribute__((weak)) void tp_cpu_amx_end_avx512_f32(void);

static double half_of(const uint32_t *pairs, int64_t i, int half)
{
    return (double)tp__from_bf16((uint16_t)(pairs[i] >> 16 * half));
}

/* A product with rows of a, and of b in whole vectors, that end at fences. */
static void check_pairs(int64_t rows, int64_t cols, int64_t pairs, bool turned, bool add)
{
    const int64_t ldb = (cols + 15) / 16 * 16, lda = turned ? rows : pairs;
    const fenced fa = fence((size_t)(rows * pairs) * 4), fb = fence((size_t)(pairs * ldb) * 4);
    const fenced fc = fence((size_t)(rows * cols) * 4);
    const uint32_t *a = fa.data, *b = fb.data;
    float *c = fc.data;
    fill(fa.data, 2 * rows * pairs, 7);
    fill(fb.data, 2 * pairs * ldb, 8);
    for (int64_t i = 0; i < rows * cols; i++) c[i] = add ? 1.0f : NAN;
    const tp_amx_product p = { .rows = rows,
                               .cols = cols,
                               .pairs = pairs,
                               .a = a,
                               .lda = lda * 4,
                               .b = b,
                               .ldb = ldb,
                               .c = c,
                               .ldc = cols,
                               .add = add,
                               .turned = turned };
    fill_stack();
    tp_cpu_amx_begin_avx512_f32();
    tp_cpu_amx_multiply_avx512_f32(&p);
    tp_cpu_amx_end_avx512_f32();
    double worst = 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            double sum = add ? 1 : 0;
            for (int64_t k = 0; k < pairs; k++)
                for (int h = 0; h < 2; h++)
                    sum += half_of(a, turned ? k * lda + i : i * lda + k, h) *
                           half_of(b, k * ldb + j, h);
            const double off = fabs((double)c[i * cols + j] - sum);
            worst = off <= worst ? worst : off;
        }
    cr_expect_leq(worst, 1e-6 * (double)(pairs + 1), "%d x %d, %d pairs, %d, %d: %g off", (int)rows,
                  (int)cols, (int)pairs, turned, add, worst);
    munmap(fa.pages, fa.all);
    munmap(fb.pages, fb.all);
    munmap(fc.pages, fc.all);
}

Test(amx, products_of_pairs)
{
    static const int64_t rows[] = { 1, 16, 17, 33 }, cols[] = { 5, 16, 48 };
    static const int64_t pairs[] = { 1, 16, 23, 200 }; /* the last: copied in two parts */
    need_tiles();
    tp_device_close(amx_open(&(tp_device_opts){ .threads = 1, .isa = TP_ISA_AMX }));
    for (size_t r = 0; r < COUNT(rows); r++)
        for (size_t c = 0; c < COUNT(cols); c++)
            for (size_t k = 0; k < COUNT(pairs); k++)
                for (int form = 0; form < 4; form++)
                    check_pairs(rows[r], cols[c], pairs[k], form & 1, form & 2);
}
#endif
