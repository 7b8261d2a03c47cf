/* test_create.c - tensors made on the device: sequences, triangles, random numbers, against plain
 * loops. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "support/device.h"
#include "tensor/rng.h"

enum { N = 100003 };

typedef struct bench {
    tp_device *D;
    tp_tape *T;
} bench;

static bench begin(uint64_t seed)
{
    bench b = { .D = device_open(NULL) };
    b.T = tp_tape_new(b.D, &(tp_tape_opts){ .seed = seed });
    return b;
}

static void end(bench b)
{
    cr_expect(tp_ok(b.T), "%s", tp_why(b.T));
    tp_tape_free(b.T);
    tp_device_close(b.D);
}

/* Element i of x, of any dtype. */
static double at(tp_tape *T, tp_tensor x, int64_t i)
{
    return tp_item(T, tp_slice(T, tp_reshape(T, x, TP_SHAPE(-1)), 0, i, 1));
}

Test(create, sequences)
{
    static const struct {
        tp_dtype dt;
        double start, end, step;
        int64_t n;
    } table[] = {
        { TP_F32, 0, 5, 1, 5 },
        { TP_F32, 1, 2, 0.3, 4 },
        { TP_BF16, 3, -1, -0.5, 8 },
        { TP_I64, -3, 20, 5, 5 },
        { TP_I32, 5, 5, 1, 0 },
        { TP_I32, 5, 1, 1, 0 },
        { TP_U8, 250, 256, 1, 6 },
        { TP_I64, 9, -2, -4, 3 },
        { TP_I32, -2147483647, 2147483648.0, 1431655765, 3 },
    };
    bench b = begin(1);
    for (size_t k = 0; k < sizeof table / sizeof *table; k++) {
        const tp_tensor y =
            tp_arange(b.T, table[k].dt, table[k].start, table[k].end, table[k].step);
        cr_assert_eq(tp_numel(y), table[k].n, "row %zu: %lld", k, (long long)tp_numel(y));
        cr_expect_eq(tp_dtype_of(y), table[k].dt);
        for (int64_t i = 0; i < table[k].n; i++)
            cr_expect_float_eq(at(b.T, y, i), table[k].start + (double)i * table[k].step, 1e-6,
                               "row %zu, element %lld", k, (long long)i);
    }
    const tp_tensor line = tp_linspace(b.T, TP_F32, -0.7, 0.9, 1001);
    cr_expect_eq(at(b.T, line, 0), (double)-0.7f);
    cr_expect_eq(at(b.T, line, 1000), (double)0.9f);
    for (int i = 0; i < 1001; i++)
        cr_expect_float_eq(at(b.T, line, i), -0.7 + 0.0016 * i, 1e-7, "element %d", i);
    cr_expect_eq(at(b.T, tp_linspace(b.T, TP_F32, 3, 8, 1), 0), 3.0);
    cr_expect_eq(tp_numel(tp_linspace(b.T, TP_F32, 3, 8, 0)), 0);
    end(b);
}

Test(create, triangles)
{
    enum { B = 2, R = 5, C = 7 };
    float x[B * R * C], y[B * R * C];
    bench b = begin(1);
    for (int i = 0; i < B * R * C; i++) x[i] = (float)(i + 1);
    for (int k = -8; k <= 8; k++)
        for (int upper = 0; upper < 2; upper++) {
            const tp_tensor t = tp_from(b.T, TP_F32, TP_SHAPE(B, R, C), x);
            cr_assert(tp_read(b.T, upper ? tp_triu(b.T, t, k) : tp_tril(b.T, t, k), y, sizeof y));
            for (int i = 0; i < B * R * C; i++) {
                const int row = i / C % R, column = i % C;
                const bool stays = upper ? column - row >= k : column - row <= k;
                cr_expect_eq(y[i], stays ? x[i] : 0.0f, "k %d, %s, element %d", k,
                             upper ? "upper" : "lower", i);
            }
        }
    const uint8_t ones[4] = { 1, 1, 1, 1 };
    uint8_t mask[4];
    const tp_tensor square = tp_from(b.T, TP_U8, TP_SHAPE(2, 2), ones);
    cr_assert(tp_read(b.T, tp_tril(b.T, square, 0), mask, sizeof mask));
    cr_expect(mask[0] == 1 && mask[1] == 0 && mask[2] == 1 && mask[3] == 1);
    end(b);
}

/* The words of the tape's stream; the next op takes others. */
Test(create, random_numbers)
{
    static float u[N], z[N], again[N];
    uint64_t seed, offset;
    bench b = begin(77);
    tp_random_state(b.T, &seed, &offset);
    cr_assert(tp_read(b.T, tp_rand(b.T, TP_F32, TP_SHAPE(N)), u, sizeof u));
    cr_assert(tp_read(b.T, tp_randn(b.T, TP_F32, TP_SHAPE(N)), z, sizeof z));
    for (int i = 0; i < N; i++) {
        cr_assert_eq(u[i], tp__uniform(tp__word(seed, offset, (uint64_t)i)), "element %d", i);
        cr_assert_float_eq(z[i], tp__normal(seed, offset + 1, (uint64_t)i), 2e-5, "element %d", i);
    }
    tp_set_random_state(b.T, seed, offset);
    cr_assert(tp_read(b.T, tp_rand(b.T, TP_F32, TP_SHAPE(N)), again, sizeof again));
    cr_expect_arr_eq(again, u, sizeof u);
    cr_assert(tp_read(b.T, tp_rand(b.T, TP_F32, TP_SHAPE(N)), again, sizeof again));
    cr_expect_neq(memcmp(again, u, sizeof u), 0, "the stream does not advance");
    end(b);
}

Test(create, distributions)
{
    static double v[2][N];
    bench b = { .D = tp_device_open("cpu", NULL) };
    b.T = tp_tape_new(b.D, &(tp_tape_opts){ .seed = 5 });
    cr_assert(tp_read(b.T, tp_rand(b.T, TP_F64, TP_SHAPE(N)), v[0], sizeof v[0]));
    cr_assert(tp_read(b.T, tp_randn(b.T, TP_F64, TP_SHAPE(N)), v[1], sizeof v[1]));
    static const double want[2][2] = { { 0.5, 1.0 / 12 }, { 0.0, 1.0 } }; /* mean, variance */
    for (int k = 0; k < 2; k++) {
        const double n = N;
        double mean = 0, square = 0;
        for (int i = 0; i < N; i++) mean += v[k][i] / n;
        for (int i = 0; i < N; i++) square += (v[k][i] - mean) * (v[k][i] - mean) / n;
        cr_expect_float_eq(mean, want[k][0], 5 * sqrt(want[k][1] / n)); /* 5 deviations */
        cr_expect_float_eq(square, want[k][1], 0.02 * want[k][1]);
    }
    end(b);
}

Test(create, errors)
{
    static const struct {
        tp_dtype dt;
        double start, end, step;
        const char *why;
    } table[] = {
        { TP_I64, 0, 5, 0.5, "start and step of i64 must be integers, not 0 and 0.5" },
        { TP_U8, 0, 300, 1, "the values go from 0 to 299, but those of u8 from 0 to 255" },
        { TP_F32, 0, 5, 0, "step must not be 0" },
        { TP_F32, 0, INFINITY, 1, "the numbers must be finite" },
        { TP_F32, 0, 1e300, 1, "at most 2^53 elements" },
    };
    bench b = begin(1);
    for (size_t k = 0; k < sizeof table / sizeof *table; k++) {
        tp_arange(b.T, table[k].dt, table[k].start, table[k].end, table[k].step);
        cr_expect(strstr(tp_why(b.T), table[k].why), "row %zu: %s", k, tp_why(b.T));
        tp_clear(b.T);
    }
    tp_rand(b.T, TP_I64, TP_SHAPE(2));
    cr_expect(strstr(tp_why(b.T), "the dtype must be floating point, not i64"), "%s", tp_why(b.T));
    tp_clear(b.T);
    tp_linspace(b.T, TP_F32, 0, 1, -1);
    cr_expect(strstr(tp_why(b.T), "n must not be negative: -1"), "%s", tp_why(b.T));
    tp_clear(b.T);
    tp_tril(b.T, tp_full(b.T, TP_F32, TP_SHAPE(3), 1), 0);
    cr_expect(strstr(tp_why(b.T), "x must have at least two axes"), "%s", tp_why(b.T));
    tp_clear(b.T);
    end(b);
}
