/* test_gemm.c - the parallel matrix product against a plain loop in double: every form, type (bf16
 * with an f32 or bf16 result) and instruction set, sizes around block edges, sums of products,
 * batches, NaN and infinity, and memory that must not be read or written. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/kit/gemm.h"
#include "support/amx.h"
#include "support/values.h"
#include "tensor/bf16.h"
#include "tensor/kernel.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

enum { PAD = 3, THREADS = 2 }; /* elements of padding after each row */

typedef struct sizes {
    const char *name;
    int64_t m, n, k, batch;
    bool sum; /* C is the sum of the batch's products */
} sizes;

static const sizes cases[] = {
    { "one", 1, 1, 1, 1, false },
    { "one row", 1, 70, 300, 1, false },
    { "one column", 70, 1, 300, 1, false },
    { "a few columns", 70, 7, 20, 1, false },
    { "two rows", 2, 65, 33, 1, false },
    { "less than a block of sums", 5, 9, 3, 1, false },
    { "a block of sums", 6, 64, 16, 1, false },
    { "one more", 7, 65, 17, 1, false },
    { "rest of 4 and 1, of 3 vectors", 11, 47, 31, 1, false },
    { "rest of 2 and 1, of 2 vectors", 9, 31, 1, 1, false },
    { "two blocks of depth", 13, 33, 385, 1, false },
    { "three, unequal", 20, 40, 1000, 1, false },
    { "columns beyond a block", 49, 259, 40, 1, false },
    { "rows beyond a transposed block", 199, 24, 50, 1, false },
    { "transposed, in place", 23, 80, 900, 1, false },
    { "transposed, one vector in place", 7, 16, 390, 1, false },
    { "transposed, too wide to be read in place", 20, 320, 50, 1, false },
    { "many tiles", 530, 300, 70, 1, false },
    { "columns cut", 50, 1000, 90, 1, false },
    { "pairs, rest of 1 row and of 1 vector", 49, 65, 48, 1, false },
    { "odd sum, rest of 3 rows and of 3 vectors", 51, 111, 49, 1, false },
    { "odd sums, columns and rows beyond a block", 101, 300, 771, 1, false },
    { "tall, a quarter of a panel", 512, 16, 16, 1, false },
    { "tall, half a panel, sum", 450, 32, 32, 2, true },
    { "batch", 17, 19, 23, 5, false },
    { "large batch", 130, 140, 60, 3, false },
    { "sum", 17, 19, 23, 5, true },
    { "sum of large ones", 100, 130, 300, 3, true },
    { "nothing to sum", 5, 20, 0, 1, false },
    { "no rows", 0, 20, 5, 1, false },
    { "no columns", 5, 0, 5, 1, false },
    { "empty sum", 5, 20, 4, 0, true },
};

/* A matrix of the product, with PAD elements of NaN between rows. */
typedef struct matrix {
    int64_t rows, cols, ld, step;
    double *value; /* the stored value, as double */
    void *data;    /* in the type of the case   */
} matrix;

static double get(tp_dtype real, const void *data, int64_t i)
{
    if (real == TP_BF16) return (double)tp__from_bf16(((const uint16_t *)data)[i]);
    return real == TP_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

static void set(tp_dtype real, void *data, int64_t i, double x)
{
    if (real == TP_F64)
        ((double *)data)[i] = x;
    else if (real == TP_BF16)
        ((uint16_t *)data)[i] = tp__to_bf16((float)x);
    else
        ((float *)data)[i] = (float)x;
}

static matrix make(tp_dtype real, int64_t rows, int64_t cols, int64_t count, uint64_t seed)
{
    matrix x = { .rows = rows, .cols = cols, .ld = cols + PAD, .step = rows * (cols + PAD) };
    const int64_t n = x.step * count;
    x.value = malloc((size_t)(n + 1) * sizeof(double));
    x.data = malloc((size_t)(n + 1) * sizeof(double));
    values_random(x.value, n, seed);
    for (int64_t i = 0; i < n; i++) {
        if (i % x.ld >= cols) x.value[i] = NAN;
        if (real == TP_BF16) x.value[i] = (double)tp__from_bf16(tp__to_bf16((float)x.value[i]));
        set(real, x.data, i, x.value[i]);
    }
    return x;
}

static void release(matrix *x)
{
    free(x->value);
    free(x->data);
}

/* Computes the expected product into c->value. */
static void expected(const tp_gemm *g, const matrix *a, const matrix *b, matrix *c)
{
    const int64_t results = g->step_c ? g->batch : 1, sums = g->step_c ? 1 : g->batch;
    const int64_t down = g->ta ? 1 : a->ld, along = g->ta ? a->ld : 1;  /* A's strides: row, k */
    const int64_t deep = g->tb ? 1 : b->ld, across = g->tb ? b->ld : 1; /* B's strides: k, col */
    for (int64_t p = 0; p < results; p++)
        for (int64_t i = 0; i < g->m; i++)
            for (int64_t j = 0; j < g->n; j++) {
                double *to = c->value + p * c->step + i * c->ld + j, sum = g->add ? *to : 0.0;
                for (int64_t q = p; q < p + sums; q++) {
                    const double *x = a->value + q * a->step + i * down;
                    const double *y = b->value + q * b->step + j * across;
                    for (int64_t k = 0; k < g->k; k++) sum += x[k * along] * y[k * deep];
                }
                *to = sum;
            }
}

/* Compares C on the device, of this dtype, with c->value. */
static void expect_product(tp_device *D, const sizes *s, tp_dtype real, int form, const matrix *c,
                           int64_t n)
{
    double worst = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const double got = get(real, c->data, i);
        const double rounded = real == TP_BF16 ? fabs(c->value[i]) / 256.0 : 0.0;
        const double off = fabs(got - c->value[i]) - rounded;
        if (i % c->ld >= s->n)
            cr_expect(isnan(got), "%s, form %d: writes beside C", s->name, form);
        else
            worst = off <= worst ? worst : off;
    }
    const double terms = (double)(s->k * (s->sum ? s->batch : 1) + 1);
    cr_expect_leq(worst, (real == TP_F64 ? 1e-15 : 5e-7) * terms, "%s, form %d, %s, %s: %g off",
                  s->name, form, tp_dtype_name(real), tp_device_stats(D).isa, worst);
}

/* One product, on devices of every instruction set; of: C's dtype. */
static void check(tp_device *const *devices, const sizes *s, tp_dtype real, tp_dtype of, int form)
{
    const bool ta = form & 1, tb = form & 2, add = form & 4;
    matrix a = make(real, ta ? s->k : s->m, ta ? s->m : s->k, s->batch, 1);
    matrix b = make(real, tb ? s->n : s->k, tb ? s->k : s->n, s->batch, 2);
    const int64_t results = s->sum ? 1 : s->batch;
    matrix c = make(of, s->m, s->n, results, 3);
    const int64_t n = c.step * results;
    /* clang-format off */
    tp_gemm g = { .dtype = real, .c_dtype = of, .m = s->m, .n = s->n, .k = s->k, .ta = ta, .tb = tb,
                  .add = add,
                  .a = a.data, .lda = a.ld, .step_a = a.step,
                  .b = b.data, .ldb = b.ld, .step_b = b.step,
                  .c = c.data, .ldc = c.ld, .step_c = s->sum ? 0 : c.step, .batch = s->batch };
    /* clang-format on */
    g.work = aligned_alloc(64, THREADS * tp__gemm_scratch(real, s->n > s->k ? s->n : s->k));
    double *before = malloc((size_t)(n + 1) * sizeof *before);
    memcpy(before, c.value, (size_t)n * sizeof *before);
    expected(&g, &a, &b, &c);
    for (int d = 0; devices[d]; d++) {
        for (int64_t i = 0; i < n; i++) /* without add, C must not be read */
            set(of, c.data, i, add ? before[i] : (double)NAN);
        tp__gemm_parallel(devices[d], &g);
        expect_product(devices[d], s, of, form, &c, n);
    }
    free(before);
    free(g.work);
    release(&a);
    release(&b);
    release(&c);
}

Test(gemm, every_form)
{
    tp_device *devices[TP_ISA_AMX + 1] = { NULL };
    int count = 0;
    for (tp_isa isa = TP_ISA_BASE; isa <= TP_ISA_AMX; isa++)
        if (amx_isa_runs(isa))
            devices[count++] = amx_open(&(tp_device_opts){ .threads = THREADS, .isa = isa });
    for (size_t i = 0; i < COUNT(cases); i++)
        for (int form = 0; form < 8; form++) {
            check(devices, &cases[i], TP_F32, TP_F32, form);
            check(devices, &cases[i], TP_F64, TP_F64, form);
            check(devices, &cases[i], TP_BF16, TP_F32, form);
            check(devices, &cases[i], TP_BF16, TP_BF16, form);
        }
    while (count > 0) tp_device_close(devices[--count]);
}

/* An infinity in A affects only its row and a NaN in B only its column, at every position in a
 * block. */
static void check_special(tp_device *D, tp_dtype real, int M, bool ta, bool tb)
{
    enum { MOST = 50 };
    static float a[MOST * (MOST + 6)], b[(MOST + 6) * 3 * MOST], c[3 * MOST * MOST];
    const int N = 3 * M, K = M + 6;
    void *work = aligned_alloc(64, THREADS * tp__gemm_scratch(real, N));
    for (int e = 0; e < M; e++) {
        const int row = e, col = 3 * e, k = e;
        for (int i = 0; i < M * K; i++) set(real, a, i, 1.0);
        for (int i = 0; i < K * N; i++) set(real, b, i, 1.0);
        set(real, a, ta ? k * M + row : row * K + k, (double)INFINITY);
        set(real, b, tb ? col * K + k : k * N + col, (double)NAN);
        tp__gemm_parallel(D, &(tp_gemm){ .dtype = real,
                                         .m = M,
                                         .n = N,
                                         .k = K,
                                         .batch = 1,
                                         .ta = ta,
                                         .tb = tb,
                                         .a = a,
                                         .lda = ta ? M : K,
                                         .b = b,
                                         .ldb = tb ? K : N,
                                         .c = c,
                                         .ldc = N,
                                         .work = work });
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++) {
                const float y = c[i * N + j];
                cr_expect(j == col   ? isnan(y)
                          : i == row ? isinf(y)
                                     : y == (float)K,
                          "row %d, column %d of %d, %d: %g", i, j, row, col, (double)y);
            }
    }
    free(work);
}

Test(gemm, nan_and_infinity)
{
    for (tp_isa isa = TP_ISA_BASE; isa <= TP_ISA_AMX; isa++) {
        if (!amx_isa_runs(isa)) continue;
        tp_device *D = amx_open(&(tp_device_opts){ .threads = THREADS, .isa = isa });
        for (int form = 0; form < 4; form++) {
            check_special(D, TP_F32, 13, form & 1, form & 2);
            check_special(D, TP_BF16, 48, form & 1, form & 2);
        }
        tp_device_close(D);
    }
}

/* ---- tiles ---- */

/* The product of a case on a device with this many threads and instruction set. */
static float *by_threads(const sizes *s, tp_dtype real, int form, tp_isa isa, int threads)
{
    const bool ta = form & 1, tb = form & 2;
    tp_device *D = amx_open(&(tp_device_opts){ .threads = threads, .isa = isa });
    const int64_t n = s->n > s->k ? s->n : s->k;
    void *work = aligned_alloc(64, (size_t)threads * tp__gemm_scratch(real, n));
    float *a = calloc((size_t)(s->m * s->k), sizeof *a),
          *b = calloc((size_t)(s->k * s->n), sizeof *b);
    float *c = calloc((size_t)(s->m * s->n), sizeof *c);
    for (int64_t i = 0; i < s->m * s->k; i++) set(real, a, i, (double)(i % 1013) / 1009.0 - 0.4);
    for (int64_t i = 0; i < s->k * s->n; i++) set(real, b, i, (double)(i % 919) / 911.0 - 0.6);
    tp__gemm_parallel(D, &(tp_gemm){ .dtype = real,
                                     .m = s->m,
                                     .n = s->n,
                                     .k = s->k,
                                     .batch = 1,
                                     .ta = ta,
                                     .tb = tb,
                                     .a = a,
                                     .lda = ta ? s->m : s->k,
                                     .b = b,
                                     .ldb = tb ? s->k : s->n,
                                     .c = c,
                                     .ldc = s->n,
                                     .work = work });
    free(a);
    free(b);
    free(work);
    tp_device_close(D);
    return c;
}

/* The number of threads changes the tiles but not the bits. */
Test(gemm, same_bits_for_any_threads)
{
    static const sizes wide[] = {
        { "rows of one tile", 40, 330, 300, 1, false },
        { "few rows, many columns", 7, 1100, 390, 1, false },
        { "rows for two threads", 101, 130, 260, 1, false },
        { "rows for all threads", 1039, 65, 70, 1, false },
    };
    const int threads[] = { 2, 3, 16 };
    for (tp_isa isa = TP_ISA_BASE; isa <= TP_ISA_AMX; isa++) {
        if (!amx_isa_runs(isa)) continue;
        for (size_t i = 0; i < COUNT(wide); i++)
            for (int form = 0; form < 8; form++) {
                const tp_dtype real = form & 4 ? TP_BF16 : TP_F32;
                const size_t size = (size_t)(wide[i].m * wide[i].n) * sizeof(float);
                float *one = by_threads(&wide[i], real, form, isa, 1);
                for (size_t t = 0; t < COUNT(threads); t++) {
                    float *many = by_threads(&wide[i], real, form, isa, threads[t]);
                    cr_expect_eq(memcmp(one, many, size), 0, "%s, form %d, set %d: %d threads",
                                 wide[i].name, form, (int)isa, threads[t]);
                    free(many);
                }
                free(one);
            }
    }
}

enum { TOLD_M = 700, TOLD_N = 530 };
static uint8_t told[TOLD_M * TOLD_N];

static void tell(const void *ctx, void *z, int64_t ldz, int64_t i, int64_t j, int64_t m, int64_t n)
{
    const float *c = z;
    (void)ctx;
    for (int64_t y = 0; y < m; y++)
        for (int64_t x = 0; x < n; x++)
            if (c[y * ldz + x] == 8.0f) told[(i + y) * TOLD_N + j + x]++;
}

/* Every element is reported once, on completion. */
Test(gemm, finished_tiles_are_reported)
{
    static float a[TOLD_M * 4], b[4 * TOLD_N], c[TOLD_M * TOLD_N];
    for (int i = 0; i < TOLD_M * 4; i++) a[i] = 2.0f;
    for (int i = 0; i < 4 * TOLD_N; i++) b[i] = 1.0f;
    for (tp_isa isa = TP_ISA_BASE; isa <= TP_ISA_AMX; isa++) {
        if (!amx_isa_runs(isa)) continue;
        tp_device *D = amx_open(&(tp_device_opts){ .threads = THREADS, .isa = isa });
        void *work = aligned_alloc(64, THREADS * tp__gemm_scratch(TP_F32, TOLD_N));
        memset(told, 0, sizeof told);
        tp__gemm_parallel(D, &(tp_gemm){ .dtype = TP_F32,
                                         .m = TOLD_M,
                                         .n = TOLD_N,
                                         .k = 4,
                                         .batch = 1,
                                         .a = a,
                                         .lda = 4,
                                         .b = b,
                                         .ldb = TOLD_N,
                                         .c = c,
                                         .ldc = TOLD_N,
                                         .work = work,
                                         .done = tell,
                                         .ctx = c });
        int64_t wrong = 0;
        for (int64_t i = 0; i < (int64_t)sizeof told; i++) wrong += told[i] != 1;
        cr_expect_eq(wrong, 0, "instruction set %d: %lld elements", (int)isa, (long long)wrong);
        free(work);
        tp_device_close(D);
    }
}
