/* chunk_project.c - the dynamic projection: reduces each chunk of tokens to a few weighted means.
 *
 *     y[b, c r + j, head i] = sum_s p[s] x[b, c l + s, head i],   p = softmax over s of
 *                                                                     scores[b, c l + s, i r + j]
 *
 * Backward recomputes p, which is cheaper than reading it back. */
#include "tensor/geometry/chunk_project.h"
#include "autograd/ops/op_inner.h"

TP_KERNEL(chunk_project_fwd);
TP_KERNEL(chunk_project_bwd);
TP_WORK(chunk_project_work);

static tp_code chunk_shape(tp_infer *q)
{
    const tp_view *x = &q->x[0], *s = &q->x[1];
    const tp__chunk_attr *a = q->attr;
    if (!tp_is_float(x->dtype) || !tp_is_float(s->dtype))
        return tp_fail(q, TP_E_DTYPE, "inputs must be floating point");
    if (a->heads < 1 || a->chunk < 1 || a->rank < 1)
        return tp_fail(q, TP_E_VALUE, "heads, chunk and rank must be positive: %lld, %lld, %lld",
                       (long long)a->heads, (long long)a->chunk, (long long)a->rank);
    if (x->ndim != 3 || s->ndim != 3 || s->dim[0] != x->dim[0] || s->dim[1] != x->dim[1])
        return tp_fail(q, TP_E_SHAPE, "x must be [B,N,H*D] and scores [B,N,H*r]");
    if (x->dim[2] % a->heads != 0)
        return tp_fail(q, TP_E_SHAPE, "width %lld is not a multiple of %lld heads",
                       (long long)x->dim[2], (long long)a->heads);
    const int64_t columns = a->heads * a->rank;
    if (s->dim[2] != columns)
        return tp_fail(q, TP_E_SHAPE, "scores have width %lld, %lld heads of rank %lld want %lld",
                       (long long)s->dim[2], (long long)a->heads, (long long)a->rank,
                       (long long)columns);
    if (x->dim[1] % a->chunk != 0)
        return tp_fail(q, TP_E_SHAPE, "%lld tokens are not a multiple of the chunk, %lld",
                       (long long)x->dim[1], (long long)a->chunk);
    q->y[0] = (tp_view){ .dtype = x->dtype, .ndim = 3 };
    q->y[0].dim[0] = x->dim[0];
    q->y[0].dim[1] = x->dim[1] / a->chunk * a->rank;
    q->y[0].dim[2] = x->dim[2];
    return TP_OK;
}

static double chunk_macs(const tp_infer *q)
{
    return (double)q->x[0].numel * (double)((const tp__chunk_attr *)q->attr)->rank;
}

#define SHAPES(B, N, HD, HR)                                                                       \
    {                                                                                              \
        { 3, { B, N, HD } },                                                                       \
        {                                                                                          \
            3,                                                                                     \
            {                                                                                      \
                B, N, HR                                                                           \
            }                                                                                      \
        }                                                                                          \
    }

static const tp_gradcase chunk_cases[] = {
    { "rank 1", .in = SHAPES(2, 8, 6, 2), .attr = &(tp__chunk_attr){ 2, 4, 1 } },
    { "rank 3, odd chunk", .in = SHAPES(1, 10, 6, 9), .attr = &(tp__chunk_attr){ 3, 5, 3 } },
    { "one token a chunk", .in = SHAPES(1, 3, 4, 2), .attr = &(tp__chunk_attr){ 1, 1, 2 } },
    { "wide head", .in = SHAPES(1, 6, 37, 1), .attr = &(tp__chunk_attr){ 1, 3, 1 } },
    { "packs", .in = SHAPES(1, 6, 32, 4), .attr = &(tp__chunk_attr){ 2, 3, 2 } },
    { "five tokens of 64", .in = SHAPES(2, 5, 64, 1), .attr = &(tp__chunk_attr){ 1, 5, 1 } },
    { "nine tokens of 128", .in = SHAPES(1, 9, 128, 3), .attr = &(tp__chunk_attr){ 1, 9, 3 } },
    { "long chunk", .in = SHAPES(1, 70, 4, 2), .attr = &(tp__chunk_attr){ 2, 70, 1 } },
    { "spans, a head of two rounds", .in = SHAPES(1, 521, 36, 3),
      .attr = &(tp__chunk_attr){ 1, 521, 3 } },
    { "many ranks", .in = SHAPES(2, 33, 6, 18), .attr = &(tp__chunk_attr){ 2, 33, 9 } },
    { "no tokens", .in = SHAPES(2, 0, 6, 2), .attr = &(tp__chunk_attr){ 2, 4, 1 } },
    { 0 },
};

const tp_op tp_op_chunk_project = {
    .name = "chunk_project",
    .doc = "head i of row c*r+j = sum_s softmax_s(scores[c*l+s, i*r+j]) x[c*l+s], chunks of l rows",
    .nx = 2, /* x, scores */
    .ny = 1,
    .attr_size = sizeof(tp__chunk_attr),
    .saves = TP_SAVE_X(0) | TP_SAVE_X(1),
    .flags = TP_COMPUTES,
    .shape = chunk_shape,
    .macs = chunk_macs,
    .forward = TP_KERNELS(chunk_project_fwd),
    .backward = TP_KERNELS(chunk_project_bwd),
    .work = TP_WORKS(chunk_project_work),
    .cases = chunk_cases,
};

tp_tensor tp_chunk_project(tp_tape *T, tp_tensor x, tp_tensor scores, int heads, int chunk,
                           int rank)
{
    return tp_apply(T, &tp_op_chunk_project, &((tp__chunk_attr){ heads, chunk, rank }), x, scores);
}
