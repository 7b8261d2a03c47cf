/* test_tape_switches.c - constants of a recorded forward pass: gradients, frozen parts, the mode of
 * a part. */
#include <criterion/criterion.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "support/device.h"
#include "support/tape.h"
#include "support/values.h"

/* mse plus a penalty on the input's gradient: without the penalty's own gradient, training
 * fails. */
static void penalty(tape_world *s, int way)
{
    const tp_tensor x = tape_input(s->T), y = tape_layer(s->T, &s->w, x);
    tp_backward(s->T, tp_sum(s->T, y, TP_ALL));
    tp_tensor g = tp_grad(s->T, x);
    if (way == 1) g = tp_detach(s->T, g);
    if (way == 2) tp_record(s->T, false);
    tp_tensor p = tp_mean(s->T, tp_square(s->T, g), TP_ALL);
    if (way == 2) tp_record(s->T, true);
    if (way == 3) p = tp_checkpoint(s->T, tape_layer, &s->w, g);
    const tp_tensor again = tape_layer(s->T, &s->w, tape_input(s->T));
    const tp_tensor loss = tp_mean(s->T, tp_square(s->T, again), TP_ALL);
    tp_backward(s->T, tp_add(s->T, loss, tp_mean(s->T, p, TP_ALL)));
}

Test(tape_switches, a_loss_made_of_a_gradient)
{
    tape_world s = tape_begin();
    for (int way = 0; way < 4; way++) {
        penalty(&s, way);
        if (way == 1 || way == 2) { /* deliberately constant */
            cr_expect(tp_ok(s.T), "way %d: %s", way, tp_why(s.T));
        } else {
            cr_expect_eq(tp_code_of(s.T), TP_E_NOGRAD);
            cr_expect(
                strstr(tp_why(s.T), "tp_backward: the loss is made of the gradient that tp_grad "
                                    "returned at ") &&
                    strstr(tp_why(s.T), "test_tape_switches.c") && strstr(tp_why(s.T), "tp_detach"),
                "way %d: %s", way, tp_why(s.T));
        }
        tp_clear(s.T);
        tp_reset(s.T);
        tp_grad_clear(s.P);
    }
    tape_end(&s);
}

/* ---- switches around parts of a recorded forward pass ---- */

static double grad_of(tape_world *s)
{
    double g[16];
    return tp_param_get_grad(s->P, s->w, TP_F64, g, sizeof g) ? g[0] : 0.0;
}

/* x w w, with w frozen in the first, the second or both of its uses. */
static double twice(tape_world *s, bool first, bool second, bool checkpoint)
{
    tp_tensor x = tape_input(s->T);
    for (int i = 0; i < 2; i++) {
        tp_freeze(s->P, "w", i ? second : first);
        x = checkpoint ? tp_checkpoint(s->T, tape_layer, &s->w, x) : tape_layer(s->T, &s->w, x);
        tp_freeze(s->P, "w", false);
    }
    tp_backward(s->T, tp_sum(s->T, x, TP_ALL));
    cr_expect(tp_ok(s->T), "%s", tp_why(s->T));
    const double g = grad_of(s);
    tp_reset(s->T);
    tp_grad_clear(s->P);
    return g;
}

/* A frozen use adds nothing, whatever is frozen during backward: the two single uses sum to
 * both. */
Test(tape_switches, freezing_a_part_of_a_forward_pass)
{
    tape_world s = tape_begin();
    double both = 0.0;
    for (int checkpoint = 0; checkpoint < 2; checkpoint++) {
        const double whole = twice(&s, false, false, checkpoint),
                     parts =
                         twice(&s, true, false, checkpoint) + twice(&s, false, true, checkpoint);
        cr_expect_float_eq(parts, whole, device_limit(1e-12, 1e-5), "%g %g", parts, whole);
        cr_expect_eq(twice(&s, true, true, checkpoint), 0.0);
        if (checkpoint) cr_expect_float_eq(whole, both, device_limit(1e-12, 1e-5));
        both = whole;
    }
    tape_end(&s);
}

/* Dropout in one part: an op keeps the mode in which it was applied. */
Test(tape_switches, training_mode_of_a_part_of_a_forward_pass)
{
    enum { MANY = 1000 };
    static double y[2][MANY], g[MANY];
    tape_world s = tape_begin();
    tp_train(s.T, true);
    for (int i = 0; i < MANY; i++) y[0][i] = 1.0;
    const tp_tensor x = values_input(s.T, device_real(), TP_SHAPE(MANY), y[0]);
    tp_train(s.T, false);
    const tp_tensor plain = tp_dropout(s.T, x, 0.5);
    tp_train(s.T, true);
    const tp_tensor dropped = tp_dropout(s.T, plain, 0.5);
    tp_train(s.T, false);
    values_read(s.T, plain, y[0]);
    values_read(s.T, dropped, y[1]);
    tp_backward(s.T, tp_sum(s.T, dropped, TP_ALL));
    values_read(s.T, tp_grad(s.T, x), g);
    for (int i = 0; i < MANY; i++) {
        cr_expect_eq(y[0][i], 1.0);
        cr_expect_eq(g[i], y[1][i], "element %d", i);
    }
    tape_end(&s);
}

Test(tape_switches, leaving_without_entering_names_its_place)
{
    tape_world s = tape_begin();
    tape_input(s.T);
#line 41 "leaves.c"
    tp_leave(s.T, TP_NONE);
#line 125 "tests/autograd/test_tape_switches.c"
    cr_expect(
        strstr(tp_why(s.T), "tp_leave: no scope is open; tp_enter begins one\n  at leaves.c:41"),
        "%s", tp_why(s.T));
    tp_clear(s.T);
    tape_end(&s);
}
