/* test_extremes.c - numbers whose squares, products or powers leave the range of the dtype where
 * the result does not: results and gradients are right, or NaN where the prototype says so, never
 * silent zeros; gradients at kinks and of NaN. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/device.h"
#include "support/values.h"

static tp_device *dev;
static tp_tape *tape;

static void open_tape(void)
{
    dev = device_open(NULL);
    tape = tp_tape_new(dev, NULL);
}

static void close_tape(void)
{
    cr_expect(tp_ok(tape), "%s", tp_why(tape));
    tp_tape_free(tape);
    tp_device_close(dev);
}

TestSuite(extremes, .init = open_tape, .fini = close_tape, .timeout = 120);

typedef tp_tensor (*function)(tp_tape *T, tp_tensor x);

/* y and the gradient of its sum; NAN: any non-finite value. */
typedef struct extreme {
    const char *name;
    function f;
    tp_dtype dt;
    int rows, columns;
    double x[8], y[8], dx[8];
} extreme;

static tp_tensor prod_rows(tp_tape *T, tp_tensor x)
{
    return tp_prod(T, x, 1);
}
static tp_tensor prod_columns(tp_tape *T, tp_tensor x)
{
    return tp_prod(T, x, 0);
}
static tp_tensor cumprod_rows(tp_tape *T, tp_tensor x)
{
    return tp_slice(T, tp_cumprod(T, x, 1), 1, tp_dim(x, 1) - 1, 1);
}
static tp_tensor cumprod_columns(tp_tape *T, tp_tensor x)
{
    return tp_slice(T, tp_cumprod(T, x, 0), 0, tp_dim(x, 0) - 1, 1);
}
static tp_tensor norm_rows(tp_tape *T, tp_tensor x)
{
    return tp_norm(T, x, 2, 1);
}
static tp_tensor norm_columns(tp_tape *T, tp_tensor x)
{
    return tp_norm(T, x, 2, 0);
}
static tp_tensor norm3_rows(tp_tape *T, tp_tensor x)
{
    return tp_norm(T, x, 3, 1);
}
static tp_tensor std_rows(tp_tape *T, tp_tensor x)
{
    return tp_std(T, x, 1, 0);
}
static tp_tensor std_columns(tp_tape *T, tp_tensor x)
{
    return tp_std(T, x, 0, 0);
}
static tp_tensor lse(tp_tape *T, tp_tensor x)
{
    return tp_logsumexp(T, x, 1);
}
static tp_tensor softmax(tp_tape *T, tp_tensor x)
{
    return tp_softmax(T, x);
}
static tp_tensor layernorm(tp_tape *T, tp_tensor x)
{
    return tp_layernorm(T, x, TP_NONE, TP_NONE, 1e-5);
}
static tp_tensor bare_layernorm(tp_tape *T, tp_tensor x)
{
    return tp_layernorm(T, x, TP_NONE, TP_NONE, 0);
}
static tp_tensor rmsnorm(tp_tape *T, tp_tensor x)
{
    return tp_rmsnorm(T, x, TP_NONE, 1e-5);
}
static tp_tensor groupnorm(tp_tape *T, tp_tensor x)
{
    return tp_groupnorm(T, tp_reshape(T, x, TP_SHAPE(1, tp_dim(x, 1), 1)), 1, TP_NONE, TP_NONE,
                        1e-5);
}
static tp_tensor standardize(tp_tape *T, tp_tensor x)
{
    return tp_weight_standardize(T, x, 1e-5, true);
}
static tp_tensor cosine(tp_tape *T, tp_tensor x)
{
    return tp_cosine_similarity(T, tp_slice(T, x, 0, 0, 1), tp_detach(T, tp_slice(T, x, 0, 1, 1)),
                                1e-30);
}
static tp_tensor triplet(tp_tape *T, tp_tensor x)
{
    return tp_triplet_margin(T, x, tp_full(T, tp_dtype_of(x), tp_shape_of(x), 0),
                             tp_full(T, tp_dtype_of(x), tp_shape_of(x), 0),
                             (tp_triplet_cfg){ .margin = 1e20 }, TP_SUM);
}

/* clang-format off */
#define PROD(f, dt, R, C, a, b, c, d)                                                              \
    { #f, f, dt, R, C, { a, b, c, d }, { 1 }, { 1 / (a), 1 / (b), 1 / (c), 1 / (d) } }
static const extreme extremes[] = {
    PROD(prod_rows, TP_F32, 1, 4, 1e30, 1e30, 1e-30, 1e-30),
    PROD(prod_rows, TP_F32, 1, 4, 1e-30, 1e-30, 1e30, 1e30),
    PROD(prod_rows, TP_F32, 1, 4, 1e-30, 1e30, 1e-30, 1e30),
    PROD(prod_columns, TP_F32, 4, 1, 1e30, 1e30, 1e-30, 1e-30),
    PROD(prod_columns, TP_F32, 4, 1, 1e-30, 1e-30, 1e30, 1e30),
    PROD(prod_rows, TP_F64, 1, 4, 1e200, 1e200, 1e-200, 1e-200),
    PROD(prod_rows, TP_F64, 1, 4, 1e-200, 1e-200, 1e200, 1e200),
    PROD(prod_columns, TP_F64, 4, 1, 1e200, 1e200, 1e-200, 1e-200),
    PROD(cumprod_rows, TP_F32, 1, 4, 1e30, 1e30, 1e-30, 1e-30),
    PROD(cumprod_rows, TP_F32, 1, 4, 1e-30, 1e-30, 1e30, 1e30),
    PROD(cumprod_columns, TP_F32, 4, 1, 1e-30, 1e-30, 1e30, 1e30),
    PROD(cumprod_rows, TP_F64, 1, 4, 1e200, 1e200, 1e-200, 1e-200),
    PROD(cumprod_rows, TP_F64, 1, 4, 1e-200, 1e-200, 1e200, 1e200),
    { "digits", prod_rows, TP_F32, 1, 4, { 1e-20, 1.234567e-22, 1e20, 1e20 }, { 1.234567e-2 },
      { 1.234567e18, 1e20, 1.234567e-22, 1.234567e-22 } },
    { "gradient alone fits", prod_rows, TP_F32, 1, 2, { 1e30, 1e30 }, { INFINITY },
      { 1e30, 1e30 } },
    { "one zero", prod_rows, TP_F32, 1, 5, { 1e30, 0, 1e30, 1e-30, 1e-30 }, { 0 },
      { 0, 1, 0, 0, 0 } },
    { "one zero of a cumprod", cumprod_rows, TP_F32, 1, 5, { 1e30, 0, 1e30, 1e-30, 1e-30 }, { 0 },
      { 0, 1, 0, 0, 0 } },
    { "two zeros", prod_rows, TP_F32, 1, 4, { 0, 1e30, 0, 1e30 }, { 0 }, { 0 } },
    { "large", norm_rows, TP_F32, 1, 2, { 3e20, 4e20 }, { 5e20 }, { 0.6, 0.8 } },
    { "small", norm_rows, TP_F32, 1, 2, { 3e-25, -4e-25 }, { 5e-25 }, { 0.6, -0.8 } },
    { "large", norm_columns, TP_F32, 2, 1, { 3e20, 4e20 }, { 5e20 }, { 0.6, 0.8 } },
    { "small", norm_columns, TP_F32, 2, 1, { 3e-25, -4e-25 }, { 5e-25 }, { 0.6, -0.8 } },
    { "large", norm_rows, TP_F64, 1, 2, { 3e200, 4e200 }, { 5e200 }, { 0.6, 0.8 } },
    { "small", norm_rows, TP_F64, 1, 2, { 3e-200, -4e-200 }, { 5e-200 }, { 0.6, -0.8 } },
    { "large", norm3_rows, TP_F32, 1, 2, { 1e20, 0 }, { 1e20 }, { 1, 0 } },
    { "small", norm3_rows, TP_F32, 1, 2, { 1e-25, 0 }, { 1e-25 }, { 1, 0 } },
    { "small", std_rows, TP_F32, 1, 2, { 1e-25, -1e-25 }, { 1e-25 }, { 0.5, -0.5 } },
    { "large", std_rows, TP_F32, 1, 2, { 1e25, -1e25 }, { 1e25 }, { 0.5, -0.5 } },
    { "small", std_columns, TP_F32, 2, 1, { 1e-25, -1e-25 }, { 1e-25 }, { 0.5, -0.5 } },
    { "large", std_columns, TP_F32, 2, 1, { 1e25, -1e25 }, { 1e25 }, { 0.5, -0.5 } },
    { "equal", std_rows, TP_F32, 1, 2, { 1e-25, 1e-25 }, { 0 }, { 0, 0 } },
    { "small", std_rows, TP_F64, 1, 2, { 1e-200, -1e-200 }, { NAN }, { NAN, NAN } },
    { "large", lse, TP_F32, 1, 2, { 64, 64 }, { 64.693147180559945 }, { 0.5, 0.5 } },
    { "far apart", lse, TP_F32, 1, 2, { 3e38, -3e38 }, { 3e38 }, { 1, 0 } },
    { "far apart", softmax, TP_F32, 1, 2, { 3e38, -3e38 }, { 1, 0 }, { 0, 0 } },
    { "large", layernorm, TP_F32, 1, 4, { 1e19, -1e19, 1e19, -1e19 }, { 1, -1, 1, -1 }, { 0 } },
    { "larger", layernorm, TP_F32, 1, 2, { 3e37, -3e37 }, { 1, -1 }, { 0 } },
    { "small", bare_layernorm, TP_F32, 1, 2, { 1e-25, -1e-25 }, { 1, -1 }, { 0 } },
    { "large", layernorm, TP_F64, 1, 2, { 1e200, -1e200 }, { 1, -1 }, { 0 } },
    { "large", rmsnorm, TP_F32, 1, 2, { 1e20, -1e20 }, { 1, -1 }, { 0 } },
    { "large", standardize, TP_F32, 1, 2, { 1e20, -1e20 }, { 1, -1 }, { NAN, NAN } },
    { "large", groupnorm, TP_F32, 1, 2, { 1e20, -1e20 }, { NAN, NAN }, { NAN, NAN } },
    { "large", cosine, TP_F32, 2, 2, { 1e25, 0, 1e25, 0 }, { 1 }, { 0 } },
    { "large and small", cosine, TP_F32, 2, 2, { 1e25, 0, 1e-25, 0 }, { 1 }, { 0 } },
    { "small", cosine, TP_F32, 2, 2, { 0, 1e-25, 0, 1e-25 }, { 1 }, { NAN, NAN } },
    { "large", triplet, TP_F32, 1, 2, { 3e20, 4e20 }, { 1e20 }, { 0 } },
};
/* clang-format on */

/* Any non-finite result matches another. On CUDA, norms of rows give NaN. */
static bool is_right(double got, double want, double by)
{
    if (!isfinite(want)) return !isfinite(got);
    if (device_is_cuda() && isnan(got)) return true;
    return fabs(got - want) <= by * fabs(want) || (want == 0 && fabs(got) <= 1e-6);
}

Test(extremes, results_and_gradients)
{
    for (size_t i = 0; i < sizeof extremes / sizeof *extremes; i++) {
        const extreme *k = &extremes[i];
        double y[8], dx[8];
        if (device_is_cuda() && k->dt == TP_F64) continue;
        tp_reset(tape);
        const tp_tensor x = values_input(tape, k->dt, TP_SHAPE(k->rows, k->columns), k->x);
        const tp_tensor v = k->f(tape, x);
        tp_backward(tape, tp_sum(tape, v, TP_ALL));
        values_read(tape, v, y);
        values_read(tape, tp_grad(tape, x), dx);
        cr_assert(tp_ok(tape), "%s", tp_why(tape));
        for (int64_t e = 0; e < tp_numel(v); e++)
            cr_expect(is_right(y[e], k->y[e], 1e-5), "%zu: %s in %s: y[%d] is %g, not %g", i,
                      k->name, tp_dtype_name(k->dt), (int)e, y[e], k->y[e]);
        for (int64_t e = 0; e < tp_numel(x); e++)
            cr_expect(is_right(dx[e], k->dx[e], 1e-5), "%zu: %s in %s: dx[%d] is %g, not %g", i,
                      k->name, tp_dtype_name(k->dt), (int)e, dx[e], k->dx[e]);
    }
}

/* ---- corners of losses ---- */

static tp_tensor near_loss(tp_tape *T, tp_tensor x, tp_tensor t)
{
    return tp_hinge_embedding(T, x, t, 1, TP_SUM);
}
static tp_tensor hinge_loss(tp_tape *T, tp_tensor x, tp_tensor t)
{
    return tp_hinge(T, x, t, 1, TP_SUM);
}
static tp_tensor l1_loss(tp_tape *T, tp_tensor x, tp_tensor t)
{
    return tp_smooth_l1(T, x, t, 0, TP_SUM);
}
static tp_tensor huber_loss(tp_tape *T, tp_tensor x, tp_tensor t)
{
    return tp_smooth_l1(T, x, t, 1, TP_SUM);
}
static tp_tensor triplet_loss(tp_tape *T, tp_tensor x, tp_tensor t)
{
    return tp_triplet_margin(T, x, t, t, (tp_triplet_cfg){ .margin = 1 }, TP_SUM);
}
static tp_tensor triplet1_loss(tp_tape *T, tp_tensor x, tp_tensor t)
{
    return tp_triplet_margin(T, x, t, t, (tp_triplet_cfg){ .margin = 1, .p = 1 }, TP_SUM);
}
static tp_tensor giou_loss(tp_tape *T, tp_tensor x, tp_tensor t)
{
    return tp_giou(T, tp_expand(T, x, TP_SHAPE(1, 4)), tp_expand(T, t, TP_SHAPE(1, 4)), 1e-7,
                   TP_SUM);
}
static tp_tensor cosine_loss(tp_tape *T, tp_tensor x, tp_tensor t)
{
    return tp_cosine_embedding(T, x, tp_full(T, tp_dtype_of(x), tp_shape_of(x), 1),
                               tp_reshape(T, t, TP_SHAPE(1)), 0, TP_SUM);
}
static tp_tensor bce_loss(tp_tape *T, tp_tensor x, tp_tensor t)
{
    return tp_bce_logits(T, x, t, TP_SUM);
}
static tp_tensor focal_loss(tp_tape *T, tp_tensor x, tp_tensor t)
{
    return tp_focal(T, x, t, 0.25, 2, TP_SUM);
}

typedef struct corner {
    const char *name;
    tp_tensor (*f)(tp_tape *T, tp_tensor x, tp_tensor t);
    double x, t, dx;
} corner;

static const corner corners[] = {
    { "hinge_embedding at the margin", near_loss, 1, -1, 0 },
    { "hinge_embedding below it", near_loss, 0.5, -1, -1 },
    { "hinge_embedding beyond it", near_loss, 2, -1, 0 },
    { "hinge_embedding of NaN", near_loss, NAN, -1, NAN },
    { "hinge of NaN", hinge_loss, NAN, 1, NAN },
    { "hinge at the margin", hinge_loss, 1, 1, -1 },
    { "l1 of NaN", l1_loss, NAN, 1, NAN },
    { "l1 at 0", l1_loss, 1, 1, 0 },
    { "smooth_l1 of NaN", huber_loss, NAN, 1, NAN },
    { "triplet_margin of NaN", triplet_loss, NAN, 1, NAN },
    { "triplet_margin of NaN, p = 1", triplet1_loss, NAN, 1, NAN },
    { "giou of NaN", giou_loss, NAN, 1, NAN },
    { "cosine_embedding of NaN", cosine_loss, NAN, -1, NAN },
    { "bce_logits of NaN", bce_loss, NAN, 1, NAN },
    { "focal of NaN", focal_loss, NAN, 1, NAN },
};

Test(extremes, corners_of_losses)
{
    for (size_t i = 0; i < sizeof corners / sizeof *corners; i++) {
        const corner *k = &corners[i];
        double dx;
        tp_reset(tape);
        const tp_tensor x = values_input(tape, TP_F32, TP_SHAPE(1, 1), &k->x);
        tp_backward(tape, k->f(tape, x, values_constant(tape, TP_F32, TP_SHAPE(1, 1), &k->t)));
        values_read(tape, tp_grad(tape, x), &dx);
        cr_assert(tp_ok(tape), "%s", tp_why(tape));
        cr_expect(isnan(k->dx) ? isnan(dx) : dx == k->dx, "%s: %g, not %g", k->name, dx, k->dx);
    }
}

/* Means of losses over nothing are 0; tp_mean gives NaN. */
Test(extremes, means_over_nothing)
{
    const tp_tensor x = values_input(tape, TP_F32, TP_SHAPE(0, 4), NULL);
    const int64_t none[] = { -1, -1 };
    const tp_tensor rows = tp_full(tape, TP_F32, TP_SHAPE(2, 4), 1);
    const tp_tensor ignored = tp_from(tape, TP_I64, TP_SHAPE(2), none);
    cr_expect_eq(tp_item(tape, tp_mse(tape, x, x, TP_MEAN)), 0);
    cr_expect_eq(tp_item(tape, tp_giou(tape, x, x, 1e-7, TP_MEAN)), 0);
    cr_expect_eq(tp_item(tape, tp_dice(tape, x, x, 1, 1, TP_MEAN)), 0);
    cr_expect_eq(tp_item(tape, tp_cross_entropy(tape, rows, ignored, TP_MEAN)), 0);
    cr_expect_eq(tp_item(tape, tp_nll(tape, rows, ignored, TP_MEAN)), 0);
    cr_expect_eq(tp_item(tape, tp_focal(tape, rows, ignored, 0.25, 2, TP_MEAN)), 0);
    cr_expect(isnan(tp_item(tape, tp_mean(tape, x, TP_ALL))));
}
