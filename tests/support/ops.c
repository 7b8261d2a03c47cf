/* ops.c - holds the device and tape of op tests. */
#include "support/ops.h"

#include <criterion/criterion.h>
#include <math.h>

#include "support/values.h"

tp_device *D;
tp_tape *T;

void cpu_tape_open(void)
{
    D = tp_device_open("cpu", &(tp_device_opts){ .threads = 3 });
    T = tp_tape_new(D, NULL);
}

void cpu_tape_close(void)
{
    cr_expect(tp_ok(T), "%s", tp_why(T));
    tp_tape_free(T);
    cr_expect_eq(tp_device_stats(D).live_bytes, 0);
    tp_device_close(D);
}

void get_values(tp_tape *t, tp_tensor x, int64_t n, double *v)
{
    for (int64_t e = 0; e < n; e++) v[e] = NAN;
    cr_expect(tp_ok(t) && tp_numel(x) == n, "%s", tp_why(t));
    if (tp_numel(x) == n) values_read(t, x, v);
}

double worse(double a, double b)
{
    return isnan(a) || b <= a ? a : b;
}
