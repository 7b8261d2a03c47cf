/* op_cases.h - the cases of bench_ops: ops, shapes, and the FLOPs and bytes that the result needs in
 * f32. A file of cases that names functions (.one, .two) defines TP_NO_SITE first. */
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
    tp_tensor (*one)(tp_tape *T, tp_tensor x);              /* of op_one */
    tp_tensor (*two)(tp_tape *T, tp_tensor x, tp_tensor y); /* of op_two */
    tp_tensor (*loss)(tp_tape *T, tp_tensor x, tp_tensor target, tp_reduction r);
    tp_tensor (*along)(tp_tape *T, tp_tensor x, int axis);
    double mflop, mbyte; /* forward, millions; 0: does not apply  */
    double mbyte_back;   /* 0: twice those of forward             */
    tp_ls_attn_cfg cfg;  /* of attention and projection           */
    const void *map;     /* configuration of attention over maps  */
    bool causal;         /* attention                             */
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

/* Functions of cases in several tables. */
tp_tensor op_one(tp_tape *T, const tp_tensor *x, const op_case *k);
tp_tensor op_two(tp_tape *T, const tp_tensor *x, const op_case *k);
tp_tensor op_copy(tp_tape *T, const tp_tensor *x, const op_case *k);
tp_tensor op_linear(tp_tape *T, const tp_tensor *x, const op_case *k);
tp_tensor op_gelu_linear(tp_tape *T, const tp_tensor *x, const op_case *k);
tp_tensor op_layernorm(tp_tape *T, const tp_tensor *x, const op_case *k);
tp_tensor op_cross_entropy(tp_tape *T, const tp_tensor *x, const op_case *k);
tp_tensor op_chunk_project(tp_tape *T, const tp_tensor *x, const op_case *k);
tp_tensor op_attention(tp_tape *T, const tp_tensor *x, const op_case *k);
tp_tensor op_ls_attention(tp_tape *T, const tp_tensor *x, const op_case *k);
tp_tensor op_conv(tp_tape *T, const tp_tensor *x, const op_case *k);
tp_tensor op_depthwise(tp_tape *T, const tp_tensor *x, const op_case *k);
tp_tensor op_dropout_add(tp_tape *T, const tp_tensor *x, const op_case *k);
tp_tensor op_embedding(tp_tape *T, const tp_tensor *x, const op_case *k);
tp_tensor op_swap_middle(tp_tape *T, const tp_tensor *x, const op_case *k);

#endif
