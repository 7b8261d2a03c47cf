/* card_steps.h - steps of one op on a card, for bench_ops: inputs stay there, times are those of
 * the op's kernels by the card's clock. */
#ifndef CARD_STEPS_H
#define CARD_STEPS_H

#include "op_cases.h"

/* Floats are parameters of P, integers are carried from step to step. */
typedef struct card_inputs {
    tp_params *P;
    tp_optim *O; /* of a case that is an update, else NULL */
    tp_tensor at[OP_MAX_IN];
} card_inputs;

/* Work that takes the card longer than the host needs to launch an op, so that no time is measured
 * in which the card waits for the host. */
typedef struct head_start {
    tp_params *P;
    tp_tensor x;
    uint64_t bytes;
} head_start;

/* Of n elements; the bytes are all that the device holds then. */
head_start head_start_new(tp_device *D, int64_t n);
void head_start_free(head_start *h);

void card_place(tp_tape *T, const op_case *k, card_inputs *in);
void card_release(tp_tape *T, const op_case *k, card_inputs *in);

/* Seconds of one forward and one backward, which an update has none of. */
void card_step(tp_tape *T, const op_case *k, card_inputs *in, const head_start *h, tp_dtype dt,
               double *forward, double *backward);

#endif
