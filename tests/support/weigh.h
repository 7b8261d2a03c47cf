/* weigh.h - gradients on demand: a loss with a given gradient for each tensor.
 *
 *     loss = sum_i sum(pi * gi)       d/dpi = gi */
#ifndef TP_SUPPORT_WEIGH_H
#define TP_SUPPORT_WEIGH_H

#include <tapegrad/tapegrad.h>

/* Runs a backward that adds g[i] (numel doubles) to the gradient of each p[i]. */
void give_grads(tp_tape *T, int n, const tp_tensor *p, double *const *g);

#endif
