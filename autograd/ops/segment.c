/* segment.c - reductions of rows that belong together, in any order
 *
 *     segment_max    y[s][k] = max of x[i][k] over the rows i with segment[i] = s
 *     segment_mean   the mean of the same: index_add and a division
 *
 * Of no rows both are 0. Kernels check the segments, since shape rules cannot see values. */
#include <tapegrad/tape.h>

#include "autograd/ops/op_inner.h"

TP_KERNEL(segment_max_fwd);
TP_KERNEL(segment_max_bwd);
TP_WORK(segment_max_work);

static tp_code segment_shape(tp_infer *q)
{
    const tp_view *x = &q->x[0], *segment = &q->x[1];
    const int64_t n = *(const int64_t *)q->attr;
    if (x->ndim < 1 || segment->ndim != 1 || segment->dim[0] != x->dim[0])
        return tp_fail(q, TP_E_SHAPE, "segment must have one axis, as long as the first one of x");
    if (n < 0 || x->dim[0] >= UINT32_MAX)
        return tp_fail(q, TP_E_VALUE,
                       "%lld segments of %lld rows; 0 or more of less than 2^32 - 1 "
                       "are possible",
                       (long long)n, (long long)x->dim[0]);
    q->y[0] = *x;
    q->y[0].dim[0] = n;
    q->y[1] = q->y[0];
    q->y[1].dtype = TP_I64; /* the row of the maximum; -1: none */
    return TP_OK;
}

static const tp_gradcase segment_cases[] = {
    { "vector", .in = { TP_DIMS(9), TP_DIMS(9) }, .attr = &(int64_t){ 4 }, .below = { 0, 4 } },
    { "rows", .in = { TP_DIMS(11, 3), TP_DIMS(11) }, .attr = &(int64_t){ 5 }, .below = { 0, 5 } },
    { "segments without rows", .in = { TP_DIMS(4, 2, 3), TP_DIMS(4) }, .attr = &(int64_t){ 9 },
      .below = { 0, 9 } },
    { "one segment, several blocks", .in = { TP_DIMS(600, 7), TP_DIMS(600) },
      .attr = &(int64_t){ 1 }, .below = { 0, 1 } },
    { "no rows", .in = { TP_DIMS(0, 3), TP_DIMS(0) }, .attr = &(int64_t){ 2 }, .below = { 0, 2 } },
    { 0 },
};

const tp_op tp_op_segment_max = {
    .name = "segment_max",
    .doc = "maximum of the rows of each segment; the first maximum gets the gradient",
    .nx = 2,
    .inputs = "x, segment",
    .takes = { [1] = TP_INDICES },
    .ny = 2,
    .attr_size = sizeof(int64_t),
    .saves = TP_SAVE_Y(1),
    .shape = segment_shape,
    .forward = TP_KERNELS(segment_max_fwd),
    .backward = TP_KERNELS(segment_max_bwd),
    .work = TP_CUDA_WORKS(segment_max_work),
    .cases = segment_cases,
};

tp_tensor tp_segment_max(tp_tape *T, tp_tensor x, tp_tensor segment, int64_t n)
{
    return tp_apply(T, &tp_op_segment_max, &n, x, segment);
}

/* Rows of one value, as wide as those of x or, if narrow, of one element. */
static tp_tensor filled(tp_tape *T, tp_tensor x, int64_t rows, bool narrow, double value)
{
    tp_shape s = tp_shape_of(x);
    for (int d = 1; narrow && d < s.ndim; d++) s.dim[d] = 1;
    s.dim[0] = rows;
    return tp_full(T, tp_dtype_of(x), s, value);
}

tp_tensor tp_segment_mean(tp_tape *T, tp_tensor x, tp_tensor segment, int64_t n)
{
    tp_enter(T, "segment_mean");
    if (!tp_ok(T) || !tp_given(x) || tp_shape_of(x).ndim < 1 || n < 0)
        return tp_leave(T, tp_raise_here(T, TP_E_SHAPE,
                                         "segment_mean: x must have rows along a first axis, and "
                                         "there must be 0 or more segments, not %lld",
                                         (long long)n));
    if (tp_dtype_of(x) == TP_BF16) x = tp_cast(T, x, TP_F32); /* counts beyond 256 */
    const tp_tensor ones = filled(T, x, tp_dim(x, 0), true, 1.0);
    const tp_tensor sums = tp_index_add(T, filled(T, x, n, false, 0.0), 0, segment, x);
    const tp_tensor counts = tp_index_add(T, filled(T, x, n, true, 0.0), 0, segment, ones);
    return tp_leave(T, tp_div(T, sums, tp_maximum(T, counts, tp_number(1.0))));
}
