/* op_cases.h - the cases of bench_ops: ops, shapes, FLOPs and bytes. */
#ifndef OP_CASES_H
#define OP_CASES_H

#include <tapegrad/tapegrad.h>

enum { OP_MAX_IN = 9 };

typedef struct op_input {
    tp_shape shape;
    int64_t below; /* > 0: integers in [0, below) */
} op_input;

/* A case without a function is an AdamW update of its input. */
typedef struct op_case {
    const char *op, *shape;
    tp_tensor (*apply)(tp_tape *T, const tp_tensor *x, const struct op_case *k);
    double mflop, mbyte; /* forward, millions; 0: does not apply */
    double mbyte_back;   /* 0: twice those of forward            */
    tp_ls_attn_cfg cfg;  /* of attention and projection          */
    const void *map;     /* configuration of attention over maps */
    bool causal;         /* attention                            */
    int64_t tokens;      /* > 0: one of the growing contexts     */
    unsigned f32;        /* bit i: input i is always f32         */
    op_input in[OP_MAX_IN];
} op_case;

/* The first two cases of each list, a product and a copy, measure the machine. A case without a name
 * ends the list. `smoke` has small versions of the cases for a GPU. */
extern const op_case op_cases_cpu[], op_cases_cuda[], op_cases_smoke[];

int op_inputs(const op_case *k);
int64_t op_numel(tp_shape s);

/* Allocates and fills input i with pseudo-random int64_t below `below`, or floats. The caller frees
 * it. */
void *op_numbers(const op_case *k, int i, uint32_t *seed);

#endif
