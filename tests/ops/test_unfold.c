/* test_unfold.c - windows and sums of windows against naive loops, on every instruction set: exact
 * values, gradients; copies of every dtype; equal bits on any number of threads; overlapping sums;
 * messages. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "support/device.h"
#include "support/trial.h"
#include "support/values.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

typedef struct windows {
    const char *name;
    bool fold;
    tp_shape map; /* [B,H,W,C] */
    tp_unfold_cfg o;
    tp_shape x; /* replaces the matching one unless ndim is 0 */
} windows;

#define BOTH(name, map, ...)                                                                       \
    { name, false, map, __VA_ARGS__, { 0 } },                                                      \
    {                                                                                              \
        name, true, map, __VA_ARGS__,                                                              \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }
#define MAP(...)                                                                                   \
    {                                                                                              \
        4,                                                                                         \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

static const windows cases[] = {
    BOTH("3x3", MAP(2, 7, 6, 5), { { 3, 3 }, { 0 }, { 1, 1 }, { 0 } }),
    BOTH("patches", MAP(2, 8, 12, 3), { { 4, 4 }, { 4, 4 }, { 0 }, { 0 } }),
    BOTH("some left over", MAP(1, 9, 11, 2), { { 2, 3 }, { 2, 3 }, { 0 }, { 0 } }),
    BOTH("positions between windows", MAP(1, 9, 11, 2), { { 2, 1 }, { 3, 4 }, { 1, 0 }, { 0 } }),
    BOTH("dilated", MAP(2, 9, 8, 4), { { 2, 3 }, { 1, 2 }, { 1, 2 }, { 3, 2 } }),
    BOTH("dilated beyond the stride", MAP(1, 9, 8, 1), { { 3, 2 }, { 4, 3 }, { 3, 3 }, { 2, 5 } }),
    BOTH("windows of pad alone", MAP(1, 2, 1, 2), { { 2, 2 }, { 0 }, { 4, 3 }, { 0 } }),
    BOTH("a line of pixels", MAP(2, 1, 300, 1), { { 1, 5 }, { 1, 2 }, { 0 }, { 0 } }),
    BOTH("a long line", MAP(1, 1, 3000, 16), { { 1, 3 }, { 0 }, { 0, 1 }, { 0 } }),
    BOTH("many positions", MAP(2, 40, 33, 9), { { 3, 3 }, { 2, 1 }, { 1, 1 }, { 0 } }),
    BOTH("no images", MAP(0, 4, 4, 2), { { 2, 2 }, { 0 }, { 0 }, { 0 } }),
};

static int64_t step(int64_t given)
{
    return given ? given : 1;
}

/* The number of windows along an axis. */
static int64_t count(const windows *p, int axis)
{
    const int64_t room = p->map.dim[1 + axis] + 2 * p->o.pad[axis] -
                         step(p->o.dilation[axis]) * (p->o.kernel[axis] - 1) - 1;
    return room / step(p->o.stride[axis]) + 1;
}

static tp_shape shape(const windows *p)
{
    return TP_SHAPE(p->map.dim[0], count(p, 0), count(p, 1),
                    p->o.kernel[0] * p->o.kernel[1] * p->map.dim[3]);
}

static tp_tensor apply(tp_tape *T, const tp_tensor *x, const void *env)
{
    const windows *p = env;
    return p->fold ? tp_fold(T, x[0], p->map.dim[1], p->map.dim[2], p->o)
                   : tp_unfold(T, x[0], p->o);
}

/* The map element that element e of its windows copies, or -1. */
static int64_t shown(const windows *p, int64_t e)
{
    const tp_shape s = shape(p);
    const int64_t C = p->map.dim[3], c = e % C, tap = e / C % (s.dim[3] / C);
    const int64_t pixel = e / s.dim[3], k[2] = { tap / p->o.kernel[1], tap % p->o.kernel[1] };
    const int64_t o[2] = { pixel / s.dim[2] % s.dim[1], pixel % s.dim[2] };
    int64_t at = pixel / s.dim[2] / s.dim[1];
    for (int i = 0; i < 2; i++) {
        const int64_t j = o[i] * step(p->o.stride[i]) - p->o.pad[i] + k[i] * step(p->o.dilation[i]);
        if (j < 0 || j >= p->map.dim[1 + i]) return -1;
        at = at * p->map.dim[1 + i] + j;
    }
    return at * C + c;
}

static void check(const windows *p, tp_dtype dt, tp_isa isa, double tol)
{
    const trial t = { apply,         p,         .in = { p->fold ? shape(p) : p->map }, .dtype = dt,
                      .compute = dt, .isa = isa };
    trial_result r = trial_run(&t);
    cr_assert_str_empty(r.why, "%s: %s", p->name, r.why);
    const tp_shape all = shape(p);
    const int64_t n = trial_count(&all), m = trial_count(&p->map);
    double *copy = calloc((size_t)n + 1, sizeof *copy), *sum = calloc((size_t)m + 1, sizeof *sum);
    const double *of_map = p->fold ? r.dy : r.x[0], *of_windows = p->fold ? r.x[0] : r.dy;
    for (int64_t e = 0; e < n; e++) {
        const int64_t at = shown(p, e);
        copy[e] = at < 0 ? 0.0 : of_map[at];
        if (at >= 0) sum[at] += of_windows[e];
    }
    const double *copied = p->fold ? r.dx[0] : r.y, *summed = p->fold ? r.y : r.dx[0];
    cr_expect_eq(r.ny, p->fold ? m : n, "%s", p->name);
    cr_expect_eq(values_error(copied, copy, n, 0), 0.0, "%s: copies, isa %d", p->name, (int)isa);
    cr_expect_lt(values_error(summed, sum, m, 0), tol, "%s: sums, isa %d", p->name, (int)isa);
    free(copy);
    free(sum);
    trial_free(&r);
}

Test(unfold, values_and_gradients)
{
    for (tp_isa isa = TP_ISA_BASE; isa <= TP_ISA_AVX512; isa++)
        for (size_t i = 0; i < COUNT(cases); i++) {
            if (trial_can(TP_F32, isa)) check(&cases[i], TP_F32, isa, 1e-6);
            if (trial_can(TP_F64, isa)) check(&cases[i], TP_F64, isa, 1e-14);
        }
}

Test(unfold, threads_do_not_change_bits)
{
    for (size_t i = 0; i < COUNT(cases); i++) {
        const trial t = { apply, &cases[i],
                          .in = { cases[i].fold ? shape(&cases[i]) : cases[i].map } };
        cr_expect(trial_same_on_threads(&t), "%s", cases[i].name);
    }
}

/* [1,2,3,2]: 1 to 12, kernel 2 x 2, in every dtype. */
Test(unfold, copies_every_dtype)
{
    static const double x[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 };
    static const double want[] = { 1, 2, 3, 4, 7, 8, 9, 10, 3, 4, 5, 6, 9, 10, 11, 12 };
    for (tp_dtype dt = 0; dt < TP_NDTYPES; dt++) {
        if (dt == TP_F64 && device_real() != TP_F64) continue;
        tp_device *D = device_open(0);
        tp_tape *T = tp_tape_new(D, NULL);
        double y[16] = { 0 };
        const tp_tensor t = values_constant(T, dt, TP_SHAPE(1, 2, 3, 2), x);
        values_read(T, tp_unfold(T, t, (tp_unfold_cfg){ .kernel = { 2, 2 } }), y);
        cr_expect(tp_ok(T), "%s: %s", tp_dtype_name(dt), tp_why(T));
        cr_expect_arr_eq(y, want, sizeof want, "%s", tp_dtype_name(dt));
        tp_tape_free(T);
        tp_device_close(D);
    }
}

/* Counts the 3 x 3 windows over each pixel of 4 x 3. */
Test(unfold, sums_count_windows)
{
    static const double want[] = { 4, 6, 4, 6, 9, 6, 6, 9, 6, 4, 6, 4 };
    static const windows p = {
        "", true, MAP(1, 4, 3, 1), { { 3, 3 }, { 0 }, { 1, 1 }, { 0 } }, { 0 }
    };
    double ones[108];
    for (int i = 0; i < 108; i++) ones[i] = 1.0;
    const trial t = { apply,
                      &p,
                      .in = { shape(&p) },
                      .x = { ones },
                      .dtype = device_real(),
                      .compute = device_real() };
    trial_result r = trial_run(&t);
    cr_assert_eq(r.ny, 12, "%s", r.why);
    for (int i = 0; i < 12; i++) cr_expect_eq(r.y[i], want[i], "pixel %d: %g", i, r.y[i]);
    trial_free(&r);
}

Test(unfold, messages)
{
    static const struct {
        windows p;
        const char *text;
    } wrong[] = {
        { { "", false, MAP(1, 4, 4, 2), { .kernel = { 2, 0 } }, { 3, { 4, 4, 2 } } },
          "unfold: kernel cannot be 0\n" },
        { { "", false, MAP(1, 4, 4, 2), { .kernel = { 2, 2 } }, { 3, { 4, 4, 2 } } },
          "unfold: x must be [B,H,W,C]\n  inputs f32[4,4,2]\n" },
        { { "", false, MAP(1, 4, 4, 2), { { 2, 2 }, { -1, 1 }, { 0 }, { 0 } }, { 0 } },
          "unfold: stride cannot be -1\n" },
        { { "", false, MAP(1, 4, 4, 2), { { 2, 2 }, { 0 }, { 0, -3 }, { 0 } }, { 0 } },
          "unfold: pad cannot be -3\n" },
        { { "", false, MAP(1, 4, 4, 2), { { 2, 2 }, { 0 }, { 0 }, { -2, 1 } }, { 0 } },
          "unfold: dilation cannot be -2\n" },
        { { "", false, MAP(1, 4, 4, 2), { { 2, 3 }, { 0 }, { 0 }, { 1, 2 } }, { 0 } },
          "unfold: kernel spans 5, axis 2 with its pad only 4\n" },
        { { "",
            false,
            MAP(1, 4, 4, 2),
            { { INT32_MAX, INT32_MAX }, { 0 }, { INT32_MAX, INT32_MAX }, { 0 } },
            { 0 } },
          "unfold: the result is too large" },
        { { "", true, MAP(1, 4, 4, 2), { .kernel = { 2, INT64_MAX } }, { 0 } },
          "fold: kernel cannot be 9223372036854775807\n" },
        { { "", true, MAP(1, 0, 4, 2), { .kernel = { 1, 1 } }, MAP(1, 4, 4, 2) },
          "fold: size cannot be 0\n" },
        { { "", true, MAP(1, 4, 4, 2), { .kernel = { 2, 2 } }, { 3, { 3, 3, 8 } } },
          "fold: x must be [B,Ho,Wo,KH*KW*C]\n" },
        { { "", true, MAP(1, 4, 4, 2), { .kernel = { 2, 2 } }, MAP(1, 3, 3, 6) },
          "fold: axis 3 is not a multiple of the kernel's 4 taps\n" },
        { { "", true, MAP(1, 4, 4, 2), { .kernel = { 2, 2 } }, MAP(1, 3, 4, 8) },
          "fold: axis 2 must be 3, the windows of 4 positions\n" },
        { { "", true, MAP(1, 1, 4, 2), { .kernel = { 2, 2 } }, MAP(1, 1, 3, 8) },
          "fold: kernel spans 2, axis 1 with its pad only 1\n" },
    };
    for (size_t i = 0; i < COUNT(wrong); i++) {
        const windows *p = &wrong[i].p;
        const trial t = { apply, p, .in = { p->x.ndim ? p->x : p->map } };
        cr_expect(trial_fails(&t, wrong[i].text), "case %zu", i);
    }
}
