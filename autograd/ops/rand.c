/* rand.c - random tensors: element e uses word e of the op's stream (tensor/rng.h), normal numbers
 * two adjacent words. */
#include "autograd/ops/op_inner.h"
#include "tensor/geometry/create.h"
#include "tensor/shape.h"

TP_KERNEL(rand_fwd);
TP_KERNEL(randn_fwd);

static tp_code random_shape(tp_infer *q)
{
    const tp_random_attr *a = q->attr;
    int64_t numel;
    if (!tp_is_float(a->dtype))
        return tp_fail(q, TP_E_DTYPE, "the dtype must be floating point, not %s",
                       tp_dtype_name(a->dtype));
    if (!tp__numel(&a->shape, &numel))
        return tp_fail(q, TP_E_SHAPE, "impossible shape of %d axes", a->shape.ndim);
    q->y[0] = tp__view(a->dtype, &a->shape, NULL);
    return TP_OK;
}

static const tp_gradcase random_cases[] = {
    { "vector", .attr = &(tp_random_attr){ TP_F64, TP_DIMS(7) } },
    { "one more than two groups", .attr = &(tp_random_attr){ TP_F64, TP_DIMS(19, 27) } },
    { "scalar", .attr = &(tp_random_attr){ TP_F64, { 0, { 0 } } } },
    { "empty", .attr = &(tp_random_attr){ TP_F64, TP_DIMS(3, 0) } },
    { 0 },
};

#define RANDOM(f, text)                                                                            \
    .name = #f, .doc = text, .ny = 1, .attr_size = sizeof(tp_random_attr),                         \
    .flags = TP_RANDOM | TP_NOT_DIFFERENTIABLE, .shape = random_shape,                             \
    .forward = TP_KERNELS(f##_fwd), .cases = random_cases

const tp_op tp_op_rand = { RANDOM(rand, "random numbers in [0, 1)") };
const tp_op tp_op_randn = { RANDOM(randn,
                                   "normal random numbers of mean 0, standard deviation 1") };

tp_tensor tp_rand(tp_tape *T, tp_dtype dt, tp_shape s)
{
    return tp_apply_n(T, &tp_op_rand, &(tp_random_attr){ dt, s }, 0, NULL, 1, NULL);
}

tp_tensor tp_randn(tp_tape *T, tp_dtype dt, tp_shape s)
{
    return tp_apply_n(T, &tp_op_randn, &(tp_random_attr){ dt, s }, 0, NULL, 1, NULL);
}
