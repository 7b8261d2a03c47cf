/* matmul.c - matrix products, batched over leading axes.
 *
 *     Y[...,M,N] = op(A)[...,M,K] op(B)[...,K,N]
 *
 * B has the leading axes of A, or none. op transposes the last two axes if its flag is set, without
 * a copy. */
#include "autograd/ops/op_inner.h"
#include "tensor/geometry/linalg.h"

static tp_code matmul_shape(tp_infer *q)
{
    const tp__matmul_attr *at = q->attr;
    const tp_view *a = &q->x[0], *b = &q->x[1];
    const int na = a->ndim, nb = b->ndim;

    if (na < 2 || nb < 2) return tp_fail(q, TP_E_SHAPE, "operands need two axes or more");
    for (int i = 0; i < na || i < nb; i++)
        if ((i < na && a->dim[i] > INT32_MAX) || (i < nb && b->dim[i] > INT32_MAX))
            return tp_fail(q, TP_E_SHAPE, "sizes must be below 2^31");

    const int64_t inner_a = a->dim[na - (at->ta ? 2 : 1)], inner_b = b->dim[nb - (at->tb ? 1 : 2)];
    if (inner_a != inner_b)
        return tp_fail(q, TP_E_SHAPE, "inner sizes differ: %lld and %lld", (long long)inner_a,
                       (long long)inner_b);
    if (nb != 2 && nb != na)
        return tp_fail(q, TP_E_SHAPE, "b must have the leading axes of a, or none");
    for (int i = 0; nb == na && i < na - 2; i++)
        if (a->dim[i] != b->dim[i])
            return tp_fail(q, TP_E_SHAPE, "leading axis %d differs: %lld and %lld", i,
                           (long long)a->dim[i], (long long)b->dim[i]);

    q->y[0] = *a;
    q->y[0].dim[na - 2] = a->dim[na - (at->ta ? 1 : 2)];
    q->y[0].dim[na - 1] = b->dim[nb - (at->tb ? 2 : 1)];
    return TP_OK;
}

static double matmul_macs(const tp_infer *q)
{
    const tp__matmul_attr *at = q->attr;
    const tp_view *a = &q->x[0];
    return (double)q->y[0].numel * (double)a->dim[a->ndim - (at->ta ? 2 : 1)];
}

#define PLAIN   .attr = TP_ATTR(tp__matmul_attr, false, false)
#define TRANS_A .attr = TP_ATTR(tp__matmul_attr, true, false)
#define TRANS_B .attr = TP_ATTR(tp__matmul_attr, false, true)
#define BOTH    .attr = TP_ATTR(tp__matmul_attr, true, true)

static const tp_gradcase matmul_cases[] = {
    { "plain", .in = { TP_DIMS(3, 5), TP_DIMS(5, 4) }, PLAIN },
    { "a transposed", .in = { TP_DIMS(5, 3), TP_DIMS(5, 4) }, TRANS_A },
    { "b transposed", .in = { TP_DIMS(3, 5), TP_DIMS(4, 5) }, TRANS_B },
    { "both transposed", .in = { TP_DIMS(5, 3), TP_DIMS(4, 5) }, BOTH },
    { "one row", .in = { TP_DIMS(1, 7), TP_DIMS(7, 2) }, PLAIN },
    { "batch", .in = { TP_DIMS(2, 3, 2, 3), TP_DIMS(2, 3, 3, 4) }, PLAIN },
    { "batch, a transposed", .in = { TP_DIMS(3, 4, 2), TP_DIMS(3, 4, 3) }, TRANS_A },
    { "batch, b transposed", .in = { TP_DIMS(3, 2, 4), TP_DIMS(3, 3, 4) }, TRANS_B },
    { "batch, both transposed", .in = { TP_DIMS(3, 4, 2), TP_DIMS(3, 3, 4) }, BOTH },
    { "one b", .in = { TP_DIMS(2, 2, 3, 4), TP_DIMS(4, 3) }, PLAIN },
    { "one b, a transposed", .in = { TP_DIMS(3, 4, 2), TP_DIMS(4, 3) }, TRANS_A },
    { "one b transposed", .in = { TP_DIMS(3, 2, 4), TP_DIMS(3, 4) }, TRANS_B },
    { "one b, both transposed", .in = { TP_DIMS(3, 4, 2), TP_DIMS(3, 4) }, BOTH },
    { "nothing to sum", .in = { TP_DIMS(3, 0), TP_DIMS(0, 2) }, PLAIN },
    { "empty batch, b shared", .in = { TP_DIMS(0, 4, 2), TP_DIMS(4, 3) }, TRANS_A },
    { 0 },
};

TP_KERNEL(matmul_fwd);
TP_KERNEL(matmul_bwd);
TP_WORK(matmul_work);

const tp_op tp_op_matmul = {
    .name = "matmul",
    .doc = "op(a) op(b) for every index of the leading axes; op transposes the last two axes",
    .nx = 2,
    .ny = 1,
    .inputs = "a, b",
    .attr_size = sizeof(tp__matmul_attr),
    .saves = TP_SAVE_X(0) | TP_SAVE_X(1),
    .flags = TP_COMPUTES | TP_ACCUMULATES | TP_TAKES_BF16,
    .shape = matmul_shape,
    .macs = matmul_macs,
    .forward = TP_KERNELS(matmul_fwd),
    .backward = TP_KERNELS(matmul_bwd),
    .work = TP_CPU_WORKS(matmul_work),
    .cases = matmul_cases,
};

tp_tensor tp_matmul_t(tp_tape *T, tp_tensor a, bool ta, tp_tensor b, bool tb)
{
    return tp_apply(T, &tp_op_matmul, (&(tp__matmul_attr){ ta, tb }), a, b);
}

tp_tensor tp_matmul(tp_tape *T, tp_tensor a, tp_tensor b)
{
    return tp_matmul_t(T, a, false, b, false);
}
