/* test_tape_checkpoint.c - tp_checkpoint: the same bits with less memory; refusals. */
#include <criterion/criterion.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "support/device.h"
#include "support/tape.h"
#include "support/values.h"

/* Gradients of a two-layer chain with and without checkpoints. */
static void chain(tp_fn f, int checkpointed, double *gw, double *gx)
{
    tape_world s = tape_begin();
    const tp_tensor x = tape_input(s.T);
    tp_tensor y = x;
    for (int i = 0; i < 2; i++) y = checkpointed ? tp_checkpoint(s.T, f, &s.w, y) : f(s.T, &s.w, y);
    tp_backward(s.T, tp_sum(s.T, tp_square(s.T, y), TP_ALL));
    cr_expect(tp_param_get_grad(s.P, s.w, TP_F64, gw, 16 * sizeof *gw), "%s", tp_why(s.T));
    values_read(s.T, tp_grad(s.T, x), gx);
    tape_end(&s);
}

Test(tape_checkpoint, checkpoint_gives_the_same_bits)
{
    const tp_fn fns[] = { tape_layer, tape_noisy };
    for (int i = 0; i < 2; i++) {
        double w0[16], w1[16], x0[8], x1[8];
        chain(fns[i], 0, w0, x0);
        chain(fns[i], 1, w1, x1);
        cr_expect_arr_eq(w0, w1, sizeof w0, "parameter gradients, function %d", i);
        cr_expect_arr_eq(x0, x1, sizeof x0, "input gradients, function %d", i);
    }
}

typedef struct outside {
    tp_tensor w, leak;
} outside;

static tp_tensor leaky(tp_tape *T, const void *self, tp_tensor x)
{
    const outside *o = self;
    return tp_add(T, tp_matmul(T, x, o->w), o->leak);
}

Test(tape_checkpoint, checkpoint_refuses_gradients_from_outside)
{
    tape_world s = tape_begin();
    outside o = { s.w, tp_scale(s.T, tape_input(s.T), 2.0) };
    tp_checkpoint(s.T, leaky, &o, tape_input(s.T));
    cr_expect_eq(tp_code_of(s.T), TP_E_NOGRAD, "%s", tp_why(s.T));
    cr_expect(strstr(tp_why(s.T), "tp_checkpoint_n"), "%s", tp_why(s.T));
    tape_end(&s);
}

static tp_tensor unchanged(tp_tape *T, const void *self, tp_tensor x)
{
    (void)T;
    (void)x;
    return *(const tp_tensor *)self;
}

/* The replay would take the gradient from the op or parameter that owns it. */
Test(tape_checkpoint, checkpoint_refuses_results_from_outside)
{
    tape_world s = tape_begin();
    tp_tensor from[] = { tp_scale(s.T, tape_input(s.T), 2.0), s.w };
    for (int i = 0; i < 2; i++) {
        tp_checkpoint(s.T, unchanged, &from[i], tape_input(s.T));
        cr_expect_eq(tp_code_of(s.T), TP_E_NOGRAD, "%d: %s", i, tp_why(s.T));
        cr_expect(strstr(tp_why(s.T), "the result wants a gradient"), "%s", tp_why(s.T));
        tp_clear(s.T);
    }
    from[0] = tp_detach(s.T, from[0]);
    tp_checkpoint(s.T, unchanged, &from[0], tape_input(s.T));
    cr_expect(tp_ok(s.T), "%s", tp_why(s.T));
    tape_end(&s);
}

static tp_tensor first_of(tp_tape *T, const void *self, int nx, const tp_tensor *x)
{
    (void)T;
    (void)self;
    (void)nx;
    return x[0];
}

/* A buffer has no gradient to copy the result's to; the other input's is 0. */
Test(tape_checkpoint, checkpoint_returns_an_input_without_gradient)
{
    tape_world s = tape_begin();
    const tp_init ones = { TP_INIT_CONST, 1.0, 0.0 };
    const tp_tensor fixed[] = { tp_param(s.P, "fixed", TP_SHAPE(4), ones, TP_BUFFER),
                                tp_full(s.T, device_real(), TP_SHAPE(4), 1.0) };
    for (int i = 0; i < 2; i++) {
        const tp_tensor x[] = { fixed[i], tape_input(s.T) };
        tp_backward(s.T, tp_sum(s.T, tp_checkpoint_n(s.T, first_of, NULL, 2, x), TP_ALL));
        cr_expect(tp_ok(s.T), "%d: %s", i, tp_why(s.T));
        cr_expect(!tp_given(tp_grad(s.T, fixed[i])), "%d", i);
        tp_clear(s.T);
    }
    tape_end(&s);
}

/* Eight layers in one scope, so that only the tensors saved for backward stay alive. */
static tp_tensor deep(tp_tape *T, const tape_world *s, bool checkpointed)
{
    tp_enter(T, "deep");
    tp_tensor y = tp_full(T, device_real(), TP_SHAPE(1024, 4), 0.5);
    for (int i = 0; i < 8; i++)
        y = checkpointed ? tp_checkpoint(T, tape_noisy, &s->w, y) : tape_noisy(T, &s->w, y);
    return tp_leave(T, tp_sum(T, y, TP_ALL));
}

Test(tape_checkpoint, memory_after_backward_and_with_checkpoints)
{
    tape_world s = tape_begin();
    tp_device_reset_peak(s.D);
    tp_tensor loss = deep(s.T, &s, false);
    const size_t stored = tp_device_stats(s.D).live_bytes;
    tp_backward(s.T, loss);
    cr_expect(tp_ok(s.T), "%s", tp_why(s.T));
    const size_t after = tp_device_stats(s.D).live_bytes;
    cr_expect(after < stored / 4, "backward releases: %zu of %zu left", after, stored);
    tp_grad_clear(s.P);
    tp_reset(s.T);
    loss = deep(s.T, &s, true);
    const size_t lean = tp_device_stats(s.D).live_bytes;
    cr_expect(lean < 3 * stored / 4, "checkpoints store less: %zu against %zu", lean, stored);
    tp_backward(s.T, loss);
    cr_expect(tp_ok(s.T), "%s", tp_why(s.T));
    tape_end(&s);
}
