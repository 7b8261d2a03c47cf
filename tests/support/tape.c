/* tape.c - sets up a small model on a tape. */
#include "support/tape.h"

#include <criterion/criterion.h>

#include "support/device.h"
#include "support/values.h"

tape_world tape_begin(void)
{
    tape_world s;
    s.D = device_open(&(tp_device_opts){ .threads = 2 });
    s.P = tp_params_new(s.D, &(tp_params_opts){ .seed = 3, .dtype = device_real() });
    s.w = tp_param(s.P, "w", TP_SHAPE(4, 4), (tp_init){ TP_INIT_NORMAL, 0.5, 0.0 }, 0);
    s.T = tp_tape_new(s.D, &(tp_tape_opts){ .seed = 1, .compute = device_real(), .train = true });
    return s;
}

void tape_end(tape_world *s)
{
    tp_tape_free(s->T);
    tp_params_free(s->P);
    cr_expect_eq(tp_device_stats(s->D).live_bytes, 0, "freeing everything returns all memory");
    tp_device_close(s->D);
}

tp_tensor tape_input(tp_tape *T)
{
    double x[8];
    for (int i = 0; i < 8; i++) x[i] = 0.25 * i - 0.75;
    return values_input(T, device_real(), TP_SHAPE(2, 4), x);
}

tp_tensor tape_layer(tp_tape *T, const void *self, tp_tensor x)
{
    tp_enter(T, "layer");
    const tp_tensor w = *(const tp_tensor *)self;
    return tp_leave(T, tp_tanh(T, tp_matmul(T, x, w)));
}

tp_tensor tape_noisy(tp_tape *T, const void *self, tp_tensor x)
{
    tp_enter(T, "noisy");
    return tp_leave(T, tp_dropout(T, tape_layer(T, self, tp_dropout(T, x, 0.25)), 0.5));
}
