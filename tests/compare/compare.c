/* compare.c - reads a call from the file, runs its row and backward, and emits the results. */
#include "compare.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- options ---- */

static const json_t *option(const compare_call *c, const char *name)
{
    return json_object_get(c->options, name);
}

double compare_number(const compare_call *c, const char *name, double or)
{
    const json_t *v = option(c, name);
    return json_is_number(v) ? json_number_value(v) : or ;
}

int64_t compare_int(const compare_call *c, const char *name, int64_t or)
{
    const json_t *v = option(c, name);
    return json_is_integer(v) ? json_integer_value(v) : or ;
}

bool compare_flag(const compare_call *c, const char *name)
{
    return json_is_true(option(c, name));
}

const char *compare_text(const compare_call *c, const char *name, const char * or)
{
    const json_t *v = option(c, name);
    return json_is_string(v) ? json_string_value(v) : or ;
}

int compare_list(const compare_call *c, const char *name, int max, int64_t *out)
{
    const json_t *v = option(c, name);
    const int n = (int)json_array_size(v);
    for (int i = 0; i < n && i < max; i++)
        out[i] = json_integer_value(json_array_get(v, (size_t)i));
    return n;
}

int compare_numbers(const compare_call *c, const char *name, int max, double *out)
{
    const json_t *v = option(c, name);
    if (!v || json_is_string(v)) return -1;
    if (json_is_boolean(v)) *out = json_is_true(v);
    if (json_is_number(v)) *out = json_number_value(v);
    if (!json_is_array(v)) return 1;
    const int n = (int)json_array_size(v);
    for (int i = 0; i < n && i < max; i++) out[i] = json_number_value(json_array_get(v, (size_t)i));
    return n;
}

const char *compare_option(const compare_call *c, int i)
{
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)c->options, name, v)
    {
        const bool own =
            strcmp(name, "op") == 0 || strcmp(name, "tolerance") == 0 || strcmp(name, "train") == 0;
        if (!own && i-- == 0) return name;
    }
    return NULL;
}

int compare_axes(const compare_call *c)
{
    int64_t axis[TP_MAX_DIMS];
    const int n = compare_list(c, "axes", TP_MAX_DIMS, axis);
    int axes = n > 0 ? TP_AXES((int)axis[0]) : TP_ALL;
    for (int i = 1; i < n; i++) axes |= TP_AXES((int)axis[i]);
    return compare_flag(c, "keep") ? TP_KEEP(axes) : axes;
}

tp_reduction compare_reduction(const compare_call *c)
{
    const char *text = compare_text(c, "reduction", "mean");
    return strcmp(text, "sum") == 0        ? TP_SUM
           : strcmp(text, "each") == 0     ? TP_EACH
           : strcmp(text, "mean_all") == 0 ? TP_MEAN_ALL
                                           : TP_MEAN;
}

/* ---- tensors of the file ---- */

static const tp_file_tensor *find(const compare_call *c, const char *kind, int i)
{
    char name[64];
    snprintf(name, sizeof name, "%d.%s%d", c->number, kind, i);
    return tp_file_find(c->file, name);
}

static tp_dtype dtype_of(const tp_file_tensor *t)
{
    static const struct {
        const char *stored;
        tp_dtype dtype;
    } names[] = { { "F64", TP_F64 }, { "F32", TP_F32 }, { "BF16", TP_BF16 },
                  { "I64", TP_I64 }, { "I32", TP_I32 }, { "U8", TP_U8 } };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].stored, t->stored) == 0) return names[i].dtype;
    return TP_F64;
}

/* The elements in dt, to be freed; NULL if the file failed. */
static void *elements(tp_file *F, const tp_file_tensor *t, tp_dtype dt)
{
    void *host = malloc((size_t)t->numel * tp_dtype_size(dt) + 1);
    if (host && tp_file_read(F, t, dt, host)) return host;
    free(host);
    return NULL;
}

/* Floating tensors get a gradient if `wanted`. */
static tp_tensor tensor_of(const compare_call *c, const tp_file_tensor *t, bool wanted)
{
    const tp_dtype dt = dtype_of(t);
    void *host = elements(c->file, t, dt);
    if (!host) return tp_raise(c->T, TP_E_IO, "%s", tp_file_why(c->file));
    const tp_tensor x = wanted && tp_is_float(dt) ? tp_input(c->T, dt, t->shape, host)
                                                  : tp_from(c->T, dt, t->shape, host);
    free(host);
    return x;
}

tp_tensor compare_input(const compare_call *c, int i)
{
    return i < c->nx ? c->x[i] : TP_NONE;
}

static void read_inputs(compare_call *c)
{
    for (int i = 0; i < COMPARE_TENSORS; i++) {
        const tp_file_tensor *t = find(c, "x", i);
        if (!t) continue;
        c->x[i] = tensor_of(c, t, true);
        c->nx = i + 1;
    }
}

void compare_load(compare_call *c)
{
    for (tp_param_info it = { 0 }; tp_next_param(c->P, &it);) {
        char name[256];
        snprintf(name, sizeof name, "%d.p.%s", c->number, it.name);
        const tp_file_tensor *t = tp_file_find(c->file, name);
        if (!t) {
            tp_params_raise(c->P, TP_E_VALUE, "the file has no %s", name);
            return;
        }
        const tp_dtype dt = dtype_of(t);
        void *host = elements(c->file, t, dt);
        const size_t bytes = (size_t)t->numel * tp_dtype_size(dt);
        if (host && !tp_param_set(c->P, it.tensor, dt, host, bytes))
            tp_params_raise(c->P, TP_E_VALUE, "%s", tp_params_why(c->P));
        free(host);
    }
}

/* ---- results ---- */

static void emit(const compare_call *c, const char *name, tp_tensor x, compare_sink sink, void *env)
{
    const tp_dtype dt = tp_dtype_of(x);
    const size_t bytes = (size_t)tp_numel(x) * tp_dtype_size(dt);
    void *host = malloc(bytes + 1);
    if (host && tp_read(c->T, x, host, bytes)) sink(env, c, name, dt, tp_shape_of(x), host);
    free(host);
}

static void emit_zeros(const compare_call *c, const char *name, tp_tensor x, compare_sink sink,
                       void *env)
{
    const tp_dtype dt = tp_dtype_of(x);
    void *host = calloc((size_t)tp_numel(x) + 1, tp_dtype_size(dt));
    if (host) sink(env, c, name, dt, tp_shape_of(x), host);
    free(host);
}

/* The sum of all outputs times the gradients of the file; false if it has none. */
static bool loss_of(compare_call *c, tp_tensor *loss)
{
    bool any = false;
    for (int i = 0; i < c->ny; i++) {
        const tp_file_tensor *t = find(c, "dy", i);
        if (!t) continue;
        const tp_tensor term = tp_sum(c->T, tp_mul(c->T, c->y[i], tensor_of(c, t, false)), TP_ALL);
        *loss = any ? tp_add(c->T, *loss, term) : term;
        any = true;
    }
    return any;
}

static void emit_gradients(compare_call *c, compare_sink sink, void *env)
{
    char name[256];
    for (int i = 0; i < c->nx; i++) {
        if (!tp_given(c->x[i]) || !tp_is_float(tp_dtype_of(c->x[i]))) continue;
        snprintf(name, sizeof name, "dx%d", i);
        const tp_tensor g = tp_grad(c->T, c->x[i]);
        if (tp_ok(c->T)) {
            emit(c, name, g, sink, env);
        } else { /* no gradient reached it */
            tp_clear(c->T);
            emit_zeros(c, name, c->x[i], sink, env);
        }
    }
    for (tp_param_info it = { 0 }; tp_next_param(c->P, &it);) {
        if (it.buffer || !it.has_grad) continue;
        snprintf(name, sizeof name, "dp.%s", it.name);
        emit(c, name, tp_grad(c->T, it.tensor), sink, env);
    }
}

static void run(compare_call *c, const compare_row *row, compare_sink sink, void *env)
{
    read_inputs(c);
    c->ny = 1;
    c->y[0] = row->run ? row->run(c) : compare_by_name(c, row->function);
    for (int i = 0; i < c->ny && tp_ok(c->T); i++) {
        char name[16];
        snprintf(name, sizeof name, "y%d", i);
        emit(c, name, c->y[i], sink, env);
    }
    tp_tensor loss;
    if (!tp_ok(c->T) || !loss_of(c, &loss)) return;
    tp_backward(c->T, loss);
    if (tp_ok(c->T)) emit_gradients(c, sink, env);
}

int compare_calls(tp_file *file)
{
    int64_t n = -1;
    return tp_file_int(file, "calls", &n) ? (int)n : -1;
}

int compare_run(tp_device *D, tp_file *file, int number, compare_sink sink, void *env, char *why,
                size_t size)
{
    char key[16];
    snprintf(key, sizeof key, "%d", number);
    const char *text = tp_file_meta(file, key);
    json_t *options = text ? json_loads(text, 0, NULL) : NULL;
    compare_call c = { .D = D, .file = file, .number = number, .options = options };
    const char *op = compare_text(&c, "op", "");
    compare_row row;
    if (!compare_row_of(op, &row)) {
        snprintf(why, size, "neither a row of tests/compare/rows_*.c nor an op is named '%s'", op);
        json_decref(options);
        return -1;
    }
    c.T = tp_tape_new(D, &(tp_tape_opts){ .compute = TP_F64, .train = compare_flag(&c, "train") });
    c.P = tp_params_new(D, &(tp_params_opts){ .dtype = TP_F64 });
    run(&c, &row, sink, env);
    const bool ok = tp_ok(c.T) && tp_params_ok(c.P);
    if (!ok) snprintf(why, size, "%s", tp_ok(c.T) ? tp_params_why(c.P) : tp_why(c.T));
    tp_tape_free(c.T);
    tp_params_free(c.P);
    json_decref(options);
    return ok ? 0 : -1;
}
