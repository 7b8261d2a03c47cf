/* op_cases.h - what bench_ops measures: ops, shapes, and what their results need. */
#ifndef OP_CASES_H
#define OP_CASES_H

#include <tapegrad/tapegrad.h>

enum { OP_MAX_IN = 9 };

typedef struct op_input {
    tp_shape shape;
    int64_t below; /* > 0: integers in [0, below) */
} op_input;

/* A case without function is an update by AdamW of its input. */
typedef struct op_case {
    const char *op, *shape;
    tp_tensor (*apply)(tp_tape *T, const tp_tensor *x, const struct op_case *k);
    double mflop, mbyte; /* forward, millions; 0: does not apply */
    double mbyte_back;   /* 0: twice those of forward            */
    tp_ls_attn_cfg cfg;  /* attention and projection             */
    const void *map;     /* the configuration of attention over maps */
    bool causal;         /* attention                            */
    int64_t tokens;      /* > 0: one of the growing contexts     */
    unsigned f32;        /* bit i: input i is f32 whatever --dtype is */
    op_input in[OP_MAX_IN];
} op_case;

/* The first two of each are a product and a copy: they tell what the machine can do. A case without
 * name ends the list. Those of `smoke` are cases of a GPU made small. */
extern const op_case op_cases_cpu[], op_cases_cuda[], op_cases_smoke[];

int op_inputs(const op_case *k);
int64_t op_numel(tp_shape s);

/* Host memory for input i, the caller's, from a linear congruence: int64_t below `below`, or
 * floats. */
void *op_numbers(const op_case *k, int i, uint32_t *seed);

#endif
