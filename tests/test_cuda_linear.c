/* test_cuda_linear.c - dense layers on the CUDA device against the CPU in f64: biases that can and
 * cannot be part of the product, and more problems than the device remembers algorithms for. On the
 * emulated device also that no kernel of ours runs for a bias or its gradient. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <tapegrad/tapegrad.h>

#include "support_device.h"
#include "support_values.h"

#ifdef TP_EMULATION
#include "cuda_emulation/emulation.h"
#endif

#define ROOM 8192 /* elements of y, dx, dw and db together */

typedef struct layer {
    int rows, inputs, outputs, shift; /* the bias begins at element `shift` of its buffer */
    bool bias, twice;                 /* twice: the gradients of a second loss are added */
    tp_act act;
} layer;

/* Threads that the emulation has started so far; 0 on a card. */
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

/* y, dx, dw and db, one behind the other: how many numbers. used: threads of forward, backward. */
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
        for (int act = TP_ACT_NONE; act <= TP_ACT_QUICK_GELU; act++) {
            layer l = cases[i].l;
            l.act = (tp_act)act;
            check(cpu, gpu, cases[i].name, l, used);
        }
    cr_expect_eq(tp_device_stats(gpu).live_bytes, 0, "memory is returned");
    tp_device_close(gpu);
    tp_device_close(cpu);
}

/* TF32 is for products of f32; those of bf16 are as ever. The numbers are exact in TF32 too. */
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

/* Twice 400 problems with forward and backward each, more than are remembered. */
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
Test(cuda_linear, a_bias_that_lies_badly_is_a_pass_of_its_own)
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
