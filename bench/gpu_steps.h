/* gpu_steps.h - steps of one op on a GPU, for bench_ops: inputs stay there, times are those of
 * the op's kernels by the GPU's clock. */
#ifndef GPU_STEPS_H
#define GPU_STEPS_H

#include "op_cases.h"

/* Floats are parameters of P, integers are carried from step to step. */
typedef struct gpu_inputs {
    tp_params *P;
    tp_optim *O; /* of a case that is an update, else NULL */
    tp_tensor at[OP_MAX_IN];
} gpu_inputs;

/* Work that takes the GPU longer than the host needs to launch an op, so that no time is measured
 * in which the GPU waits for the host. */
typedef struct head_start {
    tp_params *P;
    tp_tensor x;
    uint64_t bytes;
} head_start;

/* Of n elements; the bytes are all that the device holds then. */
head_start head_start_new(tp_device *D, int64_t n);
void head_start_free(head_start *h);

void gpu_place(tp_tape *T, const op_case *k, gpu_inputs *in);
void gpu_release(tp_tape *T, const op_case *k, gpu_inputs *in);

/* Seconds of one forward and one backward, which an update has none of. */
void gpu_step(tp_tape *T, const op_case *k, gpu_inputs *in, const head_start *h, tp_dtype dt,
              double *forward, double *backward);

#endif
