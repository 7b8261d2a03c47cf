/* trial.c - runs functions of tensors and compares results. */
#include "support/trial.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/amx.h"
#include "support/device.h"
#include "support/values.h"

int64_t trial_count(const tp_shape *s)
{
    int64_t n = 1;
    for (int i = 0; i < s->ndim; i++) n *= s->dim[i];
    return n;
}

static double *numbers(int64_t n)
{
    return calloc((size_t)n + 1, sizeof(double));
}

static double *input_values(const trial *t, int i)
{
    const int64_t n = trial_count(&t->in[i]);
    double *x = numbers(n);
    if (t->x[i])
        memcpy(x, t->x[i], (size_t)n * sizeof *x);
    else
        values_random(x, n, 100 + (uint64_t)i);
    return x;
}

static void run_on(tp_tape *T, const trial *t, trial_result *r)
{
    tp_tensor x[TRIAL_INPUTS];
    for (int i = 0; i < TRIAL_INPUTS; i++) {
        x[i] = TP_NONE;
        if (t->in[i].ndim == 0) continue;
        r->x[i] = input_values(t, i);
        const bool wanted = !(t->constant >> i & 1u);
        x[i] = (wanted ? values_input : values_constant)(T, t->dtype, t->in[i], r->x[i]);
        if (wanted) r->dx[i] = numbers(trial_count(&t->in[i]));
    }
    const tp_tensor y = t->f(T, x, t->env);
    r->shape = tp_shape_of(y);
    r->ny = tp_numel(y);
    r->y = numbers(r->ny);
    r->dy = numbers(r->ny);
    values_random(r->dy, r->ny, 99);
    values_read(T, y, r->y);
    const tp_tensor dy = values_constant(T, tp_dtype_of(y), r->shape, r->dy);
    tp_backward(T, tp_sum(T, tp_mul(T, y, dy), TP_ALL));
    for (int i = 0; i < TRIAL_INPUTS && tp_ok(T); i++)
        if (r->dx[i]) values_read(T, tp_grad(T, x[i]), r->dx[i]);
}

bool trial_can(tp_dtype dt, tp_isa isa)
{
    if (device_is_cuda()) return dt != TP_F64 && isa <= TP_ISA_BASE;
    return amx_isa_runs(isa);
}

trial_result trial_run(const trial *t)
{
    trial_result r = { .ny = 0 };
    const tp_device_opts opts = { .threads = t->threads ? t->threads : 2,
                                  .isa = t->isa,
                                  .exact = device_is_emulated() };
    tp_device *D = t->isa == TP_ISA_AMX ? amx_open(&opts) : device_open(&opts);
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = t->compute, .train = !t->eval });
    run_on(T, t, &r);
    snprintf(r.why, sizeof r.why, "%s", tp_why(T));
    tp_tape_free(T);
    tp_device_close(D);
    return r;
}

void trial_free(trial_result *r)
{
    free(r->y);
    free(r->dy);
    for (int i = 0; i < TRIAL_INPUTS; i++) {
        free(r->x[i]);
        free(r->dx[i]);
    }
}

static bool equal(const double *a, const double *b, int64_t n)
{
    return !a || memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

bool trial_same_on_threads(const trial *t)
{
    static const int threads[] = { 1, 2, 3, 5 };
    trial_result first = { .ny = 0 };
    bool same = true;
    for (size_t k = 0; k < sizeof threads / sizeof *threads; k++) {
        trial now = *t;
        now.threads = threads[k];
        if (!device_set_order((int)k) && device_is_emulated()) break; /* there is no other order */
        trial_result r = trial_run(&now);
        if (*r.why) fprintf(stderr, "%s\n", r.why);
        if (k > 0) {
            same = same && !*r.why && equal(r.y, first.y, r.ny);
            for (int i = 0; i < TRIAL_INPUTS && same; i++)
                same = equal(r.dx[i], first.dx[i], trial_count(&t->in[i]));
            trial_free(&r);
        } else {
            first = r;
        }
    }
    device_set_order(0);
    trial_free(&first);
    return same;
}

bool trial_fails(const trial *t, const char *text)
{
    trial_result r = trial_run(t);
    const bool as_told = *r.why && strncmp(r.why, text, strlen(text)) == 0;
    if (!as_told) fprintf(stderr, "expected: %s\ngot: %s\n", text, *r.why ? r.why : "no error");
    trial_free(&r);
    return as_told;
}

void trial_compare(const trial *t, trial_naive naive, const char *name, double tol)
{
    trial_result r = trial_run(t);
    cr_expect_str_empty(r.why, "%s: %s", name, r.why);
    double *y = numbers(r.ny), *dx[TRIAL_INPUTS];
    for (int i = 0; i < TRIAL_INPUTS; i++) dx[i] = numbers(trial_count(&t->in[i]));
    naive(t->env, &r, y, dx);
    cr_expect_lt(values_error(r.y, y, r.ny, 0), tol, "%s: y, isa %d", name, (int)t->isa);
    for (int i = 0; i < TRIAL_INPUTS; i++) {
        if (r.dx[i])
            cr_expect_lt(values_error(r.dx[i], dx[i], trial_count(&t->in[i]), 0), tol,
                         "%s: gradient %d, isa %d", name, i, (int)t->isa);
        free(dx[i]);
    }
    free(y);
    trial_free(&r);
}
