/* ops/shape.h - moves of elements: shapes, axes, indices. See ops.h. */
#ifndef TAPEGRAD_OPS_SHAPE_H
#define TAPEGRAD_OPS_SHAPE_H

#include <tapegrad/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- shape ---- */
TP_API tp_tensor tp_reshape(tp_tape *T, tp_tensor x, tp_shape s); /* a view; one size may be -1 */
TP_API tp_tensor tp_permute(tp_tape *T, tp_tensor x,
                            tp_shape order); /* y axis i = x axis order[i] */

/* Indices start .. start+count-1 of an axis. A view if all axes before it have size 1. */
TP_API tp_tensor tp_slice(tp_tape *T, tp_tensor x, int axis, int64_t start, int64_t count);

/* tp_concat(T, axis, a, b, ...): any number of tensors, whose shapes differ only in that axis. */
TP_API tp_tensor tp_concat_n(tp_tape *T, int axis, int n, const tp_tensor *x);

/* Splits x into n equal parts along axis and writes them to y[0..n). */
TP_API void tp_split(tp_tape *T, tp_tensor x, int axis, int n, tp_tensor *y);

/* tp_stack(T, axis, a, b, ...): joins n tensors of equal shape along a new axis. */
TP_API tp_tensor tp_stack_n(tp_tape *T, int axis, int n, const tp_tensor *x);

/* Repeats axes of size 1 to the shape s; missing leading axes are added. */
TP_API tp_tensor tp_expand(tp_tape *T, tp_tensor x, tp_shape s);

/* Adds `before` and `after` elements equal to value at the two ends of an axis. */
TP_API tp_tensor tp_pad(tp_tape *T, tp_tensor x, int axis, int64_t before, int64_t after,
                        double value);
TP_API tp_tensor tp_roll(tp_tape *T, tp_tensor x, int axis,
                         int64_t shift); /* cyclic, as torch.roll */

/* ---- index ---- */

/* scale * table[ids]: table [V,C], ids integer [...] in [0, V) -> [...,C]. An id out of range is an
 * error on the CPU. When the gradient is added to an existing one, only the rows used are touched. */
TP_API tp_tensor tp_embedding(tp_tape *T, tp_tensor table, tp_tensor ids, double scale);

/* y[i][j][k] = x[i][index[i][j][k]][k] for axis 1 (torch.gather). index has as many axes as x and, except
 * along axis, at most x's sizes. */
TP_API tp_tensor tp_gather(tp_tape *T, tp_tensor x, int axis, tp_tensor index);

/* A copy of x with src added at index along axis (torch.scatter_add). src and index have one shape. */
TP_API tp_tensor tp_scatter_add(tp_tape *T, tp_tensor x, int axis, tp_tensor index, tp_tensor src);

/* ids [...] -> [...,n] of dtype dt: 1 at the id, else 0. No gradient. */
TP_API tp_tensor tp_one_hot(tp_tape *T, tp_tensor ids, int64_t n, tp_dtype dt);

#define tp_concat(T, axis, ...) tp_concat_n(T, axis, TP_TENSORS(__VA_ARGS__))
#define tp_stack(T, axis, ...)  tp_stack_n(T, axis, TP_TENSORS(__VA_ARGS__))

#ifndef TP_NO_SITE
/* clang-format off */
#define tp_reshape(T, ...)              tp_reshape(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_permute(T, ...)              tp_permute(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_slice(T, ...)                tp_slice(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_concat_n(T, ...)             tp_concat_n(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_split(T, ...)                tp_split(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_stack_n(T, ...)              tp_stack_n(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_expand(T, ...)               tp_expand(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_pad(T, ...)                  tp_pad(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_roll(T, ...)                 tp_roll(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_embedding(T, ...)            tp_embedding(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_gather(T, ...)               tp_gather(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_scatter_add(T, ...)          tp_scatter_add(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
#define tp_one_hot(T, ...)              tp_one_hot(tp_at(T, __FILE__, __LINE__), __VA_ARGS__)
/* clang-format on */
#endif

#ifdef __cplusplus
}
#endif
#endif
