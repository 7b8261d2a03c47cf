/* kernel.h - for CPU kernel files: views, the device, the parallel loop, GEMM, dispatch.
 *
 * Each cpu/NAME.c is compiled once for each instruction set (TP_ISA is base, avx2 or avx512) and,
 * if it includes real.h, for each element type (TP_REAL is 32 or 64). Its layout:
 *
 *     #include "cpu/kit/real.h"
 *     #include "tensor/kernel.h"
 *
 *     static tp_code NAME_fwd(const tp_call *c) { ... real ... }
 *     static tp_code NAME_bwd(const tp_call *c) { ... }
 *
 *     TP_CPU_KERNEL(NAME_fwd)
 *     TP_CPU_KERNEL(NAME_bwd)
 *
 * The first object (base and 32; CMake's TAPEGRAD_ISA may name another set) also defines the symbol
 * tp_cpu_NAME_fwd that the op refers to; it selects by the device's isa and the call's type.
 * TP_CPU_WORK(NAME_work) does the same for the function that returns the bytes of c->work that the
 * kernels need. All code shared through headers here is static inline, so that no helper
 * compiled for AVX ends up in baseline code. */
#ifndef TP_KERNEL_H
#define TP_KERNEL_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#include <tapegrad/op.h>

#include "tensor/backend.h"
#include "tensor/geometry/block.h"
#include "tensor/rng.h"

#ifndef TP_ISA
#define TP_ISA base
#endif
#ifndef TP_REAL
#define TP_REAL 32
#endif

/* This object's function, e.g. tp_cpu_NAME_avx2_f32. */
#define TP_NAME_OF(name, isa, bits) tp_cpu_##name##_##isa##_f##bits
#define TP_NAME(name, isa, bits)    TP_NAME_OF(name, isa, bits)
#define TP_KERNEL_FN(name)          TP_NAME(name, TP_ISA, TP_REAL)

#define TP_EXPORT(result, name)                                                                    \
    result TP_KERNEL_FN(name)(const tp_call *c);                                                   \
    result TP_KERNEL_FN(name)(const tp_call *c)                                                    \
    {                                                                                              \
        return name(c);                                                                            \
    }

/* The objects of one instruction set. */
#define TP_TYPED(result, name, isa)                                                                \
    result tp_cpu_##name##_##isa##_f32(const tp_call *c);                                          \
    result tp_cpu_##name##_##isa##_f64(const tp_call *c);                                          \
    static inline result name##_##isa(const tp_call *c)                                            \
    {                                                                                              \
        return c->real == TP_F64 ? tp_cpu_##name##_##isa##_f64(c)                                  \
                                 : tp_cpu_##name##_##isa##_f32(c);                                 \
    }
#define TP_UNTYPED(result, name, isa)                                                              \
    result tp_cpu_##name##_##isa##_f32(const tp_call *c);                                          \
    static inline result name##_##isa(const tp_call *c)                                            \
    {                                                                                              \
        return tp_cpu_##name##_##isa##_f32(c);                                                     \
    }

#if !defined(TP_ISA_DISPATCH) /* not the first object: no public symbol */
#define TP_DISPATCH(result, name, of_isa)
#elif defined(__x86_64__)
#define TP_DISPATCH(result, name, of_isa)                                                          \
    of_isa(result, name, base) of_isa(result, name, avx2) of_isa(result, name, avx512)             \
        result tp_cpu_##name(const tp_call *c);                                                    \
    result tp_cpu_##name(const tp_call *c)                                                         \
    {                                                                                              \
        if (TP_HAS_ISA(TP_ISA_AVX512) && c->dev->isa == TP_ISA_AVX512) return name##_avx512(c);    \
        if (TP_HAS_ISA(TP_ISA_AVX2) && c->dev->isa == TP_ISA_AVX2) return name##_avx2(c);          \
        return TP_HAS_ISA(TP_ISA_BASE) ? name##_base(c) : (result)0;                               \
    }
#else
#define TP_DISPATCH(result, name, of_isa)                                                          \
    of_isa(result, name, base) result tp_cpu_##name(const tp_call *c);                             \
    result tp_cpu_##name(const tp_call *c)                                                         \
    {                                                                                              \
        return name##_base(c);                                                                     \
    }
#endif

#define TP_CPU_KERNEL(name) TP_EXPORT(tp_code, name) TP_DISPATCH(tp_code, name, TP_TYPED)
#define TP_CPU_WORK(name)   TP_EXPORT(size_t, name) TP_DISPATCH(size_t, name, TP_TYPED)

/* For files without real.h, which dispatch on dtypes themselves or only move bytes. */
#define TP_CPU_KERNEL_UNTYPED(name) TP_EXPORT(tp_code, name) TP_DISPATCH(tp_code, name, TP_UNTYPED)

/* Parallel loops with the call as context; tp__for_threads: for bodies with per-thread scratch. */
typedef void (*tp_call_body)(const tp_call *c, int64_t begin, int64_t end);
typedef void (*tp_call_thread_body)(const tp_call *c, int64_t begin, int64_t end, int thread);
typedef struct tp_call_loop {
    const tp_call *c;
    tp_call_body body;
    tp_call_thread_body thread_body;
} tp_call_loop;

static inline void tp__call_loop(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const tp_call_loop *l = ctx;
    if (l->body)
        l->body(l->c, begin, end);
    else
        l->thread_body(l->c, begin, end, thread);
}

static inline void tp__for(const tp_call *c, int64_t n, int64_t grain, tp_call_body body)
{
    const tp_call_loop l = { c, body, NULL };
    tp__parallel(c->dev, n, grain, tp__call_loop, &l);
}

static inline void tp__for_threads(const tp_call *c, int64_t n, int64_t grain,
                                   tp_call_thread_body body)
{
    const tp_call_loop l = { c, NULL, body };
    tp__parallel(c->dev, n, grain, tp__call_loop, &l);
}

/* C = alpha op(A) op(B) + beta C, row-major, op(A) m x k, op(B) k x n, on the calling thread. dtype
 * is f32 or f64. Any size may be 0. */
void tp__gemm(tp_dtype dtype, bool ta, bool tb, int64_t m, int64_t n, int64_t k, double alpha,
              const void *a, int64_t lda, const void *b, int64_t ldb, double beta, void *c,
              int64_t ldc);

/* Called for each finished tile of C, rows [i, i+m) and columns [j, j+n), by the thread that
 * computed it, while the tile is in cache. z: the tile, rows ldz apart, which may be changed: part
 * of C, or f32 sums that are then rounded into a bf16 C. */
typedef void (*tp_tile_done)(const void *ctx, void *z, int64_t ldz, int64_t i, int64_t j, int64_t m,
                             int64_t n);

/* C = or += op(A) op(B), `batch` times. step_x: elements between consecutive X; 0: all products
 * share X. A shared C gets the sum of the products, added in order. */
typedef struct tp_gemm {
    tp_dtype dtype;   /* of A and B, and of C unless it is TP_BF16, whose sums are f32 */
    tp_dtype c_dtype; /* of C if dtype is TP_BF16: TP_F32 or TP_BF16 */
    int64_t m, n, k;
    const void *a, *b;
    void *c;
    bool ta, tb, add;
    int64_t lda, ldb, ldc;
    int64_t batch, step_a, step_b, step_c;
    void *work;        /* tp__gemm_scratch(dtype, max(n, k) or more) bytes for each thread */
    tp_tile_done done; /* or NULL; only for a single product or a sum */
    const void *ctx;
} tp_gemm;

/* Bytes of g.work, for all threads, for op(a) op(b), where the rows of a form one matrix, and for
 * the products of its gradients. */
size_t tp__product_work(const tp_device *D, tp_dtype dtype, const tp_view *a, const tp_view *b);

/* Splits the work over D's threads; the result is bit-identical for any number of them. */
void tp__gemm_parallel(const tp_device *D, const tp_gemm *g);

#endif
