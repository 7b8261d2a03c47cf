/* cast.c - conversion between floating dtypes. A cast to the input's own dtype is a view. Backward
 * converts the gradient back. */
#include "autograd/ops/op_inner.h"

TP_KERNEL(cast_fwd);
TP_KERNEL(cast_bwd);

static tp_code cast_shape(tp_infer *q)
{
    const tp_dtype to = *(const tp_dtype *)q->attr, from = q->x[0].dtype;
    if (!tp_is_float(from) || !tp_is_float(to))
        return tp_fail(q, TP_E_DTYPE, "only floating dtypes are converted, not %s to %s",
                       tp_dtype_name(from), tp_dtype_name(to));
    q->y[0] = q->x[0];
    q->y[0].dtype = to;
    if (to == from) q->view_at = 0;
    return TP_OK;
}

static const tp_gradcase cast_cases[] = {
    { "to its own dtype", .in = { { 2, { 3, 5 } } }, .attr = &(tp_dtype){ TP_F64 } },
    { 0 },
};

const tp_op tp_op_cast = {
    .name = "cast",
    .doc = "x in another floating dtype, rounded to nearest even",
    .nx = 1,
    .ny = 1,
    .attr_size = sizeof(tp_dtype),
    .shape = cast_shape,
    .forward = TP_KERNELS(cast_fwd),
    .backward = TP_KERNELS(cast_bwd),
    .cases = cast_cases,
};

tp_tensor tp_cast(tp_tape *T, tp_tensor x, tp_dtype dt)
{
    return tp_apply(T, &tp_op_cast, &dt, x);
}
