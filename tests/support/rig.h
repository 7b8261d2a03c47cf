/* rig.h - a model on the suite's device: opens it, gives every parameter a value, runs backward,
 * collects gradients. */
#ifndef SUPPORT_RIG_H
#define SUPPORT_RIG_H

#include <tapegrad/tapegrad.h>

typedef struct rig {
    tp_device *D;
    tp_params *P;
    tp_tape *T;
    void *m; /* the module, initially zero bytes */
} rig;

/* Opens everything for a module of this size; the caller declares its parameters in P. */
rig rig_open(size_t module, tp_dtype dt, uint64_t seed);
void rig_close(rig *r);

/* Sets all parameters to random values, since some are initialised to zero; scales of norms lie
 * around 1. Requires a declared module. */
void rig_scatter(rig *r);

/* Runs backward from the sum of z, weighted by random numbers from number `first` on, and copies z
 * to out. */
void rig_backward(rig *r, tp_tensor z, int64_t first, double *out);

/* Copies all gradients in order to g, which holds `most`; returns their number. Missing gradients
 * are zeros; second names of a parameter are skipped. */
int64_t rig_gradients(rig *r, double *g, int64_t most);

#endif
