/* test_pool.c - pooling against naive loops in f64, on every instruction set: values and gradients
 * for kernels, strides and pads, rounded up, adaptive; PyTorch's sizes and divisors; ties and NaN;
 * equal bits on any number of threads, messages. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "support/device.h"
#include "support/trial.h"
#include "support/values.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

typedef struct pool {
    const char *name;
    bool max;
    tp_shape x; /* [B,H,W,C] */
    tp_pool_cfg o;
    int64_t size[2]; /* adaptive */
} pool;

static const pool pools[] = {
    { "max 2x2", true, { 4, { 2, 8, 6, 3 } }, .o = { .kernel = { 2, 2 } } },
    { "max 3x3, stride 2",
      true,
      { 4, { 2, 9, 12, 37 } },
      .o = { .kernel = { 3, 3 }, .stride = { 2, 2 }, .pad = { 1, 1 } } },
    { "max, axes apart",
      true,
      { 4, { 1, 9, 7, 5 } },
      .o = { .kernel = { 2, 4 }, .stride = { 3, 1 }, .pad = { 1, 2 } } },
    { "mean 2x2", false, { 4, { 2, 7, 6, 3 } }, .o = { .kernel = { 2, 2 } } },
    { "mean 3x3, stride 2",
      false,
      { 4, { 2, 9, 12, 37 } },
      .o = { .kernel = { 3, 3 }, .stride = { 2, 2 }, .pad = { 1, 1 } } },
    { "mean 3x3, pad ignored",
      false,
      { 4, { 2, 9, 12, 37 } },
      .o = { .kernel = { 3, 3 }, .stride = { 2, 2 }, .pad = { 1, 1 }, .ignore_pad = true } },
    { "mean of all", false, { 4, { 3, 7, 7, 40 } }, .o = { .kernel = { 7, 7 } } },
    { "mean, axes apart",
      false,
      { 4, { 1, 9, 7, 5 } },
      .o = { .kernel = { 2, 4 }, .stride = { 3, 1 }, .pad = { 1, 2 }, .ignore_pad = true } },
    { "max, rounded up",
      true,
      { 4, { 2, 8, 7, 37 } },
      .o = { .kernel = { 3, 2 }, .stride = { 2, 3 }, .pad = { 1, 0 }, .ceil = true } },
    { "mean, rounded up",
      false,
      { 4, { 2, 8, 7, 5 } },
      .o = { .kernel = { 3, 2 }, .stride = { 2, 3 }, .pad = { 1, 1 }, .ceil = true } },
    { "mean, rounded up, pad ignored",
      false,
      { 4, { 1, 6, 9, 5 } },
      .o = { .kernel = { 4, 3 },
             .stride = { 3, 2 },
             .pad = { 2, 1 },
             .ignore_pad = true,
             .ceil = true } },
    { "max to 3 x 4", true, { 4, { 2, 7, 6, 37 } }, .size = { 3, 4 } },
    { "mean to 3 x 4", false, { 4, { 2, 7, 6, 37 } }, .size = { 3, 4 } },
    { "mean to one", false, { 4, { 3, 8, 5, 40 } }, .size = { 1, 1 } },
    { "mean to more", false, { 4, { 1, 3, 2, 5 } }, .size = { 8, 5 } },
    { "no images", true, { 4, { 0, 4, 4, 2 } }, .o = { .kernel = { 2, 2 } } },
    { "no columns", false, { 4, { 1, 4, 0, 2 } }, .o = { .kernel = { 2, 2 } } },
};

static tp_tensor apply(tp_tape *T, const tp_tensor *x, const void *env)
{
    const pool *p = env;
    if (p->size[0])
        return (p->max ? tp_adaptive_max_pool2d : tp_adaptive_avg_pool2d)(T, x[0], p->size[0],
                                                                          p->size[1]);
    return (p->max ? tp_max_pool2d : tp_avg_pool2d)(T, x[0], p->o);
}

/* Stores the window of output o of n along an axis, padding included. */
static void naive_window(const pool *p, int axis, int64_t o, int64_t n, int64_t at[2])
{
    const int64_t in = p->x.dim[1 + axis], k = p->o.kernel[axis], pad = p->o.pad[axis];
    const int64_t stride = p->o.stride[axis] ? p->o.stride[axis] : k;
    at[0] = p->size[0] ? (int64_t)floor((double)(o * in) / (double)n) : o * stride - pad;
    at[1] = p->size[0] ? (int64_t)ceil((double)((o + 1) * in) / (double)n) : at[0] + k;
    if (at[1] > in + pad) at[1] = in + pad;
}

/* Adds output o = (b, oh, ow, c), element `at`, to y and its gradients to dx. */
static void naive_output(const pool *p, const trial_result *r, const int64_t o[4], int64_t at,
                         double *y, double *dx)
{
    const int64_t H = p->x.dim[1], W = p->x.dim[2], C = p->x.dim[3];
    int64_t seen[64], n = 0, best = 0, h[2], w[2];
    naive_window(p, 0, o[1], r->shape.dim[1], h);
    naive_window(p, 1, o[2], r->shape.dim[2], w);
    for (int64_t i = h[0]; i < h[1]; i++)
        for (int64_t j = w[0]; j < w[1]; j++) {
            if (i < 0 || i >= H || j < 0 || j >= W) continue;
            seen[n] = ((o[0] * H + i) * W + j) * C + o[3];
            if (r->x[0][seen[n]] > r->x[0][seen[best]]) best = n;
            n++;
        }
    const double count = (double)(p->o.ignore_pad ? n : (h[1] - h[0]) * (w[1] - w[0]));
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

/* Averages of ones give the window's share in the image. */
Test(pool, windows_rounded_up)
{
    static const struct {
        const char *name;
        pool p;
        int64_t n;
        double y[4];
    } cases[] = {
        { "rounded down",
          { "", false, { 4, { 1, 1, 5, 1 } }, .o = { .kernel = { 1, 2 } } },
          2,
          { 1, 1 } },
        { "clipped at the pad",
          { "", false, { 4, { 1, 1, 5, 1 } }, .o = { { 1, 2 }, .ceil = true } },
          3,
          { 1, 1, 1 } },
        { "the pad counts",
          { "", false, { 4, { 1, 1, 6, 1 } }, .o = { { 1, 3 }, { 1, 2 }, { 0, 1 }, .ceil = true } },
          4,
          { 2.0 / 3, 1, 1, 0.5 } },
        { "the pad is ignored",
          { "", false, { 4, { 1, 1, 6, 1 } }, .o = { { 1, 3 }, { 1, 2 }, { 0, 1 }, true, true } },
          4,
          { 1, 1, 1, 1 } },
        { "a window of padding is dropped",
          { "", false, { 4, { 1, 1, 4, 1 } }, .o = { { 1, 2 }, { 1, 5 }, { 0, 1 }, .ceil = true } },
          1,
          { 0.5 } },
        { "a kernel larger than the image",
          { "", false, { 4, { 1, 1, 3, 1 } }, .o = { { 1, 4 }, { 1, 2 }, .ceil = true } },
          1,
          { 1 } },
    };
    static const double ones[] = { 1, 1, 1, 1, 1, 1 };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const pool *p = &cases[i].p;
        const trial t = { apply,
                          p,
                          .in = { p->x },
                          .x = { ones },
                          .dtype = device_real(),
                          .compute = device_real() };
        trial_result r = trial_run(&t);
        cr_assert_str_empty(r.why, "%s: %s", cases[i].name, r.why);
        cr_assert_eq(r.ny, cases[i].n, "%s: %d windows", cases[i].name, (int)r.ny);
        for (int64_t k = 0; k < r.ny; k++)
            cr_expect_float_eq(r.y[k], cases[i].y[k], 1e-6, "%s: y[%d] is %g", cases[i].name,
                               (int)k, r.y[k]);
        trial_free(&r);
    }
}

Test(pool, ties_and_nan)
{
    static const pool p = { "", true, { 4, { 1, 2, 4, 1 } }, .o = { .kernel = { 2, 2 } } };
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
        { { "", true, { 3, { 4, 4, 2 } }, .o = { .kernel = { 2, 2 } } },
          "max_pool2d: x must be [B,H,W,C]\n  inputs f32[4,4,2]\n" },
        { { "", true, { 4, { 1, 4, 4, 2 } }, .o = { .kernel = { 2, 0 } } },
          "max_pool2d: kernel cannot be 0\n" },
        { { "", false, { 4, { 1, 4, 4, 2 } }, .o = { .kernel = { 2, 2 }, .stride = { -1, 1 } } },
          "avg_pool2d: stride cannot be -1\n" },
        { { "", false, { 4, { 1, 4, 4, 2 } }, .o = { .kernel = { 3, 3 }, .pad = { 1, 2 } } },
          "avg_pool2d: pad cannot be 2: it is at most half of the kernel\n" },
        { { "", false, { 4, { 1, 4, 4, 2 } }, .o = { .kernel = { 3, 7 }, .pad = { 1, 1 } } },
          "avg_pool2d: kernel spans 7, axis 2 with its pad only 6\n" },
        { { "",
            true,
            { 4, { 1, 4, 4, 2 } },
            .o = { .kernel = { 6, 2 }, .ceil = true, .stride = { 2, 1 } } },
          "max_pool2d: kernel spans 6, axis 1 with its pad only 4\n" },
        { { "", true, { 3, { 4, 4, 2 } }, .size = { 2, 2 } },
          "adaptive_max_pool2d: x must be [B,H,W,C]\n" },
        { { "", false, { 4, { 1, 4, 4, 2 } }, .size = { 2, 0 } },
          "adaptive_avg_pool2d: size cannot be 0\n" },
        { { "", true, { 4, { 1, 4, 4, 2 } }, .size = { -1, 2 } },
          "adaptive_max_pool2d: size cannot be -1\n" },
        { { "", false, { 4, { 1, 4, 0, 2 } }, .size = { 2, 2 } },
          "adaptive_avg_pool2d: axis 2 has no positions to pool\n" },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const trial t = { apply, &cases[i].p, .in = { cases[i].p.x } };
        cr_expect(trial_fails(&t, cases[i].text), "case %zu", i);
    }
}
