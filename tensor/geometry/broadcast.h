/* broadcast.h - how a smaller operand b broadcasts into a larger operand a, for elementwise ops,
 * expand and sums.
 *
 * Axes are aligned at the right. Adjacent axes are merged if b has all of them in full or is
 * repeated along all of them. The last merged axis is the row: n consecutive elements of a that
 * meet either n consecutive elements of b or one. Equal shapes have one row; a trailing vector is
 * one row repeated; a scalar is one element repeated.
 *
 * A loop over elements [i, end) of a runs piece by piece; a piece is part of one row:
 *
 *     for (tp_piece s = tp__piece(&p, i, end); s.n > 0; tp__next(&p, &s, end))
 *         ... a[s.a + k] meets b[p.one ? s.b : s.b + k], k < s.n
 * ... */
#ifndef TP_BROADCAST_H
#define TP_BROADCAST_H

#include <tapegrad/op.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Axes in order. Item i of `count` is at offset tp__axes_at(x, i). */
typedef struct tp_axes {
    int n;
    int64_t count, dim[TP_MAX_DIMS], stride[TP_MAX_DIMS];
} tp_axes;

static inline int64_t tp__axes_at(const tp_axes *x, int64_t i)
{
    int64_t at = 0;
    for (int k = x->n - 1; k > 0; k--) {
        at += i % x->dim[k] * x->stride[k];
        i /= x->dim[k];
    }
    return x->n > 0 ? at + i * x->stride[0] : 0;
}

/* Items of evenly spaced offsets: at, at + step, ... */
typedef struct tp_even {
    int64_t at, items, step;
} tp_even;

/* The longest such run from item i of x, before item `end`. */
static inline tp_even tp__even(const tp_axes *x, int64_t i, int64_t end)
{
    const int64_t last = x->n > 0 ? x->n - 1 : 0, step = x->n > 0 ? x->stride[last] : 0;
    const int64_t left = last > 0 ? x->dim[last] - i % x->dim[last] : end - i;
    return (tp_even){ tp__axes_at(x, i), left < end - i ? left : end - i, step };
}

typedef struct tp_bcast {
    int64_t n;     /* elements of a in a row */
    bool one;      /* a row meets one element of b, not n */
    tp_axes rows;  /* rows of a: offset of the row of b each meets */
    tp_axes kept;  /* rows of b: offset of the first row of a that meets it */
    tp_axes again; /* offsets from that row of a to all rows that meet the same row */
} tp_bcast;

/* b must broadcast into a (tp__broadcasts). Only shapes are read. */
tp_bcast tp__bcast(const tp_view *a, const tp_view *b);

typedef struct tp_piece {
    int64_t a, b, n; /* elements [a, a+n) of a meet b or [b, b+n) */
    int64_t row;
} tp_piece;

#ifndef __cplusplus /* loops of CPU kernels */
static inline tp_piece tp__piece(const tp_bcast *p, int64_t i, int64_t end)
{
    if (i >= end) return (tp_piece){ .n = 0 };
    const int64_t row = i / p->n, at = i - row * p->n;
    const int64_t left = p->n - at, b = tp__axes_at(&p->rows, row);
    return (tp_piece){ i, p->one ? b : b + at, left < end - i ? left : end - i, row };
}

static inline void tp__next(const tp_bcast *p, tp_piece *s, int64_t end)
{
    s->a += s->n;
    s->b = tp__axes_at(&p->rows, ++s->row);
    s->n = p->n < end - s->a ? p->n : end - s->a;
}
#endif

/* How the sums onto the elements of b are split; this depends only on the shapes. The `spans`
 * stretches of a that meet a row of b are summed in `blocks` blocks, and the block sums are added
 * in order. */
typedef struct tp_fold_split {
    tp_bcast p;
    int64_t width;         /* elements of a row that one task sums */
    int64_t pieces;        /* pieces of a row; the last may be shorter than `width` */
    int64_t spans;         /* stretches of a that meet one row of b; if `one`, pieces of rows */
    int64_t blocks, block; /* blocks of `block` spans; block sums need scratch if blocks > 1 */
    int64_t nb;            /* elements of b */
} tp_fold_split;

tp_fold_split tp__fold(const tp_view *a, const tp_view *b);

/* Bytes of scratch for the sums of data of dtype dt. */
size_t tp__fold_work(const tp_view *a, const tp_view *b, tp_dtype dt);

#ifdef __cplusplus
}
#endif

#endif
