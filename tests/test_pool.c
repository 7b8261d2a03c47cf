/* test_pool.c - pooling against naive loops in f64, on every instruction set: values and gradients
 * for kernels, strides and pads; ties and NaN; equal bits on any number of threads, messages. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "support_device.h"
#include "support_trial.h"
#include "support_values.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

typedef struct pool {
    const char *name;
    bool max;
    tp_shape x; /* [B,H,W,C] */
    tp_pool_cfg o;
} pool;

static const pool pools[] = {
    { "max 2x2", true, { 4, { 2, 8, 6, 3 } }, { .kernel = { 2, 2 } } },
    { "max 3x3, stride 2",
      true,
      { 4, { 2, 9, 12, 37 } },
      { .kernel = { 3, 3 }, .stride = { 2, 2 }, .pad = { 1, 1 } } },
    { "max, axes apart",
      true,
      { 4, { 1, 9, 7, 5 } },
      { .kernel = { 2, 4 }, .stride = { 3, 1 }, .pad = { 1, 2 } } },
    { "mean 2x2", false, { 4, { 2, 7, 6, 3 } }, { .kernel = { 2, 2 } } },
    { "mean 3x3, stride 2",
      false,
      { 4, { 2, 9, 12, 37 } },
      { .kernel = { 3, 3 }, .stride = { 2, 2 }, .pad = { 1, 1 } } },
    { "mean 3x3, pad ignored",
      false,
      { 4, { 2, 9, 12, 37 } },
      { .kernel = { 3, 3 }, .stride = { 2, 2 }, .pad = { 1, 1 }, .ignore_pad = true } },
    { "mean of all", false, { 4, { 3, 7, 7, 40 } }, { .kernel = { 7, 7 } } },
    { "mean, axes apart",
      false,
      { 4, { 1, 9, 7, 5 } },
      { .kernel = { 2, 4 }, .stride = { 3, 1 }, .pad = { 1, 2 }, .ignore_pad = true } },
    { "no images", true, { 4, { 0, 4, 4, 2 } }, { .kernel = { 2, 2 } } },
    { "no columns", false, { 4, { 1, 4, 0, 2 } }, { .kernel = { 2, 2 } } },
};

static tp_tensor apply(tp_tape *T, const tp_tensor *x, const void *env)
{
    const pool *p = env;
    return (p->max ? tp_max_pool2d : tp_avg_pool2d)(T, x[0], p->o);
}

/* Adds output o = (b, oh, ow, c), element `at`, to y and its gradients to dx. */
static void naive_output(const pool *p, const trial_result *r, const int64_t o[4], int64_t at,
                         double *y, double *dx)
{
    const int64_t H = p->x.dim[1], W = p->x.dim[2], C = p->x.dim[3];
    const int64_t *k = p->o.kernel, sh = p->o.stride[0] ? p->o.stride[0] : k[0];
    const int64_t sw = p->o.stride[1] ? p->o.stride[1] : k[1];
    int64_t seen[64], n = 0, best = 0;
    for (int64_t i = 0; i < k[0]; i++)
        for (int64_t j = 0; j < k[1]; j++) {
            const int64_t h = o[1] * sh - p->o.pad[0] + i, w = o[2] * sw - p->o.pad[1] + j;
            if (h < 0 || h >= H || w < 0 || w >= W) continue;
            seen[n] = ((o[0] * H + h) * W + w) * C + o[3];
            if (r->x[0][seen[n]] > r->x[0][seen[best]]) best = n;
            n++;
        }
    const double count = (double)(p->o.ignore_pad ? n : k[0] * k[1]);
    y[at] = p->max ? r->x[0][seen[best]] : 0.0;
    if (p->max) dx[seen[best]] += r->dy[at];
    for (int64_t i = 0; i < n && !p->max; i++) {
        y[at] += r->x[0][seen[i]] / count;
        dx[seen[i]] += r->dy[at] / count;
    }
}

static void check(const pool *p, tp_dtype dt, tp_isa isa, double tol)
{
    const trial t = { apply, p, .in = { p->x }, .dtype = dt, .compute = dt, .isa = isa };
    trial_result r = trial_run(&t);
    cr_assert_str_empty(r.why, "%s: %s", p->name, r.why);
    const int64_t n = p->x.dim[0] * p->x.dim[1] * p->x.dim[2] * p->x.dim[3];
    double *y = calloc((size_t)r.ny + 1, sizeof *y), *dx = calloc((size_t)n + 1, sizeof *dx);
    for (int64_t e = 0; e < r.ny; e++) {
        const int64_t *d = r.shape.dim;
        const int64_t o[4] = { e / d[3] / d[2] / d[1], e / d[3] / d[2] % d[1], e / d[3] % d[2],
                               e % d[3] };
        naive_output(p, &r, o, e, y, dx);
    }
    cr_expect_lt(values_error(r.y, y, r.ny, 0), tol, "%s: y, isa %d", p->name, (int)isa);
    cr_expect_lt(values_error(r.dx[0], dx, n, 0), tol, "%s: gradient, isa %d", p->name, (int)isa);
    free(y);
    free(dx);
    trial_free(&r);
}

Test(pool, values_and_gradients)
{
    for (tp_isa isa = TP_ISA_BASE; isa <= TP_ISA_AVX512; isa++)
        for (size_t i = 0; i < COUNT(pools); i++) {
            if (trial_can(TP_F32, isa)) check(&pools[i], TP_F32, isa, 1e-6);
            if (trial_can(TP_F64, isa)) check(&pools[i], TP_F64, isa, 1e-14);
        }
}

Test(pool, ties_and_nan)
{
    static const pool p = { "", true, { 4, { 1, 2, 4, 1 } }, { .kernel = { 2, 2 } } };
    const double x[] = { 1.0, 3.0, 2.0, NAN, 3.0, 3.0, NAN, 5.0 };
    const trial t = {
        apply, &p, .in = { p.x }, .x = { x }, .dtype = device_real(), .compute = device_real()
    };
    trial_result r = trial_run(&t);
    cr_assert_eq(r.ny, 2);
    cr_expect_eq(r.y[0], 3.0);
    cr_expect(isnan(r.y[1]), "NaN wins");
    for (int i = 0; i < 8; i++)
        cr_expect_eq(r.dx[0][i], i == 1 ? r.dy[0] : i == 3 ? r.dy[1] : 0.0, "the first: %d", i);
    trial_free(&r);
}

Test(pool, threads_do_not_change_bits)
{
    for (size_t i = 0; i < COUNT(pools); i++) {
        const trial t = { apply, &pools[i], .in = { pools[i].x } };
        cr_expect(trial_same_on_threads(&t), "%s", pools[i].name);
    }
}

Test(pool, messages)
{
    static const struct {
        pool p;
        const char *text;
    } cases[] = {
        { { "", true, { 3, { 4, 4, 2 } }, { .kernel = { 2, 2 } } },
          "max_pool2d: x must be [B,H,W,C]\n  inputs f32[4,4,2]\n" },
        { { "", true, { 4, { 1, 4, 4, 2 } }, { .kernel = { 2, 0 } } },
          "max_pool2d: kernel cannot be 0\n" },
        { { "", false, { 4, { 1, 4, 4, 2 } }, { .kernel = { 2, 2 }, .stride = { -1, 1 } } },
          "avg_pool2d: stride cannot be -1\n" },
        { { "", false, { 4, { 1, 4, 4, 2 } }, { .kernel = { 3, 3 }, .pad = { 1, 2 } } },
          "avg_pool2d: pad cannot be 2: it is at most half of the kernel\n" },
        { { "", false, { 4, { 1, 4, 4, 2 } }, { .kernel = { 3, 7 }, .pad = { 1, 1 } } },
          "avg_pool2d: kernel spans 7, axis 2 with its pad only 6\n" },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const trial t = { apply, &cases[i].p, .in = { cases[i].p.x } };
        cr_expect(trial_fails(&t, cases[i].text), "case %zu", i);
    }
}
