/* parity_compare.c - compares results with tensors of the file. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "parity_case.h"

double par_limit(const parity *p, par_class c)
{
    if (p->o->compute == TP_F64) return 1e-6;
    if (p->o->compute == TP_BF16) return c == PAR_OUTPUT ? 3e-2 : 1.5e-1;
    return c == PAR_OUTPUT ? 1e-4 : 1e-3;
}

double par_exact(const parity *p, const char *name)
{
    const tp_file_tensor *t = tp_file_find(p->F, name);
    return t && strcmp(t->stored, "F64") == 0 ? 1e-12 : 1e-6;
}

/* Absolute limits for gradients that are zero in theory and so consist of rounding noise. The noise
 * of the reference is below the first. */
static const double zero = 1e-5, zero_bf16 = 3e-2;

bool par_zero_in_theory(parity *p, const char *name)
{
    return par_names(p, "zero_grads", name);
}

/* True for "grad.NAME" or "gradnorm.NAME" of a parameter or input named in zero_grads. */
static bool is_zero_gradient(parity *p, const char *name)
{
    const char *dot = strchr(name, '.');
    return dot && strncmp(name, "grad", 4) == 0 && par_zero_in_theory(p, dot + 1);
}

static void judge(parity *p, const char *name, double error, double limit, bool relative)
{
    parity_result *r = p->r;
    if (p->o->log)
        fprintf(p->o->log, "    %-44s %.2e %s%s\n", name, error, relative ? "relative" : "absolute",
                error <= limit ? "" : "  TOO LARGE");
    p->compared++;
    if (relative && !(error <= r->worst)) {
        r->worst = error;
        snprintf(r->worst_name, sizeof r->worst_name, "%s", name);
    }
    if (!(error <= limit))
        par_fail(p, "%s: %s error %.2e, at most %.0e is allowed", name,
                 relative ? "relative" : "absolute", error, limit);
}

/* The reference if the file has it with n elements, else NULL. */
static const double *reference(parity *p, const char *name, int64_t n)
{
    const int64_t numel = par_numel(par_shape(p, name));

    if (p->failed || !par_has(p, name)) return NULL;
    if (numel == n) return par_values(p, name, NULL);
    par_fail(p, "%s has %lld elements, the result %lld", name, (long long)numel, (long long)n);
    return NULL;
}

static void compare(parity *p, const char *name, const double *got, int64_t n, double limit,
                    bool relative)
{
    const double *want = reference(p, name, n);
    const bool vanishes = is_zero_gradient(p, name), bf16 = p->o->compute == TP_BF16;
    const bool norms = bf16 && strncmp(name, "grad", 4) == 0 && !vanishes;
    double largest = 0.0, error = 0.0;

    if (!want) return;
    for (int64_t i = 0; i < n; i++) {
        const double e = fabs(got[i] - want[i]), size = fabs(want[i]);
        if (norms) {
            error = hypot(error, e);
            largest = hypot(largest, size);
            continue;
        }
        if (!(e <= error)) error = e; /* NaN stays */
        if (size > largest) largest = size;
    }
    if (vanishes && largest > zero)
        par_fail(p, "zero_grads names %s, which reaches %.2e", name, largest);
    else if (!relative)
        judge(p, name, error, limit, false);
    else if (largest == 0.0 || vanishes)
        judge(p, name, error, bf16 ? zero_bf16 : zero, false);
    else
        judge(p, name, error / largest, limit, true);
}

void par_check(parity *p, const char *name, const double *got, int64_t n, double limit)
{
    compare(p, name, got, n, limit, true);
}

void par_check_abs(parity *p, const char *name, const double *got, int64_t n, double limit)
{
    compare(p, name, got, n, limit, false);
}

void par_check_one(parity *p, const char *name, double got, double limit)
{
    compare(p, name, &got, 1, limit, true);
}

bool par_has_either(parity *p, const char *stem, const char *name)
{
    return par_has(p, par_name(p, "%s.%s", stem, name)) ||
           par_has(p, par_name(p, "%snorm.%s", stem, name));
}

double par_check_either(parity *p, const char *stem, const char *name, const double *got, int64_t n,
                        par_class c)
{
    double squares = 0.0;
    for (int64_t i = 0; i < n; i++) squares += got[i] * got[i];
    par_check(p, par_name(p, "%s.%s", stem, name), got, n, par_limit(p, c));
    par_check_one(p, par_name(p, "%snorm.%s", stem, name), sqrt(squares), par_limit(p, c));
    return sqrt(squares);
}

void par_check_sum(parity *p, const char *name, double got, double terms, double limit)
{
    const double *want = reference(p, name, 1);

    if (!want) return;
    if (p->real == TP_F32 && fabs(*want) < terms)
        par_check_abs(p, name, &got, 1, limit * terms);
    else
        par_check_one(p, name, got, limit);
}

void par_check_integers(parity *p, const char *name, const int64_t *got, int64_t n)
{
    const int64_t numel = par_numel(par_shape(p, name));

    if (p->failed || !par_has(p, name)) return;
    if (numel != n)
        par_fail(p, "%s has %lld elements, the result %lld", name, (long long)numel, (long long)n);
    const int64_t *want = par_integers(p, name, NULL);
    p->compared++;
    for (int64_t i = 0; want && i < n; i++)
        if (got[i] != want[i])
            par_fail(p, "%s: element %lld is %lld, not %lld", name, (long long)i, (long long)got[i],
                     (long long)want[i]);
}

void par_check_ints(parity *p, const char *name, const int *got, int64_t n)
{
    int64_t *x = par_alloc(p, n, sizeof *x);
    for (int64_t i = 0; x && i < n; i++) x[i] = got[i];
    if (x) par_check_integers(p, name, x, n);
}

void par_check_bytes(parity *p, const char *name, const uint8_t *got, int64_t n)
{
    int64_t *x = par_alloc(p, n, sizeof *x);
    for (int64_t i = 0; x && i < n; i++) x[i] = got[i];
    if (x) par_check_integers(p, name, x, n);
}

void par_check_tensor(parity *p, const char *name, tp_tensor x)
{
    if (p->failed || !par_has(p, name)) return;
    const double *got = par_read(p, x);
    if (got) par_check(p, name, got, tp_numel(x), par_limit(p, PAR_OUTPUT));
}

tp_tensor par_norm(tp_tape *T, tp_tensor x)
{
    return tp_sqrt(T, tp_sum(T, tp_square(T, x), TP_ALL));
}
