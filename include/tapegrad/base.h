/* base.h - version, error codes, dtypes, shapes, tensor handles; included by every header. */
#ifndef TAPEGRAD_BASE_H
#define TAPEGRAD_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
#include <initializer_list>
#endif

#define TP_VERSION_MAJOR 0
#define TP_VERSION_MINOR 1
#define TP_VERSION_PATCH 0

#if defined(__GNUC__)
#define TP_API               __attribute__((visibility("default")))
#define TP_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define TP_CHECKED           __attribute__((warn_unused_result))
#else
#define TP_API
#define TP_PRINTF(fmt, args)
#define TP_CHECKED
#endif
#ifdef __cplusplus
extern "C" {
#endif
/* The version of the linked library, "0.1.0". */
TP_API const char *tp_version(void);

/* Error codes: a name and a short description. */
#define TP_CODES(X)                                                                                \
    X(OK, "no error")                                                                              \
    X(E_SHAPE, "shapes do not fit")                                                                \
    X(E_DTYPE, "dtype not accepted")                                                               \
    X(E_DEVICE, "wrong or missing device")                                                         \
    X(E_VALUE, "argument out of range")                                                            \
    X(E_STATE, "call not allowed in this state")                                                   \
    X(E_MEMORY, "out of memory")                                                                   \
    X(E_CUDA, "CUDA error")                                                                        \
    X(E_IO, "file error")                                                                          \
    X(E_NOKERNEL, "op has no kernel for this device")                                              \
    X(E_NOGRAD, "op has no gradient")                                                              \
    X(E_NONFINITE, "NaN or infinity")                                                              \
    X(E_BUG, "broken invariant inside the library")

typedef enum tp_code {
#define TP_CODE_ENUM(name, text) TP_##name,
    TP_CODES(TP_CODE_ENUM)
#undef TP_CODE_ENUM
} tp_code;

/* The name of a code, "TP_E_SHAPE", and its description, "shapes do not fit". Never NULL. */
TP_API const char *tp_code_name(tp_code code);
TP_API const char *tp_code_text(tp_code code);

/* The part of one process where several divide something evenly: part `rank` of `ranks`. Zero: all
 * of it. */
typedef struct tp_share {
    int rank, ranks;
} tp_share;

/* Element types. Integers serve as indices and masks only. f16 exists only in files and is
 * converted on load. */
typedef enum tp_dtype { TP_F32, TP_F64, TP_BF16, TP_I32, TP_I64, TP_U8, TP_NDTYPES } tp_dtype;

TP_API size_t tp_dtype_size(tp_dtype dt);      /* bytes of one element */
TP_API const char *tp_dtype_name(tp_dtype dt); /* "f32", "f64", "bf16", "i32", "i64", "u8" */
static inline bool tp_is_float(tp_dtype dt)
{
    return dt <= TP_BF16;
}

/* A row-major shape: dim[0] varies slowest. A size of 0 is legal everywhere; ndim 0 is a scalar. */
#define TP_MAX_DIMS 8
typedef struct tp_shape {
    int ndim;
    int64_t dim[TP_MAX_DIMS];
} tp_shape;

/* TP_SHAPE(16, 1024, 512) is a shape with three axes. TP_SCALAR has no axes and one element.
 * TP_DIMS(2, 3) initialises a shape in a static table, where C takes no TP_SHAPE; a scalar is { 0 }
 * there. */
#ifdef __cplusplus
inline constexpr tp_shape tp__shape_of(std::initializer_list<int64_t> sizes)
{
    tp_shape s = { 0, { 0 } };
    for (int64_t n : sizes) {
        if (s.ndim < TP_MAX_DIMS) s.dim[s.ndim] = n;
        s.ndim++; /* a shape with too many axes is refused where it is used */
    }
    return s;
}
#define TP_SHAPE(...) (tp__shape_of({ __VA_ARGS__ }))
#define TP_SCALAR     (tp_shape{ 0, { 0 } })
#define TP_DIMS(...)  TP_SHAPE(__VA_ARGS__)
#else
#define TP_SHAPE(...)                                                                              \
    ((tp_shape){ (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), { __VA_ARGS__ } })
#define TP_SCALAR ((tp_shape){ 0, { 0 } })
/* clang-format off */
#define TP_DIMS(...)                                                                               \
    { (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), { __VA_ARGS__ } }
/* clang-format on */
#endif

/* Given NULL for what they build on, constructors return a failed object or, if they read data,
 * NULL; NAME_why has the reason in both cases. Otherwise they never return NULL. Given a NULL
 * object, a function does nothing and returns false, 0, NULL or TP_NONE; NAME_ok is false. A NULL
 * module fails the parameters in NAME_init and the tape in NAME_forward.
 *
 * Every object keeps its first error: NAME_ok is true until then, NAME_why returns the full text. A
 * call that refuses a file changes nothing, returns false (TP_CHECKED) and leaves the object
 * usable. NAME_free and NAME_close release the object and accept failed ones and NULL. */
typedef struct tp_device tp_device; /* memory, stream, BLAS, threads: one per CPU or GPU */
typedef struct tp_params tp_params; /* named parameters and buffers: one per model */
typedef struct tp_tape tp_tape;     /* results of ops, recorded graph, mode, error */
typedef struct tp_optim tp_optim;   /* moments and update rule over a tp_params */

/* A handle to a tensor: pass and copy it by value, never free it. The memory belongs to a tape or a
 * tp_params. Using a released tensor is an error, not a crash, even after its tape or parameter set
 * has been freed, while the device is open. */
typedef struct tp_tensor {
    struct tp_node *node;
    uint64_t gen;
} tp_tensor;

#ifdef __cplusplus
#define TP_NONE (tp_tensor{ nullptr, 0 })
#else
#define TP_NONE ((tp_tensor){ NULL, 0 }) /* an optional input that is absent */
#endif
static inline bool tp_given(tp_tensor x)
{
    return x.node != NULL;
}

/* Expands to two arguments, the number of tensors and an array of them. Each argument is evaluated
 * once. */
#ifdef __cplusplus
extern "C++" {
template <class... X> struct tp__number {
    static constexpr int of = int(sizeof...(X));
};
template <class... X> tp__number<X...> tp__number_of(const X &...);
}
#define TP_TENSORS(...)                                                                            \
    decltype(tp__number_of(__VA_ARGS__))::of,                                                      \
        std::initializer_list<tp_tensor>{ __VA_ARGS__ }.begin()
#else
#define TP_TENSORS(...)                                                                            \
    (int)(sizeof((tp_tensor[]){ __VA_ARGS__ }) / sizeof(tp_tensor)), (const tp_tensor[])           \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#endif

#ifdef __cplusplus
}
#endif
#endif
