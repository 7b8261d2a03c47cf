/* load.c - loads weights of CvT*-LS at another resolution, where projections have a larger rank.
 *
 * Rows of proj_p are head * rank + i. If the rank grows k times, each row is repeated k times,
 * which repeats each projection; the initial values of P are added as noise, so that they can
 * diverge. */
#include <stdlib.h>
#include <string.h>

#include <tapegrad/cvt.h>

#include "model_inner.h"

bool tp__cvt_resizes(const char *name, const tp_shape *here, const tp_shape *there)
{
    if (!tp_ends_in(name, "proj_p.weight") && !tp_ends_in(name, "proj_p.bias")) return false;
    return here->ndim == there->ndim && there->dim[0] > 0 && here->dim[0] % there->dim[0] == 0 &&
           (here->ndim == 1 || here->dim[1] == there->dim[1]);
}

/* Adds row i / k of t to row i of the parameter, k > 0. */
static bool grow(tp_params *P, tp_file *F, const tp_param_info *it, const tp_file_tensor *t,
                 int64_t k)
{
    const int64_t n = tp_numel(it->tensor), rows = it->shape.dim[0], columns = n / rows;
    const size_t bytes = (size_t)n * sizeof(double);
    double *x = malloc(bytes), *from = malloc(bytes);
    bool ok = false;

    if (!x || !from) {
        tp_params_raise(P, TP_E_MEMORY, "%s: out of host memory", it->name);
    } else if (!tp_file_read(F, t, TP_F64, from)) {
        tp_params_raise(P, TP_E_IO, "%s", tp_file_why(F));
    } else {
        ok = tp_param_get(P, it->tensor, TP_F64, x, bytes);
        for (int64_t i = 0; ok && i < n; i++) x[i] += from[i / columns / k * columns + i % columns];
        ok = ok && tp_param_set(P, it->tensor, TP_F64, x, bytes);
        if (!ok) tp_params_raise(P, TP_E_VALUE, "%s", tp_params_why(P));
    }
    free(x);
    free(from);
    return ok;
}

/* Loads the parameters of equal shape, then those that grow. */
bool tp__cvt_load(tp_params *P, tp_file *F)
{
    if (!tp_params_read(P, F, "", &(tp_load_opts){ .convert = true, .resizes = tp__cvt_resizes }))
        return false;
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) {
        const tp_file_tensor *t = tp_file_find(F, it.name);
        if (t && !tp__equal_shapes(&t->shape, &it.shape) &&
            !grow(P, F, &it, t, it.shape.dim[0] / t->shape.dim[0]))
            return false;
    }
    return true;
}

bool tp_cvt_load(tp_params *P, const char *path)
{
    tp_file *F = tp_file_open(path);
    tp__published_enter(&tp_model_cvt, P, F, NULL, 0);
    const bool ok = tp__cvt_load(P, F);
    tp_file_close(F);
    return ok;
}
