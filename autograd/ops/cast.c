/* cast.c - conversion between dtypes. A cast to the input's own dtype is a view. Backward casts the
 * gradient back; integers have none. */
#include "autograd/ops/op_inner.h"
#include "tensor/geometry/elementwise.h"

TP_KERNEL(cast_fwd);
TP_KERNEL(cast_bwd);

static tp_code cast_shape(tp_infer *q)
{
    const tp_cast_attr *k = q->attr;
    if (tp_dtype_size(k->to) == 0) return tp_fail(q, TP_E_DTYPE, "%d is not a dtype", (int)k->to);
    q->y[0] = q->x[0];
    q->y[0].dtype = k->to;
    if (k->to == q->x[0].dtype) q->view_at = 0;
    return TP_OK;
}

/* tests/ops/test_cast.c has the conversions between dtypes. */
static const tp_gradcase cast_cases[] = {
    { "to its own dtype", .in = { TP_DIMS(3, 5) }, .attr = &(tp_cast_attr){ TP_F64, TP_F64 } },
    { 0 },
};

const tp_op tp_op_cast = {
    .name = "cast",
    .doc = "x in another dtype: rounded to nearest even, or truncated to an integer of its range",
    .nx = 1,
    .ny = 1,
    .takes = { TP_ANY },
    .attr_size = sizeof(tp_cast_attr),
    .flags = TP_TAKES_BF16,
    .shape = cast_shape,
    .forward = TP_KERNELS(cast_fwd),
    .backward = TP_KERNELS(cast_bwd),
    .cases = cast_cases,
};

tp_tensor tp_cast(tp_tape *T, tp_tensor x, tp_dtype dt)
{
    return tp_apply(T, &tp_op_cast, (&(tp_cast_attr){ dt, tp_dtype_of(x) }), x);
}
