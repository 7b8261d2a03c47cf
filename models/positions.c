/* positions.c - resizes parameters over positions, for weights of another image size.
 *
 * Bicubic as in PyTorch's interpolate without antialiasing (a = -0.75, edges repeated), one axis after
 * the other, in double. */
#include <math.h>
#include <stdlib.h>

#include "parts.h"

/* Weights of four samples for a position t in [0,1) after the second sample. */
static void cubic(double t, double weight[4])
{
    const double a = -0.75;
    for (int i = 0; i < 4; i++) {
        const double x = fabs((double)i - 1.0 - t);
        weight[i] = x <= 1.0 ? ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
                             : (((x - 5.0) * x + 8.0) * x - 4.0) * a;
    }
}

/* y [outer,to,inner] = x [outer,from,inner], resized along the middle axis with repeated edges. */
static void resize(const double *x, double *y, int64_t outer, int64_t from, int64_t to,
                   int64_t inner)
{
    for (int64_t o = 0; o < outer * to; o++) {
        const double place = ((double)(o % to) + 0.5) * (double)from / (double)to - 0.5;
        const int64_t first = (int64_t)floor(place) - 1;
        double weight[4];
        cubic(place - floor(place), weight);
        for (int64_t i = 0; i < inner; i++) {
            double sum = 0.0;
            for (int64_t k = 0; k < 4; k++) {
                const int64_t at = first + k < 0 ? 0 : first + k >= from ? from - 1 : first + k;
                sum += weight[k] * x[(o / to * from + at) * inner + i];
            }
            y[o * inner + i] = sum;
        }
    }
}

int64_t tp__root(int64_t n)
{
    const int64_t r = (int64_t)llround(sqrt((double)n));
    return r * r == n ? r : 0;
}

bool tp__relative_table(const tp_shape *here, const tp_shape *there, tp__grid *p)
{
    if (here->ndim != 2 || there->ndim != 2 || here->dim[1] != there->dim[1]) return false;
    const int64_t from = tp__root(there->dim[0]), to = tp__root(here->dim[0]);
    *p = (tp__grid){ 2, { from, from }, { to, to }, here->dim[1] };
    return from > 0 && to > 0;
}

/* The product of some sizes of the axes first .. last - 1. */
static int64_t product(const int64_t *size, int first, int last)
{
    int64_t n = 1;
    for (int i = first; i < last; i++) n *= size[i];
    return n;
}

/* The largest number of elements on the way. */
static int64_t most_elements(const tp__grid *p)
{
    int64_t n = p->inner;
    for (int i = 0; i < p->axes; i++) n *= p->from[i] > p->to[i] ? p->from[i] : p->to[i];
    return n;
}

void tp__load_positions(tp_params *P, tp_file *F, const tp_param_info *it, const tp_file_tensor *t,
                        const tp__grid *p)
{
    const int64_t most = most_elements(p), n = product(p->to, 0, p->axes) * p->inner;
    double *x = malloc((size_t)(2 * most) * sizeof *x), *y = x ? x + most : NULL, *source = x;
    if (!x) {
        tp_params_raise(P, TP_E_MEMORY, "%s: out of host memory", it->name);
        return;
    }
    if (tp_file_read(F, t, TP_F64, x)) {
        for (int axis = 0; axis < p->axes; axis++) {
            const int64_t each = p->inner * product(p->from, axis + 1, p->axes);
            resize(source, y, product(p->to, 0, axis), p->from[axis], p->to[axis], each);
            double *spare = source;
            source = y;
            y = spare;
        }
        if (!tp_param_set(P, it->tensor, TP_F64, source, (size_t)n * sizeof *source))
            tp_params_raise(P, TP_E_VALUE, "%s", tp_params_why(P));
    } else {
        tp_params_raise(P, TP_E_IO, "%s", tp_file_why(F));
    }
    free(x);
}
