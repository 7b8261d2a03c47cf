/* ops/along.h - functions along one axis: running sums and products. See ops.h. */
#ifndef TAPEGRAD_OPS_ALONG_H
#define TAPEGRAD_OPS_ALONG_H

#include <tapegrad/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* y_i = x_0 + .. + x_i and y_i = x_0 x_1 .. x_i along an axis; x is floating point, y has its shape and dtype.
 * Sums and products are kept in f64. The gradient of cumprod takes linear time and holds where elements
 * are 0, too. */
TP_API tp_tensor tp_cumsum(tp_tape *T, tp_tensor x, int axis);
TP_API tp_tensor tp_cumprod(tp_tape *T, tp_tensor x, int axis);

#ifndef TP_NO_SITE
#define tp_cumsum(T, ...)  tp_cumsum(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_cumprod(T, ...) tp_cumprod(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#endif

#ifdef __cplusplus
}
#endif
#endif
