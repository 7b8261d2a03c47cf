/* test_class_weights.c - cross entropy and negative log-likelihood with weights of classes, against
 * plain loops. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "support/device.h"

enum { ROWS = 70, MOST = 1100 };

typedef struct problem {
    int rows, V;
    bool soft, nll, wide;
    double smoothing;
    tp_reduction reduction;
} problem;

typedef struct data {
    double x[ROWS * MOST], t[ROWS * MOST], w[MOST];
    int64_t label[ROWS];
    double loss[ROWS], dx[ROWS * MOST], total;
} data;

static data d;

static void fill(const problem *p)
{
    for (int i = 0; i < p->rows * p->V; i++) {
        d.x[i] = (double)(float)(2 * sin(i * 1.7) + cos(i * 0.31));
        d.t[i] = floor(32 + 32 * sin(i * 0.7)) / 64; /* exact in bf16 */
    }
    for (int j = 0; j < p->V; j++) d.w[j] = (double)(float)(0.1 + j * 7 % 13 / 4.0);
    d.w[0] = 0;
    for (int r = 0; r < p->rows; r++) d.label[r] = r % 5 == 3 ? -1 - r : (r * 7 + 1) % p->V;
}

/* The loss by definition, and its gradient where the outer one is 1 for each row. */
static void plain(const problem *p)
{
    double sum = 0, weight = 0;
    for (int r = 0; r < p->rows; r++) {
        const double *x = d.x + r * p->V;
        double q[MOST], all = 0, z = 0;
        for (int j = 0; j < p->V; j++) z += exp(x[j]);
        d.loss[r] = 0;
        for (int j = 0; j < p->V; j++) {
            const double t = p->soft ? d.t[r * p->V + j] : j == d.label[r];
            q[j] = d.w[j] * ((1 - p->smoothing) * t + p->smoothing / p->V);
            if (!p->soft && d.label[r] < 0) q[j] = 0;
            all += q[j];
            if (q[j] != 0) d.loss[r] += q[j] * ((p->nll ? 0 : log(z)) - x[j]);
        }
        for (int j = 0; j < p->V; j++)
            d.dx[r * p->V + j] = (p->nll ? 0 : all * exp(x[j]) / z) - q[j];
        sum += d.loss[r];
        weight += p->soft ? 1 : d.label[r] < 0 ? 0 : d.w[d.label[r]];
    }
    const double by = p->reduction == TP_MEAN ? weight : p->reduction == TP_MEAN_ALL ? p->rows : 1;
    d.total = sum / by;
    for (int i = 0; i < p->rows * p->V; i++) d.dx[i] /= by;
}

static tp_tensor loss_of(tp_tape *T, const problem *p, tp_tensor x, tp_dtype dt)
{
    int32_t narrow[ROWS];
    float f[ROWS * MOST];
    tp_tensor target, w;
    for (int r = 0; r < p->rows; r++) narrow[r] = (int32_t)d.label[r];
    if (p->soft) {
        for (int i = 0; i < p->rows * p->V; i++) f[i] = (float)d.t[i];
        target = tp_cast(T, tp_from(T, TP_F32, TP_SHAPE(p->rows, p->V), f), dt);
    } else if (p->wide) {
        target = tp_from(T, TP_I64, TP_SHAPE(p->rows), d.label);
    } else {
        target = tp_from(T, TP_I32, TP_SHAPE(p->rows), narrow);
    }
    for (int j = 0; j < p->V; j++) f[j] = (float)d.w[j];
    w = tp_from(T, TP_F32, TP_SHAPE(p->V), f); /* f32 also beside bf16 */
    if (dt == TP_F64) w = tp_cast(T, w, dt);
    return p->nll ? tp_nll_weighted(T, x, target, w, p->reduction)
                  : tp_cross_entropy_weighted(T, x, target, w, p->smoothing, p->reduction);
}

static void check(tp_tape *T, const problem *p, tp_dtype dt, double limit, const char *name)
{
    static float f[ROWS * MOST];
    fill(p);
    for (int i = 0; i < p->rows * p->V; i++) f[i] = (float)d.x[i];
    const tp_tensor x = tp_input(T, TP_F32, TP_SHAPE(p->rows, p->V), f);
    tp_tensor z = tp_cast(T, x, dt);
    if (dt == TP_BF16) { /* what was rounded */
        tp_read(T, tp_cast(T, z, TP_F32), f, sizeof f[0] * (size_t)(p->rows * p->V));
        for (int i = 0; i < p->rows * p->V; i++) d.x[i] = (double)f[i];
    }
    plain(p);
    const tp_tensor y = loss_of(T, p, z, dt), loss = tp_sum(T, y, TP_ALL);
    double want = 0;
    for (int r = 0; r < p->rows; r++) want += d.loss[r];
    if (p->reduction != TP_EACH) want = d.total;
    const double got = tp_item(T, loss);
    tp_backward(T, loss);
    tp_read(T, tp_grad(T, x), f, sizeof f[0] * (size_t)(p->rows * p->V));
    cr_assert(tp_ok(T), "%s: %s", name, tp_why(T));
    cr_expect(fabs(got - want) <= limit * (1 + fabs(want)), "%s: %.9g, not %.9g", name, got, want);
    double worst = 0, largest = 0;
    for (int i = 0; i < p->rows * p->V; i++) {
        worst = fmax(worst, fabs((double)f[i] - d.dx[i]));
        largest = fmax(largest, fabs(d.dx[i]));
    }
    cr_expect(worst <= (dt == TP_BF16 ? 8e-3 : limit) * largest, "%s: gradients differ by %g of %g",
              name, worst, largest);
    tp_reset(T);
}

Test(class_weights, against_plain_loops)
{
    static const int sizes[][2] = { { 6, 5 }, { 70, 11 }, { 9, 131 }, { 3, 1027 }, { 1, 1 } };
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    char name[96];
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int k = 0; k < 48; k++) {
            const problem p = { .rows = sizes[s][0],
                                .V = sizes[s][1],
                                .reduction = (tp_reduction)(k % 4),
                                .soft = k / 4 % 3 == 1,
                                .nll = k / 4 % 3 == 2,
                                .wide = k & 8,
                                .smoothing = k / 4 % 3 == 2 || k < 24 ? 0 : 0.1 };
            if (p.V == 1 && p.reduction == TP_MEAN) continue; /* its weight is 0 */
            snprintf(name, sizeof name, "%d x %d, case %d", p.rows, p.V, k);
            check(T, &p, TP_F32, 2e-5, name);
            if (!device_is_cuda()) check(T, &p, TP_F64, 1e-6, name);
            check(T, &p, TP_BF16, 2e-5, name);
        }
    tp_tape_free(T);
    tp_device_close(D);
}

/* PyTorch's definition of the mean: sum of w_t log p_t divided by the sum of w_t. */
Test(class_weights, a_case_by_hand)
{
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    const float x[4] = { 0, 0, 0, 0 }, w[2] = { 3, 1 };
    const int64_t t[2] = { 0, 1 };
    const tp_tensor z = tp_from(T, TP_F32, TP_SHAPE(2, 2), x),
                    W = tp_from(T, TP_F32, TP_SHAPE(2), w), y = tp_from(T, TP_I64, TP_SHAPE(2), t);
    const double ln2 = 0.6931471805599453;
    cr_expect_float_eq(tp_item(T, tp_cross_entropy_weighted(T, z, y, W, 0, TP_SUM)), 4 * ln2, 1e-6);
    cr_expect_float_eq(tp_item(T, tp_cross_entropy_weighted(T, z, y, W, 0, TP_MEAN)), ln2, 1e-6);
    cr_expect_float_eq(tp_item(T, tp_cross_entropy_weighted(T, z, y, W, 0, TP_MEAN_ALL)), 2 * ln2,
                       1e-6);
    cr_expect_float_eq(tp_item(T, tp_nll_weighted(T, tp_log_softmax(T, z), y, W, TP_MEAN)), ln2,
                       1e-6);
    const tp_tensor none = tp_full(T, TP_F32, TP_SHAPE(2), 0);
    cr_expect_eq(tp_item(T, tp_cross_entropy_weighted(T, z, y, none, 0, TP_MEAN)), 0);
    cr_expect_eq(tp_item(T, tp_nll_weighted(T, z, y, none, TP_MEAN)), 0);
    cr_assert(tp_ok(T), "%s", tp_why(T));
    tp_tape_free(T);
    tp_device_close(D);
}

/* Without smoothing only the weights of the labels are read. */
Test(class_weights, unused_classes_may_have_any_weight)
{
    enum { V = 131 };
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    float w[V], x[2 * V], dx[2 * V];
    for (int j = 0; j < V; j++) w[j] = j == 1 ? 2 : j % 2 ? INFINITY : NAN;
    for (int i = 0; i < 2 * V; i++) x[i] = (float)(i % 7) / 4;
    const int64_t t[2] = { 1, 1 };
    const tp_tensor z = tp_input(T, TP_F32, TP_SHAPE(2, V), x),
                    W = tp_from(T, TP_F32, TP_SHAPE(V), w), y = tp_from(T, TP_I64, TP_SHAPE(2), t),
                    loss = tp_cross_entropy_weighted(T, z, y, W, 0, TP_SUM);
    tp_backward(T, loss);
    tp_read(T, tp_grad(T, z), dx, sizeof dx);
    cr_assert(tp_ok(T), "%s", tp_why(T));
    cr_expect(isfinite(tp_item(T, loss)), "the loss is %g", tp_item(T, loss));
    for (int r = 0; r < 2; r++) {
        double sum = 0;
        for (int j = 0; j < V; j++) sum += exp((double)x[r * V + j]);
        for (int j = 0; j < V; j++)
            cr_expect_float_eq((double)dx[r * V + j],
                               2 * (exp((double)x[r * V + j]) / sum - (j == 1)), 1e-5);
    }
    tp_tape_free(T);
    tp_device_close(D);
}

Test(class_weights, refusals)
{
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    const tp_tensor z = tp_full(T, TP_F32, TP_SHAPE(4, 3), 0),
                    y = tp_full(T, TP_I64, TP_SHAPE(4), 0);
    tp_cross_entropy_weighted(T, z, y, tp_full(T, TP_F32, TP_SHAPE(4), 1), 0, TP_MEAN);
    cr_expect(strstr(tp_why(T), "weights must be [3], one for each class"), "%s", tp_why(T));
    tp_clear(T);
    tp_nll_weighted(T, z, y, tp_full(T, TP_F32, TP_SHAPE(3, 1), 1), TP_MEAN);
    cr_expect(strstr(tp_why(T), "weights must be [3], one for each class"), "%s", tp_why(T));
    tp_clear(T);
    tp_nll_weighted(T, z, y, tp_full(T, TP_I64, TP_SHAPE(3), 1), TP_MEAN);
    cr_expect(strstr(tp_why(T), "weights must be floating point, not i64"), "%s", tp_why(T));
    tp_tape_free(T);
    tp_device_close(D);
}
