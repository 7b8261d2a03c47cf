/* test_training_tools.c - clipping, weight averaging and learning-rate schedules against closed
 * forms. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "support/device.h"
#include "support/folder.h"
#include "support/weigh.h"

static const tp_init ones = { TP_INIT_CONST, 1.0, 0 };

/* ---- clipping ---- */

enum { WIDE = 3 * 4096 + 17 };

typedef struct world {
    tp_device *D;
    tp_params *P;
    tp_tape *T;
    tp_tensor wide, few, frozen, unused;
} world;

static world make_world(tp_dtype dt, int threads)
{
    world w;
    w.D = device_open(&(tp_device_opts){ .threads = threads });
    w.P = tp_params_new(w.D, &(tp_params_opts){ .dtype = dt });
    w.T = tp_tape_new(w.D, &(tp_tape_opts){ .compute = dt });
    w.wide = tp_param(w.P, "wide", TP_SHAPE(WIDE), ones, 0);
    w.few = tp_param(w.P, "few", TP_SHAPE(2, 2), ones, 0);
    w.frozen = tp_param(w.P, "frozen", TP_SHAPE(100), ones, TP_FROZEN);
    w.unused = tp_param(w.P, "unused", TP_SHAPE(100), ones, 0);
    tp_tie(w.P, "tied", w.wide); /* counted once */
    return w;
}

static bool is_gpu(const world *w)
{
    return strncmp(tp_device_name(w->D), "cpu", 3) != 0;
}

static void free_world(world *w)
{
    tp_tape_free(w->T);
    tp_params_free(w->P);
    tp_device_close(w->D);
}

/* Sets gradients scaled by `size` and returns their common norm. */
static double give(const world *w, double size)
{
    static double wide[WIDE], few[4], frozen[100];
    const tp_tensor p[] = { w->wide, w->few, w->frozen };
    double *g[] = { wide, few, frozen };
    double sum = 0.0;
    for (int k = 0; k < WIDE; k++) {
        wide[k] = size * (k * 29 % 64 - 32);
        sum += wide[k] * wide[k];
    }
    for (int k = 0; k < 4; k++) {
        few[k] = size * 1000.0 * k;
        sum += few[k] * few[k];
    }
    for (int k = 0; k < 100; k++) frozen[k] = 1e9;
    give_grads(w->T, 3, p, g);
    return sqrt(sum);
}

static void expect_grads(const world *w, double size, double factor, double limit, const char *name)
{
    static double wide[WIDE];
    double few[4];
    cr_assert(tp_param_get_grad(w->P, w->wide, TP_F64, wide, sizeof wide), "%s",
              tp_params_why(w->P));
    cr_assert(tp_param_get_grad(w->P, w->few, TP_F64, few, sizeof few));
    for (int k = 0; k < WIDE; k++) {
        const double g = factor * size * (k * 29 % 64 - 32);
        if (fabs(wide[k] - g) > limit * size * factor * 32.0) {
            cr_expect(false, "%s: element %d is %g, not %g", name, k, wide[k], g);
            break;
        }
    }
    for (int k = 0; k < 4; k++)
        cr_expect_float_eq(few[k], factor * size * 1000.0 * k, limit * factor * size * 3000.0, "%s",
                           name);
}

Test(clip, norm_and_scaling)
{
    static const struct {
        const char *name;
        double size, max; /* max is relative to the norm */
    } cases[] = {
        { "measure only", 0.5, 0.0 },   { "below", 0.5, 1.5 },
        { "above", 0.5, 0.25 },         { "tiny norm: the 1e-6 counts", 0x1p-30, 0.5 },
        { "large squares", 1e30, 0.5 }, { "negative", 1.0, -1.0 },
    };
    for (size_t c = 0; c < 2 * sizeof cases / sizeof *cases; c++) {
        const tp_dtype dt = c % 2 ? TP_F64 : TP_F32;
        const double limit = c % 2 ? 1e-14 : 2e-7, size = cases[c / 2].size;
        if (dt == TP_F64 && device_is_cuda()) continue;
        world w = make_world(dt, 2);
        const double norm = give(&w, size), max = cases[c / 2].max * norm;
        const double factor = max > 0.0 ? fmin(1.0, max / (norm + 1e-6)) : 1.0;
        const tp_tensor t = tp_clip_grad_norm(w.P, max);
        const double got = tp_item(w.T, t);
        cr_expect_float_eq(got, norm, limit * norm, "%s: norm %g, not %g (%s)", cases[c / 2].name,
                           got, norm, tp_params_why(w.P));
        expect_grads(&w, size, factor, limit, cases[c / 2].name);
        free_world(&w);
    }
}

Test(clip, bits_do_not_depend_on_threads)
{
    double norm[2];
    for (int i = 0; i < 2; i++) {
        world w = make_world(TP_F32, i ? 7 : 1);
        give(&w, 1.1);
        norm[i] = tp_item(w.T, tp_clip_grad_norm(w.P, 1.0));
        free_world(&w);
    }
    cr_expect_eq(norm[0], norm[1]);
}

Test(clip, nan_stays_visible)
{
    double g[4] = { 1.0, NAN, 2.0, 3.0 };
    double *at = g;
    world w = make_world(TP_F32, 1);
    give_grads(w.T, 1, &w.few, &at);
    cr_expect(isnan(tp_item(w.T, tp_clip_grad_norm(w.P, 10.0))));
    cr_assert(tp_param_get_grad(w.P, w.few, TP_F64, g, sizeof g));
    for (int i = 0; i < 4; i++)
        cr_expect(isnan(g[i]) || !is_gpu(&w), "element %d passes for sound", i);
    free_world(&w);
}

/* The parameters stay unchanged, and the message names the gradient. */
Test(clip, nan_refuses_the_step)
{
    static const struct {
        double g[4], max;
        const char *why;
    } cases[] = {
        { { 1, NAN, 2, 3 },
          10,
          "tp_clip_grad_norm: element 1 of the gradient of 'few' is NaN; tp_step "
          "refuses these gradients until tp_grad_clear" },
        { { 1, NAN, 2, 3 }, 0, "element 1 of the gradient of 'few' is NaN" },
        { { 1, 2, 3, -INFINITY }, 1, "element 3 of the gradient of 'few' is infinite" },
        { { 3e38, 3e38, 0, 0 }, 1, "the norm is inf, while all gradients are finite" },
    };
    world w = make_world(TP_F32, 1);
    if (is_gpu(&w)) {
        free_world(&w);
        cr_skip_test("a GPU does not wait for the norm");
    }
    tp_optim *O = tp_sgd_new(w.P, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double now[4], *at = (double[4]){ 1, 1, 1, 1 };
        const double *bad = cases[i].g;
        give_grads(w.T, 1, &w.few, (double *[]){ (double *)(uintptr_t)bad });
        tp_clip_grad_norm(w.P, cases[i].max);
        cr_expect_not(tp_step(O, 1.0), "case %zu", i);
        cr_expect(strstr(tp_optim_why(O), cases[i].why), "case %zu: %s", i, tp_optim_why(O));
        cr_expect_eq(tp_optim_code(O), TP_E_NONFINITE);
        cr_assert(tp_params_ok(w.P) && tp_param_get(w.P, w.few, TP_F64, now, sizeof now));
        for (int k = 0; k < 4; k++) cr_expect_eq(now[k], 1.0 - (double)i, "case %zu", i);
        tp_grad_clear(w.P);
        tp_reset(w.T);
        give_grads(w.T, 1, &w.few, &at);
        tp_clip_grad_norm(w.P, 0.0);
        cr_expect(tp_step(O, 1.0) && tp_optim_ok(O), "case %zu: %s", i, tp_optim_why(O));
        tp_reset(w.T);
    }
    tp_optim_free(O);
    free_world(&w);
}

Test(clip, without_gradients_and_twice)
{
    world w = make_world(TP_F32, 1);
    const tp_tensor before = tp_clip_grad_norm(w.P, 1.0);
    cr_expect_eq(tp_item(w.T, before), 0.0, "%s", tp_why(w.T));
    const double norm = give(&w, 1.0);
    const tp_tensor now = tp_clip_grad_norm(w.P, 1.0);
    cr_expect_float_eq(tp_item(w.T, now), norm, 1e-6 * norm);
    cr_expect_float_eq(tp_item(w.T, tp_clip_grad_norm(w.P, 0.0)), 1.0, 1e-6);
    cr_expect(isnan(tp_item(w.T, before)) && !tp_ok(w.T), "an old norm is a stale tensor");
    free_world(&w);
}

Test(clip, by_value)
{
    static double g[WIDE], expect[WIDE];
    double few[4] = { 0.5, -3.0, NAN, INFINITY };
    world w = make_world(device_real(), 2);
    const tp_tensor p[] = { w.wide, w.few };
    double *at[] = { g, few };
    for (int k = 0; k < WIDE; k++) {
        g[k] = k * 29 % 64 - 32;
        expect[k] = fmax(fmin(g[k], 7.5), -7.5);
    }
    cr_expect(tp_clip_grad_value(w.P, 1.0), "without gradients: %s", tp_params_why(w.P));
    give_grads(w.T, 2, p, at);
    cr_expect(tp_clip_grad_value(w.P, 7.5), "%s", tp_params_why(w.P));
    cr_assert(tp_param_get_grad(w.P, w.wide, TP_F64, g, sizeof g));
    cr_assert(tp_param_get_grad(w.P, w.few, TP_F64, few, sizeof few));
    cr_expect_arr_eq(g, expect, sizeof g);
    cr_expect(few[0] == 0.5 && few[1] == -3.0 && isnan(few[2]) && few[3] == 7.5);
    cr_expect(tp_clip_grad_value(w.P, 0.0));
    cr_assert(tp_param_get_grad(w.P, w.wide, TP_F64, g, sizeof g));
    for (int k = 0; k < WIDE; k++) cr_assert(g[k] == 0.0, "element %d", k);
    free_world(&w);
}

Test(clip, by_an_impossible_value)
{
    world w = make_world(TP_F32, 1);
    tp_optim *O = tp_sgd_new(w.P, NULL);
    give(&w, 1.0);
    cr_expect_not(tp_clip_grad_value(w.P, -1.0));
    cr_expect_not(tp_step(O, 0.1));
    cr_expect_str_eq(tp_optim_why(O), "tp_clip_grad_value: max must be at least 0, not -1");
    tp_grad_clear(w.P);
    tp_reset(w.T);
    give(&w, 1.0);
    cr_expect(tp_clip_grad_value(w.P, 1.0) && tp_step(O, 0.1), "%s", tp_optim_why(O));
    tp_optim_free(O);
    free_world(&w);
}

/* ---- gradients from the host ---- */

Test(given, a_step_uses_them)
{
    const float g[4] = { 1, 2, 3, 4 };
    double now[4], more[4] = { 10, 10, 10, 10 }, *at = more;
    world w = make_world(TP_F32, 1);
    tp_optim *O = tp_sgd_new(w.P, NULL);
    cr_expect(tp_param_set_grad(w.P, w.few, TP_F32, g, sizeof g), "%s", tp_params_why(w.P));
    cr_expect(tp_step(O, 0.5), "%s", tp_optim_why(O));
    cr_assert(tp_param_get(w.P, w.few, TP_F64, now, sizeof now));
    for (int k = 0; k < 4; k++) cr_expect_eq(now[k], 1.0 - 0.5 * (k + 1));
    cr_expect_not(tp_step(O, 0.5), "the gradients were used");
    cr_expect(tp_param_set_grad(w.P, w.few, TP_F32, g, sizeof g));
    give_grads(w.T, 1, &w.few, &at);
    cr_assert(tp_param_get_grad(w.P, w.few, TP_F64, now, sizeof now));
    for (int k = 0; k < 4; k++) cr_expect_eq(now[k], k + 11.0, "a backward adds to it");
    cr_expect(tp_param_set_grad(w.P, w.few, TP_F32, g, sizeof g));
    cr_assert(tp_param_get_grad(w.P, w.few, TP_F64, now, sizeof now));
    for (int k = 0; k < 4; k++) cr_expect_eq(now[k], k + 1.0, "and setting replaces it");
    tp_grad_clear(w.P);
    cr_expect_not(tp_step(O, 0.5));
    tp_optim_free(O);
    free_world(&w);
}

Test(given, what_has_no_gradient)
{
    static const double g[100];
    static const char *const why[] = {
        "tp_param_set_grad: 'frozen' is frozen and has no gradient",
        "tp_param_set_grad: 'seen' is a buffer and has no gradient",
        "parameter 'few': 800 bytes given, it has 32 as f64",
        "tp_param_set_grad: not a parameter of this set",
    };
    for (int i = 0; i < 4; i++) {
        world w = make_world(TP_F32, 1);
        const tp_tensor seen = tp_buffer(w.P, "seen", TP_F32, TP_SHAPE(100), NULL);
        const tp_tensor p[] = { w.frozen, seen, w.few, TP_NONE };
        cr_expect_not(tp_param_set_grad(w.P, p[i], TP_F64, g, sizeof g));
        cr_expect_str_eq(tp_params_why(w.P), why[i], "%s", tp_params_why(w.P));
        free_world(&w);
    }
}

/* ---- averages ---- */

static void set(const world *w, double x)
{
    static double v[WIDE];
    for (int k = 0; k < WIDE; k++) v[k] = x + k % 8;
    cr_assert(tp_param_set(w->P, w->wide, TP_F64, v, sizeof v), "%s", tp_params_why(w->P));
}

static double first(const world *w, tp_tensor p)
{
    static double v[WIDE];
    cr_assert(tp_param_get(w->P, p, TP_F64, v, (size_t)tp_numel(p) * sizeof *v));
    return v[0];
}

Test(ema, averages_and_swapping)
{
    world w = make_world(device_real(), 2);
    set(&w, 0.0);
    tp_ema *E = tp_ema_new(w.P, 0.75);
    double e = 0.0;
    for (int step = 1; step <= 5; step++) {
        set(&w, step);
        tp_ema_update(E);
        e = 0.75 * e + 0.25 * step;
    }
    tp_ema_swap(E);
    cr_expect_float_eq(first(&w, w.wide), e, device_limit(1e-15, 1e-6), "%s", tp_ema_why(E));
    cr_expect_eq(first(&w, w.frozen), 1.0, "what does not change is its own average, exactly");
    tp_ema_swap(E);
    cr_expect_eq(first(&w, w.wide), 5.0);
    cr_expect(tp_ema_ok(E), "%s", tp_ema_why(E));
    tp_ema_free(E);
    free_world(&w);
}

Test(ema, swapped_averages_are_not_updated)
{
    world w = make_world(TP_F32, 1);
    tp_ema *E = tp_ema_new(w.P, 0.5);
    tp_ema_swap(E);
    tp_ema_update(E);
    cr_expect_str_eq(tp_ema_why(E), "tp_ema_update: the parameters hold the averages; call "
                                    "tp_ema_swap first to restore the values");
    tp_ema_free(E);
    E = tp_ema_new(w.P, 1.0);
    cr_expect_str_eq(tp_ema_why(E), "ema: decay must be in [0,1), not 1");
    tp_ema_update(E);
    tp_ema_swap(E);
    cr_expect_eq(first(&w, w.wide), 1.0, "a failed average leaves the values alone");
    tp_ema_free(E);
    free_world(&w);
}

/* A step while averages are swapped in is refused, as it would change them. */
Test(ema, swapped_averages_are_not_trained)
{
    world w = make_world(TP_F32, 1);
    tp_optim *O = tp_sgd_new(w.P, NULL);
    tp_ema *E = tp_ema_new(w.P, 0.5);
    for (int freed = 0; freed < 2; freed++) {
        tp_ema_swap(E);
        give(&w, 1.0);
        cr_expect(!tp_step(O, 0.1));
        cr_expect_str_eq(tp_optim_why(O), "tp_step: the parameters hold the averages; call "
                                          "tp_ema_swap first to restore the values");
        cr_expect_eq(first(&w, w.wide), 1.0);
        if (freed)
            tp_ema_free(E);
        else
            tp_ema_swap(E);
        cr_expect(tp_step(O, 0.1), "the gradients are still there: %s", tp_optim_why(O));
        set(&w, 1.0);
    }
    tp_optim_free(O);
    free_world(&w);
}

/* Loading weights is refused while averages are swapped in. */
Test(ema, swapped_averages_are_not_loaded)
{
    make_folder();
    world w = make_world(TP_F32, 1);
    cr_assert(tp_save(w.P, in_folder("w.safetensors")), "%s", tp_params_why(w.P));
    tp_ema *E = tp_ema_new(w.P, 0.5);
    tp_ema_swap(E);
    cr_expect_not(tp_load(w.P, in_folder("w.safetensors"), NULL));
    cr_expect(strstr(tp_params_why(w.P), "w.safetensors: the parameters hold the averages; call "
                                         "tp_ema_swap first"),
              "%s", tp_params_why(w.P));
    tp_ema_free(E);
    free_world(&w);
    remove_folder();
}

/* Setting parameters is refused too, but not setting buffers, which have no average. */
Test(ema, swapped_averages_are_not_set)
{
    tp_device *D = device_open(NULL);
    tp_params *P = tp_params_new(D, NULL);
    const tp_init zero = { TP_INIT_ZERO, 0, 0 };
    const tp_tensor w = tp_param(P, "w", TP_SHAPE(1), zero, 0);
    const tp_tensor b = tp_param(P, "b", TP_SHAPE(1), zero, TP_BUFFER);
    const float one = 1.0f;
    float now = -1.0f;
    tp_ema *E = tp_ema_new(P, 0.5);
    tp_ema_swap(E);
    cr_expect(tp_param_set(P, b, TP_F32, &one, sizeof one), "%s", tp_params_why(P));
    cr_expect(tp_param_get(P, w, TP_F32, &now, sizeof now) && now == 0.0f);
    cr_expect_not(tp_param_set(P, w, TP_F32, &one, sizeof one));
    cr_expect_str_eq(tp_params_why(P), "tp_param_set: the parameters hold the averages; call "
                                       "tp_ema_swap first to restore the values");
    tp_ema_free(E);
    tp_params_free(P);
    tp_device_close(D);
}

/* Backward through a graph recorded before a swap is an error, as it read other values. */
Test(ema, swap_between_forward_and_backward)
{
    world w = make_world(TP_F32, 1);
    tp_ema *E = tp_ema_new(w.P, 0.5);
    const tp_tensor x = tp_scale(w.T, w.few, 2.0);
    tp_ema_swap(E);
    tp_backward(w.T, tp_mean(w.T, tp_square(w.T, x), TP_ALL));
    cr_expect_eq(tp_code_of(w.T), TP_E_STATE, "%s", tp_why(w.T));
    tp_ema_free(E);
    free_world(&w);
}

/* ---- schedules ---- */

typedef struct rate {
    const char *name;
    double is, should;
} rate;

Test(schedule, closed_forms)
{
    const double pi = acos(-1.0);
    const rate rates[] = {
        { "constant, first of a warm-up", tp_lr_constant(0, 4, 0.8), 0.2 },
        { "constant, last of a warm-up", tp_lr_constant(3, 4, 0.8), 0.8 },
        { "constant, after", tp_lr_constant(4, 4, 0.8), 0.8 },
        { "constant, far", tp_lr_constant(INT64_MAX - 1, 4, 0.8), 0.8 },
        { "constant, no warm-up", tp_lr_constant(0, 0, 0.8), 0.8 },
        { "linear, warm-up", tp_lr_linear(1, 4, 15, 0.8, 0.1), 0.4 },
        { "linear, top", tp_lr_linear(4, 4, 15, 0.8, 0.1), 0.8 },
        { "linear, half way", tp_lr_linear(9, 4, 15, 0.8, 0.1), 0.45 },
        { "linear, last", tp_lr_linear(14, 4, 15, 0.8, 0.1), 0.1 },
        { "linear, beyond", tp_lr_linear(99, 4, 15, 0.8, 0.1), 0.1 },
        { "linear, only warm-up", tp_lr_linear(4, 4, 4, 0.8, 0.1), 0.1 },
        { "cosine, warm-up", tp_lr_cosine(0, 2, 12, 0.8, 0.1), 0.4 },
        { "cosine, top", tp_lr_cosine(2, 2, 12, 0.8, 0.1), 0.8 },
        { "cosine, half way", tp_lr_cosine(7, 2, 12, 0.8, 0.1), 0.45 },
        { "cosine, last", tp_lr_cosine(11, 2, 12, 0.8, 0.1), 0.1 + 0.35 * (1 + cos(0.9 * pi)) },
        { "cosine, beyond", tp_lr_cosine(12, 2, 12, 0.8, 0.1), 0.1 },
        { "cosine to zero, no warm-up", tp_lr_cosine(5, 0, 20, 0.005, 0.0),
          0.0025 * (1 + cos(pi / 4)) },
        { "cosine from, first", tp_lr_cosine_from(0, 4, 12, 0.2, 0.8, 0.1), 0.2 },
        { "cosine from, second", tp_lr_cosine_from(1, 4, 12, 0.2, 0.8, 0.1), 0.2 },
        { "cosine from, warm-up", tp_lr_cosine_from(3, 4, 12, 0.2, 0.8, 0.1), 0.5 },
        { "cosine from, top", tp_lr_cosine_from(5, 4, 12, 0.2, 0.8, 0.1), 0.8 },
        { "cosine from, half way", tp_lr_cosine_from(9, 4, 12, 0.2, 0.8, 0.1), 0.45 },
        { "cosine from, beyond", tp_lr_cosine_from(13, 4, 12, 0.2, 0.8, 0.1), 0.1 },
        { "cosine from, no warm-up", tp_lr_cosine_from(0, 0, 12, 0.2, 0.8, 0.1), 0.8 },
        { "cosine from, nothing", tp_lr_cosine_from(5, 0, 0, 0.2, 0.8, 0.1), 0.1 },
        { "whole cosine, start", tp_lr_cosine_whole(0, 5, 300, 1e-6, 5e-4, 1e-5), 1e-6 },
        { "whole cosine, warm-up", tp_lr_cosine_whole(2, 5, 300, 1e-6, 5e-4, 1e-5),
          1e-6 + 0.4 * 4.99e-4 },
        { "whole cosine, after", tp_lr_cosine_whole(5, 5, 300, 1e-6, 5e-4, 1e-5),
          1e-5 + 2.45e-4 * (1 + cos(pi / 60)) },
        { "whole cosine, half way", tp_lr_cosine_whole(150, 5, 300, 1e-6, 5e-4, 1e-5), 2.55e-4 },
        { "whole cosine, beyond", tp_lr_cosine_whole(300, 5, 300, 1e-6, 5e-4, 1e-5), 1e-5 },
        { "step, warm-up", tp_lr_step(0, 2, 3, 0.1, 0.8), 0.4 },
        { "step, first", tp_lr_step(4, 2, 3, 0.1, 0.8), 0.8 },
        { "step, second", tp_lr_step(5, 2, 3, 0.1, 0.8), 0.08 },
        { "step, third", tp_lr_step(8, 2, 3, 0.1, 0.8), 0.008 },
        { "step, never", tp_lr_step(8, 2, 0, 0.1, 0.8), 0.8 },
        /* the maximum is at pct * total - 1 = 2, the end at 9 */
        { "onecycle, first", tp_lr_onecycle(0, 10, 0.1, 0.3, 25, 1e4), 0.004 },
        { "onecycle, rising", tp_lr_onecycle(1, 10, 0.1, 0.3, 25, 1e4), 0.052 },
        { "onecycle, top", tp_lr_onecycle(2, 10, 0.1, 0.3, 25, 1e4), 0.1 },
        { "onecycle, falling", tp_lr_onecycle(4, 10, 0.1, 0.3, 25, 1e4),
          4e-7 + 0.5 * (0.1 - 4e-7) * (1 + cos(2 * pi / 7)) },
        { "onecycle, last", tp_lr_onecycle(9, 10, 0.1, 0.3, 25, 1e4), 4e-7 },
        { "onecycle, beyond", tp_lr_onecycle(10, 10, 0.1, 0.3, 25, 1e4), 4e-7 },
        /* the maximum is between two updates: 0.25 * 10 - 1 = 1.5 */
        { "onecycle, before a broken top", tp_lr_onecycle(1, 10, 0.1, 0.25, 25, 1e4),
          0.1 + 0.5 * (0.004 - 0.1) * (1 + cos(pi / 1.5)) },
        { "onecycle, after a broken top", tp_lr_onecycle(2, 10, 0.1, 0.25, 25, 1e4),
          4e-7 + 0.5 * (0.1 - 4e-7) * (1 + cos(pi * 0.5 / 7.5)) },
        { "onecycle, top at once", tp_lr_onecycle(0, 10, 0.1, 0.1, 25, 1e4), 0.1 },
        { "onecycle, only rising", tp_lr_onecycle(9, 10, 0.1, 1.0, 25, 1e4), 0.1 },
        { "cycle, first", tp_cycle_linear(0, 5000, 0.2, 4e-6, 1e-4, 4e-10), 4e-6 },
        { "cycle, rising", tp_cycle_linear(500, 5000, 0.2, 4e-6, 1e-4, 4e-10),
          5.204804804804805e-5 },
        { "cycle, top", tp_cycle_linear(999, 5000, 0.2, 4e-6, 1e-4, 4e-10), 1e-4 },
        { "cycle, falling", tp_cycle_linear(4998, 5000, 0.2, 4e-6, 1e-4, 4e-10),
          2.5399900024993752e-8 },
        { "cycle, last", tp_cycle_linear(4999, 5000, 0.2, 4e-6, 1e-4, 4e-10), 4e-10 },
        { "cycle, beyond", tp_cycle_linear(9999, 5000, 0.2, 4e-6, 1e-4, 4e-10), 4e-10 },
        { "cycle, a momentum", tp_cycle_linear(999, 5000, 0.2, 0.95, 0.85, 0.95), 0.85 },
        { "cycle, top at once", tp_cycle_linear(0, 10, 0.1, 0.0, 1.0, 0.0), 1.0 },
        { "onecycle, one update", tp_lr_onecycle(0, 1, 0.1, 0.3, 25, 1e4), 4e-7 },
    };
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
        cr_expect(fabs(rates[i].is - rates[i].should) <= 1e-15 + 1e-14 * rates[i].should,
                  "%s: %.17g, not %.17g", rates[i].name, rates[i].is, rates[i].should);
}

/* Rates of torch.optim.lr_scheduler.ReduceLROnPlateau after the same scores. */
Test(schedule, plateau)
{
    enum { N = 22 };
    static const double scores[N] = { 1.0, 0.9,      0.91, 0.95, 0.89995, 0.899, 0.9, 0.9,
                                      0.9, 0.9,      NAN,  0.5,  0.5,     0.5,   0.5, 0.5,
                                      -1., -1.00005, -1.5, -1.5, -1.5,    -1.5 };
    static const struct {
        const char *name;
        tp_plateau options;
        double rates[N];
    } cases
        [] = {
            { "patience",
              { .factor = 0.1, .patience = 2, .threshold = 1e-4, .eps = 1e-8 },
              { .8,   .8,   .8,   .8,   .08,  .08,  .08,  .08,  .008, .008, .008,
                .008, .008, .008, 8e-4, 8e-4, 8e-4, 8e-4, 8e-4, 8e-4, 8e-4, 8e-4 } },
            { "cooldown",
              { .factor = 0.5, .patience = 1, .cooldown = 2, .threshold = 1e-4, .eps = 1e-8 },
              { .8, .8, .8, .4, .4, .4, .4, .2, .2, .2, .2,
                .2, .2, .1, .1, .1, .1, .1, .1, .1, .1, .1 } },
            { "higher",
              { .factor = 0.25, .patience = 3, .threshold = 0.01, .eps = 1e-8, .higher = true },
              { .8,      .8,      .8,      .8,      .2,       .2,      .2,    .2,
                .05,     .05,     .05,     .05,     .0125,    .0125,   .0125, .0125,
                3125e-6, 3125e-6, 3125e-6, 3125e-6, 78125e-8, 78125e-8 } },
            { "absolute",
              { .factor = 0.5,
                .patience = 2,
                .threshold = 0.2,
                .eps = 1e-8,
                .min_lr = 0.15,
                .absolute = true },
              { .8,  .8,  .8,  .4,  .4,  .4,  .2,  .2,  .2,  .15, .15,
                .15, .15, .15, .15, .15, .15, .15, .15, .15, .15, .15 } },
            { "higher, absolute",
              { .factor = 0.5,
                .threshold = 0.02,
                .eps = 1e-8,
                .min_lr = 1e-3,
                .higher = true,
                .absolute = true },
              { .8,   .4,   .2,   .1,   .05,  .025, .0125, .00625, .003125, .0015625, 1e-3,
                1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3,  1e-3,   1e-3,    1e-3,     1e-3 } },
            { "small changes",
              { .factor = 0.9, .threshold = 1e-4, .eps = 0.05 },
              { .8,      .8,      .72,     .648,    .5832,   .5832,   .52488,  .472392,
                .472392, .472392, .472392, .472392, .472392, .472392, .472392, .472392,
                .472392, .472392, .472392, .472392, .472392, .472392 } },
        };
    make_folder();
    const char *path = in_folder("plateau.safetensors");
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        tp_plateau S = cases[c].options;
        S.lr = 0.8;
        S.best = (double)NAN;
        for (int i = 0; i < N; i++) {
            tp_plateau again = cases[c].options; /* each step after a checkpoint */
            tp_writer *W = tp_writer_new(path);
            tp_plateau_write(&S, W, NULL);
            cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
            tp_writer_free(W);
            tp_file *F = tp_file_open(path);
            cr_assert(tp_plateau_read(&again, F, NULL), "%s", tp_file_why(F));
            tp_file_close(F);
            S = again;
            const double lr = tp_plateau_step(&S, scores[i]), should = cases[c].rates[i];
            cr_expect(fabs(lr - should) <= 1e-14, "%s, score %d: %.17g, not %.17g", cases[c].name,
                      i, lr, should);
        }
    }
    remove_folder();
}

/* A file without this state, or with impossible numbers, changes nothing. */
Test(schedule, plateau_of_another_file)
{
    static const struct {
        const char *key;
        double value;
    } cases[] = {
        { NULL, 0 }, { "plateau.lr", -1 }, { "plateau.bad", -1 }, { "plateau.resting", -5 }
    };
    make_folder();
    const char *path = in_folder("plateau.safetensors");
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        static const char *const keys[] = { "plateau.lr", "plateau.bad", "plateau.resting" };
        tp_writer *W = tp_writer_new(path);
        for (int k = 0; cases[c].key && k < 3; k++)
            tp_writer_meta_num(W, keys[k], strcmp(keys[k], cases[c].key) == 0 ? cases[c].value : 1);
        cr_assert(tp_writer_commit(W), "%s", tp_writer_why(W));
        tp_writer_free(W);
        tp_plateau S = tp_plateau_usual(0.5);
        S.bad = 3;
        tp_file *F = tp_file_open(path);
        cr_expect_not(tp_plateau_read(&S, F, NULL), "case %zu", c);
        cr_expect(S.lr == 0.5 && S.bad == 3 && isnan(S.best), "case %zu", c);
        tp_file_close(F);
    }
    remove_folder();
}
