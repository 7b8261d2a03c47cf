/* embedding.c - rows of a tensor by index: rows of a table, y[...,j] = scale table[ids[...],j];
 * along any axis, here axis 1 of three
 *
 *     index_select  y[i][j][k] = x[i][index[j]][k]
 *     index_add     y = x, then y[i][index[j]][k] += src[i][j][k]
 *
 * each the other's gradient. Kernels check ids and indices, since shape rules cannot see values. */
#include "autograd/ops/op_inner.h"
#include "tensor/geometry/index.h"

TP_KERNEL(embedding_fwd);
TP_KERNEL(embedding_bwd);
TP_WORK(embedding_work);
TP_KERNEL(index_select_fwd);
TP_KERNEL(index_select_bwd);
TP_WORK(index_select_work);
TP_KERNEL(index_add_fwd);
TP_KERNEL(index_add_bwd);
TP_WORK(index_add_work);

static tp_code embedding_shape(tp_infer *q)
{
    const tp_view *table = &q->x[0], *ids = &q->x[1];

    if (table->ndim != 2)
        return tp_fail(q, TP_E_SHAPE, "the table must have two axes, rows and columns");
    const tp_embedding_attr *attr = q->attr;
    if (attr->pad < -1 || attr->pad >= table->dim[0])
        return tp_fail(q, TP_E_VALUE, "the padding id %lld is not in a table of %lld rows",
                       (long long)attr->pad, (long long)table->dim[0]);
    if (ids->ndim == TP_MAX_DIMS)
        return tp_fail(q, TP_E_SHAPE, "ids have %d axes, one too many", TP_MAX_DIMS);
    q->y[0] = *ids;
    q->y[0].dtype = table->dtype;
    q->y[0].dim[q->y[0].ndim++] = table->dim[1];
    return TP_OK;
}

static const tp_gradcase embedding_cases[] = {
    { "repeated ids", .in = { TP_DIMS(3, 5), TP_DIMS(4, 2) },
      .attr = &(tp_embedding_attr){ 1.0, -1 }, .below = { 0, 3 } },
    { "scaled", .in = { TP_DIMS(9, 130), TP_DIMS(5) }, .attr = &(tp_embedding_attr){ -2.5, -1 },
      .below = { 0, 9 } },
    { "two tiles of ids, two digits", .in = { TP_DIMS(300, 1), TP_DIMS(2100) },
      .attr = &(tp_embedding_attr){ 1.0, -1 }, .below = { 0, 300 } },
    { "tokens across many runs", .in = { TP_DIMS(3, 8), TP_DIMS(1500) },
      .attr = &(tp_embedding_attr){ 0.5, -1 }, .below = { 0, 3 } },
    { "one token, more columns than a block adds", .in = { TP_DIMS(1, 136), TP_DIMS(70) },
      .attr = &(tp_embedding_attr){ 1.0, -1 }, .below = { 0, 1 } },
    { "a row for padding, which no id has here", .in = { TP_DIMS(5, 3), TP_DIMS(7) },
      .attr = &(tp_embedding_attr){ 1.5, 4 }, .below = { 0, 4 } },
    { "no ids", .in = { TP_DIMS(3, 2), TP_DIMS(0) }, .attr = &(tp_embedding_attr){ 1.0, -1 },
      .below = { 0, 3 } },
    { 0 },
};

const tp_op tp_op_embedding = {
    .name = "embedding",
    .doc = "scale * table[ids]; the row of a padding id gets no gradient",
    .nx = 2,
    .inputs = "table, ids",
    .takes = { [1] = TP_INDICES },
    .ny = 1,
    .attr_size = sizeof(tp_embedding_attr),
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
    return tp_apply(T, &tp_op_embedding, (&(tp_embedding_attr){ scale, -1 }), table, ids);
}

tp_tensor tp_embedding_pad(tp_tape *T, tp_tensor table, tp_tensor ids, double scale, int64_t pad)
{
    return tp_apply(T, &tp_op_embedding, (&(tp_embedding_attr){ scale, pad }), table, ids);
}

/* ---- along an axis ---- */

/* Describes the rows of x that the index selects. */
static tp_code taken(tp_infer *q, tp_view *rows)
{
    const tp_view *x = &q->x[0], *index = &q->x[1];

    const int axis = tp__check_axis(q, x->ndim, *(const int *)q->attr);
    if (axis < 0) return TP_E_SHAPE;
    if (index->ndim != 1)
        return tp_fail(q, TP_E_SHAPE, "the index must have one axis, not %d", index->ndim);
    *rows = *x;
    rows->dim[axis] = index->dim[0];
    return TP_OK;
}

static tp_code index_select_shape(tp_infer *q)
{
    return taken(q, &q->y[0]);
}

static const tp_gradcase index_select_cases[] = {
    { "first axis", .in = { TP_DIMS(4, 3), TP_DIMS(6) }, .attr = &(int){ 0 }, .below = { 0, 4 } },
    { "middle axis", .in = { TP_DIMS(3, 4, 5), TP_DIMS(7) }, .attr = &(int){ 1 },
      .below = { 0, 4 } },
    { "last axis", .in = { TP_DIMS(2, 3, 5), TP_DIMS(4) }, .attr = &(int){ -1 },
      .below = { 0, 5 } },
    { "vector", .in = { TP_DIMS(5), TP_DIMS(70) }, .attr = &(int){ 0 }, .below = { 0, 5 } },
    { "rows of packs, one more than a strip", .in = { TP_DIMS(2, 3, 72), TP_DIMS(40) },
      .attr = &(int){ 1 }, .below = { 0, 3 } },
    { "many outer", .in = { TP_DIMS(300, 7), TP_DIMS(9) }, .attr = &(int){ 1 }, .below = { 0, 7 } },
    { "no index", .in = { TP_DIMS(3, 2), TP_DIMS(0) }, .attr = &(int){ 1 }, .below = { 0, 2 } },
    { 0 },
};

const tp_op tp_op_index_select = {
    .name = "index_select",
    .doc = "y[i][j][k] = x[i][index[j]][k] for axis 1",
    .nx = 2,
    .inputs = "x, index",
    .takes = { [1] = TP_INDICES },
    .ny = 1,
    .attr_size = sizeof(int),
    .saves = TP_SAVE_X(1),
    .flags = TP_ACCUMULATES,
    .shape = index_select_shape,
    .forward = TP_KERNELS(index_select_fwd),
    .backward = TP_KERNELS(index_select_bwd),
    .work = TP_CUDA_WORKS(index_select_work),
    .cases = index_select_cases,
};

tp_tensor tp_index_select(tp_tape *T, tp_tensor x, int axis, tp_tensor index)
{
    return tp_apply(T, &tp_op_index_select, &axis, x, index);
}

static tp_code index_add_shape(tp_infer *q)
{
    tp_view rows;
    const tp_code code = taken(q, &rows);
    if (code != TP_OK) return code;
    if (!tp__same_shape(&rows, &q->x[2]))
        return tp_fail(q, TP_E_SHAPE,
                       "src must have x's shape, with the size of the index along the axis");
    q->y[0] = q->x[0];
    tp__pass_gradient(q, 0);
    return TP_OK;
}

static const tp_gradcase index_add_cases[] = {
    { "first axis", .in = { TP_DIMS(4, 3), TP_DIMS(6), TP_DIMS(6, 3) }, .attr = &(int){ 0 },
      .below = { 0, 4 } },
    { "middle axis", .in = { TP_DIMS(3, 4, 5), TP_DIMS(7), TP_DIMS(3, 7, 5) }, .attr = &(int){ 1 },
      .below = { 0, 4 } },
    { "last axis", .in = { TP_DIMS(2, 3, 5), TP_DIMS(4), TP_DIMS(2, 3, 4) }, .attr = &(int){ -1 },
      .below = { 0, 5 } },
    { "places across runs", .in = { TP_DIMS(2), TP_DIMS(150), TP_DIMS(150) }, .attr = &(int){ 0 },
      .below = { 0, 2 } },
    { "rows of packs, one more than a strip",
      .in = { TP_DIMS(2, 3, 72), TP_DIMS(40), TP_DIMS(2, 40, 72) }, .attr = &(int){ 1 },
      .below = { 0, 3 } },
    { "no index", .in = { TP_DIMS(3, 2), TP_DIMS(0), TP_DIMS(3, 0) }, .attr = &(int){ 1 },
      .below = { 0, 2 } },
    { 0 },
};

const tp_op tp_op_index_add = {
    .name = "index_add",
    .doc = "x with src added to the rows of an index along an axis",
    .nx = 3,
    .inputs = "x, index, src",
    .takes = { [1] = TP_INDICES },
    .ny = 1,
    .attr_size = sizeof(int),
    .saves = TP_SAVE_X(1),
    .flags = TP_MIXES,
    .shape = index_add_shape,
    .forward = TP_KERNELS(index_add_fwd),
    .backward = TP_KERNELS(index_add_bwd),
    .work = TP_CUDA_WORKS(index_add_work),
    .cases = index_add_cases,
};

tp_tensor tp_index_add(tp_tape *T, tp_tensor x, int axis, tp_tensor index, tp_tensor src)
{
    return tp_apply(T, &tp_op_index_add, &axis, x, index, src);
}
