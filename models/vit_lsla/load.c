/* load.c - loads weights of a ViT-LSLA for another image size.
 *
 * Parameters whose shape depends on the window are resized over positions, bicubic as in PyTorch's
 * interpolate: tables [(2w-1)^2,H] over the differences of rows and of columns, scales [w^2,w^2]
 * over the rows and columns of queries and of keys. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tapegrad/vit_lsla.h>

#include "model_inner.h"

/* Weights of four samples for a position t in [0,1) after the second sample (a = -0.75). */
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

static int64_t root(int64_t n)
{
    const int64_t r = (int64_t)llround(sqrt((double)n));
    return r * r == n ? r : 0;
}

static bool has(const char *name, const char *part)
{
    return strstr(name, part) != NULL;
}

/* The number of position axes of a parameter that depends on the window, else 0. *from and *to are
 * their size in the file and in the model; each position has *inner elements. */
static int spread(const char *name, const tp_shape *here, const tp_shape *there, int64_t *from,
                  int64_t *to, int64_t *inner)
{
    const bool table = has(name, "relative_position_bias_table");
    if (!table && !has(name, "dynamic_scale")) return 0;
    if (here->ndim != 2 || there->ndim != 2) return 0;
    *from = root(there->dim[0]);
    *to = root(here->dim[0]);
    *inner = table ? here->dim[1] : 1;
    const bool same = there->dim[1] == (table ? here->dim[1] : there->dim[0]);
    return same && *from > 0 && *to > 0 ? table ? 2 : 4 : 0;
}

bool tp__vit_lsla_resizes(const char *name, const tp_shape *here, const tp_shape *there)
{
    int64_t from, to, inner;
    return spread(name, here, there, &from, &to, &inner) > 0;
}

static int64_t power(int64_t x, int n)
{
    return n ? x * power(x, n - 1) : 1;
}

static void load_resized(tp_params *P, tp_file *F, const tp_param_info *it, const tp_file_tensor *t)
{
    int64_t from = 1, to = 1, inner = 1;
    const int axes = spread(it->name, &it->shape, &t->shape, &from, &to, &inner);
    const int64_t most = power(from > to ? from : to, axes) * inner;
    double *x = malloc((size_t)(2 * most) * sizeof *x), *y = x ? x + most : NULL;
    if (!x) {
        tp_params_raise(P, TP_E_MEMORY, "%s: out of host memory", it->name);
        return;
    }
    if (tp_file_read(F, t, TP_F64, x)) {
        double *source = x;
        for (int axis = 0; axis < axes; axis++) {
            const int64_t each = inner * power(from, axes - 1 - axis);
            resize(source, y, power(to, axis), from, to, each);
            double *spare = source;
            source = y;
            y = spare;
        }
        tp_param_set(P, it->tensor, TP_F64, source,
                     (size_t)(power(to, axes) * inner) * sizeof *source);
    } else {
        tp_params_raise(P, TP_E_IO, "%s", tp_file_why(F));
    }
    free(x);
}

bool tp__vit_lsla_load(tp_params *P, tp_file *F)
{
    const tp_load_opts o = { .convert = true, .resizes = tp__vit_lsla_resizes };
    if (tp_params_read(P, F, "", &o))
        for (tp_param_info it = { 0 }; tp_params_ok(P) && tp_next_param(P, &it);) {
            const tp_file_tensor *t = tp_file_find(F, it.name);
            if (t && !tp__equal_shapes(&t->shape, &it.shape)) load_resized(P, F, &it, t);
        }
    return tp_params_ok(P);
}

bool tp_vit_lsla_load(tp_params *P, const char *path)
{
    tp_file *F = tp_file_open(path);
    tp__published_enter(&tp_model_vit_lsla, P, F, NULL, 0);
    const bool ok = tp__vit_lsla_load(P, F);
    tp_file_close(F);
    return ok;
}
