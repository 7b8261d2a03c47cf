/* test_reduce.c - sum, mean, max, argmax, logsumexp against loops in double: values and gradients
 * over shapes split in many ways, special values, errors, empty tensors. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "support/loops.h"
#include "support/ops.h"
#include "support/values.h"

TestSuite(reduce, .init = cpu_tape_open, .fini = cpu_tape_close);

enum { SUM, MEAN, MAX, LOGSUMEXP, ARGMAX, KINDS };
static const struct {
    const char *name;
    tp_tensor (*op)(tp_tape *T, tp_tensor x, int axis);
} kinds[] = { [SUM] = { "sum", tp_sum },
              [MEAN] = { "mean", tp_mean },
              [MAX] = { "max", tp_max },
              [LOGSUMEXP] = { "logsumexp", tp_logsumexp },
              [ARGMAX] = { "argmax", tp_argmax } };

static const struct {
    tp_shape s;
    int axis;
} table[] = {
    { { 0, { 0 } }, TP_ALL },        { { 1, { 7 } }, 0 },           { { 1, { 100003 } }, 0 },
    { { 2, { 301, 703 } }, TP_ALL }, { { 2, { 301, 703 } }, 0 },    { { 2, { 301, 703 } }, 1 },
    { { 2, { 3, 9001 } }, -1 },      { { 2, { 30001, 3 } }, 0 },    { { 2, { 30001, 3 } }, 1 },
    { { 3, { 13, 47, 301 } }, 1 },   { { 3, { 2, 5, 40000 } }, 1 }, { { 3, { 5, 1, 3 } }, 1 },
    { { 4, { 3, 4, 5, 6 } }, -3 },
};

/* Result and gradient, for dy, of the reduction `kind` of n elements at stride `step`. */
static double expected(int kind, const double *x, int64_t n, int64_t step, double dy, double *dx)
{
    double sum = 0.0, scaled = 0.0;
    int64_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += x[i * step];
        if (x[i * step] > x[most * step]) most = i;
    }
    for (int64_t i = 0; i < n; i++) scaled += exp(x[i * step] - x[most * step]);
    const double logsumexp = x[most * step] + log(scaled);
    for (int64_t i = 0; i < n; i++)
        dx[i * step] = dy * (kind == SUM         ? 1.0
                             : kind == MEAN      ? 1.0 / (double)n
                             : kind == LOGSUMEXP ? exp(x[i * step] - logsumexp)
                                                 : i == most);
    return kind == SUM         ? sum
           : kind == MEAN      ? sum / (double)n
           : kind == MAX       ? x[most * step]
           : kind == LOGSUMEXP ? logsumexp
                               : (double)most;
}

static void check(int kind, size_t i, tp_dtype dt)
{
    const tp_shape s = table[i].s;
    const int64_t numel = elements(s);
    const int axis = table[i].axis == TP_ALL ? -1 : (table[i].axis + s.ndim) % s.ndim;
    int64_t n = axis < 0 ? numel : s.dim[axis], inner = 1;
    for (int k = axis + 1; axis >= 0 && k < s.ndim; k++) inner *= s.dim[k];
    const int64_t results = numel / n;
    const size_t bytes = (size_t)numel * sizeof(double);
    double *x = malloc(bytes), *want = malloc(bytes), *g = malloc(bytes);
    double *y = malloc(bytes), *dy = malloc(bytes), *result = malloc(bytes);

    values_random(x, numel, i);
    /* few values, so that maxima repeat and the first counts */
    for (int64_t e = 0; e < numel; e++) x[e] = kind == MAX ? floor(x[e] * 20) / 4 : (float)x[e] * 4;
    values_random(dy, results, 99);
    for (int64_t e = 0; e < results; e++) {
        const int64_t at = e / inner * n * inner + e % inner;
        result[e] = expected(kind, x + at, n, inner, dy[e], want + at);
    }
    tp_reset(T);
    const tp_tensor tx = values_input(T, dt, s, x), ty = kinds[kind].op(T, tx, table[i].axis);
    cr_assert_eq(tp_numel(ty), results, "%s", tp_why(T));
    cr_expect_eq(tp_ndim(ty), axis < 0 ? 0 : s.ndim - 1);
    values_read(T, ty, y);
    const double limit = dt == TP_F64 ? 1e-13 : 2e-6;
    double off = values_error(y, result, results, 0.0);
    cr_expect(off <= limit, "%s, %zu, %s: off by %g", kinds[kind].name, i, tp_dtype_name(dt), off);
    if (kind != ARGMAX) {
        const tp_tensor t = values_constant(T, dt, tp_shape_of(ty), dy);
        tp_backward(T, tp_sum(T, tp_mul(T, ty, t), TP_ALL));
        values_read(T, tp_grad(T, tx), g);
        off = values_error(g, want, numel, 0.0);
        cr_expect(off <= limit, "gradient of %s, %zu, %s: off by %g", kinds[kind].name, i,
                  tp_dtype_name(dt), off);
    }
    free(x), free(want), free(g), free(y), free(dy), free(result);
}

Test(reduce, values_and_gradients)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        for (int kind = 0; kind < KINDS; kind++) {
            check(kind, i, TP_F64);
            check(kind, i, TP_F32);
        }
}

/* Sums of many numbers of one sign stay accurate, and sums of bf16 are in f32. */
Test(reduce, precision)
{
    enum { N = 1 << 22 };
    const double one = (double)0.1f, most = 6e-6 * one;
    const tp_tensor x = tp_full(T, TP_F32, TP_SHAPE(N), 0.1);
    cr_expect_float_eq(tp_item(T, tp_mean(T, x, TP_ALL)), one, most);
    for (int64_t columns = 4; columns < N; columns *= 16) {
        const tp_tensor m = tp_reshape(T, x, TP_SHAPE(-1, columns));
        for (int axis = 0; axis < 2; axis++) {
            const tp_tensor mean = tp_mean(T, m, axis);
            cr_expect_float_eq(tp_item(T, tp_slice(T, mean, 0, 0, 1)), one, most, "%d columns",
                               (int)columns);
        }
    }
    cr_expect_float_eq(tp_item(T, tp_logsumexp(T, x, 0)), one + log(N), 2e-6);
    const tp_tensor h = tp_full(T, TP_BF16, TP_SHAPE(1000), 1.0);
    const tp_tensor sum = tp_sum(T, h, 0);
    cr_expect_eq(tp_dtype_of(sum), TP_F32);
    cr_expect_eq(tp_item(T, sum), 1000.0);
    cr_expect_eq(tp_dtype_of(tp_max(T, h, 0)), TP_BF16);
}

Test(reduce, special_values)
{
    const double inf = INFINITY;
    const struct {
        const char *name;
        double x[3], max, logsumexp;
        int argmax;
    } special[] = {
        { "plain", { 1, 3, 2 }, 3, 3 + log(1 + exp(-1.0) + exp(-2.0)), 1 },
        { "the first of two", { 3, 1, 3 }, 3, 3 + log(2 + exp(-2.0)), 0 },
        { "large", { 1000, 999, -1e30 }, 1000, 1000 + log(1 + exp(-1.0)), 0 },
        { "NaN first", { NAN, 3, 2 }, NAN, NAN, 0 },
        { "NaN in the middle", { 1, NAN, inf }, NAN, NAN, 1 },
        { "two NaN", { 1, NAN, NAN }, NAN, NAN, 1 },
        { "infinity", { 1, inf, 2 }, inf, inf, 1 },
        { "nothing finite", { -inf, -inf, -inf }, -inf, -inf, 0 },
        { "one finite", { -inf, 0.5, -inf }, 0.5, 0.5, 1 },
    };
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        for (int columns = 1; columns <= 17; columns += 16)
            for (int f64 = 0; f64 < 2; f64++) {
                double x[3 * 17], y[17];
                const char *name = special[i].name;
                for (int e = 0; e < 3 * columns; e++) x[e] = special[i].x[e / columns];
                tp_reset(T);
                const tp_tensor t =
                    values_constant(T, f64 ? TP_F64 : TP_F32, TP_SHAPE(3, columns), x);
                values_read(T, tp_max(T, t, 0), y);
                double off = values_error(y, &special[i].max, 1, 0);
                cr_expect(off == 0, "max, %s: %g", name, y[0]);
                values_read(T, tp_argmax(T, t, 0), y);
                cr_expect_eq(y[columns - 1], special[i].argmax, "argmax, %s: %g", name, y[0]);
                values_read(T, tp_logsumexp(T, t, 0), y);
                off = values_error(y + columns - 1, &special[i].logsumexp, 1, 0);
                cr_expect(off < 1e-6, "logsumexp, %s: %g", name, y[0]);
            }
}

/* A masked row (all -infinity) must not affect the gradients of others. */
Test(reduce, logsumexp_of_nothing_has_gradient_zero)
{
    const double x[] = { -INFINITY, -INFINITY, 1.0, -INFINITY };
    for (int axis = 0; axis < 2; axis++) {
        double g[4];
        tp_reset(T);
        tp_tensor in = values_input(T, TP_F32, TP_SHAPE(2, 2), x), t = in;
        if (axis == 0) t = tp_permute(T, in, TP_SHAPE(1, 0));
        tp_backward(T, tp_sum(T, tp_logsumexp(T, t, axis), TP_ALL));
        values_read(T, tp_grad(T, in), g);
        for (int e = 0; e < 4; e++) cr_expect_eq(g[e], e == 2, "axis %d: %g", axis, g[e]);
    }
}

Test(reduce, mistakes)
{
    const tp_tensor x = tp_full(T, TP_F32, TP_SHAPE(2, 3), 1);
    tp_sum(T, x, 2);
    cr_expect(failed_with(T, "sum: axis 2 is out of range for 2 axes\n  inputs f32[2,3]\n"));
    tp_mean(T, x, -3);
    cr_expect(failed_with(T, "mean: axis -3 is out of range for 2 axes\n"));
    tp_logsumexp(T, tp_full(T, TP_I64, TP_SHAPE(2), 1), 0);
    cr_expect(failed_with(T, "logsumexp: input 0 must be floating point, not "));
    tp_max(T, tp_full(T, TP_F32, TP_SHAPE(3, 0), 1), 1);
    cr_expect(failed_with(
        T, "max: the reduced axes have no elements, so none is the largest or smallest\n"));
    tp_argmax(T, tp_full(T, TP_F32, TP_SHAPE(0), 1), TP_ALL);
    cr_expect(failed_with(
        T, "argmax: the reduced axes have no elements, so none is the largest or smallest\n"));
    tp_max(T, tp_full(T, TP_F32, TP_SCALAR, 1), 0);
    cr_expect(failed_with(T, "max: axis 0 is out of range for 0 axes\n"));
}

Test(reduce, empty)
{
    double y[3];
    const tp_tensor x = tp_input(T, TP_F32, TP_SHAPE(0, 3), NULL);
    values_read(T, tp_sum(T, x, 0), y);
    for (int e = 0; e < 3; e++) cr_expect_eq(y[e], 0.0);
    values_read(T, tp_mean(T, x, 0), y);
    for (int e = 0; e < 3; e++) cr_expect(isnan(y[e]));
    values_read(T, tp_logsumexp(T, x, 0), y);
    for (int e = 0; e < 3; e++) cr_expect_eq(y[e], -INFINITY);
    cr_expect_eq(tp_item(T, tp_sum(T, x, TP_ALL)), 0.0);
    tp_tensor sum = tp_sum(T, tp_max(T, x, 1), TP_ALL);
    sum = tp_add(T, sum, tp_sum(T, tp_mean(T, x, 1), 0));
    sum = tp_add(T, sum, tp_sum(T, tp_logsumexp(T, x, -1), 0));
    cr_expect_eq(tp_numel(tp_argmax(T, x, 1)), 0);
    tp_backward(T, sum);
    cr_expect_eq(tp_numel(tp_grad(T, x)), 0);
}

/* Sets of axes against reductions one axis at a time; refusals. */
Test(reduce, sets_of_axes)
{
    double v[2 * 3 * 4 * 5], a[120], b[120];
    values_random(v, 120, 5);
    const tp_tensor x = values_constant(T, TP_F64, TP_SHAPE(2, 3, 4, 5), v);
    const tp_tensor y = tp_sum(T, x, TP_KEEP(TP_AXES(0, -2)));
    const tp_shape kept = tp_shape_of(y);
    cr_expect(kept.ndim == 4 && kept.dim[0] == 1 && kept.dim[1] == 3 && kept.dim[2] == 1 &&
              kept.dim[3] == 5);
    values_read(T, y, a);
    values_read(T, tp_sum(T, tp_sum(T, x, 2), 0), b);
    cr_expect(values_error(a, b, 15, 0.0) < 1e-14);
    values_read(T, tp_max(T, x, TP_AXES(3, 1)), a);
    values_read(T, tp_max(T, tp_max(T, x, 3), 1), b);
    cr_expect(values_error(a, b, 8, 0.0) == 0);
    values_read(T, tp_min(T, x, TP_AXES(0, 2)), a);
    values_read(T, tp_neg(T, tp_max(T, tp_max(T, tp_neg(T, x), 2), 0)), b);
    cr_expect(values_error(a, b, 15, 0.0) == 0);
    values_read(T, tp_prod(T, x, TP_AXES(0, 2)), a);
    values_read(T, tp_prod(T, tp_prod(T, x, 2), 0), b);
    cr_expect(values_error(a, b, 15, 0.0) < 1e-14);
    values_read(T, tp_norm(T, x, 3, TP_AXES(0, 2)), a);
    values_read(T, tp_norm(T, tp_norm(T, x, 3, 2), 3, 0), b);
    cr_expect(values_error(a, b, 15, 0.0) < 1e-14);
    cr_expect_eq(tp_ndim(tp_mean(T, x, TP_KEEP(TP_ALL))), 4);
    tp_sum(T, x, TP_AXES(1, -3));
    cr_expect(failed_with(T, "sum: axis 1 is given twice, as 1 and as -3\n"));
    tp_sum(T, x, TP_AXES(1, 1));
    cr_expect(failed_with(T, "sum: TP_AXES has an axis twice\n"));
    tp_sum(T, x, TP_AXES(0, 4));
    cr_expect(failed_with(T, "sum: axis 4 is out of range for 4 axes\n"));
    tp_sum(T, x, TP_KEEP(100));
    cr_expect(
        failed_with(T, "sum: TP_AXES and TP_KEEP take axes from -8 to 7, at most 8 of them\n"));
    tp_sum(T, x, TP__AXES_MARK);
    cr_expect(failed_with(T, "sum: the set of axes is empty\n"));
    tp_norm(T, x, -1, 0);
    cr_expect(failed_with(T, "norm: p is -1, but must be 0 or more, or INFINITY\n"));
    tp_var(T, x, 0, (double)NAN);
    cr_expect(failed_with(T, "var: the correction is nan, not a finite number\n"));
}

/* The variance of numbers with a large mean. */
Test(reduce, variance_beside_a_large_mean)
{
    enum { N = 3000 };
    double v[N], mean = 0, sum = 0, y[1];
    values_random(v, N, 6);
    for (int i = 0; i < N; i++) mean += (v[i] = (double)(float)(1e5 + v[i])) / N;
    for (int i = 0; i < N; i++) sum += (v[i] - mean) * (v[i] - mean);
    for (int columns = 0; columns < 2; columns++) {
        const tp_shape s = columns ? TP_SHAPE(N, 1) : TP_SHAPE(1, N);
        const tp_tensor x = values_constant(T, TP_F32, s, v);
        values_read(T, tp_var(T, x, 1 - columns, 1), y);
        cr_expect_float_eq(y[0], sum / (N - 1), 1e-5 * sum / N, "%g", y[0]);
        values_read(T, tp_std(T, x, 1 - columns, 0), y);
        cr_expect_float_eq(y[0], sqrt(sum / N), 1e-5, "%g", y[0]);
    }
}

Test(reduce, any_and_all)
{
    const double v[] = { 0, 0, 0, 2, NAN, 1 };
    double y[3];
    const tp_dtype types[] = { TP_F32, TP_F64, TP_BF16, TP_I32, TP_I64, TP_U8 };
    for (int i = 0; i < 6; i++) {
        const tp_tensor x = values_constant(T, types[i], TP_SHAPE(3, 2), v);
        values_read(T, tp_any(T, x, 1), y);
        cr_expect(y[0] == 0 && y[1] == 1 && y[2] == 1, "%s", tp_dtype_name(types[i]));
        values_read(T, tp_all(T, x, 1), y);
        cr_expect(y[0] == 0 && y[1] == 0 && y[2] == (i < 3), "%s", tp_dtype_name(types[i]));
    }
    const tp_tensor none = tp_input(T, TP_F32, TP_SHAPE(0, 3), NULL);
    cr_expect_eq(tp_dtype_of(tp_any(T, none, 0)), TP_U8);
    values_read(T, tp_any(T, none, 0), y);
    cr_expect_eq(y[2], 0);
    values_read(T, tp_all(T, none, 0), y);
    cr_expect_eq(y[2], 1);
}
