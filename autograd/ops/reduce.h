/* reduce.h - the reductions' shared shape rule and gradient cases. */
#ifndef TP_REDUCE_H
#define TP_REDUCE_H

#include "autograd/ops/op_inner.h"
#include "tensor/geometry/reduced.h"

/* Describes y[0], of dtype `dtype`, from the attributes' axes. *terms: the elements of each
 * result. */
static inline tp_code tp__reduce_shape(tp_infer *q, tp_dtype dtype, int64_t *terms)
{
    const tp_reduce_attr *a = q->attr;
    const tp_view *x = &q->x[0];
    unsigned set;
    bool keep;
    char why[200];
    if (!tp__axes(a->axes, x->ndim, &set, &keep, why, sizeof why))
        return tp_fail(q, TP_E_SHAPE, "%s", why);
    q->y[0] = (tp_view){ .dtype = dtype };
    *terms = 1;
    for (int i = 0; i < x->ndim; i++) {
        const bool reduced = set >> i & 1u;
        if (reduced) *terms *= x->dim[i]; /* at most x->numel, or 0 */
        if (!reduced || keep) q->y[0].dim[q->y[0].ndim++] = reduced ? 1 : x->dim[i];
    }
    return TP_OK;
}

/* The same for sums of floating-point numbers. */
static inline tp_code tp__reduce_sums(tp_infer *q, int64_t *terms)
{
    return tp__reduce_shape(q, tp__sum_dtype(q->x[0].dtype), terms);
}

/* Shapes that kernels treat differently; `number` is the op's option. */
/* clang-format off */
#define TP_REDUCE_CASES_OF(number)                                                                 \
    { "leading axis", .in = { { 3, { 5, 2, 3 } } }, .attr = &(tp_reduce_attr){ 0, number } },      \
    { "middle axis", .in = { { 3, { 2, 5, 3 } } }, .attr = &(tp_reduce_attr){ 1, number } },       \
    { "last axis", .in = { { 2, { 3, 7 } } }, .attr = &(tp_reduce_attr){ -1, number } },           \
    { "many columns", .in = { { 2, { 3, 259 } } }, .attr = &(tp_reduce_attr){ 0, number } },       \
    { "many rows", .in = { { 2, { 700, 2 } } }, .attr = &(tp_reduce_attr){ 0, number } },          \
    { "all", .in = { { 3, { 2, 3, 5 } } }, .attr = &(tp_reduce_attr){ TP_ALL, number } },          \
    { "all, kept", .in = { { 2, { 3, 5 } } },                                                      \
      .attr = &(tp_reduce_attr){ TP_KEEP(TP_ALL), number } },                                      \
    { "two adjacent axes, kept", .in = { { 4, { 2, 3, 2, 3 } } },                                  \
      .attr = &(tp_reduce_attr){ TP_KEEP(TP_AXES(1, -2)), number } },                              \
    { "outer axes", .in = { { 3, { 3, 5, 4 } } },                                                  \
      .attr = &(tp_reduce_attr){ TP_AXES(0, 2), number } },                                        \
    { "every other axis", .in = { { 4, { 3, 2, 4, 3 } } },                                         \
      .attr = &(tp_reduce_attr){ TP_AXES(0, 2), number } },                                        \
    { "no rows", .in = { { 2, { 0, 5 } } }, .attr = &(tp_reduce_attr){ 1, number } }
/* clang-format on */
#define TP_REDUCE_CASES TP_REDUCE_CASES_OF(0)

#endif
