/* meet.c - the common shape of operands, and their merged axes. */
#include "tensor/geometry/meet.h"

/* The size of x along the axis `last`, counted from the end (1: the last). */
static int64_t size_at(const tp_view *x, int last)
{
    return last <= x->ndim ? x->dim[x->ndim - last] : 1;
}

int tp__common_shape(tp_view *y, int operands, const tp_view *const *x, int64_t sizes[TP_MEETING])
{
    y->ndim = 0;
    for (int k = 0; k < operands; k++)
        if (x[k]->ndim > y->ndim) y->ndim = x[k]->ndim;
    for (int last = 1; last <= y->ndim; last++) {
        int64_t n = 1;
        bool agree = true;
        for (int k = 0; k < operands; k++) {
            sizes[k] = size_at(x[k], last);
            if (sizes[k] == 1) continue;
            agree = agree && (n == 1 || n == sizes[k]);
            n = sizes[k];
        }
        if (!agree) return last;
        y->dim[y->ndim - last] = n;
    }
    return -1;
}

tp_meet tp__meet(const tp_view *y, int operands, const tp_view *const *x)
{
    int64_t dim[TP_MAX_DIMS]; /* merged axes, last first */
    unsigned again[TP_MAX_DIMS];
    int n = 0;
    for (int last = 1; last <= y->ndim; last++) {
        const int64_t size = y->dim[y->ndim - last];
        unsigned repeated = 0;
        if (size == 1) continue;
        for (int k = 0; k < operands; k++)
            if (size_at(x[k], last) != size) repeated |= 1u << k;
        if (n == 0 || again[n - 1] != repeated) {
            dim[n] = 1;
            again[n++] = repeated;
        }
        dim[n - 1] *= size;
    }
    tp_meet m = { .operands = operands, .axes = n ? n - 1 : 0, .n = n ? dim[0] : 1 };
    for (int k = 0; k < operands; k++) {
        m.one[k] = n && again[0] >> k & 1u;
        int64_t at = m.one[k] ? 1 : m.n;
        for (int i = 1; i < n; i++) {
            const bool repeated = again[i] >> k & 1u;
            m.dim[m.axes - i] = dim[i];
            m.stride[k][m.axes - i] = repeated ? 0 : at;
            if (!repeated) at *= dim[i];
        }
    }
    return m;
}
