/* test_init.c - initial values by the rules of torch.nn.init and by name patterns. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "support/device.h"

enum { MOST = 60000 };
static double x[MOST];

static tp_params *make(tp_device **D)
{
    *D = device_open(NULL);
    return tp_params_new(*D, &(tp_params_opts){ .seed = 11 });
}

static void get(tp_params *P, tp_tensor p)
{
    cr_assert(tp_param_get(P, p, TP_F64, x, (size_t)tp_numel(p) * sizeof *x), "%s",
              tp_params_why(P));
}

static double deviation(int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sqrt(sum / (double)n);
}

static double largest(int64_t n)
{
    double most = 0.0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(x[i]));
    return most;
}

/* The standard deviations of torch.nn.init for [out, in, ...]: 200 inputs and 100 outputs, or with
 * a 3 x 3 field. Uniform values end at sqrt(3) deviations. */
Test(init, by_fans)
{
    const double root2 = sqrt(2.0);
    const struct {
        const char *name;
        tp_init init;
        tp_shape shape;
        double deviation;
    } cases[] = {
        { "xu", { TP_INIT_XAVIER_UNIFORM, 0, 0 }, { 2, { 100, 200 } }, sqrt(2.0 / 300) },
        { "xn", { TP_INIT_XAVIER_NORMAL, 1.5, 0 }, { 2, { 100, 200 } }, 1.5 * sqrt(2.0 / 300) },
        { "ku", { TP_INIT_KAIMING_UNIFORM, 0, 0 }, { 2, { 100, 200 } }, root2 / sqrt(200) },
        { "kn", { TP_INIT_KAIMING_NORMAL, 1, 1 }, { 2, { 100, 200 } }, 1 / sqrt(100) },
        { "conv xu",
          { TP_INIT_XAVIER_UNIFORM, 2, 0 },
          { 4, { 40, 50, 3, 3 } },
          2 * sqrt(2.0 / 810) },
        { "conv kn", { TP_INIT_KAIMING_NORMAL, 0, 0 }, { 4, { 40, 50, 3, 3 } }, root2 / sqrt(450) },
        { "conv ku", { TP_INIT_KAIMING_UNIFORM, 0, 1 }, { 3, { 60, 50, 5 } }, root2 / sqrt(300) },
    };
    enum { N = sizeof cases / sizeof *cases };
    tp_device *D;
    tp_tensor w[N];
    tp_params *P = make(&D);
    for (int i = 0; i < N; i++) w[i] = tp_param(P, cases[i].name, cases[i].shape, cases[i].init, 0);
    const tp_tensor empty =
        tp_param(P, "empty", TP_SHAPE(0, 3), (tp_init){ TP_INIT_XAVIER_NORMAL, 0, 0 }, 0);
    for (int i = 0; i < N; i++) {
        const bool uniform = cases[i].init.kind == TP_INIT_XAVIER_UNIFORM ||
                             cases[i].init.kind == TP_INIT_KAIMING_UNIFORM;
        const double should = cases[i].deviation, end = sqrt(3.0) * should;
        get(P, w[i]);
        const double is = deviation(tp_numel(w[i])), most = largest(tp_numel(w[i]));
        cr_expect_float_eq(is, should, 0.03 * should, "%s: %g, not %g", cases[i].name, is, should);
        cr_expect(uniform ? most <= end && most > 0.99 * end : most > 3.0 * should, "%s: up to %g",
                  cases[i].name, most);
    }
    cr_expect_eq(tp_numel(empty), 0);
    tp_params_free(P);
    tp_device_close(D);
}

/* The largest error of the shorter side's inner products, which should be gain^2 or 0. */
static double defect(int64_t rows, int64_t cols, double gain)
{
    const bool wide = rows < cols;
    const int64_t k = wide ? rows : cols, n = wide ? cols : rows;
    const int64_t from = wide ? cols : 1, step = wide ? 1 : cols;
    double worst = 0.0;
    for (int64_t i = 0; i < k; i++) {
        for (int64_t j = 0; j <= i; j++) {
            double sum = 0.0;
            for (int64_t e = 0; e < n; e++) sum += x[i * from + e * step] * x[j * from + e * step];
            worst = fmax(worst, fabs(sum - (i == j ? gain * gain : 0.0)));
        }
    }
    return worst;
}

Test(init, orthogonal)
{
    static const struct {
        const char *name;
        tp_shape shape;
        double gain;
    } cases[] = {
        { "square", { 2, { 97, 97 } }, 0 },      { "wide", { 2, { 33, 200 } }, 0 },
        { "tall", { 2, { 300, 130 } }, 1.5 },    { "conv", { 4, { 70, 6, 3, 3 } }, 0 },
        { "many", { 3, { 3, 1000, 2 } }, 0.1 },  { "one panel", { 2, { 32, 32 } }, 0 },
        { "one row", { 2, { 1, 50 } }, 0 },      { "one column", { 2, { 50, 1 } }, 2 },
        { "one element", { 2, { 1, 1 } }, 0 },   { "empty", { 2, { 0, 4 } }, 0 },
        { "no columns", { 3, { 4, 0, 2 } }, 0 },
    };
    enum { N = sizeof cases / sizeof *cases };
    tp_device *D;
    tp_tensor w[N];
    tp_params *P = make(&D);
    for (int i = 0; i < N; i++)
        w[i] = tp_param(P, cases[i].name, cases[i].shape,
                        (tp_init){ TP_INIT_ORTHOGONAL, cases[i].gain, 0 }, 0);
    for (int i = 0; i < N; i++) {
        const double gain = cases[i].gain != 0.0 ? cases[i].gain : 1.0;
        const int64_t n = tp_numel(w[i]), rows = cases[i].shape.dim[0];
        get(P, w[i]);
        if (n == 0) continue;
        const double d = defect(rows, n / rows, gain);
        cr_expect(d <= 1e-6 * fmax(1.0, gain * gain), "%s: off by %g", cases[i].name, d);
    }
    get(P, w[0]); /* uniform over orthogonal matrices: the trace has mean 0 and variance 1 */
    double trace = 0.0;
    for (int i = 0; i < 97; i++) trace += x[98 * i];
    cr_expect(fabs(trace) < 4.0, "trace %g", trace);
    tp_params_free(P);
    tp_device_close(D);
}

static const tp_init zero = { .kind = TP_INIT_ZERO };

Test(init, by_name)
{
    static const tp_init_row rows[] = {
        { "encoder.*.fc1.weight", { TP_INIT_CONST, 1, 0 } },
        { "*.weight", { TP_INIT_CONST, 2, 0 } },
        { "head.bia?", { TP_INIT_CONST, 3, 0 } },
        { "encoder.0.*", { TP_INIT_CONST, 4, 0 } },
        { NULL, { 0 } },
    };
    static const struct {
        const char *name;
        double value;
    } cases[] = {
        { "encoder.0.fc1.weight", 1 },
        { "encoder.10.block.fc1.weight", 1 },
        { "encoder.0.fc2.weight", 2 },
        { "encoder.0.fc1.bias", 4 },
        { "head.bias", 3 },
        { "head.bia", 0 },
        { "head.biases", 0 },
        { "weight", 0 },
        { "encoder.0.fc1.weights", 4 },
    };
    enum { N = sizeof cases / sizeof *cases };
    tp_device *D;
    tp_tensor w[N];
    tp_params *P = make(&D);
    tp_init_by_name(P, rows);
    for (int i = 0; i < N; i++) w[i] = tp_param(P, cases[i].name, TP_SHAPE(2), zero, 0);
    const tp_tensor seen = tp_buffer(P, "seen.weight", TP_F32, TP_SHAPE(2), NULL);
    for (int i = 0; i < N; i++) {
        get(P, w[i]);
        cr_expect_eq(x[1], cases[i].value, "%s: %g", cases[i].name, x[1]);
    }
    get(P, seen);
    cr_expect_eq(x[0], 0.0, "a buffer keeps its content");
    tp_init_by_name(P, rows);
    cr_expect(strstr(tp_params_why(P), "tp_init_by_name: the parameters are in use already"), "%s",
              tp_params_why(P));
    tp_params_free(P);
    tp_device_close(D);
}

Test(init, impossible)
{
    static const tp_init_row unmatched[] = { { "*.weight", { TP_INIT_CONST, 1, 0 } },
                                             { "decoder.*", { TP_INIT_CONST, 1, 0 } },
                                             { NULL, { 0 } } };
    static const tp_init_row vector[] = { { "*", { TP_INIT_ORTHOGONAL, 0, 0 } }, { NULL, { 0 } } };
    const struct {
        const tp_init_row *rows;
        tp_init init;
        const char *why;
    } cases[] = {
        { unmatched, zero, "tp_init_by_name: no parameter matches 'decoder.*'; * stands for any" },
        { vector, zero, "params: 'fc.weight' has 1 axes; Xavier, Kaiming and orthogonal initial" },
        { NULL, { TP_INIT_XAVIER_NORMAL, 0, 0 }, "params: 'fc.weight' has 1 axes; Xavier" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tp_device *D;
        tp_params *P = make(&D);
        tp_init_by_name(P, cases[i].rows);
        const tp_tensor w = tp_param(P, "fc.weight", TP_SHAPE(3), cases[i].init, 0);
        tp_buffer(P, "decoder.seen", TP_F32, TP_SHAPE(2), NULL);
        cr_expect_not(tp_param_get(P, w, TP_F64, x, 3 * sizeof *x));
        cr_expect_eq(strncmp(tp_params_why(P), cases[i].why, strlen(cases[i].why)), 0, "%s",
                     tp_params_why(P));
        tp_params_free(P);
        tp_device_close(D);
    }
}

/* Values are drawn by name: the order of declaration does not matter. */
Test(init, order_does_not_matter)
{
    static double first[64 * 40];
    for (int order = 0; order < 2; order++) {
        tp_device *D;
        tp_params *P = make(&D);
        if (order) tp_param(P, "other", TP_SHAPE(9, 9), (tp_init){ TP_INIT_ORTHOGONAL, 0, 0 }, 0);
        const tp_tensor w =
            tp_param(P, "w", TP_SHAPE(64, 40), (tp_init){ TP_INIT_ORTHOGONAL, 0, 0 }, 0);
        get(P, w);
        if (order)
            cr_expect_arr_eq(first, x, sizeof first);
        else
            memcpy(first, x, sizeof first);
        tp_params_free(P);
        tp_device_close(D);
    }
}
