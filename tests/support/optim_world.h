/* optim_world.h - a set of parameters that optimisers update: several blocks, exactly one, one
 * element, none; stacks of matrices. */
#ifndef TP_SUPPORT_OPTIM_WORLD_H
#define TP_SUPPORT_OPTIM_WORLD_H

#include "support/optim.h"

enum { OPTIM_PARAMS = 7, OPTIM_STEPS = 6 };

typedef struct optim_param {
    const char *name;
    tp_shape shape;
    int64_t numel;
} optim_param;

extern const optim_param optim_params[OPTIM_PARAMS];

typedef struct optim_world {
    tp_device *D;
    tp_params *P;
    tp_tape *T;
    tp_tensor p[OPTIM_PARAMS];
} optim_world;

optim_world optim_world_new(tp_dtype dt, int threads);
void optim_world_free(optim_world *w);

void optim_get(const optim_world *w, int i, double *host); /* the values of parameter i */

/* A gradient with 8 significant bits: the same in float and double. */
void optim_gradient(int step, int i, double *g);

/* Whether a step updates i: "one" is frozen in step 2; "late" has gradients from step 3. */
bool optim_reached(int step, int i);

/* Runs a step. Step 4 averages two backward passes: scale 1/2. */
void optim_run_step(const optim_world *w, tp_optim *O, int step, double lr);

#endif
