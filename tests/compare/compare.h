/* compare.h - runs the calls of ops, modules and optimisers that a file describes, so that another
 * program can compare the results: tests/compare/compare_pytorch.py draws calls at random,
 * test_compare replays stored ones.
 *
 * The file is a safetensors file. Its metadata `calls` is the number of calls; `N` is a JSON object
 * with the name of call N's row ("op") and its options. Tensors of call N, all but the first
 * optional:
 *
 *     N.x0, N.x1, ..   inputs; a number that is left out is an absent input
 *     N.dy0, ..        gradients of the outputs; without any there is no backward
 *     N.p.NAME         values of the parameters and buffers of a module
 *
 * and its results:
 *
 *     N.y0, ..         outputs
 *     N.dx0, ..        gradients of floating inputs: zeros if nothing reaches them
 *     N.dp.NAME        gradients of parameters
 *
 * A call that fails has the metadata N.error in place of results. */
#ifndef COMPARE_H
#define COMPARE_H

#include <tapegrad/tapegrad.h>

enum { COMPARE_TENSORS = 16 };

typedef struct compare_row compare_row;
typedef struct compare_call {
    tp_device *D;
    tp_tape *T;
    tp_params *P; /* f64, empty: for the parameters of a module */
    int nx, ny;
    tp_tensor x[COMPARE_TENSORS],
        y[COMPARE_TENSORS]; /* a row sets ny and y unless it returns y[0] */
    tp_file *file;
    int number; /* of the call */
    const void *options;
} compare_call;

/* One kind of call. run returns y[0] and sets ny only if there are more outputs. NULL: calls
 * tp_FUNCTION with the inputs and options of its prototype (tools/op_calls/op_calls.h). */
struct compare_row {
    const char *op;
    tp_tensor (*run)(compare_call *c);
    const char *function;
};

/* Finds the row of a name, from rows_*.c or for functions of tapegrad/ops/; false if neither has
 * one. */
bool compare_row_of(const char *op, compare_row *row);
tp_tensor compare_by_name(compare_call *c, const char *function);

/* The options of a call; `or` if there is none of that name. compare_list and compare_numbers read
 * at most max numbers and return their count; for compare_numbers a number or flag is a list of
 * one, and a missing option has -1. */
double compare_number(const compare_call *c, const char *name, double or);
int64_t compare_int(const compare_call *c, const char *name, int64_t or);
bool compare_flag(const compare_call *c, const char *name);
const char *compare_text(const compare_call *c, const char *name, const char * or);
int compare_list(const compare_call *c, const char *name, int max, int64_t *out);
int compare_numbers(const compare_call *c, const char *name, int max, double *out);
/* The name of option i, skipping those that describe the call; NULL past the last. */
const char *compare_option(const compare_call *c, int i);
/* The options "axes" (default: all axes) and "keep". */
int compare_axes(const compare_call *c);
/* The option "reduction": "mean", "mean_all", "sum" or "each". */
tp_reduction compare_reduction(const compare_call *c);

/* Input i; TP_NONE if it is absent. */
tp_tensor compare_input(const compare_call *c, int i);

/* Sets all parameters and buffers declared in c->P from the file. */
void compare_load(compare_call *c);

/* Receives the results; `name` without the number of the call. */
typedef void (*compare_sink)(void *env, const compare_call *c, const char *name, tp_dtype dt,
                             tp_shape s, const void *data);

/* Runs call `number` and emits its results. Returns 0, or -1 with the reason in why. */
int compare_run(tp_device *D, tp_file *file, int number, compare_sink sink, void *env, char *why,
                size_t size);
int compare_calls(tp_file *file); /* the number of calls; -1 with file failed if it has none */

#endif
