/* test_cuda_packed.c - tp_packed_attention on the CUDA device in bf16, against the CPU in f64, on
 * the paths of tensor cores: documents that end inside tiles, of one row, without rows or keys;
 * head sizes, shared keys, the causal edge, ALiBi, dropout. Several orders of threads. Calls that
 * no launch can hold are refused. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "support/device.h"
#include "support/values.h"
#include "tensor/bf16.h"
#ifdef TP_EMULATION
#include "cuda_emulation/emulation.h"
#endif

enum { DOCUMENTS = 5, ROOM = 40000, PARTS = 4 }; /* the result; gradients of q, k and v */

typedef struct documents {
    int64_t rows[DOCUMENTS], longest;
} documents;

typedef struct problem {
    const char *name;
    documents q, k;
    int64_t dim;
    tp_attn_cfg cfg;
} problem;

static const problem problems[] = {
    { "heads of 32",
      { { 70, 1, 0, 33, 64 }, 70 },
      { { 70, 1, 0, 33, 64 }, 70 },
      32,
      { .heads = 2 } },
    { "heads of 64, other keys, a looser bound",
      { { 3, 40, 1, 65, 0 }, 80 },
      { { 129, 1, 0, 66, 31 }, 200 },
      64,
      { .heads = 1 } },
    { "heads of 128, causal",
      { { 1, 67, 16, 0, 40 }, 67 },
      { { 1, 67, 16, 0, 40 }, 67 },
      128,
      { .heads = 1, .causal = true } },
    { "heads of 24, causal, ALiBi, more keys",
      { { 66, 2, 17, 1, 5 }, 66 },
      { { 100, 2, 20, 70, 5 }, 100 },
      24,
      { .heads = 3, .causal = true, .alibi = true } },
    { "blind queries, dropout",
      { { 70, 9, 1, 0, 30 }, 70 },
      { { 20, 0, 1, 8, 29 }, 30 },
      16,
      { .heads = 2, .causal = true, .dropout = 0.2 } },
    { "shared keys, dropout",
      { { 35, 0, 77, 1, 2 }, 77 },
      { { 35, 0, 77, 1, 2 }, 77 },
      40,
      { .heads = 4, .kv_heads = 2, .dropout = 0.3 } },
    { "heads of 64, dropout, a looser bound",
      { { 140, 1, 3, 0, 65 }, 141 },
      { { 140, 1, 3, 0, 65 }, 143 },
      64,
      { .heads = 2, .dropout = 0.1 } },
    { "heads of 104, shared keys, causal, dropout",
      { { 13, 66, 1, 32, 5 }, 66 },
      { { 13, 66, 1, 32, 5 }, 66 },
      104,
      { .heads = 2, .kv_heads = 1, .causal = true, .dropout = 0.4 } },
};
enum { PROBLEMS = sizeof problems / sizeof *problems };

typedef struct answer {
    int64_t n[PARTS];
    double v[PARTS][ROOM];
} answer;

/* The first rows of documents, and one past the last. */
static tp_packed offsets(tp_tape *T, const documents *d)
{
    int32_t at[DOCUMENTS + 1] = { 0 };
    for (int b = 0; b < DOCUMENTS; b++) at[b + 1] = at[b] + (int32_t)d->rows[b];
    return (tp_packed){ tp_from(T, TP_I32, TP_SHAPE(DOCUMENTS + 1), at), d->longest };
}

static tp_shape shape(const documents *d, int64_t width)
{
    int64_t rows = 0;
    for (int b = 0; b < DOCUMENTS; b++) rows += d->rows[b];
    cr_assert_leq(rows * width, ROOM);
    return TP_SHAPE(rows, width);
}

/* Values exact in bf16, for equality on all devices. */
static const double *values(tp_shape s, uint64_t seed)
{
    static double x[ROOM];
    const int64_t n = s.dim[0] * s.dim[1];
    values_random(x, n, seed);
    for (int64_t e = 0; e < n; e++) x[e] = (double)tp__from_bf16(tp__to_bf16((float)x[e]));
    return x;
}

static void run(tp_device *D, const problem *p, tp_dtype dt, answer *a)
{
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = dt, .train = true, .seed = 3 });
    const int heads = p->cfg.kv_heads > 0 ? p->cfg.kv_heads : p->cfg.heads;
    const tp_shape q = shape(&p->q, p->cfg.heads * p->dim), k = shape(&p->k, heads * p->dim);
    tp_tensor x[PARTS];
    memset(a, 0, sizeof *a);
    x[1] = values_input(T, dt, q, values(q, 1));
    x[2] = values_input(T, dt, k, values(k, 2));
    x[3] = values_input(T, dt, k, values(k, 3));
    x[0] = tp_packed_attention(T, x[1], x[2], x[3], offsets(T, &p->q), offsets(T, &p->k), p->cfg);
    tp_backward(T, tp_sum(T, tp_mul(T, x[0], values_constant(T, dt, q, values(q, 99))), TP_ALL));
    for (int i = 0; i < PARTS; i++) {
        a->n[i] = tp_numel(x[i]);
        values_read(T, i == 0 ? x[0] : tp_grad(T, x[i]), a->v[i]);
    }
    cr_expect(tp_ok(T), "%s, %s: %s", p->name, tp_dtype_name(dt), tp_why(T));
    tp_tape_free(T);
}

static void check(tp_device *cpu, tp_device *gpu, const problem *p)
{
    static const char *const parts[PARTS] = { "y", "dq", "dk", "dv" };
    static answer exact, got, again;
    run(cpu, p, TP_F64, &exact);
    run(gpu, p, TP_BF16, &got);
    for (int i = 0; i < PARTS; i++) {
        const double error = values_error(got.v[i], exact.v[i], exact.n[i], 1e-3);
        cr_expect(error <= 2e-2, "%s, %s: error %.3g", p->name, parts[i], error);
    }
    for (int order = device_other_order(); device_set_order(order); order++) {
        run(gpu, p, TP_BF16, &again);
        cr_expect(memcmp(&again, &got, sizeof got) == 0, "%s: order %d of threads gives other bits",
                  p->name, order);
    }
    device_set_order(0);
}

Test(cuda_packed, bf16, .timeout = 600)
{
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    tp_device *cpu = tp_device_open("cpu", &(tp_device_opts){ .threads = 1 });
    tp_device *gpu = device_cuda();
    for (int k = 0; k < PROBLEMS; k++) check(cpu, gpu, &problems[k]);
    cr_expect_eq(tp_device_stats(gpu).live_bytes, 0, "memory is returned");
    tp_device_close(gpu);
    tp_device_close(cpu);
}

/* 2^19 documents, 16 tiles and 512 heads are 2^32 blocks. */
Test(cuda_packed, too_many_blocks, .timeout = 600)
{
    enum { N = 1 << 19, ROWS = 1024, HEADS = 512, WIDTH = 8 * HEADS };
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    tp_device *gpu = device_cuda();
    tp_tape *T = tp_tape_new(gpu, &(tp_tape_opts){ .compute = TP_BF16 });
    int32_t *at = malloc((N + 1) * sizeof *at);
    for (int b = 0; b <= N; b++) at[b] = b < N ? 0 : ROWS;
    const tp_packed of = { tp_from(T, TP_I32, TP_SHAPE(N + 1), at), ROWS };
    const tp_tensor x = tp_full(T, TP_BF16, TP_SHAPE(ROWS, WIDTH), 1);
    tp_packed_attention(T, x, x, x, of, of, (tp_attn_cfg){ .heads = HEADS });
    cr_expect(strstr(tp_why(T), "4294967296 blocks of threads"), "%s", tp_why(T));
    free(at);
    tp_tape_free(T);
    tp_device_close(gpu);
}

#ifdef TP_EMULATION
static uint64_t threads_of(tp_device *D, const problem *p, double scale)
{
    static answer unused;
    problem scaled = *p;
    scaled.cfg.scale = scale;
    const uint64_t before = emulation_threads();
    run(D, &scaled, TP_BF16, &unused);
    return emulation_threads() - before;
}

/* The tensor cores do not serve tiny scales, and their blocks are smaller. */
Test(cuda_packed, runs_on_tensor_cores, .timeout = 600)
{
    tp_device *gpu = device_cuda();
    for (int k = 0; k < PROBLEMS; k++)
        cr_expect_lt(threads_of(gpu, &problems[k], 0.3), threads_of(gpu, &problems[k], 1e-7), "%s",
                     problems[k].name);
    tp_device_close(gpu);
}
#endif
