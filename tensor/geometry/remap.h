/* remap.h - flips and multi-axis pads, which move elements of x to other places.
 *
 * Along each axis, an element of y lies in one of three stretches, which run through x forwards,
 * backwards or over one element, or in a gap, where y is constant. The middle stretch covers all of
 * x:
 *
 *     flip          y = x reversed
 *     reflect       x[b] .. x[1]    x    x[n-2] .. x[n-1-a]
 *     replicate     x[0] .. x[0]    x    x[n-1] .. x[n-1]
 *     circular      x[n-b] ..       x    x[0] .. x[a-1]
 *
 * Backward is a gather: an element of x meets up to three stretches along each axis, always in one
 * order. */
#ifndef TP_REMAP_H
#define TP_REMAP_H

#include <tapegrad/op.h>
#include <tapegrad/ops.h>

#include "tensor/host_device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tp_stretch { /* y[y + k] = x[x + k step] for k in [0, n) */
    int64_t y, x, n;
    int step; /* 1, -1, 0 */
} tp_stretch;

enum { TP_BEFORE, TP_MIDDLE, TP_AFTER, TP_STRETCHES };

typedef struct tp_remap_axis {
    int64_t nx, ny, x_stride, y_stride; /* sizes; strides in elements */
    tp_stretch part[TP_STRETCHES];      /* in y's order */
} tp_remap_axis;

/* Mergeable axes are merged; at least one remains. Each index of the last one holds `inner`
 * consecutive elements. */
typedef struct tp_remap {
    int n;
    int64_t inner;
    tp_remap_axis axis[TP_MAX_DIMS];
} tp_remap;

/* The axes must fit x, as tp_flip and tp_pad_nd check. Only x's shape is read. */
tp_remap tp__remap_flip(const tp_view *x, int axes);
tp_remap tp__remap_pad(const tp_view *x, const tp_pad_cfg *cfg);

/* The source of index i of y. */
typedef struct tp_remap_source {
    int64_t x;    /* index of x; -1: a gap */
    int64_t left; /* indices from i on in the same stretch or gap, at least 1 */
    int step;
} tp_remap_source;

static inline TP_HD tp_remap_source tp__remap_source(const tp_remap_axis *a, int64_t i)
{
    int64_t next = a->ny;
    tp_remap_source s;
    for (int p = TP_AFTER; p >= 0; p--) {
        const tp_stretch *const t = &a->part[p];
        if (t->n == 0) continue;
        if (i >= t->y && i < t->y + t->n) {
            s.x = t->x + (i - t->y) * t->step;
            s.left = t->y + t->n - i;
            s.step = t->step;
            return s;
        }
        if (i < t->y) next = t->y;
    }
    s.x = -1;
    s.left = next - i;
    s.step = 0;
    return s;
}

/* How many indices of the stretch copy index j of x. */
static inline TP_HD int64_t tp__remap_count(const tp_stretch *t, int64_t j)
{
    const int64_t k = (j - t->x) * t->step;
    return t->step ? k >= 0 && k < t->n : j == t->x ? t->n : 0;
}

/* How many indices of y copy index j of x: at least 1. */
static inline TP_HD int64_t tp__remap_uses(const tp_remap_axis *a, int64_t j)
{
    return tp__remap_count(&a->part[TP_BEFORE], j) + tp__remap_count(&a->part[TP_MIDDLE], j) +
           tp__remap_count(&a->part[TP_AFTER], j);
}

/* The k-th of these. */
static inline TP_HD int64_t tp__remap_use(const tp_remap_axis *a, int64_t j, int64_t k)
{
    int p = 0;
    for (int64_t n; p < TP_AFTER && k >= (n = tp__remap_count(&a->part[p], j)); p++) k -= n;
    const tp_stretch *const t = &a->part[p];
    return t->y + (t->step ? (j - t->x) * t->step : k);
}

#ifdef __cplusplus
}
#endif

#endif
