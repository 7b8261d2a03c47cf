/* test_binary.c - elementwise ops of two operands against loops in double: values and large
 * broadcast gradients in f32 and f64, numbers as operands, special values. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <tapegrad/tapegrad.h>

#include "support/loops.h"
#include "support/ops.h"
#include "support/values.h"

TestSuite(binary, .init = cpu_tape_open, .fini = cpu_tape_close);

/* ---- two operands ---- */

static const struct {
    const char *name;
    tp_tensor (*op)(tp_tape *T, tp_tensor a, tp_tensor b);
} binary[] = {
    { "add", tp_add }, { "sub", tp_sub },         { "mul", tp_mul },         { "div", tp_div },
    { "pow", tp_pow }, { "maximum", tp_maximum }, { "minimum", tp_minimum },
};
enum { ADD, SUB, MUL, DIV, POW, MAXIMUM, MINIMUM, BINARY };

static double apply(int op, double a, double b)
{
    const double y[BINARY] = { a + b, a - b, a * b, a / b, pow(a, b), fmax(a, b), fmin(a, b) };
    return y[op];
}
static double slope_a(int op, double a, double b)
{
    const double equal = a == b ? 0.5 : 0;
    const double y[BINARY] = {
        1, 1, b, 1 / b, b * pow(a, b - 1), a > b ? 1 : equal, a < b ? 1 : equal
    };
    return y[op];
}
static double slope_b(int op, double a, double b)
{
    const double equal = a == b ? 0.5 : 0;
    const double y[BINARY] = {
        1, -1, a, -a / (b * b), pow(a, b) * log(a), b > a ? 1 : equal, b < a ? 1 : equal
    };
    return y[op];
}

/* Shapes that split the sums of gradients into blocks, pieces and columns, with remainders. */
static const struct {
    tp_shape a, b;
} broadcasts[] = {
    { { 0, { 0 } }, { 0, { 0 } } },
    { { 2, { 3, 5 } }, { 0, { 0 } } },
    { { 1, { 50001 } }, { 1, { 50001 } } },
    { { 1, { 50001 } }, { 1, { 1 } } },
    { { 2, { 301, 703 } }, { 1, { 703 } } },
    { { 2, { 20011, 3 } }, { 1, { 3 } } },
    { { 2, { 7, 9001 } }, { 2, { 7, 1 } } },
    { { 2, { 9001, 7 } }, { 2, { 9001, 1 } } },
    { { 3, { 33, 2, 1501 } }, { 3, { 1, 2, 1501 } } },
    { { 3, { 33, 2, 1501 } }, { 2, { 2, 1 } } },
    { { 3, { 5, 129, 130 } }, { 3, { 5, 1, 130 } } },
    { { 4, { 3, 41, 2, 301 } }, { 4, { 3, 1, 2, 1 } } },
    { { 4, { 13, 3, 21, 31 } }, { 4, { 1, 3, 1, 31 } } },
    { { 8, { 2, 3, 2, 3, 2, 3, 2, 3 } }, { 8, { 1, 3, 1, 3, 1, 3, 1, 3 } } },
    { { 8, { 2, 3, 2, 3, 2, 3, 2, 3 } }, { 7, { 3, 1, 3, 1, 3, 1, 3 } } },
    { { 2, { 3, 0 } }, { 2, { 3, 1 } } },
    { { 2, { 0, 3 } }, { 1, { 3 } } },
    { { 2, { 1, 3 } }, { 2, { 0, 1 } } },
    { { 2, { 701, 1 } }, { 2, { 1, 305 } } },
    { { 2, { 3, 1 } }, { 1, { 20011 } } },
    { { 4, { 5, 1, 31, 1 } }, { 3, { 17, 1, 29 } } },
    { { 3, { 1, 3, 1501 } }, { 3, { 33, 1, 1501 } } },
    { { 8, { 2, 1, 2, 1, 2, 1, 2, 1 } }, { 8, { 1, 3, 1, 3, 1, 3, 1, 3 } } },
    { { 3, { 1, 1, 4 } }, { 1, { 4 } } },
};

static void sample_all(double *v, int64_t n, uint64_t seed, bool away_from_zero)
{
    values_random(v, n, seed);
    for (int64_t e = 0; e < n; e++)
        v[e] = (float)(away_from_zero ? copysign(0.5 + fabs(v[e]), v[e]) : v[e]);
}

static void check_broadcast(int op, tp_shape sa, tp_shape sb, tp_dtype dt)
{
    const tp_shape sy = common_shape(sa, sb);
    const int64_t na = elements(sa), nb = elements(sb), ny = elements(sy);
    double *x = malloc((size_t)(na + nb + 2 * ny + 1) * sizeof *x), *dy = x + na + nb, *y = dy + ny;
    double *got = malloc((size_t)(na + nb + 1) * sizeof *got);
    double *want = calloc((size_t)(na + nb) + 1, sizeof *want);
    double *mass = calloc((size_t)(na + nb) + 1, sizeof *mass);
    sample_all(x, na, 1, false);
    sample_all(x + na, nb, 2, true);
    sample_all(dy, ny, 3, false);
    for (int64_t e = 0; e < na && op == POW; e++) x[e] = (float)(fabs(x[e]) + 0.25);
    for (int64_t e = 0; e < na + nb && op >= MAXIMUM; e++) x[e] = rint(4 * x[e]); /* many ties */
    tp_reset(T);
    const tp_tensor ta = values_input(T, dt, sa, x), tb = values_input(T, dt, sb, x + na);
    const tp_tensor ty = binary[op].op(T, ta, tb);
    tp_backward(T, tp_sum(T, tp_mul(T, ty, values_constant(T, dt, sy, dy)), TP_ALL));
    get_values(T, ty, ny, y);
    get_values(T, tp_grad(T, ta), na, got);
    get_values(T, tp_grad(T, tb), nb, got + na);
    const double eps = dt == TP_F64 ? 1e-15 : 4e-7;
    double value = 0.0, sum = 0.0;
    for (int64_t e = 0; e < ny; e++) {
        const int64_t i = element_meeting(sy, sa, e), k = na + element_meeting(sy, sb, e);
        const double to_a = dy[e] * slope_a(op, x[i], x[k]), to_b = dy[e] * slope_b(op, x[i], x[k]);
        const double exact = apply(op, x[i], x[k]);
        value = worse(value, fabs(y[e] - exact) / (1.0 + fabs(exact)));
        want[i] += to_a, mass[i] += fabs(to_a);
        want[k] += to_b, mass[k] += fabs(to_b);
    }
    for (int64_t k = 0; k < na + nb; k++)
        sum = worse(sum, fabs(got[k] - want[k]) / (mass[k] + 1.0));
    cr_expect_lt(value, 4 * eps, "%s: value off by %g", binary[op].name, value);
    cr_expect_lt(sum, 4 * eps, "%s: gradients off by %g", binary[op].name, sum);
    free(x), free(got), free(want), free(mass);
}

Test(binary, broadcasts)
{
    for (size_t i = 0; i < sizeof broadcasts / sizeof *broadcasts; i++)
        for (int op = 0; op < BINARY; op++) {
            const tp_shape a = broadcasts[i].a, b = broadcasts[i].b;
            check_broadcast(op, a, b, TP_F64);
            check_broadcast(op, a, b, TP_F32);
            check_broadcast(op, b, a, TP_F32);
            cr_expect(tp_ok(T), "broadcast %zu, %s: %s", i, binary[op].name, tp_why(T));
        }
}

/* ---- numbers as operands ---- */

Test(binary, numbers)
{
    const double x[] = { 0.5, 1, 2, 3.5, 4, 7, 9, 11, 0.25, 6, 8 };
    for (int op = 0; op < BINARY; op++)
        for (int side = 0; side < 2; side++)
            for (int dt = 0; dt < 2; dt++) {
                const double k = 3;
                double y[11], g[11];
                tp_reset(T);
                const tp_tensor in = values_input(T, dt ? TP_F64 : TP_F32, TP_SHAPE(11), x);
                const tp_tensor n = tp_number(k);
                const tp_tensor out = binary[op].op(T, side ? in : n, side ? n : in);
                tp_backward(T, tp_sum(T, out, TP_ALL));
                get_values(T, out, 11, y);
                get_values(T, tp_grad(T, in), 11, g);
                for (int e = 0; e < 11; e++) {
                    const double a = side ? x[e] : k, b = side ? k : x[e];
                    const double want = apply(op, a, b);
                    const double slope = side ? slope_a(op, a, b) : slope_b(op, a, b);
                    const double eps = dt ? 1e-15 : 3e-7;
                    cr_expect(fabs(y[e] - want) <= eps * fabs(want), "%s: %g", binary[op].name,
                              y[e]);
                    cr_expect(fabs(g[e] - slope) <= 4 * eps * fabs(slope),
                              "slope of %s: %g, not %g", binary[op].name, g[e], slope);
                }
            }
}

/* As in C programs: any arithmetic type on either side, nested. */
Test(binary, plain_numbers)
{
    const float host[] = { 1, 2, 4 };
    const tp_tensor x = tp_input(T, TP_F32, TP_SHAPE(3), host), list[] = { x };
    const int64_t large = 3;
    double y[3], g[3];
    const tp_tensor out =
        tp_sub(T, 1, tp_mul(T, tp_add(T, list[0], large), tp_div(T, 0.5f, tp_maximum(T, x, 2u))));
    tp_backward(T, tp_sum(T, out, TP_ALL));
    get_values(T, out, 3, y);
    get_values(T, tp_grad(T, x), 3, g);
    cr_expect(y[0] == 0 && y[1] == -0.25 && y[2] == 0.125);
    cr_expect(g[0] == -0.25 && g[2] == -0.125 + 7.0 / 32);
    cr_expect_eq(tp_dtype_of(tp_mul(T, tp_cast(T, x, TP_BF16), 2)), TP_BF16);
}

Test(binary, numbers_are_no_tensors)
{
    const tp_tensor n = tp_number(2.5), x = tp_full(T, TP_F32, TP_SHAPE(3), 1);
    cr_expect(tp_ndim(n) == 0 && tp_numel(n) == 1 && tp_dim(n, 0) == 1 && tp_given(n));
    cr_expect_eq(tp_shape_of(tp_number(0.0)).ndim, 0);
    cr_expect_eq(tp_item(T, n), 2.5);
    tp_exp(T, n);
    cr_expect(failed_with(
        T, "exp: input 0: the number 2.5 was given in place of a tensor; make one with tp_full\n"));
    tp_keep(T, n);
    cr_expect(failed_with(T, "tp_keep: the number 2.5"));
    float host;
    tp_read(T, tp_number(0), &host, sizeof host);
    cr_expect(failed_with(T, "tp_read: the number 0 "));
    tp_add(T, 1, 2);
    cr_expect(
        failed_with(T, "add: both operands are numbers; make a tensor of one with tp_full\n"));
    tp_add(T, TP_NONE, x);
    cr_expect(failed_with(T, "add: input 0: is missing (TP_NONE)\n"));
}

/* Powers and extremes where C, IEEE 754 and PyTorch may differ; values from PyTorch 2.15. */
Test(binary, special_values_of_two)
{
    const double inf = INFINITY;
    const struct {
        tp_tensor (*op)(tp_tape *T, tp_tensor a, tp_tensor b);
        double a, b, y, da, db;
    } table[] = {
        { tp_pow, 0, 0, 1, 0, 0 },
        { tp_pow, 0, 2, 0, 0, 0 },
        { tp_pow, 0, 0.5, 0, inf, 0 },
        { tp_pow, 0, 1, 0, 1, 0 },
        { tp_pow, 0, -1, inf, -inf, -inf },
        { tp_pow, -2, 3, -8, 12, NAN },
        { tp_pow, -2, -1, -0.5, -0.25, NAN },
        { tp_pow, -2, 0.5, NAN, NAN, NAN },
        { tp_pow, -2, 2.5, NAN, NAN, NAN },
        { tp_pow, 2, 0, 1, 0, 0.69314718055994531 },
        { tp_pow, NAN, 0, 1, 0, NAN },
        { tp_pow, 1, NAN, 1, NAN, 0 },
        { tp_pow, inf, -1, 0, -0.0, NAN },
        { tp_maximum, 1, 1, 1, 0.5, 0.5 },
        { tp_maximum, NAN, 1, NAN, 1, 1 },
        { tp_maximum, 1, NAN, NAN, 1, 1 },
        { tp_maximum, -inf, 1, 1, 0, 1 },
        { tp_minimum, inf, inf, inf, 0.5, 0.5 },
        { tp_minimum, NAN, 1, NAN, 1, 1 },
        { tp_minimum, 1, NAN, NAN, 1, 1 },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        for (int way = 0; way < 6; way++) { /* f32, f64; tensors, b a number, a a number */
            double a[19], b[19], y[19], da[19], db[19];
            const tp_dtype dt = way % 2 ? TP_F64 : TP_F32;
            for (int e = 0; e < 19; e++) a[e] = table[i].a, b[e] = table[i].b;
            tp_reset(T);
            const tp_tensor ta = values_input(T, dt, TP_SHAPE(19), a),
                            tb = values_input(T, dt, TP_SHAPE(19), b);
            const tp_tensor out = table[i].op(T, way / 2 == 2 ? tp_number(a[0]) : ta,
                                              way / 2 == 1 ? tp_number(b[0]) : tb);
            tp_backward(T, tp_sum(T, out, TP_ALL));
            get_values(T, out, 19, y);
            if (way / 2 != 2) get_values(T, tp_grad(T, ta), 19, da);
            if (way / 2 != 1) get_values(T, tp_grad(T, tb), 19, db);
            for (int e = 0; e < 19; e++) {
                const double got[] = { y[e], way / 2 != 2 ? da[e] : table[i].da,
                                       way / 2 != 1 ? db[e] : table[i].db };
                const double want[] = { table[i].y, table[i].da, table[i].db };
                for (int k = 0; k < 3; k++)
                    cr_expect(isnan(want[k])   ? isnan(got[k])
                              : isinf(want[k]) ? got[k] == want[k]
                                               : fabs(got[k] - want[k]) < 1e-6,
                              "row %zu, way %d: %s is %g, not %g", i, way,
                              k == 0   ? "y"
                              : k == 1 ? "da"
                                       : "db",
                              got[k], want[k]);
            }
        }
}

/* Bits must not depend on the number of threads. */
Test(binary, sums_do_not_depend_on_threads)
{
    enum { N = 301 * 703 };
    static double a[N], b[703], db[2][703], total[2];
    sample_all(a, N, 1, false);
    sample_all(b, 703, 2, true);
    for (int run = 0; run < 2; run++) {
        tp_device *own = tp_device_open("cpu", &(tp_device_opts){ .threads = run ? 7 : 1 });
        tp_tape *t = tp_tape_new(own, NULL);
        const tp_tensor ta = values_constant(t, TP_F32, TP_SHAPE(301, 703), a);
        const tp_tensor tb = values_input(t, TP_F32, TP_SHAPE(703), b);
        const tp_tensor loss = tp_sum(t, tp_div(t, ta, tb), TP_ALL);
        tp_backward(t, loss);
        total[run] = tp_item(t, loss);
        get_values(t, tp_grad(t, tb), 703, db[run]);
        tp_tape_free(t);
        tp_device_close(own);
    }
    cr_expect_eq(total[0], total[1]);
    cr_expect_arr_eq(db[0], db[1], sizeof db[0]);
}
