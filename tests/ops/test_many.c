/* test_many.c - ops with hundreds of inputs or outputs: values, gradients, recomputation, recorded
 * steps, observers, dry devices, cost of the tape's lists. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/observe.h>
#include <tapegrad/tapegrad.h>

#include "autograd/tape.h"
#include "support/device.h"
#include "support/values.h"

enum { MANY = 500, ROWS = 2, COLUMNS = 3, SIZE = ROWS * COLUMNS };

static double number(int i, int e)
{
    return (double)((i * 37 + e * 11) % 64) / 8.0; /* exact in bf16 */
}

/* MANY inputs of [ROWS, COLUMNS]. */
static void inputs(tp_tape *T, tp_dtype dt, tp_tensor *x)
{
    for (int i = 0; i < MANY; i++) {
        double v[SIZE];
        for (int e = 0; e < SIZE; e++) v[e] = number(i, e);
        x[i] = values_input(T, dt, TP_SHAPE(ROWS, COLUMNS), v);
    }
}

/* Weights for every element of y, exact in bf16; returns the loss. */
static tp_tensor weighted(tp_tape *T, tp_tensor y, double *w)
{
    const int64_t n = tp_numel(y);
    for (int64_t e = 0; e < n; e++) w[e] = (double)(e % 61 - 30) / 16.0;
    const tp_tensor t = values_constant(T, tp_dtype_of(y), tp_shape_of(y), w);
    return tp_sum(T, tp_mul(T, y, t), TP_ALL);
}

/* The element of a stack along `axis` that holds element (r, c) of input i. */
static int64_t place(int axis, int i, int r, int c)
{
    const int at[3] = { axis == 0 ? i : r, axis == 0 ? r : axis == 1 ? i : c, axis == 2 ? i : c };
    const int size[3] = { axis == 0 ? MANY : ROWS,
                          axis == 0   ? ROWS
                          : axis == 1 ? MANY
                                      : COLUMNS,
                          axis == 2 ? MANY : COLUMNS };
    return ((int64_t)at[0] * size[1] + at[1]) * size[2] + at[2];
}

/* Stacks along an axis; concatenation along an axis of [ROWS, COLUMNS] gives the bits of a stack
 * before that axis, reshaped. */
static void check_stack(tp_device *D, tp_dtype dt, int axis, bool concat)
{
    static double y[MANY * SIZE], w[MANY * SIZE];
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = dt });
    tp_tensor x[MANY];
    inputs(T, dt, x);
    const tp_tensor all = concat ? tp_concat_n(T, axis, MANY, x) : tp_stack_n(T, axis, MANY, x);
    const tp_tensor loss = weighted(T, all, w);
    tp_backward(T, loss);
    values_read(T, all, y);
    for (int i = 0; i < MANY; i++) {
        double dx[SIZE];
        values_read(T, tp_grad(T, x[i]), dx);
        for (int e = 0; e < SIZE; e++) {
            const int64_t at = place(axis, i, e / COLUMNS, e % COLUMNS);
            cr_expect(y[at] == number(i, e) && dx[e] == w[at],
                      "%s along %d in %s: element %d of input %d", concat ? "concat" : "stack",
                      axis, tp_dtype_name(dt), e, i);
        }
    }
    cr_expect(tp_ok(T), "%s", tp_why(T));
    tp_tape_free(T);
}

/* Splits x into MANY parts and joins them in reverse. */
static void check_split(tp_device *D, int axis)
{
    static double v[MANY * SIZE], y[MANY * SIZE], w[MANY * SIZE], dx[MANY * SIZE];
    tp_tape *T = tp_tape_new(D, NULL);
    const int64_t n = (int64_t)MANY * SIZE;
    tp_tensor part[MANY], back[MANY];
    for (int64_t e = 0; e < n; e++) v[e] = number((int)(e / 5), (int)(e % 5));
    const tp_tensor x = values_input(
        T, TP_F32, axis == 0 ? TP_SHAPE(MANY, ROWS, COLUMNS) : TP_SHAPE(ROWS, MANY * COLUMNS), v);
    tp_split(T, x, axis, MANY, part);
    for (int i = 0; i < MANY; i++) back[i] = part[MANY - 1 - i];
    const tp_tensor all = tp_concat_n(T, axis, MANY, back);
    tp_backward(T, weighted(T, all, w));
    values_read(T, all, y);
    values_read(T, tp_grad(T, x), dx);
    const int inner = axis == 0 ? SIZE : COLUMNS;
    for (int64_t e = 0; e < n; e++) {
        const int64_t row = e / ((int64_t)MANY * inner), column = e % ((int64_t)MANY * inner);
        const int64_t from = (MANY - 1 - column / inner) * inner + column % inner;
        const int64_t at = row * MANY * inner + from;
        cr_expect(y[e] == v[at] && dx[at] == w[e], "split along %d: element %lld", axis,
                  (long long)e);
    }
    cr_expect(tp_ok(T), "%s", tp_why(T));
    tp_tape_free(T);
}

Test(many, values_and_gradients, .timeout = 300)
{
    tp_device *D = device_open(&(tp_device_opts){ .threads = 2 });
    for (int axis = 0; axis < 3; axis++) {
        check_stack(D, TP_F32, axis, false);
        check_stack(D, TP_BF16, axis, false);
    }
    check_stack(D, TP_F32, 0, true);
    check_stack(D, TP_BF16, 1, true);
    check_split(D, 0);
    check_split(D, 1);
    cr_expect_eq(tp_device_stats(D).live_bytes, 0);
    tp_device_close(D);
}

/* ---- other uses of ops with many inputs ---- */

static tp_tensor sum_of_stack(tp_tape *T, const void *self, int nx, const tp_tensor *x)
{
    (void)self;
    const tp_tensor y = tp_stack_n(T, 0, nx, x);
    return tp_sum(T, tp_square(T, tp_dropout(T, y, 0.25)), TP_ALL);
}

/* Stores the gradients of all inputs in order. */
static void gradients(tp_device *D, bool recompute, bool twice, double *dx)
{
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .train = true, .seed = 5 });
    tp_tensor x[MANY];
    inputs(T, TP_F32, x);
    if (twice) x[MANY - 1] = x[1];
    const tp_tensor loss = recompute ? tp_checkpoint_n(T, sum_of_stack, NULL, MANY, x)
                                     : sum_of_stack(T, NULL, MANY, x);
    tp_backward(T, loss);
    for (int i = 0; i < MANY; i++) values_read(T, tp_grad(T, x[i]), dx + (int64_t)i * SIZE);
    cr_expect(tp_ok(T), "%s", tp_why(T));
    tp_tape_free(T);
}

Test(many, recomputed, .timeout = 120)
{
    static double plain[MANY * SIZE], again[MANY * SIZE];
    tp_device *D = device_open(NULL);
    for (int twice = 0; twice < 2; twice++) {
        gradients(D, false, twice, plain);
        gradients(D, true, twice, again);
        cr_expect(memcmp(plain, again, sizeof plain) == 0, "recomputation changes gradients");
        cr_expect(plain[SIZE * 3 + 1] != 0.0);
    }
    tp_device_close(D);
}

/* One input is used twice: its gradient is the sum of both. */
Test(many, one_input_twice, .timeout = 60)
{
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    tp_tensor x[MANY];
    double w[MANY * SIZE], dx[SIZE];
    inputs(T, TP_F32, x);
    x[20] = x[MANY - 1] = x[3];
    tp_backward(T, weighted(T, tp_stack_n(T, 0, MANY, x), w));
    values_read(T, tp_grad(T, x[3]), dx);
    for (int e = 0; e < SIZE; e++)
        cr_expect_eq(dx[e], w[3 * SIZE + e] + w[20 * SIZE + e] + w[(MANY - 1) * SIZE + e]);
    cr_expect(tp_ok(T), "%s", tp_why(T));
    tp_tape_free(T);
    tp_device_close(D);
}

/* Steps with a stack of parameters, recorded on a GPU or not, give the same bits. */
static void steps(tp_device *D, bool capture, double *out)
{
    enum { STEPS = 6 };
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 3 });
    tp_tensor p[MANY];
    for (int i = 0; i < MANY; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", i);
        p[i] = tp_param(P, name, TP_SHAPE(ROWS, COLUMNS), (tp_init){ TP_INIT_NORMAL, 0.5, 0 }, 0);
    }
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .train = true, .seed = 5 });
    tp_optim *O = tp_sgd_new(P, NULL);
    tp_capture *C = capture ? tp_capture_new(T) : NULL;
    for (int s = 0; s < STEPS; s++) {
        if (!C) tp_reset(T);
        if (!C || tp_capture_begin(C)) {
            tp_backward(T, sum_of_stack(T, NULL, MANY, p));
            if (C) tp_capture_end(C);
        }
        tp_step(O, 0.01);
    }
    for (int i = 0; i < MANY; i++) values_read(T, p[i], out + (int64_t)i * SIZE);
    cr_expect(tp_ok(T) && tp_optim_ok(O), "%s%s", tp_why(T), tp_optim_why(O));
    cr_expect(!C || !device_is_cuda() || tp_capture_launches(C) > 2, "nothing was recorded");
    tp_capture_free(C);
    tp_optim_free(O);
    tp_tape_free(T);
    tp_params_free(P);
}

Test(many, recorded_steps, .timeout = 300)
{
    static double plain[MANY * SIZE], recorded[MANY * SIZE];
    tp_device *D = device_open(NULL);
    steps(D, false, plain);
    steps(D, true, recorded);
    cr_expect(memcmp(plain, recorded, sizeof plain) == 0, "a recorded step changes parameters");
    tp_device_close(D);
}

static void count_inputs(void *env, tp_tape *T, const tp_seen *s)
{
    int *seen = env;
    (void)T;
    if (strcmp(s->op->name, "stack") != 0 && strcmp(s->op->name, "split") != 0) return;
    *seen += s->nx + s->ny;
    for (int i = 0; i < s->nx; i++) cr_expect(tp_given(s->x[i]));
    for (int i = 0; i < s->ny; i++) cr_expect(tp_given(s->y[i]));
    cr_expect_eq(tp_seen_macs(s), 0.0);
}

Test(many, observed_and_profiled, .timeout = 60)
{
    tp_device *D = device_open(&(tp_device_opts){ .profile = true });
    tp_tape *T = tp_tape_new(D, NULL);
    tp_tensor x[MANY], y[MANY];
    tp_op_time times[8];
    int seen = 0;
    inputs(T, TP_F32, x);
    tp_observe(T, count_inputs, &seen);
    tp_split(T, tp_stack_n(T, 0, MANY, x), 0, MANY, y);
    cr_expect_eq(seen, MANY + 1 + 1 + MANY);
    cr_expect_eq(tp_device_profile(D, times, 8), 2);
    cr_expect(tp_ok(T), "%s", tp_why(T));
    tp_tape_free(T);
    tp_device_close(D);
}

Test(many, dry, .timeout = 60)
{
    tp_stats stats[2];
    for (int dry = 0; dry < 2; dry++) {
        static double dx[MANY * SIZE];
        tp_device *D = device_open(&(tp_device_opts){ .dry = dry });
        gradients(D, false, false, dx);
        stats[dry] = tp_device_stats(D);
        tp_device_close(D);
    }
    cr_expect_eq(stats[0].peak_bytes, stats[1].peak_bytes, "a dry run counts different bytes");
}

/* ---- errors ---- */

Test(many, mistakes, .timeout = 60)
{
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    tp_tensor x[MANY];
    inputs(T, TP_F32, x);
    x[400] = tp_full(T, TP_F32, TP_SHAPE(ROWS, COLUMNS + 1), 0);
    tp_stack_n(T, 0, MANY, x);
    cr_expect(strstr(tp_why(T), "stack: inputs 0 and 400 have different shapes\n"), "%s",
              tp_why(T));
    cr_expect(strstr(tp_why(T), " and 484 more"), "%s", tp_why(T));
    tp_clear(T);
    inputs(T, TP_F32, x);
    x[499] = TP_NONE;
    tp_stack_n(T, 0, MANY, x);
    cr_expect(strstr(tp_why(T), "stack: input 499"), "%s", tp_why(T));
    tp_clear(T);
    inputs(T, TP_F32, x);
    tp_tensor y[MANY];
    tp_split(T, x[0], 0, MANY, y);
    cr_expect(strstr(tp_why(T), "split: an axis of size 2 does not divide into 500 equal parts"),
              "%s", tp_why(T));
    tp_tape_free(T);
    tp_device_close(D);
}

/* ---- the tape's memory ---- */

static size_t arena_used(const tp_tape *T)
{
    size_t used = 0;
    for (const tp_arena_chunk *c = T->arena_first; c; c = c == T->arena ? NULL : c->next)
        used += c->used;
    return T->arena ? used : 0;
}

/* A record of one input and one output takes only its fields' memory; unrecorded ops leave nothing
 * behind. */
Test(many, memory_of_the_tape)
{
    tp_device *D = tp_device_open("cpu", NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    tp_tensor x[MANY];
    inputs(T, TP_F32, x);
    const size_t none = arena_used(T);
    tp_relu(T, x[0]);
    const size_t list = tp__arena_bytes(sizeof(void *)), one = tp__arena_bytes(sizeof(tp_view));
    cr_expect_eq(arena_used(T) - none, tp__arena_bytes(sizeof(tp_rec)) + 2 * one + 5 * list);
    tp_record(T, false);
    const size_t before = arena_used(T);
    tp_stack_n(T, 0, MANY, x);
    cr_expect_eq(arena_used(T), before);
    tp_record(T, true);
    tp_stack_n(T, 0, MANY, x);
    cr_expect_leq(arena_used(T) - before, MANY * (sizeof(tp_view) + 64) + 2048);
    tp_tape_free(T);
    tp_device_close(D);
}
