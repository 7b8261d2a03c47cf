/* meet.h - how up to three operands broadcast into a common shape y, for elementwise ops.
 *
 * Axes are aligned at the right; an operand with a missing axis, or size 1 along it, is repeated.
 * Adjacent axes are merged if the same operands are repeated along them. The last merged axis is
 * the row: n consecutive elements of y that pair, in each operand, with n consecutive elements or
 * one.
 *
 * A loop over elements [i, end) of y runs row by row, dividing only at the first:
 *
 *     for (tp_run r = tp__run_from(&m, i, end); r.n > 0; tp__run_next(&m, &r, end))
 *         ... y[r.y + j] meets x[r.x[k] + (m.one[k] ? 0 : j)], j < r.n */
#ifndef TP_MEET_H
#define TP_MEET_H

#include <tapegrad/op.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TP_MEETING = 3 }; /* most operands */

typedef struct tp_meet {
    int operands, axes; /* axes outside the row, the slowest first */
    int64_t n;          /* elements of y in a row */
    bool one[TP_MEETING];
    int64_t dim[TP_MAX_DIMS], stride[TP_MEETING][TP_MAX_DIMS]; /* 0: repeated */
} tp_meet;

/* The operands x must broadcast into y. Only shapes are read. */
tp_meet tp__meet(const tp_view *y, int operands, const tp_view *const *x);

/* Stores in y the operands' common shape. Returns -1, or the axis, counted from the end (1: the
 * last), on which they disagree, with the sizes in sizes. */
int tp__common_shape(tp_view *y, int operands, const tp_view *const *x, int64_t sizes[TP_MEETING]);

typedef struct tp_run {
    int64_t y, n, x[TP_MEETING]; /* elements [y, y+n), and the operands' first ones */
    int64_t row[TP_MEETING];     /* starts of the operands' rows */
    int64_t index[TP_MAX_DIMS];
} tp_run;

#ifndef __cplusplus /* loops of CPU kernels */
static inline tp_run tp__run_from(const tp_meet *m, int64_t i, int64_t end)
{
    tp_run r = { .y = i };
    if (i >= end) return r;
    int64_t row = i / m->n;
    const int64_t at = i - row * m->n;
    for (int a = m->axes - 1; a >= 0; a--) {
        r.index[a] = row % m->dim[a];
        row /= m->dim[a];
        for (int k = 0; k < m->operands; k++) r.row[k] += r.index[a] * m->stride[k][a];
    }
    for (int k = 0; k < m->operands; k++) r.x[k] = r.row[k] + (m->one[k] ? 0 : at);
    r.n = m->n - at < end - i ? m->n - at : end - i;
    return r;
}

/* Moves to the next row. */
static inline void tp__run_next(const tp_meet *m, tp_run *r, int64_t end)
{
    r->y += r->n;
    r->n = m->n < end - r->y ? m->n : end - r->y;
    if (r->n <= 0) return;
    for (int a = m->axes - 1; a >= 0; a--) {
        const bool over = ++r->index[a] == m->dim[a];
        for (int k = 0; k < m->operands; k++)
            r->row[k] += m->stride[k][a] * (over ? 1 - m->dim[a] : 1);
        if (!over) break;
        r->index[a] = 0;
    }
    for (int k = 0; k < m->operands; k++) r->x[k] = r->row[k];
}
#endif

#ifdef __cplusplus
}
#endif

#endif
