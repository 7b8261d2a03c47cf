/* arange.c - evenly spaced numbers. */
#include <math.h>

#include "autograd/ops/op_inner.h"
#include "tensor/geometry/create.h"

TP_KERNEL(arange_fwd);

/* The largest integer of a dtype such that a double holds it and all below. */
static double most_of(tp_dtype dt)
{
    return dt == TP_U8 ? 255.0 : dt == TP_I32 ? 2147483647.0 : 9007199254740992.0;
}

static tp_code check_integers(tp_infer *q, const tp_arange_attr *a)
{
    const double high = most_of(a->dtype), low = a->dtype == TP_U8 ? 0.0 : -high;
    const double end = a->n > 0 ? tp__arange_at(a, (double)(a->n - 1)) : a->first;
    if (a->first != floor(a->first) || a->step != floor(a->step))
        return tp_fail(q, TP_E_VALUE,
                       "start and step of %s must be integers, not %g and %g; use a floating dtype "
                       "and tp_cast",
                       tp_dtype_name(a->dtype), a->first, a->step);
    if (fmin(a->first, end) < low || fmax(a->first, end) > high)
        return tp_fail(q, TP_E_VALUE, "the values go from %g to %g, but those of %s from %g to %g",
                       a->first, end, tp_dtype_name(a->dtype), low, high);
    return TP_OK;
}

static tp_code arange_shape(tp_infer *q)
{
    const tp_arange_attr *a = q->attr;
    if (tp_dtype_size(a->dtype) == 0)
        return tp_fail(q, TP_E_DTYPE, "unknown dtype %d", (int)a->dtype);
    if (!isfinite(a->first) || !isfinite(a->last) || !isfinite(a->step))
        return tp_fail(q, TP_E_VALUE, "the numbers must be finite");
    if (a->n < 0 && a->line)
        return tp_fail(q, TP_E_VALUE, "n must not be negative: %lld", (long long)a->n);
    if (a->n < 0)
        return tp_fail(q, TP_E_VALUE, "step must not be 0, and there are at most 2^53 elements");
    q->y[0] = (tp_view){ .dtype = a->dtype, .ndim = 1, .dim = { a->n } };
    if (tp_is_float(a->dtype)) return TP_OK;
    if (a->line)
        return tp_fail(q, TP_E_DTYPE, "linspace makes floating dtypes, not %s",
                       tp_dtype_name(a->dtype));
    return check_integers(q, a);
}

static const tp_gradcase arange_cases[] = {
    { "integers", .attr = &(tp_arange_attr){ TP_I64, 300, 300, -20, 0, 3, false } },
    { "bytes", .attr = &(tp_arange_attr){ TP_U8, 37, 37, 0, 0, 7, false } },
    { "floats, falling", .attr = &(tp_arange_attr){ TP_F64, 1000, 1000, 2, 0, -0.25, false } },
    { "from both ends", .attr = &(tp_arange_attr){ TP_F64, 7, 3, 1, 2, 1.0 / 6, true } },
    { "none", .attr = &(tp_arange_attr){ TP_I32, 0, 0, 1, 0, 1, false } },
    { 0 },
};

const tp_op tp_op_arange = {
    .name = "arange",
    .doc = "evenly spaced numbers (tp_arange, tp_linspace)",
    .ny = 1,
    .attr_size = sizeof(tp_arange_attr),
    .flags = TP_NOT_DIFFERENTIABLE,
    .shape = arange_shape,
    .forward = TP_KERNELS(arange_fwd),
    .cases = arange_cases,
};

tp_tensor tp_arange(tp_tape *T, tp_dtype dt, double start, double end, double step)
{
    const double n = ceil((end - start) / step);
    const int64_t count = !(fabs(n) <= 0x1p53) ? -1 : n < 0 ? 0 : (int64_t)n;
    return tp_apply_n(T, &tp_op_arange,
                      &(tp_arange_attr){ dt, count, count, start, end, step, false }, 0, NULL, 1,
                      NULL);
}

tp_tensor tp_linspace(tp_tape *T, tp_dtype dt, double first, double last, int64_t n)
{
    const double step = n > 1 ? (last - first) / (double)(n - 1) : 0.0;
    const int64_t ahead = n > 1 ? n / 2 : n;
    return tp_apply_n(T, &tp_op_arange, &(tp_arange_attr){ dt, n, ahead, first, last, step, true },
                      0, NULL, 1, NULL);
}
