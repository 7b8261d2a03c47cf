/* scan.h - how the kernels of cumulative sums and products split work.
 *
 * Relative to the axis a tensor is [outer][dim][inner]. A lane is a line along the axis; tiles of
 * lanes are computed separately and then joined.
 *
 *     number of tile t of lane (o, j) = (o * tiles + t) * inner + j */
#ifndef TP_SCAN_H
#define TP_SCAN_H

#include "tensor/geometry/shape_ops.h"
#include "tensor/host_device.h"
#include "tensor/shape.h"

typedef struct tp_scan {
    int64_t outer, dim, inner, tile, tiles; /* tile: steps of a tile; dim = 0: no tiles */
    bool back;                              /* from the end of the axis to its start */
} tp_scan;

/* A tile's first element and number of steps. */
typedef struct tp_scan_part {
    int64_t at, steps;
    bool last; /* of its lane */
} tp_scan_part;

static inline tp_scan tp__scan(const tp_call *c, int64_t tile)
{
    const tp_view *x = &c->x[0];
    tp_scan s = { 0, 0, 0, tile, 0, tp_is_backward(c) };
    tp__axis_split(x, tp__axis(x->ndim, ((const tp_axis_attr *)c->attr)->axis), &s.outer, &s.dim,
                   &s.inner);
    if (s.tile > s.dim) s.tile = s.dim;
    if (s.tile > 0) s.tiles = (s.dim + s.tile - 1) / s.tile;
    return s;
}

TP_HD static inline tp_scan_part tp__scan_part(const tp_scan *s, int64_t number)
{
    const int64_t row = number / s->inner, j = number - row * s->inner;
    const int64_t o = row / s->tiles, first = (row - o * s->tiles) * s->tile;
    const int64_t rest = s->dim - first;
    const tp_scan_part p = { (o * s->dim + (s->back ? rest - 1 : first)) * s->inner + j,
                             rest < s->tile ? rest : s->tile, rest <= s->tile };
    return p;
}

#endif
