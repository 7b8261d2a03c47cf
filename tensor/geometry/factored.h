/* factored.h - how Adafactor's kernels divide a parameter of at least two axes, numel / (rows *
 * cols) matrices.
 *
 * A slab is some rows of one matrix, the last one up to twice as many. A row sum lies in one slab;
 * column sums are added slab by slab, in order. The blocks of a segment share its slabs, columns
 * and matrices evenly. All of this follows from the shape. */
#ifndef TP_FACTORED_H
#define TP_FACTORED_H

#include <math.h>

#include "tensor/geometry/segments.h"

#define TP_SLAB_LEAST 64 /* rows */

static TP_HD inline bool tp__is_factored(const tp_segment *s)
{
    return s->ndim > 1;
}

static TP_HD inline int64_t tp__matrices(const tp_segment *s)
{
    return s->numel / (s->rows * s->cols);
}

/* Rows of a slab: about a block of elements, but at least 64 rows. */
static TP_HD inline int64_t tp__slab_rows(const tp_segment *s)
{
    const int64_t rows = TP_BLOCK / s->cols;
    return rows > TP_SLAB_LEAST ? rows : TP_SLAB_LEAST;
}

/* Slabs of one matrix. */
static TP_HD inline int64_t tp__slabs(const tp_segment *s)
{
    const int64_t n = s->rows / tp__slab_rows(s);
    return n > 1 ? n : 1;
}

/* The first of n items assigned to block `part` of a segment; the next block's first is the end. */
static TP_HD inline int64_t tp__share(const tp_segment *s, int64_t n, int64_t part)
{
    const int64_t parts = (s->numel + TP_BLOCK - 1) / TP_BLOCK;
    return part * (n / parts) + part * (n % parts) / parts;
}

/* The scratch of a step, in doubles. Column sums, unused for one slab: at most numel / 64. */
typedef struct tp_factored_work {
    double *part;   /* [blocks][2]: sums of squares of the values and of the update */
    double *factor; /* [segments]: the step of each parameter */
    double *row;    /* like the row state: it, divided by its mean */
    double *col;    /* [slabs][cols] of each matrix: sums of squares */
} tp_factored_work;

/* rows: elements of the row state. */
static inline tp_factored_work tp__factored_work(void *work, const tp_segments *s, int64_t rows)
{
    double *part = (double *)work, *factor = part + 2 * s->blocks, *row = factor + s->n;
    return (tp_factored_work){ part, factor, row, row + rows };
}

/* Its size in doubles. numel: elements of the block of values. */
static inline int64_t tp__factored_size(const tp_segments *s, int64_t rows, int64_t numel)
{
    return 2 * s->blocks + s->n + rows + numel / TP_SLAB_LEAST + 1;
}

/* First element of the sums of one slab in tp_factored_work.col. */
static TP_HD inline int64_t tp__slab_sums(const tp_segment *s, int64_t matrix, int64_t slab)
{
    const int64_t first = (s->at + TP_SLAB_LEAST - 1) / TP_SLAB_LEAST;
    return first + (matrix * tp__slabs(s) + slab) * s->cols;
}

/* A parameter's step, from the sums of squares of its values and its update. */
static TP_HD inline double tp__adafactor_rate(const double *k, const tp_segment *s, double pp,
                                              double uu)
{
    const double size = sqrt(pp / (double)s->numel), eps2 = k[TP_ADAFACTOR_EPS2];
    const double excess = sqrt(uu / (double)s->numel) / k[TP_ADAFACTOR_D];
    return s->rate * (size > eps2 ? size : eps2) / (excess > 1.0 ? excess : 1.0);
}

#endif
