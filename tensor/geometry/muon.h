/* muon.h - the scratch memory of Muon's kernels, which orthogonalise one matrix at a time.
 *
 * Newton's and Schulz's iteration X = (a I + b A + c A^2) X with A = X X' [R,R], or
 * X = X (a I + b A + c A^2) with A = X' X [C,C], whichever A is smaller. The coefficients are those
 * of K. Jordan's Muon (2024), which PyTorch uses, too: singular values end between 0.7 and 1.2,
 * after fewer iterations than any that converge to 1. */
#ifndef TP_MUON_H
#define TP_MUON_H

#include "tensor/geometry/segments.h"

#define TP_MUON_A 3.4445
#define TP_MUON_B (-4.7750)
#define TP_MUON_C 2.0315

/* The least norm that a matrix is divided by. */
#define TP_MUON_LEAST 1e-7

TP_HD static inline int64_t tp__muon_side(const tp_segment *s)
{
    return s->rows < s->cols ? s->rows : s->cols;
}

/* Elements of the largest matrix and of the largest A, both rounded up so that each array begins at
 * a multiple of 256 bytes. */
typedef struct tp_muon_sizes {
    int64_t x, a;
} tp_muon_sizes;

static inline tp_muon_sizes tp__muon_sizes(const tp_segments *s)
{
    tp_muon_sizes n = { 0, 0 };
    for (int64_t i = 0; i < s->n; i++) {
        const tp_segment *g = &s->at[i];
        const int64_t side = tp__muon_side(g), a = (side * side + 63) / 64 * 64;
        const int64_t x = (g->numel + 63) / 64 * 64;
        if (!g->taken) continue;
        n.x = n.x > x ? n.x : x;
        n.a = n.a > a ? n.a : a;
    }
    return n;
}

/* Doubles before the arrays: a sum of squares for each block, one factor. */
static inline int64_t tp__muon_doubles(const tp_segments *s)
{
    return (s->blocks + 1 + 31) / 32 * 32;
}

/* Bytes of two X and two A, and what is before them. */
static inline size_t tp__muon_bytes(const tp_segments *s, size_t size)
{
    const tp_muon_sizes n = tp__muon_sizes(s);
    return (size_t)tp__muon_doubles(s) * sizeof(double) + (size_t)(2 * n.x + 2 * n.a) * size;
}

#endif
