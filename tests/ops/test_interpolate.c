/* test_interpolate.c - tp_interpolate against values from PyTorch 2.15 (f64), on every instruction
 * set; equal bits on any number of threads, messages. test_gradcheck.c tests gradients. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "support/trial.h"
#include "support/values.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

enum { MOST = 30 };

typedef struct resize {
    int64_t H, W, height, width;
    tp_interpolation mode;
    bool align;
    double y[MOST]; /* of one image and channel, x[i] = ((7 i i + 3 i) mod 11 - 5) / 4 */
} resize;

/* clang-format off */
static const resize cases[] = {
    { 3, 4, 5, 6, TP_INTERPOLATE_BILINEAR, false,
      { -1.25, 0, 0.875, -0.625, -0.375, 0.25, -0.95, -0.2, 0.375, -0.325, -0.375, -0.25, -0.5,
        -0.5, -0.375, 0.125, -0.375, -1, 0.55, -0.2, -0.8, -0.2, -0.6, -1.15, 1.25, 0, -1.08333333,
        -0.416666667, -0.75, -1.25 } },
    { 3, 4, 5, 6, TP_INTERPOLATE_BILINEAR, true,
      { -1.25, 0.25, 0.8, -0.55, -0.5, 0.25, -0.875, -0.125, 0.225, -0.225, -0.375, -0.375, -0.5,
        -0.5, -0.35, 0.1, -0.25, -1, 0.375, -0.375, -0.7, -0.175, -0.45, -1.125, 1.25, -0.25, -1.05,
        -0.45, -0.65, -1.25 } },
    { 5, 4, 2, 3, TP_INTERPOLATE_BILINEAR, false,
      { -0.583333333, -0.0625, -0.583333333, 0.5625, -0.375, -0.0625 } },
    { 3, 4, 4, 5, TP_INTERPOLATE_BICUBIC, false,
      { -1.46660919, 0.899848511, 0.260131836, -0.962709839, 0.426560364, -1.03393829,
        -0.0754352722, 0.179264069, -0.290102448, -0.544972382, 0.284426575, -0.763506531,
        -0.353401184, -0.0641348267, -1.31456714, 1.53838654, -0.668496674, -0.953990936,
        -0.447653839, -1.32760422 } },
    { 3, 4, 4, 5, TP_INTERPOLATE_BICUBIC, true,
      { -1.25, 0.920898438, 0.2421875, -0.954101562, 0.25, -0.930555556, -0.0835503472, 0.168981481,
        -0.222583912, -0.578703704, 0.134259259, -0.811867043, -0.313512731, 0.0257342303,
        -1.21759259, 1.25, -0.7890625, -0.890625, -0.37109375, -1.25 } },
    { 5, 4, 2, 3, TP_INTERPOLATE_BICUBIC, false,
      { -0.736123544, 0.141937256, -0.587774206, 0.61960517, -0.476074219, -0.00578138563 } },
    { 1, 5, 1, 8, TP_INTERPOLATE_BILINEAR, false,
      { -1.25, -0.15625, 1.109375, -0.296875, -0.609375, 0.171875, -0.171875, -0.5 } },
};
/* clang-format on */

static tp_tensor apply(tp_tape *T, const tp_tensor *x, const void *env)
{
    const resize *r = env;
    return tp_interpolate(T, x[0], r->height, r->width, r->mode, r->align);
}

/* Two images of three channels, all equal up to a factor. */
static void check(size_t i, tp_dtype dt, tp_isa isa, double tol)
{
    const resize *r = &cases[i];
    const int64_t n = r->H * r->W, m = r->height * r->width;
    double *x = calloc((size_t)(6 * n), sizeof *x);
    for (int64_t e = 0; e < 6 * n; e++) {
        const int64_t p = e / 3 % n, k = e / 3 / n * 3 + e % 3;
        x[e] = (double)((7 * p * p + 3 * p) % 11 - 5) / 4.0 * (double)(1 << k);
    }
    const trial t = { .f = apply,
                      .env = r,
                      .in = { { 4, { 2, r->H, r->W, 3 } } },
                      .x = { x },
                      .dtype = dt,
                      .compute = dt,
                      .isa = isa };
    trial_result y = trial_run(&t);
    cr_assert_str_empty(y.why, "case %zu: %s", i, y.why);
    cr_assert_eq(y.ny, 6 * m, "case %zu", i);
    for (int64_t e = 0; e < 6 * m; e++) {
        const double want = r->y[e / 3 % m] * (double)(1 << (e / 3 / m * 3 + e % 3));
        cr_expect_float_eq(y.y[e], want, tol, "case %zu, isa %d, element %d: %g, not %g", i,
                           (int)isa, (int)e, y.y[e], want);
    }
    trial_free(&y);
    free(x);
}

Test(interpolate, as_pytorch)
{
    for (tp_isa isa = TP_ISA_BASE; isa <= TP_ISA_AVX512; isa++)
        for (size_t i = 0; i < COUNT(cases); i++) {
            if (trial_can(TP_F32, isa)) check(i, TP_F32, isa, 2e-5);
            if (trial_can(TP_F64, isa)) check(i, TP_F64, isa, 1e-6);
        }
}

Test(interpolate, threads_do_not_change_bits)
{
    static const resize sizes[] = { { 0, 0, 41, 23, TP_INTERPOLATE_BILINEAR, false, { 0 } },
                                    { 0, 0, 90, 70, TP_INTERPOLATE_BICUBIC, true, { 0 } } };
    for (size_t i = 0; i < COUNT(sizes); i++) {
        const trial t = { apply, &sizes[i], .in = { { 4, { 3, 60, 50, 19 } } } };
        cr_expect(trial_same_on_threads(&t), "case %zu", i);
    }
}

Test(interpolate, messages)
{
    static const struct {
        resize r;
        tp_shape x;
        const char *text;
    } wrong[] = {
        { { 0, 0, 0, 3, TP_INTERPOLATE_BILINEAR, false, { 0 } },
          { 4, { 1, 3, 4, 2 } },
          "interpolate: size cannot be 0\n  inputs f32[1,3,4,2]\n" },
        { { 0, 0, 3, -1, TP_INTERPOLATE_BILINEAR, false, { 0 } },
          { 4, { 1, 3, 4, 2 } },
          "interpolate: size cannot be -1\n" },
        { { 0, 0, 3, 3, (tp_interpolation)7, false, { 0 } },
          { 4, { 1, 3, 4, 2 } },
          "interpolate: unknown mode 7\n" },
        { { 0, 0, 3, 3, TP_INTERPOLATE_NEAREST, true, { 0 } },
          { 4, { 1, 3, 4, 2 } },
          "interpolate: corners cannot be aligned by nearest: align_corners must be false\n" },
        { { 0, 0, 3, 3, TP_INTERPOLATE_BICUBIC, false, { 0 } },
          { 3, { 3, 4, 2 } },
          "interpolate: x must be [B,H,W,C]\n" },
        { { 0, 0, 3, 3, TP_INTERPOLATE_BICUBIC, false, { 0 } },
          { 4, { 1, 3, 0, 2 } },
          "interpolate: axis 2 must have 1 or more positions, below 2^31\n" },
    };
    for (size_t i = 0; i < COUNT(wrong); i++) {
        const trial t = { apply, &wrong[i].r, .in = { wrong[i].x } };
        cr_expect(trial_fails(&t, wrong[i].text), "case %zu", i);
    }
}
