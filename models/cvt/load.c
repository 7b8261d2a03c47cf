/* load.c - loads weights of CvT*-LS at another resolution, where projections have a larger rank.
 *
 * Rows of proj_p are head * rank + i. If the rank grows k times, each row is repeated k times,
 * which repeats each projection; the initial values of P are added as noise, so that they can
 * diverge. */
#include <stdlib.h>
#include <string.h>

#include <tapegrad/cvt.h>

#include "model_inner.h"

/* How many times each row of t is repeated in the parameter; 0: the shapes do not match. */
static int64_t times(const tp_param_info *it, const tp_file_tensor *t)
{
    const tp_shape *a = &it->shape, *b = t ? &t->shape : NULL;
    if (!t || a->ndim != b->ndim) return 0;
    if (memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof a->dim[0]) == 0) return 1;
    if (!tp_ends_in(it->name, "proj_p.weight") && !tp_ends_in(it->name, "proj_p.bias")) return 0;
    if (b->dim[0] < 1 || a->dim[0] % b->dim[0]) return 0;
    return a->ndim == 1 || a->dim[1] == b->dim[1] ? a->dim[0] / b->dim[0] : 0;
}

/* Adds row i / k of t to row i of the parameter, k > 0. */
static bool grow(tp_params *P, tp_file *F, const tp_param_info *it, const tp_file_tensor *t,
                 int64_t k)
{
    const int64_t n = tp_numel(it->tensor), rows = it->shape.dim[0], columns = n / rows;
    const size_t bytes = (size_t)n * sizeof(double);
    double *x = malloc(bytes), *from = malloc(bytes);
    bool ok = false;

    if (!x || !from)
        tp_params_raise(P, TP_E_MEMORY, "%s: out of host memory", it->name);
    else if (!tp_file_read(F, t, TP_F64, from))
        tp_params_raise(P, TP_E_IO, "%s", tp_file_why(F));
    else if (tp_param_get(P, it->tensor, TP_F64, x, bytes)) {
        for (int64_t i = 0; i < n; i++) x[i] += from[i / columns / k * columns + i % columns];
        ok = tp_param_set(P, it->tensor, TP_F64, x, bytes);
    }
    free(x);
    free(from);
    return ok;
}

/* Loads the parameters of equal shape, then those that grow. */
bool tp__cvt_load(tp_params *P, tp_file *F)
{
    const tp_load_opts strict = { .convert = true }, partial = { .convert = true, .partial = true };
    bool possible = true, grows = false;

    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) {
        const int64_t k = times(&it, tp_file_find(F, it.name));
        possible = possible && k > 0;
        grows = grows || k > 1;
    }
    if (!possible || !grows)
        return tp_params_read(P, F, "", &strict); /* fails with the difference, if any */
    if (!tp_params_read(P, F, "", &partial)) return false;
    for (tp_param_info it = { 0 }; tp_next_param(P, &it);) {
        const tp_file_tensor *t = tp_file_find(F, it.name);
        const int64_t k = times(&it, t);
        if (k > 1 && !grow(P, F, &it, t, k)) return false;
    }
    return true;
}

bool tp_cvt_load(tp_params *P, const char *path)
{
    tp_file *F = tp_file_open(path);
    const bool ok = tp__cvt_load(P, F);
    tp_file_close(F);
    return ok;
}
