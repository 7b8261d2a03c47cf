/* op_case.h - a case of bench_ops: an op, its inputs, and the FLOPs and bytes that its result needs
 * in f32. */
#ifndef OP_CASE_H
#define OP_CASE_H

#include <tapegrad/tapegrad.h>

enum { OP_MAX_IN = 9 };

/* What a function's parameter takes in place of a tensor. */
typedef struct op_input {
    tp_shape shape;
    int64_t below;          /* > 0: integers in [0, below); else floats */
    bool unit, fixed, wide; /* in [0, 1) instead of [-1, 1); without a gradient; always f32 */
    bool none;              /* TP_NONE */
} op_input;

typedef struct op_case op_case;
struct op_case {
    const char *op, *shape; /* the names of the case; without an op it ends a table */
    const char *args;       /* the other parameters: "axis=1 pad=1,1"               */
    const char *call;       /* tp_CALL is called; NULL: tp_OP                       */
    tp_tensor (*apply)(tp_tape *T, const tp_tensor *x, const op_case *k); /* instead of tp_CALL */
    bool update;         /* of the input by the optimiser OP      */
    bool forward_only;   /* there is no gradient                  */
    int64_t tokens;      /* > 0: one of the growing contexts      */
    double mflop, mbyte; /* forward, millions; 0: does not apply  */
    double mbyte_back;   /* 0: twice those of forward             */
    op_input in[OP_MAX_IN];
};

/* The first two cases, a product and a copy, measure the machine. `smoke` has small versions of the
 * cases for a GPU. */
extern const op_case op_cases_cpu[], op_cases_cuda[], op_cases_smoke[];

/* A line of JSON: the names, the call, and the inputs, null where there is none. */
void op_case_print(const op_case *k);

/* The number `name` of the case's arguments; 0 if it is missing. */
int op_case_int(const op_case *k, const char *name);

/* ---- steps ---- */

/* A case's inputs, which stay on the device from repetition to repetition, as a peer's do. */
typedef struct case_inputs {
    tp_params *P; /* the scalar; of an update, its operand */
    tp_optim *O;  /* NULL: not an update                   */
    tp_tensor scalar, at[OP_MAX_IN];
} case_inputs;

void case_inputs_place(tp_tape *T, const op_case *k, case_inputs *in);
void case_inputs_release(tp_tape *T, const op_case *k, case_inputs *in);

/* Seconds of one forward and one backward pass on the CPU; an update has no backward. */
void cpu_step(tp_tape *T, const op_case *k, case_inputs *in, double *forward, double *backward);

/* Work that keeps the GPU busy for longer than the host needs to launch an op, so that measured
 * times do not include waiting for the host. */
typedef struct head_start {
    tp_params *P;
    tp_tensor x;
    uint64_t bytes;
} head_start;

/* A head start of n elements. Its bytes are the device's live memory at that time. */
head_start head_start_new(tp_device *D, int64_t n);
void head_start_free(head_start *h);

/* The same times of the op's kernels by the GPU's clock; floats are dt where the case allows it. */
void gpu_step(tp_tape *T, const op_case *k, case_inputs *in, const head_start *h, tp_dtype dt,
              double *forward, double *backward);

#endif
