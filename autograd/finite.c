/* finite.c - finds the first op that produces NaN or infinity (tp_tape_opts.check_finite): checks
 * each element of each op's results and of the gradients after each backward. */
#include <math.h>
#include <stdlib.h>

#include "autograd/tape.h"
#include "tensor/shape.h"

/* Returns the index of the first non-finite element of v and stores its value in *bad; -1 if there
 * is none, or no memory for a copy. */
static int64_t find(tp_tape *T, const tp_view *v, double *bad)
{
    if (tp_absent(v) || !v->data || !tp_is_float(v->dtype)) return -1;
    const size_t bytes = tp__view_bytes(v);
    tp_view host = *v;
    if (T->dev->be->kind != TP_CPU) {
        host.data = malloc(bytes ? bytes : 1);
        if (!host.data) return -1;
        if (!tp__download(T, host.data, v->data, bytes)) {
            free(host.data);
            return -1;
        }
    }
    int64_t at = 0;
    while (at < v->numel && isfinite(tp_ld(&host, at))) at++;
    if (at < v->numel) *bad = tp_ld(&host, at);
    if (host.data != v->data) free(host.data);
    return at < v->numel ? at : -1;
}

static const char *name_of(double bad)
{
    return isnan(bad) ? "NaN" : "infinite";
}

/* Appends which of n views is not finite, or that all are. */
static void blame(tp_tape *T, const char *what, int n, const tp_view *v, char *text, size_t size)
{
    double bad = 0.0;
    for (int i = 0; i < n; i++) {
        const int64_t at = find(T, &v[i], &bad);
        if (at < 0) continue;
        tp__append(text, size, "; element %lld of %s %d is %s already", (long long)at, what, i,
                   name_of(bad));
        return;
    }
    tp__append(text, size, "; every %s is finite", what);
}

bool tp__check_results(tp_tape *T, const char *name, int nx, const tp_view *x, int ny,
                       const tp_view *y)
{
    double bad = 0.0;
    char cause[160] = "";
    if (T->dev->dry) return true;
    for (int i = 0; i < ny; i++) {
        const int64_t at = find(T, &y[i], &bad);
        if (at < 0) continue;
        blame(T, "input", nx, x, cause, sizeof cause);
        tp__fail(T, TP_E_NONFINITE, "%s: element %lld of the result is %s%s", name, (long long)at,
                 name_of(bad), cause);
        return false;
    }
    return T->err.code == TP_OK; /* reading may have failed */
}

bool tp__check_gradients(tp_tape *T, const tp_rec *r, const tp_view *dy, const tp_view *dx)
{
    double bad = 0.0;
    char cause[160] = "";
    if (T->dev->dry) return true;
    for (int i = 0; i < r->nx; i++) {
        const int64_t at = find(T, &dx[i], &bad);
        if (at < 0) continue;
        blame(T, "gradient of a result", r->visible, dy, cause, sizeof cause);
        tp__fail(T, TP_E_NONFINITE,
                 "%s (backward): element %lld of the gradient of input %d is %s%s; "
                 "the op was applied at %s:%d%s%s",
                 r->op->name, (long long)at, i, name_of(bad), cause,
                 r->file ? r->file : "an unknown place", r->line, r->path && *r->path ? " in " : "",
                 r->path ? r->path : "");
        return false;
    }
    return T->err.code == TP_OK; /* reading may have failed */
}
