/* test_finite.c - check_finite names the op that first produces a NaN or infinity, forward or
 * backward, the element and the cause; without it, nothing is checked. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <tapegrad/tapegrad.h>

#include "support/device.h"

typedef tp_tensor (*function)(tp_tape *T, tp_tensor x);

static tp_tensor logarithm(tp_tape *T, tp_tensor x)
{
    return tp_log(T, tp_exp(T, tp_log(T, x)));
}
static tp_tensor exponential(tp_tape *T, tp_tensor x)
{
    return tp_exp(T, tp_scale(T, x, 1000.0));
}
static tp_tensor root(tp_tape *T, tp_tensor x)
{
    return tp_sqrt(T, x);
}
static tp_tensor product(tp_tape *T, tp_tensor x)
{
    return tp_mul(T, tp_sqrt(T, x), tp_full(T, TP_F32, TP_SHAPE(3), 0.0));
}
static tp_tensor quotient(tp_tape *T, tp_tensor x)
{
    return tp_div(T, x, x);
}
static tp_tensor replayed(tp_tape *T, const void *self, tp_tensor x)
{
    (void)self;
    return tp_sqrt(T, x);
}
static tp_tensor recomputed(tp_tape *T, tp_tensor x)
{
    return tp_checkpoint(T, replayed, NULL, x);
}

static const struct {
    const char *name;
    function f;
    float x[3];
    const char *why; /* "" : every number is finite */
} cases[] = {
    { "finite", root, { 1, 4, 9 }, "" },
    { "infinite result",
      logarithm,
      { 1, 1, 0 },
      "log: element 2 of the result is infinite; every input is finite\n" },
    { "NaN as result",
      root,
      { 1, -1, 4 },
      "sqrt: element 1 of the result is NaN; every input is finite\n" },
    { "overflow",
      exponential,
      { -1, 0, 1 },
      "exp: element 2 of the result is infinite; every input is finite\n" },
    { "zero by zero", quotient, { 0, 1, 2 }, "div: element 0 of the result is NaN" },
    { "NaN in the data",
      root,
      { 1, 4, NAN },
      "sqrt: element 2 of the result is NaN; element 2 of input 0 is NaN already\n" },
    { "infinite in backward only",
      root,
      { 1, 0, 4 },
      "sqrt (backward): element 1 of the gradient of input 0 is infinite; every gradient of a "
      "result is finite; the op was applied at " },
    { "NaN in backward only",
      product,
      { 1, 4, 0 },
      "sqrt (backward): element 2 of the gradient of input 0 is NaN; every gradient of a result is "
      "finite; the op was applied at " },
    { "in a recomputation",
      recomputed,
      { 4, 1, 0 },
      "sqrt (backward): element 2 of the gradient of input 0 is infinite" },
};

Test(finite, the_op_is_named)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int on = 0; on <= 1; on++) {
            tp_device *D = device_open(NULL);
            tp_tape *T = tp_tape_new(D, &(tp_tape_opts){ .check_finite = on });
            const tp_tensor x = tp_input(T, TP_F32, TP_SHAPE(3), cases[i].x);
            tp_backward(T, tp_sum(T, cases[i].f(T, x), TP_ALL));
            const char *why = on ? cases[i].why : "";
            cr_expect_eq(tp_code_of(T), *why ? TP_E_NONFINITE : TP_OK, "%s", cases[i].name);
            cr_expect(strncmp(tp_why(T), why, strlen(why)) == 0, "%s: %s", cases[i].name,
                      tp_why(T));
            cr_expect(!*why || strstr(tp_why(T), "test_finite.c:"), "%s: %s", cases[i].name,
                      tp_why(T));
            tp_tape_free(T);
            tp_device_close(D);
        }
}
