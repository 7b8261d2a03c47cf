/* parity_params.c - parameters and buffers of a case: loads or fills them, compares gradients and
 * the buffers after the call. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "parity_case.h"

/* ---- values ---- */

void par_set(parity *p, tp_tensor w, const double *x)
{
    if (x && !tp_param_set(p->P, w, TP_F64, x, (size_t)tp_numel(w) * sizeof *x)) par_ok(p);
}

double *par_get(parity *p, tp_tensor w)
{
    double *x = par_alloc(p, tp_numel(w), sizeof *x);
    if (x && tp_param_get(p->P, w, TP_F64, x, (size_t)tp_numel(w) * sizeof *x)) return x;
    par_ok(p);
    return NULL;
}

/* ---- the fill rule ---- */

/* The range of a frozen norm's buffer, metadata buffer_range_LEAF. False: there is none. */
static bool buffer_range(parity *p, const char *name, double range[2])
{
    const char *dot = strrchr(name, '.');
    const char *key = par_name(p, "buffer_range_%s", dot ? dot + 1 : name);
    int64_t n;
    if (!par_given(p, key)) return false;
    const double *x = par_list(p, key, &n);
    if (n != 2) par_illegal(p, "metadata %s must be two numbers", key);
    for (int i = 0; i < 2; i++) range[i] = n == 2 ? x[i] : 0.0;
    return true;
}

/* Uniform values around 0, or around 1 for the scale of a norm. */
static void fill(parity *p, const tp_param_info *it, double *x, int64_t n)
{
    const uint64_t hash = par_hash(it->name);
    double lo = -0.1, hi = 0.1, range[2];
    if (it->buffer && buffer_range(p, it->name, range)) {
        lo = range[0];
        hi = range[1];
    } else if (it->buffer) {
        hi = sqrt(3.0);
        lo = -hi;
    } else if (it->shape.ndim >= 2) {
        hi = sqrt(3.0 / ((double)n / (double)it->shape.dim[0]));
        lo = -hi;
    } else if (it->shape.ndim == 1 && tp_ends_in(it->name, "weight")) {
        lo = 0.9;
        hi = 1.1;
    }
    for (int64_t i = 0; i < n; i++) x[i] = (float)(lo + (hi - lo) * par_uniform(hash, i));
}

/* Of buffers, only Performer's features are filled, and those with a range in the metadata; the
 * others keep the model's initial values (running means 0, variances 1). */
static void load_filled(parity *p, const tp_param_info *it)
{
    const int64_t n = par_numel(it->shape);
    double *x = malloc((size_t)(n + 1) * sizeof *x);

    if (!x) par_fail(p, "%s: out of memory", it->name);
    if (x) {
        fill(p, it, x, n);
        par_set(p, it->tensor, x);
    }
    free(x);
}

/* ---- loading ---- */

/* Single numbers may be stored with any number of axes. */
static bool same_shape(tp_shape a, tp_shape b)
{
    if (par_numel(a) == 1 && par_numel(b) == 1) return true;
    return a.ndim == b.ndim && memcmp(a.dim, b.dim, (size_t)a.ndim * sizeof a.dim[0]) == 0;
}

static void load_stored(parity *p, const tp_param_info *it, const char *name)
{
    const size_t n = (size_t)par_numel(it->shape);

    if (tp_is_float(it->dtype)) {
        par_set(p, it->tensor, par_values(p, name, NULL));
    } else {
        const int64_t *x = par_integers(p, name, NULL);
        if (x) par_params(p, tp_param_set(p->P, it->tensor, TP_I64, x, n * sizeof *x));
    }
}

/* A tied parameter may be stored under each of its names, with the same values. */
static void load_alias(parity *p, const tp_param_info *it, const char *name)
{
    const char *first_name = par_name(p, "param.%s", it->alias_of);
    if (!par_has(p, first_name)) {
        load_stored(p, it, name);
        return;
    }
    const double *own = par_values(p, name, NULL), *first = par_values(p, first_name, NULL);

    if (own && first && memcmp(own, first, (size_t)par_numel(it->shape) * sizeof *own) != 0)
        par_fail(p, "%s differs from %s, to which it is tied", name, it->alias_of);
}

/* A file stores all parameters or none. If it stores some, a missing one that has results in the
 * file is an error. */
static void check_missing(parity *p, const char *parameter, const char *name)
{
    static const char *const results[] = { "grad", "gradnorm", "final" };

    if (!par_has_any(p, "param.") || par_names(p, "unused_params", parameter)) return;
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        if (par_numel(par_shape(p, par_name(p, "%s.%s", results[i], parameter))) > 0)
            par_fail(p, "the file has no tensor %s", name);
}

static void load_one(parity *p, const tp_param_info *it)
{
    const char *name = par_name(p, "%s.%s", it->buffer ? "buffer" : "param", it->name);

    if (!par_has(p, name)) {
        if (!it->buffer && !it->alias_of) check_missing(p, it->name, name);
        double range[2];
        if (!it->alias_of && (!it->buffer || tp_ends_in(it->name, "projection_matrix") ||
                              buffer_range(p, it->name, range)))
            load_filled(p, it);
    } else if (!same_shape(par_shape(p, name), it->shape)) {
        par_fail(p, "%s has a different shape in the model", name);
    } else if (it->alias_of) {
        load_alias(p, it, name);
    } else {
        load_stored(p, it, name);
    }
}

/* True if a parameter has that name. A linear search is cheap compared with filling a full-size
 * model. */
static bool is_parameter(const parity *p, const char *name)
{
    for (tp_param_info it = { 0 }; tp_next_param(p->P, &it);)
        if (!it.buffer && strcmp(it.name, name) == 0) return true;
    return false;
}

/* Fails if a tensor of the file names a parameter that the model lacks. Empty tensors are those of
 * zero global tokens. */
static void check_names(parity *p)
{
    static const char *const stems[] = { "param.", "grad.", "gradnorm.", "final." };

    for (int i = 0; i < tp_file_count(p->F); i++) {
        const tp_file_tensor *t = tp_file_at(p->F, i);
        for (size_t k = 0; k < sizeof stems / sizeof *stems; k++) {
            const size_t n = strlen(stems[k]);
            if (strncmp(t->name, stems[k], n) != 0 || t->numel == 0) continue;
            if (strncmp(t->name + n, "input.", 6) == 0 || strcmp(t->name + n, "input") == 0)
                continue;
            if (!is_parameter(p, t->name + n))
                par_fail(p, "%s: the model has no such parameter", t->name);
        }
    }
}

/* Fails if a list of the metadata names something that is neither a parameter nor, if they may be
 * listed, an input. */
static void check_list(parity *p, const char *key, bool inputs)
{
    const char *at = NULL, *name;

    while ((name = par_next_name(p, key, &at)))
        if (!is_parameter(p, name) &&
            (!inputs || (!par_has(p, name) && strcmp(name, "input") != 0)))
            par_fail(p, "metadata %s names %s, which is not a parameter", key, name);
}

void par_load(parity *p)
{
    static const char *const counts[] = { "parameters", "param_count", "parameter_count",
                                          "params_total" };

    if (!par_ok(p)) return;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (!par_is_prose(p, counts[i])) par_same(p, counts[i], tp_params_count(p->P) - p->dropped);
    check_names(p);
    check_list(p, "zero_grads", true);
    check_list(p, "unused_params", false);
    for (tp_param_info it = { 0 }; !p->failed && tp_next_param(p->P, &it);) load_one(p, &it);
    par_ok(p);
}

/* ---- gradients ---- */

static void check_grad(parity *p, const tp_param_info *it)
{
    const int64_t n = par_numel(it->shape);
    const bool unused = par_names(p, "unused_params", it->name);

    if (!unused && !par_has_either(p, "grad", it->name)) return;
    double *got = calloc((size_t)n + 1, sizeof *got);
    if (!got) {
        par_fail(p, "grad.%s: out of memory", it->name);
    } else if (!it->has_grad ||
               tp_param_get_grad(p->P, it->tensor, TP_F64, got, (size_t)n * sizeof *got)) {
        if (par_check_either(p, "grad", it->name, got, n, PAR_GRADIENT) != 0.0 && unused)
            par_fail(p, "unused_params names %s, which has a gradient", it->name);
    }
    free(got);
    par_ok(p);
}

void par_check_grads(parity *p)
{
    for (tp_param_info it = { 0 }; !p->failed && tp_next_param(p->P, &it);)
        if (!it.buffer) check_grad(p, &it);
}

/* ---- buffers after the call ---- */

static void check_buffer(parity *p, const tp_param_info *it)
{
    const int64_t n = par_numel(it->shape);

    if (!par_has_either(p, "output.buffer", it->name)) return;
    if (!tp_is_float(it->dtype)) {
        int64_t *x = par_alloc(p, n, sizeof *x);
        if (x && tp_param_get(p->P, it->tensor, TP_I64, x, (size_t)n * sizeof *x))
            par_check_integers(p, par_name(p, "output.buffer.%s", it->name), x, n);
        return;
    }
    const double *x = par_get(p, it->tensor);
    if (x) par_check_either(p, "output.buffer", it->name, x, n, PAR_OUTPUT);
}

void par_check_buffers(parity *p)
{
    for (tp_param_info it = { 0 }; !p->failed && tp_next_param(p->P, &it);)
        if (it.buffer) check_buffer(p, &it);
    par_ok(p);
}
