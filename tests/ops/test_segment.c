/* test_segment.c - segment_max and segment_mean against plain loops: ties, NaN, segments without
 * rows, bf16, threads, mistakes. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/random.h>
#include <tapegrad/tapegrad.h>

#include "support/device.h"
#include "support/values.h"

enum { N = 40, C = 5, S = 7 };

/* Rows in any order, with ties; segment 3 has none. */
static void draw(double *x, int32_t *segment)
{
    tp_random r = tp_random_stream(1, "segments", 0, 0);
    for (int i = 0; i < N; i++) {
        segment[i] = (int32_t)tp_random_below(&r, S);
        if (segment[i] == 3) segment[i] = 0;
        for (int k = 0; k < C; k++) x[i * C + k] = (double)tp_random_below(&r, 9) - 4;
    }
}

Test(segment, equals_plain_loops)
{
    double x[N * C], most[S * C] = { 0 }, mean[S * C] = { 0 }, got[S * C], dx[N * C], want[N * C];
    int32_t segment[N];
    int rows[S] = { 0 }, first[S * C];
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    draw(x, segment);
    memset(first, -1, sizeof first);
    for (int i = 0; i < N; i++) {
        rows[segment[i]]++;
        for (int k = 0; k < C; k++) {
            const int e = segment[i] * C + k;
            mean[e] += x[i * C + k];
            if (first[e] < 0 || x[i * C + k] > most[e]) most[e] = x[i * C + k], first[e] = i;
        }
    }
    for (int e = 0; e < S * C; e++) mean[e] /= rows[e / C] ? rows[e / C] : 1;
    for (int wide = 0; wide < 2; wide++) {
        int64_t far[N];
        for (int i = 0; i < N; i++) far[i] = segment[i];
        const tp_tensor s =
            tp_from(T, wide ? TP_I64 : TP_I32, TP_SHAPE(N), wide ? (const void *)far : segment);
        const tp_tensor in = values_input(T, device_real(), TP_SHAPE(N, C), x);
        const tp_tensor a = tp_segment_max(T, in, s, S), b = tp_segment_mean(T, in, s, S);
        values_read(T, a, got);
        for (int e = 0; e < S * C; e++) cr_expect_eq(got[e], most[e], "max, element %d", e);
        values_read(T, b, got);
        for (int e = 0; e < S * C; e++)
            cr_expect_float_eq(got[e], mean[e], device_limit(1e-12, 1e-6), "mean, element %d", e);
        tp_backward(T, tp_sum(T, tp_add(T, a, b), TP_ALL));
        values_read(T, tp_grad(T, in), dx);
        for (int i = 0; i < N * C; i++) {
            const int e = segment[i / C] * C + i % C;
            want[i] = 1.0 / rows[segment[i / C]] + (first[e] == i / C);
            cr_expect_float_eq(dx[i], want[i], device_limit(1e-12, 1e-6), "gradient %d", i);
        }
    }
    tp_tape_free(T);
    tp_device_close(D);
}

Test(segment, nan_infinities_and_signs_of_zero)
{
    const float x[] = { -INFINITY, 1, NAN, 5, NAN, -0.0f, 0.0f };
    const int32_t segment[] = { 0, 1, 1, 1, 1, 2, 2 };
    float y[4], dx[7];
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    const tp_tensor in = tp_input(T, TP_F32, TP_SHAPE(7), x);
    const tp_tensor m = tp_segment_max(T, in, tp_from(T, TP_I32, TP_SHAPE(7), segment), 4);
    cr_assert(tp_read(T, m, y, sizeof y), "%s", tp_why(T));
    cr_expect(y[0] == -INFINITY && isnan(y[1]) && y[2] == 0 && y[3] == 0);
    tp_backward(T, tp_sum(T, tp_slice(T, m, 0, 2, 2), TP_ALL));
    cr_assert(tp_read(T, tp_grad(T, in), dx, sizeof dx), "%s", tp_why(T));
    cr_expect(dx[5] == 1 && dx[6] == 0, "the zeros are equal, and the first wins");
    tp_tape_free(T);
    tp_device_close(D);
}

/* Sums and counts of bf16 rows are f32: 300 ones are 300. */
Test(segment, many_rows_of_bf16)
{
    enum { ROWS = 1000 };
    static float x[ROWS];
    static int32_t segment[ROWS];
    float y[1];
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    for (int i = 0; i < ROWS; i++) x[i] = i < 500 ? 1 : 3;
    const tp_tensor in = tp_cast(T, tp_from(T, TP_F32, TP_SHAPE(ROWS), x), TP_BF16);
    const tp_tensor s = tp_from(T, TP_I32, TP_SHAPE(ROWS), segment);
    cr_assert(tp_read(T, tp_segment_mean(T, in, s, 1), y, sizeof y), "%s", tp_why(T));
    cr_expect_eq(y[0], 2.0f);
    cr_expect_eq(tp_dtype_of(tp_segment_max(T, in, s, 1)), TP_BF16);
    tp_tape_free(T);
    tp_device_close(D);
}

Test(segment, threads_change_nothing)
{
    enum { ROWS = 5000, WIDTH = 300, SEGMENTS = 50 };
    tp_random r = tp_random_stream(1, "wide", 0, 0);
    float *x = malloc(ROWS * WIDTH * sizeof *x), *y[2];
    int32_t *segment = malloc(ROWS * sizeof *segment);
    for (int i = 0; i < ROWS * WIDTH; i++) x[i] = (float)tp_random_normal(&r);
    for (int i = 0; i < ROWS; i++) segment[i] = (int32_t)tp_random_below(&r, SEGMENTS);
    for (int k = 0; k < 2; k++) {
        tp_device *D = tp_device_open("cpu", &(tp_device_opts){ .threads = 1 + 3 * k });
        tp_tape *T = tp_tape_new(D, NULL);
        const size_t bytes = SEGMENTS * WIDTH * sizeof(float);
        y[k] = malloc(bytes);
        const tp_tensor in = tp_from(T, TP_F32, TP_SHAPE(ROWS, WIDTH), x);
        const tp_tensor s = tp_from(T, TP_I32, TP_SHAPE(ROWS), segment);
        cr_assert(tp_read(T, tp_segment_max(T, in, s, SEGMENTS), y[k], bytes), "%s", tp_why(T));
        tp_tape_free(T);
        tp_device_close(D);
    }
    cr_expect_arr_eq(y[0], y[1], SEGMENTS * WIDTH * sizeof(float));
    free(y[0]);
    free(y[1]);
    free(segment);
    free(x);
}

Test(segment, mistakes)
{
    static const float x[6];
    const int32_t s[] = { 0, 3, 1 };
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    const tp_tensor in = tp_from(T, TP_F32, TP_SHAPE(3, 2), x),
                    i = tp_from(T, TP_I32, TP_SHAPE(3), s);
    const tp_tensor few = tp_from(T, TP_I32, TP_SHAPE(2), s);
    for (int k = 0; k < 6; k++) {
        static const char *const want[] = {
            "segment_max: segment must have one axis, as long as the first one of x",
            "segment_max: -1 segments of 3 rows; 0 or more of less than 2^32 - 1 are possible",
            "segment_max: segment must be i32 or i64, not f32; tp_cast converts",
            ("segment_mean: x must have rows along a first axis, and there must be 0 or more "
             "segments, not -1"),
            "segment_max: segment 3 at position 1, but there are 3 segments",
            "index_add: index 3 at position 1, but axis 0 has size 3",
        };
        if (k >= 4 && device_is_cuda()) break;
        switch (k) {
        case 0: tp_segment_max(T, in, few, 3); break;
        case 1: tp_segment_max(T, in, i, -1); break;
        case 2: tp_segment_max(T, in, tp_from(T, TP_F32, TP_SHAPE(3), x), 3); break;
        case 3: tp_segment_mean(T, in, i, -1); break;
        case 4: tp_segment_max(T, in, i, 3); break;
        default: tp_segment_mean(T, in, i, 3);
        }
        cr_expect(strstr(tp_why(T), want[k]), "'%s' in: %s", want[k], tp_why(T));
        tp_clear(T);
    }
    tp_tape_free(T);
    tp_device_close(D);
}
