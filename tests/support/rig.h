/* rig.h - a model on the device of the suite, with what its tests do to it: open, give every
 * parameter a value, run backward, collect gradients. */
#ifndef SUPPORT_RIG_H
#define SUPPORT_RIG_H

#include <tapegrad/tapegrad.h>

typedef struct rig {
    tp_device *D;
    tp_params *P;
    tp_tape *T;
    void *m; /* the module, initially zero bytes */
} rig;

/* Opens everything for a module of that size, whose parameters the caller declares in P. */
rig rig_open(size_t module, tp_dtype dt, uint64_t seed);
void rig_close(rig *r);

/* Sets all parameters to random values, scales of norms around 1, since some are initialised to
 * zero. Expects that the module was declared. */
void rig_scatter(rig *r);

/* Runs backward from the sum of z, weighted by random numbers that begin with number `first`, and
 * copies z to out. */
void rig_backward(rig *r, tp_tensor z, int64_t first, double *out);

/* Copies all gradients, one after another, to g, which has room for `most`; returns their number.
 * Parameters without one have zeros; second names of a parameter are left out. */
int64_t rig_gradients(rig *r, double *g, int64_t most);

#endif
