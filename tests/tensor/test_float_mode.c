/* test_float_mode.c - the floating-point mode of kernels: subnormal numbers count as 0 unless kept,
 * on all threads and in any mode of the caller. Every call preserves the caller's mode. */
#include <criterion/criterion.h>
#include <fenv.h>
#include <math.h>
#include <string.h>

#include <tapegrad/op.h>
#include <tapegrad/tapegrad.h>

#include "tensor/backend.h"

enum { N = 100000 }; /* more than one chunk: workers take part */

#define TINY 1e-40f

/* Halves TINY in N elements with the kernels of D; returns how many results are not `expected`. */
static int64_t others(tp_device *D, float expected)
{
    static float x[N], y[N];
    tp_tape *T = tp_tape_new(D, NULL);
    int64_t n = 0;
    for (int i = 0; i < N; i++) x[i] = TINY;
    tp_tensor a = tp_from(T, TP_F32, TP_SHAPE(N), x);
    cr_expect(tp_read(T, tp_scale(T, a, 0.5), y, sizeof y), "%s", tp_why(T));
    for (int i = 0; i < N; i++) n += memcmp(&y[i], &expected, sizeof expected) != 0;
    tp_tape_free(T);
    return n;
}

Test(float_mode, subnormals)
{
    for (int threads = 1; threads <= 3; threads++)
        for (int isa = TP_ISA_BASE; isa <= TP_ISA_AVX512; isa++) {
            if (!tp_isa_runs((tp_isa)isa)) continue;
            tp_device_opts o = { .threads = threads, .isa = (tp_isa)isa };
            tp_device *flushes = tp_device_open("cpu", &o);
            o.keep_subnormals = true;
            tp_device *keeps = tp_device_open("cpu", &o);
            cr_expect_eq(others(flushes, 0.0f), 0, "%d threads, isa %d", threads, isa);
            cr_expect_eq(others(keeps, TINY * 0.5f), 0, "kept: %d threads, isa %d", threads, isa);
            tp_device_close(flushes);
            tp_device_close(keeps);
        }
}

/* The modes of the caller and of the thread that starts the workers do not matter. */
Test(float_mode, mode_of_the_caller)
{
    tp_device *keeps =
        tp_device_open("cpu", &(tp_device_opts){ .threads = 3, .keep_subnormals = true });
    tp_device *other = tp_device_open("cpu", NULL); /* its mode flushes */
    const uint64_t before = tp__float_begin(other);
    const int64_t n = others(keeps, TINY * 0.5f);
    tp__float_end(before);
    cr_expect_eq(n, 0, "%lld elements", (long long)n);
    tp_device_close(keeps);
    tp_device_close(other);
}

/* ---- the caller's mode ---- */

static tp_code one_shape(tp_infer *q)
{
    q->y[0] = q->x[0];
    return TP_OK;
}

static tp_code fail_forward(const tp_call *c)
{
    (void)c;
    return TP_E_VALUE;
}

static const tp_op failing_op = { .name = "failing",
                                  .nx = 1,
                                  .ny = 1,
                                  .flags = TP_NOT_DIFFERENTIABLE,
                                  .shape = one_shape,
                                  .forward = { [TP_CPU] = fail_forward } };

static void expect_mine(const char *when)
{
    volatile float tiny = TINY, half = 0.5f, zero = 0;
    cr_expect(tiny * half > zero, "%s: subnormals", when);
    cr_expect_eq(fegetround(), FE_UPWARD, "%s: rounding", when);
}

static void reports(void *env, tp_code code, const char *text)
{
    (void)code;
    (void)text;
    ++*(int *)env;
    expect_mine("a callback");
}

Test(float_mode, caller_keeps_its_own)
{
    int errors = 0;
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .threads = 2 });
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .seed = 1, .train = true });
    tp_params *P = tp_params_new(D, NULL);
    tp_tensor p = tp_param(P, "p", TP_SHAPE(N), (tp_init){ TP_INIT_NORMAL, 1, 0 }, 0);
    tp_optim *O = tp_adamw_new(P, NULL);
    tp_ema *E = tp_ema_new(P, 0.9);
    fesetround(FE_UPWARD);
    tp_device_on_error(D, reports, &errors);
    tp_tensor x = tp_cast(T, tp_scale(T, p, 0.5), TP_BF16);
    expect_mine("ops");
    tp_backward(T, tp_sum(T, tp_cast(T, tp_gelu(T, x), TP_F32), TP_ALL));
    expect_mine("backward");
    tp_clip_grad_norm(P, 1.0);
    expect_mine("clipping");
    cr_expect(tp_step(O, 1e-3), "%s", tp_optim_why(O));
    tp_ema_update(E);
    expect_mine("an update");
    cr_expect(tp_ok(T) && tp_ema_ok(E), "%s", tp_why(T));
    tp_matmul(T, p, p);
    expect_mine("shapes that do not fit");
    tp_clear(T);
    tp_apply(T, &failing_op, NULL, p);
    expect_mine("a kernel that fails");
    cr_expect_eq(errors, 2, "%d errors", errors);
    fesetround(FE_TONEAREST);
    tp_ema_free(E);
    tp_optim_free(O);
    tp_params_free(P);
    tp_tape_free(T);
    tp_device_close(D);
}

/* ---- optimisers ---- */

static double largest(tp_params *P, tp_tensor p)
{
    static float x[N];
    double most = 0;
    cr_expect(tp_param_get(P, p, TP_F32, x, sizeof x), "%s", tp_params_why(P));
    for (int i = 0; i < N; i++) most = fmax(most, fabs((double)x[i]));
    return most;
}

/* Subnormal gradients, and moments that would become so, change nothing. */
Test(float_mode, updates)
{
    static const tp_optim_value momentum[] = { { "momentum", 0.9 }, { NULL, 0 } };
    static const struct {
        const char *name;
        tp_optim_opts o;
    } kinds[] = { { "sgd", { .values = momentum } },
                  { "adamw", { 0 } },
                  { "lamb", { 0 } },
                  { "adafactor", { 0 } } };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .threads = 2 });
        tp_tape *T = tp_tape_new(D, NULL);
        tp_params *P = tp_params_new(D, NULL);
        tp_tensor p = tp_param(P, "p", TP_SHAPE(500, N / 500), (tp_init){ 0 }, 0);
        tp_optim *O = tp_optim_new(P, kinds[i].name, &kinds[i].o);
        for (int k = 0; k < 3; k++) {
            tp_reset(T);
            tp_backward(T, tp_sum(T, tp_scale(T, p, (double)TINY), TP_ALL));
            tp_step(O, 1.0);
        }
        cr_expect_eq(largest(P, p), 0.0, "%s: %g", kinds[i].name, largest(P, p));
        cr_expect(tp_ok(T) && tp_optim_ok(O), "%s %s", tp_why(T), tp_optim_why(O));
        tp_optim_free(O);
        tp_params_free(P);
        tp_tape_free(T);
        tp_device_close(D);
    }
}

Test(float_mode, average)
{
    tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .threads = 2 });
    tp_params *P = tp_params_new(D, NULL);
    tp_tensor p = tp_param(P, "p", TP_SHAPE(N), (tp_init){ TP_INIT_CONST, (double)TINY, 0 }, 0);
    tp_ema *E = tp_ema_new(P, 0.9);
    cr_expect_gt(largest(P, p), 0.0);
    tp_ema_update(E);
    tp_ema_swap(E);
    cr_expect_eq(largest(P, p), 0.0, "%g", largest(P, p));
    tp_ema_free(E);
    tp_params_free(P);
    tp_device_close(D);
}
