/* test_masks.c - comparisons, logical ops, predicates of elements, and selection by masks, against
 * loops: all dtypes, broadcasting, numbers that no integer equals, special values, errors. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <tapegrad/tapegrad.h>

#include "support/loops.h"
#include "support/ops.h"
#include "support/values.h"

TestSuite(masks, .init = cpu_tape_open, .fini = cpu_tape_close);

static const tp_dtype dtypes[] = { TP_F32, TP_F64, TP_BF16, TP_I32, TP_I64, TP_U8 };
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

static const struct {
    const char *name;
    tp_tensor (*op)(tp_tape *T, tp_tensor a, tp_tensor b);
} ops[] = {
    { "eq", tp_eq },           { "ne", tp_ne },         { "lt", tp_lt },
    { "le", tp_le },           { "gt", tp_gt },         { "ge", tp_ge },
    { "and", tp_logical_and }, { "or", tp_logical_or }, { "xor", tp_logical_xor },
};
enum { OPS = sizeof ops / sizeof *ops };

static double holds(int op, double a, double b)
{
    const bool p = a != 0, q = b != 0;
    const bool y[OPS] = { a == b, a != b, a<b, a <= b, a> b, a >= b, p && q, p || q, p != q };
    return y[op];
}

/* Values that every dtype holds, many equal; NaN in floats. */
static void sample(double *x, int64_t n, tp_dtype dt, uint64_t seed)
{
    values_random(x, n, seed);
    for (int64_t e = 0; e < n; e++) {
        x[e] = rint(2 * x[e] + (dt == TP_U8 ? 2 : 0));
        if (tp_is_float(dt) && e % 13 == 5) x[e] = e % 2 ? INFINITY : NAN;
    }
}

static const struct {
    tp_shape a, b, c;
} shapes[] = {
    { { 0, { 0 } }, { 0, { 0 } }, { 0, { 0 } } },
    { { 1, { 20011 } }, { 1, { 20011 } }, { 1, { 20011 } } },
    { { 1, { 20011 } }, { 1, { 1 } }, { 1, { 20011 } } },
    { { 2, { 301, 67 } }, { 1, { 67 } }, { 2, { 301, 1 } } },
    { { 2, { 301, 1 } }, { 2, { 301, 67 } }, { 2, { 301, 67 } } },
    { { 2, { 201, 1 } }, { 2, { 1, 105 } }, { 0, { 0 } } },
    { { 4, { 5, 1, 31, 1 } }, { 3, { 17, 1, 29 } }, { 2, { 31, 29 } } },
    { { 5, { 2, 1, 2, 1, 2 } }, { 5, { 1, 3, 1, 3, 1 } }, { 5, { 2, 3, 1, 3, 2 } } },
    { { 2, { 3, 0 } }, { 2, { 3, 1 } }, { 1, { 1 } } },
};
enum { SHAPES = sizeof shapes / sizeof *shapes, ROOM = 1 << 17 };
static double xa[ROOM], xb[ROOM], xm[ROOM], y[ROOM], ga[ROOM], gb[ROOM], wa[ROOM], wb[ROOM];

Test(masks, relations)
{
    for (int s = 0; s < SHAPES; s++)
        for (int d = 0; d < DTYPES; d++) {
            const tp_shape sa = shapes[s].a, sb = shapes[s].b, sy = common_shape(sa, sb);
            sample(xa, elements(sa), dtypes[d], 1);
            sample(xb, elements(sb), dtypes[d], 2);
            tp_reset(T);
            const tp_tensor a = values_constant(T, dtypes[d], sa, xa),
                            b = values_constant(T, dtypes[d], sb, xb);
            for (int op = 0; op < OPS; op++) {
                const tp_tensor out = ops[op].op(T, a, b);
                cr_assert(tp_ok(T), "%s: %s", ops[op].name, tp_why(T));
                cr_assert(tp_dtype_of(out) == TP_U8 && tp_numel(out) == elements(sy));
                values_read(T, out, y);
                int wrong = 0;
                for (int64_t e = 0; e < elements(sy); e++)
                    wrong += y[e] != holds(op, xa[element_meeting(sy, sa, e)],
                                           xb[element_meeting(sy, sb, e)]);
                cr_expect_eq(wrong, 0, "%s of %s, shapes %d: %d are wrong", ops[op].name,
                             tp_dtype_name(dtypes[d]), s, wrong);
            }
        }
}

/* Numbers at, between and beyond each dtype's values, on both sides. */
Test(masks, numbers)
{
    static const double numbers[] = { 0,      1,     2.5,    -0.5,      -3,      255,
                                      256,    300.5, 0x1p31, -0x1p31,   0x1p63,  -0x1p63,
                                      -1e300, 1e300, NAN,    -INFINITY, INFINITY };
    static const double values[][7] = {
        [TP_F32] = { 0, 1, 2.5, -0.5, INFINITY, NAN, 255 },
        [TP_F64] = { 0, 1, 2.5, -0.5, INFINITY, NAN, 255 },
        [TP_BF16] = { 0, 1, 2.5, -0.5, INFINITY, NAN, 255 },
        [TP_I32] = { 0, 1, 2, 3, -3, INT32_MAX, INT32_MIN },
        [TP_I64] = { 0, 1, 2, 3, -3, 0x1p62, -0x1p63 },
        [TP_U8] = { 0, 1, 2, 3, 255, 254, 128 },
    };
    for (int d = 0; d < DTYPES; d++)
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
            for (int op = 0; op < 2 * OPS; op++) {
                const double *v = values[dtypes[d]], k = numbers[i];
                /* the number in a floating dtype; bf16 holds all finite ones below */
                const double same =
                    dtypes[d] == TP_F64 || fabs(k) < 1e38 || isnan(k) ? k : copysign(INFINITY, k);
                const double want = tp_is_float(dtypes[d]) ? same : k;
                tp_reset(T);
                const tp_tensor x = values_constant(T, dtypes[d], TP_SHAPE(7), v);
                const bool left = op >= OPS;
                const tp_tensor out =
                    left ? ops[op - OPS].op(T, tp_number(k), x) : ops[op].op(T, x, tp_number(k));
                double got[7];
                values_read(T, out, got);
                for (int e = 0; e < 7; e++)
                    if (dtypes[d] != TP_BF16 || fabs(k) != 300.5)
                        cr_expect_eq(
                            got[e], left ? holds(op - OPS, want, v[e]) : holds(op, v[e], want),
                            "%s(%s%g, %g%s) is %g", ops[op % OPS].name, tp_dtype_name(dtypes[d]),
                            left ? k : v[e], left ? v[e] : k, left ? " on the right" : "", got[e]);
            }
}

/* Integers beyond 2^53 differ even if doubles would not; a number is rounded to a floating
 * dtype. */
Test(masks, numbers_take_the_dtype)
{
    const int64_t big[] = { (INT64_C(1) << 53) + 1, INT64_C(1) << 53, INT64_MAX };
    const float tenth[] = { 0.1f };
    double got[3];
    const tp_tensor x = tp_from(T, TP_I64, TP_SHAPE(3), big);
    values_read(T, tp_eq(T, x, 0x1p53), got);
    cr_expect(got[0] == 0 && got[1] == 1 && got[2] == 0);
    values_read(T, tp_lt(T, x, 0x1p63), got);
    cr_expect(got[0] == 1 && got[1] == 1 && got[2] == 1);
    const tp_tensor z = tp_from(T, TP_F32, TP_SHAPE(1), tenth);
    values_read(T, tp_eq(T, z, 0.1), got);
    cr_expect_eq(got[0], 1);
    values_read(T, tp_eq(T, tp_cast(T, z, TP_BF16), 0.1), got);
    cr_expect_eq(got[0], 1);
}

Test(masks, questions)
{
    const double x[] = { 0, -0.0, 1, NAN, INFINITY, -INFINITY, 0x1p-130 };
    static const struct {
        tp_tensor (*op)(tp_tape *T, tp_tensor x);
        double floats[7], whole[7];
    } table[] = {
        { tp_logical_not, { 1, 1, 0, 0, 0, 0, 0 }, { 1, 1, 0, 1, 0, 0, 1 } },
        { tp_isnan, { 0, 0, 0, 1, 0, 0, 0 }, { 0 } },
        { tp_isinf, { 0, 0, 0, 0, 1, 1, 0 }, { 0 } },
        { tp_isfinite, { 1, 1, 1, 0, 0, 0, 1 }, { 1, 1, 1, 1, 1, 1, 1 } },
    };
    cpu_tape_close();
    D = tp_device_open("cpu", &(tp_device_opts){ .threads = 3, .keep_subnormals = true });
    T = tp_tape_new(D, NULL);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        for (int d = 0; d < DTYPES; d++) {
            double got[7 * 5], many[7 * 5]; /* in vectors and remainders */
            for (int e = 0; e < 35; e++)    /* integers saturate; NaN becomes 0 */
                many[e] = dtypes[d] == TP_U8 && x[e % 7] < 0 ? 1 : x[e % 7];
            values_read(T, table[i].op(T, values_constant(T, dtypes[d], TP_SHAPE(35), many)), got);
            for (int e = 0; e < 35; e++)
                cr_expect_eq(
                    got[e], tp_is_float(dtypes[d]) ? table[i].floats[e % 7] : table[i].whole[e % 7],
                    "question %zu of %s, element %d", i, tp_dtype_name(dtypes[d]), e);
        }
}

/* A comparison has no gradient; selected values do. */
Test(masks, gradients_end_at_masks)
{
    const double v[] = { -2, 3, 0.5 };
    const tp_tensor x = values_input(T, TP_F64, TP_SHAPE(3), v);
    tp_backward(T, tp_sum(T, tp_where(T, tp_gt(T, x, 0), tp_mul(T, x, x), tp_neg(T, x)), TP_ALL));
    values_read(T, tp_grad(T, x), ga);
    cr_expect(ga[0] == -1 && ga[1] == 6 && ga[2] == 1);
}

/* ---- selection ---- */

/* way: 0 two tensors, 1 a is a number, 2 b is a number. */
static void check_where(tp_shape sm, tp_shape sa, tp_shape sb, tp_dtype dt, int way)
{
    const double k = 3;
    const tp_shape s2 = way == 0 ? common_shape(sa, sb) : way == 1 ? sb : sa;
    const tp_shape sy = common_shape(sm, s2);
    const int64_t na = elements(sa), nb = elements(sb), ny = elements(sy);
    sample(xa, na, TP_U8, 1);
    sample(xb, nb, TP_U8, 2);
    sample(xm, elements(sm), TP_U8, 3);
    for (int64_t e = 0; e < elements(sm); e++) xm[e] = xm[e] > 2 ? 255 : xm[e] > 1;
    tp_reset(T);
    const bool real = tp_is_float(dt);
    const tp_tensor a = real ? values_input(T, dt, sa, xa) : values_constant(T, dt, sa, xa);
    const tp_tensor b = real ? values_input(T, dt, sb, xb) : values_constant(T, dt, sb, xb);
    const tp_tensor mask = values_constant(T, TP_U8, sm, xm);
    const tp_tensor out = way == 1   ? tp_where(T, mask, k, b)
                          : way == 2 ? tp_where(T, mask, a, k)
                                     : tp_where(T, mask, a, b);
    cr_assert(tp_ok(T) && tp_numel(out) == ny && tp_dtype_of(out) == dt, "%s", tp_why(T));
    values_read(T, out, y);
    int wrong = 0;
    for (int64_t e = 0; e < na; e++) wa[e] = 0;
    for (int64_t e = 0; e < nb; e++) wb[e] = 0;
    for (int64_t e = 0; e < ny; e++) {
        const bool yes = xm[element_meeting(sy, sm, e)] != 0;
        const int64_t i = way == 1 ? 0 : element_meeting(sy, sa, e);
        const int64_t j = way == 2 ? 0 : element_meeting(sy, sb, e);
        wrong += y[e] != (yes ? way == 1 ? k : xa[i] : way == 2 ? k : xb[j]);
        if (way != 1) wa[i] += yes;
        if (way != 2) wb[j] += !yes;
    }
    cr_expect_eq(wrong, 0, "%s, way %d: %d are wrong", tp_dtype_name(dt), way, wrong);
    if (!real || dt == TP_BF16) return; /* counts are not exact in bf16 */
    tp_backward(T, tp_sum(T, out, TP_ALL));
    if (way != 1) values_read(T, tp_grad(T, a), ga);
    if (way != 2) values_read(T, tp_grad(T, b), gb);
    for (int64_t e = 0; e < na && way != 1; e++) wrong += ga[e] != wa[e];
    for (int64_t e = 0; e < nb && way != 2; e++) wrong += gb[e] != wb[e];
    cr_expect_eq(wrong, 0, "%s, way %d: %d gradients are wrong", tp_dtype_name(dt), way, wrong);
}

Test(masks, where)
{
    for (int s = 0; s < SHAPES; s++)
        for (int d = 0; d < DTYPES; d++)
            for (int way = 0; way < 3; way++) {
                const tp_shape p[] = { shapes[s].a, shapes[s].b, shapes[s].c };
                for (int turn = 0; turn < 3; turn++)
                    check_where(p[turn], p[(turn + 1) % 3], p[(turn + 2) % 3], dtypes[d], way);
            }
}

/* Unselected values do not matter, not even NaN. */
Test(masks, unselected)
{
    const double a[] = { NAN, 1, 2 }, m[] = { 0, 1, 1 };
    const tp_tensor x = values_input(T, TP_F32, TP_SHAPE(3), a);
    const tp_tensor mask = values_constant(T, TP_U8, TP_SHAPE(3), m);
    tp_backward(T, tp_sum(T, tp_where(T, mask, x, 0), TP_ALL));
    values_read(T, tp_grad(T, x), ga);
    cr_expect(ga[0] == 0 && ga[1] == 1 && ga[2] == 1);
}

Test(masks, masked_fill)
{
    const double v[] = { 1, 2, 3, 4, 5, 6 }, m[] = { 1, 0 };
    const tp_tensor x = values_input(T, TP_F32, TP_SHAPE(2, 3), v);
    const tp_tensor rows = values_constant(T, TP_U8, TP_SHAPE(2, 1), m);
    const tp_tensor out = tp_masked_fill(T, x, rows, -INFINITY);
    tp_backward(T, tp_sum(T, tp_where(T, rows, 0, out), TP_ALL));
    values_read(T, out, y);
    values_read(T, tp_grad(T, x), ga);
    for (int e = 0; e < 6; e++) cr_expect(y[e] == (e < 3 ? -INFINITY : v[e]) && ga[e] == (e >= 3));
    values_read(T, tp_masked_fill(T, rows, rows, 7), y);
    cr_expect(y[0] == 7 && y[1] == 0);
    tp_masked_fill(T, rows, rows, 7.9);
    cr_expect(failed_with(T, "masked_fill: u8 cannot hold the value 7.9\n"));
}

Test(masks, mistakes)
{
    const tp_tensor x = tp_full(T, TP_F32, TP_SHAPE(2, 3), 1),
                    m = tp_full(T, TP_U8, TP_SHAPE(2, 3), 1);
    const tp_tensor i = tp_full(T, TP_I64, TP_SHAPE(2, 3), 1);
    tp_eq(T, 1, 2);
    cr_expect(failed_with(T, "eq: both operands are numbers; make a tensor of one with tp_full\n"));
    tp_gt(T, x, i);
    cr_expect(failed_with(T, "gt: inputs mix f32 and i64; convert with tp_cast\n"));
    tp_lt(T, x, tp_full(T, TP_F32, TP_SHAPE(2), 1));
    cr_expect(failed_with(T, "lt: along axis -1 the sizes are 3 in a, 2 in b: operands "));
    tp_logical_and(T, TP_NONE, x);
    cr_expect(failed_with(T, "logical_and: input 0: is missing (TP_NONE)\n"));
    tp_isnan(T, tp_number(1));
    cr_expect(failed_with(T, "isnan: input 0: the number 1 was given in place"));
    tp_where(T, x, x, x);
    cr_expect(failed_with(T, "where: mask must be u8, not f32; "));
    tp_where(T, m, x, i);
    cr_expect(failed_with(T, "where: inputs mix f32 and i64; convert with tp_cast\n"));
    tp_where(T, m, 1, 0);
    cr_expect(
        failed_with(T, "where: both operands are numbers; make a tensor of one with tp_full\n"));
    tp_where(T, m, x, TP_NONE);
    cr_expect(failed_with(T, "where: input 2: is missing (TP_NONE)\n"));
    tp_where(T, tp_full(T, TP_U8, TP_SHAPE(4), 1), x, x);
    cr_expect(failed_with(T, "where: along axis -1 the sizes are 4 in mask, 3 in a, 3 in b: "));
    tp_masked_fill(T, x, tp_full(T, TP_U8, TP_SHAPE(5, 2, 3), 1), 0);
    cr_expect(failed_with(
        T, "masked_fill: the mask must broadcast into x, whose shape the result has\n"));
}
