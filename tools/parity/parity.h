/* parity.h - running reference cases: a table of case kinds, and what their programs share.
 *
 * A case is a safetensors file: metadata that says what to run, parameters, inputs, and the outputs
 * and gradients that a reference implementation found. A kind's function builds the model that the
 * metadata describes, runs it in p->real on p->D, and hands every result to a par_check function.
 * Afterwards a tensor of the file that nobody asked for is a failure. */
#ifndef PARITY_H
#define PARITY_H

#include <stdio.h>

#include <tapegrad/tapegrad.h>

typedef struct parity {
    tp_file *F;
    tp_device *D;
    tp_dtype compute; /* of the tape: TP_F64, TP_F32 or TP_BF16             */
    tp_dtype real;    /* of parameters and tables: f32 for bf16             */
    FILE *log;        /* every comparison is printed there; NULL: silent    */
    bool *seen;       /* of each tensor of F                                */
    bool failed;
    double worst;         /* largest relative error of the tensors compared so */
    char worst_name[128]; /* and whose it is                                   */
    char why[1024];       /* the first failure                                 */
} parity;

/* One kind of case. */
typedef struct parity_kind {
    const char *kind; /* NULL ends a table */
    void (*run)(parity *p);
    bool large;   /* a model of full size: run it in f32 unless asked otherwise */
    bool no_bf16; /* no limits for bf16, or a loss whose terms cancel            */
} parity_kind;
extern const parity_kind parity_lm_kinds[], parity_lsla_kinds[], parity_cvt_kinds[],
    parity_vil_kinds[], parity_vil_train_kinds[];

/* Runs one file in one precision. 0: it agrees; 1: it does not, see p->why; -1: not run, because it
 * is large and `large` is not set, or is not for bf16. The text fields and worst of *p are results.
 */
int parity_run(parity *p, const char *path, tp_device *D, tp_dtype compute, bool large, FILE *log);

/* Notes a failure; the first one is kept. */
void par_fail(parity *p, const char *fmt, ...) TP_PRINTF(2, 3);
/* The same with the error of a tape, a parameter set or the file, if there is one. True: none. */
bool par_ok(parity *p, const tp_tape *T, const tp_params *P);

/* ---- metadata: absent keys have the given default ---- */
int64_t par_int(parity *p, const char *key, int64_t dflt);
double par_num(parity *p, const char *key, double dflt);
bool par_is(parity *p, const char *key, const char *word); /* key = word */
/* A list of numbers separated by commas; returns how many, at most max. */
int par_list(parity *p, const char *key, int max, double *x);
bool par_train(parity *p); /* mode is not eval */

/* ---- tensors of the file ---- */
bool par_has(parity *p, const char *name);
/* Tensors whose names begin so are not compared: the reference is known to be wrong there. */
void par_ignore(parity *p, const char *prefix);
/* Names with a number: "output.nll.3". The result lives until the next call but three. */
const char *par_name(const char *stem, int64_t i);
/* Contents, to be freed; NULL: failed. shape may be NULL. */
double *par_values(parity *p, const char *name, tp_shape *shape);
int64_t *par_integers(parity *p, const char *name, tp_shape *shape);
/* On a tape: floating tensors in p->compute, integers as they are. input: wants a gradient. */
tp_tensor par_tensor(parity *p, tp_tape *T, const char *name);
tp_tensor par_input(parity *p, tp_tape *T, const char *name);
/* A matrix in p->real, rounded on the host: not every device knows f64. */
tp_tensor par_matrix(parity *p, tp_tape *T, int64_t rows, int64_t columns, const double *x);

tp_params *par_params_new(parity *p);
/* Every parameter and buffer of P from "param.*" and "buffer.*", and no other there; if the file
 * stores no parameters, by the fill rule on their names. */
void par_load(parity *p, tp_params *P);
/* Element i of the fill rule's uniform numbers in [0,1) for the name with that hash. */
uint64_t par_hash(const char *name);
double par_uniform(uint64_t hash, int64_t i);

/* ---- comparing ---- relative to the largest magnitude of the reference, within the limits of the
 * cases' README; tensors of zeros and those named in `zero_grads` absolutely. Gradients in bf16 are
 * compared by their norms, with a limit of our own: rounding takes values over the kink of ReLU,
 * which moves single elements far and norms by up to 1e-1, on the CPU as on a card. */
typedef enum par_class { PAR_OUTPUT, PAR_GRADIENT } par_class;
double par_limit(const parity *p, par_class c);

/* Does zero_grads name this parameter, or input ("input.X")? */
bool par_zero_in_theory(parity *p, const char *name);

void par_check(parity *p, const char *name, const double *got, int64_t n, double limit);
void par_check_abs(parity *p, const char *name, const double *got, int64_t n, double limit);
void par_check_one(parity *p, const char *name, double got, double limit);
void par_check_integers(parity *p, const char *name, const int64_t *got, int64_t n);
void par_check_zeros(parity *p, const char *name);
void par_check_tensor(parity *p, tp_tape *T, const char *name, tp_tensor x);
/* "grad.input.NAME", if the file has it, against the gradient of x. */
void par_check_input_grad(parity *p, tp_tape *T, const char *name, tp_tensor x);
/* All "grad.*" and "gradnorm.*" of the file that are parameters' of P. */
void par_check_grads(parity *p, tp_params *P);

/* sum(x * input.probe), the scalar that most cases differentiate; checks output.loss. */
tp_tensor par_probe(parity *p, tp_tape *T, tp_tensor x);

#endif
