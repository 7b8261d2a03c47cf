/* host_array.h - tensors as doubles on the host. */
#ifndef HOST_ARRAY_H
#define HOST_ARRAY_H

#include <tapegrad/tapegrad.h>

/* A tensor of any dtype as doubles. */
typedef struct host_array {
    int64_t dim[TP_MAX_DIMS], numel;
    double *v; /* NULL: empty */
} host_array;

/* Replaces the content by x's; TP_NONE empties it. On error returns false and fails T. Initialise
 * to { 0 }, end with host_free. */
bool host_read(host_array *h, tp_tape *T, tp_tensor x);
void host_free(host_array *h);

/* The l2 norm of x [d]. */
double row_norm(const double *x, int64_t d);

#endif
