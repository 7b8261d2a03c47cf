/* host_array.c - reads tensors to the host. */
#include "host_array.h"

#include <math.h>
#include <stdlib.h>
#include <tapegrad/op.h>

void host_free(host_array *h)
{
    free(h->v);
    *h = (host_array){ 0 };
}

bool host_read(host_array *h, tp_tape *T, tp_tensor x)
{
    host_free(h);
    if (!tp_given(x)) return true;
    const tp_shape s = tp_shape_of(x);
    const int64_t n = tp_numel(x);
    const size_t bytes = (size_t)n * tp_dtype_size(tp_dtype_of(x));
    tp_view raw = { .data = malloc(bytes ? bytes : 1), .dtype = tp_dtype_of(x), .numel = n };
    h->v = malloc((size_t)(n ? n : 1) * sizeof *h->v);
    h->numel = n;
    for (int i = 0; i < s.ndim; i++) h->dim[i] = s.dim[i];
    const bool room = raw.data && h->v, done = room && tp_read(T, x, raw.data, bytes);
    if (!room) tp_raise(T, TP_E_MEMORY, "out of host memory");
    for (int64_t i = 0; i < n && done; i++) h->v[i] = tp_ld(&raw, i);
    free(raw.data);
    return done;
}

double row_norm(const double *x, int64_t d)
{
    double sum = 0;
    for (int64_t i = 0; i < d; i++) sum += x[i] * x[i];
    return sqrt(sum);
}
