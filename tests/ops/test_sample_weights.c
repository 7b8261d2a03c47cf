/* test_sample_weights.c - weights of examples over the losses of rows and elements, against plain
 * loops. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "support/device.h"

enum { ROWS = 23, V = 5, N = ROWS * V };

static double x[N], y[N], weight[ROWS];
static int64_t label[ROWS];

static void fill(void)
{
    for (int i = 0; i < N; i++) {
        x[i] = (double)(float)(2 * sin(i * 1.7) + cos(i * 0.31));
        y[i] = (double)(float)(0.5 + 0.5 * sin(i * 0.9));
    }
    for (int r = 0; r < ROWS; r++) {
        label[r] = r % 6 == 4 ? -1 : r * 3 % V;
        weight[r] = (double)(float)(r % 7 / 3.0); /* some are 0 */
    }
}

/* n numbers as a constant; all are exact in f32. */
static tp_tensor given(tp_tape *T, tp_dtype dt, tp_shape s, const double *from, int n)
{
    static float f32[N];
    for (int i = 0; i < n; i++) f32[i] = (float)from[i];
    return tp_cast(T, tp_from(T, TP_F32, s, f32), dt);
}

typedef enum kind { CROSS_ENTROPY, NLL, BCE, MSE } kind;

/* The loss of row r, or of element (r, j), and its gradient to row r. */
static double plain(kind k, int r, int j, double *dx)
{
    double z = 0.0;
    for (int i = 0; i < V; i++) z += exp(x[r * V + i]);
    for (int i = 0; i < V; i++) dx[i] = 0.0;
    const double a = x[r * V + j], t = y[r * V + j];
    const int64_t at = label[r];
    switch (k) {
    case CROSS_ENTROPY:
        for (int i = 0; at >= 0 && i < V; i++) dx[i] = exp(x[r * V + i]) / z - (i == at);
        return at < 0 ? 0.0 : log(z) - x[r * V + at];
    case NLL:
        if (at >= 0) dx[at] = -1.0;
        return at < 0 ? 0.0 : -x[r * V + at];
    case BCE: dx[j] = 1.0 / (1.0 + exp(-a)) - t; return log(1.0 + exp(a)) - a * t;
    default: dx[j] = 2.0 * (a - t); return (a - t) * (a - t);
    }
}

static tp_tensor each(tp_tape *T, kind k, tp_tensor p, tp_tensor target, tp_tensor labels)
{
    switch (k) {
    case CROSS_ENTROPY: return tp_cross_entropy(T, p, labels, TP_EACH);
    case NLL: return tp_nll(T, p, labels, TP_EACH);
    case BCE: return tp_bce_logits(T, p, target, TP_EACH);
    default: return tp_mse(T, p, target, TP_EACH);
    }
}

/* The weighted loss and its gradient dx [N]. */
static double expect(kind k, tp_reduction how, double *dx)
{
    const bool rows = k == CROSS_ENTROPY || k == NLL;
    double sum = 0.0, weights = 0.0, g[V];
    memset(dx, 0, N * sizeof *dx);
    for (int r = 0; r < ROWS; r++)
        for (int j = 0; j < (rows ? 1 : V); j++) {
            const double w = rows && label[r] < 0 ? 0.0 : weight[r];
            sum += w * plain(k, r, j, g);
            weights += w;
            for (int i = 0; i < V; i++) dx[r * V + i] += w * g[i];
        }
    const double by = how == TP_MEAN ? weights : how == TP_SUM ? 1.0 : rows ? ROWS : N;
    for (int i = 0; i < N; i++) dx[i] /= by;
    return sum / by;
}

Test(sample_weights, losses_and_gradients_by_definition)
{
    static const char *const names[] = { "cross entropy", "nll", "bce_logits", "mse" };
    static double want[N], got[N];
    tp_device *D = device_open(&(tp_device_opts){ .threads = 2 });
    const tp_dtype dt = device_real();
    tp_params *P = tp_params_new(D, &(tp_params_opts){ .dtype = dt });
    tp_tape *T = tp_tape_new(D, NULL);
    fill();
    const tp_tensor p = tp_param(P, "x", TP_SHAPE(ROWS, V), (tp_init){ TP_INIT_ZERO, 0, 0 }, 0);
    cr_assert(tp_param_set(P, p, TP_F64, x, sizeof x));
    for (int k = CROSS_ENTROPY; k <= MSE; k++) {
        for (int how = TP_MEAN; how <= TP_SUM; how++) {
            const tp_tensor labels = tp_from(T, TP_I64, TP_SHAPE(ROWS), label);
            const tp_tensor w = given(T, TP_F32, TP_SHAPE(ROWS), weight, ROWS);
            const tp_tensor t = given(T, dt, TP_SHAPE(ROWS, V), y, N);
            const tp_tensor l = each(T, (kind)k, p, t, labels);
            const tp_tensor target = k <= NLL ? labels : TP_NONE;
            const tp_tensor loss = tp_weigh(T, l, w, target, (tp_reduction)how);
            const double plain_loss = expect((kind)k, (tp_reduction)how, want);
            const double value = tp_item(T, loss);
            cr_expect_float_eq(value, plain_loss,
                               device_limit(1e-7, 2e-6) * fabs(plain_loss) + 1e-9,
                               "%s, %d: %g, not %g", names[k], how, value, plain_loss);
            tp_backward(T, loss);
            cr_assert(tp_param_get_grad(P, p, TP_F64, got, sizeof got), "%s: %s", names[k],
                      tp_why(T));
            for (int i = 0; i < N; i++)
                cr_assert_float_eq(got[i], want[i], 1e-5, "%s, %d: %d: %g, not %g", names[k], how,
                                   i, got[i], want[i]);
            tp_grad_clear(P);
            tp_reset(T);
        }
    }
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
}

/* Losses of weight 0 may be anything; a mean over no weight is 0, with gradients 0. */
Test(sample_weights, nothing_of_weight_0_is_read)
{
    const float losses[3][2] = { { 1, 2 }, { INFINITY, NAN }, { 4, 8 } }, w[3] = { 1, 0, 3 };
    float g[3][2], of_each[3][2];
    tp_device *D = device_open(&(tp_device_opts){ .threads = 1 });
    tp_tape *T = tp_tape_new(D, NULL);
    for (int none = 0; none < 2; none++) {
        const float zero[3] = { 0 };
        const tp_tensor l = tp_input(T, TP_F32, TP_SHAPE(3, 2), losses);
        const tp_tensor weights = tp_from(T, TP_F32, TP_SHAPE(3), none ? zero : w);
        const tp_tensor mean = tp_weigh(T, l, weights, TP_NONE, TP_MEAN);
        cr_expect_eq(tp_item(T, mean), none ? 0.0 : 39.0 / 8.0, "%s", tp_why(T));
        const tp_tensor parts = tp_weigh(T, l, weights, TP_NONE, TP_EACH);
        cr_assert(tp_read(T, parts, of_each, sizeof of_each), "%s", tp_why(T));
        cr_expect_eq(of_each[1][0], 0);
        cr_expect_eq(of_each[2][1], none ? 0 : 24);
        tp_backward(T, mean);
        cr_assert(tp_read(T, tp_grad(T, l), g, sizeof g), "%s", tp_why(T));
        cr_expect_eq(g[0][0], none ? 0.0f : 1.0f / 8.0f);
        cr_expect_eq(g[1][1], 0);
        cr_expect_eq(g[2][0], none ? 0.0f : 3.0f / 8.0f);
        tp_reset(T);
    }
    const tp_tensor empty = tp_from(T, TP_F32, TP_SHAPE(0, 2), losses);
    const tp_tensor no_weights = tp_from(T, TP_F32, TP_SHAPE(0), w);
    for (int how = TP_MEAN; how <= TP_SUM; how++)
        cr_expect_eq(tp_item(T, tp_weigh(T, empty, no_weights, TP_NONE, (tp_reduction)how)), 0.0,
                     "%s", tp_why(T));
    tp_tape_free(T);
    tp_device_close(D);
}

Test(sample_weights, messages)
{
    tp_device *D = device_open(&(tp_device_opts){ .threads = 1 });
    tp_tape *T = tp_tape_new(D, NULL);
    const float zeros[8] = { 0 };
    const int64_t none[4] = { 0 };
    static const struct {
        int losses, weights, target; /* 0: [4,2], 1: [4], 2: [2], 3: integers [4], -1: NONE */
        const char *why;
    } cases[] = {
        { 0, 2, -1,
          "weigh: weights [2] must have the leading axes of the losses [4,2], which a loss gives "
          "with TP_EACH" },
        { 1, 0, -1, "weigh: weights [4,2] must have the leading axes of the losses [4]" },
        { 3, 1, -1, "weigh: losses are floats, not i64" },
        { 0, 1, 1, "weigh: the target is of integers or TP_NONE, not f32" },
        { 0, 0, 3, "weigh: the target [4] and the weights [4,2] differ in shape" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const tp_tensor t[] = { tp_from(T, TP_F32, TP_SHAPE(4, 2), zeros),
                                tp_from(T, TP_F32, TP_SHAPE(4), zeros),
                                tp_from(T, TP_F32, TP_SHAPE(2), zeros),
                                tp_from(T, TP_I64, TP_SHAPE(4), none) };
        tp_weigh(T, t[cases[i].losses], t[cases[i].weights],
                 cases[i].target < 0 ? TP_NONE : t[cases[i].target], TP_MEAN);
        cr_expect(strstr(tp_why(T), cases[i].why), "%s", tp_why(T));
        tp_clear(T);
        tp_reset(T);
    }
    tp_tape_free(T);
    tp_device_close(D);
}
