/* test_optim.c - every form of every optimiser against plain loops in double; preconditions of a
 * step. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "support/device.h"
#include "support/optim_world.h"
#include "support/weigh.h"
#include "tensor/backend.h"

static void plain_run(const optim_form *f, optim_plain *s, int i)
{
    static double g[OPTIM_LARGEST], h[OPTIM_LARGEST];
    for (int step = 0; step < OPTIM_STEPS; step++) {
        if (!optim_reached(step, i)) {
            optim_plain_skip(f, s, 0.05 / (step + 1));
            continue;
        }
        optim_gradient(step, i, g);
        if (step == 4) {
            optim_gradient(step + 50, i, h);
            for (int64_t k = 0; k < optim_params[i].numel; k++) g[k] = 0.5 * (g[k] + h[k]);
        }
        optim_plain_step(f, s, g, 0.05 / (step + 1));
    }
}

Test(optim, every_form_against_plain_loops, .timeout = 120)
{
    static optim_plain s[OPTIM_PARAMS];
    static double now[OPTIM_LARGEST];
    for (size_t c = 0; optim_forms[c / 2].name; c++) {
        const optim_form *f = &optim_forms[c / 2];
        const tp_dtype dt = c % 2 ? TP_F64 : TP_F32;
        const double limit = c % 2 ? 1e-13 : 2e-6;
        if (dt == TP_F64 && device_is_cuda()) continue;
        optim_world w = optim_world_new(dt, 2);
        tp_optim *O = optim_make(w.P, f);
        memset(s, 0, sizeof s);
        for (int i = 0; i < OPTIM_PARAMS; i++) {
            s[i].name = optim_params[i].name;
            s[i].shape = optim_params[i].shape;
            s[i].numel = optim_params[i].numel;
            optim_get(&w, i, s[i].p);
        }
        for (int step = 0; step < OPTIM_STEPS; step++)
            optim_run_step(&w, O, step, 0.05 / (step + 1));
        cr_expect_eq(tp_optim_updates(O), OPTIM_STEPS);
        for (int i = 0; i < OPTIM_PARAMS; i++) {
            double worst = 0.0;
            plain_run(f, &s[i], i);
            optim_get(&w, i, now);
            for (int64_t k = 0; k < optim_params[i].numel; k++)
                worst = fmax(worst, fabs(now[k] - s[i].p[k]));
            cr_expect(worst <= limit, "%s, %s: %s is off by %g", f->name, tp_dtype_name(dt),
                      optim_params[i].name, worst);
        }
        tp_optim_free(O);
        optim_world_free(&w);
    }
}

Test(optim, bits_do_not_depend_on_threads)
{
    static const char *const forms[] = { "adam",          "rmsprop all", "lamb all",
                                         "adafactor all", "muon",        "schedulefree all" };
    static double a[OPTIM_LARGEST], b[OPTIM_LARGEST];
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        optim_world one = optim_world_new(TP_F32, 1), many = optim_world_new(TP_F32, 7);
        tp_optim *O1 = optim_make(one.P, optim_form_of(forms[f]));
        tp_optim *O7 = optim_make(many.P, optim_form_of(forms[f]));
        for (int step = 0; step < OPTIM_STEPS; step++) {
            optim_run_step(&one, O1, step, 0.05);
            optim_run_step(&many, O7, step, 0.05);
        }
        for (int i = 0; i < OPTIM_PARAMS; i++) {
            optim_get(&one, i, a);
            optim_get(&many, i, b);
            cr_expect_arr_eq(a, b, (size_t)optim_params[i].numel * sizeof *a, "%s: %s differs",
                             forms[f], optim_params[i].name);
        }
        tp_optim_free(O1);
        tp_optim_free(O7);
        optim_world_free(&one);
        optim_world_free(&many);
    }
}

/* ---- before a step ---- */

Test(optim, a_step_without_gradients_fails_and_the_next_may_succeed)
{
    static double before[OPTIM_LARGEST], after[OPTIM_LARGEST];
    optim_world w = optim_world_new(TP_F32, 1);
    tp_optim *O = tp_adamw_new(w.P, NULL);
    optim_get(&w, 0, before);
    cr_expect(!tp_step(O, 0.1));
    cr_expect(!tp_optim_ok(O));
    cr_expect_str_eq(tp_optim_why(O), "tp_step: no tp_backward has completed since the last step");
    optim_get(&w, 0, after);
    cr_expect_arr_eq(before, after, sizeof before, "the values changed");
    cr_expect_eq(tp_optim_updates(O), 0);
    optim_run_step(&w, O, 0, 0.1);
    cr_expect(tp_optim_ok(O), "%s", tp_optim_why(O));
    optim_get(&w, 0, after);
    cr_expect_neq(before[0], after[0], "nothing changed");
    cr_expect(!tp_step(O, 0.1), "the gradients were used before");
    tp_optim_free(O);
    optim_world_free(&w);
}

Test(optim, a_failed_backward_marks_the_gradients)
{
    static double before[OPTIM_LARGEST], after[OPTIM_LARGEST];
    static double g[OPTIM_LARGEST];
    double *at = g;
    optim_world w = optim_world_new(TP_F32, 1);
    tp_optim *O = tp_sgd_new(w.P, NULL);
    optim_get(&w, 0, before);
    give_grads(w.T, 1, w.p, &at);
    tp_from(w.T, TP_F32, TP_SHAPE(-1), g); /* fails the tape */
    tp_backward(w.T, TP_NONE);
    cr_expect(!tp_step(O, 0.1));
    cr_expect_str_eq(tp_optim_why(O), tp_why(w.T), "the text is the tape's");
    tp_clear(w.T);
    cr_expect(!tp_step(O, 0.1), "the mark stays");
    optim_get(&w, 0, after);
    cr_expect_arr_eq(before, after, sizeof before, "the values changed");
    tp_grad_clear(w.P);
    optim_gradient(0, 0, g);
    give_grads(w.T, 1, w.p, &at);
    cr_expect(tp_step(O, 0.1), "%s", tp_optim_why(O));
    tp_optim_free(O);
    optim_world_free(&w);
}

static tp_factors uphill(const char *name, tp_shape s, void *env)
{
    (void)name;
    (void)s;
    (void)env;
    return (tp_factors){ -1.0, 1.0 };
}

static tp_optim *with(tp_params *P, const char *kind, const char *option, double value)
{
    const tp_optim_value values[] = { { option, value }, { NULL, 0 } };
    return tp_optim_new(P, kind, &(tp_optim_opts){ .values = values });
}

Test(optim, bad_numbers_and_failed_parameters)
{
    static double g[OPTIM_LARGEST];
    double *at = g;
    optim_world w = optim_world_new(TP_F32, 1);
    const struct {
        tp_optim *O;
        const char *why;
    } cases[] = {
        { tp_sgd_new(w.P, &(tp_sgd_opts){ .momentum = 1.0 }),
          "sgd: momentum must be in [0, 1), not 1" },
        { tp_sgd_new(w.P, &(tp_sgd_opts){ .nesterov = true }), "sgd: nesterov needs a momentum" },
        { with(w.P, "qhm", "nu", 1.5), "qhm: nu must be in [0, 1], not 1.5" },
        { tp_adam_new(w.P, &(tp_adam_opts){ .beta1 = -0.5 }),
          "adam: beta1 must be in [0, 1), not -0.5" },
        { tp_adamw_new(w.P, &(tp_adamw_opts){ .weight_decay = NAN }),
          "adamw: weight_decay must be in [0, inf), not nan" },
        { with(w.P, "rmsprop", "alpha", 1.0), "rmsprop: alpha must be in [0, 1), not 1" },
        { with(w.P, "adagrad", "lr_decay", -1.0), "adagrad: lr_decay must be in [0, inf), not -1" },
        { with(w.P, "lion", "beta2", 2.0), "lion: beta2 must be in [0, 1), not 2" },
        { with(w.P, "adafactor", "d", 0.5), "adafactor: d must be in [1, inf), not 0.5" },
        { with(w.P, "adafactor", "beta2_decay", 0.1),
          "adafactor: beta2_decay must be in [-inf, 0], not 0.1" },
        { with(w.P, "lamb", "nu", 0.5), "lamb has no option 'nu'" },
        { tp_optim_new(w.P, NULL, NULL), "optimiser: NULL was given in place of a name" },
        { with(w.P, "adm", "nu", 0.5),
          "no optimiser is named 'adm'; there are adamw, adam, sgd, qhm, adamw-vil, rmsprop, "
          "adagrad, lion, lamb, adafactor, muon, schedulefree" },
        { with(w.P, "schedulefree", "beta1", 0.0),
          "schedulefree: beta1 must be above 0, or no average could be found" },
        { with(w.P, "muon", "newton_schulz", 0.0),
          "muon: newton_schulz must be in [1, 20], not 0" },
        { tp_adam_new(w.P, &(tp_adam_opts){ .factors = uphill }),
          "adam: the factors of 'wide.weight' are -1 and 1; both must be finite and at least 0" },
    };
    give_grads(w.T, 1, w.p, &at);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_expect_str_eq(tp_optim_why(cases[i].O), cases[i].why, "%s", tp_optim_why(cases[i].O));
        cr_expect(!tp_step(cases[i].O, 0.1));
        tp_optim_free(cases[i].O);
    }
    tp_optim *O = tp_sgd_new(w.P, NULL);
    cr_expect(!tp_step(O, INFINITY));
    cr_expect(!tp_step(O, -0.1));
    cr_expect_str_eq(tp_optim_why(O), "tp_step: learning rate -0.1 and gradient scale 1 must be "
                                      "finite, the rate not negative");
    cr_expect(!tp_step(O, NAN));
    cr_expect(tp_step(O, 0.1), "%s", tp_optim_why(O));
    tp_param(w.P, "too late", TP_SHAPE(1), (tp_init){ TP_INIT_ZERO, 0, 0 }, 0);
    tp_optim *failed = tp_adam_new(w.P, NULL);
    cr_expect_str_eq(tp_optim_why(failed), tp_params_why(w.P));
    cr_expect(!tp_step(O, 0.1));
    cr_expect_str_eq(tp_optim_why(O), tp_params_why(w.P));
    tp_optim_free(failed);
    tp_optim_free(O);
    optim_world_free(&w);
}

/* After many equal gradients the variance in centred RMSprop's divisor is 0 up to rounding. */
Test(optim, centered_rmsprop_of_equal_gradients)
{
    static double g[OPTIM_LARGEST], now[OPTIM_LARGEST];
    const tp_optim_value options[] = {
        { "alpha", 0.7 }, { "eps", 1e-3 }, { "centered", 1 }, { NULL, 0 }
    };
    optim_world w = optim_world_new(TP_F32, 2);
    tp_optim *O = tp_optim_new(w.P, "rmsprop", &(tp_optim_opts){ .values = options });
    optim_gradient(0, 1, g);
    for (int step = 0; step < 80; step++) {
        cr_assert(
            tp_param_set_grad(w.P, w.p[1], TP_F64, g, (size_t)optim_params[1].numel * sizeof *g));
        cr_assert(tp_step(O, 1e-3), "%s", tp_optim_why(O));
    }
    optim_get(&w, 1, now);
    for (int64_t k = 0; k < optim_params[1].numel; k++)
        cr_assert(isfinite(now[k]), "element %lld of %g", (long long)k, g[k]);
    tp_optim_free(O);
    optim_world_free(&w);
}

/* The moments of matrices are those of rows and columns; others have the parameter's size. */
Test(optim, bytes_of_moments)
{
    tp_device *D = device_open(&(tp_device_opts){ .threads = 1 });
    tp_params *P = tp_params_new(D, NULL);
    const tp_init zero = { TP_INIT_ZERO, 0, 0 };
    tp_param(P, "embedding", TP_SHAPE(2000, 64), zero, 0);
    tp_param(P, "stack", TP_SHAPE(3, 128, 64), zero, 0);
    tp_param(P, "bias", TP_SHAPE(64), zero, 0);
    tp_optim *adam = tp_adam_new(P, NULL), *sgd = tp_sgd_new(P, NULL);
    const size_t before = tp_device_stats(D).live_bytes;
    tp_optim *O = tp_optim_new(P, "adafactor", NULL);
    const size_t grown = tp_device_stats(D).live_bytes - before;
    const size_t exact = (2000 + 64 + 3 * (128 + 64) + 64) * sizeof(float);
    cr_expect_eq(tp_optim_bytes(O), exact, "%zu", tp_optim_bytes(O));
    cr_expect(grown >= exact && grown <= exact + 3 * 512, "%zu bytes for %zu", grown, exact);
    cr_expect_eq(tp_optim_bytes(adam), 2 * (2000 * 64 + 3 * 128 * 64 + 64) * sizeof(float));
    cr_expect_eq(tp_optim_bytes(sgd), 0);
    cr_expect(tp_optim_set(sgd, "momentum", 0.9));
    cr_expect_eq(tp_optim_bytes(sgd), tp_optim_bytes(adam) / 2);
    tp_optim_free(O);
    tp_optim_free(sgd);
    tp_optim_free(adam);
    tp_params_free(P);
    tp_device_close(D);
}

/* The default eps1 is that of the dtype; a zero parameter with zero gradients stays. */
Test(optim, adafactor_at_zero)
{
    static double g[OPTIM_LARGEST], now[OPTIM_LARGEST];
    double *at[2] = { g, g };
    for (int f64 = 0; f64 <= !device_is_cuda(); f64++) {
        optim_world w = optim_world_new(f64 ? TP_F64 : TP_F32, 2);
        tp_optim *O = tp_optim_new(w.P, "adafactor", NULL);
        cr_expect_eq(tp_optim_get(O, "eps1"), ldexp(1.0, f64 ? -52 : -23));
        for (int i = 0; i < 2; i++)
            cr_assert(
                tp_param_set(w.P, w.p[i], TP_F64, g, (size_t)optim_params[i].numel * sizeof *g));
        give_grads(w.T, 2, w.p, at);
        cr_expect(tp_step(O, 0.1), "%s", tp_optim_why(O));
        for (int i = 0; i < 2; i++) {
            optim_get(&w, i, now);
            for (int64_t k = 0; k < optim_params[i].numel; k++) cr_assert_eq(now[k], 0.0);
        }
        tp_optim_free(O);
        optim_world_free(&w);
    }
}

/* ---- options changed between steps ---- */

static void change(optim_form *f, const tp_optim_value *v, int n)
{
    for (int i = 0; i < n && v[i].name; i++) {
        tp_optim_value *o = f->options;
        while (o->name && strcmp(o->name, v[i].name) != 0) o++;
        *o = v[i];
    }
}

/* Changing a run's options after step 2 gives the values of plain loops that do the same. */
Test(optim, options_change_between_steps)
{
    static const struct {
        const char *form;
        tp_optim_value changed[2];
    } cases[] = {
        { "sgd", { { "weight_decay", 0.1 } } },
        { "sgd", { { "weight_decay", 0.1 }, { "momentum", 0.9 } } },
        { "sgd momentum", { { "momentum", 0.0 } } },
        { "adamw", { { "weight_decay", 0.0 }, { "beta1", 0.8 } } },
        { "rmsprop all", { { "momentum", 0.0 }, { "centered", 0.0 } } },
        { "lion", { { "beta1", 0.83 }, { "beta2", 0.71 } } },
    };
    static optim_plain s;
    static double now[OPTIM_LARGEST], g[OPTIM_LARGEST];
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const optim_form *before = optim_form_of(cases[c].form);
        optim_form after = *before;
        change(&after, cases[c].changed, 2);
        optim_world w = optim_world_new(TP_F32, 2);
        tp_optim *O = optim_make(w.P, before);
        memset(&s, 0, sizeof s);
        s.name = optim_params[1].name;
        s.shape = optim_params[1].shape;
        s.numel = optim_params[1].numel;
        optim_get(&w, 1, s.p);
        for (int step = 0; step < 4; step++) {
            for (int i = 0; step == 2 && i < 2 && cases[c].changed[i].name; i++) {
                const tp_optim_value v = cases[c].changed[i];
                cr_expect(tp_optim_set(O, v.name, v.value), "%s", tp_optim_why(O));
                cr_expect_eq(tp_optim_get(O, v.name), v.value);
            }
            if (step == 2 && strcmp(before->kind, "sgd") == 0) memset(s.m, 0, sizeof s.m);
            optim_gradient(step, 1, g);
            optim_plain_step(step < 2 ? before : &after, &s, g, 0.05);
            optim_run_step(&w, O, step, 0.05);
        }
        optim_get(&w, 1, now);
        double worst = 0.0;
        for (int64_t k = 0; k < s.numel; k++) worst = fmax(worst, fabs(now[k] - s.p[k]));
        cr_expect(worst <= 2e-6, "%s, %s changed: off by %g", before->name,
                  cases[c].changed[0].name, worst);
        tp_optim_free(O);
        optim_world_free(&w);
    }
}

Test(optim, impossible_changes_of_options)
{
    static const struct {
        const char *name;
        double value;
        const char *why;
    } cases[] = {
        { "beta1", 0.5,
          "tp_optim_set: adagrad has no option 'beta1'; it has weight_decay, eps, lr_decay, "
          "initial_accumulator" },
        { NULL, 0.5, "tp_optim_set: adagrad has no option '(NULL)'; it has weight_decay, eps" },
        { "eps", -1.0, "adagrad: eps must be in [0, inf), not -1" },
        { "eps", NAN, "adagrad: eps must be in [0, inf), not nan" },
        { "initial_accumulator", 1.0,
          "tp_optim_set: initial_accumulator is read only when the optimiser is created" },
    };
    optim_world w = optim_world_new(TP_F32, 1);
    tp_optim *O = tp_optim_new(w.P, "adagrad", NULL), *S = tp_sgd_new(w.P, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_expect_not(tp_optim_set(O, cases[i].name, cases[i].value), "case %zu", i);
        cr_expect_eq(strncmp(tp_optim_why(O), cases[i].why, strlen(cases[i].why)), 0, "%s",
                     tp_optim_why(O));
        cr_expect_eq(tp_optim_get(O, "eps"), 1e-10);
    }
    cr_expect_not(tp_optim_set(S, "nesterov", 1.0));
    cr_expect_str_eq(tp_optim_why(S), "sgd: nesterov needs a momentum");
    cr_expect(tp_optim_set(S, "momentum", 0.9) && tp_optim_set(S, "nesterov", 1.0));
    cr_expect(isnan(tp_optim_get(S, "beta1")) && isnan(tp_optim_get(NULL, "eps")));
    cr_expect_not(tp_optim_set(NULL, "eps", 1.0));
    optim_run_step(&w, O, 0, 0.1);
    cr_expect(tp_optim_ok(O), "a step clears the refusal: %s", tp_optim_why(O));
    tp_optim_free(S);
    tp_optim_free(O);
    optim_world_free(&w);
}

static int allocations_left;

static void *limited_alloc(tp_device *D, size_t bytes)
{
    return allocations_left-- > 0 ? tp__cpu_backend.alloc(D, bytes) : NULL;
}

/* Running out of memory after any number of allocations gives an error, no crash and no leak. */
Test(optim, out_of_device_memory)
{
    tp_backend limited = tp__cpu_backend;
    limited.alloc = limited_alloc;
    for (int n = 0; n < 6; n++) { /* values; moments; average, its chunk */
        static const char *const text = "adam: out of memory on cpu: requested 4.0 MiB";
        tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .threads = 1 });
        tp_params *P = tp_params_new(D, NULL);
        D->be = &limited;
        allocations_left = n;
        tp_param(P, "large", TP_SHAPE(1 << 20), (tp_init){ TP_INIT_ZERO, 0, 0 }, 0);
        tp_optim *O = tp_adam_new(P, NULL);
        tp_ema *E = tp_ema_new(P, 0.9);
        cr_expect_eq(tp_params_ok(P), n >= 1, "%s", tp_params_why(P));
        cr_expect_eq(tp_optim_ok(O), n >= 3, "%s", tp_optim_why(O));
        cr_expect_eq(tp_ema_ok(E), n >= 5, "%s", tp_ema_why(E));
        if (n == 1 || n == 2)
            cr_expect_eq(strncmp(tp_optim_why(O), text, strlen(text)), 0, "%s", tp_optim_why(O));
        allocations_left = 0;
        tp_ema_swap(E); /* needs no memory */
        cr_expect_eq(tp_ema_ok(E), n >= 5, "%s", tp_ema_why(E));
        tp_ema_free(E);
        tp_optim_free(O);
        tp_params_free(P);
        tp_device_close(D);
    }
}
