/* host_array.h - tensors of any dtype as doubles on the host, for the numbers of figures. */
#ifndef HOST_ARRAY_H
#define HOST_ARRAY_H

#include <tapegrad/tapegrad.h>

typedef struct host_array {
    int64_t dim[TP_MAX_DIMS], numel;
    double *v; /* NULL: nothing was read */
} host_array;

/* Replaces the content by that of x, which is empty for TP_NONE. Returns false and fails T on error.
 * Initialise with { 0 }, end with host_free. */
bool host_read(host_array *h, tp_tape *T, tp_tensor x);
void host_free(host_array *h);

#endif
