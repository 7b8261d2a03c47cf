/* values.c - makes, reads and compares values. */
#include "support/values.h"

#include <math.h>
#include <stdlib.h>
#include <tapegrad/op.h>

#include "tensor/rng.h"
#include "tensor/shape.h"

void values_random(double *x, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = 2.0 * (double)tp__uniform(tp__word(seed, 0, (uint64_t)i)) - 1.0;
}

static tp_tensor make(tp_tape *T, tp_dtype dt, tp_shape s, const double *x, bool input)
{
    tp_view v = tp__view(dt, &s, NULL);
    v.data = malloc(tp__view_bytes(&v) + 1);
    for (int64_t i = 0; i < v.numel; i++) tp_st(&v, i, x[i]);
    const tp_tensor t = input ? tp_input(T, dt, s, v.data) : tp_from(T, dt, s, v.data);
    free(v.data);
    return t;
}

tp_tensor values_constant(tp_tape *T, tp_dtype dt, tp_shape s, const double *x)
{
    return make(T, dt, s, x, false);
}

tp_tensor values_input(tp_tape *T, tp_dtype dt, tp_shape s, const double *x)
{
    return make(T, dt, s, x, true);
}

void values_read(tp_tape *T, tp_tensor x, double *out)
{
    const tp_shape s = tp_shape_of(x);
    tp_view v = tp__view(tp_dtype_of(x), &s, NULL);
    v.data = malloc(tp__view_bytes(&v) + 1);
    const bool ok = tp_read(T, x, v.data, tp__view_bytes(&v));
    for (int64_t i = 0; i < v.numel; i++) out[i] = ok ? tp_ld(&v, i) : NAN;
    free(v.data);
}

double values_error(const double *a, const double *b, int64_t n, double scale)
{
    double most = scale, off = 0.0;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(a[i]) && isnan(b[i])) continue;
        if (a[i] == b[i]) {
            if (isfinite(b[i])) most = fmax(most, fabs(b[i]));
            continue;
        }
        if (!isfinite(a[i]) || !isfinite(b[i])) return INFINITY;
        most = fmax(most, fabs(b[i]));
        off = fmax(off, fabs(a[i] - b[i]));
    }
    return most > 0.0 ? off / most : off;
}
