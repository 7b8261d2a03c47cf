/* host.c - what detectors move between the tape and the host: predictions, targets, rows. */
#include <stdlib.h>

#include "inner.h"

void *tp__detection_alloc(tp_tape *T, int64_t n, size_t size)
{
    void *p = n < 0 ? NULL : calloc((size_t)n + 1, size);
    if (!p) tp_raise(T, TP_E_MEMORY, "detection: no memory for %lld elements", (long long)n);
    return p;
}

float *tp__detection_read(tp_tape *T, tp_tensor x)
{
    float *host = tp_ok(T) ? tp__detection_alloc(T, tp_numel(x), sizeof *host) : NULL;
    if (host && tp_read(T, tp_cast(T, x, TP_F32), host, (size_t)tp_numel(x) * sizeof *host))
        return host;
    free(host);
    return NULL;
}

tp_tensor tp__detection_precise(tp_tape *T, tp_tensor x)
{
    return tp_dtype_of(x) == TP_BF16 ? tp_cast(T, x, TP_F32) : x;
}

tp_tensor tp__detection_constant(tp_tape *T, tp_tensor like, tp_shape s, const double *x)
{
    int64_t n = 1;
    for (int i = 0; i < s.ndim; i++) n *= s.dim[i];
    if (tp_dtype_of(like) == TP_F64) return tp_from(T, TP_F64, s, x);
    float *single = tp__detection_alloc(T, n, sizeof *single);
    for (int64_t i = 0; single && i < n; i++) single[i] = (float)x[i];
    const tp_tensor y = single ? tp_from(T, TP_F32, s, single) : TP_NONE;
    free(single);
    return y;
}

tp_tensor tp__detection_rows(tp_tape *T, tp_tensor x, int64_t columns, const int64_t *index,
                             int64_t n)
{
    x = tp_reshape(T, x, TP_SHAPE(-1, columns));
    return tp_index_select(T, x, 0, tp_from(T, TP_I64, TP_SHAPE(n), index));
}
