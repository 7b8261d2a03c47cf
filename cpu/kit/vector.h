/* vector.h - vectors of `real` as compiler vector extensions, as long as the registers of the
 * instruction set: TP_VECTOR bytes.
 *
 * Sums that must stay in registers are arrays of constant size in fully unrolled loops; otherwise
 * they would go to memory. */
#ifndef TP_VECTOR_H
#define TP_VECTOR_H

#include "cpu/kit/real.h"

#if defined(__AVX512F__)
#define TP_VECTOR 64
#elif defined(__AVX__)
#define TP_VECTOR 32
#else
#define TP_VECTOR 16
#endif

#define LANES ((int64_t)(TP_VECTOR / sizeof(real))) /* numbers per vector */

typedef real vec __attribute__((vector_size(TP_VECTOR)));
typedef vec vec_any __attribute__((aligned(sizeof(real)), may_alias));

#ifdef __clang__
#define TP_UNROLL _Pragma("clang loop unroll(full)")
#else
#define TP_UNROLL _Pragma("GCC unroll 16")
#endif
#define TP_INLINE static inline __attribute__((always_inline))

/* A vector at any address of a real. */
TP_INLINE vec vec_load(const real *p)
{
    return *(const vec_any *)p;
}

TP_INLINE void vec_store(real *p, vec v)
{
    *(vec_any *)p = v;
}

/* Keeps gcc from folding the load of v into each multiplication, which would reload it every time.
 * With AVX2 those loads limit the speed to 0.65 of this. */
#if defined(__AVX__) && !defined(__AVX512F__)
#define TP_HOLD(v) __asm__("" : "+x"(v))
#else
#define TP_HOLD(v) (void)0
#endif

#endif
