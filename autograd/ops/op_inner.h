/* op_inner.h - kernel and workspace tables and shape checks shared by the library's ops. */
#ifndef TP_OP_INNER_H
#define TP_OP_INNER_H

#include <tapegrad/op.h>
#include <tapegrad/ops.h>

#include "tensor/shape.h"

/* More flags. TP_MIXES: kernels read f32 parameters beside bf16 data that come first, and give
 * results of the latter's dtype; for other ops a bf16 tape casts such parameters.
 * TP_MIXES_BUT_LAST: the last input is data, cast like them if it is a parameter. */
enum { TP_MIXES = 64, TP_MIXES_BUT_LAST = TP_MIXES | 128 };

/* True if kernels read input i in f32 beside bf16 data, if it is a parameter. */
static inline bool tp__mixes(const tp_op *op, int i)
{
    const bool last_is_data = (op->flags & TP_MIXES_BUT_LAST) == TP_MIXES_BUT_LAST;
    return (op->flags & TP_MIXES) && !(last_is_data && i == op->nx - 1);
}

/* TP_KERNEL(softmax_fwd); declares the kernels, TP_KERNELS(softmax_fwd) is their table. A missing
 * kernel is a link error. */
#define TP_KERNEL(name)                                                                            \
    tp_code tp_cpu_##name(const tp_call *c);                                                       \
    tp_code tp_cuda_##name(const tp_call *c)

/* TP_WORK(linear_work); declares the functions, defined beside the kernels, that return workspace
 * sizes. TP_WORKS(linear_work) is their table; TP_CPU_WORKS and TP_CUDA_WORKS are for ops with
 * workspace on one backend only, TP_SAME_WORK(f) for a function in the op file that serves both. */
#define TP_WORK(name)                                                                              \
    size_t tp_cpu_##name(const tp_call *c);                                                        \
    size_t tp_cuda_##name(const tp_call *c)

#ifdef TP_HAVE_CUDA
#define TP_OF_CUDA(name) tp_cuda_##name
#else
#define TP_OF_CUDA(name) NULL
#endif

/* clang-format off */
#define TP_KERNELS(name)    { [TP_CPU] = tp_cpu_##name, [TP_CUDA] = TP_OF_CUDA(name) }
#define TP_WORKS(name)      { [TP_CPU] = tp_cpu_##name, [TP_CUDA] = TP_OF_CUDA(name) }
#define TP_CPU_WORKS(name)  { [TP_CPU] = tp_cpu_##name }
#define TP_CUDA_WORKS(name) { [TP_CUDA] = TP_OF_CUDA(name) }
#define TP_SAME_WORK(f)     { [TP_CPU] = f, [TP_CUDA] = f }

/* Attributes and brace lists in the macros of case tables, which clang-format tears. */
#define TP_ATTR(type, ...) &(type){ __VA_ARGS__ }
#define TP_LIST(...)       { __VA_ARGS__ }
/* clang-format on */

/* y[0] has the shape and dtype of x[0]. */
static inline tp_code tp__like_x(tp_infer *q)
{
    q->y[0] = q->x[0];
    return TP_OK;
}

/* Passes y[0]'s gradient to input i unchanged, if shapes and dtypes agree (a parameter's dtype may
 * differ). */
static inline void tp__pass_gradient(tp_infer *q, int i)
{
    if (q->x[i].dtype == q->y[0].dtype && tp__same_shape(&q->x[i], &q->y[0])) q->passes |= 1u << i;
}

/* Fails unless all inputs after the first are [n] or absent; names[i] names input i. */
static inline tp_code tp__expect_vectors(tp_infer *q, const char *const *names, int64_t n)
{
    for (int i = 1; i < q->nx; i++)
        if (!tp_absent(&q->x[i]) && (q->x[i].ndim != 1 || q->x[i].dim[0] != n))
            return tp_fail(q, TP_E_SHAPE, "%s must be [%lld]", names[i], (long long)n);
    return TP_OK;
}

/* Fails if x looks like [B,C,...] with C channels, but should be [B,...,C]. */
static inline tp_code tp__expect_channels_last(tp_infer *q, int64_t C)
{
    const tp_view *x = &q->x[0];
    if (x->ndim < 3 || C < 1 || x->dim[x->ndim - 1] == C || x->dim[1] != C) return TP_OK;
    return tp_fail(q, TP_E_SHAPE,
                   "x must be [B,%s,%lld], channels last; it looks like channels first: tp_permute "
                   "it by 0, 2, %s1",
                   x->ndim == 3   ? "N"
                   : x->ndim == 4 ? "H,W"
                                  : "...",
                   (long long)C,
                   x->ndim == 3   ? ""
                   : x->ndim == 4 ? "3, "
                                  : "..., ");
}

/* The same for a per-channel norm, whose w or b (input 1 or 2) gives C. */
static inline tp_code tp__expect_norm_layout(tp_infer *q)
{
    const tp_view *v = tp_absent(&q->x[1]) ? &q->x[2] : &q->x[1];
    return tp__expect_channels_last(q, !tp_absent(v) && v->ndim == 1 ? v->dim[0] : 0);
}

/* The dtype of sums over dtype dt: f32 for bf16. */
static inline tp_dtype tp__sum_dtype(tp_dtype dt)
{
    return dt == TP_BF16 ? TP_F32 : dt;
}

/* Fails unless elements of dtype dt can hold the value. */
static inline tp_code tp__expect_held(tp_infer *q, tp_dtype dt, double value)
{
    const double least = dt == TP_U8 ? 0.0 : dt == TP_I32 ? INT32_MIN : -0x1p53;
    const double most = dt == TP_U8 ? 255.0 : dt == TP_I32 ? INT32_MAX : 0x1p53;
    if (tp_is_float(dt) || (value >= least && value <= most && value == (double)(int64_t)value))
        return TP_OK;
    return tp_fail(q, TP_E_VALUE, "%s cannot hold the value %g", tp_dtype_name(dt), value);
}

/* Returns the axis from the front, or -1 with the op failed if out of range. */
static inline int tp__check_axis(tp_infer *q, int ndim, int axis)
{
    const int k = tp__axis(ndim, axis);
    if (k < 0) tp_fail(q, TP_E_SHAPE, "axis %d is out of range for %d axes", axis, ndim);
    return k;
}

#endif
