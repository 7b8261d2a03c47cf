/* test_capture.c - recorded steps give the same bits as steps without recording, with dropout,
 * carried tensors and changing data and learning rates. Steps that cannot be recorded run normally.
 * Runs on the CPU, where nothing is recorded, and on a CUDA device if there is one. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "support/device.h"
#include "support/values.h"

enum { STEPS = 9, ROWS = 5, IN = 6, HIDDEN = 8, EAGER = 2 }; /* EAGER: steps before the recording */

typedef struct net {
    tp_device *D;
    tp_params *P;
    tp_tape *T, *other;
    tp_optim *O;
    tp_capture *C;
    tp_tensor w, v, b, x, memory, older;
} net;

static net make(const char *device, bool capture)
{
    net m = { .D = tp_device_open(device, &(tp_device_opts){ .threads = 1 }) };
    const tp_init draw = { TP_INIT_NORMAL, 0.5, 0.0 };
    m.P = tp_params_new(m.D, &(tp_params_opts){ .seed = 3 });
    m.w = tp_param(m.P, "w", TP_SHAPE(HIDDEN, IN), draw, 0);
    m.v = tp_param(m.P, "v", TP_SHAPE(HIDDEN, HIDDEN), draw, 0);
    m.b = tp_param(m.P, "b", TP_SHAPE(HIDDEN), draw, 0);
    m.T = tp_tape_new(m.D, &(tp_tape_opts){ .seed = 5, .train = true });
    m.other = tp_tape_new(m.D, NULL);
    m.O = tp_adamw_new(m.P, NULL);
    m.C = capture ? tp_capture_new(m.T) : NULL;
    m.x = m.memory = m.older = TP_NONE;
    return m;
}

static void destroy(net *m)
{
    cr_expect(tp_ok(m->T) && tp_ok(m->other) && tp_optim_ok(m->O), "%s%s%s", tp_why(m->T),
              tp_why(m->other), tp_optim_why(m->O));
    tp_capture_free(m->C);
    tp_optim_free(m->O);
    tp_tape_free(m->other);
    tp_tape_free(m->T);
    tp_params_free(m->P);
    cr_expect_eq(tp_device_stats(m->D).live_bytes, 0, "memory is returned");
    tp_device_close(m->D);
}

static void feed(net *m, int step)
{
    double x[ROWS * IN];
    float f[ROWS * IN];
    values_random(x, ROWS * IN, 100 + (uint64_t)step);
    for (int i = 0; i < ROWS * IN; i++) f[i] = (float)x[i];
    tp_feed(m->T, &m->x, TP_F32, TP_SHAPE(ROWS, IN), f);
}

/* h = dropout(gelu(x w^T + b) + older / 2 + memory v^T). The two slots hold the last two values of
 * h; the newer reuses the older's memory. */
static tp_tensor forward(net *m)
{
    tp_tensor h = tp_gelu(m->T, tp_linear(m->T, m->x, m->w, m->b, TP_ACT_NONE));
    if (tp_given(m->older)) h = tp_add(m->T, h, tp_scale(m->T, m->older, 0.5));
    h = tp_add(m->T, h, tp_linear(m->T, m->memory, m->v, TP_NONE, TP_ACT_NONE));
    h = tp_dropout(m->T, h, 0.3);
    tp_carry(m->T, &m->older, m->memory);
    tp_carry(m->T, &m->memory, h);
    return tp_mean(m->T, tp_square(m->T, h), TP_ALL);
}

/* Reads the loss of step i and updates the parameters. */
static double update(net *m, tp_tensor loss, int i)
{
    const double value = tp_item(m->T, loss);
    tp_clip_grad_norm(m->P, 0.5);
    tp_step(m->O, 0.01 * (1 + i % 3));
    return value;
}

/* Runs a step and returns its loss. */
static double step(net *m, int i)
{
    static tp_tensor loss;
    if (i == 0) {
        loss = TP_NONE;
        tp_carry(m->T, &m->memory, tp_full(m->T, TP_F32, TP_SHAPE(ROWS, HIDDEN), 0.25));
        tp_carry(m->T, &m->older, tp_full(m->T, TP_F32, TP_SHAPE(ROWS, HIDDEN), 0.5));
    }
    feed(m, i);
    if (!m->C) tp_reset(m->T);
    if (!m->C || tp_capture_begin(m->C)) {
        loss = forward(m);
        tp_backward(m->T, loss);
        if (m->C) tp_capture_end(m->C);
    }
    return update(m, loss, i);
}

/* Work between steps must not touch the recording's memory. */
static void disturb(net *m)
{
    tp_reset(m->other);
    tp_tensor h = tp_full(m->other, TP_F32, TP_SHAPE(HIDDEN, IN), 3.0);
    for (int i = 0; i < 4; i++) h = tp_add(m->other, h, m->w);
    cr_expect(isfinite(tp_item(m->other, tp_sum(m->other, h, TP_ALL))));
}

typedef struct answer {
    double loss[STEPS];
    float w[HIDDEN * IN], v[HIDDEN * HIDDEN], memory[ROWS * HIDDEN];
} answer;

static void read_all(net *m, answer *a)
{
    cr_expect(tp_param_get(m->P, m->w, TP_F32, a->w, sizeof a->w));
    cr_expect(tp_param_get(m->P, m->v, TP_F32, a->v, sizeof a->v));
    tp_read(m->T, m->memory, a->memory, sizeof a->memory);
}

static void run(const char *device, bool capture, answer *a, int64_t *launches)
{
    net m = make(device, capture);
    memset(a, 0, sizeof *a);
    for (int i = 0; i < STEPS; i++) {
        a->loss[i] = step(&m, i);
        disturb(&m);
    }
    read_all(&m, a);
    if (capture) *launches = tp_capture_launches(m.C);
    destroy(&m);
}

static void same_bits(const char *device, int64_t expected)
{
    static answer plain, captured;
    int64_t launches = 0;
    run(device, false, &plain, NULL);
    run(device, true, &captured, &launches);
    cr_expect_eq(launches, expected, "%s: %d launches", device, (int)launches);
    for (int i = 0; i < STEPS; i++)
        cr_expect(captured.loss[i] == plain.loss[i], "%s: step %d: loss %.9g, without %.9g", device,
                  i, captured.loss[i], plain.loss[i]);
    cr_expect(memcmp(&captured, &plain, sizeof plain) == 0, "%s: other bits", device);
}

Test(capture, bits_are_unchanged)
{
    same_bits("cpu", 0);
    if (device_has_cuda()) same_bits("cuda", STEPS - EAGER);
}

/* A step with an existing gradient is not replayed: the recording would overwrite it. */
Test(capture, leaves_accumulation_alone)
{
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    static answer a[2];
    float grad[2][HIDDEN * IN];
    for (int capture = 0; capture < 2; capture++) {
        net m = make("cuda", capture);
        for (int i = 0; i < 4; i++) step(&m, i);
        for (int i = 0; i < 2; i++) { /* no tp_step in between */
            feed(&m, i);
            if (!capture) tp_reset(m.T);
            if (!capture || tp_capture_begin(m.C)) {
                tp_backward(m.T, forward(&m));
                if (capture) tp_capture_end(m.C);
            }
        }
        cr_expect(tp_param_get_grad(m.P, m.w, TP_F32, grad[capture], sizeof *grad));
        if (capture)
            cr_expect_eq(tp_capture_launches(m.C), 3, "two steps and the first of the pair");
        for (int i = 4; i < STEPS; i++) a[capture].loss[i] = step(&m, i);
        if (capture)
            cr_expect_eq(tp_capture_launches(m.C), 3 + STEPS - 5,
                         "recorded again after one more step");
        read_all(&m, &a[capture]);
        destroy(&m);
    }
    cr_expect(memcmp(grad[0], grad[1], sizeof *grad) == 0);
    for (int i = 4; i < STEPS; i++)
        cr_expect(a[0].loss[i] == a[1].loss[i], "step %d: %.9g, recorded %.9g", i, a[0].loss[i],
                  a[1].loss[i]);
    cr_expect(memcmp(&a[0], &a[1], sizeof *a) == 0, "other bits");
}

/* A step over two batches. Either both are recorded, or another tape has already given one
 * parameter a gradient, in memory unknown to the recording. */
static double accumulating_step(net *m, int i, bool outside)
{
    static tp_tensor loss;
    tp_reset(m->other);
    feed(m, i);
    if (i == 0) tp_carry(m->T, &m->memory, tp_full(m->T, TP_F32, TP_SHAPE(ROWS, HIDDEN), 0.25));
    if (outside) tp_backward(m->other, tp_mean(m->other, tp_square(m->other, m->w), TP_ALL));
    if (!m->C) tp_reset(m->T);
    if (!m->C || tp_capture_begin(m->C)) {
        if (!outside) tp_backward(m->T, forward(m));
        loss = forward(m);
        tp_backward(m->T, loss);
        if (m->C) tp_capture_end(m->C);
    }
    return update(m, loss, i);
}

Test(capture, adds_gradients)
{
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    for (int outside = 0; outside < 2; outside++) {
        static answer a[2];
        memset(a, 0, sizeof a);
        for (int capture = 0; capture < 2; capture++) {
            net m = make("cuda", capture);
            for (int i = 0; i < STEPS; i++) {
                a[capture].loss[i] = accumulating_step(&m, i, outside);
                disturb(&m);
            }
            read_all(&m, &a[capture]);
            const int wanted = outside ? STEPS / (EAGER + 1) : STEPS - EAGER;
            if (capture)
                cr_expect_eq(tp_capture_launches(m.C), wanted, "outside %d: %d launches, not %d",
                             outside, (int)tp_capture_launches(m.C), wanted);
            destroy(&m);
        }
        for (int i = 0; i < STEPS; i++)
            cr_expect(a[0].loss[i] == a[1].loss[i], "outside %d: step %d: %.9g, recorded %.9g",
                      outside, i, a[0].loss[i], a[1].loss[i]);
        cr_expect(memcmp(&a[0], &a[1], sizeof *a) == 0, "outside %d: other bits", outside);
    }
}

/* After a step only the recording holds its gradients, for every launch. */
Test(capture, keeps_its_gradients)
{
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    net m = make("cuda", true);
    for (int i = 0; i < STEPS; i++) step(&m, i);
    const size_t with = tp_device_stats(m.D).live_bytes;
    tp_param_info it = { 0 };
    cr_expect(tp_next_param(m.P, &it) && !it.has_grad, "the step has cleared %s", it.name);
    cr_expect(!tp_capture_begin(m.C));
    it = (tp_param_info){ 0 };
    cr_expect(tp_next_param(m.P, &it) && it.has_grad, "%s", it.name);
    cr_expect_eq(tp_device_stats(m.D).live_bytes, with, "a launch needs no memory");
    tp_capture_free(m.C);
    m.C = NULL;
    cr_expect_eq(tp_device_stats(m.D).live_bytes, with - 512, "the parameters hold them still");
    tp_grad_clear(m.P);
    cr_expect_eq(tp_device_stats(m.D).live_bytes, with - 4 * 512, "three gradients less");
    destroy(&m);
}

/* Changes that a program may make between two steps. */
typedef enum change {
    OTHER_DATA,
    OTHER_MEMORY,
    NO_MEMORY,
    OTHER_SEED,
    OTHER_PLACE,
    EVALUATION
} change;

static void make_change(net *m, change what)
{
    static const float zeros[2 * ROWS * IN];
    tp_reset(m->T);
    switch (what) {
    case OTHER_DATA: tp_feed(m->T, &m->x, TP_F32, TP_SHAPE(2 * ROWS, IN), zeros); break;
    case OTHER_MEMORY:
        tp_carry(m->T, &m->memory, tp_full(m->T, TP_F32, TP_SHAPE(ROWS, HIDDEN), -0.5));
        break;
    case NO_MEMORY: tp_carry(m->T, &m->older, TP_NONE); break;
    case OTHER_SEED: tp_set_random_state(m->T, 99, 0); break;
    case OTHER_PLACE: tp_set_random_state(m->T, 5, 4000); break;
    case EVALUATION: tp_train(m->T, !tp_is_training(m->T)); break;
    }
}

Test(capture, notices_changes)
{
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    static const char *const names[] = { "data",   "memory",  "no memory",
                                         "a seed", "a place", "evaluation" };
    for (change what = OTHER_DATA; what <= EVALUATION; what++) {
        static answer a[2];
        memset(a, 0, sizeof a);
        for (int capture = 0; capture < 2; capture++) {
            net m = make("cuda", capture);
            for (int i = 0; i < STEPS; i++) {
                if (i == 4 || i == 5) make_change(&m, what);
                a[capture].loss[i] = step(&m, i);
            }
            read_all(&m, &a[capture]);
            if (capture)
                cr_expect_geq(tp_capture_launches(m.C), 4, "%s: recorded before and after",
                              names[what]);
            destroy(&m);
        }
        for (int i = 0; i < STEPS; i++)
            cr_expect(a[0].loss[i] == a[1].loss[i], "%s: step %d: %.9g, recorded %.9g", names[what],
                      i, a[0].loss[i], a[1].loss[i]);
        cr_expect(memcmp(&a[0], &a[1], sizeof *a) == 0, "%s: other bits", names[what]);
    }
}

/* ---- bf16 copies ---- */

/* Looks up rows of a table and multiplies them by a matrix. */
static void look_up(tp_capture *C, tp_tape *T, tp_tensor table, tp_tensor matrix)
{
    if (!C) tp_reset(T);
    if (C && !tp_capture_begin(C)) return;
    const tp_tensor id = tp_arange(T, TP_I32, 0.0, ROWS, 1.0);
    const tp_tensor y = tp_matmul(T, tp_embedding(T, table, id, 1.0), matrix);
    tp_backward(T, tp_sum(T, tp_cast(T, y, TP_F32), TP_ALL));
    if (C) tp_capture_end(C);
}

/* The sum of a table, read in bf16 by a product. */
static double sum_of(tp_tape *T, tp_tensor table)
{
    const tp_tensor one = tp_full(T, TP_F32, TP_SHAPE(1, ROWS), 1.0);
    const tp_tensor y = tp_cast(T, tp_matmul(T, one, table), TP_F32);
    const double sum = tp_item(T, tp_sum(T, y, TP_ALL));
    tp_reset(T);
    return sum;
}

static void read_between_replays(bool capture, double sum[2])
{
    tp_device *D = device_open(NULL);
    const tp_init draw = { TP_INIT_NORMAL, 0.5, 0.0 };
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .seed = 3 });
    const tp_tensor table = tp_param(P, "table", TP_SHAPE(ROWS, IN), draw, TP_TABLE);
    const tp_tensor matrix = tp_param(P, "matrix", TP_SHAPE(IN, HIDDEN), draw, 0);
    const tp_tape_opts bf16 = { .seed = 5, .train = true, .compute = TP_BF16 };
    tp_tape *T = tp_tape_new(D, &bf16), *other = tp_tape_new(D, &bf16);
    tp_optim *O = tp_adamw_new(P, NULL);
    tp_capture *C = capture ? tp_capture_new(T) : NULL;
    for (int step = 0; step < STEPS; step++) {
        look_up(C, T, table, matrix);
        if (step == EAGER + 2) sum[0] = sum_of(other, table); /* makes the copy */
        if (step == STEPS - 1) sum[1] = sum_of(other, table);
        tp_step(O, 0.1);
    }
    cr_expect(tp_ok(T) && tp_ok(other) && tp_optim_ok(O), "%s%s%s", tp_why(T), tp_why(other),
              tp_optim_why(O));
    if (capture && device_is_cuda()) cr_expect_geq(tp_capture_launches(C), STEPS - EAGER - 1);
    tp_capture_free(C);
    tp_optim_free(O);
    tp_tape_free(other);
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
}

/* Replays must not mark as current a copy made after the recording. */
Test(capture, a_copy_in_bf16_made_later)
{
    double plain[2], recorded[2];
    read_between_replays(false, plain);
    read_between_replays(true, recorded);
    cr_expect_neq(plain[0], plain[1]);
    cr_expect_float_eq(recorded[0], plain[0], 1e-6);
    cr_expect_float_eq(recorded[1], plain[1], 1e-6);
}

/* Nothing is recorded while the shapes of carried tensors grow in the first steps. */
Test(capture, waits_until_carried_tensors_keep_their_shape)
{
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    double sum[2] = { 0 };
    for (int capture = 0; capture < 2; capture++) {
        net m = make("cuda", capture);
        for (int i = 0; i < 14; i++) {
            feed(&m, i);
            if (!capture) tp_reset(m.T);
            if (!capture || tp_capture_begin(m.C)) {
                tp_tensor all = tp_given(m.memory)
                                    ? tp_concat_n(m.T, 0, 2, (tp_tensor[]){ m.memory, m.x })
                                    : m.x;
                const int64_t rows = tp_shape_of(all).dim[0];
                if (rows > 4 * ROWS) all = tp_slice(m.T, all, 0, rows - 4 * ROWS, 4 * ROWS);
                tp_carry(m.T, &m.memory, all);
                if (capture) tp_capture_end(m.C);
            }
            tp_reset(m.other);
            sum[capture] += (i + 1) * tp_item(m.T, tp_sum(m.T, m.memory, TP_ALL));
        }
        if (capture) cr_expect_gt(tp_capture_launches(m.C), 5, "it is recorded in the end");
        destroy(&m);
    }
    cr_expect_eq(sum[0], sum[1], "%.17g, %.17g", sum[0], sum[1]);
}

Test(capture, refuses_an_optimiser_inside)
{
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    net m = make("cuda", true);
    for (int i = 0; i < EAGER; i++) step(&m, i);
    feed(&m, EAGER);
    cr_assert(tp_capture_begin(m.C));
    tp_backward(m.T, forward(&m));
    cr_expect(!tp_step(m.O, 0.1) && strstr(tp_optim_why(m.O), "tp_capture_end"), "%s",
              tp_optim_why(m.O));
    tp_capture_end(m.C);
    cr_expect(tp_step(m.O, 0.1), "%s", tp_optim_why(m.O));
    destroy(&m);
}

Test(capture, refuses_to_read_inside)
{
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    net m = make("cuda", true);
    for (int i = 0; i < EAGER; i++) step(&m, i);
    feed(&m, EAGER);
    cr_assert(tp_capture_begin(m.C));
    tp_item(m.T, forward(&m));
    cr_expect(strstr(tp_why(m.T), "tp_capture_begin"), "%s", tp_why(m.T));
    cr_expect(!tp_device_sync(m.D), "waiting inside");
    tp_capture_end(m.C);
    tp_clear(m.T);
    cr_expect(isfinite(step(&m, EAGER)), "the next step works: %s", tp_why(m.T));
    destroy(&m);
}
