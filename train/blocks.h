/* blocks.h - state in the layout of a parameter set's blocks (moments, averages), and kernels over
 * the stretches of some of its parameters. */
#ifndef TP_BLOCKS_H
#define TP_BLOCKS_H

#include "autograd/graph.h"
#include "autograd/ops/op_inner.h"
#include "nn/slots.h"
#include "tensor/geometry/segments.h"

/* Is the entry a parameter with a place in the blocks: no buffer, no second name? */
static inline bool tp__in_block(const tp_entry *e)
{
    return !e->alias_of && !e->node->buffer;
}

/* A cleared block, or NULL with *e set; `what` says whose. P is complete. */
tp_buf *tp__block_new(const tp_params *P, const char *what, tp_err *e);

/* The whole block as kernels get it: elements of P's dtype. b may be NULL: no data. */
tp_view tp__block_view(const tp_params *P, const tp_buf *b);

/* The place of a parameter in a block. */
tp_view tp__block_part(const tp_buf *b, const tp_entry *e);

/* Appends the stretch of a parameter and returns its segment to be filled, or NULL if it is empty.
 */
tp_segment *tp__segments_add(tp_segments *s, const tp_params *P, const tp_entry *e);

/* A kernel over blocks, and what messages and profiles call it. */
typedef struct tp_block_kernel {
    const char *name;
    tp_kernel kernel[TP_NBACKENDS];
} tp_block_kernel;

/* Runs a kernel over blocks: x and y as segments.h describes. False with *e set if there is none
 * for P's device. */
bool tp__blocks_run(const tp_params *P, const tp_block_kernel *op, const void *attr, int nx,
                    const tp_view *x, int ny, tp_view *y, void *work, tp_err *e);

/* Adds a slot for the part of each parameter in b: `prefix` + its name. */
void tp__block_slots(tp_slots *S, const tp_params *P, const char *prefix, const tp_buf *b);

/* The error of a device that has failed becomes e's: it is why memory or a result is missing. */
void tp__device_error(const tp_device *D, tp_err *e);

#endif
