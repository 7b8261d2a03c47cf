/* test_cast.c - conversion between all dtypes, on the CPU and CUDA, against exact roundings of
 * doubles: halfway cases, values out of range, infinities, NaN; gradients. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <tapegrad/tapegrad.h>

#include "support/device.h"
#include "support/loops.h"
#include "support/values.h"

/* Rounds x to binary digits, ties to even. */
static double with_digits(double x, int digits)
{
    int exponent;
    const double m = frexp(x, &exponent);
    return isfinite(x) ? ldexp(rint(ldexp(m, digits)), exponent - digits) : x;
}

static double whole(double x, double least, double most)
{
    return isnan(x) ? 0 : fmin(fmax(trunc(x), least), most);
}

/* Converts x to dt; f32 and bf16 lose digits below 2^-126. */
static double converted(double x, tp_dtype dt)
{
    const double most = 0x1.fep127 + 0x1p119; /* from here on bf16 is infinite */
    switch (dt) {
    case TP_F32: return (double)(float)x;
    case TP_BF16:
        return fabs(x) >= most      ? copysign(INFINITY, x)
               : fabs(x) < 0x1p-126 ? ldexp(rint(ldexp(x, 133)), -133)
                                    : with_digits(x, 8);
    case TP_I32: return whole(x, INT32_MIN, INT32_MAX);
    case TP_I64: return whole(x, -0x1p63, 0x1p63); /* read back as doubles */
    case TP_U8: return whole(x, 0, 255);
    default: return x;
    }
}

static const double values[] = {
    0,
    -0.0,
    1,
    -1,
    0.5,
    -0.5,
    1.5,
    -2.5,
    254.9,
    255,
    255.5,
    256,
    -0x1p-100,
    2147483520,
    2147483646,
    2147483647,
    2147483648,
    -2147483648,
    -2147483649,
    -2147483904,
    0x1p32,
    0x1.fffffep62,
    0x1p63,
    -0x1p63,
    -0x1p64,
    1e30,
    -1e30,
    1e300,
    -1e300,
    NAN,
    INFINITY,
    -INFINITY,
    1 + 0x1p-8,
    1 + 0x1p-8 + 0x1p-40,
    1 + 3 * 0x1p-8 - 0x1p-45,
    1 + 0x1p-24,
    1 + 0x1p-24 + 0x1p-50,
    16777217,
    -16777219,
    0x1.fep127,
    0x1.fefffffffp127,
    0x1.ffp127,
    FLT_MAX,
    0x1p-133,
    0x1.8p-133,
    0x1p-134,
    0x1.00001p-134,
    0x1p-149,
    0x1p-150,
    65537,
    16842752,
    0x1.01p30,
    1082130433,
    123456789,
};
enum { VALUES = sizeof values / sizeof *values, N = 40 * VALUES + 3 };

static void check(tp_device *D, tp_dtype from, tp_dtype to)
{
    static double x[N], y[N];
    tp_tape *T = tp_tape_new(D, NULL);
    for (int e = 0; e < N; e++) x[e] = values[e % VALUES];
    const tp_tensor in = values_constant(T, from, TP_SHAPE(N), x);
    values_read(T, in, x);
    const tp_tensor out = tp_cast(T, in, to);
    values_read(T, out, y);
    cr_expect(tp_ok(T) && tp_dtype_of(out) == to, "%s", tp_why(T));
    for (int e = 0; e < N; e++) {
        const double want = converted(x[e], to);
        const bool same = y[e] == want && (!tp_is_float(to) || !signbit(y[e]) == !signbit(want));
        cr_expect(isnan(want) ? isnan(y[e]) : same, "%s %a to %s is %a, not %a",
                  tp_dtype_name(from), x[e], tp_dtype_name(to), y[e], want);
    }
    tp_tape_free(T);
}

Test(cast, every_pair_on_the_cpu)
{
    tp_device *D =
        tp_device_open("cpu", &(tp_device_opts){ .threads = 3, .keep_subnormals = true });
    for (int from = 0; from < TP_NDTYPES; from++)
        for (int to = 0; to < TP_NDTYPES; to++) check(D, (tp_dtype)from, (tp_dtype)to);
    tp_device_close(D);
}

Test(cast, every_pair_on_cuda)
{
    if (!device_has_cuda()) cr_skip_test("no CUDA device, nor an emulated one");
    tp_device *D = device_cuda();
    for (int from = 0; from < TP_NDTYPES; from++)
        for (int to = 0; to < TP_NDTYPES; to++)
            if (from != TP_F64 && to != TP_F64) check(D, (tp_dtype)from, (tp_dtype)to);
    tp_device_close(D);
}

/* Integers that no double holds, just beyond halfway in bf16. */
static void check_large(tp_device *D)
{
    const int64_t half = (INT64_C(1) << 60) + (INT64_C(1) << 52);
    const int64_t x[] = { half, half + 1, half - 1, -half - 1, INT64_MAX, INT64_MIN };
    const double want[] = { 0x1p60, 0x1.02p60, 0x1p60, -0x1.02p60, 0x1p63, -0x1p63 };
    double y[6];
    int32_t narrow[6];
    tp_tape *T = tp_tape_new(D, NULL);
    const tp_tensor in = tp_from(T, TP_I64, TP_SHAPE(6), x);
    values_read(T, tp_cast(T, in, TP_BF16), y);
    for (int e = 0; e < 6; e++) cr_expect_eq(y[e], want[e], "%lld: %a", (long long)x[e], y[e]);
    tp_read(T, tp_cast(T, in, TP_I32), narrow, sizeof narrow);
    for (int e = 0; e < 6; e++) cr_expect_eq(narrow[e], x[e] > 0 ? INT32_MAX : INT32_MIN);
    cr_expect(tp_ok(T), "%s", tp_why(T));
    tp_tape_free(T);
}

Test(cast, large_integers)
{
    tp_device *D = tp_device_open("cpu", NULL);
    check_large(D);
    tp_device_close(D);
    if (!device_has_cuda()) return;
    D = device_cuda();
    check_large(D);
    tp_device_close(D);
}

/* Gradients are rounded once, too, and end at integers. */
Test(cast, gradients)
{
    tp_device *D = tp_device_open("cpu", NULL);
    tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .compute = TP_F64 });
    const double one = 1, above_half = 1 + 0x1p-8 + 0x1p-40;
    const tp_tensor x = values_input(T, TP_BF16, TP_SHAPE(1), &one);
    const tp_tensor wide = tp_cast(T, x, TP_F64);
    tp_backward(T, tp_sum(T, tp_mul(T, wide, above_half), TP_ALL));
    cr_expect_eq(tp_item(T, tp_grad(T, x)), 1 + 0x1p-7);
    tp_reset(T);
    const tp_tensor z = values_input(T, TP_F64, TP_SHAPE(1), &above_half);
    const tp_tensor steps = tp_cast(T, tp_cast(T, z, TP_I32), TP_F64);
    tp_backward(T, tp_sum(T, tp_mul(T, steps, z), TP_ALL));
    cr_expect_eq(tp_item(T, tp_grad(T, z)), 1, "the integer is a constant");
    tp_cast(T, z, (tp_dtype)99);
    cr_expect(failed_with(T, "cast: 99 is not a dtype\n"));
    tp_tape_free(T);
    tp_device_close(D);
}
