/* test_mask_counts.c - masks of integers of two dtypes, and how masks are counted. */
#include <criterion/criterion.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "support/device.h"

Test(mask_counts, integers_of_two_dtypes)
{
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    const int64_t wide[4] = { 1, -1, INT64_C(1) << 32, 200 };
    const int32_t narrow[4] = { 1, -2, 0, 200 };
    const uint8_t bytes[4] = { 1, 255, 0, 200 };
    const tp_tensor x[3] = { tp_from(T, TP_I64, TP_SHAPE(4), wide),
                             tp_from(T, TP_I32, TP_SHAPE(4), narrow),
                             tp_from(T, TP_U8, TP_SHAPE(4), bytes) };
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 3; b++)
            for (int r = 0; r < 9; r++) {
                static tp_tensor (*const ops[])(tp_tape *, tp_tensor, tp_tensor) = {
                    (tp_eq), (tp_ne),          (tp_lt),         (tp_le),         (tp_gt),
                    (tp_ge), (tp_logical_and), (tp_logical_or), (tp_logical_xor)
                };
                uint8_t got[4];
                cr_assert(tp_read(T, ops[r](T, x[a], x[b]), got, 4), "%s", tp_why(T));
                for (int i = 0; i < 4; i++) {
                    const int64_t v[3] = { wide[i], narrow[i], bytes[i] }, p = v[a], q = v[b];
                    const bool want[] = { p == q, p != q, p<q, p <= q, p> q, p >= q,
                                          p && q, p || q, !p != !q };
                    cr_expect_eq(got[i], want[r], "op %d of dtypes %d, %d: element %d", r, a, b, i);
                }
            }
    tp_eq(T, x[0], tp_full(T, TP_F32, TP_SHAPE(4), 1));
    cr_expect(strstr(tp_why(T), "eq: inputs mix i64 and f32; convert with tp_cast"), "%s",
              tp_why(T));
    tp_tape_free(T);
    tp_device_close(D);
}

Test(mask_counts, accuracy)
{
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    const float x[6] = { 1, 2, 4, 3, 0, 9 };
    const int32_t labels[3] = { 1, 1, 1 };
    const tp_tensor best = tp_argmax(T, tp_from(T, TP_F32, TP_SHAPE(3, 2), x), -1);
    const tp_tensor hits = tp_eq(T, best, tp_from(T, TP_I32, TP_SHAPE(3), labels));
    cr_expect_float_eq(tp_item(T, tp_mean(T, hits, TP_ALL)), 2.0 / 3, 1e-6);
    cr_expect_eq(tp_item(T, tp_sum(T, hits, TP_ALL)), 2);
    cr_expect_eq(tp_dtype_of(tp_sum(T, hits, 0)), TP_F32);
    tp_sum(T, best, TP_ALL);
    cr_expect(strstr(tp_why(T), "sum: input 0 must be floating point, not i64"), "%s", tp_why(T));
    tp_tape_free(T);
    tp_device_close(D);
}
