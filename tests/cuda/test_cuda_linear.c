/* test_cuda_linear.c - dense layers on the CUDA device against the CPU in f64: biases that can and
 * cannot be fused with the product, and more problems than the device caches. On the emulated
 * device, none of our kernels runs for a bias or its gradient. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <tapegrad/tapegrad.h>

#include "support/device.h"
#include "support/values.h"

#ifdef TP_EMULATION
#include "cuda_emulation/emulation.h"
#endif

#define ROOM 8192 /* elements of y, dx, dw and db together */

typedef struct layer {
    int rows, inputs, outputs, shift; /* the bias begins at element `shift` of its buffer */
    bool bias, twice;                 /* twice: the gradients of a second loss are added */
    tp_act act;
} layer;

/* The number of threads that the emulation has started so far; 0 on a GPU. */
static uint64_t threads(void)
{
#ifdef TP_EMULATION
    return emulation_threads();
#else
    return 0;
#endif
}

static tp_tensor input(tp_tape *T, tp_dtype dt, tp_shape s, int64_t n, uint64_t seed)
{
    double *x = calloc((size_t)n + 1, sizeof *x);
    values_random(x, n, seed);
    for (int64_t i = 0; i < n; i++) x[i] = (double)(int)(x[i] * 64.0) / 64.0; /* exact in bf16 */
    const tp_tensor t = values_input(T, dt, s, x);
    free(x);
    return t;
}

static double *take(tp_tape *T, tp_tensor x, double *to)
{
    values_read(T, x, to);
    return to + tp_numel(x);
}

/* Writes y, dx, dw and db to out and returns their count. used: threads of forward, backward. */
static int64_t run(tp_device *D, tp_dtype dt, layer l, double *out, uint64_t used[2])
{
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = dt, .train = true });
    const int nb = l.outputs + l.shift;
    const tp_tensor x = input(T, dt, TP_SHAPE(l.rows, l.inputs), (int64_t)l.rows * l.inputs, 1);
    const tp_tensor w =
        input(T, dt, TP_SHAPE(l.outputs, l.inputs), (int64_t)l.outputs * l.inputs, 2);
    const tp_tensor b = l.bias ? input(T, dt, TP_SHAPE(nb), nb, 3) : TP_NONE;
    const tp_tensor piece = l.shift ? tp_slice(T, b, 0, l.shift, l.outputs) : b;
    double *end = out;
    for (int k = 0; k < (l.twice ? 2 : 1); k++) {
        const uint64_t before = threads();
        const tp_tensor y = tp_linear(T, x, w, piece, l.act);
        used[0] = threads() - before;
        const tp_tensor loss = tp_sum(T, y, TP_ALL);
        const uint64_t ran = threads();
        tp_backward(T, loss);
        used[1] = threads() - ran;
        if (k == 0) end = take(T, y, end);
    }
    end = take(T, tp_grad(T, x), end);
    end = take(T, tp_grad(T, w), end);
    if (l.bias) end = take(T, tp_grad(T, b), end);
    cr_expect(tp_ok(T), "%s", tp_why(T));
    tp_tape_free(T);
    cr_assert(end - out <= ROOM, "ROOM is too small");
    return end - out;
}

/* Compares one layer in f32 and bf16. */
static void check(tp_device *cpu, tp_device *gpu, const char *name, layer l, uint64_t used[2])
{
    static double exact[ROOM], got[ROOM];
    const int64_t n = run(cpu, TP_F64, l, exact, used);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        cr_assert_eq(run(gpu, bf16 ? TP_BF16 : TP_F32, l, got, used), n);
        const double error = values_error(got, exact, n, 0.0);
        cr_expect(error <= (bf16 ? 1e-2 : 1e-5), "%s, %d x %d x %d, activation %d, %s: error %.3g",
                  name, l.rows, l.outputs, l.inputs, (int)l.act, bf16 ? "bf16" : "f32", error);
    }
}

static const struct {
    const char *name;
    layer l;
} cases[] = {
    { "bias", { 6, 16, 24, 0, true, false, 0 } },
    { "bias, odd sizes", { 5, 7, 9, 0, true, false, 0 } },
    { "gradients are added", { 6, 16, 24, 0, true, true, 0 } },
    { "the bias is a piece, 2 or 4 bytes on", { 6, 16, 24, 1, true, false, 0 } },
    { "the bias is a piece, 16 or 32 bytes on", { 6, 16, 24, 8, true, false, 0 } },
    { "one output", { 6, 16, 1, 0, true, false, 0 } },
    { "one row", { 1, 16, 24, 0, true, false, 0 } },
    { "no bias", { 6, 16, 24, 0, false, false, 0 } },
};

Test(cuda_linear, biases)
{
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    tp_device *cpu = tp_device_open("cpu", &(tp_device_opts){ .threads = 1 });
    tp_device *gpu = device_cuda();
    uint64_t used[2];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int act = TP_ACT_NONE; act <= TP_ACT_SIGMOID; act++) {
            layer l = cases[i].l;
            l.act = (tp_act)act;
            check(cpu, gpu, cases[i].name, l, used);
        }
    cr_expect_eq(tp_device_stats(gpu).live_bytes, 0, "memory is returned");
    tp_device_close(gpu);
    tp_device_close(cpu);
}

/* TF32 affects products of f32 but not of bf16. The numbers are exact in TF32 too. */
Test(cuda_linear, tf32)
{
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    tp_device *cpu = tp_device_open("cpu", &(tp_device_opts){ .threads = 1 });
    tp_device *gpu = tp_device_open("cuda", &(tp_device_opts){ .tf32 = true });
    uint64_t used[2];
    layer l = { 6, 16, 24, 0, true, false, TP_ACT_NONE };
    check(cpu, gpu, "tf32, bias", l, used);
    l.bias = false;
    check(cpu, gpu, "tf32, no bias", l, used);
    tp_device_close(gpu);
    tp_device_close(cpu);
}

/* Backward needs dY, dZ and the gradients in the dtype of x: 2 bytes per element in bf16. */
Test(cuda_linear, backward_memory_follows_the_dtype)
{
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    enum { ROWS = 511, N = 513, K = 8 };
    for (int bf16 = 0; bf16 < 2; bf16++) {
        tp_device *D = device_cuda();
        const tp_dtype dt = bf16 ? TP_BF16 : TP_F32;
        tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = dt });
        const tp_tensor x = input(T, dt, TP_SHAPE(ROWS, K), ROWS * K, 1);
        const tp_tensor w = input(T, dt, TP_SHAPE(N, K), N * K, 2);
        const tp_tensor loss = tp_sum(T, tp_linear(T, x, w, TP_NONE, TP_ACT_GELU), TP_ALL);
        const size_t before = tp_device_stats(D).live_bytes;
        tp_device_reset_peak(D);
        tp_backward(T, loss);
        cr_expect(tp_ok(T), "%s", tp_why(T));
        const size_t used = tp_device_stats(D).peak_bytes - before;
        const size_t most = (bf16 ? 2 : 4) * (2 * ROWS * N + (ROWS + N) * K) + 4096;
        cr_expect(used <= most, "%s: %zu bytes, not %zu", tp_dtype_name(dt), used, most);
        tp_tape_free(T);
        tp_device_close(D);
    }
}

/* bf16 cannot hold 256 + 1, so partial sums must not be rounded, however k is split. */
Test(cuda_linear, partial_sums_are_not_rounded)
{
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    enum { K = 4096 };
    static float x[K], ones[K];
    tp_device *D = device_cuda();
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = TP_BF16 });
    for (int i = 0; i < K; i++) ones[i] = 1.0f;
    x[0] = 256.0f;
    x[1] = 1.0f;
    x[K - 1] = -256.0f;
    const tp_tensor a = tp_cast(T, tp_from(T, TP_F32, TP_SHAPE(1, K), x), TP_BF16);
    const tp_tensor b = tp_cast(T, tp_from(T, TP_F32, TP_SHAPE(K, 1), ones), TP_BF16);
    cr_expect_eq(tp_item(T, tp_matmul(T, a, b)), 1.0, "%s", tp_why(T));
    tp_tape_free(T);
    tp_device_close(D);
}

/* Runs 400 problems twice, forward and backward: more than the device caches. */
Test(cuda_linear, many_problems)
{
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    tp_device *cpu = tp_device_open("cpu", &(tp_device_opts){ .threads = 1 });
    tp_device *gpu = device_cuda();
    for (int i = 0; i < 800; i++) {
        const int k = i % 400;
        layer l = { 1 + k % 20, 4, 1 + k / 20, 0, true, false, TP_ACT_NONE };
        uint64_t with[2], without[2];
        check(cpu, gpu, "with bias", l, with);
        l.bias = false;
        check(cpu, gpu, "without", l, without);
        cr_expect(with[0] == 0 && with[1] == without[1],
                  "%d x %d x %d: the bias took %d threads, its gradient %d", l.rows, l.outputs,
                  l.inputs, (int)with[0], (int)(with[1] - without[1]));
    }
    tp_device_close(gpu);
    tp_device_close(cpu);
}

#ifdef TP_EMULATION
Test(cuda_linear, a_call_that_fails_is_counted_and_tried_again)
{
    tp_device *D = device_cuda();
    static double out[ROOM];
    uint64_t used[2];
    const layer l = { 6, 16, 24, 0, true, false, TP_ACT_NONE };
    emulation.refusals = 1;
    run(D, TP_BF16, l, out, used);
    cr_expect(used[0] > 0 && tp_device_stats(D).unfused == 1, "the bias is a pass of its own");
    run(D, TP_BF16, l, out, used);
    cr_expect(used[0] == 0 && tp_device_stats(D).unfused == 1, "the next call is fused again");
    tp_device_close(D);
}

Test(cuda_linear, a_misaligned_bias_is_a_separate_pass)
{
    tp_device *D = device_cuda();
    static double out[ROOM];
    uint64_t used[2];
    layer l = { 6, 16, 24, 1, true, false, TP_ACT_NONE };
    run(D, TP_BF16, l, out, used);
    cr_expect_gt(used[0], 0, "no threads for a bias at an odd address");
    l.shift = 8;
    run(D, TP_BF16, l, out, used);
    cr_expect_eq(used[0], 0, "%d threads for a bias 16 bytes on", (int)used[0]);
    tp_device_close(D);
}
#endif
