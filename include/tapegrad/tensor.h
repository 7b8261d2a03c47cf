/* tensor.h - creating tensors from host memory, reading them back, querying their shape. */
#ifndef TAPEGRAD_TENSOR_H
#define TAPEGRAD_TENSOR_H

#include <stdio.h>
#include <tapegrad/file.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A constant tensor with the data at host (row-major, dtype dt), which is copied before the call
 * returns. host may be NULL only if s has no elements. Owned by T. */
TP_API tp_tensor tp_from(tp_tape *T, tp_dtype dt, tp_shape s, const void *host);

/* The same for an input that needs a gradient (floating dtypes only): see tp_grad. */
TP_API tp_tensor tp_input(tp_tape *T, tp_dtype dt, tp_shape s, const void *host);

/* A constant whose elements all equal value, converted to dt. For an integer dtype the fraction is
 * dropped, values out of range become the nearest one in range, and NaN becomes 0. */
TP_API tp_tensor tp_full(tp_tape *T, tp_dtype dt, tp_shape s, double value);

/* A number as an operand of an op of two operands or as a choice of tp_where: 1 - z is tp_sub(T,
 * tp_number(1), z). The call-site macros of these ops accept plain numbers, so that tp_sub(T, 1, z)
 * does the same. A number needs no tape and no memory and never expires; it takes the dtype of the
 * other operand, but is compared exactly with integers. All other functions refuse it, except
 * tp_item, which returns it; its shape is that of a failed tensor. Integers are exact up to
 * 2^53. */
TP_API tp_tensor tp_number(double value);

/* The type of a parameter that may be a number: its function's macro accepts plain numbers. */
typedef tp_tensor tp_operand;

/* The single element of x, or NaN if T has failed. x may be a result, a parameter or the norm that
 * tp_clip_grad_norm returned. Synchronises. */
TP_API double tp_item(tp_tape *T, tp_tensor x);

/* Copies x to host; bytes must equal the number of elements times the dtype's size. False, with T
 * failed, on an error. Synchronises. */
TP_API bool tp_read(tp_tape *T, tp_tensor x, void *host, size_t bytes);

/* Writes x as NumPy prints arrays, under its dtype and shape:
 *
 *     f32[2,3]
 *     [[ 1.    2.5  -3.  ]
 *      [ 0.25   nan  4.  ]]
 *
 * Numbers have the fewest digits that read back as the same value of x's dtype, at most 8 after the
 * point. All have exponents if one is 1e6 (f64: 1e8) or more or below 1e-4, or 1000 times another.
 * Of more than 1000 elements only the first and last three along each axis appear, with "..."
 * between them, and only they are read; lines break at 75 characters. x may be a result, a
 * parameter or the norm that tp_clip_grad_norm returned. Synchronises.
 *
 * tp_to_string writes at most size bytes with the final zero, and returns the length of the whole
 * text as snprintf does, so that text NULL and size 0 measure it; 0, with T failed, on an error.
 * tp_print writes the text and a newline to a stream; false with T failed, or if the stream has an
 * error (ferror), which does not fail T. */
TP_API size_t tp_to_string(tp_tape *T, tp_tensor x, char *text, size_t size);
TP_API bool tp_print(tp_tape *T, tp_tensor x, FILE *to);

/* A constant tensor read from a file of any format that tp_file_open reads, among them NumPy's .npy
 * and .npz. name NULL: the only tensor of the file. Owned by T. Its dtype is the stored one; f16
 * becomes f32, bool u8, other integers the smallest of i32 and i64 that holds them all (a u64 above
 * i64's range is an error). Checksums are compared as tp_file_open says. T fails if the file or the
 * tensor cannot be read, and says why. */
TP_API tp_tensor tp_from_file(tp_tape *T, const char *path, const char *name);

/* Writes x to PATH, which ends in .npy, for numpy.load; as tp_writer_numpy and tp_writer_commit do,
 * completely or not at all. False with the reason in why, which may be NULL: T is failed only if
 * x cannot be read. Synchronises. */
TP_API TP_CHECKED bool tp_to_npy(tp_tape *T, tp_tensor x, const char *path, char *why, size_t size);

/* Adds a copy of x to a writer of any format. W fails if x cannot be read, for example because T
 * has failed. Synchronises. */
TP_API void tp_add_to_file(tp_tape *T, tp_tensor x, tp_writer *W, const char *name);

/* Shape queries work on any live handle, without a tape. For a failed or stale tensor every size is
 * 1 and ndim is 0, so that user code never divides by zero. Negative axes count from the end. */
TP_API int tp_ndim(tp_tensor x);
TP_API int64_t tp_dim(tp_tensor x, int axis);
TP_API int64_t tp_numel(tp_tensor x);
TP_API tp_dtype tp_dtype_of(tp_tensor x);
TP_API tp_shape tp_shape_of(tp_tensor x);

/* The tensor x, or tp_number(x). */
static inline tp_tensor tp__itself(tp_tensor x)
{
    return x;
}
static inline tp_tensor tp__integer(long long x)
{
    return tp_number((double)x);
}
#ifdef __cplusplus
extern "C++" {
inline tp_tensor tp__operand(tp_tensor x)
{
    return x;
}
template <class X> tp_tensor tp__operand(X x)
{
    return tp_number(static_cast<double>(x));
}
}
#define TP_OPERAND(x) tp__operand(x)
#else
#define TP_OPERAND_OF(x)                                                                           \
    _Generic((x), tp_tensor                                                                        \
             : tp__itself, long                                                                    \
             : tp__integer, long long                                                              \
             : tp__integer, default                                                                \
             : tp_number)(x)
#ifdef __GNUC__ /* nested calls would double the text at each level if x appeared twice */
#define TP_OPERAND_IN(x, name)                                                                     \
    __extension__({                                                                                \
        __auto_type name = (x);                                                                    \
        TP_OPERAND_OF(name);                                                                       \
    })
#define TP_OPERAND_NAMED(x, n) TP_OPERAND_IN(x, tp__operand_##n)
#define TP_OPERAND_AT(x, n)    TP_OPERAND_NAMED(x, n)
#define TP_OPERAND(x)          TP_OPERAND_AT(x, __COUNTER__)
#else
#define TP_OPERAND(x) TP_OPERAND_OF(x)
#endif
#endif

#ifndef TP_NO_SITE
#include <tapegrad/sites/tensor.h>
#endif

#ifdef __cplusplus
}
#endif
#endif
