/* support_trial.h - one run of a function of tensors on the device of the suite: its result y and
 * the gradients of sum(dy y). */
#ifndef SUPPORT_TRIAL_H
#define SUPPORT_TRIAL_H

#include <tapegrad/tapegrad.h>

#define TRIAL_INPUTS 7

typedef tp_tensor (*trial_fn)(tp_tape *T, const tp_tensor *x, const void *env);

typedef struct trial {
    trial_fn f;
    const void *env;
    tp_shape in[TRIAL_INPUTS];     /* ndim 0: absent, TP_NONE              */
    const double *x[TRIAL_INPUTS]; /* NULL: random in [-1,1), exact in f32 */
    unsigned constant;             /* bit i: input i wants no gradient     */
    tp_dtype dtype, compute;       /* of the inputs and of the tape        */
    bool eval;                     /* else training mode                   */
    int threads;                   /* 0: two                               */
    tp_isa isa;                    /* TP_ISA_AUTO: the best                */
} trial;

typedef struct trial_result {
    tp_shape shape; /* of y */
    int64_t ny;
    double *y, *dy;                             /* dy: random in [-1,1)         */
    double *x[TRIAL_INPUTS], *dx[TRIAL_INPUTS]; /* NULL: absent, not wanted     */
    char why[2048];                             /* the tape's error, "" if none */
} trial_result;

/* Can this combination run? A GPU has no f64 and does not depend on the host's instruction sets, so
 * it runs in place of the baseline. */
bool trial_can(tp_dtype dt, tp_isa isa);

/* The result, to be freed, also of a failed run. */
trial_result trial_run(const trial *t);
void trial_free(trial_result *r);

int64_t trial_count(const tp_shape *s); /* elements */

/* Adds the result to y and the gradients of the inputs to dx, by plain loops over r->x and r->dy. */
typedef void (*trial_naive)(const void *env, const trial_result *r, double *y, double **dx);

/* Runs t and compares it with naive(t->env, ...). */
void trial_compare(const trial *t, trial_naive naive, const char *name, double tol);

/* Are y and all gradients of 1, 2, 3 and 5 threads equal, bit by bit? On CUDA: of several runs,
 * under the emulation in each of its orders of threads. */
bool trial_same_on_threads(const trial *t);

/* Does the run fail with a text that begins so? */
bool trial_fails(const trial *t, const char *text);

#endif
