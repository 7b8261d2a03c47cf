/* support_weigh.h - gradients on demand: a loss with a given gradient for each tensor.
 *
 *     loss = sum_i sum(pi * gi)       d/dpi = gi */
#ifndef TP_SUPPORT_WEIGH_H
#define TP_SUPPORT_WEIGH_H

#include <tapegrad/tapegrad.h>

/* Runs a backward after which the gradients of p[i] have grown by g[i] (numel values in double). */
void give_grads(tp_tape *T, int n, const tp_tensor *p, double *const *g);

#endif
