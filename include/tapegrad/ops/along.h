/* ops/along.h - functions along one axis: running sums and products, sorting. See ops.h. */
#ifndef TAPEGRAD_OPS_ALONG_H
#define TAPEGRAD_OPS_ALONG_H

#include <tapegrad/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* y_i = x_0 + .. + x_i and y_i = x_0 x_1 .. x_i along an axis; x is floating point, y has its shape
 * and dtype. Sums and products are kept in f64. The gradient of cumprod takes linear time and holds
 * where elements are 0, too. On the CPU, intermediate products out of range do no harm; on CUDA
 * those out of f64's are lost, and the gradient is right only where y stays in the range of f32. */
TP_API tp_tensor tp_cumsum(tp_tape *T, tp_tensor x, int axis);
TP_API tp_tensor tp_cumprod(tp_tape *T, tp_tensor x, int axis);

/* Sorts the elements along an axis in ascending or descending order; *indices, unless NULL,
 * receives where they were (TP_I64, of the same shape). Both orders are stable. NaN counts as the
 * largest, as in PyTorch, and -0 equals 0. x is floating point; the axis has fewer than 2^32 - 1
 * elements. Gradients go where the elements were; indices have none. tp_argsort: only the
 * indices. */
TP_API tp_tensor tp_sort(tp_tape *T, tp_tensor x, int axis, bool descending, tp_tensor *indices);
TP_API tp_tensor tp_argsort(tp_tape *T, tp_tensor x, int axis, bool descending);

/* The first k of tp_sort, descending for the largest, ascending for the smallest; 0 <= k <= the
 * axis. Equal elements: the first. */
TP_API tp_tensor tp_topk(tp_tape *T, tp_tensor x, int64_t k, int axis, bool largest,
                         tp_tensor *indices);

#ifndef TP_NO_SITE
#include <tapegrad/sites/ops/along.h>
#endif

#ifdef __cplusplus
}
#endif
#endif
