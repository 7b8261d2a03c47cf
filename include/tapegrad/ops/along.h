/* ops/along.h - functions along one axis: running sums and products, sorting. See ops.h. */
#ifndef TAPEGRAD_OPS_ALONG_H
#define TAPEGRAD_OPS_ALONG_H

#include <tapegrad/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* y_i = x_0 + .. + x_i and y_i = x_0 x_1 .. x_i along an axis; x is floating point, y has its shape
 * and dtype. Sums and products are kept in f64. The gradient of cumprod takes linear time and holds
 * where elements are 0, too. On the CPU, products that leave the range on the way do no harm; on
 * CUDA those that leave f64's are lost, and the gradient is right only where y stays in the range
 * of f32. */
TP_API tp_tensor tp_cumsum(tp_tape *T, tp_tensor x, int axis);
TP_API tp_tensor tp_cumprod(tp_tape *T, tp_tensor x, int axis);

/* The elements along an axis in rising or falling order, and in *indices, unless NULL, where they
 * were (TP_I64, of the same shape). The order is stable, also the falling one: equal elements keep
 * theirs. NaN counts as the largest, as in PyTorch, and -0 equals 0. x is floating point; the axis
 * has fewer than 2^32 - 1 elements. Gradients go where the elements were; indices have none.
 * tp_argsort: the indices alone. */
TP_API tp_tensor tp_sort(tp_tape *T, tp_tensor x, int axis, bool descending, tp_tensor *indices);
TP_API tp_tensor tp_argsort(tp_tape *T, tp_tensor x, int axis, bool descending);

/* The first k of tp_sort, falling for the largest and rising for the smallest; 0 <= k <= the axis.
 * Of equal elements the first are taken. */
TP_API tp_tensor tp_topk(tp_tape *T, tp_tensor x, int64_t k, int axis, bool largest,
                         tp_tensor *indices);

#ifndef TP_NO_SITE
#include <tapegrad/sites/ops/along.h>
#endif

#ifdef __cplusplus
}
#endif
#endif
