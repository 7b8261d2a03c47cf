/* parity.c - what the programs of all case kinds share: reading, comparing, keeping account. */
#include "parity.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const parity_kind *const tables[] = { parity_lm_kinds,        parity_lsla_kinds,
                                             parity_cvt_kinds,       parity_vil_kinds,
                                             parity_vil_train_kinds, NULL };

/* ---- account ---- */

void par_fail(parity *p, const char *fmt, ...)
{
    if (!p->failed) {
        va_list ap;
        p->failed = true;
        va_start(ap, fmt);
        vsnprintf(p->why, sizeof p->why, fmt, ap);
        va_end(ap);
    }
}

bool par_ok(parity *p, const tp_tape *T, const tp_params *P)
{
    if (!tp_file_ok(p->F)) par_fail(p, "%s", tp_file_why(p->F));
    if (P && !tp_params_ok(P)) par_fail(p, "%s", tp_params_why(P));
    if (T && !tp_ok(T)) par_fail(p, "%s", tp_why(T));
    return !p->failed;
}

static const parity_kind *find_kind(const char *name)
{
    for (const parity_kind *const *t = tables; name && *t; t++)
        for (const parity_kind *k = *t; k->kind; k++)
            if (strcmp(k->kind, name) == 0) return k;
    return NULL;
}

static void check_all_seen(parity *p)
{
    for (int i = 0; i < tp_file_count(p->F); i++)
        if (!p->seen[i]) par_fail(p, "nothing was compared with %s", tp_file_at(p->F, i)->name);
}

static int run_kind(parity *p, bool large)
{
    const char *name = tp_file_meta(p->F, "kind");
    const parity_kind *kind = find_kind(name);

    if (!par_ok(p, NULL, NULL)) return 1;
    if (!kind) {
        par_fail(p, name ? "no program for cases of kind '%s'" : "the metadata names no kind",
                 name);
        return 1;
    }
    if ((kind->large && !large) || (kind->no_bf16 && p->compute == TP_BF16)) return -1;
    p->seen = calloc((size_t)tp_file_count(p->F) + 1, sizeof *p->seen);
    if (p->seen) {
        kind->run(p);
        if (par_ok(p, NULL, NULL)) check_all_seen(p);
    } else {
        par_fail(p, "out of memory");
    }
    free(p->seen);
    return p->failed ? 1 : 0;
}

int parity_run(parity *p, const char *path, tp_device *D, tp_dtype compute, bool large, FILE *log)
{
    const tp_dtype real = compute == TP_F64 ? TP_F64 : TP_F32;
    *p = (parity){ .F = tp_file_open(path), .D = D, .compute = compute, .real = real, .log = log };
    const int result = run_kind(p, large);
    tp_file_close(p->F);
    p->F = NULL;
    p->seen = NULL;
    return result;
}

/* ---- metadata ---- */

int64_t par_int(parity *p, const char *key, int64_t dflt)
{
    tp_file_int(p->F, key, &dflt);
    return dflt;
}

double par_num(parity *p, const char *key, double dflt)
{
    tp_file_num(p->F, key, &dflt);
    return dflt;
}

bool par_is(parity *p, const char *key, const char *word)
{
    const char *value = tp_file_meta(p->F, key);
    return value && strcmp(value, word) == 0;
}

bool par_train(parity *p)
{
    return !par_is(p, "mode", "eval");
}

int par_list(parity *p, const char *key, int max, double *x)
{
    const char *s = tp_file_meta(p->F, key);
    int n = 0;

    for (char *end; s && *s; s = *end ? end + 1 : end) {
        const double value = strtod(s, &end);
        if (end == s || (*end && *end != ',') || n == max) {
            par_fail(p, "metadata %s: '%s' is no list of at most %d numbers", key,
                     tp_file_meta(p->F, key), max);
            return 0;
        }
        x[n++] = value;
    }
    return n;
}

/* ---- tensors ---- */

bool par_has(parity *p, const char *name)
{
    return tp_file_find(p->F, name) != NULL;
}

const char *par_name(const char *stem, int64_t i)
{
    static char names[4][128];
    static unsigned next;
    char *name = names[next++ % 4];
    snprintf(name, sizeof names[0], "%s%lld", stem, (long long)i);
    return name;
}

static const tp_file_tensor *take(parity *p, const char *name)
{
    const tp_file_tensor *t = tp_file_find(p->F, name);
    if (!t) par_fail(p, "the file has no tensor %s", name);
    for (int i = 0; t && i < tp_file_count(p->F); i++)
        if (tp_file_at(p->F, i) == t) p->seen[i] = true;
    return t;
}

void par_ignore(parity *p, const char *prefix)
{
    for (int i = 0; i < tp_file_count(p->F); i++)
        if (strncmp(tp_file_at(p->F, i)->name, prefix, strlen(prefix)) == 0) p->seen[i] = true;
}

static void *read_as(parity *p, const char *name, tp_dtype dt, tp_shape *shape)
{
    const tp_file_tensor *t = take(p, name);
    void *host = t ? malloc((size_t)t->numel * tp_dtype_size(dt) + 1) : NULL;

    if (t && !host) par_fail(p, "%s: out of memory", name);
    if (!host) return NULL;
    if (shape) *shape = t->shape;
    if (tp_file_read(p->F, t, dt, host)) return host;
    par_fail(p, "%s", tp_file_why(p->F));
    free(host);
    return NULL;
}

double *par_values(parity *p, const char *name, tp_shape *shape)
{
    return read_as(p, name, TP_F64, shape);
}

int64_t *par_integers(parity *p, const char *name, tp_shape *shape)
{
    return read_as(p, name, TP_I64, shape);
}

static bool is_floating(const tp_file_tensor *t)
{
    return t->stored[0] == 'F' || t->stored[0] == 'B' ? strcmp(t->stored, "BOOL") != 0 : false;
}

static tp_tensor upload(parity *p, tp_tape *T, const char *name, bool input)
{
    const tp_file_tensor *t = tp_file_find(p->F, name);
    const tp_dtype dt = !t || is_floating(t) ? p->compute : TP_I64;
    tp_shape s = TP_SCALAR;
    void *host = read_as(p, name, dt, &s);
    if (!host) return tp_raise(T, TP_E_IO, "%s", p->why);
    const tp_tensor x = input ? tp_input(T, dt, s, host) : tp_from(T, dt, s, host);
    free(host);
    return x;
}

tp_tensor par_tensor(parity *p, tp_tape *T, const char *name)
{
    return upload(p, T, name, false);
}

tp_tensor par_input(parity *p, tp_tape *T, const char *name)
{
    return upload(p, T, name, true);
}

tp_tensor par_matrix(parity *p, tp_tape *T, int64_t rows, int64_t columns, const double *x)
{
    const int64_t n = rows * columns;
    if (p->real == TP_F64) return tp_from(T, TP_F64, TP_SHAPE(rows, columns), x);

    float *f = malloc((size_t)(n + 1) * sizeof *f);
    if (!f) return tp_raise(T, TP_E_MEMORY, "out of memory");
    for (int64_t i = 0; i < n; i++) f[i] = (float)x[i];
    const tp_tensor y = tp_from(T, TP_F32, TP_SHAPE(rows, columns), f);
    free(f);
    return y;
}

/* ---- parameters ---- */

tp_params *par_params_new(parity *p)
{
    return tp_params_new(p->D, &(tp_params_opts){ .dtype = p->real });
}

uint64_t par_hash(const char *name)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 0x100000001b3u;
    return h;
}

double par_uniform(uint64_t hash, int64_t i)
{
    uint64_t z = hash + ((uint64_t)i + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return (double)(z >> 40) / 16777216.0;
}

static bool ends_in(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static void fill(const tp_param_info *it, double *x, int64_t n)
{
    const uint64_t hash = par_hash(it->name);
    double lo = -0.1, hi = 0.1;
    if (it->shape.ndim >= 2) {
        hi = sqrt(3.0 / ((double)n / (double)it->shape.dim[0]));
        lo = -hi;
    } else if (it->shape.ndim == 1 && ends_in(it->name, "weight")) {
        lo = 0.9;
        hi = 1.1;
    }
    for (int64_t i = 0; i < n; i++) x[i] = (float)(lo + (hi - lo) * par_uniform(hash, i));
}

static bool same_shape(const tp_shape *a, const tp_shape *b)
{
    return a->ndim == b->ndim && memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof a->dim[0]) == 0;
}

/* One parameter or buffer. Buffers that the file does not store keep what the model gave them. */
static void load_one(parity *p, tp_params *P, const tp_param_info *it, bool stored)
{
    char name[256];
    const int64_t n = tp_numel(it->tensor);
    tp_shape s = it->shape;
    double *x;

    snprintf(name, sizeof name, "%s.%s", it->buffer ? "buffer" : "param", it->name);
    if ((it->alias_of || it->buffer) && !par_has(p, name)) return;
    if (stored || it->buffer) {
        x = par_values(p, name, &s);
    } else {
        x = malloc((size_t)(n + 1) * sizeof *x);
        if (x) fill(it, x, n);
    }
    if (x && !same_shape(&s, &it->shape))
        par_fail(p, "%s has another shape than the model's", name);
    else if (x)
        tp_param_set(P, it->tensor, TP_F64, x, (size_t)n * sizeof *x);
    free(x);
}

void par_load(parity *p, tp_params *P)
{
    bool stored = false;
    for (int i = 0; i < tp_file_count(p->F); i++)
        stored |= strncmp(tp_file_at(p->F, i)->name, "param.", 6) == 0;
    for (tp_param_info it = { 0 }; !p->failed && tp_next_param(P, &it);)
        load_one(p, P, &it, stored);
    par_ok(p, NULL, P);
}

/* ---- comparing ---- */

double par_limit(const parity *p, par_class c)
{
    if (p->compute == TP_F64) return 1e-6;
    if (p->compute == TP_BF16) return c == PAR_OUTPUT ? 3e-2 : 1.5e-1;
    return c == PAR_OUTPUT ? 1e-4 : 1e-3;
}

/* Absolute, for what is zero in theory: rounding noise of the gradients around it. */
static double zero_limit(const parity *p)
{
    return p->compute == TP_BF16 ? 3e-2 : 1e-5;
}

bool par_zero_in_theory(parity *p, const char *name)
{
    const char *list = tp_file_meta(p->F, "zero_grads");
    const size_t n = strlen(name);
    for (const char *at = list; at && (at = strstr(at, name)); at++)
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || !at[n])) return true;
    return false;
}

/* "grad.NAME" and "gradnorm.NAME" of such a name. */
static bool is_zero_gradient(parity *p, const char *name)
{
    const char *dot = strchr(name, '.');
    return dot && strncmp(name, "grad", 4) == 0 && par_zero_in_theory(p, dot + 1);
}

static void judge(parity *p, const char *name, double error, double limit, bool relative)
{
    if (p->log)
        fprintf(p->log, "    %-44s %.2e %s%s\n", name, error, relative ? "relative" : "absolute",
                error <= limit ? "" : "  TOO LARGE");
    if (relative && !(error <= p->worst)) {
        p->worst = error;
        snprintf(p->worst_name, sizeof p->worst_name, "%s", name);
    }
    if (!(error <= limit))
        par_fail(p, "%s: %s error %.2e, at most %.0e is allowed", name,
                 relative ? "relative" : "absolute", error, limit);
}

static void compare(parity *p, const char *name, const double *got, int64_t n, double limit,
                    bool relative)
{
    tp_shape s;
    double *want = par_values(p, name, &s), largest = 0.0, error = 0.0;
    const bool zero = is_zero_gradient(p, name);
    const bool norms = p->compute == TP_BF16 && strncmp(name, "grad", 4) == 0 && !zero;
    int64_t numel = 1;

    if (!want) return;
    for (int i = 0; i < s.ndim; i++) numel *= s.dim[i];
    if (numel != n) {
        par_fail(p, "%s has %lld elements, the result %lld", name, (long long)numel, (long long)n);
        free(want);
        return;
    }
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
    free(want);
    if (!relative)
        judge(p, name, error, limit, false);
    else if (largest == 0.0 || zero)
        judge(p, name, error, zero_limit(p), false);
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

void par_check_zeros(parity *p, const char *name)
{
    const tp_file_tensor *t = tp_file_find(p->F, name);
    double *zero = calloc((size_t)(t ? t->numel : 0) + 1, sizeof *zero);
    if (!zero) par_fail(p, "%s: out of memory", name);
    if (zero && t) par_check(p, name, zero, t->numel, zero_limit(p));
    free(zero);
}

void par_check_integers(parity *p, const char *name, const int64_t *got, int64_t n)
{
    tp_shape s;
    int64_t *want = par_integers(p, name, &s), numel = 1;
    if (!want) return;
    for (int i = 0; i < s.ndim; i++) numel *= s.dim[i];
    if (numel != n)
        par_fail(p, "%s has %lld elements, the result %lld", name, (long long)numel, (long long)n);
    for (int64_t i = 0; i < n && numel == n; i++)
        if (got[i] != want[i])
            par_fail(p, "%s: element %lld is %lld, not %lld", name, (long long)i, (long long)got[i],
                     (long long)want[i]);
    free(want);
}

/* x as doubles, to be freed; NULL: failed. */
static double *download(parity *p, tp_tape *T, const char *name, tp_tensor x)
{
    if (tp_dtype_of(x) == TP_BF16) x = tp_cast(T, x, TP_F32);
    const int64_t n = tp_numel(x);
    const size_t size = tp_dtype_size(tp_dtype_of(x));
    double *out = malloc((size_t)(n + 1) * sizeof *out);

    if (!out) par_fail(p, "%s: out of memory", name);
    if (!out || !tp_read(T, x, out, (size_t)n * size)) {
        par_ok(p, T, NULL);
        free(out);
        return NULL;
    }
    if (size == sizeof(float)) /* from the end, so that nothing is overwritten unread */
        for (int64_t i = n - 1; i >= 0; i--) {
            float f;
            memcpy(&f, (const char *)out + (size_t)i * sizeof f, sizeof f);
            out[i] = f;
        }
    return out;
}

void par_check_tensor(parity *p, tp_tape *T, const char *name, tp_tensor x)
{
    double *got = download(p, T, name, x);
    if (got) par_check(p, name, got, tp_numel(x), par_limit(p, PAR_OUTPUT));
    free(got);
}

void par_check_input_grad(parity *p, tp_tape *T, const char *name, tp_tensor x)
{
    char full[128];
    snprintf(full, sizeof full, "grad.input.%s", name);
    if (p->failed || !par_has(p, full)) return;
    const tp_tensor g = tp_grad(T, x);
    double *got = download(p, T, full, g);
    if (got) par_check(p, full, got, tp_numel(g), par_limit(p, PAR_GRADIENT));
    free(got);
}

/* A parameter that backward did not reach has a gradient of zeros. */
static void check_grad(parity *p, tp_params *P, const tp_param_info *it)
{
    char grad[256], norm[256];
    const int64_t n = tp_numel(it->tensor);
    snprintf(grad, sizeof grad, "grad.%s", it->name);
    snprintf(norm, sizeof norm, "gradnorm.%s", it->name);
    const bool whole = par_has(p, grad), sum = par_has(p, norm);
    if (!whole && !sum) return;

    double *got = calloc((size_t)n + 1, sizeof *got), squares = 0.0;
    if (!got ||
        (it->has_grad && !tp_param_get_grad(P, it->tensor, TP_F64, got, (size_t)n * sizeof *got))) {
        par_ok(p, NULL, P);
        par_fail(p, "%s: out of memory", grad);
        free(got);
        return;
    }
    for (int64_t i = 0; i < n; i++) squares += got[i] * got[i];
    if (whole) par_check(p, grad, got, n, par_limit(p, PAR_GRADIENT));
    if (sum) par_check_one(p, norm, sqrt(squares), par_limit(p, PAR_GRADIENT));
    free(got);
}

void par_check_grads(parity *p, tp_params *P)
{
    for (tp_param_info it = { 0 }; !p->failed && tp_next_param(P, &it);)
        if (!it.buffer && !it.alias_of) check_grad(p, P, &it);
}

tp_tensor par_probe(parity *p, tp_tape *T, tp_tensor x)
{
    const tp_tensor probe = par_tensor(p, T, "input.probe");
    const tp_tensor loss = tp_sum(T, tp_mul(T, x, probe), TP_ALL);
    if (par_has(p, "output.loss"))
        par_check_one(p, "output.loss", tp_item(T, loss), par_limit(p, PAR_OUTPUT));
    return loss;
}
