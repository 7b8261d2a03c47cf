/* test_param_grads.c - parameter gradients hold memory only from backward to the step, and share it
 * with activations; handles to them; shared buffers. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "support/device.h"

enum { LAYERS = 8, WIDTH = 256, ROWS = 1024, N = 4 };

/* ---- memory ---- */

typedef struct stack {
    tp_device *D;
    tp_params *P;
    tp_tape *T;
    tp_optim *O;
    tp_linear_m layer[LAYERS];
} stack;

static void stack_open(stack *m)
{
    static const char *const names[LAYERS] = { "0", "1", "2", "3", "4", "5", "6", "7" };
    m->D = device_open(&(tp_device_opts){ .threads = 1, .exact = true });
    m->P = tp_params_new(m->D, &(tp_params_opts){ .seed = 1 });
    m->T = tp_tape_new(m->D, &(tp_tape_opts){ .train = true });
    for (int i = 0; i < LAYERS; i++)
        tp_linear_init(m->P, &m->layer[i], names[i], WIDTH, WIDTH, true);
    m->O = tp_sgd_new(m->P, NULL);
}

static void close_all(tp_device *D, tp_tape *T, tp_params *P, tp_optim *O)
{
    cr_expect(tp_ok(T) && tp_params_ok(P) && tp_optim_ok(O), "%s%s%s", tp_why(T), tp_params_why(P),
              tp_optim_why(O));
    tp_optim_free(O);
    tp_tape_free(T);
    tp_params_free(P);
    cr_expect_eq(tp_device_stats(D).live_bytes, 0, "memory is returned");
    tp_device_close(D);
}

static size_t live(const stack *m)
{
    return tp_device_stats(m->D).live_bytes;
}

static tp_tensor loss_of(stack *m, int64_t rows)
{
    tp_enter(m->T, NULL);
    tp_tensor h = tp_full(m->T, TP_F32, TP_SHAPE(rows, WIDTH), 0.1);
    for (int i = 0; i < LAYERS; i++) h = tp_linear_act(m->T, &m->layer[i], h, TP_ACT_GELU);
    return tp_leave(m->T, tp_mean(m->T, tp_square(m->T, h), TP_ALL));
}

static size_t gradients(const stack *m)
{
    return (size_t)tp_params_count(m->P) * sizeof(float);
}

Test(param_grads, live_from_backward_to_step)
{
    stack m;
    stack_open(&m);
    for (int step = 0; step < 3; step++) {
        const tp_tensor loss = loss_of(&m, 4);
        const bool clears = step == 2;
        tp_backward(m.T, loss);
        tp_reset(m.T);
        const size_t between = live(&m);
        if (clears)
            tp_grad_clear(m.P);
        else
            cr_expect(tp_step(m.O, 0.1), "%s", tp_optim_why(m.O));
        cr_expect_eq(between - live(&m), gradients(&m), "step %d: %zu bytes, then %zu", step,
                     between, live(&m));
        for (tp_param_info it = { 0 }; tp_next_param(m.P, &it);)
            cr_expect(!it.has_grad, "%s", it.name);
    }
    close_all(m.D, m.T, m.P, m.O);
}

/* Activations, 1 MB per layer, are freed layer by layer; each layer's gradients reuse some of the
 * memory. */
Test(param_grads, take_the_place_of_activations)
{
    stack m;
    stack_open(&m);
    tp_backward(m.T, loss_of(&m, 4)); /* completes the parameters */
    tp_step(m.O, 0.1);
    tp_reset(m.T);
    const size_t before = live(&m);
    const tp_tensor loss = loss_of(&m, ROWS);
    const size_t forward = live(&m) - before;
    tp_device_reset_peak(m.D);
    tp_backward(m.T, loss);
    const size_t more = tp_device_stats(m.D).peak_bytes - before - forward;
    const size_t one = ROWS * WIDTH * sizeof(float); /* an activation */
    cr_expect_lt(more, gradients(&m) / LAYERS + 4 * one, "%zu bytes above the forward pass", more);
    cr_expect_lt(live(&m) - before, gradients(&m) + one, "the activations are gone");
    tp_step(m.O, 0.1);
    close_all(m.D, m.T, m.P, m.O);
}

/* ---- handles and shared buffers ---- */

typedef struct pair {
    tp_device *D;
    tp_params *P;
    tp_tape *T;
    tp_optim *O;
    tp_tensor p, q;
} pair;

static pair pair_open(void)
{
    const tp_init one = { .kind = TP_INIT_CONST, .a = 1.0 };
    pair w = { .D = device_open(&(tp_device_opts){ .threads = 1 }) };
    w.P = tp_params_new(w.D, NULL);
    w.T = tp_tape_new(w.D, NULL);
    w.p = tp_param(w.P, "p", TP_SHAPE(N), one, 0);
    w.q = tp_param(w.P, "q", TP_SHAPE(N), one, 0);
    w.O = tp_sgd_new(w.P, NULL);
    return w;
}

static void expect_all(const pair *w, tp_tensor x, float wanted, const char *what)
{
    float v[N];
    cr_assert(tp_read(w->T, x, v, sizeof v), "%s: %s", what, tp_why(w->T));
    for (int i = 0; i < N; i++)
        cr_expect_float_eq(v[i], wanted, 1e-6, "%s: element %d is %g, not %g", what, i, v[i],
                           wanted);
}

static void expect_grad(const pair *w, tp_tensor p, float wanted, const char *what)
{
    float v[N];
    cr_assert(tp_param_get_grad(w->P, p, TP_F32, v, sizeof v), "%s: %s", what, tp_params_why(w->P));
    for (int i = 0; i < N; i++) cr_expect_float_eq(v[i], wanted, 1e-6, "%s: %g", what, v[i]);
}

/* A handle sees gradients accumulate until the step, and keeps them after it. */
Test(param_grads, handles_outlive_the_step)
{
    pair w = pair_open();
    tp_backward(w.T, tp_sum(w.T, w.p, TP_ALL));
    const tp_tensor g = tp_grad(w.T, w.p);
    expect_all(&w, g, 1, "one backward");
    tp_backward(w.T, tp_sum(w.T, tp_scale(w.T, w.p, 2.0), TP_ALL));
    expect_all(&w, g, 3, "two");
    cr_expect(tp_clip_grad_value(w.P, 2.5));
    expect_all(&w, g, 2.5f, "clamped");
    cr_assert(tp_step(w.O, 0.1), "%s", tp_optim_why(w.O));
    tp_backward(w.T, tp_sum(w.T, tp_scale(w.T, w.p, 7.0), TP_ALL));
    expect_all(&w, g, 2.5f, "after a step");
    expect_all(&w, tp_grad(w.T, w.p), 7, "the next gradient");
    tp_grad_clear(w.P);
    cr_expect(!tp_given(tp_grad(w.T, w.p)) && strstr(tp_why(w.T), "no gradient here"), "%s",
              tp_why(w.T));
    tp_clear(w.T);
    close_all(w.D, w.T, w.P, w.O);
}

/* A sum passes one gradient to both inputs; each parameter changes only its own. */
Test(param_grads, belong_to_one_parameter)
{
    const float ones[N] = { 1, 1, 1, 1 };
    pair w = pair_open();
    const tp_tensor x = tp_input(w.T, TP_F32, TP_SHAPE(N), ones);
    const tp_tensor y = tp_keep(w.T, tp_add(w.T, tp_add(w.T, w.p, w.q), x));
    tp_backward(w.T, tp_sum(w.T, tp_scale(w.T, y, 3.0), TP_ALL));
    tp_clip_grad_norm(w.P, 0.0);
    cr_expect(tp_clip_grad_value(w.P, 2.0));
    expect_grad(&w, w.p, 2, "p");
    expect_grad(&w, w.q, 2, "q");
    expect_all(&w, tp_grad(w.T, x), 3, "an input");
    expect_all(&w, tp_grad(w.T, y), 3, "a kept result");
    const tp_tensor again = tp_add(w.T, tp_add(w.T, w.p, w.p), x);
    tp_backward(w.T, tp_sum(w.T, again, TP_ALL));
    expect_grad(&w, w.p, 4, "p twice, added");
    expect_grad(&w, w.q, 2, "q, untouched");
    tp_grad_clear(w.P);
    tp_backward(w.T, tp_sum(w.T, tp_add(w.T, w.p, w.p), TP_ALL));
    expect_grad(&w, w.p, 2, "p twice");
    close_all(w.D, w.T, w.P, w.O);
}

/* A reshaped parameter takes over the view's gradient unless the view was kept. */
Test(param_grads, of_views)
{
    for (int kept = 0; kept < 2; kept++) {
        pair w = pair_open();
        tp_tensor v = tp_reshape(w.T, w.p, TP_SHAPE(2, 2));
        if (kept) v = tp_keep(w.T, v);
        tp_backward(w.T, tp_sum(w.T, tp_scale(w.T, v, 3.0), TP_ALL));
        cr_expect(tp_clip_grad_value(w.P, 2.0));
        expect_grad(&w, w.p, 2, kept ? "below a kept view" : "below a view");
        if (kept) expect_all(&w, tp_grad(w.T, v), 3, "the kept view");
        close_all(w.D, w.T, w.P, w.O);
    }
}

static tp_tensor shifted(tp_tape *T, const void *self, tp_tensor x)
{
    const pair *w = self;
    return tp_add(T, tp_mul(T, x, w->q), w->p);
}

/* The gradient of a recomputed function's input parameter has terms from inside and outside it. */
Test(param_grads, of_recomputed_functions)
{
    pair w = pair_open();
    const tp_tensor y = tp_checkpoint(w.T, shifted, &w, w.p);
    tp_backward(w.T, tp_sum(w.T, tp_add(w.T, y, w.p), TP_ALL));
    expect_grad(&w, w.p, 3, "p");
    expect_grad(&w, w.q, 1, "q");
    close_all(w.D, w.T, w.P, w.O);
}

/* A gradient from the host is a buffer like any other. */
Test(param_grads, set_from_the_host)
{
    const float twos[N] = { 2, 2, 2, 2 };
    pair w = pair_open();
    cr_assert(tp_param_set_grad(w.P, w.p, TP_F32, twos, sizeof twos));
    const tp_tensor g = tp_grad(w.T, w.p);
    tp_backward(w.T, tp_sum(w.T, w.p, TP_ALL));
    expect_grad(&w, w.p, 3, "set, then added");
    cr_assert(tp_param_set_grad(w.P, w.p, TP_F32, twos, sizeof twos));
    expect_all(&w, g, 2, "set again in place");
    cr_expect(tp_step(w.O, 1.0), "%s", tp_optim_why(w.O));
    expect_all(&w, w.p, -1, "the value");
    expect_all(&w, w.q, 1, "the other value");
    close_all(w.D, w.T, w.P, w.O);
}

Test(param_grads, set_without_memory)
{
    const tp_init zero = { .kind = TP_INIT_ZERO };
    float *g = calloc((size_t)1 << 20, sizeof *g);
    cr_assert(g);
    tp_device *D = device_open(&(tp_device_opts){ .fail_at = 2, .fail_count = 2 });
    tp_params *P = tp_params_new(D, NULL);
    const tp_tensor p = tp_param(P, "p", TP_SHAPE(1 << 20), zero, 0);
    cr_expect(!tp_param_set_grad(P, p, TP_F32, g, sizeof *g << 20));
    cr_expect(strstr(tp_params_why(P), "for the gradient of 'p': requested 4.0 MiB"), "%s",
              tp_params_why(P));
    tp_param_info it = { 0 };
    cr_expect(tp_next_param(P, &it) && !it.has_grad);
    tp_params_free(P);
    cr_expect_eq(tp_device_stats(D).live_bytes, 0, "memory is returned");
    tp_device_close(D);
    free(g);
}
