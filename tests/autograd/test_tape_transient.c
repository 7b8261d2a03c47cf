/* test_tape_transient.c - tp_transient: results that backward recomputes; refusals. */
#include <criterion/criterion.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "support/device.h"
#include "support/tape.h"
#include "support/values.h"

/* Three layers whose weights, w times rows of numbers and transposed, are transient or not. */
static tp_tensor scaled_layers(tp_tape *T, const tape_world *s, tp_tensor x, bool transient)
{
    const double rows[4] = { 0.5, -1.5, 2.0, 0.25 };
    for (int i = 0; i < 3; i++) {
        tp_enter(T, "layer");
        tp_tensor w = tp_mul(T, s->w, values_constant(T, TP_F32, TP_SHAPE(4, 1), rows));
        if (transient) w = tp_transient(T, w);
        w = tp_reshape(T, tp_permute(T, w, TP_SHAPE(1, 0)), TP_SHAPE(4, 4));
        if (transient && i > 0) w = tp_transient(T, w);
        x = tp_leave(T, tp_matmul(T, x, w));
    }
    return tp_sum(T, tp_square(T, x), TP_ALL);
}

Test(tape_transient, transient_gives_the_same_bits)
{
    const tp_dtype dtypes[] = { TP_F32, TP_BF16 };
    for (int d = 0; d < 2; d++) {
        double gw[2][16], gx[2][8];
        for (int k = 0; k < 2; k++) {
            tp_device *D = device_open(&(tp_device_opts){ .threads = 2 });
            tp_params *P = tp_params_new(D, &(tp_params_opts){ .dtype = TP_F32 });
            tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = dtypes[d] });
            tape_world s = { .D = D, .P = P, .T = T };
            s.w = tp_param(P, "w", TP_SHAPE(4, 4), (tp_init){ TP_INIT_NORMAL, 0.5, 0.0 }, 0);
            const double x[8] = { 1, -2, 0.5, 3, -1, 0.25, 2, -0.75 };
            const tp_tensor in = values_input(T, TP_F32, TP_SHAPE(2, 4), x);
            tp_backward(T, scaled_layers(T, &s, in, k == 1));
            cr_assert(tp_ok(T), "%s", tp_why(T));
            cr_expect(tp_param_get_grad(P, s.w, TP_F64, gw[k], sizeof gw[k]));
            values_read(T, tp_grad(T, in), gx[k]);
            tp_tape_free(T);
            tp_params_free(P);
            tp_device_close(D);
        }
        cr_expect_arr_eq(gw[0], gw[1], sizeof gw[0], "parameter gradients, dtype %d", d);
        cr_expect_arr_eq(gx[0], gx[1], sizeof gx[0], "input gradients, dtype %d", d);
    }
}

/* Eight layers in scopes; their scaled weights take as much memory as all else. */
static size_t stored_by_scaled(bool transient)
{
    tape_world s = tape_begin();
    const tp_tensor rows = tp_full(s.T, device_real(), TP_SHAPE(512, 1), 0.5);
    const tp_tensor big = tp_full(s.T, device_real(), TP_SHAPE(512, 4), 2.0);
    tp_tensor x = tape_input(s.T);
    const tp_tensor weight = tp_matmul(s.T, big, s.w); /* [512,4], needs a gradient */
    for (int i = 0; i < 8; i++) {
        tp_enter(s.T, "layer");
        tp_tensor w = tp_mul(s.T, weight, rows);
        if (transient) w = tp_transient(s.T, w);
        x = tp_leave(s.T, tp_matmul(s.T, tp_matmul(s.T, x, tp_permute(s.T, w, TP_SHAPE(1, 0))), w));
    }
    cr_expect(tp_ok(s.T), "%s", tp_why(s.T));
    const size_t live = tp_device_stats(s.D).live_bytes;
    tape_end(&s);
    return live;
}

Test(tape_transient, transient_results_take_no_memory)
{
    const size_t kept = stored_by_scaled(false), transient = stored_by_scaled(true);
    const size_t weight = 512 * 4 * tp_dtype_size(device_real());
    cr_expect(transient + 8 * weight <= kept, "%zu bytes, before %zu", transient, kept);
}

Test(tape_transient, transient_views_begin_where_they_did)
{
    for (int whole = 0; whole < 2; whole++) {
        tape_world s = tape_begin();
        const tp_tensor x = tape_input(s.T);
        tp_enter(s.T, "row");
        tp_tensor row = tp_slice(s.T, x, 0, 1, 1); /* the second row, in place */
        if (whole) row = tp_reshape(s.T, row, TP_SHAPE(4, 1));
        row = tp_reshape(s.T, tp_transient(s.T, row), TP_SHAPE(4, 1));
        tp_backward(s.T, tp_leave(s.T, tp_sum(s.T, tp_mul(s.T, s.w, row), TP_ALL)));
        double numbers[8], g[16];
        values_read(s.T, x, numbers);
        cr_assert(tp_param_get_grad(s.P, s.w, TP_F64, g, sizeof g), "%s", tp_why(s.T));
        for (int i = 0; i < 16; i++) cr_expect_eq(g[i], numbers[4 + i / 4], "element %d", i);
        tape_end(&s);
    }
}

/* Runs backward of sum(x), then of a loss with target x, which gets no gradient; reads w's
 * gradient. */
static void second_loss(tape_world *s, bool transient, bool live, double g[16])
{
    tp_enter(s->T, "scope");
    tp_tensor x = tp_scale(s->T, tape_input(s->T), 2.0);
    if (transient) x = tp_transient(s->T, x);
    if (live) tp_keep(s->T, x);
    const tp_tensor y = tp_matmul(s->T, tape_input(s->T), s->w);
    const tp_tensor loss[2] = { tp_sum(s->T, x, TP_ALL), tp_mse(s->T, y, x, TP_SUM) };
    tp_leave_n(s->T, 2, loss);
    tp_backward(s->T, loss[0]);
    cr_assert(tp_ok(s->T), "%s", tp_why(s->T));
    tp_backward(s->T, loss[1]);
    if (tp_ok(s->T)) cr_expect(tp_param_get_grad(s->P, s->w, TP_F64, g, 16 * sizeof *g));
}

Test(tape_transient, transient_result_after_its_op_was_differentiated)
{
    double g[2][16] = { { 0 } };
    for (int k = 0; k < 2; k++) {
        tape_world s = tape_begin();
        second_loss(&s, k == 1, k == 1, g[k]);
        cr_expect(tp_ok(s.T), "%s", tp_why(s.T));
        tape_end(&s);
    }
    cr_expect_arr_eq(g[0], g[1], sizeof g[0]);
    tape_world s = tape_begin();
    second_loss(&s, true, false, g[0]);
    cr_expect_eq(tp_code_of(s.T), TP_E_STATE, "%s", tp_why(s.T));
    cr_expect(strstr(tp_why(s.T), "scale cannot be computed again"), "%s", tp_why(s.T));
    tape_end(&s);
}

Test(tape_transient, transient_refuses_what_cannot_run_again)
{
    tape_world s = tape_begin();
    const tp_tensor x = tape_input(s.T), y = tp_matmul(s.T, x, s.w);
    tp_transient(s.T, s.w);
    tp_transient(s.T, x);
    cr_expect(tp_ok(s.T), "parameters and inputs stay: %s", tp_why(s.T));
    tp_transient(s.T, y);
    cr_expect_eq(tp_code_of(s.T), TP_E_VALUE, "%s", tp_why(s.T));
    cr_expect(strstr(tp_why(s.T), "matmul cannot be computed again"), "%s", tp_why(s.T));
    tp_clear(s.T);
    tp_enter(s.T, "scope");
    const tp_tensor sum = tp_leave(s.T, tp_add(s.T, tp_scale(s.T, y, 2.0), x));
    tp_transient(s.T, sum);
    cr_expect_eq(tp_code_of(s.T), TP_E_STATE, "%s", tp_why(s.T));
    tape_end(&s);
}

/* ---- results that are read more than once ---- */

enum { LINKS = 12 };

/* The sum after y <- y y, or with gates y <- y sigmoid(y). */
static tp_tensor chain(tp_tape *T, tp_tensor y, bool gates, bool transient)
{
    tp_enter(T, "chain");
    for (int i = 0; i < LINKS; i++) {
        tp_tensor gate = gates ? tp_sigmoid(T, y) : y;
        if (transient && gates) gate = tp_transient(T, gate);
        y = tp_mul(T, gate, y);
        if (transient) y = tp_transient(T, y);
    }
    return tp_leave(T, tp_sum(T, y, TP_ALL));
}

/* The gradient of the chain's input; returns backward's kernels. */
static int64_t run_chain(tp_device *D, bool gates, bool transient, double g[8])
{
    const double x[8] = { 0.5, -0.9, 0.25, 1.0, -0.5, 0.75, 0.99, -1.0 };
    tp_tape *T = tp_tape_new(D, NULL);
    const tp_tensor in = values_input(T, device_real(), TP_SHAPE(2, 4), x);
    const tp_tensor loss = chain(T, in, gates, transient);
    const uint64_t before = tp_device_stats(D).launches;
    tp_backward(T, loss);
    const uint64_t after = tp_device_stats(D).launches;
    if (tp_ok(T)) values_read(T, tp_grad(T, in), g);
    const bool ok = tp_ok(T);
    cr_expect(ok || tp_code_of(T) == TP_E_MEMORY, "%s", tp_why(T));
    tp_tape_free(T);
    return ok ? (int64_t)(after - before) : -1;
}

/* Backward of link k recomputes the k links before it once each, not 2^k times. A gate saves its
 * own result. */
Test(tape_transient, transient_results_are_computed_once_for_a_record)
{
    static const int64_t again[2] = { LINKS * (LINKS - 1) / 2, 2 * LINKS * LINKS };
    for (int gates = 0; gates < 2; gates++) {
        double g[2][8];
        tp_device *D = device_open(NULL);
        const int64_t kept = run_chain(D, gates, false, g[0]),
                      made = run_chain(D, gates, true, g[1]);
        if (gates)
            cr_expect(made - kept <= again[1], "%lld kernels more", (long long)(made - kept));
        else
            cr_expect_eq(made - kept, again[0], "%lld kernels more", (long long)(made - kept));
        cr_expect_arr_eq(g[0], g[1], sizeof g[0], "gates %d", gates);
        tp_device_close(D);
    }
}

/* Ops whose backward reads their result do not mistake the input, kept for a rerun, for it. */
Test(tape_transient, transient_results_that_their_op_saves)
{
    static const double x[8] = { 0.5, 0.9, 0.25, 1.0, 1.5, 0.75, 2.0, 0.125 };
    double g[2][8];
    for (int op = 0; op < 6; op++) {
        for (int k = 0; k < 2; k++) {
            tape_world s = tape_begin();
            const tp_tensor in = values_input(s.T, device_real(), TP_SHAPE(2, 4), x);
            tp_enter(s.T, "op");
            tp_tensor y = op == 0   ? tp_exp(s.T, in)
                          : op == 1 ? tp_sqrt(s.T, in)
                          : op == 2 ? tp_relu(s.T, in)
                          : op == 3 ? tp_sigmoid(s.T, in)
                          : op == 4 ? tp_tanh(s.T, in)
                                    : tp_div(s.T, tp_scale(s.T, in, 2.0), in);
            if (k) y = tp_transient(s.T, y);
            tp_backward(s.T, tp_leave(s.T, tp_sum(s.T, tp_mul(s.T, y, in), TP_ALL)));
            cr_assert(tp_ok(s.T), "%s", tp_why(s.T));
            values_read(s.T, tp_grad(s.T, in), g[k]);
            tape_end(&s);
        }
        cr_expect_arr_eq(g[0], g[1], sizeof g[0], "op %d", op);
    }
}

/* When memory runs out, recomputed results are released, and the next backward recomputes them. */
Test(tape_transient, transient_results_without_memory)
{
    double g[2][8];
    int64_t first = -1;
    size_t n = 1;
    for (; first < 0; n++) {
        tp_device *D = device_open(
            &(tp_device_opts){ .threads = 1, .fail_at = n, .fail_count = 1, .exact = true });
        first = run_chain(D, true, true, g[0]);
        if (first < 0 && tp_device_ok(D)) {
            cr_expect_eq(tp_device_stats(D).live_bytes, 0, "allocation %zu leaks", n);
            cr_expect_geq(run_chain(D, true, true, g[1]), 0, "after allocation %zu", n);
        }
        tp_device_close(D);
    }
    cr_expect_gt(n, 200, "%zu", n);
    cr_expect_arr_eq(g[0], g[1], sizeof g[0]);
}
