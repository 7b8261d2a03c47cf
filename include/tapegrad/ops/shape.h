/* ops/shape.h - moves of elements: shapes, axes, indices. See ops.h. */
#ifndef TAPEGRAD_OPS_SHAPE_H
#define TAPEGRAD_OPS_SHAPE_H

#include <tapegrad/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- shape ---- */
/* a view; one size may be -1 */
TP_API tp_tensor tp_reshape(tp_tape *T, tp_tensor x, tp_shape shape);
/* y axis i = x axis order[i] */
TP_API tp_tensor tp_permute(tp_tape *T, tp_tensor x, tp_shape order);

/* Indices start .. start+count-1 of an axis. A view if all axes before it have size 1. */
TP_API tp_tensor tp_slice(tp_tape *T, tp_tensor x, int axis, int64_t start, int64_t count);

/* tp_concat(T, axis, a, b, ...): any number of tensors, whose shapes differ only in that axis. */
TP_API tp_tensor tp_concat_n(tp_tape *T, int axis, int n, const tp_tensor *x);

/* ---- the same elements in another shape: views, but for most transpositions ---- */

/* A new axis of size 1, which becomes axis `axis` of the result; -1: the last (torch.unsqueeze). */
TP_API tp_tensor tp_unsqueeze(tp_tape *T, tp_tensor x, int axis);

/* Drops axes of size 1 (torch.squeeze). axes: one axis or TP_AXES (ops/reduce.h), which must have
 * size 1, or TP_ALL, all that have it. */
TP_API tp_tensor tp_squeeze(tp_tape *T, tp_tensor x, int axes);

/* Merges axes first .. last into one (torch.flatten). A scalar becomes [1]. */
TP_API tp_tensor tp_flatten(tp_tape *T, tp_tensor x, int first, int last);

/* Swaps two axes (torch.transpose). */
TP_API tp_tensor tp_transpose(tp_tape *T, tp_tensor x, int a, int b);

/* ---- parts ---- */

/* Splits x into n equal parts along axis and writes them to y[0..n). */
TP_API void tp_split(tp_tape *T, tp_tensor x, int axis, int n, tp_tensor *y);

/* Splits x into n parts of sizes[0..n), whose sum is the size of the axis, and writes them to
 * y[0..n) (torch.split with a list). */
TP_API void tp_split_sizes(tp_tape *T, tp_tensor x, int axis, int n, const int64_t *sizes,
                           tp_tensor *y);

/* Splits x into at most n parts of ceil(size / n), the last one possibly smaller (torch.chunk),
 * writes them to y[0..n) and returns their number; the rest of y becomes TP_NONE. */
TP_API int tp_chunk(tp_tape *T, tp_tensor x, int axis, int n, tp_tensor *y);

/* ---- copies ---- */

/* tp_stack(T, axis, a, b, ...): joins n tensors of equal shape along a new axis. */
TP_API tp_tensor tp_stack_n(tp_tape *T, int axis, int n, const tp_tensor *x);

/* Repeats axes of size 1 to the shape; missing leading axes are added. */
TP_API tp_tensor tp_expand(tp_tape *T, tp_tensor x, tp_shape shape);

/* Adds `before` and `after` elements equal to value at the two ends of an axis. */
TP_API tp_tensor tp_pad(tp_tape *T, tp_tensor x, int axis, int64_t before, int64_t after,
                        double value);

/* How tp_pad_nd fills the two ends of an axis of size n. The gradient adds up over all copies of an
 * element. */
typedef enum tp_pad_mode {
    TP_PAD_CONSTANT,
    TP_PAD_REFLECT, /* mirror images without the border element: x[1], x[2], ...; by less than n */
    TP_PAD_REPLICATE, /* copies of the border element */
    TP_PAD_CIRCULAR   /* elements of the other end; by at most n */
} tp_pad_mode;
typedef struct tp_pad_cfg {
    int64_t before[TP_MAX_DIMS], after[TP_MAX_DIMS]; /* elements, for axis 0, 1, ... of x */
    tp_pad_mode mode;
    double value; /* TP_PAD_CONSTANT */
} tp_pad_cfg;

/* Pads any axes at once, as torch.nn.functional.pad, which counts axes from the last and allows
 * fewer of them in modes other than constant. By 1 pixel around images [B,H,W,C]:
 *
 *     tp_pad_nd(T, x, (tp_pad_cfg){ { 0, 1, 1 }, { 0, 1, 1 }, TP_PAD_REFLECT, 0 }) */
TP_API tp_tensor tp_pad_nd(tp_tape *T, tp_tensor x, tp_pad_cfg cfg);

/* cyclic, as torch.roll */
TP_API tp_tensor tp_roll(tp_tape *T, tp_tensor x, int axis, int64_t shift);

/* Reverses the order of the elements along axes (torch.flip): an axis, TP_AXES or TP_ALL of
 * ops/reduce.h. */
TP_API tp_tensor tp_flip(tp_tape *T, tp_tensor x, int axes);

/* x, times.dim[i] times one after the other along axis i (torch.Tensor.repeat, numpy.tile). Missing
 * leading axes are added. tp_repeat_interleave repeats each element of an axis `times` times in
 * place (torch.repeat_interleave). */
TP_API tp_tensor tp_repeat(tp_tape *T, tp_tensor x, tp_shape times);
TP_API tp_tensor tp_repeat_interleave(tp_tape *T, tp_tensor x, int axis, int64_t times);

/* ---- index ---- */

/* scale * table[ids]: table [V,C], ids integer [...] in [0, V) -> [...,C]. An id out of range is an
 * error on the CPU. When the gradient is added to an existing one, only the rows used are
 * touched. */
TP_API tp_tensor tp_embedding(tp_tape *T, tp_tensor table, tp_tensor ids, double scale);
/* The same, but backward adds nothing to row `pad` of the table (padding_idx of
 * torch.nn.Embedding), which is looked up as any other. pad -1: there is no such row, as in
 * tp_embedding. */
TP_API tp_tensor tp_embedding_pad(tp_tape *T, tp_tensor table, tp_tensor ids, double scale,
                                  int64_t pad);

/* index_select: y[i][j][k] = x[i][index[j]][k] for axis 1 (torch.index_select). index_add: a copy
 * of x with src[i][j][k] added at [i][index[j]][k] (torch.index_add); src has x's shape, but along
 * axis the index's size. index is an integer [n] in [0, the size of x along axis); an element out
 * of range is an error on the CPU. The rows of a repeated index are added in order. */
TP_API tp_tensor tp_index_select(tp_tape *T, tp_tensor x, int axis, tp_tensor index);
TP_API tp_tensor tp_index_add(tp_tape *T, tp_tensor x, int axis, tp_tensor index, tp_tensor src);

/* The maximum and the mean of the rows of x that have one segment: x [N,...], segment integer [N]
 * in [0,n), in any order -> [n,...]; nodes of graphs, tokens of words. Of no rows both are 0; the
 * mean of bf16 is f32. The mean counts in its own dtype: in f32 right up to 2^24 rows of a
 * segment. A gradient goes to the first maximum. A segment out of range is an error on
 * the CPU; a GPU leaves its row out of the maximum. The sum is tp_index_add. */
TP_API tp_tensor tp_segment_max(tp_tape *T, tp_tensor x, tp_tensor segment, int64_t n);
TP_API tp_tensor tp_segment_mean(tp_tape *T, tp_tensor x, tp_tensor segment, int64_t n);

/* y[i][j][k] = x[i][index[i][j][k]][k] for axis 1 (torch.gather). index has as many axes as x and,
 * except along axis, at most x's sizes. */
TP_API tp_tensor tp_gather(tp_tape *T, tp_tensor x, int axis, tp_tensor index);

/* A copy of x with src added at index along axis (torch.scatter_add). src and index have one
 * shape. */
TP_API tp_tensor tp_scatter_add(tp_tape *T, tp_tensor x, int axis, tp_tensor index, tp_tensor src);

/* ids [...] -> [...,n] of dtype dt: 1 at the id, else 0. No gradient. */
TP_API tp_tensor tp_one_hot(tp_tape *T, tp_tensor ids, int64_t n, tp_dtype dt);

#define tp_concat(T, axis, ...) tp_concat_n(T, axis, TP_TENSORS(__VA_ARGS__))
#define tp_stack(T, axis, ...)  tp_stack_n(T, axis, TP_TENSORS(__VA_ARGS__))

#ifndef TP_NO_SITE
#include <tapegrad/sites/ops/shape.h>
#endif

#ifdef __cplusplus
}
#endif
#endif
