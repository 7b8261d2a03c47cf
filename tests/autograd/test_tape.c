/* test_tape.c - scopes, stale handles, carry, release, hooks, observers. tp_checkpoint:
 * test_tape_checkpoint.c. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tapegrad/observe.h>
#include <tapegrad/tapegrad.h>

#include "support/device.h"
#include "support/tape.h"
#include "support/values.h"

Test(tape, gradients_reach_inputs_kept_and_parameters)
{
    tape_world s = tape_begin();
    const tp_tensor x = tape_input(s.T);
    const tp_tensor y = tp_keep(s.T, tape_layer(s.T, &s.w, x));
    tp_backward(s.T, tp_sum(s.T, y, TP_ALL));
    double gy[8], gx[8], gw[16];
    values_read(s.T, tp_grad(s.T, y), gy);
    values_read(s.T, tp_grad(s.T, x), gx);
    values_read(s.T, tp_grad(s.T, s.w), gw);
    for (int i = 0; i < 8; i++) cr_expect_eq(gy[i], 1.0);
    double w[16];
    cr_expect(tp_param_get(s.P, s.w, TP_F64, w, sizeof w));
    double xv[8];
    values_read(s.T, x, xv);
    double dx = 0.0;
    for (int j = 0; j < 4; j++) {
        double zj = 0.0;
        for (int k = 0; k < 4; k++) zj += xv[k] * w[4 * k + j];
        dx += (1.0 - tanh(zj) * tanh(zj)) * w[j];
    }
    cr_expect_float_eq(gx[0], dx, device_limit(1e-12, 1e-6), "%s", tp_why(s.T));
    tape_end(&s);
}

Test(tape, scopes_release_all_but_results_and_kept)
{
    tape_world s = tape_begin();
    tp_tensor kept, inner;
    tp_record(s.T, false);
    const tp_tensor x = tape_input(s.T);
    const size_t before = tp_device_stats(s.D).live_bytes;
    tp_enter(s.T, "outer");
    inner = tp_scale(s.T, x, 2.0);
    kept = tp_keep(s.T, tp_scale(s.T, x, 3.0));
    const tp_tensor y = tp_leave(s.T, tp_add(s.T, inner, kept));
    cr_expect_eq(tp_device_stats(s.D).live_bytes - before, 2 * 512, "y and kept are alive");
    cr_expect_eq(tp_numel(inner), 1, "a stale handle has numel 1");
    tp_add(s.T, y, kept);
    cr_expect(tp_ok(s.T), "%s", tp_why(s.T));
    tp_add(s.T, y, inner);
    cr_expect_eq(tp_code_of(s.T), TP_E_STATE);
    cr_expect(strstr(tp_why(s.T), "scope 'outer'"), "%s", tp_why(s.T));
    tp_clear(s.T);
    tp_reset(s.T);
    tp_neg(s.T, y);
    cr_expect(strstr(tp_why(s.T), "earlier tp_reset"), "%s", tp_why(s.T));
    tape_end(&s);
}

Test(tape, carry_survives_reset_and_old_content_one_more)
{
    tape_world s = tape_begin();
    tp_tensor slot = TP_NONE;
    tp_carry(s.T, &slot, tape_input(s.T));
    for (int i = 0; i < 5; i++) {
        tp_reset(s.T);
        const tp_tensor old = slot;
        tp_carry(s.T, &slot, tp_scale(s.T, slot, 2.0));
        tp_add(s.T, old, slot); /* the previous contents are still valid */
        cr_expect(tp_ok(s.T), "%s", tp_why(s.T));
    }
    double v[8];
    values_read(s.T, slot, v);
    cr_expect_float_eq(v[0], -0.75 * 32.0, 1e-12);
    const tp_tensor before = slot;
    tp_raise(s.T, TP_E_VALUE, "planted");
    tp_carry(s.T, &slot, TP_NONE);
    cr_expect(slot.node == before.node, "a failed tape leaves the slot");
    tp_clear(s.T);
    tp_carry(s.T, &slot, TP_NONE);
    cr_expect(!tp_given(slot));
    tape_end(&s);
}

Test(tape, write_rows_changes_a_carried_tensor_in_place)
{
    tape_world s = tape_begin();
    tp_tensor slot = TP_NONE;
    tp_carry(s.T, &slot, tape_input(s.T));
    const double row[4] = { 9, 8, 7, 6 };
    tp_write_rows(s.T, slot, 1, values_constant(s.T, device_real(), TP_SHAPE(1, 4), row));
    cr_expect_eq(tp_code_of(s.T), TP_E_STATE, "refused while recording");
    tp_clear(s.T);
    tp_record(s.T, false);
    tp_write_rows(s.T, slot, 1, values_constant(s.T, device_real(), TP_SHAPE(1, 4), row));
    double v[8];
    values_read(s.T, slot, v);
    cr_expect_eq(v[0], -0.75);
    cr_expect_arr_eq(v + 4, row, sizeof row);
    tp_write_rows(s.T, slot, 2, values_constant(s.T, device_real(), TP_SHAPE(1, 4), row));
    cr_expect_eq(tp_code_of(s.T), TP_E_SHAPE, "past the end");
    tape_end(&s);
}

Test(tape, gradients_accumulate_over_backwards)
{
    tape_world s = tape_begin();
    double once[16], twice[16];
    tp_backward(s.T, tp_sum(s.T, tape_layer(s.T, &s.w, tape_input(s.T)), TP_ALL));
    cr_expect(tp_param_get_grad(s.P, s.w, TP_F64, once, sizeof once));
    tp_reset(s.T);
    tp_backward(s.T, tp_sum(s.T, tape_layer(s.T, &s.w, tape_input(s.T)), TP_ALL));
    cr_expect(tp_param_get_grad(s.P, s.w, TP_F64, twice, sizeof twice));
    for (int i = 0; i < 16; i++)
        cr_expect_float_eq(twice[i], 2.0 * once[i], device_limit(1e-14, 1e-6));
    tape_end(&s);
}

Test(tape, one_tensor_used_twice_by_one_op)
{
    tape_world s = tape_begin();
    const tp_tensor x = tape_input(s.T);
    tp_backward(s.T, tp_sum(s.T, tp_mul(s.T, x, x), TP_ALL));
    double g[8], v[8];
    values_read(s.T, tp_grad(s.T, x), g);
    values_read(s.T, x, v);
    for (int i = 0; i < 8; i++) cr_expect_float_eq(g[i], 2.0 * v[i], 1e-14);
    tape_end(&s);
}

/* A sum passes its gradient to both operands. Further contributions to one operand must not reach
 * the other. */
Test(tape, gradients_handed_on_stay_apart)
{
    tape_world s = tape_begin();
    const tp_tensor a = tape_input(s.T), b = tape_input(s.T);
    const tp_tensor c = tp_keep(s.T, tp_add(s.T, a, b));
    const tp_tensor d = tp_keep(s.T, tp_sub(s.T, c, tp_square(s.T, a)));
    const tp_tensor e = tp_keep(s.T, tp_dropout_add(s.T, c, TP_NONE, d, 0.0));
    tp_backward(s.T, tp_sum(s.T, tp_mul(s.T, tp_add(s.T, e, e), b), TP_ALL));
    const struct {
        const char *name;
        tp_tensor x;
        double of_b; /* b's gradient divided by b */
    } cases[] = { { "e", e, 2.0 }, { "d", d, 2.0 }, { "c", c, 4.0 } };
    double v[8], g[8];
    values_read(s.T, b, v);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        values_read(s.T, tp_grad(s.T, cases[k].x), g);
        for (int i = 0; i < 8; i++)
            cr_expect_float_eq(g[i], cases[k].of_b * v[i], 1e-14, "%s: %s", cases[k].name,
                               tp_why(s.T));
    }
    double ga[8], gb[8];
    values_read(s.T, tp_grad(s.T, a), ga);
    values_read(s.T, tp_grad(s.T, b), gb);
    for (int i = 0; i < 8; i++) {
        const double sum = 2.0 * (4.0 * v[i] - v[i] * v[i]); /* e + e */
        cr_expect_float_eq(ga[i], 4.0 * v[i] - 4.0 * v[i] * v[i], 1e-14, "a: %g", ga[i]);
        cr_expect_float_eq(gb[i], 4.0 * v[i] + sum, 1e-14, "b: %g", gb[i]);
    }
    tape_end(&s);
}

Test(tape, reshape_shares_and_returns_gradients)
{
    tape_world s = tape_begin();
    const tp_tensor x = tape_input(s.T), y = tp_keep(s.T, tp_reshape(s.T, x, TP_SHAPE(4, -1)));
    cr_expect_eq(tp_dim(y, 1), 2);
    const tp_tensor z = tp_add(s.T, tp_square(s.T, y), y);
    tp_backward(s.T, tp_add(s.T, tp_sum(s.T, z, TP_ALL), tp_sum(s.T, x, TP_ALL)));
    double gx[8], gy[8], v[8];
    values_read(s.T, tp_grad(s.T, x), gx);
    values_read(s.T, tp_grad(s.T, y), gy);
    values_read(s.T, x, v);
    for (int i = 0; i < 8; i++) {
        cr_expect_float_eq(gy[i], 2.0 * v[i] + 1.0, 1e-14);
        cr_expect_float_eq(gx[i], 2.0 * v[i] + 2.0, 1e-14, "the kept gradient is not shared");
    }
    tape_end(&s);
}

/* One tape may hold several graphs: a loss is differentiated only through its own. */
Test(tape, graphs_are_differentiated_apart)
{
    tape_world s = tape_begin();
    const tp_tensor x = tape_input(s.T), kept = tp_keep(s.T, tp_scale(s.T, x, 2.0));
    const tp_tensor first = tp_sum(s.T, kept, TP_ALL);
    tp_backward(s.T, first);
    const tp_tensor z = tape_input(s.T);
    tp_backward(s.T, tp_sum(s.T, tp_scale(s.T, z, 3.0), TP_ALL));
    cr_expect(tp_ok(s.T), "the kept tensor is of another graph: %s", tp_why(s.T));
    double g[8];
    values_read(s.T, tp_grad(s.T, x), g);
    cr_expect_eq(g[0], 2.0);
    values_read(s.T, tp_grad(s.T, kept), g);
    cr_expect_eq(g[0], 1.0);
    values_read(s.T, tp_grad(s.T, z), g);
    cr_expect_eq(g[0], 3.0);

    tp_backward(s.T, tp_sum(s.T, tp_square(s.T, kept), TP_ALL));
    cr_expect_eq(tp_code_of(s.T), TP_E_STATE, "its record is used up: %s", tp_why(s.T));
    tp_clear(s.T);
    const tp_tensor w = tape_input(s.T);
    tp_backward(s.T, tp_sum(s.T, tp_scale(s.T, w, 5.0), TP_ALL));
    cr_expect(tp_ok(s.T), "nothing of the failed walk is left: %s", tp_why(s.T));
    values_read(s.T, tp_grad(s.T, w), g);
    cr_expect_eq(g[0], 5.0);
    tp_grad(s.T, x);
    cr_expect_eq(tp_code_of(s.T), TP_E_STATE, "the failed walk dropped the gradient of x");
    tp_clear(s.T);
    tape_end(&s);
}

Test(tape, misuse_is_reported)
{
    tape_world s = tape_begin();
    tp_tensor loss = tp_sum(s.T, tape_layer(s.T, &s.w, tape_input(s.T)), TP_ALL);
    tp_backward(s.T, loss);
    tp_backward(s.T, loss);
    cr_expect_eq(tp_code_of(s.T), TP_E_STATE, "second backward: %s", tp_why(s.T));
    tp_clear(s.T);
    tp_reset(s.T);
    tp_backward(s.T, tape_input(s.T));
    cr_expect_eq(tp_code_of(s.T), TP_E_SHAPE, "loss of 8 elements");
    tp_clear(s.T);
    tp_record(s.T, false);
    tp_backward(s.T, tp_sum(s.T, tape_layer(s.T, &s.w, tape_input(s.T)), TP_ALL));
    cr_expect_eq(tp_code_of(s.T), TP_E_NOGRAD, "recording was off");
    tp_record(s.T, true);
    tp_clear(s.T);
    tp_grad(s.T, tp_tanh(s.T, tape_input(s.T)));
    cr_expect_eq(tp_code_of(s.T), TP_E_STATE, "no gradient yet");
    tp_clear(s.T);
    tp_tape *other = tp_tape_new(s.D, NULL);
    tp_neg(other, tape_input(s.T));
    cr_expect_eq(tp_code_of(other), TP_E_STATE, "tensor of another tape");
    tp_tape_free(other);
    tp_leave(s.T, TP_NONE);
    cr_expect_eq(tp_code_of(s.T), TP_E_STATE, "no open scope");
    tp_clear(s.T);
    loss = tp_sum(s.T, tape_layer(s.T, &s.w, tape_input(s.T)), TP_ALL);
    double w[16] = { 0 };
    cr_expect(tp_param_set(s.P, s.w, TP_F64, w, sizeof w));
    tp_backward(s.T, loss);
    cr_expect(strstr(tp_why(s.T), "have changed since"), "%s", tp_why(s.T));
    tape_end(&s);
}

/* A buffer that changes between forward and backward affects only the ops that read it. */
Test(tape, buffers_that_change)
{
    for (int read = 0; read < 2; read++) {
        tp_device *D = device_open(NULL);
        tp_params *P = tp_params_new(D, NULL);
        const tp_tensor w = tp_param(P, "w", TP_SHAPE(2), (tp_init){ TP_INIT_CONST, 1.0, 0 }, 0);
        const tp_tensor state = tp_buffer(P, "state", TP_F32, TP_SHAPE(2), NULL);
        const float one[2] = { 1, 1 };
        tp_tape *T = tp_tape_new(D, NULL);
        const tp_tensor y = tp_sum(T, tp_mul(T, w, read ? state : tp_square(T, w)), TP_ALL);
        cr_expect(tp_param_set(P, state, TP_F32, one, sizeof one), "%s", tp_params_why(P));
        tp_backward(T, y);
        if (read)
            cr_expect(strstr(tp_why(T), "have changed since"), "%s", tp_why(T));
        else
            cr_expect(tp_ok(T), "%s", tp_why(T));
        tp_tape_free(T);
        tp_params_free(P);
        tp_device_close(D);
    }
}

/* Many parameter sets can take part in a backward and step. */
Test(tape, as_many_parameter_sets_as_a_step_reads)
{
    enum { SETS = 40 };
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    tp_params *P[SETS];
    tp_tensor w[SETS], sum = TP_NONE;
    float now = 0.0f;
    for (int i = 0; i < SETS; i++) {
        P[i] = tp_params_new(D, NULL);
        w[i] = tp_param(P[i], "w", TP_SHAPE(1), (tp_init){ TP_INIT_CONST, 1.0, 0.0 }, 0);
        sum = i ? tp_add(T, sum, w[i]) : w[i];
    }
    tp_backward(T, tp_sum(T, sum, TP_ALL));
    for (int i = 0; i < SETS; i++) {
        tp_optim *O = tp_sgd_new(P[i], NULL);
        cr_expect(tp_step(O, 0.25), "set %d: %s", i, tp_optim_why(O));
        cr_expect(tp_param_get(P[i], w[i], TP_F32, &now, sizeof now) && now == 0.75f, "set %d", i);
        tp_optim_free(O);
        tp_params_free(P[i]);
    }
    tp_tape_free(T);
    tp_device_close(D);
}

static void count_hook(void *env, tp_params *P, tp_tensor p, const char *name, int64_t backwards)
{
    int *calls = env;
    double g[16];
    cr_expect_str_eq(name, "w");
    cr_expect_eq(backwards, 1);
    cr_expect(tp_param_get_grad(P, p, TP_F64, g, sizeof g));
    calls[0]++;
    calls[1] = g[0] != 0.0;
}

static tp_tensor square_of_handle(tp_tape *T, const void *self, tp_tensor x)
{
    return tp_mul(T, x, *(const tp_tensor *)self);
}

/* A freed parameter's handle differs from that of a parameter that reuses its memory. */
Test(tape, parameters_freed_too_early)
{
    enum { USE, REUSE, BACKWARD, CHECKPOINT, VIEW, GRADIENT, CASES };
    tp_device *D = device_open(&(tp_device_opts){ .exact = true });
    for (int k = 0; k < CASES; k++) {
        tp_params *P = tp_params_new(D, NULL);
        const tp_tensor w = tp_param(P, "w", TP_SHAPE(3), (tp_init){ TP_INIT_CONST, 2.0, 0 }, 0);
        tp_tape *T = tp_tape_new(D, NULL);
        tp_tensor y = tp_square(T, w), g = TP_NONE;
        if (k == CHECKPOINT) y = tp_checkpoint(T, square_of_handle, &w, tp_scale(T, w, 1.0));
        if (k == VIEW) g = tp_reshape(T, tp_detach(T, w), TP_SHAPE(3, 1));
        if (k == GRADIENT) {
            tp_backward(T, tp_sum(T, y, TP_ALL));
            g = tp_grad(T, w);
        }
        cr_expect(tp_ok(T), "%d: %s", k, tp_why(T));
        tp_params_free(P);
        if (k == REUSE) {
            P = tp_params_new(D, NULL);
            tp_param(P, "other", TP_SHAPE(5), (tp_init){ TP_INIT_ZERO, 0, 0 }, 0);
        }
        float v[3] = { 0 };
        if (k == VIEW || k == GRADIENT) {
            tp_read(T, g, v, sizeof v);
            cr_expect_eq(v[2], k == VIEW ? 2.0f : 4.0f, "%d: %s", k, tp_why(T));
        } else if (k == BACKWARD || k == CHECKPOINT) {
            tp_backward(T, tp_sum(T, y, TP_ALL));
            cr_expect(strstr(tp_why(T), "the parameters have changed since"), "%s", tp_why(T));
        } else {
            cr_expect_eq(tp_numel(w), 1);
            tp_square(T, w);
            cr_expect(strstr(tp_why(T), "square: input 0: this tensor belonged to parameters that "
                                        "tp_params_free has freed"),
                      "%d: %s", k, tp_why(T));
        }
        if (k == REUSE) tp_params_free(P);
        tp_tape_free(T);
    }
    tp_device_close(D);
}

Test(tape, hook_fires_once_after_the_last_use)
{
    for (int checkpointed = 0; checkpointed < 2; checkpointed++) {
        tape_world s = tape_begin();
        int calls[2] = { 0, 0 };
        tp_on_grad(s.P, count_hook, calls);
        tp_tensor y = tape_input(s.T);
        for (int i = 0; i < 3; i++)
            y = checkpointed ? tp_checkpoint(s.T, tape_layer, &s.w, y) : tape_layer(s.T, &s.w, y);
        tp_backward(s.T, tp_sum(s.T, y, TP_ALL));
        cr_expect(tp_ok(s.T), "%s", tp_why(s.T));
        cr_expect_eq(calls[0], 1, "called %d times", calls[0]);
        cr_expect_eq(calls[1], 1);
        tape_end(&s);
    }
}

/* Sizes around the 16 bytes of one write. */
Test(tape, filled_tensors)
{
    static const tp_dtype types[] = { TP_F32, TP_F64, TP_BF16, TP_I32, TP_I64, TP_U8 };
    static const int64_t sizes[] = { 0, 1, 3, 4, 5, 15, 16, 17, 5000 };
    static const double values[] = { 0.0, -0.0, 3.0, 200.0 };
    static double got[5000];
    tape_world s = tape_begin();
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
                int64_t wrong = 0;
                values_read(s.T, tp_full(s.T, types[t], TP_SHAPE(sizes[i]), values[v]), got);
                for (int64_t k = 0; k < sizes[i]; k++)
                    wrong += got[k] != values[v] ||
                             (tp_is_float(types[t]) && signbit(got[k]) != signbit(values[v]));
                cr_expect_eq(wrong, 0, "%s, %d elements, %g: %s", tp_dtype_name(types[t]),
                             (int)sizes[i], values[v], tp_why(s.T));
            }
    tape_end(&s);
}

typedef struct notes {
    int n, doubled;
    char text[256];
    double sum; /* over all outputs of tanh */
} notes;

static void note(void *env, tp_tape *T, const tp_seen *seen)
{
    notes *k = env;
    const size_t used = strlen(k->text);
    k->n++;
    snprintf(k->text + used, sizeof k->text - used, "%s/%s(%d)->%d ", seen->path, seen->op->name,
             seen->nx, seen->ny);
    if (strcmp(seen->op->name, "tanh") != 0) return;
    double y[8];
    values_read(T, seen->y[0], y);
    for (int i = 0; i < 8; i++) k->sum += y[i];
    const tp_tensor twice = tp_scale(T, seen->y[0], 2.0); /* ops of the observer are not observed */
    k->doubled += tp_given(twice);
}

Test(tape, an_observer_sees_every_op_once)
{
    tape_world s = tape_begin();
    notes k = { 0 };
    tp_observe(s.T, note, &k);
    const tp_tensor y = tp_checkpoint(s.T, tape_layer, &s.w, tape_input(s.T));
    const tp_tensor sum = tp_sum(s.T, y, TP_ALL);
    cr_expect_str_eq(k.text, "layer/matmul(2)->1 layer/tanh(1)->1 /sum(1)->1 ");
    cr_expect(k.doubled == 1 && fabs(k.sum - tp_item(s.T, sum)) < 1e-5, "%g", k.sum);
    tp_backward(s.T, sum);
    cr_expect_eq(k.n, 3, "what backward runs again is not shown");
    tp_observe(s.T, NULL, NULL);
    tp_neg(s.T, sum);
    cr_expect(k.n == 3 && tp_ok(s.T), "%s", tp_why(s.T));
    tape_end(&s);
}

enum { PARTS = 10001 }; /* the tape widens a few thousand elements at a time */

/* square(x) - y and its gradient for x, from bf16 inputs; wide: computed in f32, then rounded. */
static void parts_of(tp_tape *T, bool wide, uint16_t *value, uint16_t *gradient)
{
    static float x[PARTS], y[PARTS];
    for (int i = 0; i < PARTS; i++) {
        x[i] = (float)(i % 251 - 125) / 64.0f; /* exact in bf16, as are y and the gradient */
        y[i] = (float)(i % 127) / 32.0f;
    }
    const tp_dtype dt = wide ? TP_F32 : TP_BF16;
    const tp_tensor a = tp_keep(T, tp_cast(T, tp_input(T, TP_F32, TP_SHAPE(PARTS), x), dt));
    const tp_tensor b = tp_cast(T, tp_from(T, TP_F32, TP_SHAPE(PARTS), y), dt);
    const tp_tensor square = tp_square(T, a);
    const tp_tensor rounded = wide ? tp_cast(T, tp_cast(T, square, TP_BF16), TP_F32) : square;
    const tp_tensor d = tp_sub(T, rounded, b);
    tp_backward(T, tp_sum(T, d, TP_ALL));
    tp_read(T, tp_cast(T, d, TP_BF16), value, PARTS * sizeof *value);
    tp_read(T, tp_cast(T, tp_grad(T, a), TP_BF16), gradient, PARTS * sizeof *gradient);
}

Test(tape, elementwise_ops_in_bf16_equal_those_in_f32)
{
    static uint16_t value[2][PARTS], gradient[2][PARTS];
    for (int threads = 1; threads <= 3; threads++) {
        tp_device *D = device_open(&(tp_device_opts){ .threads = threads });
        for (int wide = 0; wide < 2; wide++) {
            tp_tape *T = tp_tape_new(D, NULL);
            memset(value[wide], 0xff, sizeof value[wide]);
            parts_of(T, wide, value[wide], gradient[wide]);
            cr_expect(tp_ok(T), "%s", tp_why(T));
            tp_tape_free(T);
        }
        cr_expect_arr_eq(value[0], value[1], sizeof value[0], "%d threads", threads);
        cr_expect_arr_eq(gradient[0], gradient[1], sizeof gradient[0], "%d threads", threads);
        tp_device_close(D);
    }
}

Test(tape, bf16_computes_in_f32_and_rounds)
{
    tp_device *D = device_open(&(tp_device_opts){ .threads = 2 });
    tp_params *P = tp_params_new(D, NULL);
    const tp_tensor w = tp_param(P, "w", TP_SHAPE(3, 3), (tp_init){ TP_INIT_CONST, 1.01, 0 }, 0);
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = TP_BF16 });
    const float ones[3] = { 1, 1, 1 };
    const tp_tensor y = tp_matmul(T, tp_input(T, TP_F32, TP_SHAPE(1, 3), ones), w);
    cr_expect_eq(tp_dtype_of(y), TP_BF16, "%s", tp_why(T));
    tp_backward(T, tp_sum(T, y, TP_ALL));
    float g[9];
    cr_expect(tp_param_get_grad(P, w, TP_F32, g, sizeof g), "%s %s", tp_why(T), tp_params_why(P));
    for (int i = 0; i < 9; i++) cr_expect_eq(g[i], 1.0f);
    uint16_t raw[3];
    tp_read(T, y, raw, sizeof raw);
    cr_expect_eq(raw[0], 0x4042, "3 x bf16(1.01) = 3.0234, rounded: %04x", raw[0]);
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
}
