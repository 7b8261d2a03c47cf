/* blocks.h - state laid out like a parameter set's values (averages), and kernels over the segments
 * of some of its parameters. */
#ifndef TP_BLOCKS_H
#define TP_BLOCKS_H

#include "autograd/ops/op_inner.h"
#include "autograd/params.h"
#include "tensor/file/slots.h"
#include "tensor/geometry/segments.h"

/* Does the entry have a place in the block of values? Buffers and aliases do not. */
static inline bool tp__in_block(const tp_entry *e)
{
    return !e->alias_of && !e->node->buffer;
}

/* Allocates zeroed memory on P's device, usually P->block_bytes; NULL with *e set. `what` names the
 * owner in the message. P must be complete. */
tp_buf *tp__block_new(const tp_params *P, size_t bytes, const char *what, tp_err *e);

/* The whole block as a flat view of P's dtype, for kernels. b may be NULL: the view has no data. */
tp_view tp__block_view(const tp_params *P, const tp_buf *b);

/* A parameter's part of a block. */
tp_view tp__block_part(const tp_buf *b, const tp_entry *e);

/* The number of blocks of so many elements of one segment. */
static inline int64_t tp__blocks_of(int64_t numel)
{
    return (numel + TP_BLOCK - 1) / TP_BLOCK;
}

/* Appends a segment for the elements [first, first + numel) of a parameter and returns it to be
 * filled; NULL if numel is 0. tp__segments_add_grad also sets its gradient. */
tp_segment *tp__segments_add(tp_segments *s, const tp_params *P, const tp_entry *e, int64_t first,
                             int64_t numel);
tp_segment *tp__segments_add_grad(tp_segments *s, const tp_params *P, const tp_entry *e,
                                  int64_t first, int64_t numel);

/* A kernel over blocks, and its name in messages and profiles. */
typedef struct tp_block_kernel {
    const char *name;
    tp_kernel kernel[TP_NBACKENDS];
    tp_work work[TP_NBACKENDS]; /* NULL: none, or the caller provides it */
} tp_block_kernel;

/* Runs a kernel over blocks; segments.h describes x and y. False with *e set if P's device has no
 * such kernel or no memory for its work. */
bool tp__blocks_run(const tp_params *P, const tp_block_kernel *op, const void *attr, int nx,
                    const tp_view *x, int ny, tp_view *y, void *work, tp_err *e);

/* Adds a slot, named `prefix` + its name, for each parameter's part of b. */
void tp__block_slots(tp_slots *S, const tp_params *P, const char *prefix, const tp_buf *b);

/* Copies a failed device's error to e: it explains missing memory or results. */
void tp__device_error(const tp_device *D, tp_err *e);

#endif
