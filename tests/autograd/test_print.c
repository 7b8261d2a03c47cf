/* test_print.c - tensors as text (tp_to_string, tp_print). The expected texts are those of NumPy
 * 2.4.6 below our heading. */
#include <criterion/criterion.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/op.h>
#include <tapegrad/tapegrad.h>

#include "support/device.h"

/* clang-format off */
static const struct {
    const char *name;
    tp_dtype dt;
    tp_shape shape;
    double x[8];
    const char *text;
} values[] = {
    { "columns of points", TP_F32, { 2, { 2,3 } }, { 1, 2.5, -3, 0.25, NAN, 4 },
      "f32[2,3]\n"
      "[[ 1.    2.5  -3.  ]\n"
      " [ 0.25   nan  4.  ]]" },
    { "what is not finite", TP_F32, { 1, { 4 } }, { 1, NAN, INFINITY, -INFINITY },
      "f32[4]\n"
      "[  1.  nan  inf -inf]" },
    { "nothing finite", TP_F32, { 1, { 2 } }, { NAN, INFINITY },
      "f32[2]\n"
      "[nan inf]" },
    { "minus infinity alone", TP_F32, { 1, { 1 } }, { -INFINITY },
      "f32[1]\n"
      "[-inf]" },
    { "a wide range", TP_F32, { 1, { 3 } }, { 1e-5, 1, 123456 },
      "f32[3]\n"
      "[1.00000e-05 1.00000e+00 1.23456e+05]" },
    { "large and small", TP_F32, { 1, { 3 } }, { 1e10, -2.5e-7, 0 },
      "f32[3]\n"
      "[ 1.0e+10 -2.5e-07  0.0e+00]" },
    { "three digits of exponents", TP_F64, { 1, { 2 } }, { 1e100, 1e-300 },
      "f64[2]\n"
      "[1.e+100 1.e-300]" },
    { "the ends of f64", TP_F64, { 1, { 2 } }, { 5e-324, 1.7976931348623157e308 },
      "f64[2]\n"
      "[4.94065646e-324 1.79769313e+308]" },
    { "the ends of f32", TP_F32, { 1, { 2 } }, { 1.17549435e-38, 3.4028235e38 },
      "f32[2]\n"
      "[1.1754944e-38 3.4028235e+38]" },
    { "fewest digits of f32", TP_F32, { 1, { 3 } }, { 0.1, 0.33333334, -0.0 },
      "f32[3]\n"
      "[ 0.1         0.33333334 -0.        ]" },
    { "eight digits of f64", TP_F64, { 1, { 3 } }, { 0.1, 0.3333333333333333, 2e-2 },
      "f64[3]\n"
      "[0.1        0.33333333 0.02      ]" },
    { "just fixed", TP_F32, { 1, { 2 } }, { 99999.5, 999999 },
      "f32[2]\n"
      "[ 99999.5 999999. ]" },
    { "no longer fixed", TP_F32, { 1, { 2 } }, { 16777216, 99999990 },
      "f32[2]\n"
      "[1.6777216e+07 9.9999992e+07]" },
    { "just fixed in f64", TP_F64, { 1, { 2 } }, { 99999999.5, 12345678 },
      "f64[2]\n"
      "[99999999.5 12345678. ]" },
    { "just scientific", TP_F32, { 1, { 1 } }, { 1e8 },
      "f32[1]\n"
      "[1.e+08]" },
    { "exponents beside NaN", TP_F32, { 2, { 2,2 } }, { 1e-5, NAN, INFINITY, 1 },
      "f32[2,2]\n"
      "[[1.e-05    nan]\n"
      " [   inf 1.e+00]]" },
    { "zeros", TP_F32, { 1, { 3 } }, { 0, 0, -0.0 },
      "f32[3]\n"
      "[ 0.  0. -0.]" },
    { "integers", TP_I64, { 1, { 3 } }, { -4611686018427387904, 4611686018427387904, 0 },
      "i64[3]\n"
      "[-4611686018427387904  4611686018427387904                    0]" },
    { "aligned integers", TP_U8, { 1, { 3 } }, { 0, 255, 3 },
      "u8[3]\n"
      "[  0 255   3]" },
    { "matrices", TP_I32, { 3, { 2,2,2 } }, { -12, -3, 0, 4, 5, 6, 7, 8 },
      "i32[2,2,2]\n"
      "[[[-12  -3]\n"
      "  [  0   4]]\n"
      "\n"
      " [[  5   6]\n"
      "  [  7   8]]]" },
    { "a scalar", TP_F32, { 0, { 0 } }, { 2.5 },
      "f32[]\n"
      "2.5" },
    { "no elements", TP_F32, { 2, { 0,3 } }, { 0 },
      "f32[0,3]\n"
      "[]" },
    { "no columns", TP_I32, { 2, { 3,0 } }, { 0 },
      "i32[3,0]\n"
      "[]" },
};

/* Elements i times `step` / `divisor`. */
static const struct {
    const char *name;
    tp_dtype dt;
    tp_shape shape;
    int64_t step, divisor;
    const char *text;
} ranges[] = {
    { "lines of 75", TP_F32, { 1, { 30 } }, 1, 7,
      "f32[30]\n"
      "[0.         0.14285715 0.2857143  0.42857143 0.5714286  0.71428573\n"
      " 0.85714287 1.         1.1428572  1.2857143  1.4285715  1.5714285\n"
      " 1.7142857  1.8571428  2.         2.142857   2.2857144  2.4285715\n"
      " 2.5714285  2.7142856  2.857143   3.         3.142857   3.2857144\n"
      " 3.4285715  3.5714285  3.7142856  3.857143   4.         4.142857  ]" },
    { "lines of integers", TP_I32, { 1, { 30 } }, 1000003, 1,
      "i32[30]\n"
      "[       0  1000003  2000006  3000009  4000012  5000015  6000018  7000021\n"
      "  8000024  9000027 10000030 11000033 12000036 13000039 14000042 15000045\n"
      " 16000048 17000051 18000054 19000057 20000060 21000063 22000066 23000069\n"
      " 24000072 25000075 26000078 27000081 28000084 29000087]" },
    { "a long vector", TP_F32, { 1, { 1001 } }, 1, 1,
      "f32[1001]\n"
      "[   0.    1.    2. ...  998.  999. 1000.]" },
    { "all of a thousand", TP_I32, { 2, { 3, 4 } }, 1, 1,
      "i32[3,4]\n"
      "[[ 0  1  2  3]\n"
      " [ 4  5  6  7]\n"
      " [ 8  9 10 11]]" },
    { "a long matrix", TP_I32, { 2, { 20, 100 } }, 1, 1,
      "i32[20,100]\n"
      "[[   0    1    2 ...   97   98   99]\n"
      " [ 100  101  102 ...  197  198  199]\n"
      " [ 200  201  202 ...  297  298  299]\n"
      " ...\n"
      " [1700 1701 1702 ... 1797 1798 1799]\n"
      " [1800 1801 1802 ... 1897 1898 1899]\n"
      " [1900 1901 1902 ... 1997 1998 1999]]" },
    { "two of many columns", TP_I32, { 3, { 2, 3, 200 } }, 1, 1,
      "i32[2,3,200]\n"
      "[[[   0    1    2 ...  197  198  199]\n"
      "  [ 200  201  202 ...  397  398  399]\n"
      "  [ 400  401  402 ...  597  598  599]]\n"
      "\n"
      " [[ 600  601  602 ...  797  798  799]\n"
      "  [ 800  801  802 ...  997  998  999]\n"
      "  [1000 1001 1002 ... 1197 1198 1199]]]" },
    { "every axis", TP_F32, { 3, { 7, 8, 20 } }, 1, 4,
      "f32[7,8,20]\n"
      "[[[0.0000e+00 2.5000e-01 5.0000e-01 ... 4.2500e+00 4.5000e+00 4.7500e+00]\n"
      "  [5.0000e+00 5.2500e+00 5.5000e+00 ... 9.2500e+00 9.5000e+00 9.7500e+00]\n"
      "  [1.0000e+01 1.0250e+01 1.0500e+01 ... 1.4250e+01 1.4500e+01 1.4750e+01]\n"
      "  ...\n"
      "  [2.5000e+01 2.5250e+01 2.5500e+01 ... 2.9250e+01 2.9500e+01 2.9750e+01]\n"
      "  [3.0000e+01 3.0250e+01 3.0500e+01 ... 3.4250e+01 3.4500e+01 3.4750e+01]\n"
      "  [3.5000e+01 3.5250e+01 3.5500e+01 ... 3.9250e+01 3.9500e+01 3.9750e+01]]\n"
      "\n"
      " [[4.0000e+01 4.0250e+01 4.0500e+01 ... 4.4250e+01 4.4500e+01 4.4750e+01]\n"
      "  [4.5000e+01 4.5250e+01 4.5500e+01 ... 4.9250e+01 4.9500e+01 4.9750e+01]\n"
      "  [5.0000e+01 5.0250e+01 5.0500e+01 ... 5.4250e+01 5.4500e+01 5.4750e+01]\n"
      "  ...\n"
      "  [6.5000e+01 6.5250e+01 6.5500e+01 ... 6.9250e+01 6.9500e+01 6.9750e+01]\n"
      "  [7.0000e+01 7.0250e+01 7.0500e+01 ... 7.4250e+01 7.4500e+01 7.4750e+01]\n"
      "  [7.5000e+01 7.5250e+01 7.5500e+01 ... 7.9250e+01 7.9500e+01 7.9750e+01]]\n"
      "\n"
      " [[8.0000e+01 8.0250e+01 8.0500e+01 ... 8.4250e+01 8.4500e+01 8.4750e+01]\n"
      "  [8.5000e+01 8.5250e+01 8.5500e+01 ... 8.9250e+01 8.9500e+01 8.9750e+01]\n"
      "  [9.0000e+01 9.0250e+01 9.0500e+01 ... 9.4250e+01 9.4500e+01 9.4750e+01]\n"
      "  ...\n"
      "  [1.0500e+02 1.0525e+02 1.0550e+02 ... 1.0925e+02 1.0950e+02 1.0975e+02]\n"
      "  [1.1000e+02 1.1025e+02 1.1050e+02 ... 1.1425e+02 1.1450e+02 1.1475e+02]\n"
      "  [1.1500e+02 1.1525e+02 1.1550e+02 ... 1.1925e+02 1.1950e+02 1.1975e+02]]\n"
      "\n"
      " ...\n"
      "\n"
      " [[1.6000e+02 1.6025e+02 1.6050e+02 ... 1.6425e+02 1.6450e+02 1.6475e+02]\n"
      "  [1.6500e+02 1.6525e+02 1.6550e+02 ... 1.6925e+02 1.6950e+02 1.6975e+02]\n"
      "  [1.7000e+02 1.7025e+02 1.7050e+02 ... 1.7425e+02 1.7450e+02 1.7475e+02]\n"
      "  ...\n"
      "  [1.8500e+02 1.8525e+02 1.8550e+02 ... 1.8925e+02 1.8950e+02 1.8975e+02]\n"
      "  [1.9000e+02 1.9025e+02 1.9050e+02 ... 1.9425e+02 1.9450e+02 1.9475e+02]\n"
      "  [1.9500e+02 1.9525e+02 1.9550e+02 ... 1.9925e+02 1.9950e+02 1.9975e+02]]\n"
      "\n"
      " [[2.0000e+02 2.0025e+02 2.0050e+02 ... 2.0425e+02 2.0450e+02 2.0475e+02]\n"
      "  [2.0500e+02 2.0525e+02 2.0550e+02 ... 2.0925e+02 2.0950e+02 2.0975e+02]\n"
      "  [2.1000e+02 2.1025e+02 2.1050e+02 ... 2.1425e+02 2.1450e+02 2.1475e+02]\n"
      "  ...\n"
      "  [2.2500e+02 2.2525e+02 2.2550e+02 ... 2.2925e+02 2.2950e+02 2.2975e+02]\n"
      "  [2.3000e+02 2.3025e+02 2.3050e+02 ... 2.3425e+02 2.3450e+02 2.3475e+02]\n"
      "  [2.3500e+02 2.3525e+02 2.3550e+02 ... 2.3925e+02 2.3950e+02 2.3975e+02]]\n"
      "\n"
      " [[2.4000e+02 2.4025e+02 2.4050e+02 ... 2.4425e+02 2.4450e+02 2.4475e+02]\n"
      "  [2.4500e+02 2.4525e+02 2.4550e+02 ... 2.4925e+02 2.4950e+02 2.4975e+02]\n"
      "  [2.5000e+02 2.5025e+02 2.5050e+02 ... 2.5425e+02 2.5450e+02 2.5475e+02]\n"
      "  ...\n"
      "  [2.6500e+02 2.6525e+02 2.6550e+02 ... 2.6925e+02 2.6950e+02 2.6975e+02]\n"
      "  [2.7000e+02 2.7025e+02 2.7050e+02 ... 2.7425e+02 2.7450e+02 2.7475e+02]\n"
      "  [2.7500e+02 2.7525e+02 2.7550e+02 ... 2.7925e+02 2.7950e+02 2.7975e+02]]]" },
    { "lines of matrices", TP_I64, { 2, { 2, 30 } }, 10000000, 1,
      "i64[2,30]\n"
      "[[        0  10000000  20000000  30000000  40000000  50000000  60000000\n"
      "   70000000  80000000  90000000 100000000 110000000 120000000 130000000\n"
      "  140000000 150000000 160000000 170000000 180000000 190000000 200000000\n"
      "  210000000 220000000 230000000 240000000 250000000 260000000 270000000\n"
      "  280000000 290000000]\n"
      " [300000000 310000000 320000000 330000000 340000000 350000000 360000000\n"
      "  370000000 380000000 390000000 400000000 410000000 420000000 430000000\n"
      "  440000000 450000000 460000000 470000000 480000000 490000000 500000000\n"
      "  510000000 520000000 530000000 540000000 550000000 560000000 570000000\n"
      "  580000000 590000000]]" },
    { "dots that break a line", TP_F64, { 1, { 1100 } }, 1, 3,
      "f64[1100]\n"
      "[0.00000000e+00 3.33333333e-01 6.66666667e-01 ... 3.65666667e+02\n"
      " 3.66000000e+02 3.66333333e+02]" },
};
/* clang-format on */

enum { MOST = 2000, ROOM = 1 << 14 };

static const char *text_of(tp_tape *T, tp_tensor x)
{
    static char text[ROOM];
    const size_t n = tp_to_string(T, x, text, sizeof text);
    cr_expect(tp_ok(T), "%s", tp_why(T));
    cr_expect_eq(n, strlen(text));
    return text;
}

/* A tensor of those numbers, in any dtype. */
static tp_tensor tensor(tp_tape *T, tp_dtype dt, tp_shape s, const double *x)
{
    double room[MOST];
    tp_view v = { .data = room, .dtype = dt };
    int64_t n = 1;
    for (int i = 0; i < s.ndim; i++) n *= s.dim[i];
    for (int64_t i = 0; i < n; i++)
        if (dt == TP_I64)
            ((int64_t *)v.data)[i] = (int64_t)x[i];
        else
            tp_st(&v, i, x[i]);
    return tp_from(T, dt, s, room);
}

Test(print, as_numpy_prints)
{
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        const char *text = text_of(T, tensor(T, values[i].dt, values[i].shape, values[i].x));
        cr_expect_str_eq(text, values[i].text, "%s: %s", values[i].name, text);
    }
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        double x[MOST];
        for (int k = 0; k < MOST; k++) {
            const double whole = (double)k * (double)ranges[i].step;
            x[k] = whole / (double)ranges[i].divisor;
            if (ranges[i].dt == TP_F32) x[k] = (double)((float)whole / (float)ranges[i].divisor);
        }
        const char *text = text_of(T, tensor(T, ranges[i].dt, ranges[i].shape, x));
        cr_expect_str_eq(text, ranges[i].text, "%s: %s", ranges[i].name, text);
    }
    tp_tape_free(T);
    tp_device_close(D);
}

Test(print, bf16_has_its_own_digits)
{
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    const double x[] = { 0.1, 1.0 / 3.0, 3.140625, -2 };
    cr_expect_str_eq(text_of(T, tensor(T, TP_BF16, TP_SHAPE(4), x)),
                     "bf16[4]\n[ 0.1    0.334  3.14  -2.   ]");
    tp_tape_free(T);
    tp_device_close(D);
}

Test(print, parameters_and_the_norm)
{
    tp_device *D = device_open(NULL);
    tp_params *P = tp_params_new(D, NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    const tp_tensor w = tp_param(P, "w", TP_SHAPE(2), (tp_init){ TP_INIT_CONST, 3, 0 }, 0);
    cr_expect_str_eq(text_of(T, w), "f32[2]\n[3. 3.]");
    tp_backward(T, tp_sum(T, tp_mul(T, w, 4), TP_ALL));
    cr_expect_str_eq(text_of(T, tp_clip_grad_norm(P, 100)), "f32[]\n5.656854");
    tp_tape_free(T);
    tp_params_free(P);
    tp_device_close(D);
}

/* As snprintf: cut off, and the length of the whole text. */
Test(print, room_for_the_text)
{
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    const tp_tensor x = tp_arange(T, TP_I32, 0, 4, 1);
    char text[32];
    const char *all = "i32[4]\n[0 1 2 3]";
    cr_expect_eq(tp_to_string(T, x, NULL, 0), strlen(all));
    cr_expect_eq(tp_to_string(T, x, NULL, 5), strlen(all));
    for (size_t size = 1; size < sizeof text; size++) {
        memset(text, '#', sizeof text);
        cr_expect_eq(tp_to_string(T, x, text, size), strlen(all));
        cr_expect_eq(strlen(text), size <= strlen(all) ? size - 1 : strlen(all), "%zu", size);
        cr_expect_eq(strncmp(text, all, strlen(text)), 0, "%s", text);
    }
    tp_tape_free(T);
    tp_device_close(D);
}

Test(print, streams)
{
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    cr_expect(tp_print(T, tp_full(T, TP_F32, TP_SHAPE(2), 0.5), f));
    fclose(f);
    cr_expect_str_eq(text, "f32[2]\n[0.5 0.5]\n");
    free(text);
    f = fopen("/dev/full", "w");
    cr_assert(f);
    setvbuf(f, NULL, _IONBF, 0);
    cr_expect_not(tp_print(T, tp_full(T, TP_F32, TP_SHAPE(2), 0.5), f), "a full disk");
    cr_expect(tp_ok(T), "is no failure of the tape");
    fclose(f);
    tp_tape_free(T);
    tp_device_close(D);
}

/* A comma as decimal point would also end the search for the fewest digits. */
Test(print, in_any_locale)
{
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    if (!setlocale(LC_ALL, "de_DE.UTF-8")) setlocale(LC_ALL, "de_DE");
    cr_expect_str_eq(text_of(T, tp_full(T, TP_F32, TP_SHAPE(1), 0.1)), "f32[1]\n[0.1]");
    tp_tape_free(T);
    tp_device_close(D);
}

Test(print, refusals)
{
    tp_device *D = device_open(NULL);
    tp_tape *T = tp_tape_new(D, NULL);
    char text[8] = "before";
    cr_expect_eq(tp_to_string(NULL, TP_NONE, text, sizeof text), 0);
    cr_expect_str_eq(text, "");
    cr_expect_not(tp_print(NULL, TP_NONE, stdout));
    const tp_tensor x = tp_full(T, TP_F32, TP_SHAPE(1), 0);
    cr_expect_not(tp_print(T, x, NULL));
    cr_expect(strstr(tp_why(T), "tp_print: NULL was given in place of a stream\n  at "), "%s",
              tp_why(T));
    cr_expect_eq(tp_to_string(T, x, text, sizeof text), 0, "the tape has failed");
    tp_clear(T);
    tp_reset(T);
    cr_expect_eq(tp_to_string(T, x, text, sizeof text), 0);
    cr_expect(strstr(tp_why(T), "tp_to_string"), "%s", tp_why(T));
    tp_tape_free(T);
    tp_device_close(D);
}
