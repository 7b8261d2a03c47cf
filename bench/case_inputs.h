/* case_inputs.h - inputs of a case that stay on the device from repetition to repetition, as a peer's
 * do. */
#ifndef CASE_INPUTS_H
#define CASE_INPUTS_H

#include "op_cases.h"

typedef struct case_inputs {
    tp_params *P; /* the scalar; of an update, its operand */
    tp_optim *O;  /* NULL: not an update                   */
    tp_tensor scalar, at[OP_MAX_IN];
} case_inputs;

void case_inputs_place(tp_tape *T, const op_case *k, case_inputs *in);
void case_inputs_release(tp_tape *T, const op_case *k, case_inputs *in);

/* Begins a repetition: empties the tape and writes the operands, floats in dt where the case allows it, to
 * x[OP_MAX_IN]. Their gradients are those of activations, which nothing keeps; inputs that are always f32 and have
 * gradients are parameters. The operand of an update gets a gradient of ones. */
void case_inputs_begin(tp_tape *T, const op_case *k, case_inputs *in, tp_dtype dt, tp_tensor *x);

#endif
