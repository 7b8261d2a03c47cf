/* gpu_steps.h - steps of one op on a GPU, for bench_ops. Times are those of the op's kernels by the
 * GPU's clock. */
#ifndef GPU_STEPS_H
#define GPU_STEPS_H

#include "case_inputs.h"

/* Work that keeps the GPU busy for longer than the host needs to launch an op, so that measured times
 * do not include waiting for the host. */
typedef struct head_start {
    tp_params *P;
    tp_tensor x;
    uint64_t bytes;
} head_start;

/* A head start of n elements. Its bytes are the device's live memory at that time. */
head_start head_start_new(tp_device *D, int64_t n);
void head_start_free(head_start *h);

/* Seconds of one forward and one backward pass; an update has no backward. */
void gpu_step(tp_tape *T, const op_case *k, case_inputs *in, const head_start *h, tp_dtype dt,
              double *forward, double *backward);

#endif
