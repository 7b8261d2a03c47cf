/* op_cases.h - the cases of bench_ops: ops, shapes, and the FLOPs and bytes that the result needs in
 * f32. */
#ifndef OP_CASES_H
#define OP_CASES_H

#include <tapegrad/tapegrad.h>

enum { OP_MAX_IN = 9 };

typedef struct op_input {
    tp_shape shape;
    int64_t below; /* > 0: integers in [0, below) */
} op_input;

/* A case without a function is an update of its input by the optimiser that it names. */
typedef struct op_case {
    const char *op, *shape;
    tp_tensor (*apply)(tp_tape *T, const tp_tensor *x, const struct op_case *k);
    const char *call;    /* of op_named: tp_CALL; NULL: tp_OP         */
    const char *args;    /* of op_named: "axis=1 pad=1,1"             */
    unsigned absent;     /* of op_named: bit i: tensor i is TP_NONE   */
    double mflop, mbyte; /* forward, millions; 0: does not apply  */
    double mbyte_back;   /* 0: twice those of forward             */
    int axis;            /* of functions along an axis            */
    bool forward_only;   /* there is no gradient                  */
    int64_t tokens;      /* > 0: one of the growing contexts      */
    unsigned f32;        /* bit i: input i is always f32          */
    unsigned fixed;      /* bit i: input i has no gradient        */
    unsigned unit;       /* bit i: numbers in [0, 1), not [-1, 1) */
    op_input in[OP_MAX_IN];
} op_case;

/* A case without a name ends a table. */
extern const op_case op_cases_product[], op_cases_norm[], op_cases_loss[], op_cases_attention[],
    op_cases_image[], op_cases_recurrent[], op_cases_elementwise[], op_cases_reduce[],
    op_cases_shape[], op_cases_create[], op_cases_update[];

/* Lists of tables, which NULL ends. The first two cases of the first table, a product and a copy,
 * measure the machine. `smoke` has small versions of the cases for a GPU. */
extern const op_case *const op_tables_cpu[], *const op_tables_cuda[], *const op_tables_smoke[];

int op_inputs(const op_case *k);
int64_t op_numel(tp_shape s);

/* Allocates and fills input i with pseudo-random int64_t below `below`, or floats. The caller frees
 * it. */
void *op_numbers(const op_case *k, int i, uint32_t *seed);

/* Calls the function that the case names with its inputs, in the order of the parameters, and its arguments
 * (tools/op_calls/op_calls.h). */
tp_tensor op_named(tp_tape *T, const tp_tensor *x, const op_case *k);

#endif
