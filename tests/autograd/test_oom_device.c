/* test_oom_device.c - a device's memory runs out at the n-th allocation, for all n, while a network
 * is built or trained: the error says so, and the step succeeds afterwards. */
#include <criterion/criterion.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

/* Large enough that most tensors need their own slab. */
enum { ROWS = 64, IN = 300, HIDDEN = 2000 };

typedef struct net {
    tp_device *D;
    tp_params *P;
    tp_tape *T;
    tp_optim *O;
    tp_linear_m in, out;
} net;

static void net_open(net *m, size_t fail_at)
{
    m->D = tp_device_open("cpu",
                          &(tp_device_opts){ .threads = 2, .fail_at = fail_at, .fail_count = 2 });
    m->P = tp_params_new(m->D, &(tp_params_opts){ .seed = 1 });
    m->T = tp_tape_new(m->D, &(tp_tape_opts){ .seed = 1, .train = true });
    tp_linear_init(m->P, &m->in, "in", IN, HIDDEN, true);
    tp_linear_init(m->P, &m->out, "out", HIDDEN, 1, true);
    m->O = tp_adamw_new(m->P, NULL);
}

static void net_close(net *m)
{
    tp_optim_free(m->O);
    tp_tape_free(m->T);
    tp_params_free(m->P);
    cr_expect_eq(tp_device_stats(m->D).live_bytes, 0, "device memory leaks");
    tp_device_close(m->D);
}

static tp_tensor hidden(tp_tape *T, const void *self, tp_tensor x)
{
    const net *m = self;
    return tp_dropout(T, tp_linear_act(T, &m->in, x, TP_ACT_GELU), 0.1);
}

/* Runs a step; true on success. */
static bool net_step(net *m)
{
    tp_reset(m->T);
    const tp_tensor x = tp_full(m->T, TP_F32, TP_SHAPE(ROWS, IN), 0.3);
    const tp_tensor h = tp_checkpoint(m->T, hidden, m, x);
    const tp_tensor y = tp_linear_forward(m->T, &m->out, h);
    tp_backward(m->T, tp_mean(m->T, tp_square(m->T, y), TP_ALL));
    tp_clip_grad_norm(m->P, 1.0);
    return tp_step(m->O, 1e-3) && tp_ok(m->T);
}

Test(oom_device, device_memory, .timeout = 900)
{
    int failures = 0;
    for (size_t n = 1; n < 200; n++) {
        net m;
        net_open(&m, n);
        const bool made = tp_params_ok(m.P) && tp_optim_ok(m.O), ok = net_step(&m);
        if (!ok) {
            failures++;
            const char *why = !tp_params_ok(m.P) ? tp_params_why(m.P)
                              : !tp_ok(m.T)      ? tp_why(m.T)
                                                 : tp_optim_why(m.O);
            cr_expect(strstr(why, "out of memory"), "allocation %zu: %s", n, why);
        }
        if (!ok && made) {
            tp_clear(m.T);
            tp_grad_clear(m.P);
            cr_expect(net_step(&m), "the step after allocation %zu failed: %s %s", n, tp_why(m.T),
                      tp_optim_why(m.O));
        }
        net_close(&m);
        if (ok) {
            cr_expect(failures >= 5, "only %d allocations failed", failures);
            return;
        }
    }
    cr_expect(0, "the step never went through");
}
