/* rotary.h - the geometry of rotary positions: sizes, and the angle of a pair. */
#ifndef TP_ROTARY_H
#define TP_ROTARY_H

#include <tapegrad/op.h>
#include <tapegrad/ops.h>

#include "tensor/host_device.h"

/* What tp_rotary_cfg says of angles; factor 0: they stay. */
typedef struct tp_rotary_scaling {
    double factor, low, high, original;
} tp_rotary_scaling;

static inline tp_rotary_scaling tp__rotary_scaling(const tp_rotary_cfg *cfg)
{
    return (tp_rotary_scaling){ cfg->factor, cfg->low, cfg->high, (double)cfg->original };
}

/* The factor of the angle of a pair that turns that often per token. */
static TP_HD inline double tp__rotary_slower(tp_rotary_scaling s, double turns)
{
    if (s.factor == 0) return 1;
    if (s.original == 0) return 1 / s.factor;
    double kept = (turns * s.original - s.low) / (s.high - s.low);
    kept = kept < 0 ? 0 : kept > 1 ? 1 : kept;
    return kept + (1 - kept) / s.factor;
}

typedef struct tp_rotary_plan {
    int64_t batch, queries, heads, dim; /* B, N, H, D */
    int64_t pairs;                      /* of a head; its first 2 * pairs elements are rotated */
    int64_t tables;                     /* rows of positions: N, or B * N if per sequence */
    double base;
} tp_rotary_plan;

/* x: x [B,N,H*D], positions */
static inline tp_rotary_plan tp__rotary_plan(const tp_view *x, const tp_rotary_cfg *cfg)
{
    const int64_t dim = x[0].dim[2] / cfg->heads, size = cfg->size > 0 ? cfg->size : dim;
    const int64_t tokens = x[0].dim[0] * x[0].dim[1];
    return (tp_rotary_plan){
        .batch = x[0].dim[0],
        .queries = x[0].dim[1],
        .heads = cfg->heads,
        .dim = dim,
        .pairs = size / 2,
        .tables = !tp_absent(&x[1]) && x[1].ndim == 2 ? tokens : x[0].dim[1],
        .base = cfg->base > 0 ? cfg->base : 10000.0,
    };
}

#endif
