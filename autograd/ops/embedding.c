/* embedding.c - looks up rows of a table: y[...,j] = scale table[ids[...],j].
 *
 * The kernel checks the ids, since the shape rule cannot see their values. */
#include "autograd/ops/op_inner.h"

TP_KERNEL(embedding_fwd);
TP_KERNEL(embedding_bwd);
TP_WORK(embedding_work);

static tp_code embedding_shape(tp_infer *q)
{
    const tp_view *table = &q->x[0], *ids = &q->x[1];

    if (!tp_is_float(table->dtype) || !tp__is_index(ids->dtype))
        return tp_fail(q, TP_E_DTYPE, "the table must be floating point, ids i32 or i64");
    if (table->ndim != 2)
        return tp_fail(q, TP_E_SHAPE, "the table must have two axes, rows and columns");
    if (ids->ndim == TP_MAX_DIMS)
        return tp_fail(q, TP_E_SHAPE, "ids have %d axes, one too many", TP_MAX_DIMS);
    q->y[0] = *ids;
    q->y[0].dtype = table->dtype;
    q->y[0].dim[q->y[0].ndim++] = table->dim[1];
    return TP_OK;
}

static const tp_gradcase embedding_cases[] = {
    { "repeated ids", .in = { { 2, { 3, 5 } }, { 2, { 4, 2 } } }, .attr = &(double){ 1.0 },
      .below = { 0, 3 } },
    { "scaled", .in = { { 2, { 9, 130 } }, { 1, { 5 } } }, .attr = &(double){ -2.5 },
      .below = { 0, 9 } },
    { "two tiles of ids, two digits", .in = { { 2, { 300, 1 } }, { 1, { 2100 } } },
      .attr = &(double){ 1.0 }, .below = { 0, 300 } },
    { "tokens across many runs", .in = { { 2, { 3, 8 } }, { 1, { 1500 } } },
      .attr = &(double){ 0.5 }, .below = { 0, 3 } },
    { "one token, more columns than a block adds", .in = { { 2, { 1, 136 } }, { 1, { 70 } } },
      .attr = &(double){ 1.0 }, .below = { 0, 1 } },
    { "no ids", .in = { { 2, { 3, 2 } }, { 1, { 0 } } }, .attr = &(double){ 1.0 },
      .below = { 0, 3 } },
    { 0 },
};

const tp_op tp_op_embedding = {
    .name = "embedding",
    .doc = "scale * table[ids]",
    .nx = 2, /* table, ids */
    .ny = 1,
    .attr_size = sizeof(double),
    .saves = TP_SAVE_X(1),
    .flags = TP_ACCUMULATES,
    .shape = embedding_shape,
    .forward = TP_KERNELS(embedding_fwd),
    .backward = TP_KERNELS(embedding_bwd),
    .work = TP_CUDA_WORKS(embedding_work),
    .cases = embedding_cases,
};

tp_tensor tp_embedding(tp_tape *T, tp_tensor table, tp_tensor ids, double scale)
{
    return tp_apply(T, &tp_op_embedding, &scale, table, ids);
}
