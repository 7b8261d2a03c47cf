/* kernel.h - what CPU kernel files include: views, the device, the parallel loop, GEMM, dispatch.
 *
 * Each tensor/cpu/cpu_NAME.c is compiled once for each instruction set (TP_ISA is base, avx2 or
 * avx512) and includes itself once for each real type through cpu_each_real.h. Its layout:
 *
 *     #ifndef real
 *     #include "tensor/kernel.h"
 *     #define TP_FILE "tensor/cpu/cpu_NAME.c"
 *     #include "tensor/cpu/cpu_each_real.h"
 *     TP_CPU_KERNEL(NAME_fwd)
 *     TP_CPU_KERNEL(NAME_bwd)
 *     #else
 *     static tp_code R(NAME_fwd)(const tp_call *c) { ... real ... }
 *     static tp_code R(NAME_bwd)(const tp_call *c) { ... }
 *     #endif
 *
 * The base object also holds the symbol tp_cpu_NAME_fwd that the op names; it chooses by the
 * device's isa. Everything shared through headers here is static inline, so that no wide copy of a
 * helper ends up in baseline code. */
#ifndef TP_KERNEL_H
#define TP_KERNEL_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#include <tapegrad/op.h>

#include "tensor/backend.h"
#include "tensor/rng.h"
#include "tensor/segments.h"

#define TP_CAT2(a, b) a##_##b
#define TP_CAT(a, b)  TP_CAT2(a, b)

#ifndef TP_ISA
#define TP_ISA base
#endif

#define TP_KERNEL_FN(name) TP_CAT(tp_cpu_##name, TP_ISA)

#define TP_BY_REAL(name)                                                                           \
    tp_code TP_KERNEL_FN(name)(const tp_call *c);                                                  \
    tp_code TP_KERNEL_FN(name)(const tp_call *c)                                                   \
    {                                                                                              \
        return c->real == TP_F64 ? name##_f64(c) : name##_f32(c);                                  \
    }

#define TP_UNTYPED(name)                                                                           \
    tp_code TP_KERNEL_FN(name)(const tp_call *c);                                                  \
    tp_code TP_KERNEL_FN(name)(const tp_call *c)                                                   \
    {                                                                                              \
        return name(c);                                                                            \
    }

#if !defined(TP_ISA_DISPATCH) /* a wide copy: no public symbol */
#define TP_BY_ISA(name)
#elif defined(__x86_64__)
#define TP_BY_ISA(name)                                                                            \
    tp_code tp_cpu_##name##_avx2(const tp_call *c);                                                \
    tp_code tp_cpu_##name##_avx512(const tp_call *c);                                              \
    tp_code tp_cpu_##name(const tp_call *c);                                                       \
    tp_code tp_cpu_##name(const tp_call *c)                                                        \
    {                                                                                              \
        return c->dev->isa == TP_ISA_AVX512 ? tp_cpu_##name##_avx512(c)                            \
               : c->dev->isa == TP_ISA_AVX2 ? tp_cpu_##name##_avx2(c)                              \
                                            : tp_cpu_##name##_base(c);                             \
    }
#else
#define TP_BY_ISA(name)                                                                            \
    tp_code tp_cpu_##name(const tp_call *c);                                                       \
    tp_code tp_cpu_##name(const tp_call *c)                                                        \
    {                                                                                              \
        return tp_cpu_##name##_base(c);                                                            \
    }
#endif

#define TP_CPU_KERNEL(name) TP_BY_REAL(name) TP_BY_ISA(name)

/* For kernels that look at dtypes themselves or only move bytes: one function `name`, no template.
 */
#define TP_CPU_KERNEL_UNTYPED(name) TP_UNTYPED(name) TP_BY_ISA(name)

/* The parallel loop with the call itself as context. */
typedef void (*tp_call_body)(const tp_call *c, int64_t begin, int64_t end, int thread);
typedef struct tp_call_loop {
    const tp_call *c;
    tp_call_body body;
} tp_call_loop;

static inline void tp__call_loop(const void *ctx, int64_t begin, int64_t end, int thread)
{
    const tp_call_loop *l = ctx;
    l->body(l->c, begin, end, thread);
}

static inline void tp__for(const tp_call *c, int64_t n, int64_t grain, tp_call_body body)
{
    const tp_call_loop l = { c, body };
    tp__parallel(c->dev, n, grain, tp__call_loop, &l);
}

/* C = alpha op(A) op(B) + beta C, row-major, op(A) m x k, op(B) k x n, on the calling thread. f32
 * or f64 by `real`. Any size may be 0. */
void tp__gemm(tp_dtype real, bool ta, bool tb, int64_t m, int64_t n, int64_t k, double alpha,
              const void *a, int64_t lda, const void *b, int64_t ldb, double beta, void *c,
              int64_t ldc);

/* Told of each finished tile of C, rows [i, i+m) and columns [j, j+n), on the thread that made it
 * and while it is in cache. */
typedef void (*tp_tile_done)(const void *ctx, int64_t i, int64_t j, int64_t m, int64_t n);

/* C = or += op(A) op(B), `batch` times. step_x: elements from one product's X to the next one's; 0
 * means all share it, and a shared C gets the sum of the products, added in order. */
typedef struct tp_gemm {
    tp_dtype dtype; /* TP_F32 or TP_F64 */
    int64_t m, n, k;
    const void *a, *b;
    void *c;
    bool ta, tb, add;
    int64_t lda, ldb, ldc;
    int64_t batch, step_a, step_b, step_c;
    void *work;        /* of tp__gemm_scratch(dtype, max(n, k) or more) bytes for each thread */
    tp_tile_done done; /* or NULL; for one product or a sum */
    const void *ctx;
} tp_gemm;

/* Splits the work over D's threads; their number does not change bits. */
void tp__gemm_parallel(const tp_device *D, const tp_gemm *g);

#endif
