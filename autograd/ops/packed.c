/* packed.c - packed documents: sums of rows, and prepended rows.
 *
 *     sum       y[b] = sum of x[i] over the rows i of document b
 *     prepend   y[offset[b] + b] = first[b], y[i + b + 1] = x[i] for the rows i of document b
 *
 * Saves the offsets. The attribute is the longest document's length. */
#include "autograd/ops/packing.h"

TP_KERNEL(packed_sum_fwd);
TP_KERNEL(packed_sum_bwd);
TP_KERNEL(packed_prepend_fwd);
TP_KERNEL(packed_prepend_bwd);

enum { SUM_X, SUM_OFFSET, SUM_NX };
enum { PREPEND_FIRST, PREPEND_X, PREPEND_OFFSET, PREPEND_NX };

static tp_code sum_shape(tp_infer *q)
{
    const tp_view *x = &q->x[SUM_X], *offset = &q->x[SUM_OFFSET];
    if (x->ndim < 1) return tp_fail(q, TP_E_SHAPE, "x must be [M,...]");
    q->y[0] = *x;
    q->y[0].dim[0] = offset->dim[0] - 1;
    return tp__expect_packing(q, SUM_OFFSET, "of.offset", x->dim[0], *(const int64_t *)q->attr);
}

static tp_code prepend_shape(tp_infer *q)
{
    const tp_view *first = &q->x[PREPEND_FIRST], *x = &q->x[PREPEND_X];
    const tp_view *offset = &q->x[PREPEND_OFFSET];
    bool fits = x->ndim >= 1 && first->ndim == x->ndim;
    for (int i = 1; fits && i < x->ndim; i++) fits = first->dim[i] == x->dim[i];
    if (!fits)
        return tp_fail(q, TP_E_SHAPE, "first must be [n,...] and x [M,...], of one size of rows");
    const tp_code code =
        tp__expect_packing(q, PREPEND_OFFSET, "of.offset", x->dim[0], *(const int64_t *)q->attr);
    if (code != TP_OK) return code;
    if (first->dim[0] != offset->dim[0] - 1)
        return tp_fail(q, TP_E_SHAPE, "first has %lld rows, but there are %lld documents",
                       (long long)first->dim[0], (long long)(offset->dim[0] - 1));
    q->y[0] = *x;
    q->y[0].dim[0] = x->dim[0] + first->dim[0];
    q->y[1] = *offset;
    return TP_OK;
}

/* Cases have 17 rows in five documents, or 1200 in two. */
static void fill_offset(int i, tp_view *x)
{
    (void)i;
    if (x->dtype == TP_I64) tp__fill_offsets(x, x->dim[0] == 6 ? 17 : x->dim[0] == 3 ? 1200 : 0);
}

static const tp_gradcase sum_cases[] = {
    { "vectors", .in = { TP_DIMS(17, 3), TP_DIMS(6) }, .attr = &(int64_t){ 7 }, .below = { 0, 1 },
      .fill = fill_offset },
    { "numbers, a looser bound", .in = { TP_DIMS(17), TP_DIMS(6) }, .attr = &(int64_t){ 20 },
      .below = { 0, 1 }, .fill = fill_offset },
    { "matrices", .in = { TP_DIMS(17, 2, 40), TP_DIMS(6) }, .attr = &(int64_t){ 7 },
      .below = { 0, 1 }, .fill = fill_offset },
    { "a long document", .in = { TP_DIMS(1200, 2), TP_DIMS(3) }, .attr = &(int64_t){ 1200 },
      .below = { 0, 1 }, .fill = fill_offset },
    { "no documents", .in = { TP_DIMS(0, 3), TP_DIMS(1) }, .attr = &(int64_t){ 0 },
      .below = { 0, 1 }, .fill = fill_offset },
    { 0 },
};

static const tp_gradcase prepend_cases[] = {
    { "vectors", .in = { TP_DIMS(5, 3), TP_DIMS(17, 3), TP_DIMS(6) }, .attr = &(int64_t){ 7 },
      .below = { 0, 0, 1 }, .fill = fill_offset },
    { "whole packs", .in = { TP_DIMS(5, 16), TP_DIMS(17, 16), TP_DIMS(6) }, .attr = &(int64_t){ 9 },
      .below = { 0, 0, 1 }, .fill = fill_offset },
    { "numbers", .in = { TP_DIMS(5), TP_DIMS(17), TP_DIMS(6) }, .attr = &(int64_t){ 7 },
      .below = { 0, 0, 1 }, .fill = fill_offset },
    { "empty documents", .in = { TP_DIMS(5, 3), TP_DIMS(0, 3), TP_DIMS(6) },
      .attr = &(int64_t){ 0 }, .below = { 0, 0, 1 } },
    { "no documents", .in = { TP_DIMS(0, 3), TP_DIMS(0, 3), TP_DIMS(1) }, .attr = &(int64_t){ 0 },
      .below = { 0, 0, 1 }, .fill = fill_offset },
    { 0 },
};

const tp_op tp_op_packed_sum = {
    .name = "packed_sum",
    .doc = "sum of the rows of each packed document",
    .nx = SUM_NX,
    .ny = 1,
    .inputs = "x, of.offset",
    .takes = { [SUM_OFFSET] = TP_INDICES },
    .attr_size = sizeof(int64_t),
    .saves = TP_SAVE_X(SUM_OFFSET),
    .shape = sum_shape,
    .forward = TP_KERNELS(packed_sum_fwd),
    .backward = TP_KERNELS(packed_sum_bwd),
    .cases = sum_cases,
};

const tp_op tp_op_packed_prepend = {
    .name = "packed_prepend",
    .doc = "a row prepended to each packed document",
    .nx = PREPEND_NX,
    .inputs = "first, x, of.offset",
    .takes = { TP_ANY, TP_ANY, TP_INDICES },
    .ny = 2, /* the rows, and their offsets */
    .attr_size = sizeof(int64_t),
    .saves = TP_SAVE_X(PREPEND_OFFSET),
    .shape = prepend_shape,
    .forward = TP_KERNELS(packed_prepend_fwd),
    .backward = TP_KERNELS(packed_prepend_bwd),
    .cases = prepend_cases,
};

tp_tensor tp_packed_sum(tp_tape *T, tp_tensor x, tp_packed of)
{
    return tp_apply(T, &tp_op_packed_sum, &of.longest, x, of.offset);
}

tp_tensor tp_packed_prepend(tp_tape *T, tp_tensor first, tp_tensor x, tp_packed of,
                            tp_packed *longer)
{
    const tp_tensor in[PREPEND_NX] = { first, x, of.offset };
    tp_tensor y[2];
    tp_apply_n(T, &tp_op_packed_prepend, &of.longest, PREPEND_NX, in, 2, y);
    if (longer) *longer = (tp_packed){ y[1], of.longest + 1 };
    return y[0];
}
