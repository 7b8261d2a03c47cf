/* product.h - products on tiles by the kernels of gemm.c. They pack only B and read A in place;
 * OpenBLAS packs both, which costs a quarter of its time on attention tiles. */
#ifndef TP_PRODUCT_H
#define TP_PRODUCT_H

#include "cpu/kit/gemm.h"
#include "cpu/kit/real.h"
#include "tensor/kernel.h"

#ifndef TP_BASELINE
void TP_KERNEL_FN(gemm_tile)(const tp_gemm_tile *t);
#define OWN_PRODUCT true
#else
#define OWN_PRODUCT false
#endif

static inline void multiply(const tp_gemm_tile *t)
{
#ifdef TP_BASELINE
    tp__gemm(REAL, t->ta, t->tb, t->m, t->n, t->k, 1.0, t->a, t->lda, t->b, t->ldb, t->add, t->c,
             t->ldc);
#else
    TP_KERNEL_FN(gemm_tile)(t);
#endif
}

#endif
