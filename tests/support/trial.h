/* trial.h - one run of a function of tensors on the device of the suite: its result y and
 * the gradients of sum(dy y). */
#ifndef SUPPORT_TRIAL_H
#define SUPPORT_TRIAL_H

#include <tapegrad/tapegrad.h>

#define TRIAL_INPUTS 7

/* Initial values of shapes with four axes and with one, for tables of cases. */
/* clang-format off */
#define TRIAL_MAP(...) { 4, { __VA_ARGS__ } }
#define TRIAL_VECTOR(n) { 1, { n } }
/* clang-format on */

typedef tp_tensor (*trial_fn)(tp_tape *T, const tp_tensor *x, const void *env);

typedef struct trial {
    trial_fn f;
    const void *env;
    tp_shape in[TRIAL_INPUTS];     /* ndim 0: absent (TP_NONE)             */
    const double *x[TRIAL_INPUTS]; /* NULL: random in [-1,1), exact in f32 */
    unsigned constant;             /* bit i: input i needs no gradient     */
    tp_dtype dtype, compute;       /* dtypes of the inputs and the tape    */
    bool eval;                     /* evaluation instead of training mode  */
    int threads;                   /* 0: two                               */
    tp_isa isa;                    /* TP_ISA_AUTO: the best available; TP_ISA_AMX: amx.h */
} trial;

typedef struct trial_result {
    tp_shape shape; /* of y */
    int64_t ny;
    double *y, *dy;                             /* dy is random in [-1,1)       */
    double *x[TRIAL_INPUTS], *dx[TRIAL_INPUTS]; /* NULL: absent or not needed   */
    char why[2048];                             /* the tape's error, "" if none */
} trial_result;

/* True if this combination can run. A GPU has no f64 and ignores the host's instruction sets: it
 * runs as the baseline. */
bool trial_can(tp_dtype dt, tp_isa isa);

/* Runs t. The caller frees the result, even of a failed run. */
trial_result trial_run(const trial *t);
void trial_free(trial_result *r);

int64_t trial_count(const tp_shape *s); /* elements */

/* Adds the result to y and input gradients to dx, computed by plain loops over r->x and r->dy. */
typedef void (*trial_naive)(const void *env, const trial_result *r, double *y, double **dx);

/* Runs t and compares it with naive(t->env, ...). */
void trial_compare(const trial *t, trial_naive naive, const char *name, double tol);

/* True if y and all gradients have the same bits with 1, 2, 3 and 5 threads; on CUDA, in several
 * runs; under the emulation, in each order of threads. */
bool trial_same_on_threads(const trial *t);

/* True if the run fails and its error begins with this text. */
bool trial_fails(const trial *t, const char *text);

#endif
