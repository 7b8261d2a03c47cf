/* test_profile.c - op times: each kernel is counted once under its own name, the slowest first.
 * Nothing is measured unless requested. Runs on the CPU and on a CUDA device if there is one. */
#include <criterion/criterion.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "support/device.h"

enum { STEPS = 400, LINES = 32 }; /* more ops than a CUDA device has marks */

/* Runs `steps` SGD steps on the sum of exp(w w). */
static void work(tp_device *D, int steps)
{
    tp_params *P = tp_params_new(D, NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    const tp_tensor w = tp_param(P, "w", TP_SHAPE(3), (tp_init){ TP_INIT_NORMAL, 0.1, 0.0 }, 0);
    tp_optim *O = tp_sgd_new(P, NULL);
    for (int i = 0; i < steps; i++) {
        tp_reset(T);
        tp_backward(T, tp_sum(T, tp_exp(T, tp_mul(T, w, w)), TP_ALL));
        tp_step(O, 1e-3);
    }
    cr_expect(tp_ok(T) && tp_optim_ok(O), "%s%s", tp_why(T), tp_optim_why(O));
    tp_optim_free(O);
    tp_tape_free(T);
    tp_params_free(P);
}

static uint64_t calls(const tp_op_time *line, int n, const char *op, bool backward)
{
    for (int i = 0; i < n; i++)
        if (strcmp(line[i].op, op) == 0 && line[i].backward == backward) return line[i].calls;
    return 0;
}

static void check(const char *device)
{
    tp_op_time line[LINES];
    tp_device *D = tp_device_open(device, &(tp_device_opts){ .threads = 1, .profile = true });
    const double began = tp_seconds();
    work(D, STEPS);
    const double passed = tp_seconds() - began;
    const int n = tp_device_profile(D, line, LINES);
    double sum = 0.0;
    uint64_t all = 0;
    cr_assert(n > 0 && n <= LINES, "%s: %d lines", device, n);
    for (int i = 0; i < n; i++) {
        sum += line[i].seconds;
        all += line[i].calls;
        cr_expect(i == 0 || line[i].seconds <= line[i - 1].seconds, "%s: order", device);
    }
    cr_expect(sum > 0.0 && sum <= passed, "%s: %g s of %g s", device, sum, passed);
    cr_expect_eq(all, tp_device_stats(D).launches, "%s: every kernel is counted", device);
    const char *const ops[] = { "exp", "mul", "sum" };
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        for (int backward = 0; backward < 2; backward++)
            cr_expect_eq(calls(line, n, ops[i], backward), STEPS, "%s: %s", device, ops[i]);
    cr_expect_eq(calls(line, n, "sgd", false), STEPS, "%s: sgd", device);
    cr_expect_eq(tp_device_profile(D, line, 1), n, "%s: a short list", device);
    tp_device_reset_profile(D);
    cr_expect_eq(tp_device_profile(D, line, LINES), 0, "%s: after a reset", device);
    tp_device_close(D);
}

Test(profile, counts_and_times)
{
    check("cpu");
    if (device_has_cuda()) check("cuda");
}

Test(profile, is_empty_unless_asked_for)
{
    tp_op_time line[LINES];
    tp_device *D = tp_device_open("cpu", NULL);
    work(D, 1);
    cr_expect_eq(tp_device_profile(D, line, LINES), 0);
    tp_device_close(D);
    D = tp_device_open("nonsense", &(tp_device_opts){ .profile = true });
    cr_expect_eq(tp_device_profile(D, line, LINES), 0, "a failed device");
    tp_device_close(D);
}
